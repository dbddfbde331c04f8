"""The guard: is a challenger's error rate above the champion's, with a stated probability of a false alarm?

A safe test, valid at any time (Turner, Ly and Gruenwald 2021): each block of outcomes multiplies an e-value by a ratio
of likelihoods, in which the champion's and the challenger's rates were estimated before the block. If both rates are
alike the e-value reaches 1/a with a probability of at most a, however long the test runs. Writers add up logarithms, so
the order in which their blocks are known does not matter.

Where both candidates answered the same query only queries count on which one of them was wrong: by the same argument,
with a coin whose bias was estimated before.
"""

from __future__ import annotations

import math
from collections import deque

FALSE_ALARM = 0.01  # of all challengers of a selection together
_MOST_CHAMPIONS = 9  # outcomes of the champion for one of the challenger
_PSEUDO = 18.0  # outcomes with which the challenger's estimate begins at the champion's
_MOST_WAITING = 10_000
_ERROR = 0.5


class Duel:
    """The evidence of one writer that a challenger is worse. An error is a loss of one half or more."""

    def __init__(self) -> None:
        self._champion: deque[float] = deque(maxlen=_MOST_WAITING)
        self._challenger: deque[float] = deque(maxlen=_MOST_WAITING)
        self._seen, self._wrong = [0.0, 0.0], [0.0, 0.0]  # in blocks: of the champion, and of the challenger
        self._only = [0.0, 0.0]  # queries that only the champion, and only the challenger got wrong
        self._block = 1  # outcomes of the champion in the next block

    def pair(self, champion: float, challenger: float) -> float:
        """Both answered one query: the logarithm by which the evidence grows."""
        wrong, worse = champion >= _ERROR, challenger >= _ERROR
        if wrong == worse:
            return 0.0
        # Before the pair: the share of such queries that the challenger got wrong, at least one half.
        share = max(0.5, (self._only[1] + 1.0) / (self._only[0] + self._only[1] + 2.0))
        self._only[worse] += 1.0
        return math.log(2.0 * (share if worse else 1.0 - share))

    def champion(self, loss: float) -> float:
        """The champion answered a query alone."""
        self._champion.append(float(loss >= _ERROR))
        return self._blocks()

    def challenger(self, loss: float) -> float:
        """The challenger did."""
        self._challenger.append(float(loss >= _ERROR))
        return self._blocks()

    def _blocks(self) -> float:
        grown = 0.0
        while self._challenger and len(self._champion) >= self._block:
            wrong_a = sum(self._champion.popleft() for _ in range(self._block))
            grown += self._log_ratio(self._block, wrong_a, self._challenger.popleft())
            # As many as there are for each of the challenger's: known before the next block begins.
            waiting = len(self._champion) / max(1, len(self._challenger))
            self._block = max(1, min(_MOST_CHAMPIONS, round(max(waiting, self._seen[0] / max(1.0, self._seen[1])))))
        return grown

    def _log_ratio(self, n_a: int, wrong_a: float, wrong_b: float) -> float:
        seen_a, seen_b = self._seen
        p_a = (self._wrong[0] + 0.5) / (seen_a + 1.0)
        p_b = max(p_a, (self._wrong[1] + _PSEUDO * p_a) / (seen_b + _PSEUDO))
        both = (n_a * p_a + p_b) / (n_a + 1.0)
        self._seen = [seen_a + n_a, seen_b + 1.0]
        self._wrong = [self._wrong[0] + wrong_a, self._wrong[1] + wrong_b]
        return (
            wrong_a * math.log(p_a / both)
            + (n_a - wrong_a) * math.log((1.0 - p_a) / (1.0 - both))
            + wrong_b * math.log(p_b / both)
            + (1.0 - wrong_b) * math.log((1.0 - p_b) / (1.0 - both))
        )


def switches_off(log_evidence: float, challengers: int) -> bool:
    """Is a challenger proved worse, where `challengers` are tested together?"""
    return log_evidence >= math.log(challengers / FALSE_ALARM)
