"""The kinds of faults, and the schedule: a plan of faults drawn from one seed, to be printed, replayed and shrunk.

A fault is a kind, a time window and a strength. Every fault draws from a separate random stream, so that dropping one
fault from a schedule changes no draw of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

MINUTE_S, HOUR_S = 60.0, 3600.0
CALM_S = 80 * MINUTE_S  # time without faults at the end of a run, in which the fleet returns to the plan
QUIET_S = 10 * MINUTE_S  # time without faults at the beginning of a run
LEAST_H = 2.5
STAND_IN = "steady"  # the policy of a run without one of mark's
BROUGHT = 0.4  # share of faults that are preceded by others which bring the fleet into a rare state


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    `longest_s` limits its window. `share` is the range from which the probability or strength is drawn. A fault
    `of_one` hits one controller, any other the whole world. A `market` fault only takes capacity away; the controller
    can still act and must buy elsewhere.
    """

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
FLAWS = ("errors", LATE, "dear")  # of a release that boots: errors, late answers, or expensive ones
HINDERS = frozenset(kind.name for kind in _KINDS if not kind.market)  # faults that keep controllers from acting
# Hindrances that also affect rounds which ask for nothing and write nothing, and not each of those rounds alike.
STIRS = HINDERS - {
    "answers lost", "commands twice", "fleet stale", "store read-only", "store torn", "lease down",
    "telemetry gap", "telemetry zeros", "telemetry NaN",
}  # fmt: skip
STRIKES = frozenset(("crash", "pause", "calls slow"))  # may strike at any call
CLOCKS = frozenset(("clock ahead", "clock stands"))
SPOILS = frozenset(("never boots", "boots and dies", "ended at launch", "boots slow", "launches partial"))
# Faults that are added to another one to bring the fleet into a rare state: kind, strength, and their begin and end in
# seconds after the begin of the other fault (infinity: until it ends). With slow calls or a paused controller, a call
# continues after its term has ended.
_Beside = tuple[str, float, float, float]
_BRINGS: tuple[tuple[_Beside, ...], ...] = (
    (("outage", 1.0, 0.0, 10.0),),
    (("lease down", 1.0, -20.0, 120.0), ("calls slow", 0.2, -20.0, 120.0)),
    (("outage", 1.0, -6.0, 0.0), ("pause", 1.0, -4.0, 60.0), ("lease down", 1.0, 0.0, 300.0)),
)
# drawn more often, because the reaction takes minutes that other faults seldom leave
_OFTEN = ("interrupted", "silent")
# Faults that only matter if another fault happens at the same time.
_NEEDS: dict[str, tuple[_Beside, ...]] = {
    "notices late": (("interrupted", 0.01, 0.0, math.inf),),
    "notices lost": (("interrupted", 0.01, 0.0, math.inf),),
    "fleet stale": (("outage", 1.0, 0.0, 5.0), ("crash", 1.0, 0.0, 15.0)),
    "never boots": (("outage", 1.0, 0.0, 10.0),),
    "market refused": (("outage", 1.0, 0.0, 10.0),),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule. `target` is the controller it hits (None: all), `number` selects its random stream."""

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
    """Everything that defines a run apart from the code: `hours` with `controllers`, `services` and these faults.

    Each service keeps up to `warm_pool` instances stopped. With `releases`, releases have names, and a bad release that
    boots has one of the `flaws`. `standbys` adds standby instances. `policy` is `STAND_IN` or the name of one of mark's
    policies.
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
        """Return plain values, for `replayed`."""
        return asdict(self)


def replayed(kept: dict[str, Any]) -> Schedule:
    """Return the schedule that `Schedule.as_json` wrote.

    The run stays the same even if seeds now draw differently.
    """
    tuples = {"faults": tuple(Fault(**fault) for fault in kept["faults"]), "flaws": tuple(kept.get("flaws", FLAWS[:1]))}
    return Schedule(**{**kept, **tuples})


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream with this name."""
    return np.random.default_rng([seed, *(crc32(str(name).encode()) for name in names)])


def drawn(seed: int, hours: float, kinds: Iterable[str] = KINDS, policy: str = STAND_IN) -> Schedule:
    """Return the schedule of a seed: 1 to 5 controllers, 1 to 3 services, about six faults an hour and added ones."""
    draw = stream(seed, "schedule")
    controllers, services = int(draw.integers(1, 6)), int(draw.integers(1, 4))
    warm_pool = int(draw.integers(1, 4)) if float(draw.random()) < 0.5 else 0
    releases = float(draw.random()) < 0.4
    standbys = float(stream(seed, "standbys").random()) < 0.5
    # With releases, they are a sixth of the faults.
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
            # Hit every controller with a fault of one controller, because `target` may not be the leader.
            for whose in range(controllers) if KINDS[other].of_one else (target,):
                until_s = end_s if to_s == math.inf else start_s + to_s
                add(place, other, start_s + from_s, until_s, hard, whose)
                place += 1
    faults.sort(key=lambda fault: (fault.start_s, fault.number))
    return Schedule(seed, hours, controllers, services, tuple(faults), warm_pool, releases, policy, standbys, FLAWS)


def smaller(schedule: Schedule) -> Iterable[Schedule]:
    """Yield smaller schedules, the smallest first: half of the faults, one fault less, half a window."""
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
    """Return the time since the beginning as 01:02:03."""
    whole = int(at_s)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
