"""Roll-outs: a new release replaces the one that serves, and is taken back if it does worse.

Instances boot from a release: the service's files, packages, image and settings. A *canary* comes first: a few
instances of the new release beside all planned ones. If they do as well as the others for long enough, the other
instances are replaced by *surge*: a share of the plan is launched on top, and instances of the old release are drained
as new ones become ready, so that there are never fewer ready instances than planned. If the new release does worse or
does not boot, it is stopped: the release before replaces it in the same way, and the stopped one is not launched again
until an operator requests it.

A release does worse if it has, by more than chance explains (`mark.control.comparison`), more errors, more misses than
the SLO allows, or more requests left to functions than the other release in the same time; or if a request takes more
worker time, which needs more instances.
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
from mark.control.views import RolloutSchema
from mark.domain.backoff import ROLLOUT
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.offer import instance_of
from mark.domain.service import RolloutSettings
from mark.domain.slo import Slo
from mark.domain.time import MINUTE_S

FAILED_BOOTS = 3
# A release is taken back after all its instances have been silent for this time. It is shorter than `health.SILENT_S`,
# because replacements of silent instances would hide the fault.
MUTE_S = 20.0
# If no requests reach the canaries while the other instances get some, the trial is prolonged by this time at most, and
# then the release is taken back.
LOST_S = 600.0
# After this time without a replaced instance, another release may begin. Slow boots take less.
STALL_S = 900.0

CountsByRelease = Mapping[str, Mapping[str, ReleaseCounts]]  # release -> offer -> counts


class RolloutStage(StrEnum):
    """The stage of a roll-out."""

    DONE = "done"  # all instances have one release
    CANARY = "canary"
    ROLLING = "rolling"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The state of a roll-out or a roll-back."""

    release: str  # the release that planned instances are launched from
    stage: RolloutStage = RolloutStage.DONE
    before: str = ""  # the release that a roll-back returns to; "": unknown
    candidate: str = ""  # the release on trial beside `release`, in the stage canary
    since_s: float = math.inf  # when the canaries became ready; infinity before that
    minutes: int = 0  # left of the canaries' trial
    refused: tuple[str, ...] = ()  # releases that were stopped or taken back
    reason: str = ""  # why the last of `refused` was stopped
    comparison: Comparison | None = None  # of the newest release with the one before; None: it is not judged
    booting: dict[int, str] = field(default_factory=dict)  # number -> offer of booting instances of the newest release
    failed: dict[str, int] = field(default_factory=dict)  # offer -> instances that ended in a row before they served
    back: bool = False  # whether it is a roll-back
    ready: dict[str, int] = field(default_factory=dict)  # release -> serving instances
    left: int | None = None  # the fewest instances of an old release so far
    moved_s: float = math.inf  # when `left` last fell
    waits: str | Limit = ""  # why the roll-out waits
    stuck: str = ""  # why the newest release is not taken back although it should be
    retry_s: float = -math.inf  # when to retry a refused launch

    @property
    def newest(self) -> str:
        """The release under evaluation."""
        return self.candidate or self.release

    def is_old(self, instance: Instance) -> bool:
        """Return whether the instance is to be replaced."""
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
    """Return the roll-out of the release `wanted` after a look at the fleet; None for releases without names.

    `planned` is the number of planned instances, None if it is not known.
    """
    if not wanted:
        return None
    if rollout is None:
        rollout = _found(wanted, fleet)
    if rollout.candidate and wanted == rollout.release:
        # The serving release is wanted again, so the trial ends without a verdict.
        rollout = Rollout(wanted, RolloutStage.ROLLING, rollout.before, refused=rollout.refused, back=True)
    elif _is_reverted(rollout, wanted):
        rollout = Rollout(wanted, RolloutStage.ROLLING, rollout.release, refused=rollout.refused, back=True)
    elif wanted not in (rollout.newest, *rollout.refused) and _may_begin(rollout, fleet, now_s):
        rollout = _begun(rollout, wanted, fleet, settings)
    if rollout.stage is RolloutStage.DONE:
        # Another controller may have launched an instance of another release; replace it without a comparison.
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
    """Return the number of canaries to launch."""
    return max(1, math.floor(settings.canary_share * fleet.ready().total()))


def surge(rollout: Rollout | None, planned: int, instances: Sequence[Instance], settings: RolloutSettings) -> int:
    """Return how many instances of an offer beyond `planned` a roll-out may have; `instances` count for the offer.

    A roll-back may double the planned instances, so that it removes the bad release quickly.
    """
    if rollout is None or rollout.stage is not RolloutStage.ROLLING:
        return 0
    old = sum(rollout.is_old(i) for i in instances)
    return min(old, planned if rollout.back else math.ceil(settings.surge_share * planned))


def replaceable(rollout: Rollout, planned: int, instances: Sequence[Instance]) -> list[Instance]:
    """Return the instances of an offer that have an old release and can end now, because others replace them."""
    old = [i for i in instances if rollout.is_old(i)]
    ready = sum(i.phase is Phase.READY for i in instances)
    serving = [i for i in old if i.phase is Phase.READY]
    booting = [i for i in old if i.phase is not Phase.READY]
    # Let booting instances of the previous release finish if the plan needs them, because launches of the new one may
    # fail.
    if not rollout.back and any(i.release == rollout.before for i in serving):
        needed = [i for i in booting if i.release == rollout.before][: max(0, planned - ready)]
        booting = [i for i in booting if i not in needed]
    # A silent instance must not replace one that answers.
    answering = sum(i.phase is Phase.READY and i.silent_s is None for i in instances)
    serving.sort(key=lambda i: (i.launched_s, i.number))
    silent = [i for i in serving if i.silent_s is not None]
    heard = [i for i in serving if i.silent_s is None]
    return booting + silent[: max(0, ready - planned)] + heard[: max(0, answering - planned)]


def is_rolling_out(rollout: Rollout) -> bool:
    """Return whether a new release is replacing another one; false for a roll-back."""
    return rollout.stage is RolloutStage.ROLLING and rollout.comparison is not None


def serving_on(rollout: Rollout | None, fleet: Fleet) -> int:
    """Return how many leaving instances of `rollout.release` are ready and so serve on."""
    if rollout is None:
        return 0
    return sum(i.phase is Phase.READY and i.release == rollout.release for i in fleet.leaving)


def stopped(rollout: Rollout, reason: str) -> Rollout:
    """Take the newest release back in favour of the one before. If there is none, it stays, and `stuck` says so."""
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
    """Allow a refused release again, because an operator requests it."""
    return replace(rollout, refused=tuple(r for r in rollout.refused if r != release), reason="")


def trouble(rollout: Rollout | None, wanted: str, *, paused: bool = False) -> str:
    """Return one line about a roll-out that waits, is stuck or was taken back; else ""."""
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


def view(rollout: Rollout | None, wanted: str, fleet: Fleet) -> RolloutSchema | None:
    """Return the view of the roll-out; None for releases without names."""
    if rollout is None:
        return None
    is_stopped = rollout.stage is RolloutStage.DONE and wanted in rollout.refused
    there = Counter(i.release for i in _all(fleet) if i.phase is not Phase.STOPPED)
    return RolloutSchema(
        wanted,
        rollout.release,
        "stopped" if is_stopped else rollout.stage.value,
        rollout.before,
        rollout.reason,
        dict(sorted(there.items())),
    )


def remembered(rollout: Rollout) -> dict[str, Any]:
    """Return the part that other versions of mark can read, as plain values."""
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
    """Return the roll-out that another version remembered, or None. A trial starts over."""
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
    """Return the roll-out of another process without times in the future, which would prolong its waits.

    The other process's clock may have been ahead.
    """
    return replace(
        rollout,
        since_s=_not_after(rollout.since_s, now_s),
        moved_s=_not_after(rollout.moved_s, now_s),
        retry_s=ROLLOUT.not_ahead(rollout.retry_s, now_s),
        comparison=None if rollout.comparison is None else rollout.comparison.not_ahead(now_s),
    )


def _not_after(at_s: float, now_s: float) -> float:
    """Return the time, at most `now_s`; infinity, for something that has not happened, stays."""
    return at_s if at_s == math.inf else min(at_s, now_s)


def _all(fleet: Fleet) -> tuple[Instance, ...]:
    return (*fleet.instances, *fleet.leaving)


def _ready(fleet: Fleet, release: str) -> list[Instance]:
    return [i for i in _all(fleet) if i.phase is Phase.READY and i.release == release]


def _found(wanted: str, fleet: Fleet) -> Rollout:
    """Return the roll-out without stored state: assume that the release of most ready instances serves."""
    there = Counter(i.release for i in _all(fleet) if i.phase is Phase.READY and i.release)
    if not there:
        return Rollout(wanted, RolloutStage.ROLLING, comparison=Comparison())
    return Rollout(max(there, key=lambda release: (there[release], release == wanted, release)))


def _is_reverted(rollout: Rollout, wanted: str) -> bool:
    """Return whether the release before is wanted again while the newest one still replaces it."""
    if rollout.stage is not RolloutStage.ROLLING or rollout.comparison is None:
        return False
    return wanted == rollout.before and wanted not in rollout.refused


def _may_begin(rollout: Rollout, fleet: Fleet, now_s: float) -> bool:
    """Return whether another roll-out may begin. One that replaces instances goes first, unless it is stuck."""
    if rollout.stage is not RolloutStage.ROLLING or rollout.stuck or now_s - rollout.moved_s >= STALL_S:
        return True
    return not _ready(fleet, rollout.release)


def _begun(rollout: Rollout, wanted: str, fleet: Fleet, settings: RolloutSettings) -> Rollout:
    """Return the new roll-out of `wanted`, with canaries if a release serves and `canary_share` is above zero."""
    if _ready(fleet, rollout.release) and settings.canary_share > 0.0:
        return Rollout(
            rollout.release, RolloutStage.CANARY, rollout.before, wanted, refused=rollout.refused,
            comparison=Comparison(),
        )  # fmt: skip
    # A release that still rolls out has not proved itself, so a roll-back returns to the one before it. During a
    # roll-back, `release` has proved itself.
    under_way = is_rolling_out(rollout)
    before = rollout.before if under_way else rollout.release
    return Rollout(wanted, RolloutStage.ROLLING, before, refused=rollout.refused, comparison=Comparison())


def _with_boots(rollout: Rollout, fleet: Fleet, now_s: float) -> Rollout:
    """Return the roll-out with the failed boots of the newest release: instances that ended or timed out in a boot.

    Instances that the controller ended or the cloud refused do not count.
    """
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
    """Return the roll-out with the serving instances by release, its progress, and the comparison of the releases."""
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
        # While the other release is being replaced, it loses its types, so its totals tell which types it had.
        beside = {instance_of(i.offer) for i in _ready(fleet, other)} if rollout.candidate else None
        mine, theirs = _by_type(counts, rollout.newest), _by_type(counts, other)
        comparison = comparison.looked(mine, theirs, types, now_s, beside)
    return rollout if comparison is rollout.comparison else replace(rollout, comparison=comparison)


def unbought(rollout: Rollout | None, release: str, text: str, now_s: float) -> Rollout | None:
    """Note a failed launch of a release. If it is the newest release, pause before the next launch."""
    if rollout is None or rollout.stage is RolloutStage.DONE or release != rollout.newest:
        return rollout
    if now_s < rollout.retry_s:  # do not prolong the pause: frequent refusals would make it endless
        return replace(rollout, waits=text)
    return replace(rollout, waits=text, retry_s=now_s + ROLLOUT.first_s)


def ended(rollout: Rollout | None, number: int) -> Rollout | None:
    """Note that the controller ends an instance, so that its end is not a failed boot."""
    if rollout is None or number not in rollout.booting:
        return rollout
    return replace(rollout, booting={n: o for n, o in rollout.booting.items() if n != number})


def _worse(rollout: Rollout, fleet: Fleet, now_s: float, slo: Slo) -> str:
    """Return the reason to take the newest release back, or ""."""
    for offer, failed in rollout.failed.items():
        if failed >= FAILED_BOOTS:
            return f"{failed} instances of it in a row ended before they served, of {offer}"
    new, failed = _ready(fleet, rollout.newest), sum(rollout.failed.values())
    if not new and failed >= FAILED_BOOTS:  # after a failed boot the next one may be of another offer
        return f"{failed} instances of it in a row ended before they served, of {', '.join(sorted(rollout.failed))}"
    mute = bool(new) and all(i.silent_s is not None and now_s - i.silent_s >= MUTE_S for i in new)
    # If others are silent too, the controller's own network is the likelier cause; and a single host may just fail.
    others_answer = any(
        i.phase is Phase.READY and i.silent_s is None and i.release != rollout.newest for i in _all(fleet)
    )
    if mute and others_answer and (rollout.candidate or len(new) > 1):
        return f"none of its {len(new)} instances answers any more"
    return "" if rollout.comparison is None else rollout.comparison.worse(slo)


def _tried(rollout: Rollout, fleet: Fleet, counts: CountsByRelease, now_s: float, settings: RolloutSettings) -> Rollout:
    """Return the roll-out after a look at the canaries. It replaces instances once they served requests long enough."""
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
    """Return canaries per instance of the other release, by type; of any type, if the other release lacks the type."""
    others = Counter(instance_of(i.offer) for i in _ready(fleet, rollout.release))
    mine = Counter(instance_of(i.offer) for i in _ready(fleet, rollout.candidate))
    return {name: n / (others[name] or others.total()) for name, n in mine.items()}


def _by_type(counts: CountsByRelease, release: str) -> dict[str, ReleaseCounts]:
    """Return a release's counts by instance type, because zone and market do not change the cost of a request."""
    found: dict[str, ReleaseCounts] = {}
    for offer, one in counts.get(release, {}).items():
        name = instance_of(offer)
        found[name] = found.get(name, ReleaseCounts()) + one
    return found


def _finished(rollout: Rollout, fleet: Fleet, planned: int | None) -> Rollout:
    """Return the finished roll-out if no instance of an old release is left and, if any is planned, a new one serves.

    Draining instances count as left, because they still answer the requests that they have accepted.
    """
    if any(map(rollout.is_old, _all(fleet))):
        return rollout
    if planned != 0 and not _ready(fleet, rollout.release):
        return rollout
    return Rollout(rollout.release, before=rollout.before, refused=rollout.refused, reason=rollout.reason)
