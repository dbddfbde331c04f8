"""The load client against a real server on a free port, which does what a test tells it to."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "data_plane"))
import load

OK = b"HTTP/1.1 200 OK\r\nMark-Answered-By: function\r\nContent-Length: 4\r\n\r\npong"
Answer = Callable[[int], list[bytes | None]]  # for the request of that number: what is written, None hangs up


@contextmanager
def server(answer: Answer, hold: int = 0) -> Iterator[tuple[str, list[bytes]]]:
    """Its URL and the requests it got. The first answers are held back until `hold` requests are there."""
    got: list[bytes] = []
    held: list[asyncio.Future[None]] = []

    def release() -> None:
        for waiter in held:
            if not waiter.done():
                waiter.set_result(None)
        held.clear()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                got.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(4))
                number = len(got) - 1
                if len(got) >= hold:
                    release()
                else:
                    held.append(asyncio.get_running_loop().create_future())
                    await held[-1]
                for piece in answer(number):
                    if piece is None:
                        raise ConnectionAbortedError
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    async def finish() -> None:
        """The client has hung up, so connections that are not held end by themselves."""
        listening.close()
        release()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        asyncio.get_running_loop().call_soon(loop.stop)

    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/ask", got
    finally:
        asyncio.run_coroutine_threadsafe(finish(), loop).result()
        thread.join()
        loop.close()


def target(url: str) -> load.Target:
    return load.Target(url, b"ping", {"x-from": "test"}, expected=b"pong")


def test_an_open_loop_sends_no_request_before_it_is_due() -> None:
    due = np.array([0.0, 0.01, 0.01, 0.02, 0.03])
    with server(lambda _: [OK]) as (url, got):
        answers = load.open_loop(target(url), due, connections=2)
    assert len(got) == 5
    assert got[0].startswith(b"POST /ask HTTP/1.1\r\n")
    assert b"\r\nx-from: test\r\n" in got[0]
    assert answers["scheduled_s"].tolist() == due.tolist()
    assert np.all(answers["sent_s"] >= answers["scheduled_s"])
    assert np.all(answers["answered_s"] > answers["sent_s"])
    assert answers["right"].all()
    assert set(answers["answered_by"]) == {"function"}


def test_an_open_loop_does_not_wait_for_answers() -> None:
    due = np.arange(8) * 0.005
    with server(lambda _: [OK], hold=8) as (url, _):
        answers = load.open_loop(target(url), due, connections=8)
    assert answers["right"].all()
    assert answers["answered_s"].min() > due[-1]


def test_waiting_for_a_free_connection_counts_as_lag() -> None:
    due = np.zeros(6)
    with server(lambda _: [OK]) as (url, got):
        answers = load.open_loop(target(url), due, connections=1)
    assert len(got) == 6
    assert np.all(np.diff(np.sort(answers["sent_s"])) > 0)
    assert load.summary(answers).lag_max_ms > 0


def test_answers_in_pieces_are_put_together() -> None:
    pieces = [OK[:20], OK[20:-2], OK[-2:]]
    with server(lambda _: list(pieces)) as (url, _):
        answers = load.open_loop(target(url), np.zeros(3), connections=1)
    assert answers["right"].all()


def test_wrong_bodies_and_refusals_are_counted_as_such() -> None:
    refused = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\npong"
    said = [OK, OK.replace(b"pong", b"pang"), refused, OK]
    with server(lambda number: [said[number]]) as (url, _):
        answers = load.open_loop(target(url), np.arange(4) * 0.002, connections=1)
    assert answers["status"].tolist() == [200, 200, 429, 200]
    assert answers["right"].tolist() == [True, False, False, True]
    found = load.summary(answers)
    assert (found.requests, found.refused, found.wrong) == (4, 1, 1)


def test_a_broken_connection_loses_one_request_and_is_replaced() -> None:
    with server(lambda number: [OK[:30], None] if number == 1 else [OK]) as (url, got):
        answers = load.open_loop(target(url), np.arange(3) * 0.002, connections=1)
    assert len(got) == 3
    assert answers["status"].tolist() == [200, 0, 200]
    assert np.isnan(answers["answered_s"]).tolist() == [False, True, False]


def test_what_is_never_answered_is_among_the_answers() -> None:
    with server(lambda _: [OK], hold=99) as (url, _):
        answers = load.open_loop(target(url), np.zeros(3), connections=2, patience_s=0.05)
    assert len(answers) == 3
    assert not answers["status"].any()
    assert np.isnan(answers["sent_s"]).tolist() == [False, False, True]  # two connections, both busy


def test_a_closed_loop_keeps_each_connection_busy() -> None:
    with server(lambda _: [OK], hold=4) as (url, got):
        answers = load.closed_loop(target(url), 0.1, connections=4)
    assert len(got) >= 8
    assert len(answers) == len(got)
    assert answers["right"].all()  # also those on their way at the end
    assert np.array_equal(answers["scheduled_s"], answers["sent_s"])


def test_a_summary_counts_latency_from_when_a_request_was_due() -> None:
    answers = np.zeros(4, load.ANSWERS)
    answers["scheduled_s"] = [0.0, 1.0, 2.0, 3.0]
    answers["sent_s"] = [0.0, 1.0, 2.5, 3.0]
    answers["answered_s"] = [0.1, 1.1, 3.0, np.nan]
    answers["right"] = [True, True, True, False]
    found = load.summary(answers)
    assert (found.requests, found.wrong) == (4, 1)
    assert found.rate_rps == pytest.approx(1.0)
    assert found.p50_ms == pytest.approx(100.0)
    assert found.lag_max_ms == pytest.approx(500.0)


def test_a_poisson_stream_has_its_rate_and_its_seed() -> None:
    times = load.poisson(2000.0, 50.0, seed=3)
    assert len(times) == pytest.approx(100_000, rel=0.02)
    assert np.all(np.diff(times) >= 0)
    assert 0 <= times[0] < times[-1] < 50
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert np.array_equal(times, load.poisson(2000.0, 50.0, seed=3))
