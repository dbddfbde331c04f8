"""python litserve_server.py PORT

Its requests are JSON or forms, so it gets no binary tensors.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import work


class Echo(litserve.LitAPI):
    def setup(self, device: str) -> None:
        pass

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, x: list[Any]) -> list[Any]:
        return work.echo(x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output


if __name__ == "__main__":
    api = Echo(max_batch_size=work.MAX_BATCH, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", generate_client_file=False, access_log=False
    )
