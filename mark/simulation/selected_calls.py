"""The candidates that queries of a simulated selection ask, and whether their answers are correct.

Each query is a row of an answers file, drawn at random. The policy itself (`mark.selection`) determines the calls, as
in a server. Its learning is in steady state: tables of scores have all rows, sums have their expected values, and the
shares of bandits are those after `_WARM_UP` queries with feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray, IntArray
from mark.domain.pipeline import Lineage
from mark.planning.graphs.answers_file import Answers
from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply, Query
from mark.selection.query import Selection
from mark.selection.replay import LoggedQuery, replay
from mark.selection.score_table import ScoreTable
from mark.selection.settings import ABSOLUTE, EXP3, EXP4_THESIS, SPLIT, THOMPSON, ZERO_ONE, SelectionSettings
from mark.selection.state import Judge, SelectionState
from mark.selection.tally import Sums, discount_of

_WARM_UP, _MEASURED = 2_000, 8_000  # queries for finding the shares of a bandit
_NEVER_FORGETS = 1e6  # feedbacks in the sums of a policy without discount
_PATTERNS_OF = 10**9  # queries of a law: rarer patterns are left out
_MOST_PRICES = 64  # for which the answers of a cascade are kept


class SelectedCalls:
    """A policy on the answers to sample queries. Raises ValueError for a policy that is not mark's own."""

    def __init__(self, settings: SelectionSettings, answers: Answers, seed: int) -> None:
        candidates = len(answers.candidates)
        self.settings, self.answers = settings, answers
        self._policy = policy_of(settings, candidates, np.random.default_rng(seed))
        self._tables = _SettledTables(answers, fitted=settings.correct_usd is not None)
        memory = _NEVER_FORGETS if settings.policy == EXP4_THESIS else 1.0 / (1.0 - discount_of(settings.memory))
        losses = (memory * (1.0 - answers.correct.mean(axis=0))).tolist()
        self._sums = Sums([memory] * candidates, losses, losses)
        self._shares = _shares(settings, answers, seed)
        self._by_usd: dict[tuple[float, ...], IntArray] = {}

    @property
    def follows_prices(self) -> bool:
        """Whether a query's calls depend on the prices of calls."""
        return self.settings.correct_usd is not None

    def law(self, usd: Sequence[float]) -> Lineage:
        """Return the calls of queries at these prices of the candidates' calls."""
        names = self.answers.candidates
        if self._shares is not None:
            calls, weights = np.eye(len(names), dtype=np.int64), self._shares
        elif self.settings.threshold is None and self.settings.correct_usd is None:
            calls, weights = np.ones((1, len(names)), dtype=np.int64), np.ones(1)
        else:
            explores, rows = self.settings.explores, len(self.answers)
            calls = np.concatenate([self._by_row(usd), self._asked_by(range(rows), usd, explores=True)])
            weights = np.repeat([(1.0 - explores) / rows, explores / rows], rows)
        patterns, of = np.unique(calls, axis=0, return_inverse=True)
        counts = np.rint(_PATTERNS_OF * np.bincount(of.ravel(), weights)).astype(np.int64)
        order = [at for at in np.argsort(-counts, kind="stable") if counts[at] > 0]
        return Lineage(names, patterns[order], counts[order])

    def asked(self, rows: IntArray, usd: Sequence[float], generator: np.random.Generator) -> IntArray:
        """Return how often each of these queries calls each candidate, (queries, candidates)."""
        candidates = len(self.answers.candidates)
        if self._shares is not None:
            return np.eye(candidates, dtype=np.int64)[generator.choice(candidates, len(rows), p=self._shares)]
        if self.settings.threshold is None and self.settings.correct_usd is None:
            return np.ones((len(rows), candidates), dtype=np.int64)
        found = self._by_row(usd)[rows]
        explored = np.flatnonzero(generator.random(len(rows)) < self.settings.explores)
        found[explored] = self._asked_by(rows[explored].tolist(), usd, explores=True)
        return found

    def wanted(self, rows: IntArray, usd: Sequence[float]) -> FloatArray:
        """Return the number of calls of each candidate by these queries of a cascade, without exploration."""
        return np.asarray(self._by_row(usd)[rows].sum(axis=0), dtype=np.float64)

    def judged(self, rows: IntArray, answered: BoolArray) -> tuple[IntArray, FloatArray]:
        """Return the candidate whose answer each query got, and its correctness; -1 and 0 without an answer.

        `answered` (queries, candidates) has the candidates that answered in time.
        """
        sets = answered @ (1 << np.arange(answered.shape[1]))
        keys, of = np.unique(rows << answered.shape[1] | sets, return_inverse=True)
        chosen = np.full(len(keys), -1)
        correct = np.zeros(len(keys))
        for at, key in enumerate(keys.tolist()):
            row = key >> answered.shape[1]
            among = [one for one in range(answered.shape[1]) if key >> one & 1]
            if among:
                query = self._query(())
                query.asked = dict.fromkeys(among, 1.0)
                query.replies = {one: self._reply(row, one) for one in among}
                one = self._policy.combine(query).candidate
                assert one is not None, "labels are voted for, and not averaged"
                chosen[at], correct[at] = one, self.answers.correct[row, one]
        return chosen[of], correct[of]

    def _by_row(self, usd: Sequence[float]) -> IntArray:
        """Return the calls of a query that does not explore, by row of the answers."""
        key = tuple(usd)
        if key not in self._by_usd:
            if len(self._by_usd) >= _MOST_PRICES:
                self._by_usd.clear()
            self._by_usd[key] = self._asked_by(range(len(self.answers)), usd, explores=False)
        return self._by_usd[key]

    def _asked_by(self, rows: Sequence[int], usd: Sequence[float], *, explores: bool) -> IntArray:
        found = np.zeros((len(rows), len(self.answers.candidates)), dtype=np.int64)
        for at, row in enumerate(rows):
            query = self._query(usd)
            query.explores = explores
            while asks := self._policy.ask(query):
                for one, propensity in asks:
                    query.open.discard(one)
                    query.asked[one] = propensity
                    query.replies[one] = self._reply(row, one)
                    found[at, one] = 1
        return found

    def _query(self, usd: Sequence[float]) -> Query:
        everybody = set(range(len(self.answers.candidates)))
        return Query(self._sums, self._tables, usd, _undrawn, everybody, explore=self.settings.explores)

    def _reply(self, row: int, candidate: int) -> CandidateReply:
        """Return a reply. Wrong answers count as equal, because the file does not tell them apart."""
        return _reply(self.answers, row, candidate)


class SelectedQueries:
    """The queries of one run, each with its row of the answers. Prices of calls may change in each window."""

    def __init__(self, selected: SelectedCalls, queries: int, usd_per_call: Sequence[float], seed: int) -> None:
        self.selected, self._usd_per_call = selected, usd_per_call
        self._generator = np.random.default_rng([seed, 1])  # separate from the arrivals' stream
        self.rows: IntArray = self._generator.integers(0, len(selected.answers), queries)

    def asked(self, first: int, last: int, usd: Sequence[float]) -> IntArray:
        """Return the calls of the queries from `first` to before `last`, at prices of `usd` for instances."""
        return self.selected.asked(self.rows[first:last], self._priced(usd), self._generator)

    def wanted(self, first: int, last: int, usd: Sequence[float]) -> FloatArray:
        """Return the expected number of calls of each candidate by these queries, at prices of `usd` for instances."""
        return self.selected.wanted(self.rows[first:last], self._priced(usd))

    def _priced(self, usd: Sequence[float]) -> list[float]:
        return [one + other for one, other in zip(usd, self._usd_per_call, strict=True)]


@dataclass(frozen=True, slots=True)
class SelectionRun:
    """The figures of a selection: calls per query by candidate, and the shares of answers used, if known.

    `error` is the share of wrong answers among those given, `correct` the expected number of correct ones.
    """

    candidates: tuple[str, ...]
    asked: tuple[float, ...]
    call_usd: float  # of calls that are paid by the call
    answered: tuple[float, ...] | None = None
    error: float | None = None
    correct: float | None = None

    @property
    def asks_per_query(self) -> float:
        return sum(self.asked)


def selection_run(
    candidates: Sequence[str],
    calls: IntArray,
    usd_per_call: Sequence[float],
    made: Sequence[int],
    queries: SelectedQueries | None,
    answered: BoolArray,
) -> SelectionRun:
    """Return the figures of a run: `calls` are the requested calls, `made` the calls made, by candidate."""
    asked = tuple(calls.mean(axis=0).tolist())
    call_usd = sum(usd * count for usd, count in zip(usd_per_call, made, strict=True))
    if queries is None:
        return SelectionRun(tuple(candidates), asked, call_usd)
    chosen, correct = queries.selected.judged(queries.rows, answered)
    given = np.bincount(chosen[chosen >= 0], minlength=len(candidates))
    total, right = int(given.sum()), float(correct.sum())
    if not total:
        return SelectionRun(tuple(candidates), asked, call_usd, (0.0,) * len(candidates), None, 0.0)
    return SelectionRun(tuple(candidates), asked, call_usd, tuple((given / total).tolist()), 1.0 - right / total, right)


class _SettledTables:
    """The probability that a candidate is correct, by the score of one asked before it, from all rows."""

    def __init__(self, answers: Answers, *, fitted: bool) -> None:
        self._tables: dict[tuple[int, int], ScoreTable] = {}
        self._known: dict[tuple[int, float, int], float] = {}
        candidates = len(answers.candidates)
        for asked in range(candidates if fitted else 0):
            scored = np.flatnonzero(np.isfinite(answers.scores[:, asked])).tolist()
            for one in range(asked, candidates):
                table = self._tables[asked, one] = ScoreTable()
                for row in scored:
                    table.add(float(answers.scores[row, asked]), float(answers.correct[row, one]))

    def correct(self, asked: int, score: float, candidate: int) -> float | None:
        if (asked, candidate) not in self._tables:
            return None
        key = asked, score, candidate
        if key not in self._known:
            self._known[key] = self._tables[asked, candidate].probability(score)
        return self._known[key]


def _shares(settings: SelectionSettings, answers: Answers, seed: int) -> FloatArray | None:
    """Return the share of the queries that ask each candidate; None if a query may ask several."""
    candidates = len(answers.candidates)
    if settings.policy == SPLIT:
        return split_shares(settings, candidates)
    if settings.policy not in (EXP3, THOMPSON):
        return None
    loss = ZERO_ONE if np.isin(answers.correct, (0.0, 1.0)).all() else ABSOLUTE  # as from labels of 1
    plain = replace(
        settings, loss=loss, loss_scale=1.0, champion=None, min_confidence=None, has_default=False, by_key=False
    )
    generator = np.random.default_rng([seed, 2])
    state = SelectionState(answers.candidates, plain)
    selection = Selection(policy_of(plain, candidates, generator), state, plain, generator.random)
    free = [0.0] * candidates
    queries = [
        LoggedQuery(1.0, [_reply(answers, row, one) for one in range(candidates)], free)
        for row in generator.integers(0, len(answers), _WARM_UP + _MEASURED).tolist()
    ]
    judge = Judge(state, None)
    replay(queries[:_WARM_UP], selection, judge)
    calls = replay(queries[_WARM_UP:], selection, judge).calls
    return np.array([calls[one,] for one in range(candidates)]) / _MEASURED


def split_shares(settings: SelectionSettings, candidates: int) -> FloatArray:
    """Return the shares of policy `split`: the file's weights, and equal shares of the queries that explore."""
    even = np.full(candidates, 1.0 / candidates)
    weights = np.array(settings.weights) if settings.weights else even
    shares: FloatArray = (1.0 - settings.explores) * weights / weights.sum() + settings.explores * even
    return shares


def _reply(answers: Answers, row: int, candidate: int) -> CandidateReply:
    correct, score = float(answers.correct[row, candidate]), float(answers.scores[row, candidate])
    return CandidateReply(correct, correct, score if score == score else None)


def _undrawn() -> float:
    raise AssertionError("a policy that draws is simulated by its shares")
