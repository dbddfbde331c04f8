"""The guard: is a challenger's error rate above the champion's, with a stated probability of a false alarm?

A safe test, valid at any time (Turner, Ly and Gruenwald 2021): each outcome multiplies an e-value by a ratio of
likelihoods, which uses error rates estimated from earlier outcomes. If the challenger is not worse, the e-value reaches
1/a with a probability of at most a, however long the test runs. Writers add up logarithms, so the order of their facts
does not matter. A writer that restarts begins with new estimates.

If a policy drew one of the two, the ratio compares the likelihood of its outcome with that of the mixture of both by
the probabilities of the draw. These are known, so the test holds for policies that learn, and while queries become
harder or easier. If both candidates answered the same query, it counts only if exactly one of them was wrong.
"""

from __future__ import annotations

import math

FALSE_ALARM = 0.01  # of all challengers of a selection together
_PSEUDO = 18.0  # outcomes at the champion's rate with which the challenger's estimate begins
_ERROR = 0.5


class Duel:
    """The counts of one writer for a champion and a challenger. An error is a loss of one half or more.

    Both methods return the growth of the logarithm of the evidence that the challenger is worse.
    """

    __slots__ = ("_only", "_seen", "_wrong")

    def __init__(self) -> None:
        self._seen, self._wrong = [0.0, 0.0], [0.0, 0.0]  # by the champion alone, by the challenger alone
        self._only = [0.0, 0.0]  # queries that only the champion, and only the challenger got wrong

    def pair(self, champion: float, challenger: float) -> float:
        """Count a query that both answered."""
        wrong, worse = champion >= _ERROR, challenger >= _ERROR
        if wrong == worse:
            return 0.0
        # The challenger's share of the earlier queries that one of them got wrong, at least one half.
        share = max(0.5, (self._only[1] + 1.0) / (self._only[0] + self._only[1] + 2.0))
        self._only[worse] += 1.0
        return math.log(2.0 * (share if worse else 1.0 - share))

    def alone(self, *, challenger: bool, loss: float, share: float) -> float:
        """Count a query that one of the two answered; the challenger was drawn with the probability `share`."""
        rate = (self._wrong[0] + 0.5) / (self._seen[0] + 1.0)
        worse = max(rate, (self._wrong[1] + _PSEUDO * rate) / (self._seen[1] + _PSEUDO))
        both = share * worse + (1.0 - share) * rate
        own, wrong = (worse if challenger else rate), loss >= _ERROR
        self._seen[challenger] += 1.0
        self._wrong[challenger] += wrong
        return math.log(own / both) if wrong else math.log((1.0 - own) / (1.0 - both))


def switches_off(log_evidence: float, challengers: int) -> bool:
    """Return whether a challenger is proved worse, if `challengers` are tested together."""
    return log_evidence >= math.log(max(1, challengers) / FALSE_ALARM)
