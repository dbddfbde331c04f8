"""bentoml serve bentoml_server:Echo

Its requests are JSON or multipart forms, so it gets no binary tensors. `max_latency_ms` is high because it refuses
requests that it expects to take longer.
"""

from __future__ import annotations

from typing import Any

import bentoml
import work


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 4096})
class Echo:
    @bentoml.api(batchable=True, max_batch_size=work.MAX_BATCH, max_latency_ms=10_000)
    def inference(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return work.echo(inputs)
