"""Stages that controllers buy: one stage is the service's own run; of several, laws that hold of every run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.cloud.billing.extras import site_usd_per_hour
from mark.config.pipeline_file import load_pipeline
from mark.control.shared_limits import pipeline_limits
from mark.domain.errors import BadInput
from mark.kernel.accounting import Accounting
from mark.kernel.stage import Admission, StageSimulation
from mark.planning.graphs.estimate import QuerySample
from mark.simulation.controlled_pipeline import PipelineOutcome, simulate_controlled
from mark.simulation.inputs import open_inputs, trace_named_in
from mark.simulation.query_flow import QueryFlow
from mark.simulation.request import RunRequest
from mark.simulation.run import Simulation
from mark.studies.pipeline_plan import drawn_sample, graph_and_law
from mark.studies.pipeline_result import PipelineRun
from mark.studies.pipeline_run import simulate_pipeline
from mark.studies.pipeline_stages import controlled_stages
from tests.samples import first

PROFILE = """model,instance,batch,latency_ms,workers,basis
one,c7i.large,1,10,2,measured
one,c7i.large,8,30,2,measured
two,c7i.large,1,20,2,measured
two,c7i.large,8,50,2,measured
slow,c7i.large,1,50,1,measured
"""
HEAD = """[service]
name = "p"
slo_ms = 200
slo_attainment = 0.95
profile = "p.csv"
"""
FLEET = '[fleet]\ninstances = ["c7i.large"]\nmarkets = ["on-demand", "spot"]\n'
TRACE = "synthetic:mmpp?rates=30,150&dwell_s=60"


def request_for(folder: Path, text: str, seed: int = 0) -> RunRequest:
    (folder / "p.toml").write_text(text)
    (folder / "p.csv").write_text(PROFILE)
    return RunRequest(
        TRACE, str(folder / "p.toml"), start_s=3600.0, duration_s=300.0, predictor="seasonal-naive", with_bound=False,
        seed=seed,
    )  # fmt: skip


def served(request: RunRequest) -> tuple[QuerySample, PipelineOutcome]:
    config = load_pipeline(request.service)
    pipeline, law, _ = graph_and_law(config, None, None)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    sample = drawn_sample(trace, part, law, request)
    stages, groups = controlled_stages(request, config, pipeline, law, trace, part, np.array([[60.0]]))
    limits = pipeline_limits(config)
    return sample, simulate_controlled(pipeline, stages, law, sample, "mark", config.slo.rt_max_s, limits, groups)


def test_one_stage_alone_is_the_run_of_a_service(tmp_path: Path) -> None:
    """Latencies and dollars are equal, except for the site, which belongs to the pipeline and not to a stage."""
    request = request_for(tmp_path, HEAD + FLEET + '[stage.only]\nmodel = "one"\n')
    _, found = served(request)
    (tmp_path / "s.toml").write_text(HEAD + 'model = "one"\n' + FLEET + '[overflow]\nlate = "refuse"\n')
    alone = open_inputs(replace(request, service=str(tmp_path / "s.toml")))
    simulation = Simulation(alone, "mark", request.predictor, keep=True)
    expected = simulation.run()
    arrivals = alone.trace.chunks(alone.start_s, alone.end_s, request.scale, request.seed)
    arrived_s = np.concatenate([times for times, _ in arrivals])
    assert (found.latency_s == simulation.recording.finish_s - arrived_s).all()
    (stage,) = found.stages
    site_usd = site_usd_per_hour() * (alone.end_s - alone.start_s) / 3600.0
    assert stage.bill.other == pytest.approx(expected.bill.other - site_usd)
    assert replace(stage.bill, other=0.0) == replace(expected.bill, other=0.0)
    assert (stage.calls, stage.refused) == (expected.requests.total, expected.requests.rejected)


@pytest.mark.parametrize("seed", first(1, [1, 2, 3]))
def test_queries_are_answered_once_and_stages_sum_to_the_bill(tmp_path: Path, seed: int) -> None:
    stages = '[stage.a]\nmodel = "one"\n[stage.b]\nmodel = "two"\nafter = ["a"]\nshare = 0.5\n'
    sample, found = served(request_for(tmp_path, HEAD + FLEET + stages, seed))
    first, second = found.stages
    assert first.calls == len(sample.arrivals_s)
    # A query whose call is refused makes no further one.
    assert second.calls == sample.calls[:, 1].sum() - (
        sample.calls[~np.isfinite(found.latency_s), 1].sum() - second.refused
    )
    assert int(np.isinf(found.latency_s).sum()) == first.refused + second.refused
    answered = found.latency_s[np.isfinite(found.latency_s)]
    assert (answered >= 0.01 - 1e-9).all()
    # Admitted calls are in time, except for the time that a horizon leaves to the stages behind.
    assert (answered <= 0.2 + 1e-6).mean() > 0.95
    assert all(stage.bill.total > 0.0 for stage in found.stages)


TWO = '[stage.a]\nmodel = "one"\n[stage.b]\nmodel = "two"\nafter = ["a"]\n'


def test_instances_of_stages_straggle_and_hang(tmp_path: Path) -> None:
    """The faults come from the file; arrivals stay the same, and slow answers keep no worker busy longer."""
    calm_sample, calm = served(request_for(tmp_path, HEAD + FLEET + TWO))
    for faults, least, most in (
        ("slow_share = 0.3\nslow_s = 10\nslow_factor = 4\n", 1.3, 4.0),
        ("slow_share = 0.3\nslow_s = 10\nslow_answer_ms = 150\n", 0.9, 1.15),
        ("hangs_per_hour = 120\nhang_s = 1\n", 1.0, 4.0),
    ):
        sample, found = served(request_for(tmp_path, HEAD + FLEET + TWO + "[faults]\n" + faults))
        assert (sample.arrivals_s == calm_sample.arrivals_s).all()
        late, before = ((one.latency_s > 0.2 + 1e-6).mean() for one in (found, calm))
        assert late > before + 0.01
        busy = [sum(s.busy_s for s in one.stages) / sum(s.calls for s in one.stages) for one in (found, calm)]
        assert least < busy[0] / busy[1] < most, faults


def test_calls_that_a_crash_takes_end_once(tmp_path: Path) -> None:
    """Behind a balancer they are refused, and their queries have no answer."""
    request = request_for(tmp_path, HEAD + FLEET + TWO + "[faults]\ncrashes_per_hour = 60\n")
    sample, found = served(request)
    first, second = found.stages
    assert found.stages[0].fleet != served(request_for(tmp_path, HEAD + FLEET + TWO))[1].stages[0].fleet
    assert first.calls == len(sample.arrivals_s)
    assert second.calls == first.calls - first.refused
    assert int(np.isinf(found.latency_s).sum()) == first.refused + second.refused > 0


def test_instances_that_stages_share_do_not_crash_in_simulations(tmp_path: Path) -> None:
    packs = '[packs]\ntogether = [["a", "b"]]\n[faults]\n'
    stages = HEAD + FLEET + TWO.replace("[stage.b]", "slo_ms = 60\n[stage.b]\nslo_ms = 140") + packs
    with pytest.raises(BadInput, match="instances that several stages share are simulated without crashes yet"):
        simulate_pipeline(request_for(tmp_path, stages + "crashes_per_hour = 1\n"), ("mark",))
    calm = simulate_pipeline(request_for(tmp_path, stages), ("mark",))["mark"]
    slow = simulate_pipeline(request_for(tmp_path, stages + "slow_share = 0.3\nslow_factor = 4\n"), ("mark",))["mark"]
    assert slow.misses > calm.misses


INSURED = HEAD.replace("[service]", '[service]\nmodel = "slow"') + FLEET.replace(', "spot"', "")
STRAGGLERS = "[faults]\nslow_share = 0.1\nslow_s = 10\nslow_factor = 5\n"


def insured(folder: Path, insurance: str, faults: str = STRAGGLERS) -> PipelineRun:
    code = "[insurance]\nparity = { code = 'sum', k = 2 }\n" if insurance else ""
    return simulate_pipeline(request_for(folder, INSURED + code + insurance + faults), ("mark",))["mark"]


def test_queries_of_a_service_with_parity_models_are_reconstructed(tmp_path: Path) -> None:
    """Both fleets are bought; one call for each query of the model, and one for each group of the parity model."""
    run = insured(tmp_path, 'accept = "degraded"\nfill_ms = "never"\n')
    model, parity = run.stages
    assert run.parity is not None
    assert (model.stage, model.calls) == ("model", run.queries)
    assert (parity.stage, parity.calls) == ("parity", run.parity.parity_calls)
    assert run.parity.groups == run.parity.parity_calls == run.queries // 2
    assert parity.instances == pytest.approx(0.5 * model.instances, abs=1.0)
    assert 0 < run.parity.saved <= run.parity.reconstructed == round(run.parity.degraded_share * run.queries)
    exact = insured(tmp_path, 'fill_ms = "never"\n')
    assert exact.parity is not None
    assert (exact.parity.groups, exact.parity.reconstructed) == (run.parity.groups, 0)
    assert run.misses < exact.misses
    assert any('no query accepts a reconstruction: [insurance] accept is "exact"' in note for note in exact.notes)


def test_a_controller_buys_for_late_queries_and_not_for_late_calls(tmp_path: Path) -> None:
    """The model buys no instances for calls that parity models replace."""
    degraded, exact = (insured(tmp_path, f'accept = "{accept}"\n').stages[0].usd for accept in ("degraded", "exact"))
    assert degraded < 0.98 * exact


def test_a_calm_service_hardly_needs_its_parity_models(tmp_path: Path) -> None:
    run = insured(tmp_path, 'accept = "degraded"\n', faults="")
    assert run.parity is not None
    assert run.parity.degraded_share <= 0.005


def test_parity_models_reconstruct_what_a_crash_takes(tmp_path: Path) -> None:
    crashes = "[faults]\ncrashes_per_hour = 20\n"
    run, exact = (insured(tmp_path, f'accept = "{accept}"\n', crashes) for accept in ("degraded", "exact"))
    assert run.parity is not None
    assert run.parity.saved > 0
    assert run.misses < exact.misses


def test_stages_know_their_own_load_and_draw_their_own_luck(tmp_path: Path) -> None:
    two = '[stage.a]\nmodel = "one"\n[stage.b]\nmodel = "two"\nafter = ["a"]\nshare = 0.25\n'
    request = request_for(tmp_path, HEAD + FLEET + two)
    config = load_pipeline(request.service)
    pipeline, law, _ = graph_and_law(config, None, None)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    stages, _ = controlled_stages(request, config, pipeline, law, trace, part, np.array([[60.0]]))
    first, second = (one.inputs for one in stages)
    assert second.history.mean_rps == pytest.approx(0.25 * first.history.mean_rps)
    assert second.evaluated.mean_rps == pytest.approx(0.25 * first.evaluated.mean_rps)
    assert first.request.seed != second.request.seed
    assert first.service.slo.rt_max_s + second.service.slo.rt_max_s <= 0.2 + 1e-9
    assert [one.request.forecast_seed for one in (first, second)] == [request.seed] * 2, "as one controller does"


def test_a_stage_leaves_the_ones_behind_it_their_part(tmp_path: Path) -> None:
    """One instance cannot serve the first stage's calls: calls beyond its part are refused there, and not later."""
    fleet = FLEET + "max_instances = 2\n"
    stages = '[stage.a]\nmodel = "two"\nslo_ms = 100\n[stage.b]\nmodel = "one"\nafter = ["a"]\nslo_ms = 100\n'
    request = replace(request_for(tmp_path, HEAD + fleet + stages), trace="synthetic:poisson?rate=500")
    _, found = served(request)
    first, second = found.stages
    assert first.refused > 0.1 * first.calls
    assert second.refused < 0.01 * second.calls


def test_the_same_seed_makes_the_same_run(tmp_path: Path) -> None:
    stages = '[stage.a]\nmodel = "one"\n[stage.b]\nmodel = "two"\nafter = ["a"]\n'
    request = request_for(tmp_path, HEAD + FLEET + stages)
    (_, one), (_, other) = served(request), served(request)
    assert (one.latency_s == other.latency_s).all()
    assert [stage.bill for stage in one.stages] == [stage.bill for stage in other.stages]


def test_room_of_one_stage_serves_another(tmp_path: Path) -> None:
    """Half of eight instances would be each stage's; the second one needs more, and both never exceed eight."""
    two = '[stage.first]\nmodel = "one"\n[stage.second]\nmodel = "slow"\nafter = ["first"]\n'
    fleet = '[fleet]\ninstances = ["c7i.large"]\nmax_instances = 8\n'
    request = replace(request_for(tmp_path, HEAD + fleet + two), trace="synthetic:poisson?rate=75", duration_s=900.0)
    _, found = served(request)
    first, second = (one.paid for one in found.stages)
    assert second.max() > 4 > first.max()
    assert (first + second).max() <= 8
    assert np.mean(found.latency_s[len(found.latency_s) // 2 :] <= 0.2) > 0.95


def test_in_a_surge_stages_boot_together_and_not_in_turn(tmp_path: Path) -> None:
    """Ten times the load from the third minute on, of which the first stage lets next to nothing through at first."""
    stages = "".join(
        f'[stage.{name}]\nmodel = "slow"\nslo_ms = 90\n{after}' for name, after in (("a", ""), ("b", 'after = ["a"]\n'))
    )
    fleet = '[fleet]\ninstances = ["c7i.large"]\nmax_instances = 60\n'
    request = replace(
        request_for(tmp_path, HEAD + fleet + stages),
        trace="synthetic:gamma?rate=10&rate2=100&transition_at_s=3720&transition_s=1",
        duration_s=600.0,
    )
    _, found = served(request)
    first, second = found.stages
    grown = [int(np.argmax(one.paid >= 5.0)) for one in found.stages]
    assert first.refused > 0
    assert grown[0] >= 2  # not before
    assert grown[0] <= grown[1] <= grown[0] + 1
    assert second.paid[-1] >= 5.0


THREE = (
    '[stage.a]\nmodel = "one"\nslo_ms = 70\n[stage.x]\nmodel = "slow"\nafter = ["a"]\nshare = 0.5\nslo_ms = 60\n'
    '[stage.b]\nmodel = "two"\nafter = ["a", "x"]\nslo_ms = 70\n[packs]\ntogether = [["a", "b"]]\n'
)


def test_stages_together_are_answered_once_and_share_one_bill(tmp_path: Path) -> None:
    """A stage with separate instances stands between the two stages that share instances."""
    sample, found = served(replace(request_for(tmp_path, HEAD + FLEET + THREE, 1), duration_s=120.0))
    first, other, second = found.stages
    assert first.calls == len(sample.arrivals_s)
    unanswered = np.isinf(found.latency_s)
    assert int(unanswered.sum()) == first.refused + other.refused + second.refused
    assert second.calls == first.calls - first.refused - other.refused
    answered = found.latency_s[~unanswered]
    assert (answered >= 0.03 - 1e-9).all()
    assert (answered <= 0.2 + 1e-6).mean() > 0.95
    assert first.fleet == second.fleet != other.fleet
    assert (first.paid == second.paid).all()
    # Both need the same worker time, so they pay the same: together the price of each instance.
    assert first.bill == second.bill
    hours = first.fleet.instance_hours
    usd = sum(hours.get(offer.name, 0.0) * offer.usd_per_hour for offer in first.resolved.offers)
    assert sum(one.bill.total - one.bill.other for one in (first, second)) == pytest.approx(usd)


def test_on_a_steady_fleet_stages_serve_as_by_themselves(tmp_path: Path) -> None:
    """A worker of each on one instance: stages of one replica, simulated without controller, cloud or windows."""
    stages = THREE.replace('"slow"', '"one"')
    request = replace(request_for(tmp_path, HEAD + FLEET + stages), trace="synthetic:poisson?rate=8", duration_s=60.0)
    sample, found = served(request)
    assert [stage.fleet.peak_instances for stage in found.stages] == [1, 1, 1]
    pipeline, _, _ = graph_and_law(load_pipeline(request.service), None, None)
    flow = QueryFlow(pipeline, sample.arrivals_s, sample.calls)
    for at, stage in enumerate(found.stages):
        resolved = stage.resolved
        assert resolved.candidates[0].workers == (2 if at == 1 else 1)
        alone = StageSimulation(
            [resolved.candidates[0]],
            accounts=Accounting(rt_max_s=0.2, end_s=60.0),
            admission=Admission(late=1),
            keep=True,
        )
        alone.add(1, 0, 0.0)
        times_s, _ = flow.due(at, np.inf)
        alone.advance(times_s, 0, np.inf, np.full(len(times_s), 9.0))
        alone.finish()
        gone = alone.departures()
        flow.answered(at, gone.request, gone.answer_s)
    np.testing.assert_array_equal(found.latency_s, flow.latency_s())


def test_stages_together_grow_at_once_in_a_surge(tmp_path: Path) -> None:
    """The limits of the whole hold: the pair has the part of twelve instances that the stage beside it leaves."""
    fleet = '[fleet]\ninstances = ["c7i.large"]\nmax_instances = 12\n'
    request = replace(
        request_for(tmp_path, HEAD + fleet + THREE),
        trace="synthetic:gamma?rate=20&rate2=150&transition_at_s=3660&transition_s=1",
        duration_s=420.0,
    )
    _, found = served(request)
    first, other, second = found.stages
    assert first.paid[0] == 1.0
    assert first.paid.max() >= 2.0
    assert (first.paid + other.paid).max() <= 12.0
    calls = np.array([stage.calls for stage in (first, second)])
    assert calls.min() > 0


@pytest.mark.parametrize(("rps", "chosen"), [(8.0, [(0, 2)]), (200.0, [])])
def test_what_to_buy_together_is_chosen_by_the_load(tmp_path: Path, rps: float, chosen: list[tuple[int, ...]]) -> None:
    """Two hundred queries/s need many instances, of which sharing would save none."""
    request = request_for(tmp_path, HEAD + FLEET + THREE.replace('[["a", "b"]]', '"auto"'))
    config = load_pipeline(request.service)
    pipeline, law, _ = graph_and_law(config, None, None)
    trace = trace_named_in(request)
    part = trace.part(request.start_s, request.duration_s, request.scale)
    stages, groups = controlled_stages(request, config, pipeline, law, trace, part, np.array([[rps]]))
    assert [group.stages for group in groups] == chosen
    shares = len(chosen) > 0
    assert (len(stages[0].inputs.resolved.offers) == len(stages[2].inputs.resolved.offers)) or not shares
    assert [one.inputs.service.max_instances for one in stages] == [250 if shares else 166] * 3


CANDIDATES = '[stage.a]\nmodel = "one"\n[stage.b]\nmodel = "slow"\n[feedback]\nlog = "f"\n'
CASCADE = '[selection]\npolicy = "cascade"\nscore = "s"\nexplore = 0.0\ndeadline_ms = 199\n'
# Calls of b, which serves 20 a second on an instance, are wanted by every query, three quarters of them for little.
ANSWERS = "a.correct,a.score,b.correct\n" + "0,0.1,1\n" + "0.9,0.6,1\n" * 3


def selected(folder: Path, selection: str, trace: str, duration_s: float, max_instances: int) -> PipelineRun:
    fleet = f'[fleet]\ninstances = ["c7i.large"]\nmarkets = ["on-demand"]\nmax_instances = {max_instances}\n'
    request = request_for(folder, HEAD + fleet + CANDIDATES + CASCADE + selection)
    request = replace(request, trace=trace, duration_s=duration_s)
    rows = [f"{row}," for row in PROFILE.splitlines()[1:]]
    rows = ["model,instance,batch,latency_ms,workers,basis,cold_ms", *rows, "slow,lambda:1769,1,90,1,measured,95"]
    (folder / "p.csv").write_text("\n".join([*rows, ""]))
    (folder / "a.csv").write_text(ANSWERS)
    (found,) = simulate_pipeline(request, ("mark",), answers=str(folder / "a.csv")).values()
    return found


def test_a_refused_call_leaves_its_query_the_answer_that_it_has(tmp_path: Path) -> None:
    """One instance for each candidate, and two thirds of the calls of `b` find no room."""
    found = selected(tmp_path, "threshold = 2.0\n", "synthetic:poisson?rate=60", 120.0, 2)
    assert found.selection is not None
    assert found.selection.answered is not None
    assert found.selection.asked == (1.0, 1.0)
    assert found.attainment > 0.99
    assert found.latency_ms.p50 == pytest.approx(10.0, abs=5.0), "a refused call keeps nobody waiting"
    assert found.selection.answered[1] == pytest.approx(1 / 3, abs=0.1)
    # Right answers: all of b's, and of a's 0.9 in three of four queries.
    assert found.selection.error == pytest.approx(found.selection.answered[0] * (1.0 - 0.75 * 0.9), abs=0.03)


def test_a_full_stage_is_asked_only_where_the_answer_is_worth_its_price(tmp_path: Path) -> None:
    """No third instance is allowed: its price stays high, and calls of little worth are not made."""
    trace = "synthetic:poisson?rate=60"
    full = selected(tmp_path, "correct_usd = 2e-5\n", trace, 300.0, 2)
    free = selected(tmp_path, "correct_usd = 2e-5\n", trace, 300.0, 40)
    assert full.selection is not None
    assert free.selection is not None
    assert free.selection.asked[1] > 0.9
    assert full.selection.asked[1] < 0.6
    assert full.attainment > 0.99


def test_a_fleet_grows_for_calls_that_a_high_price_holds_back(tmp_path: Path) -> None:
    """At four times the load the price of `b` is that of its function until instances, bought early, have booted.

    A planner that counts only the calls that are made sees few of them at that price, and keeps one or two instances.
    """
    trace = "synthetic:gamma?rate=20&rate2=80&transition_at_s=3660&transition_s=1"
    said = 'correct_usd = 1.5e-5\n[overflow]\nfunction = "lambda:1769"\n'
    (_, dear) = selected(tmp_path, said, trace, 900.0, 40).stages
    assert dear.paid[1] == 1.0
    assert min(dear.paid[2:]) >= 3.0
    assert dear.function_share is not None
    assert dear.function_share < 0.1
