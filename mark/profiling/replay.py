"""Models that take the time of a profile, for tests and for machines that stand in for instance types.

`Replay` computes nothing. `Paced` runs a real model, and answers no earlier than an instance of the type would.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput
from mark.models.answering import warm_up
from mark.models.loading import find, home
from mark.models.model import Model
from mark.profiling.played_faults import faults_of_text
from mark.profiling.policy import sigma_of
from mark.profiling.table import load_profiles

# A sleep ends 0.1 to 0.2 ms late, so the last part of a wait is spent in a loop.
_AWAKE_S = 0.2e-3
# A batch that begins within this share of its time after the previous one was waiting for it. The gap is this
# computer's delay, which the imitated machine would not have; summed up it would cost capacity: 0.4 % of 200 ms.
_AT_ONCE = 0.025
# Environment variable with the name of a file that holds this machine's current speed, 1 as in its profile; 1 without
# it.
SPEED_FILE = "MARK_SPEED_FILE"

log = logging.getLogger("mark.profiling")


class Replay(Model):
    """`mark.profiling.replay:Replay?model=inception-v3&instance=c5.large`: a model that returns its items.

    Service times are the profile's mean, lognormal if it has a p99. `profile` names a file; the default is the shipped
    table. `faults` is the text of `mark.profiling.played_faults.faults_text`; by default no fault occurs.
    """

    def __init__(
        self, model: str, instance: str, profile: str | None = None, seed: str = "0", faults: str | None = None
    ) -> None:
        if not seed.isdigit():
            raise BadInput("must be a whole number", "mark.profiling.replay:Replay seed", seed)
        self._random = random.Random(int(seed))
        of_model = load_profiles(profile).get(model)
        if of_model is None or instance not in of_model:
            raise BadInput("has no such model and instance", profile or "the shipped table", f"{model} on {instance}")
        self._profile = of_model[instance]
        self._sigma = max(sigma_of(row) for row in self._profile.rows)
        self._faults = None if faults is None else faults_of_text(faults)
        self._unix_s = time.time() - time.perf_counter()  # Unix time at the zero of `time.perf_counter`

    def service_s(self, items: int) -> float:
        """Sample the service time of a batch of `items`."""
        largest, sigma = self._profile.rows[-1].batch, self._sigma
        # A batch larger than any measured one takes the time of several batches.
        full, rest = divmod(items, largest)
        mean_s = full * self._profile.latency_s(largest) + (self._profile.latency_s(rest) if rest else 0.0)
        return mean_s * self._random.lognormvariate(-sigma * sigma / 2.0, sigma) if sigma > 0.0 else mean_s

    def end_s(self, begin_s: float, service_s: float) -> float:
        """Return when a batch that begins now ends, including slow periods and hangs.

        `service_s` is its time by the profile. Both times are by `time.perf_counter`. Batches begin in order of time.
        """
        if self._faults is None:
            return begin_s + service_s
        from_s = self._faults.began_unix_s - self._unix_s
        return from_s + self._faults.end_s(begin_s - from_s, service_s)

    def predict(self, batch: list[Any]) -> list[Any]:
        """Return the items, after the time that profile and faults give."""
        _wait_until(self.end_s(time.perf_counter(), self.service_s(len(batch))))
        return batch


class Paced(Model):
    """`mark.profiling.replay:Paced?model=module:Class&instance=c7i.large&profile=FILE`: a model slowed to a profile.

    Its answers are real. They come after the profile's time for the batch divided by the current speed
    (`MARK_SPEED_FILE`), or later because of `faults`, given as to `Replay`. The model is looked up from the folder
    `search`; `profiled` is its name in the profile if that differs from the reference. A model that takes longer than
    its profile is an overrun: counted, and logged once.
    """

    def __init__(
        self,
        model: str,
        instance: str,
        profile: str | None = None,
        search: str = ".",
        profiled: str | None = None,
        seed: str = "0",
        faults: str | None = None,
    ) -> None:
        self._times = Replay(profiled or model, instance, profile, seed, faults)
        self._home = home(model, Path(search))
        with chdir(self._home):
            self._model = find(model, Path(search).resolve())
        self._speed_file = os.environ.get(SPEED_FILE)
        self._due_s = -math.inf  # due time of the last batch, by `time.perf_counter`
        self.overruns = 0

    def load(self) -> None:
        """Load the model and warm it up, so that its lazy initialisation is not counted as an overrun."""
        with chdir(self._home):
            self._model.load()
        warm_up(self._model)
        for attribute in ("platform", "inputs", "outputs", "warmup", "columns", "by_name"):
            setattr(self, attribute, getattr(self._model, attribute))

    def predict(self, batch: list[Any]) -> Sequence[Any]:
        """Return the model's results when the batch is due."""
        began_s = time.perf_counter()
        results = self._model.predict(batch)
        took_s = time.perf_counter() - began_s
        service_s = self._times.service_s(len(batch)) / self._speed()
        if took_s > service_s:
            if not self.overruns:
                log.warning(
                    "%s is slower here than its profile: a batch of %d took %.1f ms instead of %.1f",
                    self.name,
                    len(batch),
                    took_s * 1e3,
                    service_s * 1e3,
                )
            self.overruns += 1
        self._due_s = self._times.end_s(begin_s(began_s, service_s, self._due_s), service_s)
        _wait_until(self._due_s)
        return results

    def _speed(self) -> float:
        if self._speed_file is None:
            return 1.0
        try:
            return float(Path(self._speed_file).read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"holds no speed: {error}", SPEED_FILE, self._speed_file) from None


def begin_s(began_s: float, service_s: float, before_s: float) -> float:
    """Return when a batch of `service_s` that began at `began_s` should have begun.

    If it waited for the previous batch, that is `before_s`, when that batch was due.
    """
    return before_s if 0.0 <= began_s - before_s < _AT_ONCE * service_s else began_s


def _wait_until(end_s: float) -> None:
    """Wait until `end_s` by `time.perf_counter`."""
    time.sleep(max(0.0, end_s - time.perf_counter() - _AWAKE_S))
    while time.perf_counter() < end_s:
        pass
