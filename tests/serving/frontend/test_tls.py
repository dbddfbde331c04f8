"""TLS of the addresses, with certificates made here, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from mark.domain.errors import BadInput
from mark.serving.frontend.http import HttpLimits, HttpServer
from mark.serving.frontend.tls import TlsFiles
from tests.serving.conftest import Run


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def issue(ca: trustme.CA, folder: Path, name: str) -> TlsFiles:
    files = TlsFiles(folder / f"{name}.pem", folder / f"{name}.key")
    leaf = ca.issue_cert("localhost", common_name=name)
    leaf.private_key_pem.write_to_path(files.key)
    files.certificate.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    return files


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


def echo(**limits: Any) -> HttpServer:
    return HttpServer(lambda e: e.answer(200, e.body), HttpLimits(**limits))


async def ask(port: int, context: ssl.SSLContext, body: bytes = b"body") -> httpx.Response:
    async with httpx.AsyncClient(verify=context) as client:
        return await client.post(f"https://localhost:{port}/", content=body)


async def common_name(port: int, context: ssl.SSLContext) -> str:
    """Return the common name of the certificate that the server shows."""
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return next(value for ((name, value),) in certificate["subject"] if name == "commonName")


def test_requests_over_tls(run: Run, ca: trustme.CA, tmp_path: Path) -> None:
    async def main() -> None:
        server = echo(body_bytes=2_000_000)
        port = await server.start("localhost", 0, issue(ca, tmp_path, "a").context())
        assert (await ask(port, trusting(ca), b"x" * 1_000_000)).content == b"x" * 1_000_000
        refused = await ask(port, trusting(ca), b"x" * 3_000_000)
        assert refused.status_code == 413
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            await ask(port, trusting(trustme.CA()))
        with pytest.raises(httpx.HTTPError):
            async with httpx.AsyncClient() as client:
                await client.get(f"http://localhost:{port}/")
        assert (await ask(port, trusting(ca))).content == b"body"
        await server.close(0)

    run(main())


def test_only_tls_1_2_and_1_3_are_spoken(run: Run, ca: trustme.CA, tmp_path: Path) -> None:
    async def main() -> None:
        server, served = echo(), issue(ca, tmp_path, "a").context()
        assert served.minimum_version == ssl.TLSVersion.TLSv1_2
        port = await server.start("localhost", 0, served)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(ca)
            context.minimum_version = context.maximum_version = version
            assert (await ask(port, context)).status_code == 200
        await server.close(0)

    run(main())


def test_with_a_client_ca_only_its_clients_come_in(run: Run, ca: trustme.CA, tmp_path: Path) -> None:
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    files = issue(ca, tmp_path, "server")

    async def main() -> None:
        server = echo()
        context = TlsFiles(files.certificate, files.key, tmp_path / "clients.pem").context()
        port = await server.start("localhost", 0, context)
        with pytest.raises(httpx.HTTPError):
            await ask(port, trusting(ca))
        stranger, friend = trusting(ca), trusting(ca)
        ca.issue_cert("stranger").configure_cert(stranger)
        clients.issue_cert("friend").configure_cert(friend)
        with pytest.raises(httpx.HTTPError):
            await ask(port, stranger)
        assert (await ask(port, friend)).status_code == 200
        await server.close(0)

    run(main())


def test_a_reload_takes_new_certificates_and_never_bad_ones(run: Run, ca: trustme.CA, tmp_path: Path) -> None:
    async def main() -> None:
        server, files, other = echo(), issue(ca, tmp_path, "first"), issue(ca, tmp_path, "second")
        context = files.context()
        port = await server.start("localhost", 0, context)
        assert await common_name(port, trusting(ca)) == "first"
        shutil.copy(other.certificate, files.certificate)  # the key is still the first one's
        with pytest.raises(BadInput, match="not a certificate with its"):
            files.reload(context)
        assert await common_name(port, trusting(ca)) == "first"
        shutil.copy(other.key, files.key)
        files.reload(context)
        assert await common_name(port, trusting(ca)) == "second"
        await server.close(0)

    run(main())


def test_a_client_that_never_finishes_its_handshake_is_cut(run: Run, ca: trustme.CA, tmp_path: Path) -> None:
    async def main() -> None:
        server = echo(header_timeout_s=0.05)
        port = await server.start("localhost", 0, issue(ca, tmp_path, "a").context())
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(b"\x16\x03\x01")
        with suppress(ConnectionError):  # a reset will do
            assert await reader.read() == b""
        writer.close()
        await server.close(0)

    run(main())


def test_files_that_cannot_be_used_are_bad_input(ca: trustme.CA, tmp_path: Path) -> None:
    good, other = issue(ca, tmp_path, "good"), issue(ca, tmp_path, "other")
    nonsense, missing = tmp_path / "nonsense", tmp_path / "missing"
    nonsense.write_text("nonsense")
    encrypted = tmp_path / "encrypted"
    plain = serialization.load_pem_private_key(good.key.read_bytes(), None)
    encrypted.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    for certificate, key in (
        (missing, good.key),
        (good.certificate, missing),
        (nonsense, good.key),
        (good.certificate, nonsense),
        (good.certificate, other.key),
        (good.certificate, encrypted),
    ):
        with pytest.raises(BadInput):
            TlsFiles(certificate, key).context()
    for client_ca in (missing, nonsense):
        with pytest.raises(BadInput, match=client_ca.name):
            TlsFiles(good.certificate, good.key, client_ca).context()
