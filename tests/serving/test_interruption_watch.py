"""Notices of interruption, from a fake metadata service."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from mark.domain.errors import BadInput
from mark.serving.interruption_watch import POLL_S, MetadataService, watch
from tests.serving.test_server_process import INFER, MODEL, address, body, start, write_service

AT = "2026-11-22T10:02:00Z"
AT_UNIX_S = datetime(2026, 11, 22, 10, 2, tzinfo=UTC).timestamp()
TERMINATES = f'{{"action": "terminate", "time": "{AT}"}}'


class Imds:
    """IMDSv2 as far as notices go: tokens that can grow stale, 404 until armed; `broken` answers anything instead."""

    def __init__(self) -> None:
        self.armed: str | None = None
        self.broken: bytes | None = None  # raw, for the whole response
        self.status = 200
        self.tokens = 0
        self.asked = 0
        self.token = b""
        self.url = ""

    def forget_tokens(self) -> None:
        self.token = b""


@contextmanager
def metadata_service() -> Iterator[Imds]:
    imds = Imds()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.path == "/latest/api/token"
            assert 1 <= int(self.headers["x-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
            imds.tokens += 1
            imds.token = b"token %d" % imds.tokens
            self.answer(200, imds.token)

        def do_GET(self) -> None:
            assert self.path == "/latest/meta-data/spot/instance-action"
            imds.asked += 1
            if not imds.token or self.headers["x-aws-ec2-metadata-token"] != imds.token.decode():
                self.answer(401, b"")
            elif imds.armed is None:
                self.answer(404, b"")
            else:
                self.answer(imds.status, imds.armed.encode())

        def answer(self, status: int, content: bytes) -> None:
            if imds.broken is not None:
                self.wfile.write(imds.broken)
                return
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    imds.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield imds
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def imds() -> Iterator[Imds]:
    with metadata_service() as made:
        yield made


def test_nothing_is_announced_until_it_is(imds: Imds) -> None:
    service = MetadataService(imds.url + "/")
    assert service.gone_at_unix_s() is None
    imds.armed = TERMINATES
    assert service.gone_at_unix_s() == AT_UNIX_S
    imds.armed = f'{{"action": "hibernate", "time": "{AT}"}}'
    assert service.gone_at_unix_s() == AT_UNIX_S
    assert imds.tokens == 1, "a token is kept"


def test_a_stale_token_is_renewed(imds: Imds) -> None:
    service = MetadataService(imds.url)
    service.gone_at_unix_s()
    imds.forget_tokens()
    imds.armed = TERMINATES
    assert service.gone_at_unix_s() == AT_UNIX_S
    assert imds.tokens == 2


@pytest.mark.parametrize(
    "said", ["", "<html>", "[]", "null", "{}", '{"time": 7}', '{"time": "tomorrow"}', '{"time": null}', "\udc80"]
)
def test_an_unknown_announcement_is_no_end(imds: Imds, said: str) -> None:
    imds.armed = said.encode(errors="surrogateescape").decode("latin-1")
    with pytest.raises(OSError, match="announces something unknown"):
        MetadataService(imds.url).gone_at_unix_s()


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\x00\xff\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"),
        *(b"HTTP/1.1 200 OK\r\n\r\nto\nken", b"HTTP/1.1 200 OK\r\n\r\n\xff", b"HTTP/1.1 500 no\r\n\r\n"),
    ],
)
def test_a_service_that_is_none_is_an_oserror(imds: Imds, raw: bytes) -> None:
    """Another service may listen at that address."""
    imds.broken = raw
    with pytest.raises(OSError, match=r"no metadata service answers so|announces something|closed connection|500"):
        MetadataService(imds.url).gone_at_unix_s()


def test_a_missing_or_failing_metadata_service_is_an_os_error(imds: Imds) -> None:
    with pytest.raises(OSError, match="refused"):
        MetadataService("http://127.0.0.1:1").gone_at_unix_s()
    imds.armed, imds.status = TERMINATES, 503
    with pytest.raises(OSError, match="503"):
        MetadataService(imds.url).gone_at_unix_s()


def test_the_watch_announces_once_whatever_happened_before(imds: Imds, caplog: pytest.LogCaptureFixture) -> None:
    """Before come 404s, garbage and a lost token; each new trouble is logged once."""
    ends: list[float] = []

    async def after(asked: int) -> None:
        while imds.asked < asked:
            await asyncio.sleep(0.005)

    async def main() -> None:
        watching = asyncio.ensure_future(watch(MetadataService(imds.url, poll_s=0.01), ends.append))
        await after(3)
        imds.armed = "<html>"
        await after(6)
        imds.forget_tokens()
        await after(9)
        assert not watching.done()
        imds.armed = TERMINATES
        await asyncio.wait_for(watching, 5.0)
        asked = imds.asked
        await asyncio.sleep(0.05)
        assert imds.asked == asked

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert ends == [AT_UNIX_S]
    assert [record.message for record in caplog.records if "announces something unknown" in record.message] == [
        "notices of interruption cannot be read: the metadata service announces something unknown: b'<html>'"
    ]


def test_a_service_that_comes_back_is_heard(imds: Imds) -> None:
    ends: list[float] = []
    imds.broken = b""

    async def main() -> None:
        watching = asyncio.ensure_future(watch(MetadataService(imds.url, poll_s=0.01), ends.append))
        await asyncio.sleep(0.05)
        assert not watching.done()
        imds.broken, imds.armed = None, TERMINATES
        await asyncio.wait_for(watching, 5.0)

    asyncio.run(main())
    assert ends == [AT_UNIX_S]


def test_the_environment_says_where_how_often_and_whether(imds: Imds) -> None:
    imds.armed = TERMINATES
    said = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url, "MARK_NOTICE_POLL_S": "0.5"}
    service = MetadataService.of(said)
    assert service is not None
    assert (service.gone_at_unix_s(), service.poll_s) == (AT_UNIX_S, 0.5)
    usual = MetadataService.of({"HTTP_PROXY": "http://127.0.0.1:1"})
    assert usual is not None
    assert usual.poll_s == POLL_S
    assert MetadataService.of(said | {"AWS_EC2_METADATA_DISABLED": "True"}) is None


@pytest.mark.parametrize(
    "said",
    [
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "metadata"},
        *({"MARK_NOTICE_POLL_S": text} for text in ("0", "-1", "often", "nan", "3600", "")),
    ],
)
def test_what_the_environment_cannot_mean_is_refused(said: Mapping[str, str]) -> None:
    with pytest.raises(BadInput, match=next(iter(said))):
        MetadataService.of(said)


def test_an_announced_instance_drains_in_time_and_ends_well(tmp_path: Path, imds: Imds) -> None:
    """It serves while there is time, and has exited with code 0 before it is taken away."""
    (tmp_path / "model.py").write_text(MODEL)
    write_service(tmp_path, slo_ms=500)
    process = start(
        tmp_path,
        "--watch-interruptions",
        AWS_EC2_METADATA_SERVICE_ENDPOINT=imds.url,
        AWS_EC2_METADATA_DISABLED="false",
        MARK_NOTICE_POLL_S="0.05",
    )
    try:
        url = address(process)
        assert httpx.post(url + INFER, content=body(1), trust_env=False).status_code == 200
        gone_unix_s = int(time.time()) + 13.0  # 10 s are a margin, half a second is RT_max
        at = datetime.fromtimestamp(gone_unix_s, UTC)
        imds.armed = f'{{"action": "terminate", "time": "{at:%Y-%m-%dT%H:%M:%SZ}"}}'
        assert process.stderr is not None
        assert any("is taken away in" in line for line in process.stderr)
        assert httpx.post(url + INFER, content=body(2), trust_env=False).status_code == 200
        assert process.wait(20) == 0
        assert gone_unix_s - 11.0 < time.time() < gone_unix_s
    finally:
        process.kill()
        process.communicate()
