"""Items of a request to a service with parity models, reconstructed if the model's own answer is late.

`mark.insurance.coding` decides which queries share parity calls and when a reconstruction answers. This module makes
the calls, runs the timer and publishes the claims. Queries are answered as without insurance while no parity model is
ready, or if the parity models belong to another version of the model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mark.domain.price_list import PriceList
from mark.domain.time import MINUTE_S
from mark.insurance.coding import CallParities, CodingGroup, CodingGroups, Member, PassOn, Reconstructed
from mark.insurance.fill import least_fill_s
from mark.insurance.insurance_settings import DEGRADED, InsuranceSettings
from mark.models.answer import Answer, Provenance
from mark.models.call import Call, Reply
from mark.models.results import call_with, results_of
from mark.serving.backend.port import StageBackend
from mark.serving.backend.request import Request
from mark.serving.conductor.calls_stages import CallsStages, RunOfItems

_LOG = logging.getLogger("mark.serving")
# With these statuses the model itself has not answered, and a reconstruction may still come.
_REFUSALS = frozenset((429, 502, 503, 504))
_UNKNOWN = PriceList()

_COUNTED = {
    "groups": "Coding groups that closed.",
    "given_up": "Coding groups without a parity call, because places stayed empty.",
    "parity_calls": "Calls of parity models.",
    "parity_missed": "Calls of parity models without a usable answer.",
    "malformed": "Answers of parity models, and reconstructions, that were not finite or of another shape.",
    "unusable": "Answers of the model from which nothing can be reconstructed.",
    "members": "Queries in coding groups.",
    "passed_by": "Queries in no coding group.",
    "reconstructed": "Queries answered by a reconstruction.",
    "saved": "Queries reconstructed by the deadline whose exact answer came after it, or never.",
    "compared": "Reconstructed queries whose exact answer came later.",
    "agreed": "Of the compared ones, those with the same largest score.",
    "held": "Refusals of the model that waited for a reconstruction.",
    "held_passed_on": "Of the held ones, those that were passed on.",
    "forgotten": "Coding groups dropped for want of memory.",
}

Prices = Callable[[float], PriceList]


class ParityStage(Protocol):
    """A parity model, as a conductor holds it (`mark.serving.conductor.conductor.ConductedStage`)."""

    @property
    def name(self) -> str: ...
    @property
    def backend(self) -> StageBackend: ...


class CodedService:
    """The insurance of one service: its coding groups, the calls of its parity models, and the claims.

    `told` returns the controller's last report on the parity models' fleet at a monotonic time. Without a report,
    `capacity_rps` is the capacity of this process's parity workers (None: unknown). This conductor gets the part
    `share` of all conductors' queries. `off` is the reason why the parity models cannot be used, or "".
    """

    def __init__(
        self,
        settings: InsuranceSettings,
        rt_max_s: float,
        parities: Sequence[ParityStage],
        loop: asyncio.AbstractEventLoop,
        *,
        told: Prices = lambda now_s: _UNKNOWN,
        capacity_rps: float | None = None,
        share: float = 1.0,
        off: str = "",
        now: Callable[[], float] = time.monotonic,
        unix_s: Callable[[], float] = time.time,
    ) -> None:
        parity = settings.parity
        assert parity is not None, "only parity models insure a service"
        self.settings, self.parity = settings, parity
        self._parities, self._loop, self._now, self._unix_s = parities, loop, now, unix_s
        self._told, self._capacity_rps, self._share = told, capacity_rps, share
        fill_s = math.inf if settings.fill_s is None else settings.fill_s  # until the first query arrives
        self.groups = CodingGroups(parity, rt_max_s=rt_max_s, after_s=settings.after_s, fill_s=fill_s)
        self._items: dict[Member, CodedItem] = {}  # items without an answer
        self._minute_s, self._members = now(), 0  # when the fill is chosen next; members before this minute
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf
        self.off, self._off_unix_s = "", 0.0
        self._called = 0
        self._named: str | None = None  # name of the model's only output, if outputs have names
        self._told_shape = self._told_unusable = False
        if off:
            self.switch_off(off)

    def switch_off(self, why: str) -> None:
        """Insure no further query."""
        if not self.off:
            _LOG.error("the service is not insured: %s", why)
            self.off, self._off_unix_s = why, self._unix_s()

    def accepts(self, request: Request) -> bool:
        """Return whether a reconstruction may answer the request."""
        return (request.accepts or self.settings.accept) == DEGRADED

    # Queries

    def join(self, item: CodedItem, value: Any, request: Request, now_s: float) -> Member | None:
        """Add the item to a coding group and return its place; None if it is not insured."""
        ready = not self.off and any(parity.backend.ready for parity in self._parities)
        query = self.groups.query_of(value) if ready else None
        if query is None:
            self.groups.claims.passed_by += 1
            if ready and not self._told_shape:
                self._told_shape = True
                shape = list(self.parity.input_shape)
                _LOG.warning("a query is not insured: the parity models take finite numbers of shape %s", shape)
            return None
        self._set_fill(now_s)
        member, actions = self.groups.join(
            query, request.arrived_s, request.deadline_s, now_s, accepts=self.accepts(request)
        )
        self._items[member] = item
        self.act(actions, now_s)
        return member

    def _set_fill(self, now_s: float) -> None:
        """Choose the fill once a minute from the previous minute's queries, unless the settings give one."""
        if self.settings.fill_s is not None or now_s < self._minute_s:
            return
        members, idle_s = self.groups.claims.members, now_s - self._minute_s
        # The counted queries came before `idle_s`. After a whole idle minute they do not predict the rate.
        rps = (members - self._members) / (MINUTE_S + idle_s) if idle_s < MINUTE_S else 0.0
        self._members, self._minute_s = members, now_s + MINUTE_S
        ready_rps = self._told(now_s).ready_rps
        capacity_rps = self._capacity_rps if ready_rps is None else self._share * ready_rps
        self.groups.fill_s = math.inf if capacity_rps is None else least_fill_s(self.parity.k, rps, capacity_rps)

    def answered(self, member: Member, result: Any, now_s: float) -> None:
        """Note the model's answer for the member."""
        self._items.pop(member, None)
        self._named = next(iter(result)) if isinstance(result, dict) and len(result) == 1 else None
        self.act(self.groups.answered(member, only_output(result), now_s), now_s)
        if self.groups.claims.unusable and not self._told_unusable:
            self._told_unusable = True
            shape = list(self.parity.output_shape)
            _LOG.error("an answer of the model cannot reconstruct others: they need finite scores of shape %s", shape)

    def missed(self, member: Member, now_s: float, *, refused: bool) -> bool:
        """Note that the model did not answer the member; return whether its refusal is held."""
        if refused:
            held, actions = self.groups.refused(member, now_s)
        else:
            held, actions = False, self.groups.failed(member, now_s)
        if not held:
            self._items.pop(member, None)
        self.act(actions, now_s)
        return held

    def gone(self, member: Member) -> None:
        """Forget a member whose request has its answer or needs none."""
        self._items.pop(member, None)
        self.groups.gone(member)

    # Actions and the timer

    def act(self, actions: Sequence[CallParities | Reconstructed | PassOn], now_s: float) -> None:
        """Carry out these actions and those that are due, and set the timer."""
        for action in (*actions, *self.groups.woken(now_s)):
            if isinstance(action, CallParities):
                # in the loop's next turn, so that encoding delays no call of the model
                self._loop.call_soon(self._call_parities, action.group)
                continue
            item = self._items.pop(action.member, None)
            if item is None:
                continue
            if isinstance(action, Reconstructed):
                item.reconstructed(action.output if self._named is None else {self._named: action.output})
            else:
                item.pass_on()
        due_s = self.groups.due_s()
        if due_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = due_s
            self._timer = self._loop.call_later(max(0.0, due_s - now_s), self.woken)

    def woken(self) -> None:
        """Answer items and close groups that are due."""
        now_s = self._now()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_s = math.inf
        self.act([*self.groups.woken(now_s), *self.groups.closed(now_s)], now_s)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _call_parities(self, group: CodingGroup) -> None:
        now_s, deadline_s = self._now(), self.groups.limit_s(group)
        if deadline_s <= now_s:
            self.act(self.groups.too_late(group), now_s)
            return
        for number, query in enumerate(self.groups.encoded(group)):
            now_s = self._now()
            self._called += 1
            answer = partial(self._parity_answered, group, number)
            call = call_with(query)
            self._parities[number].backend.offer(Request(call, 1, now_s, deadline_s, answer, f"parity-{self._called}"))

    def _parity_answered(self, group: CodingGroup, number: int, request: Request, answer: Answer) -> None:
        now_s, reply = self._now(), answer.reply
        if reply.status == 200:
            try:
                (result,) = results_of(reply)
            except ValueError as error:
                _LOG.error("stage %s: %s", self._parities[number].name, error, extra={"request_id": request.id})
                result = None
            actions = self.groups.parity_answered(group, number, only_output(result), now_s)
        else:
            actions = self.groups.parity_missed(group, number)
        self.act(actions, now_s)

    # Claims

    def degraded(self) -> Provenance:
        """Return the provenance of an answer that holds a reconstruction."""
        agreement = self.groups.claims.agreement(self.parity.degraded_accuracy)
        return Provenance(degraded="agreement=unknown" if agreement is None else f"agreement={agreement:.2f}")

    def said(self) -> dict[str, Any]:
        """Return the body of `GET .../insurance`, as JSON values."""
        claims, groups, settings = self.groups.claims, self.groups, self.settings
        return {
            "code": self.parity.code,
            "k": self.parity.k,
            "r": self.parity.r,
            "accept": settings.accept,
            "after_ms": settings.after_s * 1e3,
            "fill_ms": groups.fill_s * 1e3 if math.isfinite(groups.fill_s) else None,
            "uninsured_since_unix_s": self._off_unix_s if self.off else None,
            "uninsured_because": self.off or None,
            "parity_ready": any(parity.backend.ready for parity in self._parities),
            **asdict(claims),
            "agreement": claims.agreement(None),
            "expected_agreement": self.parity.degraded_accuracy,
            "kept_bytes": groups.kept_bytes,
            "premium_usd_per_hour": self._told(self._now()).usd_per_hour,
        }

    def metrics(self, model: str) -> Iterator[Metric]:
        """Yield the claims as Prometheus metrics."""
        claims = self.groups.claims
        for name, what in _COUNTED.items():
            counter = CounterMetricFamily(f"mark_insurance_{name}", what, labels=("model",))
            counter.add_metric((model,), getattr(claims, name))
            yield counter
        on = GaugeMetricFamily("mark_insurance_on", "1 while queries are insured.", labels=("model",))
        on.add_metric((model,), int(not self.off and any(one.backend.ready for one in self._parities)))
        kept = GaugeMetricFamily("mark_insurance_bytes", "Memory of queries and outputs in groups.", labels=("model",))
        kept.add_metric((model,), self.groups.kept_bytes)
        yield from (on, kept)
        if (usd := self._told(self._now()).usd_per_hour) is not None:
            what = "Price of the parity instances, as the controller last said."
            premium = GaugeMetricFamily("mark_insurance_usd_per_hour", what, labels=("model",))
            premium.add_metric((model,), usd)
            yield premium


class CodedRun(RunOfItems, Protocol):
    """The request of an item of an insured service."""

    degraded: bool


class CodedItem:
    """An item of a request. It has a call of the model, and may have a place in a coding group."""

    __slots__ = ("_call", "_conductor", "_index", "_member", "_probes", "_refusal", "_run", "_service", "_value")

    def __init__(
        self,
        conductor: CallsStages,
        service: CodedService,
        run: CodedRun,
        index: int,
        value: Any,
        call: Call,
        *,
        probes: bool,
    ) -> None:
        self._conductor, self._service, self._run, self._index = conductor, service, run, index
        self._value, self._call, self._probes = value, call, probes
        self._member: Member | None = None
        self._refusal: Reply | None = None

    def start(self, now_s: float) -> None:
        """Join a group and call the model."""
        run, conductor = self._run, self._conductor
        self._member = self._service.join(self, self._value, run.request, now_s)
        self._value = None
        needed_s = 0.0 if self._probes else conductor.needed_s()[0]
        if run.progress.in_time(now_s, needed_s):
            run.progress.begin(0, now_s)
            conductor.call(run, 0, self._call, now_s, needed_s, self._told, self._probes)
        else:
            run.progress.drop(0, now_s)
            self._told(0, None, conductor.too_late(0))

    def over(self) -> None:
        """Leave the coding group, because the request has its answer."""
        if self._member is not None:
            self._service.gone(self._member)

    def _told(self, stage: int, result: Any, error: Reply | None) -> None:
        now_s, member = self._conductor.now(), self._member
        if error is None:
            if member is not None:
                self._service.answered(member, result, now_s)
            self._conductor.done(self._run, self._index, result)
            return
        self._refusal = error
        if member is None or not self._service.missed(member, now_s, refused=error.status in _REFUSALS):
            self._conductor.fail(self._run, error)

    def reconstructed(self, result: Any) -> None:
        """Answer the item with a reconstruction."""
        if not self._run.progress.over:
            self._run.degraded = True
            self._conductor.done(self._run, self._index, result)

    def pass_on(self) -> None:
        """Answer with the held refusal, because no reconstruction will come."""
        assert self._refusal is not None, "only refusals that are held are passed on"
        self._conductor.fail(self._run, self._refusal)


def only_output(result: Any) -> Any:
    """Return the numbers of a result: those of its only output if outputs have names."""
    if isinstance(result, dict) and len(result) == 1:
        (result,) = result.values()
    return result
