"""Requests forwarded over real sockets, to replicas that fail on command and then to real bouncers."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mark.domain.errors import BadInput
from mark.serving.gateway.forwarding import Forwarder, Forwarding
from tests.serving.fake_replicas import CLOSE, HANG, RESET, Asked, FakeReplica, said
from tests.serving.front import ADMIN, INFER, Front, always, run
from tests.serving.test_server_process import INFER as REAL_INFER
from tests.serving.test_server_process import address, body, served, write_service
from tests.serving.test_server_process import folder as folder


def test_requests_and_answers_are_forwarded_without_hop_by_hop_headers() -> None:
    async def main() -> None:
        lines = ("Content-Type: application/x", "mark-answered-by: function", "inference-header-content-length: 2")
        a = FakeReplica(always(said(201, b"\0\xffxyz", *lines, "keep-alive: 5", "date: never")))
        async with Front(a, replica_key="the-key-of-replicas") as front:
            answer = await front.post(
                b"\0\1\2", INFER + "?x=%20&y", content_type="application/octet-stream", x_request_id="mine",
                authorization="Bearer of-the-client", x_api_key="of-the-client", te="trailers", x_hop="1",
                connection="keep-alive, x-hop", inference_header_content_length="1", traceparent="00-a-b-01",
            )  # fmt: skip
            (asked,) = a.asked
            assert (asked.method, asked.target, asked.body) == ("POST", INFER + "?x=%20&y", b"\0\1\2")
            ours = {name: asked.headers.pop(name) for name in ("host", "content-length", "authorization")}
            assert ours == {"host": a.url[7:], "content-length": "3", "authorization": "Bearer the-key-of-replicas"}
            for name in ("accept", "accept-encoding", "user-agent"):  # of the client's library
                del asked.headers[name]
            assert asked.headers == {
                "content-type": "application/octet-stream", "x-request-id": "mine", "traceparent": "00-a-b-01",
                "inference-header-content-length": "1",
            }  # fmt: skip
            assert (answer.status_code, answer.content) == (201, b"\0\xffxyz")
            headers = dict(answer.headers)
            assert headers.pop("date") != "never"
            assert headers.pop("connection") == "keep-alive"  # the listener's own
            assert headers == {
                "content-type": "application/x", "content-length": "5", "mark-answered-by": "function",
                "x-request-id": "mine", "inference-header-content-length": "2",
            }  # fmt: skip

    run(main())


def test_a_request_without_an_id_is_forwarded_with_one() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            ids = [(await front.post(x_request_id=given)).headers["x-request-id"] for given in ("y" * 129, "z", "")]
            ids.append((await front.post()).headers["x-request-id"])
            assert ids == [asked.headers["x-request-id"] for asked in a.asked]
            assert ids[1] == "z"
            assert len(set(ids) - {""}) == 4

    run(main())


def test_a_second_answer_never_reaches_the_next_client() -> None:
    """The replica answers the first request twice, the second time while the connection waits for another answer."""

    def echo(asked: Asked) -> bytes:
        return said(200, asked.body, f"x-request-id: {asked.headers['x-request-id']}")

    async def main() -> None:
        a = FakeReplica(echo)
        async with Front(a) as front:
            assert (await front.post(b"one", x_request_id="first")).content == b"one"
            a.held = asyncio.Event()
            a.came.clear()
            a.left.clear()
            second = asyncio.ensure_future(front.post(b"two", x_request_id="second"))
            await a.came.wait()
            a.say(said(200, b"one", "x-request-id: first"))
            await a.left.wait()
            a.held.set()
            answer = await second
            assert (answer.status_code, answer.content) == (200, b"two") or answer.status_code == 503
            assert answer.headers["x-request-id"] == "second"
            assert (await front.state())["replicas"][a.url]["failed"] >= 1

    run(main())


def test_only_a_gateway_without_auth_forwards_the_clients_key() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a, keep_credentials=True) as front:
            await front.post(authorization="Bearer of-the-client")
            assert a.asked[-1].headers["authorization"] == "Bearer of-the-client"
        a = FakeReplica()
        async with Front(a) as front:
            await front.post(authorization="Bearer of-the-client")
            assert "authorization" not in a.asked[-1].headers

    run(main())


def test_deadlines_travel_on_less_what_was_spent() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            await front.post(mark_deadline_ms="5000")
            assert 0.0 < float(a.asked[-1].headers["mark-deadline-ms"]) < 5000.0
            await front.post(mark_deadline_ms="inf")  # the gateway itself waits 30 s
            assert 25_000.0 < float(a.asked[-1].headers["mark-deadline-ms"]) <= 30_000.0
            await front.post()
            assert "mark-deadline-ms" not in a.asked[-1].headers
            for wrong in ("soon", "-1", "nan"):
                assert (await front.post(mark_deadline_ms=wrong)).status_code == 400
            assert (await front.post(mark_deadline_ms="0")).status_code == 504
            assert len(a.asked) == 3

    run(main())


def test_pages_and_index_are_a_replicas() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            for path in ("/", "/docs", "/openapi.json", "/v2/repository/index"):
                assert (await front.post(path=path)).status_code == 200
            assert len(a.asked) == 4

    run(main())


def test_other_paths_and_methods_end_here() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            for path in (
                "/v3",
                "/docs/x",
                "/v2/repository/models/m/load",
                "/v2/models/%2e%2E/admin",
                "/v1/models/m:predict",
            ):
                assert (await front.post(path=path)).status_code == 404
            reader, writer = await asyncio.open_connection("127.0.0.1", int(front.url.rpartition(":")[2]))
            writer.write(b"GET /v2/models/../../metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 404 ")
            writer.close()
            assert (await front.client.delete("/v2/models/m")).headers["allow"] == "GET, POST"
            assert a.asked == []
            head = await front.client.head("/v2/models/m")
            assert (head.status_code, head.content, a.asked[-1].method) == (200, b"", "GET")
            assert (await front.client.get("/v2")).status_code == 200
            assert (await front.post(path="/invocations")).content == b"hi"

    run(main())


@pytest.mark.parametrize("failure", [CLOSE, RESET])
def test_a_dropped_request_is_answered_by_another_replica_once(failure: bytes) -> None:
    async def main() -> None:
        a, b = FakeReplica(always(failure)), FakeReplica()
        async with Front(a, b) as front:
            assert (await front.post()).content == b"hi"
            assert (len(a.asked), len(b.asked)) == (1, 1)
            b.then = always(failure)
            lost = await front.post()
            assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
            assert lost.json() == {"error": "the worker or replica was lost"}
            assert (len(a.asked), len(b.asked)) == (2, 2)

    run(main())


def test_a_broken_off_answer_is_not_asked_for_again() -> None:
    async def main() -> None:
        half = FakeReplica(always(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"), ends=True)
        whole = FakeReplica()
        async with Front(half, whole) as front:
            assert (await front.post()).status_code == 502
            assert whole.asked == []

    run(main())


def test_a_refusal_is_tried_elsewhere_once_and_then_passed_on() -> None:
    async def main() -> None:
        a, b = FakeReplica(always(said(429, b'{"error": "a"}', "retry-after: 7"))), FakeReplica()
        async with Front(a, b) as front:
            assert (await front.post()).status_code == 200
        a, b = FakeReplica(a.then), FakeReplica(always(said(503, b"", "mark-is: b")))
        async with Front(a, b) as front:
            second = await front.post()
            assert (second.status_code, second.headers["mark-is"], second.headers["retry-after"]) == (503, "b", "1")
            assert [len(a.asked), len(b.asked)] == [1, 1]
            only = await front.post()  # both have just refused
            assert only.status_code in (429, 503)
            assert len(a.asked) + len(b.asked) == 3
        a, b = FakeReplica(a.then), FakeReplica(always(CLOSE))
        async with Front(a, b) as front:
            kept = await front.post()  # better a refusal than nothing
            assert (kept.status_code, kept.headers["retry-after"], kept.json()) == (429, "7", {"error": "a"})

    run(main())


def test_an_error_of_the_model_is_an_answer() -> None:
    async def main() -> None:
        a, b = FakeReplica(always(said(500, b'{"error": "x"}'))), FakeReplica()
        async with Front(a, b) as front:
            assert (await front.post()).json() == {"error": "x"}
            assert b.asked == []

    run(main())


def test_a_replica_that_hangs_costs_a_504_and_its_connection() -> None:
    async def main() -> None:
        a = FakeReplica(always(HANG))
        async with Front(a, timeout_s=0.1) as front:
            hung = await front.post()
            assert (hung.status_code, hung.json()) == (504, {"error": "no replica answered in time"})
            await a.left.wait()
            assert a.gone == 1
            state = (await front.state())["replicas"][a.url]
            assert (state["in_flight"], state["failed"]) == (0, 1)
        a = FakeReplica(always(HANG))
        async with Front(a, grace_s=0.01) as front:
            late = await front.post(mark_deadline_ms="300")
            assert (late.status_code, late.json()["error"][:12]) == (504, "the deadline")
            await a.left.wait()
            assert (await front.state())["replicas"][a.url]["failed"] == 0  # the client was in a hurry

    run(main())


@pytest.mark.parametrize("hedge_after_s", [0.02, 1e-9])
def test_hedging_asks_a_second_replica_and_cancels_the_first(hedge_after_s: float) -> None:
    """This holds even if the delay is over before the request is sent, because a gateway may be held up, too."""

    async def main() -> None:
        a, b = FakeReplica(always(HANG)), FakeReplica()
        async with Front(a, b, policy={"hedge_after_s": hedge_after_s}) as front:
            assert (await front.post(b"x")).content == b"x"
            await a.left.wait()
            assert (a.gone, len(b.asked)) == (1, 1)
            assert (await front.state())["hedges"] == 1
            assert (await front.post(b"y", mark_deadline_ms="5000")).content == b"y"

    run(main())


def test_a_client_that_leaves_takes_its_request_along() -> None:
    async def main() -> None:
        a = FakeReplica(always(HANG))
        async with Front(a) as front:
            leaving = asyncio.ensure_future(front.post())
            await a.came.wait()
            assert (await front.state())["in_flight"] == 1
            leaving.cancel()
            await a.left.wait()
            assert (await front.state())["in_flight"] == 0
            assert "mark_gateway_clients_gone_total 1.0" in (await front.client.get("/metrics")).text

    run(main())


def test_more_than_the_most_in_flight_get_a_503() -> None:
    async def main() -> None:
        a = FakeReplica(held=asyncio.Event())
        async with Front(a, policy={"most_in_flight": 1}) as front:
            first = asyncio.ensure_future(front.post())
            await a.came.wait()
            second = await front.post()
            assert (second.status_code, second.json()) == (503, {"error": "too many requests are on their way"})
            assert a.held is not None
            a.held.set()
            assert (await first).status_code == 200

    run(main())


def test_replicas_elsewhere_need_tls_or_a_private_network() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(BadInput, match="would be reached in clear"):
            Forwarder(Forwarding(), loop).put({"http://10.0.0.1:80": 1.0})
        for forwarder, url in (
            (Forwarder(Forwarding(in_clear=True), loop), "http://10.0.0.1:80"),
            (Forwarder(Forwarding(), loop), "https://10.0.0.1:80"),
        ):
            forwarder.put({url: 1.0})
            forwarder.close()
            await asyncio.wait_for(forwarder.probing.probed.wait(), 0.5)  # immediately: no time-out is waited for

    run(main())


def test_draining_waits_for_answers_and_refuses_the_rest() -> None:
    async def main() -> None:
        a = FakeReplica(held=asyncio.Event())
        async with Front(a) as front:
            answered = asyncio.ensure_future(front.post())
            await a.came.wait()
            front.forwarder.draining = True
            assert (await front.client.get("/v2/health/ready")).status_code == 503
            front.http.stop_listening()
            draining = asyncio.ensure_future(front.forwarder.drain(10.0))
            assert a.held is not None
            a.held.set()
            assert (await answered).status_code == 200
            await draining
        a = FakeReplica(always(HANG))
        async with Front(a) as front:
            refused = asyncio.ensure_future(front.post())
            await a.came.wait()
            await front.forwarder.drain(0.01)
            assert (await refused).json() == {"error": "draining: nothing new is taken"}

    run(main())


def test_erratic_replicas_still_yield_one_answer_per_request() -> None:
    dice = random.Random(7)
    broken = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"
    others = [CLOSE, RESET, said(429), said(503), said(500), b"nonsense\r\n\r\n", broken + b"\r\n" * 3, HANG]

    def erratic(asked: Asked) -> bytes:
        return dice.choice(others) if dice.random() < 0.3 else said(200, asked.body)

    async def main() -> None:
        replicas = [FakeReplica(erratic) for _ in range(3)]
        async with Front(*replicas, timeout_s=1.0, policy={"hedge_after_s": 0.1}) as front:
            found: Counter[int] = Counter()

            async def client(name: int) -> None:
                for n in range(20):
                    sent = f"{name}-{n}".encode()
                    deadline = {"mark_deadline_ms": "50"} if n % 5 == 0 else {}
                    answer = await front.post(sent, **deadline)
                    found[answer.status_code] += 1
                    assert answer.status_code != 200 or answer.content in (sent, b"abc" + b"\r\n" * 3)

            await asyncio.gather(*(client(name) for name in range(12)))
            assert sum(found.values()) == 240
            assert set(found) <= {200, 429, 500, 502, 503, 504}
            assert found[200] > 120
            await front.until(lambda state: state["in_flight"] == 0)

    run(main())


async def load(url: str, count: int, then: dict[int, Callable[[], object]]) -> list[tuple[int, int]]:
    """Send `count` requests over 16 connections; return number and status, -1 for no answer.

    `then` maps a number of answers to an action.
    """
    answers: list[tuple[int, int]] = []
    numbers = iter(range(count))
    async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for number in numbers:
                try:
                    got = await client.post(REAL_INFER, content=body(number))
                except httpx.HTTPError:
                    answers.append((number, -1))
                    continue
                if got.status_code == 200:
                    assert got.json()["id"] == str(number)
                    assert got.headers["mark-answered-by"] == "instance"
                else:
                    assert "retry-after" in got.headers
                answers.append((number, got.status_code))
                if len(answers) in then:
                    then[len(answers)]()

        await asyncio.gather(*(one_after_the_other() for _ in range(16)))
    return answers


@pytest.mark.slow
def test_a_killed_and_a_drained_bouncer_lose_no_request(folder: Path) -> None:
    write_service(folder)
    with served(folder) as (killed, first), served(folder) as (drained, second):
        command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--probe-s", "0.1"]
        process = subprocess.Popen(
            [*command, "--replica", first, "--replica", f"{second}=2"], stderr=subprocess.PIPE, text=True
        )
        try:
            url = address(process)
            then: dict[int, Callable[[], object]] = {150: killed.kill, 450: lambda: drained.send_signal(signal.SIGTERM)}
            answers = asyncio.run(load(url, 600, then))
            assert sorted(number for number, _ in answers) == list(range(600))
            assert {status for _, status in answers[:450]} == {200}
            assert {status for _, status in answers} <= {200, 503}
            assert drained.wait(20) == 0
            with httpx.Client(base_url=url, trust_env=False) as client:
                state = client.get(ADMIN).json()
                assert state["in_flight"] == sum(one["in_flight"] for one in state["replicas"].values()) == 0
                assert all(one["answers"] > 0 for one in state["replicas"].values())
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()
