"""Roll-outs: a new release takes the place of the one that serves, and is taken back where it does worse.

A release is what instances boot from: the service's files, packages, image and settings. A *canary* comes first: a few
instances of the new release beside all that the plan wants. Where they do as well as the others for long enough, the
rest follows by *surge*: a share of the plan more is launched, and what has the old release is drained as others are
ready, so that never less is ready than the plan wants. What does worse, or does not boot, is stopped: the release
before takes its place in the same way, and it is not launched again until an operator asks for it.

Worse is: more errors, more misses than the SLO allows, or more left to functions than with the other release in the
same time, by more than chance explains (`mark.control.comparison`); or more worker time a request, which is what
instances are bought for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mark.control.comparison import Comparison
from mark.control.headroom import Limit
from mark.control.health import overdue
from mark.control.ports import ReleaseCounts
from mark.control.views import RolloutView
from mark.domain.backoff import ROLLOUT
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import instance_of
from mark.domain.service import RolloutSettings
from mark.domain.slo import Slo
from mark.domain.time import MINUTE_S

FAILED_BOOTS = 3
# Of all that have a release: sooner than a single instance is given up and replaced, which would hide it.
MUTE_S = 20.0
# A release that nothing reaches, though the others get requests, is waited for so much longer than its trial takes.
LOST_S = 600.0
# A roll-out that replaced nothing for so long holds up no other release: slow boots take less.
STALL_S = 900.0

CountsByRelease = Mapping[str, Mapping[str, ReleaseCounts]]  # release -> offer -> counts


class RolloutStage(StrEnum):
    """How far a roll-out is."""

    DONE = "done"  # all instances have one release
    CANARY = "canary"
    ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class Rollout:
    """`release` is what the plan's instances are launched from.

    In the stage canary `candidate` is on trial beside it. `before` is what a roll-back returns to, "" where nothing is
    known of that. `refused` are releases that were stopped or taken back, the last one for `reason`. `since_s` is when
    the canaries were ready, infinity before that, and `minutes` is how long they are still tried. `comparison` is that
    of the newest release with the one before it; None: it is not judged. `booting` are numbers of instances of the new
    release that boot, with their offers, and `failed` is how many of an offer went before they served, in a row.
    `ready` counts what serves, by release; since `moved_s` no fewer than `left` instances have been left to replace.
    `waits` says what keeps it from going on for now, `stuck` why it is not taken back though it should be. What was
    refused last is asked for again from `retry_s` on.
    """

    release: str
    stage: RolloutStage = RolloutStage.DONE
    before: str = ""
    candidate: str = ""
    since_s: float = math.inf
    minutes: int = 0
    refused: tuple[str, ...] = ()
    reason: str = ""
    comparison: Comparison | None = None
    booting: dict[int, str] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    back: bool = False  # is it the release before that takes its place again?
    ready: dict[str, int] = field(default_factory=dict)
    left: int | None = None
    moved_s: float = math.inf
    waits: str | Limit = ""
    stuck: str = ""
    retry_s: float = -math.inf

    @property
    def newest(self) -> str:
        """The release of which it is to be found out whether it is any good."""
        return self.candidate or self.release

    def is_old(self, instance: Instance) -> bool:
        """Is it to be replaced?"""
        return instance.release not in (self.release, self.candidate or self.release)

    def on_trial(self, instance: Instance) -> bool:
        return self.stage is RolloutStage.CANARY and instance.release == self.candidate


def rolled(
    rollout: Rollout | None,
    wanted: str,
    fleet: Fleet,
    counts: CountsByRelease,
    now_s: float,
    slo: Slo,
    settings: RolloutSettings,
    *,
    planned: int | None,
) -> Rollout | None:
    """The roll-out after a look at the fleet, where `wanted` is to serve; None where releases have no names.

    `planned` is how many instances are to serve, None while that is not known.
    """
    if not wanted:
        return None
    if rollout is None:
        rollout = _found(wanted, fleet)
    if rollout.candidate and wanted == rollout.release:
        # What serves is wanted again: the trial is over, without a verdict.
        rollout = Rollout(wanted, RolloutStage.ROLLING, rollout.before, refused=rollout.refused, back=True)
    elif _is_reverted(rollout, wanted):
        rollout = Rollout(wanted, RolloutStage.ROLLING, rollout.release, refused=rollout.refused, back=True)
    elif wanted not in (rollout.newest, *rollout.refused) and _may_begin(rollout, fleet, now_s):
        rollout = _begun(rollout, wanted, fleet, settings)
    if rollout.stage is RolloutStage.DONE:
        # Something may have been launched by a controller of another mind. It goes, and says nothing of what serves.
        if not any(map(rollout.is_old, _all(fleet))):
            return rollout
        rollout = replace(rollout, stage=RolloutStage.ROLLING)
    rollout = _watched(_with_boots(rollout, fleet, now_s), fleet, counts, now_s)
    if rollout.comparison is not None and (reason := _worse(rollout, fleet, now_s, slo)):
        rollout = stopped(rollout, reason)
    if rollout.stage is RolloutStage.CANARY:
        return _tried(rollout, fleet, counts, now_s, settings)
    return _finished(rollout, fleet, planned)


def canaries(fleet: Fleet, settings: RolloutSettings) -> int:
    """How many instances are to be on trial."""
    return max(1, math.floor(settings.canary_share * fleet.ready().total()))


def surge(rollout: Rollout | None, planned: int, instances: Sequence[Instance], settings: RolloutSettings) -> int:
    """How many more of an offer than `planned` may be there, so that what is old can go; `instances` count for it.

    On the way back as many as are planned: what has proved bad is to go soon.
    """
    if rollout is None or rollout.stage is not RolloutStage.ROLLING:
        return 0
    old = sum(rollout.is_old(i) for i in instances)
    return min(old, planned if rollout.back else math.ceil(settings.surge_share * planned))


def replaceable(rollout: Rollout, planned: int, instances: Sequence[Instance]) -> list[Instance]:
    """Instances of an offer that have an old release and whose place others have taken: to be ended now."""
    old = [i for i in instances if rollout.is_old(i)]
    ready = sum(i.phase is Phase.READY for i in instances)
    serving = [i for i in old if i.phase is Phase.READY]
    booting = [i for i in old if i.phase is not Phase.READY]
    # What the plan lacks boots on, of a release that is seen to boot: of the new one there may be nothing to be had.
    if not rollout.back and any(i.release == rollout.before for i in serving):
        needed = [i for i in booting if i.release == rollout.before][: max(0, planned - ready)]
        booting = [i for i in booting if i not in needed]
    # What does not answer takes the place of nothing that does.
    answering = sum(i.phase is Phase.READY and i.silent_s is None for i in instances)
    serving.sort(key=lambda i: (i.launched_s, i.number))
    silent = [i for i in serving if i.silent_s is not None]
    heard = [i for i in serving if i.silent_s is None]
    return booting + silent[: max(0, ready - planned)] + heard[: max(0, answering - planned)]


def is_rolling_out(rollout: Rollout) -> bool:
    """Does a new release take the place of the one before, and not that one its own again?"""
    return rollout.stage is RolloutStage.ROLLING and rollout.comparison is not None


def serving_on(rollout: Rollout | None, fleet: Fleet) -> int:
    """Instances of the release that serves whose offers may not be bought any more: they go last."""
    if rollout is None:
        return 0
    return sum(i.phase is Phase.READY and i.release == rollout.release for i in fleet.leaving)


def stopped(rollout: Rollout, reason: str) -> Rollout:
    """The newest release is taken back: the one before serves again. Without one it stays, and `stuck` says so."""
    bad = rollout.newest
    good = rollout.release if rollout.candidate else rollout.before
    if not good and rollout.stage is RolloutStage.DONE:
        return rollout
    if not good or good in rollout.refused:
        stuck = f"{reason}, and there is no release to go back to"
        return rollout if rollout.stuck == stuck else replace(rollout, stuck=stuck)
    return Rollout(
        good,
        RolloutStage.ROLLING,
        before=rollout.before if rollout.candidate else "",
        refused=(*(r for r in rollout.refused if r != bad), bad)[-20:],
        reason=reason,
        back=True,
    )


def asked_again(rollout: Rollout, release: str) -> Rollout:
    """An operator asks for a release, though it was refused."""
    return replace(rollout, refused=tuple(r for r in rollout.refused if r != release), reason="")


def trouble(rollout: Rollout | None, wanted: str, *, paused: bool = False) -> str:
    """One line for people, where not all goes its way."""
    if rollout is None:
        return ""
    if paused and (rollout.stage is not RolloutStage.DONE or wanted not in (rollout.release, *rollout.refused)):
        return f"roll-out of release {wanted} waits: the service is paused"
    if rollout.stuck:
        return f"release {rollout.newest}: {rollout.stuck}"
    if rollout.waits:
        return f"roll-out of release {rollout.newest} waits: {rollout.waits}"
    if wanted in rollout.refused:
        return f"release {wanted} is not served, but {rollout.release}: {rollout.reason}"
    return ""


def view(rollout: Rollout | None, wanted: str, fleet: Fleet) -> RolloutView | None:
    """What people are shown; None where releases have no names."""
    if rollout is None:
        return None
    is_stopped = rollout.stage is RolloutStage.DONE and wanted in rollout.refused
    there = Counter(i.release for i in _all(fleet) if i.phase is not Phase.STOPPED)
    return RolloutView(
        wanted,
        rollout.release,
        "stopped" if is_stopped else rollout.stage,
        rollout.before,
        rollout.reason,
        dict(sorted(there.items())),
    )


def remembered(rollout: Rollout) -> dict[str, Any]:
    """What is kept of it for other versions of mark, which cannot read the rest: plain values only."""
    return {
        "release": rollout.release,
        "stage": str(rollout.stage),
        "before": rollout.before,
        "candidate": rollout.candidate,
        "refused": list(rollout.refused),
        "reason": rollout.reason,
        "back": rollout.back,
    }


def recalled(kept: Any) -> Rollout | None:
    """What another version remembered; None where that is nothing. A trial of its begins anew."""
    if not isinstance(kept, dict) or not kept.get("release"):
        return None
    back = bool(kept.get("back"))
    rolling = kept.get("stage") == RolloutStage.ROLLING
    return Rollout(
        str(kept["release"]),
        RolloutStage.ROLLING if rolling else RolloutStage.DONE,
        str(kept.get("before") or ""),
        refused=tuple(map(str, kept.get("refused") or ())),
        reason=str(kept.get("reason") or ""),
        comparison=Comparison() if rolling and not back else None,
        back=rolling and back,
    )


def not_ahead(rollout: Rollout, now_s: float) -> Rollout:
    """As another process kept it: by a clock that was ahead, it would wait for as much longer."""
    return replace(
        rollout,
        since_s=_not_after(rollout.since_s, now_s),
        moved_s=_not_after(rollout.moved_s, now_s),
        retry_s=ROLLOUT.not_ahead(rollout.retry_s, now_s),
        comparison=None if rollout.comparison is None else rollout.comparison.not_ahead(now_s),
    )


def _not_after(at_s: float, now_s: float) -> float:
    """Infinity says that it has not happened."""
    return at_s if at_s == math.inf else min(at_s, now_s)


def _all(fleet: Fleet) -> tuple[Instance, ...]:
    return (*fleet.instances, *fleet.leaving)


def _ready(fleet: Fleet, release: str) -> list[Instance]:
    return [i for i in _all(fleet) if i.phase is Phase.READY and i.release == release]


def _found(wanted: str, fleet: Fleet) -> Rollout:
    """Nothing is remembered: what most of the fleet has is what serves."""
    there = Counter(i.release for i in _all(fleet) if i.phase is Phase.READY and i.release)
    if not there:
        return Rollout(wanted, RolloutStage.ROLLING, comparison=Comparison())
    return Rollout(max(there, key=lambda release: (there[release], release == wanted, release)))


def _is_reverted(rollout: Rollout, wanted: str) -> bool:
    """Is what served before wanted again, while the newest release still takes its place?"""
    if rollout.stage is not RolloutStage.ROLLING or rollout.comparison is None:
        return False
    return wanted == rollout.before and wanted not in rollout.refused


def _may_begin(rollout: Rollout, fleet: Fleet, now_s: float) -> bool:
    """One after the other; but what gets nowhere does not hold up what mends it."""
    if rollout.stage is not RolloutStage.ROLLING or rollout.stuck or now_s - rollout.moved_s >= STALL_S:
        return True
    return not _ready(fleet, rollout.release)


def _begun(rollout: Rollout, wanted: str, fleet: Fleet, settings: RolloutSettings) -> Rollout:
    if _ready(fleet, rollout.release) and settings.canary_share > 0.0:
        return Rollout(
            rollout.release, RolloutStage.CANARY, rollout.before, wanted, refused=rollout.refused,
            comparison=Comparison(),
        )  # fmt: skip
    # On the way back it is the release that served which rolls out.
    under_way = is_rolling_out(rollout)
    before = rollout.before if under_way else rollout.release
    return Rollout(wanted, RolloutStage.ROLLING, before, refused=rollout.refused, comparison=Comparison())


def _with_boots(rollout: Rollout, fleet: Fleet, now_s: float) -> Rollout:
    """With how many instances of the newest release went before they served, though neither ended nor refused."""
    refused = {one.number for one in fleet.refused}
    new = {i.number: i for i in _all(fleet) if i.release == rollout.newest}
    late = {i.number for i in overdue(fleet, now_s)}
    gone = rollout.booting.keys() - new.keys() - refused
    lost = Counter(offer for number, offer in rollout.booting.items() if number in gone or number in late)
    booting = {
        n: i.offer
        for n, i in new.items()
        if i.phase is Phase.PENDING and not i.resumed and i.interruption_at_s is None and n not in late
    }
    served = {i.offer for i in new.values() if i.phase is Phase.READY}
    failed = {offer: n for offer, n in (Counter(rollout.failed) + lost).items() if offer not in served}
    if booting == rollout.booting and failed == rollout.failed:
        return rollout
    return replace(rollout, booting=booting, failed=failed)


def _watched(rollout: Rollout, fleet: Fleet, counts: CountsByRelease, now_s: float) -> Rollout:
    """With what serves, how far the old release is replaced, and how the new one compares with the other."""
    ready = dict(Counter(i.release for i in _all(fleet) if i.phase is Phase.READY))
    if ready != rollout.ready:
        rollout = replace(rollout, ready=ready)
    left = sum(rollout.is_old(i) and i.phase is not Phase.STOPPED for i in _all(fleet))
    if rollout.left is None or left < rollout.left:
        rollout = replace(rollout, left=left, moved_s=now_s)
    comparison, other = rollout.comparison, rollout.release if rollout.candidate else rollout.before
    if comparison is None or not other:
        return rollout
    types = {instance_of(i.offer) for i in _ready(fleet, rollout.newest)}
    if rollout.candidate and not types:
        comparison = comparison.paused()
    else:
        # What is rolled out takes the place of the other: of which type is left says nothing by then.
        beside = {instance_of(i.offer) for i in _ready(fleet, other)} if rollout.candidate else None
        mine, theirs = _by_type(counts, rollout.newest), _by_type(counts, other)
        comparison = comparison.looked(mine, theirs, types, now_s, beside)
    return rollout if comparison is rollout.comparison else replace(rollout, comparison=comparison)


def unbought(rollout: Rollout | None, release: str, text: str, now_s: float) -> Rollout | None:
    """A launch of a release came to nothing: where it is the newest it is not asked for again at once."""
    if rollout is None or rollout.stage is RolloutStage.DONE or release != rollout.newest:
        return rollout
    if now_s < rollout.retry_s:  # else it would be put off for ever by what is asked for more often
        return replace(rollout, waits=text)
    return replace(rollout, waits=text, retry_s=now_s + ROLLOUT.first_s)


def ended(rollout: Rollout | None, number: int) -> Rollout | None:
    """It is ended by us, for no fault of its own: that it is gone says nothing."""
    if rollout is None or number not in rollout.booting:
        return rollout
    return replace(rollout, booting={n: o for n, o in rollout.booting.items() if n != number})


def _worse(rollout: Rollout, fleet: Fleet, now_s: float, slo: Slo) -> str:
    """Why the newest release is to be taken back; "" where nothing speaks against it."""
    for offer, failed in rollout.failed.items():
        if failed >= FAILED_BOOTS:
            return f"{failed} instances of it in a row ended before they served, of {offer}"
    new, failed = _ready(fleet, rollout.newest), sum(rollout.failed.values())
    if not new and failed >= FAILED_BOOTS:  # where boots fail each is of another offer
        return f"{failed} instances of it in a row ended before they served, of {', '.join(sorted(rollout.failed))}"
    mute = bool(new) and all(i.silent_s is not None and now_s - i.silent_s >= MUTE_S for i in new)
    # Where others are silent, too, the controller's own network is the likelier cause; and one host may just die.
    others_answer = any(
        i.phase is Phase.READY and i.silent_s is None and i.release != rollout.newest for i in _all(fleet)
    )
    if mute and others_answer and (rollout.candidate or len(new) > 1):
        return f"none of its {len(new)} instances answers any more"
    return "" if rollout.comparison is None else rollout.comparison.worse(slo)


def _tried(rollout: Rollout, fleet: Fleet, counts: CountsByRelease, now_s: float, settings: RolloutSettings) -> Rollout:
    """The canary, which is over when as many as are wanted served for long enough, and requests have reached it."""
    if not any(map(rollout.on_trial, _ready(fleet, rollout.candidate))):
        return rollout if rollout.since_s == math.inf else replace(rollout, since_s=math.inf, minutes=0)
    if rollout.since_s == math.inf:
        rollout = replace(rollout, since_s=now_s)
    comparison = rollout.comparison or Comparison()
    left_s = settings.canary_s - (now_s - max(rollout.since_s, comparison.since_s))
    others = _ready(fleet, rollout.release)
    if others and left_s > 0.0:
        minutes = math.ceil(left_s / MINUTE_S)
        return rollout if minutes == rollout.minutes else replace(rollout, minutes=minutes)
    if others and comparison.is_unreached(_by_type(counts, rollout.release), _shares(rollout, fleet)):
        why = "no requests reach its instances, though the others get them"
        if left_s <= -LOST_S:
            return stopped(rollout, why)
        return replace(rollout, waits=why, minutes=0)
    return Rollout(
        rollout.candidate, RolloutStage.ROLLING, rollout.release, refused=rollout.refused, comparison=comparison,
        ready=rollout.ready, booting=rollout.booting, failed=rollout.failed,
    )  # fmt: skip


def _shares(rollout: Rollout, fleet: Fleet) -> dict[str, float]:
    """How many canaries there are of a type for each other instance of it, or of all where it is of none."""
    others = Counter(instance_of(i.offer) for i in _ready(fleet, rollout.release))
    mine = Counter(instance_of(i.offer) for i in _ready(fleet, rollout.candidate))
    return {name: n / (others[name] or others.total()) for name, n in mine.items()}


def _by_type(counts: CountsByRelease, release: str) -> dict[str, ReleaseCounts]:
    """A release's counts by instance type: what a request takes is no matter of the zone or the market."""
    found: dict[str, ReleaseCounts] = {}
    for offer, one in counts.get(release, {}).items():
        name = instance_of(offer)
        found[name] = found.get(name, ReleaseCounts()) + one
    return found


def _finished(rollout: Rollout, fleet: Fleet, planned: int | None) -> Rollout:
    """Done when nothing of an old release is left, drained ones included: they answer what they have accepted.

    And not before the new one has served, where any is to serve.
    """
    if any(map(rollout.is_old, _all(fleet))):
        return rollout
    if planned != 0 and not _ready(fleet, rollout.release):
        return rollout
    return Rollout(rollout.release, before=rollout.before, refused=rollout.refused, reason=rollout.reason)
