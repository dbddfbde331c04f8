"""The gateway's shell over real sockets, before replicas that fail when they are told to; then real processes."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from mark.domain.errors import BadInput
from mark.serving.admin import GatewayAdmin, GatewayFailed
from mark.serving.auth import Auth, Grant
from mark.serving.forwarding import Forwarder, Forwarding
from mark.serving.gateway import Policy
from mark.serving.http import HttpServer, Limits
from tests.serving.fake_replicas import CLOSE, HANG, RESET, Asked, FakeReplica, said
from tests.serving.test_serve import INFER as REAL_INFER
from tests.serving.test_serve import address, body, served, write_service
from tests.serving.test_serve import folder as folder

INFER = "/v2/models/m/infer"
ADMIN = "/admin/replicas"
# Looks after the replicas so often that nothing need be waited for.
POLICY: dict[str, Any] = {"probe_s": 0.05, "backoff_s": 0.05}


class Front:
    """A gateway before `replicas`, and a client."""

    def __init__(self, *replicas: FakeReplica, auth: Auth | None = None, policy: Any = None, **forwarding: Any) -> None:
        self.replicas = replicas
        policy = Policy(**(POLICY | (policy or {})))
        self.forwarder = Forwarder(Forwarding(policy=policy, **forwarding), asyncio.get_running_loop())
        admit = auth.admit if auth is not None else None
        self.http = HttpServer(self.forwarder.handle, Limits(drain_idle_s=0.1, sweep_s=0.05), admit=admit)
        self.url = ""

    async def __aenter__(self) -> Front:
        for replica in self.replicas:
            await replica.start()
        self.forwarder.put({replica.url: 1.0 for replica in self.replicas})
        self.url = f"http://127.0.0.1:{await self.http.start('127.0.0.1', 0)}"
        self.forwarder.start()
        await self.forwarder.probed.wait()
        self.client = httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=10.0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self.http.close(1.0)
        self.forwarder.close()
        for replica in self.replicas:
            await replica.stop()
        if error[0] is None:
            gateway = self.forwarder.gateway
            states = [*gateway.replicas.values(), *gateway.leaving.values()]
            assert gateway.in_flight == gateway.bytes == sum(one.in_flight for one in states) == 0

    async def post(self, content: bytes = b"hi", path: str = INFER, **headers: str) -> httpx.Response:
        return await self.client.post(
            path, content=content, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    async def state(self, **headers: str) -> dict[str, Any]:
        said: dict[str, Any] = (await self.client.get(ADMIN, headers=headers)).json()
        return said

    async def until(self, so: Callable[[dict[str, Any]], object]) -> None:
        """Ask for the state until it is so; a test ends by its time limit otherwise."""
        while not so(await self.state()):
            pass


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main, 20))


def always(answer: bytes) -> Callable[[Asked], bytes]:
    return lambda asked: answer


# --- what is passed on


def test_a_request_and_its_answer_are_passed_on_as_they_are_but_for_what_is_of_the_connection() -> None:
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
            assert headers.pop("connection") == "keep-alive"  # the door's own
            assert headers == {
                "content-type": "application/x", "content-length": "5", "mark-answered-by": "function",
                "x-request-id": "mine", "inference-header-content-length": "2",
            }  # fmt: skip

    run(main())


def test_a_request_without_an_id_gets_one_that_the_replica_is_told() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            ids = [(await front.post(x_request_id=given)).headers["x-request-id"] for given in ("y" * 129, "z")]
            ids.append((await front.post()).headers["x-request-id"])
            assert ids == [asked.headers["x-request-id"] for asked in a.asked]
            assert ids[1] == "z"
            assert len(set(ids)) == 3

    run(main())


def test_the_clients_key_is_passed_on_only_by_a_gateway_that_asks_for_none() -> None:
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
            await front.post(mark_deadline_ms="inf")
            await front.post()
            assert "mark-deadline-ms" not in a.asked[-1].headers
            for wrong in ("soon", "-1", "nan"):
                assert (await front.post(mark_deadline_ms=wrong)).status_code == 400
            assert (await front.post(mark_deadline_ms="0")).status_code == 504
            assert len(a.asked) == 3

    run(main())


def test_other_paths_and_methods_end_here() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            for path in ("/", "/v3", "/v2/repository/index", "/v2/models/%2e%2E/admin", "/v1/models/m:predict"):
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


# --- replicas that fail


@pytest.mark.parametrize("failure", [CLOSE, RESET])
def test_what_one_replica_drops_another_answers_and_nobody_is_asked_twice(failure: bytes) -> None:
    async def main() -> None:
        a, b = FakeReplica(always(failure)), FakeReplica()
        async with Front(a, b) as front:
            assert (await front.post()).content == b"hi"
            assert (len(a.asked), len(b.asked)) == (1, 1)
            b.then = always(failure)
            lost = await front.post()
            assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
            assert lost.json() == {"error": "no replica answered"}
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
            late = await front.post(mark_deadline_ms="20")
            assert (late.status_code, late.json()["error"][:12]) == (504, "the deadline")
            await a.left.wait()
            assert (await front.state())["replicas"][a.url]["failed"] == 0  # the client was in a hurry

    run(main())


def test_hedging_asks_a_second_replica_and_lets_go_of_the_first() -> None:
    async def main() -> None:
        a, b = FakeReplica(always(HANG)), FakeReplica()
        async with Front(a, b, policy={"hedge_after_s": 0.02}) as front:
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


def test_a_dead_replica_is_put_out_and_comes_back_when_it_is_ready() -> None:
    async def main() -> None:
        a, b = FakeReplica(), FakeReplica()
        async with Front(a, b) as front:
            await a.stop()
            await front.until(lambda state: not state["replicas"][a.url]["ready"])
            for _ in range(5):
                assert (await front.post()).status_code == 200
            assert a.asked == []
            again = await FakeReplica().start(port=int(a.url.rpartition(":")[2]))
            await b.stop()
            await front.until(lambda state: state["replicas"][a.url]["ready"] and not state["replicas"][b.url]["ready"])
            assert (await front.post()).content == b"hi"
            assert len(again.asked) == 1
            await again.stop()

    run(main())


def test_readiness_is_asked_for_with_the_key_and_sagemaker_containers_by_their_ping() -> None:
    async def main() -> None:
        a, b = FakeReplica(ready=said(503)), FakeReplica(ready=said(404))
        async with Front(a, b, replica_key="the-key-of-replicas") as front:
            assert a.probes[0].headers["authorization"] == "Bearer the-key-of-replicas"
            assert [probe.target for probe in b.probes] == ["/v2/health/ready", "/ping"]
            state = (await front.state())["replicas"]
            assert (state[a.url]["ready"], state[b.url]["ready"]) == (False, True)
            for path in ("/v2/health/ready", "/ping", "/v2/health/live"):
                assert (await front.client.get(path)).status_code == 200
            b.ready = said(503)
            await front.until(lambda state: not state["ready"])
            assert (await front.client.get("/v2/health/ready")).status_code == 503
            assert (await front.client.get("/v2/health/live")).status_code == 200
            refused = await front.post()
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json() == {"error": "no replica is ready"}

    run(main())


def test_a_replica_that_does_not_answer_probes_is_put_out() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a, probe_timeout_s=0.02) as front:
            assert (await front.state())["ready"]
            a.ready = b""
            await front.until(lambda state: not state["ready"])

    run(main())


# --- limits, control, numbers


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


def test_weights_are_put_and_read_and_what_a_removed_replica_has_is_still_answered() -> None:
    async def main() -> None:
        a, b = FakeReplica(held=asyncio.Event()), FakeReplica()
        async with Front(a) as front:
            held = asyncio.ensure_future(front.post(b"held"))
            await a.came.wait()
            await b.start()
            put = await front.client.put(ADMIN, json={b.url: 2.5})
            assert put.status_code == 200
            assert put.json()["leaving"][a.url]["in_flight"] == 1
            await front.until(lambda state: state["replicas"][b.url]["ready"])
            assert (await front.post(b"new")).content == b"new"
            assert a.held is not None
            a.held.set()
            assert (await held).content == b"held"
            state = await front.state()
            assert (list(state["replicas"]), state["leaving"]) == ([b.url], {})
            assert (state["replicas"][b.url]["weight"], state["replicas"][b.url]["answers"]) == (2.5, 1)
            await front.client.put(ADMIN, json={b.url: 0})
            assert (await front.post()).status_code == 503
            await b.stop()

    run(main())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "body: no JSON"),
        (b"[]", "body: must be {'http://host:port': weight, ...}"),
        (b'{"http://127.0.0.1:1": "2"}', "a weight is a number"),
        (b'{"http://127.0.0.1:1": true}', "a weight is a number"),
        (b'{"http://127.0.0.1:1": -1}', "a weight is a number of zero or more"),
        (b'{"127.0.0.1:1": 1}', "a replica is http://host:port"),
        (b'{"http://10.0.0.1:1": 1}', "would be reached in clear"),
    ],
)
def test_weights_that_cannot_be_change_nothing(content: bytes, said: str) -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            answer = await front.client.put(ADMIN, content=content)
            assert answer.status_code == 400
            assert said in answer.json()["error"]
            assert list((await front.state())["replicas"]) == [a.url]
            assert (await front.client.delete(ADMIN)).status_code == 405

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
            await asyncio.wait_for(forwarder.probed.wait(), 0.5)  # at once, and not when the question is too old

    run(main())


def test_only_an_admin_sets_weights() -> None:
    admin, client = "admin-" + "k" * 16, "client-" + "k" * 16
    auth = Auth({admin: Grant("boss", frozenset(("admin",))), client: Grant("client", frozenset(("infer",)))})

    async def main() -> None:
        a = FakeReplica()
        async with Front(a, auth=auth) as front:
            for key, status in ((None, 401), (client, 403), (admin, 200)):
                headers = {"authorization": f"Bearer {key}"} if key else {}
                assert (await front.client.put(ADMIN, json={a.url: 1.0}, headers=headers)).status_code == status
                assert (await front.client.get(ADMIN, headers=headers)).status_code == status
            assert (await front.post(x_api_key=client)).status_code == 200
            assert (await front.post()).status_code == 401
            assert "x-api-key" not in a.asked[-1].headers

            def as_the_controller_does() -> None:
                there = GatewayAdmin(front.url, admin)
                there.put({a.url: 0.5})
                assert there.state()["replicas"][a.url]["weight"] == 0.5
                with pytest.raises(GatewayFailed, match=r"status 400: .* a replica is http"):
                    there.put({"nowhere": 1.0})
                there.close()
                stranger = GatewayAdmin(front.url, client)
                with pytest.raises(GatewayFailed, match="status 403"):
                    stranger.put({})
                stranger.close()
                nobody = GatewayAdmin("http://127.0.0.1:1")
                with pytest.raises(GatewayFailed, match="ConnectError"):
                    nobody.state()
                nobody.close()

            await asyncio.to_thread(as_the_controller_does)

    run(main())


def test_the_numbers_are_on_a_page_and_answers_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        a, b = FakeReplica(always(CLOSE)), FakeReplica()
        async with Front(a, b, log_requests=True) as front:
            await front.post(x_request_id="seen")
            await front.post(mark_deadline_ms="0")
            page = (await front.client.get("/metrics")).text.splitlines()
            for line in (
                'mark_gateway_requests_total{code="200"} 1.0',
                'mark_gateway_requests_total{code="504"} 1.0',
                'mark_gateway_refused_total{reason="expired"} 1.0',
                "mark_gateway_latency_seconds_count 2.0",
                "mark_gateway_retries_total 1.0",
                "mark_gateway_in_flight_requests 0.0",
                f'mark_gateway_replica_answers_total{{replica="{b.url}"}} 1.0',
                f'mark_gateway_replica_failed_total{{replica="{a.url}"}} 1.0',
                f'mark_gateway_replica_weight{{replica="{a.url}"}} 1.0',
                f'mark_gateway_replica_ready{{replica="{b.url}"}} 1.0',
            ):
                assert line in page
            (line, _) = [record for record in caplog.records if record.name == "mark.requests"]
            told = vars(line)
            assert (told["request_id"], told["status"], told["sent_to"]) == ("seen", 200, [a.url, b.url])

    with caplog.at_level(logging.INFO):
        run(main())


def test_draining_waits_for_what_is_owed_and_refuses_the_rest_at_its_end() -> None:
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
            assert (await refused).json() == {"error": "this gateway is draining"}

    run(main())


def test_whatever_replicas_do_each_request_has_one_answer_and_no_count_stays() -> None:
    dice = random.Random(7)
    broken = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"
    others = [CLOSE, RESET, said(429), said(503), said(500), b"nonsense\r\n\r\n", broken + b"\r\n" * 3, HANG]

    def erratic(asked: Asked) -> bytes:
        return dice.choice(others) if dice.random() < 0.3 else said(200, asked.body)

    async def main() -> None:
        replicas = [FakeReplica(erratic) for _ in range(3)]
        async with Front(*replicas, timeout_s=0.3, policy={"hedge_after_s": 0.1}) as front:
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


# --- real processes


async def load(url: str, count: int, then: dict[int, Callable[[], object]]) -> list[tuple[int, int]]:
    """`count` requests over 16 connections: number, status; -1: no answer. `then`: what is done after so many."""
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


def test_of_two_bouncers_one_is_killed_and_one_drained_under_load_and_no_request_is_lost(folder: Path) -> None:
    write_service(folder)
    with served(folder) as (killed, first), served(folder) as (drained, second):
        command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--probe-s", "0.1"]
        process = subprocess.Popen(
            [*command, "--replica", first, "--replica", f"{second}=2"], stderr=subprocess.PIPE, text=True
        )
        try:
            url = address(process)
            then = {150: killed.kill, 450: lambda: drained.send_signal(signal.SIGTERM)}
            answers = asyncio.run(load(url, 600, then))
            assert sorted(number for number, _ in answers) == list(range(600))
            assert {status for _, status in answers[:450]} == {200}
            assert {status for _, status in answers} <= {200, 503}
            assert drained.wait(20) == 0
            with httpx.Client(base_url=url, trust_env=False) as client:
                state = client.get(ADMIN).json()
                assert state["in_flight"] == sum(one["in_flight"] for one in state["replicas"].values()) == 0
                assert all(one["answers"] > 5 for one in state["replicas"].values())
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()


def test_sigterm_of_the_gateway_under_load_loses_no_request(folder: Path) -> None:
    """What it took it answers; what comes later meets a closed door, and may be sent elsewhere."""
    with served(folder) as (_, replica):
        command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--replica", replica]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            url = address(process)

            async def main() -> list[int]:
                statuses: list[int] = []
                async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:

                    async def until_it_is_closed(name: int) -> None:
                        for number in range(10_000):
                            try:
                                got = await client.post(REAL_INFER, content=body(number))
                            except httpx.ConnectError:
                                return
                            assert got.json()["id"] == str(number)
                            statuses.append(got.status_code)
                            if len(statuses) == 100:
                                process.send_signal(signal.SIGTERM)

                    await asyncio.gather(*(until_it_is_closed(name) for name in range(16)))
                return statuses

            statuses = asyncio.run(main())
            assert set(statuses) == {200}
            assert len(statuses) >= 100
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--replica", "localhost:80"), "replica: a replica is http://host:port or https://host:port: localhost:80"),
        (("--replica", "http://10.0.0.1:80"), "replica: would be reached in clear: https, or --replicas-in-clear"),
        (("--replica", "http://127.0.0.1:1=-1"), "http://127.0.0.1:1: a weight is a number of zero or more: -1.0"),
        (("--replica", "http://127.0.0.1:1=x"), "must be URL or URL=WEIGHT"),
        (("--replica", "http://127.0.0.1:1", "--replica", "http://127.0.0.1:1=2"), "--replica: a replica twice"),
        (("--host", "0.0.0.0"), "host: other machines can reach this address"),
        (("--replica-key", "nowhere"), "nowhere: cannot be read"),
        (("--replica-ca", "nowhere"), "nowhere: no certificates of an authority"),
        (("--tls-cert", "x"), "--tls-cert and --tls-key: a certificate and its key go together"),
        (("--hedge-after-ms", "0"), "must be above zero"),
        (("--most-in-flight", "0"), "must be a whole number from 1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mark.cli.main import main

    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    assert main(["gateway", "--port", "0", *options]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert line in said


def test_keys_are_read_from_files(tmp_path: Path) -> None:
    from mark.cli.doors import key_from

    (tmp_path / "key").write_text("k" * 20 + "\n")
    assert key_from(tmp_path / "key") == "k" * 20
    (tmp_path / "key").write_text("two keys\n")
    with pytest.raises(BadInput, match="holds one key"):
        key_from(tmp_path / "key")
    assert json.dumps(repr(Forwarding(replica_key="secret"))).count("secret") == 0
