"""python mosec_server.py PORT json|orjson

A batch waits for 1 ms at most, the shortest that mosec knows.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson
import work
from mosec import Server, Worker


class Echo(Worker):
    def forward(self, data: list[Any]) -> list[Any]:
        return work.echo(data)


class EchoOrjson(Echo):
    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


class Product(Worker):
    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: list[bytes]) -> list[bytes]:
        return work.products(data)


if __name__ == "__main__":
    port, codec = sys.argv[1:3]
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", port, "--log-level", "warning"]
    server = Server()
    worker = Product if work.WORKLOAD == "binary" else {"json": Echo, "orjson": EchoOrjson}[codec]
    server.append_worker(worker, num=1, max_batch_size=work.MAX_BATCH, max_wait_time=1)
    server.run()
