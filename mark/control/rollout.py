"""Roll-outs: a new release takes the place of the one that serves, and is taken back where it does worse.

A release is what instances boot from: the service's files, packages, image and settings. A *canary* comes first: a few
instances of the new release beside all that the plan wants. Where they do as well as the others for long enough, the
rest follows by *surge*: a share of the plan more is launched, and what has the old release is drained as others are
ready, so that never less is ready than the plan wants. What does worse, or does not boot, is stopped: the release
before takes its place in the same way, and it is not launched again until somebody asks for it.

Worse is: more errors, or more misses than the SLO allows, than the other release has had in the same time, by more than
chance explains (Chernoff's bound on the binomial tail; Hoeffding 1963, theorem 1); or more worker time a request, which
is what instances are bought for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mark.control.health import overdue
from mark.control.ports import ReleaseCounts
from mark.control.views import RolloutView
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.service import RolloutSettings
from mark.domain.slo import Slo

FAILED_BOOTS = 3
RETRY_S = 60.0
# Of all that have a release: sooner than a single instance is given up and replaced, which would hide it.
MUTE_S = 20.0
# As unlikely must be what was seen if both releases were alike: they are compared every few seconds, for many minutes.
_CHANCE = 1e-6
_FEWEST = 5  # errors or misses
_ERROR_SHARE = 0.001  # fewer are no reason
_DEARER, _DEARER_REQUESTS = 1.3, 1000

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
    known of that. `refused` are releases that were stopped or taken back, the last one for `reason`. `counts` are those
    of both releases when their comparison began, `since_s` is when the canaries were ready, infinity before that.
    `booting` are numbers of instances of the new release that boot, of which `failed` never served. `waits` says what
    keeps it from going on for now, `stuck` why it is not taken back though it should be. What was refused last is asked
    for again from `retry_s` on.
    """

    release: str
    stage: RolloutStage = RolloutStage.DONE
    before: str = ""
    candidate: str = ""
    since_s: float = math.inf
    refused: tuple[str, ...] = ()
    reason: str = ""
    counts: dict[str, dict[str, ReleaseCounts]] = field(default_factory=dict)
    booting: tuple[int, ...] = ()
    failed: int = 0
    back: bool = False  # is it the release before that takes its place again?
    waits: str = ""
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
) -> Rollout | None:
    """The roll-out after a look at the fleet, where `wanted` is to serve; None where releases have no names."""
    if not wanted:
        return None
    if rollout is None:
        # Nothing is remembered: what has another release is replaced, and there is nothing to compare with.
        return _finished(Rollout(wanted, RolloutStage.ROLLING), fleet)
    if rollout.candidate and wanted == rollout.release:
        # What serves is wanted again: the trial is over, without a verdict.
        rollout = Rollout(wanted, RolloutStage.ROLLING, rollout.before, refused=rollout.refused, back=True)
    elif wanted not in (rollout.newest, *rollout.refused) and _may_begin(rollout, fleet):
        rollout = _begun(rollout, wanted, fleet, counts, settings)
    rollout = _with_boots(rollout, fleet, now_s)
    if rollout.stage is RolloutStage.DONE:
        # Something may have been launched by a controller of another mind.
        there = any(rollout.is_old(i) for i in fleet.instances)
        return _finished(replace(rollout, stage=RolloutStage.ROLLING), fleet) if there else rollout
    if not rollout.back and (reason := _worse(rollout, fleet, counts, now_s, slo)):
        rollout = stopped(rollout, reason)
    if rollout.stage is RolloutStage.CANARY:
        return _tried(rollout, fleet, now_s, settings)
    return _finished(rollout, fleet)


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
    return booting + sorted(serving, key=lambda i: (i.launched_s, i.number))[: max(0, ready - planned)]


def stopped(rollout: Rollout, reason: str) -> Rollout:
    """The newest release is taken back: the one before serves again. Without one it stays, and `stuck` says so."""
    bad = rollout.newest
    good = rollout.release if rollout.candidate else rollout.before
    if not good and rollout.stage is RolloutStage.DONE:
        return rollout
    if not good or good in rollout.refused:
        return replace(rollout, stuck=f"{reason}, and there is no release to go back to")
    return Rollout(
        good,
        RolloutStage.ROLLING,
        refused=(*(r for r in rollout.refused if r != bad), bad)[-20:],
        reason=reason,
        back=True,
    )


def asked_again(rollout: Rollout, release: str) -> Rollout:
    """Somebody asks for a release, though it was refused."""
    return replace(rollout, refused=tuple(r for r in rollout.refused if r != release), reason="")


def trouble(rollout: Rollout | None, wanted: str) -> str:
    """One line for people, where not all goes its way."""
    if rollout is None:
        return ""
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
    there = Counter(i.release for i in fleet.instances if i.phase is not Phase.STOPPED)
    return RolloutView(
        wanted,
        rollout.release,
        "stopped" if is_stopped else rollout.stage,
        rollout.before,
        rollout.reason,
        dict(sorted(there.items())),
    )


def _may_begin(rollout: Rollout, fleet: Fleet) -> bool:
    """One after the other; but what gets nowhere does not hold up what mends it."""
    serves = any(i.phase is Phase.READY and i.release == rollout.release for i in fleet.instances)
    return rollout.stage is not RolloutStage.ROLLING or bool(rollout.stuck) or not serves


def _begun(rollout: Rollout, wanted: str, fleet: Fleet, counts: CountsByRelease, settings: RolloutSettings) -> Rollout:
    kept = {release: dict(by_offer) for release, by_offer in counts.items()}
    serving = any(i.phase is Phase.READY and i.release == rollout.release for i in fleet.instances)
    if serving and settings.canary_share > 0.0:
        return replace(
            rollout, stage=RolloutStage.CANARY, candidate=wanted, since_s=math.inf, counts=kept, booting=(), failed=0,
            back=False, waits="", stuck="", retry_s=-math.inf,
        )  # fmt: skip
    before = rollout.before if rollout.stage is RolloutStage.ROLLING else rollout.release
    return Rollout(wanted, RolloutStage.ROLLING, before, refused=rollout.refused, counts=kept)


def _with_boots(rollout: Rollout, fleet: Fleet, now_s: float) -> Rollout:
    """With how many instances of the newest release went before they served, though nobody ended them."""
    if rollout.stage is RolloutStage.DONE:
        return replace(rollout, booting=(), failed=0) if rollout.booting or rollout.failed else rollout
    new = {i.number: i for i in (*fleet.instances, *fleet.leaving) if i.release == rollout.newest}
    late = {i.number for i in overdue(fleet, now_s)}
    lost = sum(number not in new or number in late for number in rollout.booting)
    booting = tuple(
        n
        for n, i in new.items()
        if i.phase is Phase.PENDING and not i.resumed and i.interruption_at_s is None and n not in late
    )
    served = any(i.phase is Phase.READY for i in new.values())
    failed = 0 if served else rollout.failed + lost
    if booting == rollout.booting and failed == rollout.failed:
        return rollout
    return replace(rollout, booting=booting, failed=failed)


def unbought(rollout: Rollout | None, text: str, now_s: float) -> Rollout | None:
    """A launch came to nothing: it is not asked for again at once."""
    if rollout is None or rollout.stage is RolloutStage.DONE:
        return rollout
    return replace(rollout, waits=text, retry_s=now_s + RETRY_S)


def ended(rollout: Rollout | None, number: int) -> Rollout | None:
    """It is ended by us, for no fault of its own: that it is gone says nothing."""
    if rollout is None or number not in rollout.booting:
        return rollout
    return replace(rollout, booting=tuple(n for n in rollout.booting if n != number))


def _worse(rollout: Rollout, fleet: Fleet, counts: CountsByRelease, now_s: float, slo: Slo) -> str:
    """Why the newest release is to be taken back; "" where nothing speaks against it."""
    if rollout.failed >= FAILED_BOOTS:
        return f"{rollout.failed} instances of it in a row ended before they served"
    ready = [i for i in fleet.instances if i.phase is Phase.READY]
    new = [i for i in ready if i.release == rollout.newest]
    mute = bool(new) and all(i.silent_s is not None and now_s - i.silent_s >= MUTE_S for i in new)
    # Where others are silent, too, the controller's own network is the likelier cause; and one host may just die.
    others_answer = any(i.silent_s is None for i in ready if i.release != rollout.newest)
    if mute and others_answer and (rollout.candidate or len(new) > 1):
        return f"none of its {len(new)} instances answers any more"
    other = rollout.release if rollout.candidate else rollout.before
    if not other:
        return ""
    mine, theirs = (_since(counts.get(r, {}), rollout.counts.get(r, {})) for r in (rollout.newest, other))
    return worse(mine, theirs, slo)


def worse(new: Mapping[str, ReleaseCounts], old: Mapping[str, ReleaseCounts], slo: Slo) -> str:
    """Why a release with the counts `new` (by offer) does worse than one with `old` in the same time; "" if not."""
    mine, theirs = _sum(new.values()), _sum(old.values())
    if mine.requests == 0:
        return ""
    usual = (theirs.errors + 1) / (theirs.requests + 2) if theirs.requests else 0.0
    if _more(mine.errors, mine.requests, max(_ERROR_SHARE, usual)):
        return (
            f"{mine.errors} of its {mine.requests} answers are errors, "
            f"{theirs.errors} of {theirs.requests} of the release before"
        )
    usual = (theirs.misses + 1) / (theirs.requests + 2) if theirs.requests else 0.0
    if _more(mine.misses, mine.requests, max(1.0 - slo.attainment, usual)):
        return (
            f"{mine.misses} of its {mine.requests} requests were late or refused, "
            f"{theirs.misses} of {theirs.requests} of the release before"
        )
    # Types differ in what they take for a request: like is compared with like.
    both = sorted(new.keys() & old.keys())
    mine, theirs = _sum(new[offer] for offer in both), _sum(old[offer] for offer in both)
    if min(mine.requests, theirs.requests) >= _DEARER_REQUESTS and theirs.busy_s > 0.0:
        ratio = (mine.busy_s / mine.requests) / (theirs.busy_s / theirs.requests)
        if ratio > _DEARER:
            return f"a request takes {ratio:.1f} times the worker time, and money, that it took with the release before"
    return ""


def _more(count: int, of: int, usual: float) -> bool:
    """Is it more than chance explains, where each of `of` counts with the chance `usual`?"""
    share = count / of
    if count < _FEWEST or share <= usual:
        return False
    # P(X >= count) <= exp(-n KL(share || usual))
    divergence = share * math.log(share / usual)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - usual))
    return of * divergence > -math.log(_CHANCE)


def _tried(rollout: Rollout, fleet: Fleet, now_s: float, settings: RolloutSettings) -> Rollout:
    """The canary, which is over when as many as are wanted served for long enough."""
    ready = sum(rollout.on_trial(i) and i.phase is Phase.READY for i in fleet.instances)
    others = any(i.phase is Phase.READY and i.release == rollout.release for i in fleet.instances)
    if ready < 1:
        return rollout if rollout.since_s == math.inf else replace(rollout, since_s=math.inf)
    if rollout.since_s == math.inf:
        rollout = replace(rollout, since_s=now_s)
    if others and now_s - rollout.since_s < settings.canary_s:
        return rollout
    return replace(
        rollout, release=rollout.candidate, before=rollout.release, candidate="", stage=RolloutStage.ROLLING, waits=""
    )


def _finished(rollout: Rollout, fleet: Fleet) -> Rollout:
    """Done when nothing of an old release is left, drained ones included: they answer what they have accepted."""
    if any(rollout.is_old(i) for i in fleet.instances):
        return rollout
    return replace(
        rollout, stage=RolloutStage.DONE, since_s=math.inf, counts={}, booting=(), failed=0, back=False, waits="",
        stuck="", retry_s=-math.inf,
    )  # fmt: skip


def _since(now: Mapping[str, ReleaseCounts], before: Mapping[str, ReleaseCounts]) -> dict[str, ReleaseCounts]:
    """What was counted since; counts that fell began anew."""
    found = {}
    for offer, one in now.items():
        then = before.get(offer, ReleaseCounts())
        grown = one - then
        fell = min(grown.requests, grown.misses, grown.errors) < 0 or grown.busy_s < 0.0
        found[offer] = one if fell else grown
    return found


def _sum(counts: Iterable[ReleaseCounts]) -> ReleaseCounts:
    return sum(counts, ReleaseCounts())
