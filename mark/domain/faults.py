"""Faults of instances that simulator and testbed play: slow periods, hangs, crashes (docs/semantics.md, 18)."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A bouncer gives up a worker that hangs for longer (`mark serve --hang-s`), which is not played.
LONGEST_HANG_S = 60.0


@dataclass(frozen=True, slots=True)
class Faults:
    """What instances do now and then (`[faults]` of a service file); by default nothing.

    An instance is calm or slow in turn, for times that are exponential. It hangs and crashes at a constant rate.
    """

    slow_share: float = 0.0  # of the time, below 1
    slow_s: float = 30.0  # mean length of a slow period
    slow_factor: float = 1.0  # the time of a batch that begins in one, over its time in a calm one
    slow_add_s: float = 0.0  # what it takes longer besides
    host_group: int = 1  # instances, in the order of their launches, that are slow at the same times
    hangs_per_hour: float = 0.0  # of an instance while it does not hang
    hang_s: float = 5.0  # how long it works at nothing
    crashes_per_hour: float = 0.0  # of an instance that serves, without a notice
    # How much later the answers of a batch come that begins in a slow period; its worker is free meanwhile.
    slow_answer_s: float = 0.0

    @property
    def slows(self) -> bool:
        """Is any batch slower, or answered later, than its profile says?"""
        return self.slow_share > 0.0 and (self.slow_factor > 1.0 or self.slow_add_s > 0.0 or self.slow_answer_s > 0.0)

    @property
    def hangs(self) -> bool:
        return self.hangs_per_hour > 0.0 and self.hang_s > 0.0

    @property
    def crashes(self) -> bool:
        return self.crashes_per_hour > 0.0

    @property
    def any(self) -> bool:
        return self.slows or self.hangs or self.crashes

    def compressed(self, time_scale: float) -> Faults:
        """By a clock that is `time_scale` times as fast: all of it is so much shorter and more frequent.

        What a slow batch takes is not, nor what its answers do: these times do not pass by that clock.
        """
        return replace(
            self,
            slow_s=self.slow_s / time_scale,
            hang_s=self.hang_s / time_scale,
            hangs_per_hour=self.hangs_per_hour * time_scale,
            crashes_per_hour=self.crashes_per_hour * time_scale,
        )

    def without_crashes(self) -> Faults:
        """Where no controller replaces what crashes."""
        return replace(self, crashes_per_hour=0.0)


NO_FAULTS = Faults()
