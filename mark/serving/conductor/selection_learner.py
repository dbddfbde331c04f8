"""The learner of a selection: it makes facts from observations, and adds facts to the state.

`mark.serving.learned` stores the facts and brings those of other processes.
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
    """The learner of one selection. It adds the quality of its answers to `counts`.

    `champion` is the key of the candidate that the guard defends; None: no guard.
    """

    def __init__(self, state: SelectionState, counts: SelectionCounts, champion: str | None = None) -> None:
        self.state, self._counts = state, counts
        self._judge = Judge(state, champion)

    def fact(self, observation: Observation) -> bytes | None:
        """Return the fact that feedback on an answer teaches, or None. May run in another thread than `apply`."""
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
        """Add a fact from this process or another one. A malformed fact is logged and ignored."""
        try:
            facts = facts_from_json(fact)
        except ValueError as error:
            _LOG.error("a fact of another process is malformed: %s", error)
            return
        for one in facts:
            self.state.apply(one)

    def freeze(self) -> Callable[[], bytes]:
        """Return a function that gives the state after all facts applied so far. It is small, so it is encoded here."""
        state = self.state.dump()
        return lambda: state

    def restore(self, state: bytes) -> None:
        """Replace the state. Raises ValueError unless `state` is a snapshot."""
        self.state.load(state)


def _labels(said: object, items: int) -> list[Any] | None:
    """Return the label of each item, or None if the labels do not match the items.

    The label of a single item may be given alone or in a list.
    """
    labels = [said] if items == 1 and not (isinstance(said, list) and len(said) == 1) else said
    if not isinstance(labels, list) or len(labels) != items:
        return None
    try:
        return [label_of(one) for one in labels]
    except NoAnswer:
        return None
