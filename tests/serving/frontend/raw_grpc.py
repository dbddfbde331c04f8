"""Calls by gRPC that no library would make: HTTP/2 written by hand (RFC 9113, RFC 7541)."""

from __future__ import annotations

import socket
import struct

HEADERS, DATA, RESET, SETTINGS, PING, GOAWAY = 1, 0, 3, 4, 6, 7
WINDOW = 8
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _line(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def begun(stream: int) -> bytes:
    """Return a call of ModelInfer, without a message yet."""
    lines = (
        (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
    return frame(HEADERS, END_HEADERS, stream, b"\x83\x86" + b"".join(_line(*line) for line in lines))  # POST, http


def message(stream: int, content: bytes, said_bytes: int | None = None) -> bytes:
    """Return a message, or the first part of one that is said to be larger."""
    length = len(content) if said_bytes is None else said_bytes
    return frame(DATA, END_STREAM if said_bytes is None else 0, stream, b"\0" + struct.pack(">I", length) + content)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return connection


def ended(connection: socket.socket) -> bytes:
    """Return the data received until a stream or the connection ended."""
    data, read = b"", connection.makefile("rb")
    while len(head := read.read(9)) == 9:
        payload = read.read(int.from_bytes(head[:3], "big"))
        data += payload
        if (head[3] in (HEADERS, DATA) and head[4] & END_STREAM) or head[3] in (RESET, GOAWAY):
            break
    return data


def frames(connection: socket.socket, count: int) -> list[int]:
    """Return the kinds of the next frames other than settings and window updates; fewer if the connection ends."""
    found: list[int] = []
    read = connection.makefile("rb")
    while len(found) < count and len(head := read.read(9)) == 9:
        read.read(int.from_bytes(head[:3], "big"))
        if head[3] not in (SETTINGS, WINDOW):
            found.append(head[3])
    return found
