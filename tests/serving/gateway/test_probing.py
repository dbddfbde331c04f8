"""Readiness of replicas is asked for over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from mark.serving.overflow.http_client import Reach
from tests.serving.fake_replicas import HANG, FakeReplica, said
from tests.serving.front import ADMIN, Front, run
from tests.serving.test_server_process import folder as folder


def test_a_dead_replica_is_ejected_until_it_is_ready() -> None:
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


def test_readiness_probes_send_the_key_and_fall_back_to_ping() -> None:
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


def test_restarted_replica_gets_requests_before_its_next_poll_if_no_other_is_left() -> None:
    """Two replicas are killed in turn, and the first one is back during its back-off: each client has an answer."""

    async def main() -> None:
        a, b = FakeReplica(), FakeReplica(ready=said(503))
        never = {"probe_s": 3600.0, "backoff_s": 3600.0, "eject_after": 1}
        async with Front(a, b, policy=never) as front:
            b.ready = said()
            await a.stop()
            assert (await front.post()).status_code == 200
            again = await FakeReplica().start(port=int(a.url.rpartition(":")[2]))
            await b.stop()
            answers = await asyncio.gather(*(front.post() for _ in range(5)))
            assert [answer.status_code for answer in answers] == [200] * 5
            await again.stop()
            refused = [await front.post() for _ in range(2)]
            assert [answer.status_code for answer in refused] == [503] * 2
            said_why = [answer.json()["error"] for answer in refused]
            assert said_why == ["the worker or replica was lost", "no replica is ready"]

    run(main())


def test_held_request_follows_the_list_of_replicas() -> None:
    """The replica that is out never answers a poll: the request ends if its weight is 0, or goes to another one."""

    async def main() -> None:
        a, b = FakeReplica(ready=said()), FakeReplica(ready=said())
        async with Front(a, b, policy={"probe_s": 3600.0}, probe_timeout_s=3600.0) as front:
            a.ready = b""
            for weights, status in (({a.url: 0}, 503), ({a.url: 1, b.url: 1}, 200)):
                await front.client.put(ADMIN, json={})
                await front.client.put(ADMIN, json={a.url: 1})
                request = asyncio.create_task(front.post())
                await front.until(lambda state: state["in_flight"])
                await front.client.put(ADMIN, json=weights)
                assert (await request).status_code == status

    run(main())


def test_request_that_was_held_for_longer_than_the_delay_has_a_second_copy() -> None:
    async def main() -> None:
        a, b = FakeReplica(then=lambda asked: HANG), FakeReplica()
        policy = {"probe_s": 3600.0, "hedge_after_s": 0.01}
        async with Front(a, b, policy=policy, probe_timeout_s=3600.0) as front:
            await front.client.put(ADMIN, json={})
            a.ready = b.ready = b""
            await front.client.put(ADMIN, json={a.url: 1, b.url: 1})
            request = asyncio.create_task(front.post())
            await front.until(lambda state: state["in_flight"])
            now = asyncio.get_running_loop().time
            until_s = now() + 0.05
            await front.until(lambda state: now() > until_s)
            a.say(said())
            await a.came.wait()
            b.say(said())
            assert (await request).status_code == 200
            assert (await front.state())["hedges"] == 1

    run(main())


def test_a_replica_that_does_not_answer_probes_is_put_out() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a, probe_timeout_s=0.02) as front:
            assert (await front.state())["ready"]
            a.ready = b""
            await front.until(lambda state: not state["ready"])

    run(main())


class Names(asyncio.SelectorEventLoop):
    """Looks up every name as this machine; while `slow`, no look-up ends. Addresses need none."""

    slow = False

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        if str(host).endswith(".example"):
            if self.slow:
                await asyncio.sleep(3600.0)
            host = "127.0.0.1"
        return await super().getaddrinfo(host, port, **how)


def test_names_that_are_found_slowly_hold_nothing_up() -> None:
    """A replica whose name is not found is out; a replica that is connected or has an address stays in."""

    async def main() -> None:
        names = asyncio.get_running_loop()
        assert isinstance(names, Names)
        a, b, c = FakeReplica(), FakeReplica(), FakeReplica()
        # Long enough for replicas that answer, however busy the machine is; a look-up that is slow never ends.
        reach = Reach(connect_timeout_s=1.0)
        async with Front(a, b, c, in_clear=True, reach=reach, probe_timeout_s=2.0) as front:
            named, late = (
                f"http://{name}.example:{one.url.rpartition(':')[2]}" for name, one in zip("bc", (b, c), strict=True)
            )
            await front.client.put(ADMIN, json={a.url: 1, named: 1})
            await front.until(lambda state: state["replicas"][named]["ready"])
            assert (await front.client.put(ADMIN, json={named: 1})).status_code == 200
            assert (await front.post()).status_code == 200  # connected
            names.slow = True
            await front.client.put(ADMIN, json={a.url: 1, named: 1, late: 1})
            probes = len(a.probes)
            while len(a.probes) < probes + 5:  # probed again and again, as `b` is
                assert (await front.post()).status_code == 200
            state = (await front.state())["replicas"]
            assert (state[named]["ready"], state[late]["ready"]) == (True, False)
            assert c.asked == []
            names.slow = False
            await front.until(lambda state: state["replicas"][late]["ready"])

    with asyncio.Runner(loop_factory=Names) as runner:
        runner.run(asyncio.wait_for(main(), 60))
