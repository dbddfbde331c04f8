"""Models that a worker process can import, and some that it cannot."""

from __future__ import annotations

from typing import Any

import mark


class Echo(mark.Model):
    warmup = ("x",)

    def predict(self, batch: list[Any]) -> list[Any]:
        return batch


@mark.model
class Plain:
    def predict(self, batch: list[Any]) -> list[Any]:
        return batch


@mark.model(name="another", warmup=["x"])
def shout(batch: list[str]) -> list[str]:
    return [text.upper() for text in batch]


made = Echo()


class NoModel:
    pass


def plain_function(batch: list[Any]) -> list[Any]:
    return batch


def within() -> type[mark.Model]:
    class Local(mark.Model):
        pass

    return Local
