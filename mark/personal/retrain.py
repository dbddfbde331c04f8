"""Judge whether a new table or model of item vectors is better than the present one, by rewards it was not made from.

The oldest observations train the new source of vectors. Heads behind both sources learn the same observations, and both
predict each newer observation before they learn it. So the errors are held out, and their differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mark.personal.factors import RIDGE, item_factors
from mark.personal.judge import ErrorJudge, ErrorTally
from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.settings import PersonalSettings
from mark.personal.table import ItemTable

RMSE, MAE, LOG_LOSS = "rmse", "mae", "log_loss"
LEAST = 100  # observations; fewer are not enough to judge
_LEAST_SHARE = 1e-9  # of a predicted click, whose logarithm would be infinite at 0
_PROGRESS_EVERY = 1000


@dataclass(slots=True)
class SourceTrial:
    """Errors behind both sources of vectors, on `judged` observations.

    `gains` has the present error minus the new error, by segment. `lacking` counts items with observations that only
    the present table has: with the new table a server would refuse them.
    """

    metric: str
    trained: int
    lacking: int = 0
    present: ErrorTally = field(default_factory=ErrorTally)
    new: ErrorTally = field(default_factory=ErrorTally)
    gains: ErrorJudge = field(default_factory=ErrorJudge)

    @property
    def judged(self) -> int:
        """The number of observations that were predicted."""
        return self.present.count

    def error(self, tally: ErrorTally) -> float:
        """Return the error by the metric."""
        return math.sqrt(tally.mean) if self.metric == RMSE else tally.mean

    def refusal(self) -> str | None:
        """Return why the new source is not promoted; None if it is proved better, and for no segment proved worse."""
        if self.lacking:
            return f"the new table lacks {self.lacking:,} items that have observations"
        low, high = self.gains.tally("").interval()
        if low <= 0.0:
            return "its error is higher" if high < 0.0 else "the rewards do not prove that its error is lower"
        for _, segment, gain in self.gains.rows():
            if gain.interval()[1] < 0.0:
                return f"its error is higher for keys with {segment} observations"
        return None


@dataclass(frozen=True, slots=True)
class Retrained:
    """The result of retraining: the present and the new version of a table or model.

    If `why_not` is None, the new version was promoted to `alias`. A service file serves it by naming `reference`, and
    `is_served` says whether the file does. `unlogged` observations were not used, because the log lacks their inputs.
    """

    present: str
    new: str
    alias: str
    keys: int
    trial: SourceTrial
    why_not: str | None
    reference: str
    is_served: bool
    unlogged: int = 0


def split_by_time(
    observations: Sequence[PersonalObservation], held_out: float
) -> tuple[list[PersonalObservation], list[PersonalObservation]]:
    """Return the oldest observations, and the newest ones, which are the share `held_out` of all."""
    ordered = sorted(observations, key=lambda one: (one.at_s, one.key, one.item or ""))
    begin = len(ordered) - round(held_out * len(ordered))
    return ordered[:begin], ordered[begin:]


def fitted_table(observations: Sequence[PersonalObservation], present: ItemTable, ridge: float) -> ItemTable:
    """Return a table of the same items whose vectors are fitted to these rewards by matrix factorisation.

    Vectors are scaled so that heads with this `ridge` predict as the factorisation does.
    """
    numbers: dict[str, int] = {}
    known = [one for one in observations if one.item in present.numbers]
    keys = np.array([numbers.setdefault(one.key, len(numbers)) for one in known], dtype=np.int64)
    items = np.array([present.numbers[one.item or ""] for one in known], dtype=np.int64)
    rewards = np.array([one.reward for one in known])
    vectors = item_factors(keys, items, rewards, len(present), seed=0) * math.sqrt(ridge / RIDGE)
    return ItemTable(present.ids, vectors, "fitted item vectors")


def try_table(
    settings: PersonalSettings,
    metric: str,
    before: Sequence[PersonalObservation],
    after: Sequence[PersonalObservation],
    present: ItemTable,
    new: ItemTable,
    progress: Callable[[float], None] | None = None,
) -> SourceTrial:
    """Let heads behind both tables learn `before`, and judge them on `after`. Items of only one table do not count."""
    heads = [PersonalLearner(settings, version=name, table=table) for name, table in (("", present), ("new", new))]
    seen = {one.item for part in (before, after) for one in part}
    lacking = len(seen & (present.numbers.keys() - new.numbers.keys()))
    rows = [
        *((one, one, False) for one in before),
        *((one, one, one.item in present.numbers and one.item in new.numbers) for one in after),
    ]
    return _tried(metric, heads, rows, SourceTrial(metric, len(before), lacking=lacking), progress)


def try_vectors(
    settings: PersonalSettings,
    metric: str,
    before: Sequence[tuple[PersonalObservation, PersonalObservation]],
    after: Sequence[tuple[PersonalObservation, PersonalObservation]],
    progress: Callable[[float], None] | None = None,
) -> SourceTrial:
    """Do as `try_table` does, for pairs of observations with the vectors of the present and the new model."""
    heads = [
        PersonalLearner(settings, version=name, dimension=len(one.vector if one.vector is not None else ()))
        for name, one in zip(("", "new"), before[0], strict=True)
    ]
    rows = [*((*pair, False) for pair in before), *((*pair, True) for pair in after)]
    return _tried(metric, heads, rows, SourceTrial(metric, len(before)), progress)


def _tried(
    metric: str,
    heads: Sequence[PersonalLearner],
    rows: Sequence[tuple[PersonalObservation, PersonalObservation, bool]],
    trial: SourceTrial,
    progress: Callable[[float], None] | None,
) -> SourceTrial:
    """Let the heads learn each row's observations, and judge the rows that are marked to be judged."""
    counts: dict[str, int] = {}
    for number, (present, new, is_judged) in enumerate(rows):
        key = present.key
        if is_judged:
            errors = [
                _error(metric, _predicted(head, one), one.reward)
                for head, one in zip(heads, (present, new), strict=True)
            ]
            trial.present.add(errors[0])
            trial.new.add(errors[1])
            trial.gains.add("", counts.get(key, 0), errors[0] - errors[1])
        for head, one in zip(heads, (present, new), strict=True):
            head.observe(one, judged=False)
        counts[key] = counts.get(key, 0) + 1
        if progress is not None and number % _PROGRESS_EVERY == 0:
            progress(number / len(rows))
    return trial


def _predicted(head: PersonalLearner, one: PersonalObservation) -> float:
    vectors = None if one.vector is None else one.vector[None, :]
    return float(head.score(one.key, vectors, None if one.item is None else [one.item]).values[0])


def _error(metric: str, predicted: float, reward: float) -> float:
    if metric == LOG_LOSS:
        share = min(1.0 - _LEAST_SHARE, max(_LEAST_SHARE, predicted))
        return -reward * math.log(share) - (1.0 - reward) * math.log(1.0 - share)
    return abs(predicted - reward) if metric == MAE else (predicted - reward) ** 2
