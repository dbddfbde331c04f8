"""python mlserver_server.py PORT GRPC_PORT METRICS_PORT

Its REST door takes no binary tensors. The sleeping model has a worker process, since it would stop the loop; echo does
without one.
"""

from __future__ import annotations

import asyncio
import sys

import work
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Echo(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a batch that is one tensor of all its rows."""
        tensor = payload.inputs[0]
        work.echo(range(tensor.shape[0]))
        output = ResponseOutput(name=tensor.name, shape=tensor.shape, datatype=tensor.datatype, data=tensor.data)
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])


async def main() -> None:
    http_port, grpc_port, metrics_port = map(int, sys.argv[1:4])
    settings = Settings(
        host="127.0.0.1",
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        parallel_workers=1 if work.WORKLOAD == "sleep" else 0,
        debug=False,
    )
    implementation = "mlserver_server.Echo"  # by name: its worker process has another __main__
    model = ModelSettings(
        name="echo", implementation=implementation, max_batch_size=work.MAX_BATCH, max_batch_time=0.001
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main())
