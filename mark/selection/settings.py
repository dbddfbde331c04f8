"""The settings of a selection: section `[selection]` of a pipeline file."""

from __future__ import annotations

import math
from dataclasses import dataclass

SPLIT, EXP3, EXP4, EXP4_THESIS, THOMPSON, CASCADE = "split", "exp3", "exp4", "exp4:thesis", "thompson", "cascade"
POLICIES = (SPLIT, EXP3, EXP4, EXP4_THESIS, THOMPSON, CASCADE)
# Policies whose loss estimates come from one asked candidate need a longer memory than those that see every answer.
BANDITS = (EXP3, THOMPSON)
_HALF_LIFE, _BANDIT_HALF_LIFE = 140.0, 350.0

ZERO_ONE, ABSOLUTE, SQUARED = "zero-one", "absolute", "squared"
LOSSES = (ZERO_ONE, ABSOLUTE, SQUARED)

MOST_CANDIDATES = 16
_CASCADE_EXPLORES = 0.02


@dataclass(frozen=True, slots=True)
class SelectionSettings:
    """How queries are given to the candidates of a selection, and how feedback is judged.

    `policy` is one of `POLICIES` or `module:Class`. A cascade has either `correct_usd`, the value of a correct answer
    in dollars, or `threshold`, the score from which it asks no further candidate. After `half_life` feedbacks an
    observation has half its weight.
    """

    policy: str
    weights: tuple[float, ...] = ()  # of `split`, by candidate; empty: equal
    correct_usd: float | None = None
    threshold: float | None = None
    deadline_s: float = math.inf  # after the arrival; the answers that came by then are combined
    min_confidence: float | None = None
    default: object = None  # the answer below `min_confidence`, or if no candidate answers in time
    has_default: bool = False
    by_key: bool = False  # whether each `mark-key` has its own context
    half_life: float | None = None  # None: the policy's own
    explore: float | None = None  # share of queries that ask at random, in a cascade all in turn; None: the policy's
    champion: str | None = None  # candidates that are proved worse than this one are switched off
    answer: str | None = None  # the field of a result that is the answer; None: the result itself
    score: str | None = None  # the field of a result that says how sure the model is
    loss: str = ZERO_ONE
    loss_scale: float = 1.0  # a numeric loss of this size counts as 1

    @property
    def memory(self) -> float:
        """The half-life in feedbacks."""
        if self.half_life is not None:
            return self.half_life
        return _BANDIT_HALF_LIFE if self.policy in BANDITS else _HALF_LIFE

    @property
    def explores(self) -> float:
        """The share of queries that explore. Policies that draw at random anyway need none."""
        if self.explore is not None:
            return self.explore
        return _CASCADE_EXPLORES if self.policy == CASCADE else 0.0

    @property
    def learns(self) -> bool:
        """Whether feedback changes any answer."""
        learning = (EXP3, EXP4, EXP4_THESIS, THOMPSON)
        by_feedback = (self.correct_usd, self.champion, self.min_confidence)
        return self.policy in learning or any(one is not None for one in by_feedback)
