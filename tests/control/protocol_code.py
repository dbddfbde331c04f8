"""Run the code of the protocol step by step: real leases, launchers and ledgers, stopped at each effect of the model.

The effects are those of tests/control/protocol_model.py. Each controller has a thread, which runs only while it is
stepped, from one effect to the next.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any

from mark.control.act import Actor
from mark.control.launcher import Intent, Launcher
from mark.control.lease import FencedLease, MemoryTerms, Term
from mark.control.ledger import Ledger
from mark.control.memory_store import MemoryStore
from mark.control.ports import Launched, Result
from mark.control.views import Limits
from mark.domain.command import Command, Launch
from mark.domain.errors import CapacityError, CloudError, LostLease, StoreError
from mark.domain.fleet import Fleet, Notice
from mark.testing.fakes import FakeCloud, ManualClock
from tests.control.control_fakes import ON_DEMAND, resolved
from tests.control.protocol_model import (
    CALL,
    CROSS,
    DEAD,
    FAILS,
    FREE,
    GONE,
    KEEP,
    LOST,
    REFUSED,
    ROUND,
    WRITE,
    Action,
    ModelController,
    ModelWorld,
)

MINUTE_S, TICK_S = 60.0, 0.001
LEASE = "site"
SERVICE = resolved(ON_DEMAND)


class Killed(BaseException):
    """The controller has ended: no line after this one runs."""


class SteppedThread:
    """Runs `work`, which waits in `arrive` before each effect until it is stepped."""

    def __init__(self, work: Callable[[SteppedThread], None]) -> None:
        self.at = ""
        self._outcome, self._killed = "", False
        self._error: BaseException | None = None
        self._work, self._go, self._waits = work, Lock(), Lock()
        self._go.acquire()
        self._waits.acquire()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait()

    def arrive(self, at: str) -> str:
        """Wait before an effect, in the controller's thread, and return the outcome that the effect shall have."""
        self.at = at
        self._waits.release()
        self._go.acquire()
        if self._killed:
            raise Killed
        return self._outcome

    def step(self, outcome: str) -> None:
        """Let the effect happen, and go on to the next one."""
        self._outcome = outcome
        self._go.release()
        self._wait()

    def kill(self) -> None:
        self._killed = True
        self._go.release()
        self._thread.join()

    def _wait(self) -> None:
        self._waits.acquire()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work(self)
        except Killed:
            return
        except BaseException as error:
            self._error = error
            self._waits.release()


class SiteTerms(MemoryTerms):
    """The terms, without faults."""

    def term(self) -> Term | None:
        return self._terms.get(LEASE)


class CodeSite:
    """The state that outlives a controller: time, the lease's terms, the store, and the cloud."""

    def __init__(self, needs: int) -> None:
        self.needs, self.minute, self.ticks = needs, 0, 0
        self.clock, self.terms, self.values = ManualClock(), SiteTerms(), MemoryStore()
        self.cloud = FakeCloud(self.clock)
        self.tokens: dict[str, int] = {}  # as the model counts them
        self.minutes: dict[int, int] = {}  # of launches, by number

    def pass_s(self, minutes: int) -> None:
        """Pass minutes, and a moment with every step, because tokens are made of the time."""
        self.minute, self.ticks = self.minute + minutes, self.ticks + 1
        self.clock.t_s = self.minute * MINUTE_S + self.ticks * TICK_S

    def token_of(self, name: str) -> int:
        return self.tokens.setdefault(name, len(self.tokens) + 1)

    def launched(self) -> dict[int, int]:
        """Return token of each instance, by its number."""
        return {n: self.token_of(token) for token, one in self.cloud._tokens.items() for n in one.numbers}


class CodeTerms:
    """The lease's store, as one controller reaches it: an answer may be missing."""

    def __init__(self, site: CodeSite) -> None:
        self.site, self.outcome = site, ""

    def claim(self, name: str, holder: str, until_s: float, over: Term | None = None) -> Term:
        if self.outcome == FAILS:
            raise StoreError("the lease's store does not answer")
        term = self.site.terms.claim(name, holder, until_s, over)
        if self.outcome == LOST:
            raise StoreError("the answer is lost")
        return term

    def resign(self, name: str, holder: str) -> None:
        self.site.terms.resign(name, holder)


class CodeStore(MemoryStore):
    """The store under the term `fence`."""

    def __init__(self, site: CodeSite, thread: SteppedThread, fence: int) -> None:
        super().__init__()
        self.site, self.thread, self.fence = site, thread, fence

    def get(self, key: str) -> Any | None:
        return deepcopy(self.site.values.get(key))

    def put(self, key: str, value: Any) -> None:
        outcome = self.thread.arrive(self._at(key, value))
        self.check()
        if outcome == FAILS:
            raise StoreError("the store does not answer")
        if key == "intents":
            for intent in value:
                self.site.token_of(intent.token)
        self.site.values.put(key, value)
        if outcome == LOST:
            raise StoreError("the answer is lost")

    def record(self, at_s: float, command: Command, outcome: str, result: Result, started: int) -> None:
        self.check()

    def check(self) -> None:
        term = self.site.terms.term()
        if term is None or term.fence != self.fence:
            raise LostLease("another controller leads")

    def _at(self, key: str, value: Any) -> str:
        if key == "ledger":
            return KEEP
        return WRITE if any(one.token not in self.site.tokens for one in value) else CROSS


class CodeCloud:
    """The cloud as one controller calls it. Launches by others show a minute later, or when it repeats the call."""

    def __init__(self, site: CodeSite, thread: SteppedThread) -> None:
        self.site, self.thread = site, thread
        self.seen: set[int] = set()

    def fleet(self) -> Fleet:
        site, fleet = self.site, self.site.cloud.fleet()
        shown = tuple(i for i in fleet.instances if site.minutes[i.number] < site.minute or i.number in self.seen)
        return replace(fleet, instances=shown)

    def launch(
        self,
        offer: str,
        count: int,
        token: str,
        *,
        standby: bool = False,
        release: str = "",
        alternatives: tuple[str, ...] = (),
    ) -> Launched:
        outcome = self.thread.arrive(CALL)
        if outcome == FAILS:
            raise CloudError("the cloud does not answer")
        if outcome == REFUSED:
            raise CapacityError("out of it")
        launched = self.site.cloud.launch(offer, count, token)
        for number in launched.numbers:
            self.site.minutes.setdefault(number, self.site.minute)
        if outcome == LOST:
            raise CloudError("the answer is lost")
        self.seen.update(launched.numbers)
        return launched

    def drain(self, number: int) -> None:
        raise NotImplementedError

    def terminate(self, number: int) -> None:
        raise NotImplementedError

    def stop(self, number: int) -> None:
        raise NotImplementedError

    def resume(self, number: int) -> None:
        raise NotImplementedError

    def notices(self) -> tuple[Notice, ...]:
        return ()


@dataclass
class CodeParts:
    """The parts that a controller has while it leads."""

    fence: int
    launcher: Launcher
    actor: Actor
    ledger: Ledger


class CodeController:
    """A controller that runs rounds without end.

    Each part of a round is the real code; only their order is written here, a short form of `mark.control`'s manager,
    service runtime and controller.
    """

    launcher: type[Launcher] = Launcher
    store: type[CodeStore] = CodeStore

    def __init__(self, site: CodeSite) -> None:
        self.site, self.terms = site, CodeTerms(site)
        self.lease = FencedLease(self.terms, LEASE, monotonic_s=site.clock.now_s)
        self.parts: CodeParts | None = None
        self.thread = SteppedThread(self._live)

    def _live(self, thread: SteppedThread) -> None:
        self.cloud = CodeCloud(self.site, thread)
        while True:
            self.terms.outcome = thread.arrive(ROUND)
            try:
                self._round(thread)
            except LostLease:
                self.parts = None
            except CloudError:
                pass  # the next round goes on

    def _round(self, thread: SteppedThread) -> None:
        site, lasts, now_s = self.site, self.lease.lasts, self.site.clock.now_s()
        fence = self.lease.hold(now_s)
        if self.parts is not None and self.parts.fence != fence:
            self.parts = None
        if fence is None:
            return
        if self.parts is None:
            store = self.store(site, thread, fence)
            launcher = self.launcher(SERVICE, self.cloud, site.clock, store, Limits(100, 1e3), 7)
            actor = Actor(self.cloud, None, store, launcher, lasts)
            self.parts = CodeParts(fence, launcher, actor, Ledger(SERVICE, store))
        parts = self.parts
        if not lasts():
            raise LostLease("the lease ended before launches were repeated")
        for _ in parts.launcher.repeat(now_s, lambda _: math.inf):
            pass
        fleet = self.cloud.fleet()
        missing = site.needs - len(fleet.instances) - parts.launcher.unsure(standby=False).total()
        launch = Launch("needed", 0.0, ON_DEMAND.name, 1)
        for _ in parts.actor.act(now_s, (launch,) * max(0, missing), substitute=False):
            pass
        parts.ledger.observe(now_s, fleet, ())


class CodeWorld:
    """Controllers over one site. `shown` is their state in the model's terms."""

    def __init__(self, needs: int, controllers: int, kind: type[CodeController] = CodeController) -> None:
        self._site, self._kind = CodeSite(needs), kind
        self._controllers: list[CodeController | None] = [kind(self._site) for _ in range(controllers)]

    def do(self, action: Action) -> None:
        if action.verb in ("minute", "minutes"):
            self._site.pass_s(1 if action.verb == "minute" else 5)
            return
        controller = self._controllers[action.controller]
        if action.verb == "restart":
            self._controllers[action.controller] = self._kind(self._site)
            return
        assert controller is not None
        if action.verb == "crash":
            controller.thread.kill()
            self._controllers[action.controller] = None
            return
        self._site.pass_s(0)
        controller.thread.step(action.outcome)

    def close(self) -> None:
        for controller in self._controllers:
            if controller is not None:
                controller.thread.kill()

    def shown(self) -> dict[str, object]:
        site, term = self._site, self._site.terms.term()
        launched = site.launched()
        kept = site.values.get("ledger")
        holders = {c.lease.holder: i for i, c in enumerate(self._controllers) if c is not None}
        return {
            "at": [DEAD if c is None else c.thread.at for c in self._controllers],
            "leads": [c is not None and c.lease.lasts() for c in self._controllers],
            "parts": [0 if c is None or c.parts is None else c.parts.fence for c in self._controllers],
            "term": (FREE, 0) if term is None else (holders.get(term.holder, GONE), term.fence),
            "intents": [(site.token_of(one.token), one.made) for one in site.values.get("intents") or ()],
            "launched": sorted(launched.values()),
            "ledger": None if kept is None else sorted(launched[number] for number in kept["spans"]),
        }


def shown_by(world: ModelWorld) -> dict[str, object]:
    """Return the same for the model."""
    controllers: tuple[ModelController, ...] = world.controllers
    return {
        "at": [c.at for c in controllers],
        "leads": [c.lasts for c in controllers],
        "parts": [c.parts for c in controllers],
        "term": (world.holder, world.fence),
        "intents": [(one.token, one.made) for one in world.intents],
        "launched": sorted(world.launched),
        "ledger": None if world.ledger is None else sorted(world.ledger),
    }


@contextmanager
def coded(needs: int, controllers: int, kind: type[CodeController] = CodeController) -> Iterator[CodeWorld]:
    """Provide a world that runs the real code, with logging disabled."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    world = CodeWorld(needs, controllers, kind)
    try:
        yield world
    finally:
        world.close()
        logging.disable(before)


class NewTokens(Launcher):
    """Planted fault: repeats a launch under a new token."""

    calls = 0

    def _launched(self, intent: Intent) -> Launched:
        NewTokens.calls += 1
        return super()._launched(replace(intent, token=f"{intent.token}/{NewTokens.calls}"))


class ForgetsUnsure(Launcher):
    """Planted: a launch whose outcome is unknown is crossed out."""

    def _put_off(self, intent: Intent, error: CloudError, now_s: float) -> None:
        self._cross_out(intent)


class Unfenced(CodeStore):
    """Planted fault: a store that accepts writes under an older term."""

    def check(self) -> None:
        return


class RepeatsUnderNewTokens(CodeController):
    launcher = NewTokens


class CrossesOutUnsure(CodeController):
    launcher = ForgetsUnsure


class WritesUnfenced(CodeController):
    store = Unfenced


PLANTED: dict[str, type[CodeController]] = {
    "a new token at each call": RepeatsUnderNewTokens,
    "what is unsure is crossed out": CrossesOutUnsure,
    "a store without a fence": WritesUnfenced,
}
