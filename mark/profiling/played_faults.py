"""Slow periods and hangs of an instance, played by a machine that stands in for it (docs/semantics.md, 18).

The law and every draw are those of `mark.kernel.replica_faults`, to the last bit. That module is compiled for many
replicas; a worker imports no compiler, so the law stands here again, of one replica and in plain Python, and a test
compares the two. Crashes are not the machine's own: the cloud ends it (`mark.cloud.ec2.draws`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from mark.domain.errors import BadInput
from mark.domain.faults import Faults

# A `FaultStream` as text: whose faults a server plays. Without it, those of instance 1 of seed 0, since its start.
FAULT_STREAM = "MARK_FAULT_STREAM"

# What is drawn; part of the key
_SLOW, _HANG = range(2)
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1


@dataclass(frozen=True, slots=True)
class FaultStream:
    """Whose faults: of the `number`-th launch of a service whose draws have this seed.

    The clock of its faults began at `began_unix_s` (Unix seconds), and is `time_scale` times as fast as ours.
    """

    began_unix_s: float
    seed: int = 0
    number: int = 1
    time_scale: float = 1.0

    def as_text(self) -> str:
        """What `stream_of_text` reads."""
        return json.dumps(asdict(self))


def stream_of_text(text: str) -> FaultStream:
    """Raises BadInput for what is no stream of faults."""
    try:
        return FaultStream(**json.loads(text))
    except (TypeError, ValueError):
        raise BadInput("is no stream of faults", FAULT_STREAM, text) from None


class PlayedFaults:
    """When batches of one worker end. Times are seconds since the stream began; they begin in order of time."""

    def __init__(self, faults: Faults, stream: FaultStream) -> None:
        own = self._own = faults.compressed(stream.time_scale)
        self.began_unix_s = stream.began_unix_s
        self._seed, self._number = stream.seed, stream.number
        self._group = stream.number // own.host_group
        self._slow, self._slow_until_s, self._slow_drawn = False, 0.0, 0
        self._calm_s = own.slow_s * (1.0 - own.slow_share) / own.slow_share if own.slows else 0.0
        self._between_hangs_s = 3600.0 / own.hangs_per_hour if own.hangs else math.inf
        # When the last hang begins that was looked at
        self._hang_s, self._hangs_drawn = -own.hang_s if own.hangs else math.inf, 0

    def end_s(self, start_s: float, service_s: float) -> float:
        """When a batch ends that a worker has from `start_s` on, and that takes `service_s` by its profile."""
        begin_s = self.begins_s(start_s)
        return begin_s + self._takes_s(begin_s, service_s)

    def begins_s(self, start_s: float) -> float:
        """When a batch begins that a worker has from `start_s` on: not while the instance hangs."""
        while self._hang_s + self._own.hang_s <= start_s:
            self._hang_s = self._hang_after_s(self._hang_s, self._hangs_drawn)
            self._hangs_drawn += 1
        return max(start_s, self._hang_s + self._own.hang_s) if start_s >= self._hang_s else start_s

    @property
    def delays_answers(self) -> bool:
        """Are any answers on their way for longer?"""
        return self._own.slow_share > 0.0 and self._own.slow_answer_s > 0.0

    def answers_later_s(self, begin_s: float) -> float:
        """How long the answers of a batch are on their way that began then; batches begin in order of time."""
        return self._own.slow_answer_s if self.is_slow(begin_s) else 0.0

    def is_slow(self, at_s: float) -> bool:
        """Is the instance in a slow period? Periods are exponential, the first as in a process without beginning."""
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
        """How long a batch takes that begins at `start_s`, hangs on its way included."""
        if self.is_slow(start_s):
            service_s = service_s * self._own.slow_factor + self._own.slow_add_s
        # The next batch may begin before these hangs: what was looked at stays where it is.
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
        """Of mean 1."""
        return -math.log(self._uniform(purpose, whose, drawn))

    def _uniform(self, purpose: int, whose: int, drawn: int) -> float:
        """In (0, 1]."""
        bits = _mixed(self._seed + _GOLDEN * (purpose + 1))
        bits = _mixed(bits ^ whose)
        return ((_mixed(bits + _GOLDEN * drawn) >> 11) + 1.0) / 9007199254740992.0


def faults_text(faults: Faults, stream: FaultStream) -> str:
    """What `faults_of_text` reads."""
    return json.dumps([asdict(faults), asdict(stream)])


def faults_of_text(text: str) -> PlayedFaults:
    """Raises BadInput for what `faults_text` did not make."""
    try:
        faults, stream = json.loads(text)
        return PlayedFaults(Faults(**faults), FaultStream(**stream))
    except (TypeError, ValueError):
        raise BadInput("says no faults", "faults", text) from None


def _mixed(z: int) -> int:
    """SplitMix64's output function (Steele, Lea, Flood 2014), as `mark.kernel.random` has it."""
    z &= _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)
