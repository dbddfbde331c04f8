"""The handler of the overflow function: `mark_lambda.overflow.handler`.

Each environment loads and warms up the model of `MARK_MODEL` (a reference as in a service file, looked for in
`MARK_MODEL_PATH`) before its first invocation, and answers the requests that bouncers could not finish in time.
`MARK_NAME` and `MARK_VERSION` are the names in its answers: the service (in a pipeline the stage) and the version.

    {"calls": [...]}               -> {"replies": [...], "cold": false, "load_s": 1, "billed_ms": 301, "service_s": 0.3}
    {"warm": true, "hold_ms": 200} -> {"cold": true, "load_s": 1, "billed_ms": 1404}
    a request of a load balancer   -> its answer, see mark_lambda.by_balancer; `MARK_KEYS_PARAMETER` names the keys

A warm-up holds its environment for a moment, so that several concurrent ones reach as many environments. `billed_ms` is
the time AWS will bill, measured from inside: the handler's time and, before the first invocation, the environment's
start (billed since 2025-08-01), in whole milliseconds. The runtime's own share, about a millisecond, is not included.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mark.models.answering import answer, warm_up
from mark.models.envelope import calls_from_event, replies_to_result
from mark.models.loading import home, load
from mark.models.model import Model

LONGEST_HOLD_MS = 1000.0


class OverflowHandler:
    """One environment of the function: a model, and whether it has been called yet."""

    def __init__(
        self,
        model: Model,
        load_s: float,
        pause: Callable[[float], None] = time.sleep,
        *,
        init_s: float | None = None,
        now: Callable[[], float] = time.perf_counter,
        keys: Callable[[], str] | None = None,
    ) -> None:
        """Keep the model and the times of the environment's start.

        `init_s` is the environment's whole start, of which the model took `load_s` (None: all of it). `keys` reads the
        key file of the clients that may ask through a load balancer; with None no client may.
        """
        self._model, self._load_s, self._pause, self._now = model, load_s, pause, now
        self._init_s = load_s if init_s is None else init_s
        self._cold = True
        self._keys = keys
        self._of_balancer: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def __call__(self, event: Mapping[str, Any], context: object = None) -> dict[str, Any]:
        """Answer one invocation. Raises ValueError, an error of the invocation, for an event of another form."""
        began_s = self._now()
        if not isinstance(event, Mapping):
            raise ValueError("not an event of calls: no object")
        cold, self._cold = self._cold, False
        if "requestContext" in event:
            return self._answered(event)
        result = self._result(event)
        billed_s = self._now() - began_s + (self._init_s if cold else 0.0)
        # 1e-9: binary rounding must not turn a whole millisecond into the next one.
        return {"cold": cold, "load_s": self._load_s, "billed_ms": math.ceil(1e3 * billed_s - 1e-9), **result}

    def _answered(self, event: Mapping[str, Any]) -> dict[str, Any]:
        from mark_lambda.by_balancer import BalancerRequests, KeyDigests, is_of_balancer  # rarely needed

        if not is_of_balancer(event):
            raise ValueError("not an event of calls: a request of another kind than a load balancer's")
        if self._of_balancer is None:
            self._of_balancer = BalancerRequests(self._model, None if self._keys is None else KeyDigests(self._keys))
        return self._of_balancer(event)

    def _result(self, event: Mapping[str, Any]) -> dict[str, Any]:
        if event.get("warm") is True:
            hold_ms = event.get("hold_ms", 0.0)
            if not isinstance(hold_ms, int | float):
                raise ValueError("hold_ms is a number of milliseconds")
            self._pause(min(LONGEST_HOLD_MS, max(0.0, hold_ms)) / 1e3)
            return {}
        calls = calls_from_event(event)
        began_s = self._now()
        replies = replies_to_result(answer(self._model, calls))
        return {"replies": replies, "service_s": self._now() - began_s}


def _located(environment: Mapping[str, str]) -> tuple[str, Path]:
    return environment.get("MARK_MODEL", ""), Path(environment.get("MARK_MODEL_PATH", ".")).resolve()


def loaded(environment: Mapping[str, str], before_s: float = 0.0) -> OverflowHandler:
    """Return the handler of an environment with these variables, whose start has taken `before_s` so far.

    Raises BadInput if the model does not exist.
    """
    began_s = time.perf_counter()
    model = load(*_located(environment))
    model.name = environment.get("MARK_NAME", model.name)
    model.version = environment.get("MARK_VERSION", model.version)
    warm_up(model)
    load_s = time.perf_counter() - began_s
    keys, name = None, environment.get("MARK_KEYS_PARAMETER")
    if name:

        def keys() -> str:
            from mark_lambda.by_balancer import read_parameter

            return read_parameter(name)

    return OverflowHandler(model, load_s, init_s=before_s + load_s, keys=keys)


def process_age_s() -> float:
    """Return the seconds since this process began, to 10 ms.

    Field 22 of /proc/self/stat is its start in ticks since the boot, see proc(5).
    """
    # The second field is the command's name in parentheses, and may hold spaces.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


# AWS imports this module while it starts an environment, and times the import separately from invocations.
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    os.chdir(home(*_located(os.environ)))
    handler = loaded(os.environ, process_age_s())
