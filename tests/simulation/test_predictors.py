"""Whole runs with predictors that fail: the run ends, its accounts are right, and it says which predictor forecast."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mark.cli.main import main
from mark.domain.load import Load
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation
from mark.studies.decision import plan_service_once
from mark.traffic.forecast import supervised
from tests.simulation.laws import check_laws
from tests.traffic.forecast.faulty import Faulty

HOUR = 3600.0
MINUTES = 45


def run(
    predictor: Any, policy: str = "mark", trace: str = "synthetic:mmpp?rates=20,80&dwell_s=300"
) -> SimulationResult:
    request = RunRequest(
        trace=trace,
        service="inception-v3",
        start_s=6 * HOUR,
        duration_s=60.0 * MINUTES,
        with_bound=False,
    )
    return Simulation(open_inputs(request), policy, predictor).run()


class Failing(Faulty):
    """Has its fault from the first call on, or from the minute `since` of the run on."""

    def __init__(self, fault: str, since: int | None = None) -> None:
        super().__init__()
        self._later, self._since = fault, since
        self.fault = fault if since is None else ""

    def update(self, observed: Load) -> None:
        if self._since is not None and observed.end_s >= 60.0 * self._since:
            self.fault = self._later
        super().update(observed)


@pytest.mark.parametrize(
    ("fault", "reason", "stands_in"),
    [
        ("fit", supervised.FIT_RAISED, MINUTES),
        ("update", supervised.UPDATE_RAISED, MINUTES - 6),
        ("predict", supervised.PREDICT_RAISED, MINUTES),
        ("nan", supervised.INVALID, MINUTES),
        ("origin", supervised.INVALID, MINUTES),
        ("exploding", supervised.EXPLODED, MINUTES),
        ("slow", None, 0),
    ],
)
def test_a_predictor_that_always_fails_costs_money_but_no_run(fault: str, reason: str | None, stands_in: int) -> None:
    """Every law of a run holds, most answers keep the SLO, and the last value's plans are counted by their reason."""
    result = run(Failing(fault))
    check_laws(result)
    assert result.slo_result.attainment is not None
    assert result.slo_result.attainment > 0.95
    made = result.predictors.get("last-value", 0)
    assert made >= stands_in
    assert sum(result.predictors.values()) == MINUTES + 1  # the first fleet has a separate plan
    notes = [note for note in result.notes if note.startswith("fallback")]
    if reason is None:
        assert (made, notes) == (0, [])
    else:
        assert any(f"fallback, {made} times: last-value instead of faulty: {reason} (at first " in n for n in notes)
    assert result.predictor == "faulty"
    assert result.as_json()["predictors"] == result.predictors


@pytest.mark.parametrize("fault", ["update", "predict", "crossing", "drifting"])
def test_plans_before_a_predictors_failure_are_credited_to_it(fault: str) -> None:
    """Both names are in the result, in numbers."""
    result = run(Failing(fault, since=20), trace="synthetic:poisson?rate=50")
    check_laws(result)
    assert result.predictors["faulty"] >= 18
    assert result.predictors["last-value"] >= 10


def test_a_run_with_failures_can_be_repeated() -> None:
    """Rests and comebacks are counted in the run's own time."""
    first, second = (run(Failing("update", since=10)) for _ in range(2))
    assert [d.text for d in first.decisions] == [d.text for d in second.decisions]
    assert first.as_json() | {"speed": None} == second.as_json() | {"speed": None}


class SlowToTrain(Faulty):
    """Training takes 5 s of a clock that otherwise stands still."""

    now_s = 0.0

    def fit(self, history: Load) -> None:
        self.now_s += 5.0
        super().fit(history)


def test_parts_of_the_speed_do_not_exceed_its_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictor is trained before the first minute, and that counts too."""
    predictor = SlowToTrain()
    monkeypatch.setattr("time.perf_counter", lambda: predictor.now_s)
    speed = run(predictor).speed
    assert (speed.predictor_s, speed.wall_s) == (5.0, 5.0)


@pytest.mark.parametrize("policy", ["mark-paper", "oracle", "static-mean"])
def test_every_result_names_its_predictor(policy: str) -> None:
    """The asked-for predictor, perfect foresight, or none."""
    result = run(Faulty(), policy)
    names = {"mark-paper": "faulty", "oracle": "perfect", "static-mean": ""}
    assert result.predictor == names[policy]
    assert result.predictors == ({names[policy]: MINUTES + 1} if names[policy] else {})


def test_one_decision_survives_too_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mark plan` shows whose forecast it is, and why."""
    monkeypatch.setattr("mark.studies.decision.make_predictor", lambda *_: Failing("predict"))
    request = RunRequest(trace="synthetic:poisson?rate=20", service="inception-v3", duration_s=600.0)
    planned = plan_service_once(request, 300.0)
    assert planned.context.forecast is not None
    assert planned.context.forecast.predictor == planned.plan.predictor == "last-value"
    said = "last-value instead of faulty: its predict raised (ArithmeticError: predict of 60 steps)"
    assert planned.plan.notes[-1] == said


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("simulate", "synthetic:poisson?rate=20"), "forecasts by last-value (10 plans)"),
        (("plan", "--trace", "synthetic:poisson?rate=20", "--at", "300"), "(last-value)"),
    ],
)
def test_the_terminal_names_the_stand_in(
    command: tuple[str, ...],
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The result does not say that the asked-for predictor made these plans."""

    def make(*_: Any) -> Failing:
        return Failing("predict")

    monkeypatch.setattr("mark.simulation.run.make_predictor", make)
    monkeypatch.setattr("mark.studies.decision.make_predictor", make)
    assert main([*command, "--service", "inception-v3", "--duration", "600"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert shown in out
    assert "last-value instead of faulty: its predict raised" in out


def test_json_counts_plans_by_predictor(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has it as a key beside `predictor`."""
    main(["simulate", "synthetic:poisson?rate=20", "--service", "inception-v3", "--duration", "600", "--json", "-"])
    assert json.loads(capsys.readouterr().out)["predictors"] == {"auto": 10}
