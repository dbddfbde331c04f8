"""Whole runs: the real controller, policies and kernel in the virtual world."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.config.new_service import new_service
from mark.config.service_file import shipped_text
from mark.domain.errors import BadInput, Infeasible
from mark.simulation.bounding import bound
from mark.simulation.inputs import open_inputs
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.result import SimulationResult
from mark.simulation.run import Simulation, simulate, simulate_inputs
from mark.studies.compare import compare
from mark.studies.decision import plan_service_once
from mark.traffic.forecast.predictor import Predictor
from mark.traffic.forecast.predictor_registry import make_predictor
from tests.samples import first
from tests.simulation.laws import check_laws

HOUR = 3600.0
MMPP = "synthetic:mmpp?rates=20,80&dwell_s=300"


def request(**changes: Any) -> RunRequest:
    base = RunRequest(trace=MMPP, service="inception-v3", start_s=6 * HOUR, duration_s=HOUR, predictor="seasonal-naive")
    return dataclasses.replace(base, **changes)


def without_speed(result: SimulationResult) -> str:
    return json.dumps({k: v for k, v in result.as_json().items() if k != "speed"}, sort_keys=True)


@pytest.mark.parametrize(
    "policy",
    ["mark", "mark-paper", "reactive", "static-peak", "static-mean", "oracle", "target-tracking", "fixed:c5.xlarge=10"],
)
def test_every_policy_keeps_the_laws(policy: str) -> None:
    """Requests are conserved, the bill is the sum of its parts, no run beats the bound."""
    check_laws(simulate(request(policy=policy, duration_s=HOUR / 3)))


@pytest.mark.parametrize("seed", first(0, range(3), slow=1))
def test_spot_with_interruptions_loses_no_request(seed: int) -> None:
    """Every request is answered although instances are taken away all the time."""
    result = simulate(
        request(
            seed=seed,
            policy="mark-paper",
            duration_s=HOUR / 2,
            markets=("on-demand", "spot", "burstable"),
            sensitivity=Sensitivity(interruptions=30_000.0),
        )
    )
    check_laws(result)
    assert result.fleet.interrupted > 0
    assert result.requests.rejected == 0
    assert result.bill.spot > 0.0


@pytest.mark.parametrize("policy", ["mark", "reactive"])
def test_functions_cost_no_more_than_they_may(tmp_path: Path, policy: str) -> None:
    """A request that neither one environment at a time nor an instance can answer is refused."""
    text = shipped_text("inception-v3").replace("max_usd_per_hour = 200.0", "max_usd_per_hour = 0.3")
    (tmp_path / "capped.toml").write_text(text.replace("max_instances = 500", "max_instances = 1"))
    free, capped = (
        simulate(request(service=service, policy=policy, duration_s=HOUR / 2))
        for service in ("inception-v3", str(tmp_path / "capped.toml"))
    )
    check_laws(capped)
    assert capped.bill.functions <= 0.5 * 2 * 0.19  # of an hour, two environments of 0.185 $/h
    assert capped.requests.rejected > 1000 > free.requests.rejected


def test_one_seed_one_result() -> None:
    """Two runs with one seed are identical except for their speed; another seed is another run."""
    first, second = (simulate(request(seed=3, duration_s=HOUR / 2)) for _ in range(2))
    assert without_speed(first) == without_speed(second)
    assert [d.text for d in first.decisions] == [d.text for d in second.decisions]
    assert without_speed(simulate(request(seed=4, duration_s=HOUR / 2))) != without_speed(first)


@pytest.mark.parametrize(("forecast_seed", "drawn_from"), [(None, 3), (0, 0)])
def test_forecasts_may_have_a_seed_of_their_own(
    forecast_seed: int | None, drawn_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of a pipeline, and services beside a testbed, draw arrivals apart and forecasts alike."""
    seeds = []

    def made(name: str, seed: int, step_s: float | None) -> Predictor:
        seeds.append(seed)
        return make_predictor(name, seed, step_s)

    monkeypatch.setattr("mark.simulation.run.make_predictor", made)
    Simulation(open_inputs(request(seed=3, forecast_seed=forecast_seed)), "mark", "seasonal-naive")
    assert seeds == [drawn_from]


def test_all_policies_face_the_same_arrivals() -> None:
    """Arrivals depend on trace and seed only."""
    results = compare(
        request(duration_s=HOUR / 2, with_bound=False), ("mark", "mark-paper:seasonal-naive", "static-mean")
    )
    assert list(results) == ["mark", "mark-paper:seasonal-naive", "static-mean"]
    rates = [r.timeline.arrival_rps for r in results.values()]
    assert all(np.array_equal(rates[0], other) for other in rates[1:])


def test_note_counts_the_instances_of_the_slo_monitor() -> None:
    result = simulate(request(policy="mark-paper", with_bound=False))
    launched = [re.match(r"launch (\d+) .*: SLO monitor: ", one.text) for one in result.decisions]
    count = sum(int(found[1]) for found in launched if found)
    assert count > 0
    assert f"instances that its SLO monitor launched beside the plan: {count}" in result.notes
    assert not any("monitor" in note for note in simulate(request(policy="reactive", with_bound=False)).notes)


def test_note_tells_that_drawn_requests_differ_from_the_counts(tmp_path: Path) -> None:
    counts, times = tmp_path / "counts.csv", tmp_path / "times.csv"
    counts.write_text("t_seconds,count\n" + "".join(f"{60 * k},600\n" for k in range(10)))
    times.write_text("t_seconds\n" + "".join(f"{k}\n" for k in range(600)))
    drawn, exact = (
        simulate(
            request(trace=str(file), start_s=0.0, duration_s=600.0, scale=1.5, policy="static-peak", with_bound=False)
        )
        for file in (counts, times)
    )
    note = f"requests are drawn at random from the trace's counts: {drawn.requests.total:,} instead of 9,000"
    assert drawn.requests.total != 9000
    assert note in drawn.notes
    assert not any("at random" in note for note in exact.notes)


def test_static_peak_costs_what_its_instances_cost() -> None:
    """The bill of a fleet that never changes is count x price x time, to the cent."""
    result = simulate(request(policy="fixed:c5.xlarge=10", with_bound=False))
    assert result.bill.on_demand == pytest.approx(10 * 0.17)
    assert result.bill.total == result.bill.on_demand
    assert result.fleet.launched == 0
    assert result.requests.functions == 0


def test_a_cold_start_begins_with_nothing() -> None:
    """Without a first fleet, functions answer until instances are ready, and every launch counts."""
    warm, cold = simulate(request(with_bound=False)), simulate(request(cold_start=True))
    assert cold.timeline.capacity_rps[0] == 0.0
    assert warm.timeline.capacity_rps[0] > 0.0
    assert cold.requests.functions > warm.requests.functions
    assert cold.fleet.launched > 0
    check_laws(cold)


@pytest.mark.parametrize("policy", ["mark", "mark-paper"])
def test_part_without_history_begins_with_rate_of_its_first_step(policy: str) -> None:
    """NASNet's functions are late, so a first fleet for no load would miss the promise until others have booted."""
    asked = request(trace="synthetic:poisson?rate=25", service="nasnet", start_s=0.0, policy=policy)
    kept = simulate(asked).slo_result.attainment
    assert kept is not None
    assert kept > 0.98
    planned = plan_service_once(asked, 0.0).plan
    assert planned.capacity_rps > 25.0


def test_part_without_history_begins_with_functions_in_time() -> None:
    assert not len(open_inputs(request(start_s=0.0)).known)


def test_an_endpoint_is_bounded_by_its_own_prices_too() -> None:
    """A SageMaker endpoint may be cheaper than all that the service itself may buy; its regret is still at least 1."""
    result = simulate(
        request(
            trace="synthetic:poisson?rate=200",
            start_s=0.0,
            service="lstm-ptb",
            markets=("burstable",),
            policy="target-tracking-best",
        )
    )
    assert result.regret is not None
    check_laws(result)


@pytest.mark.slow
def test_the_oracle_is_not_dearer_than_a_forecast() -> None:
    """Perfect forecasts on a load of sudden steps save money."""
    results = compare(request(duration_s=3 * HOUR, with_bound=False), ("mark", "oracle"))
    assert results["oracle"].bill.total < results["mark"].bill.total


def test_a_worse_world_does_not_lower_the_bill() -> None:
    """Sensitivity: 30 % less capacity costs a fixed policy more."""
    base, worse = (
        simulate(request(policy="static-peak", with_bound=False)),
        simulate(request(policy="static-peak", with_bound=False, sensitivity=Sensitivity(capacity=0.7))),
    )
    assert worse.bill.total > base.bill.total


def test_a_gap_is_bridged_without_requests(tmp_path: Any) -> None:
    """No requests in a gap, the plan stays, and the gap is reported."""
    rows = [f"{t},{600}" for t in range(0, 7200, 60) if not 3600 <= t < 4800]
    trace = tmp_path / "gap.csv"
    trace.write_text("t_seconds,count\n" + "\n".join(rows) + "\n")
    result = simulate(request(trace=str(trace), start_s=600.0, duration_s=None, policy="mark-paper"))
    check_laws(result)
    quiet = (result.timeline.t_s >= 3000.0) & (result.timeline.t_s < 4200.0)
    assert result.timeline.arrival_rps[quiet].sum() == 0.0
    assert any("gap" in note for note in result.notes)
    ready = sum(result.timeline.instances.values())
    assert ready[quiet].min() == ready[quiet].max()


def test_one_request_is_a_trace(tmp_path: Any) -> None:
    """The smallest part that can be simulated."""
    trace = tmp_path / "one.csv"
    trace.write_text("t_seconds\n5.0\n")
    result = simulate(request(trace=str(trace), start_s=0.0, duration_s=None, policy="static-mean"))
    assert result.requests.total == 1


def test_bound_and_plan_answer_without_a_run() -> None:
    """`mark bound` prints two bounds, the looser one lower; `mark plan` one decision with its forecast."""
    found = bound(request())
    at_zero, within_slo = found.at_zero, found.within_slo
    assert found.requests > 0
    assert at_zero.usd is not None
    assert within_slo.usd is not None
    assert within_slo.usd <= at_zero.usd
    planned = plan_service_once(request(policy="mark-paper"), 8 * HOUR)
    assert planned.context.forecast is not None
    assert planned.context.forecast.steps == 60
    assert planned.context.first
    assert set(planned.plan.counts) <= {offer.name for offer in planned.context.resolved.offers}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "nonsense"}, "nonsense"),
        ({"predictor": "nonsense"}, "nonsense"),
        ({"service": "nonsense"}, "nonsense"),
        ({"trace": "synthetic:nonsense"}, "nonsense"),
        ({"scale": 1e12}, "1e11"),
        ({"markets": ("moon",)}, "moon"),
    ],
)
def test_what_does_not_exist_is_named(changes: dict[str, Any], words: str) -> None:
    """Bad input is one line that names the value."""
    with pytest.raises(BadInput, match=words) as caught:
        simulate(request(**changes))
    assert "\n" not in str(caught.value)


def test_an_slo_nothing_can_meet_is_infeasible(tmp_path: Any) -> None:
    """Exit 3 material: it says which type came closest."""
    service = tmp_path / "s.toml"
    service.write_text('[service]\nname = "x"\nmodel = "nasnet"\nslo_ms = 5\nslo_attainment = 0.98\n')
    with pytest.raises(Infeasible, match=r"c5|p2|g4|lambda"):
        simulate(request(service=str(service), catalog="aws-2019"))


def test_functions_of_the_first_plan_are_warm_at_the_start(tmp_path: Path) -> None:
    """A first request that a function answers is in time on a warm start, and late on a cold one."""
    trace = tmp_path / "few.csv"
    times = [0.0, *(3600.0 + 60.0 * k for k in range(10))]
    trace.write_text("t_seconds\n" + "".join(f"{t}\n" for t in times))
    service = tmp_path / "no_instances.toml"
    service.write_text(new_service("inception-v3").replace("[fleet]", "[fleet]\nmin_instances = 0"))
    few = request(
        trace=str(trace), service=str(service), start_s=3600.0, duration_s=600.0, with_bound=False, policy="mark"
    )
    warm, cold = simulate(few), simulate(dataclasses.replace(few, cold_start=True))
    assert warm.requests.functions == cold.requests.functions == 10
    assert (warm.requests.late, cold.requests.late) == (0, 1)


def test_fewest_in_flight_routing_is_slower_than_least_completion() -> None:
    """The service file's routing reaches the kernel."""
    inputs = open_inputs(request(trace="synthetic:poisson?rate=60", start_s=0.0, duration_s=600.0, with_bound=False))

    def p95(routing: str) -> float:
        service = dataclasses.replace(inputs.resolved.service, routing=routing)
        resolved = dataclasses.replace(inputs.resolved, service=service)
        result = simulate_inputs(dataclasses.replace(inputs, resolved=resolved), "fixed:c5.xlarge=9", "auto")
        return result.latency_ms.p95 or 0.0

    assert p95("least-completion") < p95("fewest-in-flight")


@pytest.mark.parametrize("late", ["function", "refuse"])
def test_what_is_late_wherever_goes_where_the_service_file_says(late: str, tmp_path: Path) -> None:
    """NASNet's function takes 2.3 of 1 s: requests beyond one instance's room are answered late there, or refused."""
    service = tmp_path / "service.toml"
    service.write_text(
        '[service]\nname = "s"\nmodel = "nasnet"\nslo_ms = 1000\nslo_attainment = 0.98\n'
        '[fleet]\ncatalog = "aws-2019"\n'
        f'instances = ["c5.xlarge"]\nmax_instances = 1\n[overflow]\nfunction = "lambda:3008"\nlate = "{late}"\n'
    )
    result = simulate(
        RunRequest(
            "synthetic:poisson?rate=10", str(service), duration_s=120.0, predictor="seasonal-naive", with_bound=False
        )
    )
    check_laws(result)
    requests = result.requests
    overflow = {"function": requests.functions, "refuse": requests.rejected}
    assert overflow.pop(late) > 0.5 * requests.total
    assert set(overflow.values()) == {0}
    assert requests.late == requests.functions


@pytest.mark.parametrize(("kind", "idle_s"), [("keda", 420.0), ("knative", 75.0)])
def test_scaler_without_a_minimum_has_no_instance_while_nothing_comes(kind: str, idle_s: float, tmp_path: Path) -> None:
    """Ten minutes with requests, twenty without, ten with: the first requests after the pause are refused."""
    rows = [f"{60 * minute},{0 if 10 <= minute < 30 else 600}" for minute in range(40)]
    (tmp_path / "trace.csv").write_text("t_seconds,count\n" + "\n".join(rows) + "\n")
    text = shipped_text("inception-v3-2026").partition("[fleet]")[0] + (
        '[fleet]\ncatalog = "aws-2026"\ninstances = ["c7i.xlarge"]\nmarkets = ["on-demand"]\n'
        '[overflow]\nfunction = "none"\n'
        f'[policy]\nkind = "{kind}"\ninstance = "c7i.xlarge"\nmin = 0\n'
    )
    (tmp_path / "s.toml").write_text(text)
    asked = RunRequest(str(tmp_path / "trace.csv"), str(tmp_path / "s.toml"), "as-is", start_s=0.0, with_bound=False)
    found = simulate(asked)
    (paid,) = found.timeline.instances.values()
    asleep = [10 + math.ceil(idle_s / 60.0), 29]
    assert paid[9] > 0
    assert paid[asleep[0] : asleep[1]].max() == 0
    assert paid[32] > 0
    assert 0 < found.requests.rejected < 3 * 600
