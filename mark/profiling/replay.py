"""A model that computes nothing and takes as long as its profile says: for tests of everything around a model."""

from __future__ import annotations

import random
import time
from typing import Any

from mark.domain.errors import BadInput
from mark.models.model import Model
from mark.profiling.policy import sigma_of
from mark.profiling.table import load_profiles

# A sleep ends 0.1 to 0.2 ms late; so the last of it is spent awake.
_AWAKE_S = 0.2e-3


class Replay(Model):
    """`mark.profiling.replay:Replay?model=inception-v3&instance=c5.large`: every item is answered by itself.

    Service times are the profile's mean, lognormal where it has a p99. `profile` names a file; else the shipped table.
    """

    def __init__(self, model: str, instance: str, profile: str | None = None, seed: str = "0") -> None:
        if not seed.isdigit():
            raise BadInput("must be a whole number", "mark.profiling.replay:Replay seed", seed)
        self._random = random.Random(int(seed))
        of_model = load_profiles(profile).get(model)
        if of_model is None or instance not in of_model:
            raise BadInput("has no such model and instance", profile or "the shipped table", f"{model} on {instance}")
        self._profile = of_model[instance]
        self._sigma = max(sigma_of(row) for row in self._profile.rows)

    def service_s(self, items: int) -> float:
        """A draw of how long so many items take."""
        largest, sigma = self._profile.rows[-1].batch, self._sigma
        # Beyond the largest batch measured: as many batches as it takes.
        full, rest = divmod(items, largest)
        mean_s = full * self._profile.latency_s(largest) + (self._profile.latency_s(rest) if rest else 0.0)
        return mean_s * self._random.lognormvariate(-sigma * sigma / 2.0, sigma) if sigma > 0.0 else mean_s

    def predict(self, batch: list[Any]) -> list[Any]:
        """The items, after the time that the profile says."""
        end_s = time.perf_counter() + self.service_s(len(batch))
        time.sleep(max(0.0, end_s - time.perf_counter() - _AWAKE_S))
        while time.perf_counter() < end_s:
            pass
        return batch
