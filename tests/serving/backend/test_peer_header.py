"""The controller tells processes of each other by a header, like prices."""

from __future__ import annotations

import pytest

from mark.serving.backend.peer_header import HEADER, MOST, headers_of, peers_in


def test_what_is_told_is_heard() -> None:
    told = headers_of(["http://10.0.0.6:8080", "http://10.0.0.5:8080"])
    assert told == {HEADER: "http://10.0.0.5:8080 http://10.0.0.6:8080"}
    heard = peers_in({name.encode(): value.encode() for name, value in told.items()})
    assert heard == ("http://10.0.0.5:8080", "http://10.0.0.6:8080")


def test_a_process_that_is_left_alone_is_told_so() -> None:
    assert headers_of(["http://10.0.0.5:8080"]) == {HEADER: "http://10.0.0.5:8080"}
    assert headers_of([]) == {}
    assert peers_in({}) is None
    assert peers_in({b"mark-peers": b""}) == ()


def test_there_are_not_more_than_a_header_holds() -> None:
    urls = [f"http://10.0.{n // 256}.{n % 256}:8080" for n in range(1000)]
    (value,) = headers_of(urls).values()
    assert len(value.split()) == MOST
    assert len(peers_in({b"mark-peers": " ".join(urls).encode()}) or ()) == MOST


@pytest.mark.parametrize(
    "url",
    [
        "https://198.51.101.7:8080",  # a public address
        "http://169.254.169.254:80",  # EC2's metadata service
        "http://[::ffff:169.254.169.254]:80",
        "http://[fe80::1]:80",
        "http://0.0.0.0:80",
        "http://224.0.0.1:80",
        "http://evil.example:8080",
        "http://[::1",
        "10.0.0.5:8080",
    ],
)
def test_peer_outside_the_private_network_is_left_out(url: str) -> None:
    said = f"{url} http://10.0.0.5:8080 http://[fd00::5]:8080 http://127.0.0.1:8080"
    assert peers_in({b"mark-peers": said.encode()}) == (
        "http://10.0.0.5:8080",
        "http://[fd00::5]:8080",
        "http://127.0.0.1:8080",
    )
