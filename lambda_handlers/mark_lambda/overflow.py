"""The handler of the overflow function: `mark_lambda.overflow.handler`.

The model of `MARK_MODEL` (a reference as in a service file) is loaded and warmed up once for each environment, before
its first invocation, and answers what bouncers could not finish in time. `MARK_MODEL_PATH` is where it is looked for;
`MARK_NAME` and `MARK_VERSION` are what its answers call it, the service's name and version.

    {"calls": [...]}                   -> {"replies": [...], "cold": false, "load_s": 1.2, "service_s": 0.3}
    {"warm": true, "hold_ms": 200}     -> {"cold": true, "load_s": 1.2}

A warm-up holds its environment for a moment, so that several at once reach as many environments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mark.models.answering import answer, warm_up
from mark.models.envelope import calls_from_event, replies_to_result
from mark.models.load import load
from mark.models.model import Model

LONGEST_HOLD_MS = 1000.0


class Overflow:
    """One environment of the function: a model, and whether anybody has called yet."""

    def __init__(self, model: Model, load_s: float, pause: Callable[[float], None] = time.sleep) -> None:
        self._model, self._load_s, self._pause = model, load_s, pause
        self._cold = True

    def __call__(self, event: Mapping[str, Any], context: object = None) -> dict[str, Any]:
        """Answer one invocation. Raises ValueError for an event that is none of ours: an error of the invocation."""
        if not isinstance(event, Mapping):
            raise ValueError("not an event of calls: no object")
        cold, self._cold = self._cold, False
        result: dict[str, Any] = {"cold": cold, "load_s": self._load_s}
        if event.get("warm") is True:
            hold_ms = event.get("hold_ms", 0.0)
            if not isinstance(hold_ms, int | float):
                raise ValueError("hold_ms is a number of milliseconds")
            self._pause(min(LONGEST_HOLD_MS, max(0.0, hold_ms)) / 1e3)
            return result
        calls = calls_from_event(event)
        began_s = time.perf_counter()
        result["replies"] = replies_to_result(answer(self._model, calls))
        result["service_s"] = time.perf_counter() - began_s
        return result


def loaded(environment: Mapping[str, str]) -> Overflow:
    """The handler of an environment with these variables. Raises BadInput where there is no such model."""
    began_s = time.perf_counter()
    model = load(environment.get("MARK_MODEL", ""), Path(environment.get("MARK_MODEL_PATH", ".")))
    model.name = environment.get("MARK_NAME", model.name)
    model.version = environment.get("MARK_VERSION", model.version)
    warm_up(model)
    return Overflow(model, time.perf_counter() - began_s)


# AWS imports this module while it starts an environment, and times that apart from invocations.
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    handler = loaded(os.environ)
