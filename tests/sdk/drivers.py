"""A pipeline that other processes can import: texts are made loud, and long ones shortened."""

from __future__ import annotations

from typing import Any

import mark


@mark.pipeline(slo_ms=500)
async def loud(query: dict[str, Any], models: mark.StageModels) -> str:
    text = await models.shout(query["text"])
    return str(await models.shorten(text)) if len(text) > 5 else str(text)


@mark.pipeline
async def unpromised(query: dict[str, Any], models: mark.StageModels) -> str:
    return str(await models.shout(query["text"]))


@mark.model(warmup=["x"])
def shout(batch: list[str]) -> list[str]:
    return [text.upper() for text in batch]


class Shorten(mark.Model):
    warmup = ("x",)

    def __init__(self, most: str = "5") -> None:
        self._most = int(most)

    def predict(self, batch: list[str]) -> list[str]:
        return [text[: self._most] for text in batch]


def within() -> Any:
    @mark.pipeline
    async def local(query: Any, models: mark.StageModels) -> None:
        return None

    return local
