"""A new table is promoted where newer rewards prove it better, and for nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mark.personal.learner import PersonalLearner, PersonalObservation
from mark.personal.retrain import LOG_LOSS, MAE, RMSE, SourceTrial, fitted_table, split_by_time, try_table
from mark.personal.settings import LOGISTIC, PersonalSettings
from mark.personal.table import ItemTable
from tests.personal.logs import low_rank_log

SETTINGS = PersonalSettings(table="t")


def observations(seed: int = 0) -> list[PersonalObservation]:
    log = low_rank_log(seed=seed)
    return [
        PersonalObservation(log.key_names[key], log.item_names[item], None, float(reward), float(at_s))
        for key, item, reward, at_s in zip(log.keys, log.items, log.rewards, log.times_s, strict=True)
    ]


def noise(items: int = 60, seed: int = 1) -> ItemTable:
    """Return vectors that are unrelated to the items."""
    vectors = np.random.default_rng(seed).normal(size=(items, 4)) / 2
    return ItemTable([f"i{at}" for at in range(items)], vectors, "noise")


def test_fitted_table_is_promoted_over_vectors_that_say_nothing() -> None:
    before, after = split_by_time(observations(), 0.3)
    present = noise()
    new = fitted_table(before, present, SETTINGS.ridge)
    shares: list[float] = []
    trial = try_table(SETTINGS, RMSE, before, after, present, new, shares.append)

    assert (trial.trained, trial.judged) == (len(before), len(after)) == (1120, 480)
    assert trial.error(trial.new) < 0.7 * trial.error(trial.present)
    assert trial.refusal() is None
    assert shares[0] == 0.0
    assert shares == sorted(shares)


def test_present_table_stays_where_the_new_one_is_equal_or_worse() -> None:
    before, after = split_by_time(observations(), 0.3)
    present = fitted_table(before, noise(), SETTINGS.ridge)
    equal = try_table(SETTINGS, RMSE, before, after, present, present)
    worse = try_table(SETTINGS, RMSE, before, after, present, noise())

    assert equal.error(equal.new) == equal.error(equal.present)
    assert equal.refusal() == "the rewards do not prove that its error is lower"
    assert worse.refusal() == "its error is higher"


def test_new_table_that_lacks_items_with_observations_is_not_promoted() -> None:
    before, after = split_by_time(observations(), 0.3)
    fitted = fitted_table(before, noise(), SETTINGS.ridge)
    shorter = ItemTable(fitted.ids[:50], fitted.vectors[:50], "shorter")
    trial = try_table(SETTINGS, RMSE, before, after, noise(), shorter)

    assert trial.lacking == 10
    assert trial.judged < len(after), "items of one table only are not judged"
    assert trial.refusal() == "the new table lacks 10 items that have observations"


def test_new_table_that_is_worse_for_a_group_of_keys_is_not_promoted() -> None:
    trial = SourceTrial(RMSE, 100)
    for before, gain in ((0, -1.0), (150, 3.0)):
        for _ in range(400):
            trial.gains.add("", before, gain)

    assert trial.refusal() == "its error is higher for keys with new observations"


def test_errors_are_those_of_learners_that_know_only_what_came_before() -> None:
    """The reference is the naive loop: a new learner for each prediction, which learns all earlier observations."""
    before, after = split_by_time(observations(), 0.01)
    table = noise()
    for metric in (RMSE, MAE):
        trial = try_table(SETTINGS, metric, before, after, table, table)
        errors = []
        for at, one in enumerate(after):
            learner = PersonalLearner(SETTINGS, table=table)
            for known in [*before, *after[:at]]:
                learner.observe(known, judged=False)
            error = abs(float(learner.score(one.key, None, [str(one.item)]).values[0]) - one.reward)
            errors.append(error**2 if metric == RMSE else error)
        expected = math.sqrt(np.mean(errors)) if metric == RMSE else float(np.mean(errors))
        assert trial.error(trial.present) == pytest.approx(expected, rel=1e-2), "heads are built again now and then"


def test_log_loss_of_clicks_is_that_of_the_predicted_shares() -> None:
    settings = PersonalSettings(table="t", loss=LOGISTIC)
    clicks = [
        PersonalObservation(one.key, one.item, None, float(one.reward > 3.0), one.at_s) for one in observations()[:120]
    ]
    before, after = split_by_time(clicks, 0.25)
    trial = try_table(settings, LOG_LOSS, before, after, noise(), noise())

    assert 0.3 < trial.error(trial.present) < 1.2
    assert trial.error(trial.present) == trial.error(trial.new)


def test_split_is_by_time_and_not_by_the_order_of_keys() -> None:
    mixed = [PersonalObservation(key, "i1", None, 1.0, at_s) for key, at_s in (("b", 3.0), ("a", 4.0), ("c", 1.0))]
    before, after = split_by_time(mixed, 0.4)

    assert [one.at_s for one in before] == [1.0, 3.0]
    assert [one.at_s for one in after] == [4.0]
