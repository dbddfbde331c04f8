"""What can go wrong, and a plan of it: the schedule, drawn from one seed, which can be printed, replayed and shrunk.

A fault is a kind, a time window, and how hard it hits. Every fault draws from a stream of its own: to drop one from a
schedule changes no draw of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

MINUTE_S, HOUR_S = 60.0, 3600.0
CALM_S = 80 * MINUTE_S  # at the end of a run, without faults: by then the fleet is the plan again
QUIET_S = 10 * MINUTE_S  # at its beginning
LEAST_H = 2.5


@dataclass(frozen=True, slots=True)
class FaultKind:
    """`longest_s`: of its window. `share`: from and to which probability, or strength, is drawn. `of_one`: does it hit
    one controller rather than the world? `market`: does it leave what the controller may do untouched, so that it has
    to go on buying elsewhere?"""

    name: str
    sentence: str
    longest_s: float = 20 * MINUTE_S
    share: tuple[float, float] = (1.0, 1.0)
    of_one: bool = False
    market: bool = False


_KINDS = (
    FaultKind("calls fail", "a call to the cloud raises, and nothing was done", share=(0.2, 1.0)),
    FaultKind("calls throttled", "the cloud is asked too often, and says so", share=(0.2, 1.0)),
    FaultKind("answers lost", "a command is carried out, and its answer is lost", share=(0.1, 0.8)),
    FaultKind("calls slow", "a call takes up to 40 s", share=(0.02, 0.2)),
    FaultKind("commands twice", "a command arrives twice", share=(0.3, 1.0)),
    FaultKind("fleet stale", "what another controller launched shows up to 25 s late"),
    FaultKind("offer refused", "one offer is not to be had", HOUR_S, market=True),
    FaultKind("market refused", "nothing is to be had in one market", HOUR_S, market=True),
    FaultKind("launches partial", "launches get one instance, whatever is asked", HOUR_S, market=True),
    FaultKind("ended at launch", "instances are ended before they run", HOUR_S, (0.3, 1.0), market=True),
    FaultKind("never boots", "instances launched now never become ready", share=(0.3, 1.0), market=True),
    FaultKind("boots and dies", "instances launched now end while they boot", share=(0.3, 1.0), market=True),
    FaultKind("boots slow", "boots take up to three times as long", HOUR_S, (1.5, 3.0), market=True),
    FaultKind("silent", "ready instances do not answer, though they run", share=(0.05, 0.5), market=True),
    FaultKind("dies", "an instance is gone without a notice", share=(0.001, 0.01), market=True),
    FaultKind("interrupted", "instances are taken back, two minutes after a notice", share=(0.002, 0.02), market=True),
    FaultKind("notices late", "notices reach the controller 100 s late", HOUR_S, market=True),
    FaultKind("notices lost", "notices never reach the controller", HOUR_S, market=True),
    FaultKind("news lost", "what the cloud tells for the bill is lost", share=(0.2, 1.0), market=True),
    FaultKind("store down", "the store answers nothing", share=(0.3, 1.0)),
    FaultKind("store read-only", "the store can be read, not written"),
    FaultKind("store torn", "something is written, and the answer is lost", share=(0.05, 0.5)),
    FaultKind("lease down", "the lease's store answers nothing"),
    FaultKind("clock ahead", "a controller's clock jumps ahead, and back at the end", share=(30.0, 900.0), of_one=True),
    FaultKind("clock stands", "a controller's clock stands still, then catches up", of_one=True),
    FaultKind("telemetry gap", "nothing is observed of the load"),
    FaultKind("telemetry zeros", "a load of zero is observed"),
    FaultKind("telemetry NaN", "rates that are no numbers are observed"),
    FaultKind("telemetry spikes", "a thousandfold load is observed", 5 * MINUTE_S, (0.05, 0.5)),
    FaultKind("telemetry fails", "asking for the load raises", share=(0.2, 1.0)),
    FaultKind("functions fail", "a call to functions raises", HOUR_S, market=True),
    FaultKind("crash", "a controller dies at some call, and is started again after up to 20 minutes", 5 * MINUTE_S,
              of_one=True),
    FaultKind("pause", "a controller stands still in the middle of a call for up to an hour, and goes on as if nothing "
              "had been", 5 * MINUTE_S, of_one=True),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _KINDS}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule. `target`: the controller that it hits, None: all of them. `number`: of its stream."""

    number: int
    kind: str
    start_s: float
    end_s: float
    share: float
    target: int | None = None

    def __str__(self) -> str:
        where = "" if self.target is None else f", controller {self.target}"
        return f"{clock_text(self.start_s)} to {clock_text(self.end_s)}  {self.kind} ({self.share:.3g}{where})"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a run is made of, besides the code: `hours` with `controllers`, `services` and these faults."""

    seed: int
    hours: float
    controllers: int
    services: int
    faults: tuple[Fault, ...]

    @property
    def end_s(self) -> float:
        return self.hours * HOUR_S

    @property
    def calm_from_s(self) -> float:
        return self.end_s - CALM_S


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The stream of draws of that name."""
    return np.random.default_rng([seed, *(crc32(str(name).encode()) for name in names)])


def drawn(seed: int, hours: float, kinds: Iterable[str] = KINDS) -> Schedule:
    """The schedule of a seed: one to five controllers, one to three services, about six faults of an hour."""
    draw = stream(seed, "schedule")
    controllers, services = int(draw.integers(1, 6)), int(draw.integers(1, 4))
    names = tuple(kinds)
    last_s = hours * HOUR_S - CALM_S
    count = int(draw.poisson(6.0 * (last_s - QUIET_S) / HOUR_S))
    faults = []
    for number in range(count):
        kind = KINDS[names[int(draw.integers(len(names)))]]
        start_s = QUIET_S + float(draw.random()) * (last_s - QUIET_S)
        length_s = kind.longest_s * float(draw.random()) ** 2 + 10.0
        share = kind.share[0] + float(draw.random()) * (kind.share[1] - kind.share[0])
        target = int(draw.integers(controllers))
        faults.append(
            Fault(number, kind.name, round(start_s), round(min(start_s + length_s, last_s)), round(share, 4),
                  target if kind.of_one else None)
        )  # fmt: skip
    faults.sort(key=lambda fault: (fault.start_s, fault.number))
    return Schedule(seed, hours, controllers, services, tuple(faults))


def smaller(schedule: Schedule) -> Iterable[Schedule]:
    """Schedules with less of it, the smallest first: without half of the faults, without one, with half a window."""
    faults, half = schedule.faults, len(schedule.faults) // 2
    if half > 1:
        yield replace(schedule, faults=faults[half:])
        yield replace(schedule, faults=faults[:half])
    for place in range(len(faults)):
        yield replace(schedule, faults=faults[:place] + faults[place + 1 :])
    for place, fault in enumerate(faults):
        if fault.end_s - fault.start_s > 20.0:
            middle_s = round((fault.start_s + fault.end_s) / 2.0)
            for shorter in (replace(fault, end_s=middle_s), replace(fault, start_s=middle_s)):
                yield replace(schedule, faults=(*faults[:place], shorter, *faults[place + 1 :]))


def clock_text(at_s: float) -> str:
    """01:02:03 since the beginning."""
    whole = int(at_s)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
