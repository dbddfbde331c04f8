"""What can go wrong, and a plan of it: the schedule, drawn from one seed, which can be printed, replayed and shrunk.

A fault is a kind, a time window, and how hard it hits. Every fault draws from a stream of its own: to drop one from a
schedule changes no draw of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

MINUTE_S, HOUR_S = 60.0, 3600.0
CALM_S = 80 * MINUTE_S  # at the end of a run, without faults: by then the fleet is the plan again
QUIET_S = 10 * MINUTE_S  # at its beginning
LEAST_H = 2.5
STAND_IN = "steady"  # the policy, where it is none of mark's
BROUGHT = 0.4  # share of faults that meet a fleet which is brought into a state for them


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
    FaultKind("fleet stale", "another controller's launches show up to 25 s late"),
    FaultKind("offer refused", "one offer is not to be had", HOUR_S, market=True),
    FaultKind("market refused", "nothing is to be had in one market, or in any", HOUR_S, market=True),
    FaultKind("launches partial", "launches get one instance, however many are asked for", HOUR_S, market=True),
    FaultKind("ended at launch", "instances are ended before they run", HOUR_S, (0.3, 1.0), market=True),
    FaultKind("never boots", "instances launched now never become ready", share=(0.3, 1.0), market=True),
    FaultKind("boots and dies", "instances launched now end while they boot", share=(0.3, 1.0), market=True),
    FaultKind("boots slow", "boots take up to three times as long", HOUR_S, (1.5, 3.0), market=True),
    FaultKind("outage", "all instances are gone at once", MINUTE_S, market=True),
    FaultKind("silent", "ready instances do not answer, though they run", 40 * MINUTE_S, (0.05, 0.5), market=True),
    FaultKind("dies", "an instance is gone without a notice", share=(0.001, 0.01), market=True),
    FaultKind("interrupted", "instances are taken back, two minutes after a notice", share=(0.002, 0.02), market=True),
    FaultKind("notices late", "notices reach the controller 100 s late", HOUR_S, market=True),
    FaultKind("notices lost", "notices never reach the controller", HOUR_S, market=True),
    FaultKind("end scheduled", "instances are to be ended in up to an hour and a half, as is told at once", MINUTE_S,
              (0.1, 1.0), market=True),
    FaultKind("prices move", "spot costs from half to twice as much", HOUR_S, (0.5, 2.0), market=True),
    FaultKind("limits change", "an operator lowers a service's limits and raises them again", HOUR_S, (0.3, 0.9),
              market=True),
    FaultKind("release", "a new release is deployed, and controllers are restarted with it", MINUTE_S, market=True),
    FaultKind("bad release", "the same, of one that errs, is late, or dear, or does not boot", MINUTE_S, market=True),
    FaultKind("news lost", "the cloud's events for the bill are lost", share=(0.2, 1.0), market=True),
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
    FaultKind("crash", "a controller dies at some call, and is started again after up to 20 minutes", 10 * MINUTE_S,
              of_one=True),
    FaultKind("pause", "a controller stands still in the middle of a call for up to an hour, and goes on as if nothing "
              "had been", 10 * MINUTE_S, of_one=True),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _KINDS}
RELEASES = ("release", "bad release")
LATE = "late"
FLAWS = ("errors", LATE, "dear")  # of a release that boots: what its answers are
HINDERS = frozenset(kind.name for kind in _KINDS if not kind.market)  # keep controllers from what they should do
# Of them, those that are met by a round that asks for nothing and writes nothing, too, and not in each one alike.
STIRS = HINDERS - {
    "answers lost", "commands twice", "fleet stale", "store read-only", "store torn", "lease down",
    "telemetry gap", "telemetry zeros", "telemetry NaN",
}  # fmt: skip
STRIKES = frozenset(("crash", "pause", "calls slow"))  # at any call
CLOCKS = frozenset(("clock ahead", "clock stands"))
SPOILS = frozenset(("never boots", "boots and dies", "ended at launch", "boots slow", "launches partial"))
# What brings a fleet into a state that is rare by itself, beside a fault: kind, how hard, from and to how many seconds
# after its beginning (infinity: its end). Where calls are slow, or a controller stands still, a call goes on beyond the
# end of its term.
_Beside = tuple[str, float, float, float]
_BRINGS: tuple[tuple[_Beside, ...], ...] = (
    (("outage", 1.0, 0.0, 10.0),),
    (("lease down", 1.0, -20.0, 120.0), ("calls slow", 0.2, -20.0, 120.0)),
    (("outage", 1.0, -6.0, 0.0), ("pause", 1.0, -4.0, 60.0), ("lease down", 1.0, 0.0, 300.0)),
)
_OFTEN = ("interrupted", "silent")  # whose answer takes minutes in which nothing else is in the way
# What is of no consequence unless something else happens meanwhile.
_NEEDS: dict[str, tuple[_Beside, ...]] = {
    "notices late": (("interrupted", 0.01, 0.0, math.inf),),
    "notices lost": (("interrupted", 0.01, 0.0, math.inf),),
    "fleet stale": (("outage", 1.0, 0.0, 5.0), ("crash", 1.0, 0.0, 15.0)),
    "never boots": (("outage", 1.0, 0.0, 10.0),),
    "market refused": (("outage", 1.0, 0.0, 10.0),),
}


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
    """What a run is made of, besides the code: `hours` with `controllers`, `services` and these faults.

    The services keep up to `warm_pool` instances stopped, have `releases` with names, of which the bad ones have one of
    these `flaws` where they boot, and `standbys`. They plan by `policy`: `STAND_IN`, or one of mark's by its name.
    """

    seed: int
    hours: float
    controllers: int
    services: int
    faults: tuple[Fault, ...]
    warm_pool: int = 0
    releases: bool = False
    policy: str = STAND_IN
    standbys: bool = False
    flaws: tuple[str, ...] = FLAWS[:1]

    @property
    def end_s(self) -> float:
        return self.hours * HOUR_S

    @property
    def calm_from_s(self) -> float:
        return self.end_s - CALM_S

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `replayed`."""
        return asdict(self)


def replayed(kept: dict[str, Any]) -> Schedule:
    """The schedule that `Schedule.as_json` wrote down: the same run, whatever seeds draw by now."""
    tuples = {"faults": tuple(Fault(**fault) for fault in kept["faults"]), "flaws": tuple(kept.get("flaws", FLAWS[:1]))}
    return Schedule(**{**kept, **tuples})


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The stream of draws of that name."""
    return np.random.default_rng([seed, *(crc32(str(name).encode()) for name in names)])


def drawn(seed: int, hours: float, kinds: Iterable[str] = KINDS, policy: str = STAND_IN) -> Schedule:
    """The schedule of a seed: one to five controllers, one to three services, about six faults of an hour, and what
    brings them together."""
    draw = stream(seed, "schedule")
    controllers, services = int(draw.integers(1, 6)), int(draw.integers(1, 4))
    warm_pool = int(draw.integers(1, 4)) if float(draw.random()) < 0.5 else 0
    releases = float(draw.random()) < 0.4
    standbys = float(stream(seed, "standbys").random()) < 0.5
    # Where releases are to be had they are a sixth of the faults.
    names = tuple(k for k in kinds if k not in RELEASES) + _OFTEN + (RELEASES * 4 if releases else ())
    last_s = hours * HOUR_S - CALM_S
    faults: list[Fault] = []

    def add(number: int, kind: str, start_s: float, end_s: float, share: float, target: int) -> None:
        start_s = max(QUIET_S, min(start_s, last_s - 10.0))
        end_s = max(start_s + 1.0, min(end_s, last_s))
        whose = target if KINDS[kind].of_one else None
        faults.append(Fault(number, kind, round(start_s), round(end_s), round(share, 4), whose))

    for number in range(int(draw.poisson(6.0 * (last_s - QUIET_S) / HOUR_S))):
        kind = KINDS[names[int(draw.integers(len(names)))]]
        start_s = QUIET_S + float(draw.random()) * (last_s - QUIET_S)
        end_s = start_s + kind.longest_s * float(draw.random()) ** 2 + 10.0
        share = kind.share[0] + float(draw.random()) * (kind.share[1] - kind.share[0])
        target = int(draw.integers(controllers))
        add(number, kind.name, start_s, end_s, share, target)
        brought, which = float(draw.random()), int(draw.integers(len(_BRINGS)))
        others = _BRINGS[which] if brought < BROUGHT else _NEEDS.get(kind.name, ())
        place = 1000 + 100 * number
        for other, hard, from_s, to_s in others:
            # What is of one controller may not be of the one that leads.
            for whose in range(controllers) if KINDS[other].of_one else (target,):
                until_s = end_s if to_s == math.inf else start_s + to_s
                add(place, other, start_s + from_s, until_s, hard, whose)
                place += 1
    faults.sort(key=lambda fault: (fault.start_s, fault.number))
    return Schedule(seed, hours, controllers, services, tuple(faults), warm_pool, releases, policy, standbys, FLAWS)


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
