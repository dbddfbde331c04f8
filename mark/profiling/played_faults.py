"""Slow periods and hangs of an instance, imitated by a machine that stands in for it (docs/semantics.md, 18).

The distributions and every draw equal `mark.kernel.replica_faults` bit by bit. That module is compiled for
many replicas, and a worker must not import the compiler, so the same rules are repeated here for one replica in plain
Python, and a test compares the two. Crashes are left to the cloud, which ends the machine (`mark.cloud.ec2.draws`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from mark.domain.errors import BadInput
from mark.domain.faults import Faults

# Environment variable with a `FaultStream` as text. Without it a server has the faults of instance 1 of seed 0,
# beginning at its start.
FAULT_STREAM = "MARK_FAULT_STREAM"

# Purpose of a draw, part of its key.
_SLOW, _HANG = range(2)
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1


@dataclass(frozen=True, slots=True)
class FaultStream:
    """The faults of a service's launch number `number`, drawn with `seed`.

    The stream's clock began at `began_unix_s` (Unix seconds) and runs `time_scale` times as fast as ours.
    """

    began_unix_s: float
    seed: int = 0
    number: int = 1
    time_scale: float = 1.0

    def as_text(self) -> str:
        """Return the text that `stream_of_text` reads."""
        return json.dumps(asdict(self))


def stream_of_text(text: str) -> FaultStream:
    """Return the stream that `as_text` wrote. Raises BadInput for other text."""
    try:
        return FaultStream(**json.loads(text))
    except (TypeError, ValueError):
        raise BadInput("is no stream of faults", FAULT_STREAM, text) from None


class PlayedFaults:
    """The effect of faults on one worker's batches. Times are seconds since the stream began and must not decrease."""

    def __init__(self, faults: Faults, stream: FaultStream) -> None:
        own = self._own = faults.compressed(stream.time_scale)
        self.began_unix_s = stream.began_unix_s
        self._seed, self._number = stream.seed, stream.number
        self._group = stream.number // own.host_group
        self._slow, self._slow_until_s, self._slow_drawn = False, 0.0, 0
        self._calm_s = own.slow_s * (1.0 - own.slow_share) / own.slow_share if own.slows else 0.0
        self._between_hangs_s = 3600.0 / own.hangs_per_hour if own.hangs else math.inf
        # Begin of the last hang that was drawn.
        self._hang_s, self._hangs_drawn = -own.hang_s if own.hangs else math.inf, 0

    def end_s(self, start_s: float, service_s: float) -> float:
        """Return the end of a batch that a worker has from `start_s` on and that takes `service_s` by its profile."""
        begin_s = self.begins_s(start_s)
        return begin_s + self._takes_s(begin_s, service_s)

    def begins_s(self, start_s: float) -> float:
        """Return when a batch that a worker has from `start_s` on begins: after the hang, if there is one."""
        while self._hang_s + self._own.hang_s <= start_s:
            self._hang_s = self._hang_after_s(self._hang_s, self._hangs_drawn)
            self._hangs_drawn += 1
        return max(start_s, self._hang_s + self._own.hang_s) if start_s >= self._hang_s else start_s

    @property
    def delays_answers(self) -> bool:
        """Whether slow periods delay answers on the network."""
        return self._own.slow_share > 0.0 and self._own.slow_answer_s > 0.0

    def answers_later_s(self, begin_s: float) -> float:
        """Return the delay of the answers of a batch that began then. Times must not decrease."""
        return self._own.slow_answer_s if self.is_slow(begin_s) else 0.0

    def is_slow(self, at_s: float) -> bool:
        """Return whether the instance is in a slow period.

        Periods are exponential, and the process is stationary from the start.
        """
        own = self._own
        if not own.slows:
            return False
        while self._slow_until_s <= at_s:
            if self._slow_drawn == 0:
                self._slow = self._uniform(_SLOW, self._group, 0) <= own.slow_share
                self._slow_drawn = 1
            else:
                self._slow = not self._slow
            mean_s = own.slow_s if self._slow else self._calm_s
            self._slow_until_s += mean_s * self._exponential(_SLOW, self._group, self._slow_drawn)
            self._slow_drawn += 1
        return self._slow

    def _takes_s(self, start_s: float, service_s: float) -> float:
        """Return the time of a batch that begins at `start_s`, including hangs in between."""
        if self.is_slow(start_s):
            service_s = service_s * self._own.slow_factor + self._own.slow_add_s
        # Leave the state as it is, because the next batch may begin before these hangs.
        hang_s, drawn = self._hang_s, self._hangs_drawn
        while hang_s < start_s + service_s:
            if hang_s >= start_s:
                service_s += self._own.hang_s
            hang_s = self._hang_after_s(hang_s, drawn)
            drawn += 1
        return service_s

    def _hang_after_s(self, hang_s: float, drawn: int) -> float:
        between_s = self._between_hangs_s * self._exponential(_HANG, self._number, drawn)
        return hang_s + (self._own.hang_s + between_s)

    def _exponential(self, purpose: int, whose: int, drawn: int) -> float:
        """Return an exponential draw of mean 1."""
        return -math.log(self._uniform(purpose, whose, drawn))

    def _uniform(self, purpose: int, whose: int, drawn: int) -> float:
        """Return a uniform draw from (0, 1]."""
        bits = _mixed(self._seed + _GOLDEN * (purpose + 1))
        bits = _mixed(bits ^ whose)
        return ((_mixed(bits + _GOLDEN * drawn) >> 11) + 1.0) / 9007199254740992.0


def faults_text(faults: Faults, stream: FaultStream) -> str:
    """Return the text that `faults_of_text` reads."""
    return json.dumps([asdict(faults), asdict(stream)])


def faults_of_text(text: str) -> PlayedFaults:
    """Return the faults that `faults_text` wrote. Raises BadInput for other text."""
    try:
        faults, stream = json.loads(text)
        return PlayedFaults(Faults(**faults), FaultStream(**stream))
    except (TypeError, ValueError):
        raise BadInput("says no faults", "faults", text) from None


def _mixed(z: int) -> int:
    """Return SplitMix64's output function (Steele, Lea, Flood 2014), as in `mark.kernel.random`."""
    z &= _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)
