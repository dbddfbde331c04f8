"""A predictor never stops the controller: after any failure there is a forecast, and a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.load import Load
from mark.traffic.forecast import supervised as module
from mark.traffic.forecast.supervised import Supervised
from tests.traffic.forecast.faulty import FAULTS, WRONG, Faulty, Minutes, assert_usable, load

DAY = [100.0] * 1440


def test_a_good_predictor_is_heard_and_not_judged() -> None:
    """Its forecasts pass unchanged, and each call is made once."""
    run = Minutes(history=DAY)
    assert run.pass_(times=200) == [""] * 200
    assert run.supervised.causes == {}
    assert run.predictor.calls == [("fit", 1440)] + [("update", 1), ("predict", 60)] * 200


@pytest.mark.parametrize("fault", WRONG)
def test_only_a_wrong_forecast_is_replaced(fault: str) -> None:
    """Nothing a planner could not use gets through; one slip costs one answer."""
    run = Minutes(history=DAY)
    assert run.pass_(fault) + run.pass_() == [module.INVALID, ""]


def test_a_raising_predict_is_replaced_and_its_message_kept() -> None:
    """The name of the reason is bounded, and the first message is kept with it."""
    run = Minutes(history=DAY)
    assert run.pass_("predict") + run.pass_() == [module.PREDICT_RAISED, ""]
    assert run.supervised.causes == {module.PREDICT_RAISED: "ArithmeticError: predict of 60 steps"}


def test_a_forecast_far_beyond_everything_seen_has_exploded() -> None:
    """A forecast a hundred times above the highest rate ever seen is rejected."""
    run = Minutes(history=DAY)
    assert run.pass_("exploding") + run.pass_() == [module.EXPLODED, ""]


@pytest.mark.parametrize(("most_times", "stands_in"), [(0.9, module.EXPLODED), (0.95, "")])
def test_the_highest_rate_ever_seen_is_that_of_5_s(most_times: float, stands_in: str) -> None:
    """The forecast reaches 110 requests/s, and 120 were seen: 0.92 times."""
    supervised = Supervised(Faulty(), most_times=most_times)
    supervised.fit(load(0.0, DAY))
    supervised.predict(60)
    assert supervised.stands_in == stands_in


@pytest.mark.parametrize(
    ("history", "forecast_rps", "stands_in"),
    [([], 1e9, ""), ([np.nan], 1e9, ""), ([0.0], 1.5, ""), ([0.0], 2.0, module.EXPLODED)],
)
def test_any_finite_forecast_is_believed_before_load_was_seen(
    history: list[float], forecast_rps: float, stands_in: str
) -> None:
    """After a history without requests a forecast may reach 100 a minute (1.1 x 1.5 a second), and no more."""
    run = Minutes(history=history)
    run.predictor.rate_rps = forecast_rps
    run.supervised.predict(60)
    assert run.supervised.stands_in == stands_in


def test_failures_count_in_a_row() -> None:
    """Two, a good one and two more are not three; a good hour is one without a failure."""
    run = Minutes(history=DAY)
    assert run.pass_("nan", times=2) + run.pass_() == [module.INVALID] * 2 + [""]
    assert run.pass_("nan", times=2) + run.pass_() == [module.INVALID] * 2 + [""]
    run.pass_("update")
    run.pass_(times=40)
    run.pass_("nan")
    run.pass_(times=40)
    assert run.pass_("update") + run.pass_(times=10) == [module.UPDATE_RAISED] * 10 + [""]  # its second rest


def test_three_failures_in_a_row_lead_to_a_new_fit() -> None:
    """It rests for 5 minutes of load and is then fitted on the whole history, because its state may be broken."""
    run = Minutes(history=DAY)
    assert run.pass_("predict", times=3) == [module.PREDICT_RAISED] * 3
    asked = len(run.predictor.calls)
    assert run.pass_(times=4) == [module.PREDICT_RAISED] * 4
    assert len(run.predictor.calls) == asked
    assert run.pass_() == [""]
    assert run.predictor.calls[asked:] == [("fit", 1448), ("predict", 60)]
    assert run.pass_("nan") + run.pass_() == [module.INVALID, ""]


def test_one_more_failure_right_after_a_rest_begins_the_next() -> None:
    """Fitted again and as bad as before: it rests for ten minutes."""
    run = Minutes(history=DAY)
    run.pass_("nan", times=7)
    assert run.pass_("nan") + run.pass_(times=10) == [module.INVALID] * 10 + [""]


def test_rests_double_and_good_behaviour_shortens_them() -> None:
    """A predictor that always raises is asked ever more rarely; after a good hour the rests start again short."""
    run = Minutes(history=DAY)
    run.pass_("update", times=650)
    fits = [i for i, (what, _) in enumerate(run.predictor.calls) if what == "fit"]
    # Fitted, one good forecast, an update that raises, a rest of 5, 10, 20 ... minutes.
    assert len(fits) == 1 + len([5, 10, 20, 40, 80, 160, 320])
    recovering = run.pass_(times=720)
    assert 600 < recovering.index("") < 640
    assert run.pass_("update") + run.pass_(times=5) == [module.UPDATE_RAISED] * 5 + [""]


def test_a_state_after_an_update_that_raised_is_not_trusted() -> None:
    """The half-updated predictor is not asked; it is fitted again on the load as it was, in order."""
    run = Minutes(history=[1.0, 2.0, 3.0])
    run.pass_("update", rate_rps=4.0)
    run.pass_("", times=5, rate_rps=5.0)
    assert run.supervised.stands_in == ""
    fitted = run.predictor.fitted
    assert (fitted.start_s, fitted.mean_rps.tolist()) == (0.0, [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    assert fitted.peak_rps == pytest.approx(1.2 * fitted.mean_rps)


def test_what_is_kept_for_another_fit_is_bounded() -> None:
    """15 days of steps, the newest, at their right time."""
    run = Minutes(history=[1.0] * 40 * 1440)
    run.pass_("update")
    run.pass_(times=5)
    fitted = run.predictor.fitted
    assert len(fitted or ()) == 15 * 1440 + 1
    assert fitted.end_s == run.end_s


def test_a_fit_that_raises_does_not_stop_the_start() -> None:
    """A stand-in forecasts immediately, and another fit is tried later."""
    predictor = Faulty()
    predictor.fault = "fit"
    run = Minutes(predictor, history=DAY)
    run.supervised.predict(60)
    assert run.supervised.stands_in == module.FIT_RAISED
    assert run.pass_(times=5) == [module.FIT_RAISED] * 4 + [""]


@pytest.mark.parametrize("history", [[], [0.0] * 200, [7.0] * 200, [np.nan] * 200])
def test_an_empty_constant_or_unknown_history_is_no_failure(history: list[float]) -> None:
    """Load that stays so is no failure either."""
    run = Minutes(history=history)
    assert run.pass_(times=100, rate_rps=history[0] if history else 0.0) == [""] * 100


def test_three_late_answers_in_a_row_are_too_many() -> None:
    """Then it rests, catches up in one update without another fit, and one more late answer makes it rest again."""
    predictor = Faulty()
    run = Minutes(predictor, history=DAY, clock=predictor.clock, budget_s=15.0)
    assert run.pass_("slow", times=2) + run.pass_() == [""] * 3
    assert run.pass_("slow", times=3) == ["", "", module.SLOW]
    assert run.supervised.causes == {module.SLOW: "20 s, 15 s allowed"}  # update and predict together
    assert run.pass_(times=4) == [module.SLOW] * 4
    asked = len(predictor.calls)
    assert run.pass_("slow") == [module.SLOW]
    assert predictor.calls[asked:] == [("update", 5), ("predict", 60)]
    assert run.pass_(times=10) == [module.SLOW] * 9 + [""]


def test_it_rests_also_while_no_load_comes() -> None:
    """This includes steps of half an hour, with a forecast every minute."""
    predictor = Faulty()
    run = Minutes(predictor, history=DAY, clock=predictor.clock)
    predictor.fault = "slow"
    for _ in range(10):
        run.supervised.update(load(run.end_s, []))
        run.supervised.predict(60)
    assert len(predictor.calls) == 1 + 3


def test_without_a_clock_nothing_is_late() -> None:
    """A simulated run depends on no clock."""
    assert Minutes(history=DAY).pass_("slow", times=10) == [""] * 10


class Learner(Faulty):
    """A savable predictor: `weight` is the result of its first fit."""

    version = 1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.restored: list[Mapping[str, Any]] = []

    def state(self) -> Mapping[str, Any]:
        return {"weight": np.array(0.5)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.restored.append(state)


def test_a_slow_fit_is_repeated_only_from_a_saved_state() -> None:
    """A fit of minutes would stop the loop, so only a predictor with a saved state returns."""
    slow, learner = Faulty(), Learner()
    slow.fault = learner.fault = "slow"
    lost = Minutes(slow, history=DAY, clock=slow.clock, fit_budget_s=9.0)
    back = Minutes(learner, history=DAY, clock=learner.clock, fit_budget_s=9.0)
    assert lost.pass_("update") + lost.pass_(times=20) == [module.UPDATE_RAISED] * 5 + [module.SLOW_TO_FIT] * 16
    assert back.pass_("update") + back.pass_(times=20) == [module.UPDATE_RAISED] * 5 + [""] * 16
    assert learner.restored == [{"weight": np.array(0.5)}]


def test_a_state_whose_fit_raises_is_dropped() -> None:
    """The next fit is a whole one."""
    run = Minutes(Learner(), history=DAY)
    run.pass_("update")
    run.pass_(times=3)
    run.pass_("fit", times=2)  # restored, and raises
    run.pass_(times=12)
    assert run.supervised.stands_in == ""
    assert len(run.predictor.restored) == 1


def test_a_drifted_predictor_is_replaced_until_it_is_better() -> None:
    """Five times the true level: after half an hour the last value takes over, and hands back when that is over."""
    run = Minutes(history=DAY)
    run.pass_(times=60)
    reasons = run.pass_("drifting", times=120)
    assert reasons == [""] * reasons.index(module.DRIFTED) + [module.DRIFTED] * (120 - reasons.index(module.DRIFTED))
    assert reasons.index(module.DRIFTED) < 40
    reasons = run.pass_(times=600)
    assert reasons[:60] == [module.DRIFTED] * 60
    assert reasons[-1] == ""
    assert reasons == sorted(reasons, reverse=True)  # once there and once back: it does not flap


def test_forecasts_under_another_name_carry_the_predictors() -> None:
    """The forecast names the predictor that was asked."""
    run = Minutes(history=DAY)
    run.predictor.name = "another"
    run.supervised.update(load(run.end_s, [1.0]))
    assert run.supervised.predict(60).predictor == "faulty"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Unprintable(), "Unprintable"),
        (ValueError("two\n lines"), "ValueError: two lines"),
        (KeyError("x" * 1000), "KeyError: '" + "x" * 186 + "..."),
    ],
)
def test_causes_are_one_short_line(error: Exception, cause: str) -> None:
    """Any exception can be printed."""

    class Raising(Faulty):
        def predict(self, steps: int) -> Any:
            raise error

    run = Minutes(Raising(), history=DAY)
    run.supervised.predict(60)
    assert run.supervised.causes == {module.PREDICT_RAISED: cause}


def test_an_object_that_is_no_predictor_at_all_is_survived() -> None:
    """No name, no methods."""
    supervised = Supervised(object())  # type: ignore[arg-type]
    supervised.fit(load(0.0, DAY))
    assert_usable(supervised.predict(60), 86400.0, 60.0, 60)
    assert (supervised.name, supervised.stands_in) == ("object", module.FIT_RAISED)


def test_the_fallback_forecasts_the_newest_rate() -> None:
    """Steps of half an hour say little about this minute."""
    predictor = Faulty()
    predictor.fault = "predict"
    supervised = Supervised(predictor)
    supervised.fit(load(0.0, [100.0] * 48, 1800.0))
    assert supervised.predict(3, 250.0).mean_at(0.5).tolist() == [250.0] * 3
    assert supervised.predict(3).mean_at(0.5).tolist() == [100.0] * 3


RATES = st.one_of(st.floats(0.0, 1e6), st.just(float("nan")), st.just(0.0))
PASSES = st.lists(
    st.tuples(st.sampled_from(["", "", *FAULTS]), st.lists(RATES, max_size=40), st.integers(0, 2)), max_size=25
)


@settings(max_examples=80)
@given(st.sampled_from(["", *FAULTS]), st.lists(RATES, max_size=60), PASSES, st.sampled_from([60.0, 300.0, 1800.0]))
def test_every_fault_leaves_a_usable_forecast_that_names_its_maker(
    first: str, history: list[float], passes: list[tuple[str, list[float], int]], step_s: float
) -> None:
    """Any mix of failures, gaps, late and empty observations: right origin, step and length, finite, ordered."""
    predictor = Faulty()
    predictor.fault = first
    supervised = Supervised(predictor, clock=predictor.clock, budget_s=1.0, fit_budget_s=15.0)
    supervised.fit(load(0.0, history, step_s))
    end_s = len(history) * step_s
    for fault, rates, predicts in passes:
        predictor.fault = fault
        supervised.update(load(end_s, rates, step_s))
        end_s += len(rates) * step_s
        for _ in range(predicts):
            forecast = supervised.predict(13)
            assert_usable(forecast, end_s, step_s, 13)
            assert forecast.predictor == ("last-value" if supervised.stands_in else "faulty")
            assert set(supervised.causes) <= {
                module.FIT_RAISED, module.UPDATE_RAISED, module.PREDICT_RAISED, module.INVALID, module.EXPLODED,
                module.SLOW, module.SLOW_TO_FIT,
            }  # fmt: skip


def test_the_same_load_gives_the_same_answers() -> None:
    """Nothing here is random or looks at a clock."""
    first, second = (Minutes(history=DAY) for _ in range(2))
    for fault in ("", "predict", "", "update", "", "drifting"):
        assert first.pass_(fault, times=9) == second.pass_(fault, times=9)
        assert np.array_equal(first.forecast.mean_rps, second.forecast.mean_rps)


def test_load_is_handed_on_as_it_came() -> None:
    """The predictor gets the same object: nothing is copied or cut without a failure."""
    seen: list[Load] = []

    class Keeping(Faulty):
        def update(self, observed: Load) -> None:
            seen.append(observed)
            super().update(observed)

    run = Minutes(Keeping(), history=DAY)
    observed = load(run.end_s, [1.0, np.nan])
    run.supervised.update(observed)
    assert seen[0] is observed
