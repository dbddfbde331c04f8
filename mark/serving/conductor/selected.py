"""Items of a request in a selection: candidates are stages, and a policy decides which ones are asked.

`mark.selection.query` makes the decisions. This module has the calls, the timer, and the note for feedback. Replies
that come after the answer are added to the note, because feedback judges every candidate that was asked.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, Metric

from mark.models.answer import AskedModel, Provenance
from mark.models.call import Call, Reply
from mark.selection import policy
from mark.selection.labels import NoAnswer, field_of, label_of, score_of
from mark.selection.outcome import notes_to_json
from mark.selection.query import SelectedQuery, Selection
from mark.selection.shown import weights_now
from mark.selection.state import ALL
from mark.serving.backend.refusals import error_reply
from mark.serving.conductor.calls_stages import CallsStages, RunOfItems
from mark.serving.conductor.query import FAILED

_LOG = logging.getLogger("mark.serving")
# Memory reserved in a note for each reply that may come after the answer.
_LATE_REPLY_BYTES = 64
_MOST_NOTE_BYTES = 1 << 20  # a longer note is dropped, and the request teaches nothing
# A note that takes longer to make is remade for several late replies together, in this part of the loop's time at most.
_LONG_NOTE_S, _LATE_NOTE_PART = 0.0005, 0.02
_MOST_NAMED = 8  # the number of items whose candidates `mark-selected` names individually
DEFAULT_NAME, AVERAGE_NAME = "default", "mean"


class CallPrices(NamedTuple):
    """The price of a call of each candidate in dollars: `now`, and if planned capacity has room for it."""

    now: Sequence[float]
    planned: Sequence[float]


@dataclass(slots=True)
class SelectionCounts:
    """The counts of a process since its start, by candidate."""

    asked: Counter[int]
    chosen: Counter[int]
    missed: Counter[int]  # refused, failed or late
    wanted: Counter[int]  # asked, or would be asked at planned prices
    usd: float = 0.0  # total price of all calls
    answers: int = 0
    by_default: int = 0
    averaged: int = 0
    judged: int = 0  # answers with feedback in this process
    wrong: float = 0.0  # the sum of their losses

    @property
    def usd_per_correct(self) -> float | None:
        """Return the price of the calls for one correct answer; None before feedback and if all answers are wrong."""
        right = self.judged - self.wrong
        return self.usd / self.answers * self.judged / right if self.answers and right > 0.0 else None


class ServedSelection:
    """A selection as a conductor uses it. `prices` returns the prices of calls at a monotonic time."""

    def __init__(
        self, names: Sequence[str], selection: Selection, prices: Callable[[float], CallPrices] | None = None
    ) -> None:
        self.names, self.selection = tuple(names), selection
        free = CallPrices([0.0] * len(self.names), [0.0] * len(self.names))
        self.prices: Callable[[float], CallPrices] = prices if prices is not None else lambda now_s: free
        self.counts = SelectionCounts(Counter(), Counter(), Counter(), Counter())

    @property
    def follows_prices(self) -> bool:
        """Return whether calls depend on their prices."""
        return self.selection.settings.correct_usd is not None

    def reply_of(self, result: Any) -> policy.CandidateReply:
        """Return the result with its label and score. Raises NoAnswer."""
        settings = self.selection.settings
        label = label_of(field_of(result, settings.answer))
        score = None if settings.score is None else score_of(field_of(result, settings.score))
        return policy.CandidateReply(result, label, score)

    def metrics(self, model: str, version: str) -> Iterator[Metric]:
        """Yield the calls that the controller plans for, if calls follow prices. A candidate without any has 0."""
        if self.follows_prices:
            wanted = CounterMetricFamily(
                "mark_selection_wanted_calls",
                "Calls of a candidate that are made, or would be at planned prices.",
                labels=("model", "version", "stage"),
            )
            for candidate, name in enumerate(self.names):
                wanted.add_metric((model, version, name), self.counts.wanted[candidate])
            yield wanted

    def said(self, now_s: float) -> dict[str, Any]:
        """Return the body of `GET .../selection`, as JSON values. Prices are dollars."""
        state, settings, counts = self.selection.state, self.selection.settings, self.counts
        sums, off, usd = state.sums(ALL), state.off, self.prices(now_s).now
        weights = weights_now(settings, sums, tuple(off))
        candidates = {}
        for at, name in enumerate(self.names):
            observed = sums.counts[at]
            candidates[name] = {
                "weight": None if weights is None else weights[at],
                "share": counts.chosen[at] / counts.answers if counts.answers else 0.0,
                "error": sums.losses[at] / observed if observed > 0.0 else None,
                "feedback": state.answers[at],
                "asked": counts.asked[at],
                "missed": counts.missed[at],
                "usd_per_call": usd[at],
                "off": at in off,
            }
        return {
            "policy": settings.policy,
            "candidates": candidates,
            "answers": counts.answers,
            "by_default": counts.by_default,
            "averaged": counts.averaged,
            "error": counts.wrong / counts.judged if counts.judged else None,
            "usd_per_million_answers": 1e6 * counts.usd / counts.answers if counts.answers else None,
            "usd_per_million_correct": None if counts.usd_per_correct is None else 1e6 * counts.usd_per_correct,
            "feedback": state.facts,
            "contexts": state.contexts,
            "champion": settings.champion,
        }


class SelectedNotes:
    """How the items of a request were answered. It holds queries but no request, because the request holds it."""

    __slots__ = ("_loop", "_prices", "_provenance", "_queries", "_remaking", "_served", "_took_s")

    def __init__(self, served: ServedSelection, items: int, loop: asyncio.AbstractEventLoop) -> None:
        self._served, self._loop = served, loop
        self._remaking, self._took_s = False, 0.0
        self._queries: list[SelectedQuery | None] = [None] * items
        self._prices: Sequence[float] = ()
        self._provenance: Provenance | None = None

    def begin(self, index: int, query: SelectedQuery, usd: Sequence[float]) -> None:
        """Note that an item begins."""
        self._queries[index], self._prices = query, usd

    @property
    def queries(self) -> list[SelectedQuery]:
        return [one for one in self._queries if one is not None]

    @property
    def by_default(self) -> bool:
        """Return whether an item is answered with the configured default."""
        return any(one.decision is not None and one.decision.by_default for one in self.queries)

    def provenance(self) -> Provenance:
        """Return the provenance of the answer that is given now."""
        served, queries = self._served, self.queries
        asked, waits = [], 0
        for one in queries:
            for candidate, propensity in one.asked.items():
                asked.append(AskedModel(served.names[candidate], propensity, self._prices[candidate]))
            waits += len(one.awaited())
        note = self._note()
        found = Provenance(
            asked=tuple(asked), selected=self._selected(), note=note, late_bytes=_LATE_REPLY_BYTES * waits
        )
        decisions = [one.decision for one in queries if one.decision is not None]
        known = [one for one in decisions if one.confidence is not None]
        if known and len(known) == len(decisions):  # the least confident of several items
            least = min(known, key=lambda one: one.confidence or 0.0)
            found.confidence, found.agreement = least.confidence, not least.calibrated
        self._provenance = found
        return found

    def came_late(self) -> None:
        """Remake the note for a reply that came after the answer; a long note is remade later."""
        if self._provenance is None or self._remaking:
            return
        if self._took_s < _LONG_NOTE_S:
            self._remake()
        else:
            self._remaking = True
            self._loop.call_later(self._took_s / _LATE_NOTE_PART, self._remake)

    def _remake(self) -> None:
        self._remaking = False
        if self._provenance is not None:
            self._provenance.note = self._note()

    def from_cache(self, candidate: int) -> None:
        """Subtract the price of a candidate's answer that came from the cache."""
        if self._prices:
            self._served.counts.usd -= self._prices[candidate]

    def _note(self) -> bytes:
        began_s = self._loop.time()
        note = notes_to_json([one.note() for one in self.queries])
        self._took_s = self._loop.time() - began_s
        return note if len(note) <= _MOST_NOTE_BYTES else b""

    def _selected(self) -> str:
        """Return `thompson;large`, or `thompson;large,small` for several items with different candidates."""
        names = [self._name(one) for one in self.queries]
        if len(set(names)) == 1:
            names = names[:1]
        elif len(names) > _MOST_NAMED:
            names = [*names[:_MOST_NAMED], "..."]
        return f"{self._served.selection.settings.policy};{','.join(names)}"

    def _name(self, query: SelectedQuery) -> str:
        decision = query.decision
        if decision is None or decision.by_default:
            return DEFAULT_NAME
        candidate = decision.choice.candidate
        return AVERAGE_NAME if candidate is None else self._served.names[candidate]


class SelectedRun(RunOfItems, Protocol):
    """The request of an item of a selection."""

    notes: SelectedNotes | None


class SelectedItem:
    """An item of a request. It calls the candidates that its query asks for until the query is decided."""

    __slots__ = (
        "_call", "_conductor", "_errors", "_finished", "_index", "_notes", "_probes", "_query", "_run", "_served",
        "_timer",
    )  # fmt: skip

    def __init__(
        self,
        conductor: CallsStages,
        served: ServedSelection,
        run: SelectedRun,
        index: int,
        call: Call,
        *,
        probes: bool,
    ) -> None:
        self._conductor, self._served, self._run, self._index = conductor, served, run, index
        self._call, self._probes = call, probes
        self._errors: dict[int, Reply] = {}
        self._finished = False
        self._timer: asyncio.TimerHandle | None = None
        assert run.notes is not None, "a run of a selection has notes"
        self._notes = run.notes
        self._query: SelectedQuery

    def start(self, now_s: float) -> None:
        """Ask the first candidates."""
        run, (usd, planned_usd) = self._run, self._served.prices(now_s)
        self._query = self._served.selection.open(run.request.key, usd, run.progress.deadline_s, now_s, planned_usd)
        self._notes.begin(self._index, self._query, usd)
        if self._query.due_s < run.progress.deadline_s:
            self._timer = self._conductor.loop.call_later(self._query.due_s - now_s, self._woken)
        self._go_on(self._step(self._query.start, now_s), now_s, usd)

    def give_up(self) -> None:
        """Decide with the existing replies, because the request's deadline has come."""
        if not self._query.over:
            self._step(self._query.give_up)
            self._finish_if_over()

    def _step(self, step: Callable[..., Sequence[int] | None], *args: Any) -> Sequence[int]:
        """Take a step of the query. If a user's own policy raises, the request ends with 500."""
        try:
            return step(*args) or ()
        except Exception as error:
            policy = self._served.selection.settings.policy
            _LOG.exception("policy %s failed", policy, extra={"request_id": self._run.request.id})
            reply = error_reply(500, f"the policy {policy} failed: {type(error).__name__}")
            self._conductor.fail(self._run, reply)
            return ()

    def _woken(self) -> None:
        if self._query.over or self._run.progress.over:
            return
        now_s = self._conductor.now()
        if now_s < self._query.due_s:  # timers have a resolution of milliseconds
            self._timer = self._conductor.loop.call_later(self._query.due_s - now_s, self._woken)
            return
        self._go_on(self._step(self._query.woken, now_s), now_s, self._served.prices(now_s).now)

    def _go_on(self, candidates: Sequence[int], now_s: float, usd: Sequence[float]) -> None:
        conductor, run, counts = self._conductor, self._run, self._served.counts
        for candidate in candidates:
            # An immediate reply decided the query, or another item ended the request.
            if self._query.over or run.progress.over:
                break
            counts.asked[candidate] += 1
            least_s = conductor.backends[candidate].least_s
            needed_s = 0.0 if self._probes else least_s
            if not run.progress.in_time(now_s, needed_s):
                run.progress.drop(candidate, now_s)
                self._missed(candidate, conductor.too_late(candidate), now_s)
                continue
            counts.usd += usd[candidate]
            run.progress.begin(candidate, now_s)
            # If several candidates may answer, a call is useless once the query is decided.
            due_s = math.inf if self._query.alone else self._query.due_s
            conductor.call(run, candidate, self._call, now_s, needed_s, self._told, self._probes, due_s)
        self._finish_if_over()

    def _told(self, candidate: int, result: Any, error: Reply | None) -> None:
        now_s = self._conductor.now()
        if error is None:
            try:
                reply = self._served.reply_of(result)
            except NoAnswer as bad:
                what = f"stage {self._served.names[candidate]}: {bad}"
                _LOG.error("%s", what, extra={"request_id": self._run.request.id})
                self._run.progress.failed(candidate, FAILED)
                self._missed(candidate, error_reply(500, what), now_s)
                return
            was_over = self._query.over
            more = self._step(self._query.answered, candidate, reply, now_s)
            if was_over:
                self._notes.came_late()
            else:
                self._go_on(more, now_s, self._served.prices(now_s).now)
        else:
            self._missed(candidate, error, now_s)

    def _missed(self, candidate: int, error: Reply, now_s: float) -> None:
        if self._query.over:
            return
        self._served.counts.missed[candidate] += 1
        self._errors[candidate] = error
        self._go_on(self._step(self._query.missed, candidate, now_s), now_s, self._served.prices(now_s).now)

    def _finish_if_over(self) -> None:
        query, run = self._query, self._run
        # An immediate reply finishes the query within the call that asked for it.
        if self._finished or not query.over or run.progress.over:
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        decision, counts = query.decision, self._served.counts
        if self._served.follows_prices:
            counts.wanted.update(query.wanted())
        if decision is None:
            # The error is that of the last candidate tried; without one, time ran out.
            error = next(reversed(self._errors.values()), None)
            self._conductor.fail(run, error or error_reply(504, "the deadline passed before a candidate answered"))
            return
        counts.answers += 1
        if decision.by_default:
            counts.by_default += 1
        elif decision.choice.candidate is None:
            counts.averaged += 1
        else:
            counts.chosen[decision.choice.candidate] += 1
        self._conductor.done(run, self._index, decision.choice.result)
