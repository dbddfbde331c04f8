"""Faults of instances in simulator and testbed: slow periods, hangs, crashes (docs/semantics.md, 18)."""

from __future__ import annotations

from dataclasses import dataclass, replace

# A bouncer gives up a worker that hangs longer (`mark serve --hang-s`); the simulator does not.
LONGEST_HANG_S = 60.0


@dataclass(frozen=True, slots=True)
class Faults:
    """The random faults of instances (`[faults]` of a service file); none by default.

    Calm and slow periods alternate and last exponential times. Hangs and crashes come at constant rates.
    """

    slow_share: float = 0.0  # of the time, below 1
    slow_s: float = 30.0  # mean length of a slow period
    slow_factor: float = 1.0  # time of a batch that begins in a slow period, over its calm time
    slow_add_s: float = 0.0  # added to the time of such a batch
    host_group: int = 1  # successive launches that are slow at the same times
    hangs_per_hour: float = 0.0  # of an instance while it does not hang
    hang_s: float = 5.0  # length of a hang
    crashes_per_hour: float = 0.0  # of a serving instance, without a notice
    # Delay of the answers of a batch that begins in a slow period; its worker is already free.
    slow_answer_s: float = 0.0

    @property
    def slows(self) -> bool:
        """Whether any batch is slower, or answered later, than in its profile."""
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
        """Return the faults for a clock `time_scale` times as fast: shorter and more frequent.

        The times of slow batches and of their answers stay, because they do not pass by that clock.
        """
        return replace(
            self,
            slow_s=self.slow_s / time_scale,
            hang_s=self.hang_s / time_scale,
            hangs_per_hour=self.hangs_per_hour * time_scale,
            crashes_per_hour=self.crashes_per_hour * time_scale,
        )

    def without_crashes(self) -> Faults:
        """Return these faults without crashes, for runs in which no controller replaces instances."""
        return replace(self, crashes_per_hour=0.0)


NO_FAULTS = Faults()
