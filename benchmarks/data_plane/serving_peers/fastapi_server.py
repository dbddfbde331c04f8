"""python fastapi_server.py PORT

FastAPI on uvicorn with uvloop and httptools, orjson, and a hand-written batcher that takes the requests that came while
the model was busy. Echo and product run on the loop, the sleeping model in a thread.
"""

from __future__ import annotations

import asyncio
import sys

import orjson
import uvicorn
import work
from fastapi import FastAPI, Request, Response

app = FastAPI(openapi_url=None)


class Batcher:
    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []
        self.running: asyncio.Task[None] | None = None

    def add(self, body: bytes) -> asyncio.Future[bytes]:
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((body, future))
        if self.running is None:
            self.running = asyncio.create_task(self.run())
        return future

    async def run(self) -> None:
        while self.waiting:
            batch = self.waiting[: work.MAX_BATCH]
            del self.waiting[: len(batch)]
            bodies = [body for body, _ in batch]
            answers = await asyncio.to_thread(answer, bodies) if work.WORKLOAD == "sleep" else answer(bodies)
            for (_, future), one in zip(batch, answers, strict=True):
                future.set_result(one)
        self.running = None


def answer(bodies: list[bytes]) -> list[bytes]:
    if work.WORKLOAD == "binary":
        return work.products(bodies)
    return [orjson.dumps(value) for value in work.echo([orjson.loads(body) for body in bodies])]


batcher = Batcher()


@app.post("/inference")
async def inference(request: Request) -> Response:
    return Response(await batcher.add(await request.body()))


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="warning", access_log=False)
