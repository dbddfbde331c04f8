"""Cascades: ask candidates in the file's order, the next one only while its answer is worth its price.

With `threshold` the next candidate is asked while the score is below it. With `correct_usd` it is asked while

    (P(the next is correct | score) - P(this is correct | score)) x correct_usd > price of the call

where both probabilities are isotonic in the score of the last candidate that answered (`mark.selection.score_table`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mark.selection.policy import Choice, Query, SelectionPolicy, answer_of


class Cascade:
    """The policy with either `threshold` or `correct_usd`; see the module.

    Explored queries ask every candidate, and so do all queries with `correct_usd` until enough labels are known:
    otherwise too little would be known of the later candidates.
    """

    def __init__(self, *, threshold: float | None = None, correct_usd: float | None = None) -> None:
        if (threshold is None) == (correct_usd is None):
            raise ValueError("a cascade has a threshold or a value of a correct answer")
        self._threshold, self._correct_usd = threshold, correct_usd

    def ask(self, query: Query) -> Sequence[tuple[int, float]]:
        if query.waits or not query.open:
            return ()
        if not query.replies:
            return ((min(query.open), 1.0),)
        last = max(query.replies)
        following = sorted([one for one in query.open if one > last])
        if not following:
            return ()
        found = self._worth(query, last, following)
        if found is not None:
            return ((found, 1.0),)
        return ((following[0], query.explore),) if query.explores else ()

    def _worth(self, query: Query, last: int, following: Sequence[int]) -> int | None:
        """Return the next candidate that is worth its price; None if no candidate is."""
        score = query.replies[last].score
        if score is None:
            return following[0]
        if self._threshold is not None:
            return following[0] if score < self._threshold else None
        assert self._correct_usd is not None
        now = query.tables.correct(last, score, last)
        best, most = None, 0.0
        for one in following:
            then = query.tables.correct(last, score, one)
            if now is None or then is None:
                return one  # too few labels to judge it
            gain = (then - now) * self._correct_usd - query.usd[one]
            if gain > most:
                best, most = one, gain
        return best

    def combine(self, query: Query) -> Choice:
        return answer_of(query, max(query.replies))

    def settled(self, query: Query) -> bool:
        return False


_: type[SelectionPolicy] = Cascade
