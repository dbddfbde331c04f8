"""The cost of a conductor: its processor time for each stage call, and a chain of stages against its stages alone.

    python benchmarks/data_plane/conductor.py

Three stages run a model that does nothing, each with one worker process, for one query at a time. First the stages are
in this process, without HTTP; then they are in another process and called by HTTP. "Alone" makes the same calls
directly to the three stages, one after the other, so that the difference is the conductor. Both take turns, query by
query. Times are medians. Processor time is this process's, without the workers and the other process.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import load
import orjson
import uvloop

from mark.domain.pipeline import Pipeline, PipelineStage
from mark.models.call import Call, Reply
from mark.models.driver import PipelineDriver, StageModels, pipeline
from mark.models.results import call_with, results_of
from mark.models.versions import Versions
from mark.serving.backend.request import Request
from mark.serving.conductor.conductor import Conductor
from mark.serving.conductor.remote_stage import StageAddress
from mark.serving.overflow.http_client import Address
from mark.serving.process_settings import ListenerConfig, PipelineServing, Serving
from mark.serving.server_process import ModelServer

MODEL = """
import mark

class Same(mark.Model):
    warmup = [0]

    def predict(self, batch):
        return batch
"""
FILE = """
[service]
name = "chain"
slo_ms = 10000
slo_attainment = 0.99

[stage.first]
model = "same:Same"

[stage.second]
model = "same:Same"
after = ["first"]

[stage.third]
model = "same:Same"
after = ["second"]
"""
STAGES = ("first", "second", "third")
QUERIES, WARM_UP, RT_MAX_S = 3000, 300, 10.0


@pipeline
async def chain(query: object, models: StageModels) -> object:
    return await models.third(await models.second(await models.first(query)))


def serving(folder: Path, driver: PipelineDriver | None, at: str | None) -> Serving:
    """Return the serving of all stages here, or of stages at an address."""
    part_s = RT_MAX_S / len(STAGES)
    here = {
        name: Serving(name=name, versions=Versions({"1": ("same:Same", 1.0)}), search=folder, rt_max_s=part_s)
        for name in STAGES
    }
    stages: Mapping[str, Serving | StageAddress] = here
    if at is not None:
        stages = {name: StageAddress(Address.of(at), part_s) for name in STAGES}
    above = dict(zip(STAGES, (None, *STAGES), strict=False))
    graph = Pipeline(tuple(PipelineStage(name, "same:Same", (one,) if one else ()) for name, one in above.items()))
    whole = PipelineServing(stages, None if driver else graph, driver)
    return Serving(
        name="chain", versions=Versions({"1": ("chain", 1.0)}), search=folder, rt_max_s=RT_MAX_S, pipeline=whole
    )


async def asked(offer: Callable[[Request], None], call: Call) -> Reply:
    got: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    now_s = time.monotonic()
    offer(Request(call, 1, now_s, now_s + RT_MAX_S - 1.0, lambda request, answer: got.set_result(answer.reply)))
    reply = await got
    assert reply.status == 200, bytes(reply.body)
    return reply


async def timed(one: Callable[[int], Awaitable[None]], number: int) -> tuple[float, float]:
    """Return wall and processor seconds of a query."""
    began_s, busy_s = time.perf_counter(), time.process_time()
    await one(number)
    return time.perf_counter() - began_s, time.process_time() - busy_s


async def measure(folder: Path, driver: PipelineDriver | None, at: str | None) -> None:
    server = ModelServer(serving(folder, driver, at), ListenerConfig(port=0))
    await server.start()
    conductor = server.server.served[0].backend
    assert isinstance(conductor, Conductor)

    async def conducted(number: int) -> None:
        reply = await asked(conductor.offer, Call("sagemaker", "application/json", b"%d" % number))
        assert orjson.loads(reply.body) == number

    async def alone(number: int) -> None:
        for stage in conductor.stages:
            (same,) = results_of(await asked(stage.backend.offer, call_with(number)))
            assert same == number

    seen = [(await timed(conducted, number), await timed(alone, number)) for number in range(QUERIES)][WARM_UP:]
    (whole_ms, busy_us), (stages_ms, alone_us) = (
        (statistics.median(one[way][0] for one in seen) * 1e3, statistics.median(one[way][1] for one in seen) * 1e6)
        for way in (0, 1)
    )
    where = "here" if at is None else "elsewhere"
    print(f"{'by a driver' if driver else 'by a graph'}, stages {where}, {len(seen)} queries of {len(STAGES)} stages")
    print(f"  latency    {whole_ms:.2f} ms, stages alone {stages_ms:.2f} ms: {whole_ms - stages_ms:+.2f} ms")
    print(f"  processor  {busy_us:.0f} us, stages alone {alone_us:.0f} us a query")
    own_us = (busy_us - alone_us) / len(STAGES)
    print(f"  a call     {busy_us / len(STAGES):.0f} us of the processor, of them {own_us:.0f} us the conductor's")
    server.server.draining = True
    await conductor.drain(time.monotonic() + 1.0)
    await server.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "same.py").write_text(MODEL)
        (folder / "chain.toml").write_text(FILE)
        for driver in (None, chain):
            await measure(folder, driver, None)
        apart = [option for name in STAGES for option in ("--stage", name)]
        with load.serving(["chain.toml", *apart], folder, "0-1") as url:
            for driver in (None, chain):
                await measure(folder, driver, url)


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
