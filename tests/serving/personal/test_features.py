"""Vectors from a features stage whose batches fail."""

from __future__ import annotations

import asyncio

from mark.models.answer import INSTANCE, Answer
from mark.models.call import Reply
from mark.models.model import Model
from mark.models.results import decode, encode
from mark.serving.backend.refusals import error_reply
from mark.serving.backend.request import Request
from mark.serving.personal.features import Features, NoVector
from mark.serving.personal.notes import Vector


class Squares(Model):
    def predict(self, batch: list[float]) -> list[list[float]]:
        return [[item, item**2] for item in batch]


class BatchesTogether:
    """Serves all requests of one turn of the loop as a batch, which fails if an item is no number."""

    ready = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._batch, self.sizes = loop, list[Request](), list[int]()

    def offer(self, request: Request) -> None:
        if not self._batch:
            self._loop.call_soon(self._serve)
        self._batch.append(request)

    def _serve(self) -> None:
        batch, self._batch = self._batch, []
        self.sizes.append(len(batch))
        for request, reply in zip(batch, self._replies(batch), strict=True):
            request.answer(request, Answer(reply, INSTANCE))

    def _replies(self, batch: list[Request]) -> list[Reply]:
        model = Squares()
        try:
            items = [decode(request.call, model)[0][0] for request in batch]
            return [encode(model, None, [result]) for result in model.predict(items)]
        except TypeError as error:
            return [error_reply(500, f"the model failed: {type(error).__name__}")] * len(batch)

    def retry_after_s(self) -> float:
        return 1.0

    async def drain(self, until_s: float) -> None: ...


def test_item_on_which_the_model_fails_spoils_no_other_item_of_its_batch() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        stage = BatchesTogether(loop)
        first, bad, last = await Features(stage, 1.0, loop, lambda: 0.0).vectors_apart([2.0, {"not": "a"}, 3.0], "")
        assert [numbers(one) for one in (first, last)] == [[2.0, 4.0], [3.0, 9.0]]
        assert isinstance(bad, NoVector)
        assert bad.is_of_item
        assert bad.said() == "the model failed: TypeError"
        assert stage.sizes == [3, 1, 1, 1]

    asyncio.run(main())


def test_single_calls_end_after_ten_times_the_promised_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        stage = BatchesTogether(loop)
        times = iter(range(1000))
        found = await Features(stage, 1.0, loop, lambda: float(next(times))).vectors_apart([{}] * 20, "")
        assert all(isinstance(one, NoVector) for one in found)
        assert 1 < len(stage.sizes) < 20

    asyncio.run(main())


def numbers(vector: Vector | NoVector) -> list[float]:
    assert not isinstance(vector, NoVector)
    return [float(number) for number in vector]
