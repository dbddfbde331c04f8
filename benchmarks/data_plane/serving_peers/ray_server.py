"""python ray_server.py PORT"""

from __future__ import annotations

import os
import signal
import sys

import orjson
import ray
import work
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.resolved(num_replicas=1, max_ongoing_requests=4096, ray_actor_options={"num_cpus": 0})
class Batched:
    @serve.batch(max_batch_size=work.MAX_BATCH, batch_wait_timeout_s=0.001)
    async def answer(self, bodies: list[bytes]) -> list[bytes]:
        if work.WORKLOAD == "binary":
            return work.products(bodies)
        return [orjson.dumps(value) for value in work.echo([orjson.loads(body) for body in bodies])]

    async def __call__(self, request: Request) -> Response:
        return Response(await self.answer(await request.body()))


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20, _temp_dir=os.environ["HOME"])
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Batched.bind(), route_prefix="/inference")
    signal.pause()
