"""What a selection learns from feedback: facts made of observations, and the state that they add up to.

`mark.serving.learned` writes the facts down, and brings those of other processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mark.selection.labels import NoAnswer, label_of
from mark.selection.outcome import facts_from_json, facts_to_json, notes_from_json
from mark.selection.state import Judge, SelectionState
from mark.serving.conductor.selected import SelectionCounts
from mark.serving.feedback.port import Observation

_LOG = logging.getLogger("mark.serving")


class SelectionLearner:
    """The learner of one selection; `counts` are told how good its answers were.

    `champion` is the key of the candidate that the guard defends; None: no guard.
    """

    def __init__(self, state: SelectionState, counts: SelectionCounts, champion: str | None = None) -> None:
        self.state, self._counts = state, counts
        self._judge = Judge(state, champion)

    def fact(self, observation: Observation) -> bytes | None:
        """What feedback on an answer teaches; None: nothing. It may be called in another thread than `apply`."""
        provenance = observation.answer.provenance
        if provenance is None or not provenance.note:
            return None
        notes, said = notes_from_json(provenance.note), observation.feedback.said
        if "label" in said:
            labels = _labels(said["label"], len(notes))
            if labels is None:
                return None
            default = self.state.settings.default
            given = [default if note.by_default else note.label for note in notes]
            rights = [1.0 - self._judge.loss(one, label) for one, label in zip(given, labels, strict=True)]
            found = [self._judge.by_label(note, label) for note, label in zip(notes, labels, strict=True)]
        else:
            reward = float(said["reward"])
            if not 0.0 <= reward <= 1.0:
                return None
            rights, found = [reward] * len(notes), [self._judge.by_reward(note, reward) for note in notes]
        facts = [one for one in found if one is not None]
        if not facts:
            return None
        self._counts.judged += len(rights)
        self._counts.wrong += len(rights) - sum(rights)
        return facts_to_json(facts)

    def apply(self, fact: bytes) -> None:
        """Add what this process or another one has learned. A malformed fact is logged and left out."""
        try:
            facts = facts_from_json(fact)
        except ValueError as error:
            _LOG.error("a fact of another process is malformed: %s", error)
            return
        for one in facts:
            self.state.apply(one)

    def freeze(self) -> Callable[[], bytes]:
        """What gives the state after all facts that were applied. It is small, so it is encoded at once."""
        state = self.state.dump()
        return lambda: state

    def restore(self, state: bytes) -> None:
        """Replace the state. Raises ValueError for what is no snapshot."""
        self.state.load(state)


def _labels(said: object, items: int) -> list[Any] | None:
    """The label of each of a request's items. Of a single item it may stand alone or in a list; None: it fits not."""
    labels = [said] if items == 1 and not (isinstance(said, list) and len(said) == 1) else said
    if not isinstance(labels, list) or len(labels) != items:
        return None
    try:
        return [label_of(one) for one in labels]
    except NoAnswer:
        return None
