"""Several models behind one listener, and calls by value, which only a stage's server accepts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
import uvloop

import mark
from mark.models.call import RESULTS, Reply
from mark.models.results import call_with, results_of
from mark.serving.backend.bouncer import Bouncer, FixedTimes
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.replica import Replica
from mark.serving.frontend.http import HttpServer
from mark.serving.frontend.server import ServedVersion, Server
from tests.serving.place import RT_MAX_S, Pool


def server(name: str, add: int, *, stage: bool = True, **options: Any) -> tuple[Server, Replica]:
    """Return a server of a model that adds a number, and its replica."""
    loop, metrics = asyncio.get_running_loop(), ModelMetrics("p", "1", name)
    bouncer = Bouncer(FixedTimes([0.0] + [0.001] * 8, 8), rt_max_s=RT_MAX_S, workers=0)
    replica = Replica(bouncer, None, metrics, loop, rt_max_s=RT_MAX_S)
    replica.attach(Pool(replica, mark.model(lambda batch: [item + add for item in batch])))
    served = [ServedVersion("1", replica)]
    return Server(name, served, replica, RT_MAX_S, Metrics(), stage=stage, **options), replica


def run(
    main: Callable[[httpx.AsyncClient, list[Replica]], Any],
    may_tell_prices: Callable[[Mapping[bytes, bytes]], bool] = lambda headers: True,
    **options: Any,
) -> None:
    """Run `main` with a client of a server of two stages, whose workers are not ready yet."""

    async def whole() -> None:
        other, of_other = server("large", 10)
        both, of_both = server("small", 1, beside=[other], **options)
        both.may_tell_prices = may_tell_prices
        http = HttpServer(both.handle)
        url = f"http://127.0.0.1:{await http.start('127.0.0.1', 0)}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60.0) as client:
            await main(client, [of_both, of_other])
        await http.close(0.0)
        for replica in (of_both, of_other):
            await replica.drain(0.0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(whole(), 60))


def by_value(item: Any, **headers: str) -> dict[str, Any]:
    call = call_with(item)
    length = {"inference-header-content-length": str(call.json_bytes)}
    return {"content": bytes(call.body), "headers": {"content-type": RESULTS} | length | headers}


def test_each_model_answers_by_name_and_all_are_ready_together() -> None:
    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        replicas[0].worker_ready(0)
        assert (await client.get("/v2/models/small/ready")).status_code == 200
        assert (await client.get("/v2/models/large/ready")).status_code == 503
        assert (await client.get("/v2/health/ready")).status_code == 503
        replicas[1].worker_ready(0)
        assert (await client.get("/v2/health/ready")).status_code == 200
        listed = (await client.post("/v2/repository/index")).json()
        assert [(one["name"], one["state"]) for one in listed] == [("small", "READY"), ("large", "READY")]
        tensor = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [5]}]}
        for name, wanted in (("small", 6), ("large", 15)):
            answer = await client.post(f"/v2/models/{name}/infer", json=tensor)
            assert answer.json()["outputs"][0]["data"] == [wanted]
            assert (await client.get(f"/v2/models/{name}")).json()["name"] == name
        assert (await client.get("/metrics")).status_code == 200
        for path in ("/invocations", "/v2/models/none/infer"):
            answer = await client.post(path, json=5)
            assert (answer.status_code, answer.json()) == (
                404,
                {"error": f"nothing at {path}; the models here are small, large"},
            )

    run(main)


def test_a_stage_takes_calls_by_value_and_answers_so() -> None:
    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        for replica in replicas:
            replica.worker_ready(0)
        answer = await client.post("/v2/models/large/infer", **by_value(5))
        assert (answer.status_code, answer.headers["content-type"]) == (200, RESULTS)
        length = int(answer.headers["inference-header-content-length"])
        assert results_of(Reply(200, RESULTS, answer.content, length)) == [15]
        late = await client.post("/v2/models/large/infer", **by_value(5, **{"mark-deadline-ms": "0"}))
        assert (late.status_code, "error" in late.json()) == (504, True)

    run(main)


@pytest.mark.parametrize("body", [b"", b"[", b"[1, 2]", b"[]", b'[{"dtype": "O", "shape": [1]}]', b"\xff"])
def test_what_is_no_call_by_value_is_refused(body: bytes) -> None:
    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        for replica in replicas:
            replica.worker_ready(0)
        headers = {"content-type": RESULTS, "inference-header-content-length": str(len(body))}
        answer = await client.post("/v2/models/small/infer", content=body, headers=headers)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
        unsaid = await client.post("/v2/models/small/infer", content=body, headers={"content-type": RESULTS})
        assert unsaid.json() == {"error": "inference-header-content-length is missing"}

    run(main)


def test_a_model_that_is_no_stage_takes_none() -> None:
    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        replicas[0].worker_ready(0)
        answer = await client.post("/v2/models/small/infer", **by_value(5))
        assert (answer.status_code, list(json.loads(answer.content))) == (400, ["error"])

    run(main, stage=False)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/small%2fready", 404),
        ("/v2/models%2Fsmall/ready", 404),
        ("/v2%2fhealth/live", 404),
        ("/v2/models/sm%61ll/ready", 200),
        ("/v2/models/small/ready/", 200),
    ],
)
def test_an_encoded_slash_is_no_slash(path: str, status: int) -> None:
    """A proxy that routes by path sees one name there."""

    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        for replica in replicas:
            replica.worker_ready(0)
        assert (await client.get(path)).status_code == status

    run(main)


def test_a_reader_of_metrics_changes_no_price() -> None:
    async def main(client: httpx.AsyncClient, replicas: list[Replica]) -> None:
        told = {"mark-prices": "usd_per_miss=0.5"}
        page = (await client.get("/metrics", headers=told)).text
        assert "mark_usd_per_miss 0.5" not in page
        page = (await client.get("/metrics", headers=told | {"x-from": "controller"})).text
        assert "mark_usd_per_miss 0.5" in page

    run(main, may_tell_prices=lambda headers: headers.get(b"x-from") == b"controller")
