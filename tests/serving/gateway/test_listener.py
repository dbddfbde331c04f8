"""The gateway's own pages, their access control, and its process from start to end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from mark.domain.errors import BadInput
from mark.serving.frontend.auth import Auth, Grant
from mark.serving.frontend.limits import HttpLimits
from mark.serving.gateway.admin import GatewayAdmin, GatewayFailed
from mark.serving.gateway.forwarding import Forwarding
from tests.serving.fake_replicas import CLOSE, FakeReplica
from tests.serving.front import ADMIN, Front, always, run
from tests.serving.test_server_process import INFER as REAL_INFER
from tests.serving.test_server_process import address, body, served
from tests.serving.test_server_process import folder as folder


def test_a_replica_removed_by_new_weights_still_answers() -> None:
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


def test_an_offered_upgrade_is_passed_on_without_the_offer() -> None:
    async def main() -> None:
        a = FakeReplica()
        async with Front(a) as front:
            offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
            for _ in range(3):
                answer = await front.post(b"body", **offer)
                assert (answer.status_code, answer.content) == (200, b"body")
            assert not {"upgrade", "http2-settings"} & {name.lower() for one in a.asked for name in one.headers}

    run(main())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "body: no JSON"),
        (b"[]", "body: must be {'http://host:port': weight, ...}"),
        (b'{"http://127.0.0.1:1": "2"}', "a weight is a number"),
        (b'{"http://127.0.0.1:1": true}', "a weight is a number"),
        (b'{"http://127.0.0.1:1": -1}', "a weight is a number of zero or more"),
        (b'{"http://127.0.0.1:1": [1]}', "a weight is a number of zero or more"),
        (b'{"http://127.0.0.1:1": [1, 2]}', "a group is a text"),
        (b'{"127.0.0.1:1": 1}', "a replica is http://host:port"),
        (b'{"http://10.0.0.1:1": 1}', "would be reached in clear"),
        (b'{"http://[::1%25lo]:80": 1}', "a replica is http://host:port"),
        (b"{%b}" % b",".join(b'"http://127.0.0.1:%d": 1' % port for port in range(1, 1002)), "1000 replicas at most"),
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
                there.put({a.url: 0.5}, {a.url: "large"})
                assert there.state()["replicas"][a.url]["group"] == "large"
                with pytest.raises(GatewayFailed, match=r"status 400: .* a replica is http"):
                    there.put({"nowhere": 1.0})
                there.close()
                stranger = GatewayAdmin(front.url, client)
                with pytest.raises(GatewayFailed, match="status 403"):
                    stranger.put({})
                stranger.close()
                absent = GatewayAdmin("http://127.0.0.1:1")
                with pytest.raises(GatewayFailed, match="ConnectError"):
                    absent.state()
                absent.close()

            await asyncio.to_thread(as_the_controller_does)

    run(main())


def test_metrics_have_the_counts_and_the_log_the_answers(caplog: pytest.LogCaptureFixture) -> None:
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
            (first, _) = [record for record in caplog.records if record.name == "mark.requests"]
            told = vars(first)
            assert (told["request_id"], told["status"], told["sent_to"]) == ("seen", 200, [a.url, b.url])

    with caplog.at_level(logging.INFO):
        run(main())


def test_sigterm_of_the_gateway_under_load_loses_no_request(folder: Path) -> None:
    """It answers every accepted request; a later client meets a closed listener, and may go elsewhere."""
    with served(folder) as (_, replica):
        command = [sys.executable, "-m", "mark.cli.main", "gateway", "--port", "0", "--replica", replica]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            url = address(process)
            rebound = {"host": "evil.example", "origin": "http://evil.example"}
            assert httpx.put(url + ADMIN, json={}, headers=rebound, trust_env=False).status_code == 403

            async def main() -> list[int]:
                statuses: list[int] = []
                async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as client:

                    async def until_it_is_closed(name: int) -> None:
                        before_s = time.monotonic()
                        for number in range(10_000):
                            asked_s, before_s = before_s, time.monotonic()
                            try:
                                got = await client.post(REAL_INFER, content=body(number))
                            except httpx.ConnectError:
                                return
                            except (httpx.ReadError, httpx.RemoteProtocolError):
                                # This process was stopped for so many seconds that its connection was closed as idle.
                                assert time.monotonic() - asked_s >= HttpLimits().drain_idle_s
                                continue
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
        (
            ("--hedge-after-ms", "5", "--routing", "alb"),
            "--hedge-after-ms: a balancer of this kind sends no second copies",
        ),
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
    from mark.launch.listening import key_from

    (tmp_path / "key").write_text("k" * 20 + "\n")
    assert key_from(tmp_path / "key") == "k" * 20
    (tmp_path / "key").write_text("two keys\n")
    with pytest.raises(BadInput, match="holds one key"):
        key_from(tmp_path / "key")
    assert json.dumps(repr(Forwarding(replica_key="secret"))).count("secret") == 0
