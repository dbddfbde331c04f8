"""Service times learned while serving, for a model without a profile or a machine that differs from its profile.

Both classes are `mark.serving.backend.bouncer.ServiceTimes`: the bouncer reports each batch's time and reads the
predictions. Nothing here reads a clock or draws at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mark.domain.errors import BadInput
from mark.serving.backend.bouncer import ServiceTimes

# After this number of batches an observation counts half: a slow-down shows within seconds, one odd batch does not.
_HALF_LIFE_BATCHES = 100
_KEPT = 0.5 ** (1.0 / _HALF_LIFE_BATCHES)
# A batch counts as at most this multiple of its prediction, because a stall is not typical of the model.
_MOST_RATIO = 3.0
# Smaller changes are not passed on, so that the bouncer's table changes rarely.
_NOTICEABLE = 0.02

# Clipper backs off by a tenth, because the best batch size hardly moves (Crankshaw's thesis, 3.3: "Dynamic Batch
# Size").
_BACK_OFF = 0.9
# A p99 target allows one late batch in a hundred: with none the size goes up, with two it goes down.
_TRIAL_BATCHES = 100
_LATE_ALLOWED = 1
# If all batches stay below this part of the target, fewer than a hundred show that there is room.
_CLEARLY = 0.8
_CLEAR_BATCHES = 10


class SelfTuned:
    """Learns the times of a model, and the largest batch whose p99 stays within a target.

    `target_s` applies to the service of one batch. A request that just missed a batch waits for its end before its own
    starts, so for an SLO the target is (RT_max - overhead) / 2. A batch has at most `most` items. `first_s` is a guess
    of the time of a batch of one until a warm-up or the first batch is measured.

    Times: latency(b) = a + c b by least squares, with weights that fade with age, a and c at least 0. A line is used
    and not a mean by batch size, so that a slow-down also shows in the sizes that do not occur now. The fading makes it
    the line near the sizes in use, which suffices for a model with a knee. While all batches have one size the slope
    stays unchanged; before the first batch of another size it is the slope of a line through 0, the slowest guess.

    Largest batch: additive increase, multiplicative decrease, as in Clipper, from 1. Until the first late batch, every
    full batch raises it by one step. From then on a step takes a hundred full batches without a late one, or ten that
    are clearly within the target. The second late batch of a hundred cuts it by 10 %, one changes nothing. (With a step
    up for every batch in time and a cut for every late one, every fifth batch would be late.)
    """

    def __init__(self, target_s: float, *, most: int, first_s: float) -> None:
        for name, value, good in (
            ("target_s", target_s, 0.0 < target_s < math.inf),
            ("most", most, most >= 1),
            ("first_s", first_s, 0.0 < first_s < math.inf),
        ):
            if not good:
                raise BadInput("nothing can be tuned with this", name, value)
        self.n_batch = 1
        self._target_s, self._most = target_s, most
        self._step = max(1, most // 64)  # so that a climb takes the same number of steps for every largest batch
        self._opening = True
        self._trial, self._late, self._worst_s = 0, 0, 0.0
        self._line = _Line(first_s)
        self.service_s: Sequence[float] = self._table()

    def warmed_up(self, items: int, seconds: float) -> None:
        """Use the time of a warm-up of this many items instead of the guess; ignored once a batch was served."""
        if not self._line.learned:
            self._line = _Line(seconds / items)
            self.service_s = self._table()

    def observe(self, items: int, seconds: float) -> bool:
        """Note the time that a batch took; return whether `n_batch` or `service_s` changed."""
        learned = self._learn(items, seconds)
        return self._adapt(items, seconds) or learned

    def _learn(self, items: int, seconds: float) -> bool:
        self._line.learn(items, seconds)
        last = self.service_s
        for size in (1, self.n_batch, self._most):
            if abs(self._line.at(size) - last[size]) > _NOTICEABLE * last[size]:
                self.service_s = self._table()
                return True
        return False

    def _table(self) -> list[float]:
        return [0.0, *(max(self._line.at(size), 1e-9) for size in range(1, self._most + 1))]

    def _adapt(self, items: int, seconds: float) -> bool:
        late = seconds > self._target_s
        if not late and items < self.n_batch:
            return False  # a smaller batch in time does not test the largest one
        before = self.n_batch
        self._trial += 1
        self._late += late
        self._worst_s = max(self._worst_s, seconds)
        if (self._opening and late) or self._late > _LATE_ALLOWED:
            self.n_batch = max(1, min(before - 1, int(before * _BACK_OFF)))
            self._opening = False
            self._begin_trial()
        elif self._opening or (
            self._late == 0
            and self._trial >= (_CLEAR_BATCHES if self._worst_s <= _CLEARLY * self._target_s else _TRIAL_BATCHES)
        ):
            self.n_batch = min(before + self._step, self._most)
            self._begin_trial()
        elif self._trial >= _TRIAL_BATCHES:
            self._begin_trial()
        return self.n_batch != before

    def _begin_trial(self) -> None:
        self._trial, self._late, self._worst_s = 0, 0, 0.0


class Corrected:
    """A profile's times corrected by observations: a + c x profile, learned like `SelfTuned`'s line.

    So promises hold on a machine that is always slower than its profile (c), and if a batch costs more around the
    model, such as the hop to the worker (a). `n_batch` stays as planned.
    """

    def __init__(self, profiled: ServiceTimes) -> None:
        self._profiled = profiled
        self.n_batch = profiled.n_batch
        self.service_s: Sequence[float] = profiled.service_s
        # The prior: half a half-life of full batches with the profile's time.
        self._line = _Line(1.0)
        for _ in range(_HALF_LIFE_BATCHES // 2):
            full_s = profiled.service_s[self.n_batch]
            self._line.learn(full_s, full_s)

    def observe(self, items: int, seconds: float) -> bool:
        """Note the time that a batch took; return whether `service_s` changed."""
        profiled_s, line = self._profiled.service_s, self._line
        line.learn(profiled_s[items], seconds)
        for size in (1, self.n_batch):
            if abs(line.at(profiled_s[size]) - self.service_s[size]) > _NOTICEABLE * self.service_s[size]:
                self.service_s = [0.0, *(max(line.at(s), 1e-9) for s in profiled_s[1:])]
                return True
        return False


class _Line:
    """y = a + c x by least squares with weights that fade with age; neither a nor c is below zero.

    At first c is `slope` and a is 0; while all x are the same, c stays unchanged.
    """

    __slots__ = ("_a", "_c", "_w", "_wx", "_wxx", "_wxy", "_wy")

    def __init__(self, slope: float) -> None:
        self._a, self._c = 0.0, slope
        self._w = self._wx = self._wxx = self._wxy = self._wy = 0.0

    @property
    def learned(self) -> bool:
        return self._w > 0.0

    def at(self, x: float) -> float:
        return self._a + self._c * x

    def learn(self, x: float, y: float) -> None:
        if self._w > _CLEAR_BATCHES:
            y = min(y, _MOST_RATIO * self.at(x))
        self._w = self._w * _KEPT + 1.0
        self._wx = self._wx * _KEPT + x
        self._wxx = self._wxx * _KEPT + x * x
        self._wxy = self._wxy * _KEPT + x * y
        self._wy = self._wy * _KEPT + y
        mean_x, mean_y = self._wx / self._w, self._wy / self._w
        spread = max(0.0, self._wxx - self._wx * mean_x)
        # The last slope counts as much as points that spread by a tenth of their x.
        prior = 0.01 * mean_x * mean_x
        slope = (self._wxy - self._wx * mean_y + prior * self._c) / (spread + prior)
        self._c = min(max(slope, 0.0), mean_y / mean_x)
        self._a = mean_y - self._c * mean_x
