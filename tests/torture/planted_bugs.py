"""Bugs as they might be written: parts of a controller process that do almost the right thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mark_torture.ports import ProcessCloud, ProcessStore, ProcessTelemetry
from mark_torture.process import ProcessParts, SeldomPricing
from mark_torture.site import SteadyPlanner

from mark.control.controller import Controller
from mark.control.lease import FencedLease
from mark.control.ports import Cloud, Launched, Lease, ReleaseCounts, Result, Store
from mark.control.views import Limits
from mark.domain.command import Command, Terminate
from mark.domain.fleet import Fleet, Instance, Notice, Phase
from mark.domain.plan import Plan
from mark.domain.service import ResolvedService
from mark.planning.planner import Planner, PlanningContext


class CloudWith:
    """The cloud, except for the methods that a subclass overrides."""

    def __init__(self, cloud: ProcessCloud) -> None:
        self.real = cloud

    def fleet(self) -> Fleet:
        return self.real.fleet()

    def launch(self, offer: str, count: int, token: str, **more: Any) -> Launched:
        return self.real.launch(offer, count, token, **more)

    def drain(self, number: int) -> None:
        self.real.drain(number)

    def terminate(self, number: int) -> None:
        self.real.terminate(number)

    def stop(self, number: int) -> None:
        self.real.stop(number)

    def resume(self, number: int) -> None:
        self.real.resume(number)

    def notices(self) -> tuple[Notice, ...]:
        return self.real.notices()


class FleetWith(CloudWith):
    """Shows instances as `seen` makes them, and those not for which it says None."""

    def seen(self, instance: Instance) -> Instance | None:
        raise NotImplementedError

    def fleet(self) -> Fleet:
        fleet = self.real.fleet()
        shown = tuple(i for one in fleet.instances if (i := self.seen(one)) is not None)
        return replace(fleet, instances=shown)


class NewTokens(CloudWith):
    """A launch is repeated under a new token."""

    calls = 0

    def launch(self, offer: str, count: int, token: str, **more: Any) -> Launched:
        NewTokens.calls += 1
        return self.real.launch(offer, count, f"{token}/{NewTokens.calls}", **more)


class OneMore(CloudWith):
    """Launches one too many."""

    def launch(self, offer: str, count: int, token: str, **more: Any) -> Launched:
        launched = self.real.launch(offer, count + 1, token, **more)
        return replace(launched, numbers=launched.numbers[:count])


class ForgetsToTerminate(CloudWith):
    def terminate(self, number: int) -> None:
        return


class ForgetsToDrain(CloudWith):
    def drain(self, number: int) -> None:
        return


class EndsWhatServes(CloudWith):
    """Terminates instances that should be drained."""

    def drain(self, number: int) -> None:
        self.real.terminate(number)


class NeverResumes(CloudWith):
    def resume(self, number: int) -> None:
        return


class LeavesStandbysServing(CloudWith):
    """A standby is not sent back."""

    def drain(self, number: int) -> None:
        if not any(i.number == number and i.standby for i in self.real.fleet().instances):
            self.real.drain(number)


class StopsWhatItCan(CloudWith):
    """Stops every instance that it can for the warm pool."""

    def terminate(self, number: int) -> None:
        there = {i.number: i for i in self.real.fleet().instances}
        if number in there and "/on-demand" in there[number].offer and there[number].phase is Phase.DRAINING:
            self.real.stop(number)
        elif number not in there or there[number].phase is not Phase.STOPPED:
            self.real.terminate(number)


class HidesStopped(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return None if instance.phase is Phase.STOPPED else instance


class HidesPending(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return None if instance.phase is Phase.PENDING else instance


class HidesDraining(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return None if instance.phase is Phase.DRAINING else instance


class HidesInterruptions(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return replace(instance, interruption_at_s=None)

    def notices(self) -> tuple[Notice, ...]:
        self.real.notices()
        return ()


class HidesScheduledEnds(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return replace(instance, event=None)


class HidesSilence(FleetWith):
    def seen(self, instance: Instance) -> Instance | None:
        return replace(instance, silent_s=None)


class WaitsForever(FleetWith):
    """No boot is ever late."""

    def seen(self, instance: Instance) -> Instance | None:
        return replace(instance, ready_s=None) if instance.phase is Phase.PENDING else instance


class SeesGhosts(FleetWith):
    """Shows every instance that ever existed."""

    def fleet(self) -> Fleet:
        fleet = self.real.fleet()
        known: dict[int, Instance] = self.__dict__.setdefault("known", {})
        known.update({i.number: i for i in fleet.instances})
        return replace(fleet, instances=tuple(known[number] for number in sorted(known)))


class TelemetryWith(ProcessTelemetry):
    """The telemetry, except for the methods that a subclass overrides."""

    def __init__(self, real: ProcessTelemetry) -> None:
        self.__dict__.update(real.__dict__)


class BlindToReleases(TelemetryWith):
    """All releases do well."""

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        return {
            release: {offer: ReleaseCounts(counts.requests) for offer, counts in offers.items()}
            for release, offers in super().releases().items()
        }


class BlamesReleases(TelemetryWith):
    """One in five answers of the newest release is an error."""

    def releases(self) -> Mapping[str, Mapping[str, ReleaseCounts]]:
        return {
            release: {
                offer: replace(counts, errors=counts.requests // 5) if release == self._truth.release else counts
                for offer, counts in offers.items()
            }
            for release, offers in super().releases().items()
        }


class StoreWith:
    """The store, except for the methods that a subclass overrides."""

    def __init__(self, store: ProcessStore) -> None:
        self.real = store

    def get(self, key: str) -> Any | None:
        return self.real.get(key)

    def put(self, key: str, value: Any) -> None:
        self.real.put(key, value)

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        self.real.record(at_s, command, outcome, result, started)

    def recorded(self, before_id: int | None, count: int) -> Any:
        return self.real.recorded(before_id, count)


class ForgetsTheBill(StoreWith):
    def put(self, key: str, value: Any) -> None:
        if key != "ledger":
            self.real.put(key, value)


class ForgetsEnds(StoreWith):
    """Ends are not in the journal."""

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        if not isinstance(command, Terminate):
            self.real.record(at_s, command, outcome, result, started)


class KeepsIntents(StoreWith):
    """Launches are never crossed out."""

    def put(self, key: str, value: Any) -> None:
        if key == "intents":
            kept = {intent.token: intent for intent in (*(self.real.get(key) or ()), *value)}
            value = tuple(kept.values())
        self.real.put(key, value)


class LeaseOf:
    """The lease, as a bug asks for it."""

    def __init__(self, lease: FencedLease) -> None:
        self.real = lease

    def hold(self, now_s: float) -> int | None:
        return self.real.hold(now_s)

    def lasts(self) -> bool:
        return self.real.lasts()

    def release(self) -> None:
        self.real.release()


class RenewedSeldom(LeaseOf):
    """Asked for again every five minutes only."""

    asked_s = -math.inf

    def hold(self, now_s: float) -> int | None:
        if now_s - self.asked_s < 300.0:
            return self.real.fence if self.real.lasts() else None
        self.asked_s = now_s
        return self.real.hold(now_s)


class LeadsOnceAndForAll(LeaseOf):
    """After it led once, believes that it always leads."""

    led: int | None = None

    def hold(self, now_s: float) -> int | None:
        self.led = self.real.hold(now_s) if self.led is None else self.led
        return self.led

    def lasts(self) -> bool:
        return self.led is not None


class NoBackoff(SeldomPricing):
    """Nothing that was refused is remembered."""

    def fast(self) -> None:
        self.state = replace(self.state, beliefs={}, boots={})
        super().fast()
        super().tick()


class NeverForgives(SeldomPricing):
    """Never asks again for an offer that was refused once."""

    def keep(self) -> None:
        for offer, known in self.state.beliefs.items():
            if known.refusals and known.until_s < math.inf:
                forever = replace(known, until_s=math.inf)
                self.state = replace(self.state, beliefs={**self.state.beliefs, offer: forever})
        super().keep()


class NoUpkeep(SeldomPricing):
    """Does nothing between ticks."""

    def fast(self) -> None:
        return


class LosesWhatLeaves(SeldomPricing):
    """Omits instances that will leave from the fleet that it decides by."""

    def _fleet(self, now_s: float) -> Fleet:
        return replace(super()._fleet(now_s), leaving=())


class GivesUp(SeldomPricing):
    """After one error of the cloud it plans no more."""

    failed = False

    def tick(self) -> None:
        self.failed = self.failed or bool(self.failures)
        if not self.failed:
            super().tick()


class Remembers(SteadyPlanner):
    """A memory that grows with every plan."""

    def begin(self) -> Any:
        return (1, ())

    def plan(self, context: PlanningContext, memory: Any) -> tuple[Plan, Any]:
        plan, last = super().plan(context, memory[0])
        return plan, (last, (*memory[1], (context.now_s, tuple(plan.counts.items()))))


class TrustsEveryNumber(SteadyPlanner):
    """A rate is a number, is it not?"""

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        return super().plan(context, math.ceil((context.last_minute_rps or 1.0) / 10.0))


class Planted(ProcessParts):
    """A process with one of these bugs. With `unfenced`, its store accepts writes under an older term."""

    def __init__(
        self,
        *,
        cloud: Callable[[ProcessCloud], Cloud] | None = None,
        store: Callable[[ProcessStore], Store] | None = None,
        lease: Callable[[FencedLease], Lease] | None = None,
        telemetry: Callable[[ProcessTelemetry], ProcessTelemetry] | None = None,
        planner: Callable[[], Planner] | None = None,
        controller: type[Controller] | None = None,
        limits: Limits | None = None,
        leads: bool = False,
        unfenced: bool = False,
    ) -> None:
        self._cloud, self._store, self._lease, self._planner, self._telemetry = cloud, store, lease, planner, telemetry
        self._controller, self._limits, self._leads, self._unfenced = controller, limits, leads, unfenced

    def cloud(self, cloud: ProcessCloud) -> Cloud:
        return cloud if self._cloud is None else self._cloud(cloud)

    def store(self, store: ProcessStore) -> Store:
        store.fenced = not self._unfenced
        return store if self._store is None else self._store(store)

    def lease(self, lease: FencedLease) -> Lease:
        return lease if self._lease is None else self._lease(lease)

    def telemetry(self, telemetry: ProcessTelemetry) -> ProcessTelemetry:
        return telemetry if self._telemetry is None else self._telemetry(telemetry)

    def planner(self, policy: str, resolved: ResolvedService) -> Planner:
        return super().planner(policy, resolved) if self._planner is None else self._planner()

    def controller(self) -> type[Controller]:
        return super().controller() if self._controller is None else self._controller

    def limits(self, limits: Limits) -> Limits:
        return limits if self._limits is None else self._limits

    def leads(self, lease: Lease, own: FencedLease, fence: int) -> Callable[[], bool]:
        return (lambda: True) if self._leads else super().leads(lease, own, fence)


# Name -> the bug, and the invariants that are about it.
BUGS: dict[str, tuple[Planted, set[str]]] = {
    "a retry has a new token": (Planted(cloud=NewTokens), {"one need", "limits", "explained"}),
    "launches one too many": (Planted(cloud=OneMore), {"one need", "limits"}),
    "never terminates": (Planted(cloud=ForgetsToTerminate), {"no orphan", "limits"}),
    "never drains": (Planted(cloud=ForgetsToDrain), {"settled", "silent replaced", "notices answered", "limits"}),
    "ends what serves": (Planted(cloud=EndsWhatServes), {"drained first"}),
    "does not count what boots": (Planted(cloud=HidesPending), {"one need", "limits"}),
    "loses sight of what drains": (Planted(cloud=HidesDraining), {"no orphan", "limits"}),
    "ignores notices": (Planted(cloud=HidesInterruptions), {"notices answered"}),
    "ignores scheduled ends": (Planted(cloud=HidesScheduledEnds), {"notices answered"}),
    "loses sight of what leaves": (Planted(controller=LosesWhatLeaves), {"notices answered", "no orphan"}),
    "ignores silence": (Planted(cloud=HidesSilence), {"silent replaced"}),
    "counts what is gone": (Planted(cloud=SeesGhosts), {"buys elsewhere", "settled", "bill"}),
    "forgets the bill": (Planted(store=ForgetsTheBill), {"bill", "billed after the end"}),
    "does not write down ends": (Planted(store=ForgetsEnds), {"explained"}),
    "never crosses out a launch": (Planted(store=KeepsIntents), {"crossed out", "bounded"}),
    "renews the lease seldom": (Planted(lease=RenewedSeldom), {"led"}),
    "leads once and for all": (
        Planted(lease=LeadsOnceAndForAll, unfenced=True), {"within its term", "one leader", "one writer"}
    ),
    "acts without asking for the lease": (
        Planted(leads=True, unfenced=True), {"within its term", "one leader", "one writer"}
    ),
    "waits for boots for ever": (Planted(cloud=WaitsForever), {"no orphan"}),
    "does nothing between ticks": (Planted(controller=NoUpkeep), {"no orphan", "notices answered", "silent replaced"}),
    "asks again at once": (Planted(controller=NoBackoff), {"patient", "polite"}),
    "never asks again": (Planted(controller=NeverForgives), {"buys elsewhere", "settled"}),
    "gives up after an error": (Planted(controller=GivesUp), {"planned"}),
    "grows with every plan": (Planted(planner=Remembers), {"bounded"}),
    "trusts every number": (Planted(planner=TrustsEveryNumber), {"no fault of ours", "settled"}),
    "knows no limit": (Planted(limits=Limits(1000, 1000.0)), {"limits"}),
    "never resumes": (Planted(cloud=NeverResumes), {"bridged"}),
    "leaves standbys serving": (Planted(cloud=LeavesStandbysServing), {"stands by"}),
    "keeps all that can be stopped": (Planted(cloud=StopsWhatItCan), {"warm pool"}),
    "does not count what is stopped": (Planted(cloud=HidesStopped), {"one need"}),
    "takes every release for good": (Planted(telemetry=BlindToReleases), {"released", "settled"}),
    "takes every release for bad": (Planted(telemetry=BlamesReleases), {"misjudged"}),
}  # fmt: skip
