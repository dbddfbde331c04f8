"""Readiness of replicas is asked for over real sockets."""

from __future__ import annotations

from tests.serving.fake_replicas import FakeReplica, said
from tests.serving.front import Front, run
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


def test_a_replica_that_does_not_answer_probes_is_put_out() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a, probe_timeout_s=0.02) as front:
            assert (await front.state())["ready"]
            a.ready = b""
            await front.until(lambda state: not state["ready"])

    run(main())
