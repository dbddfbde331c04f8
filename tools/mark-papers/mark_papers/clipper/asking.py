"""Ask a selection queries one after the other, and give it each label right after the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply
from mark.selection.query import Selection, SelectionDecision
from mark.selection.settings import SelectionSettings
from mark.selection.state import Judge, SelectionState


class AskedLearner:
    """A selection among `names`, with its own generator."""

    def __init__(self, names: Sequence[str], settings: SelectionSettings, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.state = SelectionState(names, settings)
        self.selection = Selection(policy_of(settings, len(names), generator), self.state, settings, generator.random)
        self._judge = Judge(self.state, None)

    def ask(
        self,
        answers: Sequence[int],
        label: int | None,
        key: str = "",
        latencies_s: Sequence[float] | None = None,
        told: Callable[[float], None] | None = None,
    ) -> SelectionDecision:
        """Return the answer to a query, and then give the label, unless it is None, as feedback.

        With `latencies_s` each candidate replies that long after the query, and `told` is called with the time of the
        answer. Later replies count for feedback, as in a server.
        """
        machine = self.selection.open(key, [0.0] * len(answers), math.inf, 0.0)
        waiting = {one: _reply_s(latencies_s, one) for one in machine.start(0.0)}
        decided_s = 0.0
        while waiting:
            candidate = min(waiting, key=lambda one: (waiting[one], one))
            at_s = waiting.pop(candidate)
            if not machine.over and at_s > machine.due_s:
                machine.woken(machine.due_s)
                decided_s = machine.due_s
            open_before = not machine.over
            for more in machine.answered(candidate, CandidateReply(answers[candidate], answers[candidate]), at_s):
                waiting[more] = at_s + _reply_s(latencies_s, more)
            if open_before:
                decided_s = at_s
        assert machine.decision is not None
        if told is not None:
            told(decided_s)
        if label is not None:
            fact = self._judge.by_label(machine.note(), label)
            assert fact is not None
            self.state.apply(fact)
        return machine.decision


def _reply_s(latencies_s: Sequence[float] | None, candidate: int) -> float:
    return 0.0 if latencies_s is None else latencies_s[candidate]
