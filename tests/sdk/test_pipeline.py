"""`mark.Service` of a pipeline does from Python the same as the command line with a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import mark
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.pipeline import Join
from mark.planning.graphs.pipeline_policies import PIPELINE_POLICIES
from mark.simulation.request import RunRequest
from mark.studies.pipeline_plan import plan_pipeline_once
from mark.studies.pipeline_run import simulate_pipeline
from mark.studies.report.pipeline_plan import pipeline_plan_report
from mark.studies.report.pipeline_run import pipeline_run_report
from tests.sdk import drivers

PROFILES = """model,instance,batch,latency_ms,basis
tests.sdk.drivers:shout,c7i.large,1,10,assumed
tests.sdk.drivers:shout,c7i.large,8,24,assumed
tests.sdk.drivers:Shorten?most=3,c7i.large,1,20,assumed
small,c7i.large,1,10,assumed
large,c7i.large,1,40,assumed
"""
QUERIES = [{"text": "short"}, {"text": "long enough"}, {"text": "quiet"}, {"text": "another one"}]
TRAFFIC = "synthetic:poisson?rate=50"
LOUD: dict[str, Any] = {
    "name": "loud",
    "pipeline": drivers.loud,
    "slo_attainment": 0.99,
    "profile": "profiles.csv",
    "instances": ["c7i.large"],
    "stages": {"shout": drivers.shout, "shorten": "tests.sdk.drivers:Shorten?most=3"},
}
GRAPH: dict[str, Any] = {
    "name": "two",
    "slo_ms": 200,
    "slo_attainment": 0.99,
    "profile": "profiles.csv",
    "instances": ["c7i.large"],
    "stages": {"small": "small", "large": {"model": "large", "after": ["small"], "share": 0.25}},
}
PART: dict[str, Any] = {"start_s": 600.0, "duration_s": 120.0}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles.csv").write_text(PROFILES)
    return tmp_path


def test_settings_say_what_a_pipeline_file_says(folder: Path) -> None:
    """Written and read again they are equal; every key finds its section."""
    (folder / "p.csv").write_text(PROFILES)
    parts = {"model": "m:B", "after": ["a"], "share": 0.5, "gpus": 0, "workers": 3, "slo_ms": 20.5}
    joined = {"model": "m:D", "after": ["b", "c"], "join": {"deadline_ms": 40, "least": 1}, "function": "lambda:1769"}
    service = mark.Service(
        name="all",
        slo_ms=100.5,
        slo_attainment=0.9,
        profile="p.csv",
        catalog="aws-2019",
        markets=["on-demand", "spot"],
        instances=("c5.*",),
        min_instances=0,
        max_instances=7,
        max_usd_per_hour=9.5,
        function="lambda:3008",
        max_function_usd_per_hour=1.5,
        packs="separate",
        stages={"a": drivers.shout, "b": parts, "c": {"model": "m:C", "instances": ["c5.large"]}, "d": joined},  # type: ignore[dict-item]
    )
    assert service.name == "all"
    service.write("all.toml")
    found = load_pipeline("all.toml")
    assert (found.name, found.driver, found.packs) == ("all", None, "separate")
    assert (found.slo.rt_max_s, found.slo.attainment) == (0.1005, 0.9)
    assert found.profile_file == str(folder / "p.csv")
    bought = found.fleet
    assert (bought.catalog, bought.markets, bought.instances) == ("aws-2019", ("on-demand", "spot"), ("c5.*",))
    assert (bought.min_instances, bought.max_instances, bought.max_usd_per_hour) == (0, 7, 9.5)
    assert (bought.functions, bought.max_function_usd_per_hour) == (("lambda:3008",), 1.5)
    a, b, c, d = sorted(found.stages, key=lambda stage: stage.name)
    assert a.model == "tests.sdk.drivers:shout"
    assert (b.model, b.share, b.without_gpu, b.workers, b.rt_max_s) == ("m:B", 0.5, True, 3, 0.0205)
    assert (c.instances, d.functions) == (("c5.large",), ("lambda:1769",))
    assert found.pipeline is not None
    nodes = {stage.name: stage for stage in found.pipeline.stages}
    assert (nodes["b"].after, nodes["d"].after, nodes["d"].join) == (("a",), ("b", "c"), Join(1, 0.04))


def test_settings_say_a_selection_with_its_feedback(folder: Path) -> None:
    stages: dict[str, Any] = {"small": "small", "large": {"model": "large", "usd_per_call": 0.002}}
    selection = {"policy": "cascade", "correct_usd": 1e-4, "score": "p"}
    settings = {key: GRAPH[key] for key in ("name", "slo_ms", "slo_attainment", "profile", "instances")}
    service = mark.Service(**settings, stages=stages, selection=selection, feedback={"log": "told"})
    service.write("selected.toml")
    found = load_pipeline("selected.toml")

    assert found.selection is not None
    assert (found.selection.policy, found.selection.correct_usd) == ("cascade", 1e-4)
    assert found.stages[1].usd_per_call == 0.002
    assert found.feedback is not None
    assert found.feedback.log == str(folder / "told")
    with pytest.raises(BadInput, match=r"mark.Service selection: must be the keys"):
        mark.Service(**settings, stages=stages, selection="thompson")


def test_a_driver_and_its_promise_are_found(folder: Path) -> None:
    service = mark.Service(**LOUD)
    service.write("loud.toml")
    found = load_pipeline("loud.toml")
    assert (found.driver, found.slo.rt_max_s) == ("tests.sdk.drivers:loud", 0.5)
    assert [stage.model for stage in found.stages] == ["tests.sdk.drivers:shout", "tests.sdk.drivers:Shorten?most=3"]
    again = mark.Service("loud.toml")
    assert again.name == "loud"
    with pytest.raises(BadInput, match="is a file already"):
        again.write("other.toml")
    first = mark.Service(**GRAPH | {"stages": {"small": "small", "large": {"model": "large", "after": ["small"]}}})
    first.write("two.toml")
    assert load_pipeline("two.toml").driver is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"slo_ms": 300}, "mark.Service slo_ms: the driver loud promises 500 ms: say one of them, or the same: 300"),
        ({"pipeline": drivers.unpromised}, "mark.Service [service] slo_ms: missing"),
        ({"pipeline": drivers.shout}, "pipeline: is no pipeline: decorate it with @mark.pipeline"),
        ({"pipeline": drivers.within()}, "pipeline local of tests.sdk.drivers: has no name at the top of its module"),
        ({"pipeline": "no driver", "slo_ms": 9}, "mark.Service [service] pipeline: must be module:function: no driver"),
        ({"model": "m"}, "mark.Service: unknown setting, known are name, pipeline, slo_ms"),
        ({"packs": "loose"}, "mark.Service [packs] allow: must be one of auto, separate: loose"),
        ({"stages": {}}, "mark.Service [stage.NAME]: a pipeline has 1 to 62 stages: 0"),
        ({"stages": ["shout"]}, "mark.Service stages: must be a model, or the keys of its section"),
        ({"stages": {"shout": {"share": 0.5}}}, "mark.Service [stage.shout] model: missing"),
        ({"stages": {"shout": 7}}, "model: is no model"),
        ({"stages": {"two words": drivers.shout}}, "mark.Service [stage.NAME]: must be a name of Python"),
        ({"stages": {"é": drivers.shout}}, "mark.Service [stage.NAME]: must be a name of Python"),
        ({"stages": {"shout": {"model": "m", "behind": ["x"]}}}, "mark.Service [stage.shout] behind: unknown"),
        (
            {"stages": {"shout": {"model": "m", "after": []}}},
            "mark.Service [stage.shout] after: is decided by the driver",
        ),
    ],
)
def test_settings_of_a_pipeline_are_refused_early(changed: Mapping[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        mark.Service(**LOUD | dict(changed))
    assert said in str(refused.value)


def test_a_pipeline_needs_its_models() -> None:
    with pytest.raises(BadInput, match=r"say its models, too: stages=\{NAME: MODEL\}"):
        mark.Service(name="loud", pipeline=drivers.loud, slo_attainment=0.9)
    with pytest.raises(BadInput, match=r"a file says everything.*stages"):
        mark.Service("inception-v3", stages={})


def test_a_plan_is_that_of_the_command_line(folder: Path) -> None:
    service = mark.Service(**GRAPH)
    service.write("two.toml")
    planned = service.plan(TRAFFIC, at_s=600.0)
    theirs = plan_pipeline_once(RunRequest(TRAFFIC, "two.toml"), 600.0)
    assert pipeline_plan_report(planned).data == pipeline_plan_report(theirs).data


def test_visits_are_those_of_a_lineage_file(folder: Path) -> None:
    (folder / "lineage.csv").write_text("queries,small,large\n1,1,0\n3,1,1\n")
    run = mark.Service(**GRAPH).simulate(TRAFFIC, "coarse-mean", lineage=folder / "lineage.csv", **PART)
    assert run.stages[1].calls == pytest.approx(0.75 * run.queries, rel=0.1)


def test_a_driver_is_traced_on_queries_at_hand(folder: Path) -> None:
    service = mark.Service(**LOUD)
    run = service.simulate(TRAFFIC, "coarse-mean", queries=QUERIES, **PART)
    assert [stage.stage for stage in run.stages] == ["shout", "shorten"]
    assert run.stages[1].calls == pytest.approx(run.queries / 2, rel=0.1)
    assert run.kept
    with pytest.raises(BadInput, match="give `queries` FILE"):
        service.simulate(TRAFFIC, "coarse-mean", **PART)
    with pytest.raises(BadInput, match="queries: a query is an object of JSON"):
        service.simulate(TRAFFIC, "coarse-mean", queries=[{"text": object()}], **PART)


def test_policies_of_pipelines_are_compared_by_name(folder: Path) -> None:
    service = mark.Service(**GRAPH)
    service.write("two.toml")
    names = ["coarse-mean", "coarse-peak"]
    assert set(names) < set(PIPELINE_POLICIES)
    runs = service.compare(TRAFFIC, names, **PART)
    assert list(runs) == names
    request = RunRequest(TRAFFIC, "two.toml", **PART)
    theirs = simulate_pipeline(request, names)
    for name, run in runs.items():
        assert pipeline_run_report(run).data == pipeline_run_report(theirs[name]).data
    alone = service.simulate(TRAFFIC, "coarse-peak", with_bound=False, **PART)
    assert alone == replace(runs["coarse-peak"], bound_usd=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cold_start": True}, "cold_start: a pipeline is simulated without this option"),
        ({"spot_traces": ["x.csv"]}, "spot_traces: a pipeline is simulated without this option"),
        ({"queries": QUERIES}, "queries: there is no driver to run on queries"),
        ({"scale": 0.0}, "scale: must be above zero"),
        ({"policy": "reactive"}, "policy"),
    ],
)
def test_what_a_pipeline_does_not_take_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        mark.Service(**GRAPH).simulate(TRAFFIC, **options)
    assert str(refused.value).startswith(said)


def test_a_service_takes_no_queries() -> None:
    service = mark.Service("inception-v3")
    with pytest.raises(BadInput, match="queries: inception-v3 is no pipeline"):
        service.simulate(TRAFFIC, queries="queries.jsonl")
    with pytest.raises(BadInput, match="lineage: inception-v3 is no pipeline"):
        service.compare(TRAFFIC, ["mark"], lineage="lineage.csv")
    with pytest.raises(BadInput, match="queries: inception-v3 is no pipeline"):
        service.profile(queries=QUERIES)
    pipeline = mark.Service(**GRAPH)
    for given in ({"policy": "tuned"}, {"predictor": "auto"}, {"running": {"c7i.large": 2}}):
        with pytest.raises(BadInput, match=f"{next(iter(given))}: a pipeline is planned for a fixed load"):
            pipeline.plan(TRAFFIC, **given)
    with pytest.raises(BadInput, match="a pipeline cannot be deployed yet"):
        pipeline.deploy()
    with pytest.raises(BadInput, match="input: is for one model"):
        pipeline.profile(input="item.json")


@pytest.mark.slow
def test_the_model_of_each_stage_is_measured(folder: Path) -> None:
    service = mark.Service(**LOUD)
    found = service.profile("measured.csv", queries=QUERIES, batches=(1, 2), seconds=0.1, instance="c7i.large")
    assert [one.model for one in found] == ["tests.sdk.drivers:shout", "tests.sdk.drivers:Shorten?most=3"]
    assert "Shorten" in (folder / "measured.csv").read_text()


@pytest.mark.slow
def test_a_pipeline_runs_while_a_with_lasts() -> None:
    with mark.Service(**LOUD).running() as server:
        got = httpx.post(f"{server.url}/invocations", json={"text": "whisper"}, trust_env=False)
    assert (got.status_code, got.json()) == (200, "WHI")
