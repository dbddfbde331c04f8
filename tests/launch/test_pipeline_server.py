"""What the data plane is told of options and a pipeline file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mark_infra.aws.lambda_functions import LambdaFunctions

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput, Infeasible, MarkError
from mark.domain.rules.admission import REJECT
from mark.domain.service import CacheSettings
from mark.launch.pipeline_server import pipeline_serving_of
from mark.launch.server import ServerOptions
from mark.serving.conductor.remote_stage import StageAddress
from mark.serving.overflow.capped import CappedFunctions
from mark.serving.overflow.http_functions import HttpFunctions
from mark.serving.server_process import Serving

HEAD = '[service]\nname = "p"\nslo_ms = 100\nslo_attainment = 0.99\n{more}\n'
CHAIN = '[stage.a]\nmodel = "m:A"\n[stage.b]\nmodel = "m:B"\nafter = ["a"]\n'
PROFILE = "model,instance,batch,latency_ms\nm:A,c7i.large,1,2\nm:A,c7i.large,8,4\nm:B,c7i.large,1,6\n"


def serving(folder: Path, stages: str = CHAIN, more: str = "", profile: str = PROFILE, **options: Any) -> Serving:
    path = folder / "p.toml"
    path.write_text(HEAD.format(more=more) + stages)
    (folder / "p.csv").write_text(profile)
    return pipeline_serving_of(replace(ServerOptions(service=str(path)), **options), load_pipeline(str(path)))


def rt_max_ms(found: Serving) -> dict[str, float]:
    assert found.pipeline is not None
    return {name: round(stage.rt_max_s * 1e3, 6) for name, stage in found.pipeline.stages.items()}


def test_rt_max_is_parted_by_the_profile_else_equally(tmp_path: Path) -> None:
    assert rt_max_ms(serving(tmp_path)) == {"a": 50.0, "b": 50.0}
    found = serving(tmp_path, more='profile = "p.csv"')
    assert rt_max_ms(found) == {"a": 25.0, "b": 75.0}
    assert found.rt_max_s == 0.1
    assert found.pipeline is not None
    batches = {name: stage.candidate.policy.n_batch for name, stage in found.pipeline.stages.items()}
    assert batches == {"a": 8, "b": 1}
    assert rt_max_ms(serving(tmp_path, CHAIN.replace('after = ["a"]', ""))) == {"a": 100.0, "b": 100.0}


def test_feedback_is_on_the_whole_and_on_no_stage(tmp_path: Path) -> None:
    found = serving(tmp_path, CHAIN + '[feedback]\nlog = "said"\n')
    assert found.feedback is not None
    assert found.feedback.log == str(tmp_path / "said")
    assert found.pipeline is not None
    assert [stage.feedback for stage in found.pipeline.stages.values()] == [None, None]


def test_a_cache_stands_before_stages_where_queries_are_conducted(tmp_path: Path) -> None:
    """A server of single stages has none: the calls that reach it are those that were in no conductor's memory."""
    found = serving(tmp_path, CHAIN + "[cache]\nmemory_mb = 3\n")
    assert found.cache == CacheSettings(3)
    assert found.pipeline is not None
    assert [stage.cache for stage in found.pipeline.stages.values() if isinstance(stage, Serving)] == [None, None]
    assert serving(tmp_path, CHAIN + "[cache]\n", stages_here=["a"]).cache is None


def test_what_two_machines_take_is_not_mixed(tmp_path: Path) -> None:
    """Rows of one stage on one instance type and of the other on another: this machine may be neither."""
    profile = PROFILE.replace("m:A,c7i.large", "m:A,g4dn.xlarge").replace("m:B,c7i.large,1,6", "m:B,c7i.large,1,200")
    found = serving(tmp_path, more='profile = "p.csv"', profile=profile)  # 200 ms are no reason to refuse
    assert rt_max_ms(found) == {"a": 50.0, "b": 50.0}
    assert found.pipeline is not None
    assert [stage.candidate for stage in found.pipeline.stages.values()] == [None, None]
    # Which machine it is may be said.
    with pytest.raises(BadInput, match="no profile of m:B on it"):
        serving(tmp_path, more='profile = "p.csv"', profile=profile, instance="g4dn.xlarge")
    # A model without code is replayed as on its own type, wherever it runs.
    replayed = serving(tmp_path, CHAIN.replace("m:A", "A"), 'profile = "p.csv"', profile.replace("m:A", "A"))
    assert replayed.pipeline is not None
    assert [stage.candidate is None for stage in replayed.pipeline.stages.values()] == [False, True]


def test_workers_are_the_option_s_the_stage_s_or_one(tmp_path: Path) -> None:
    stages = CHAIN.replace('"m:B"', '"m:B"\nworkers = 3')
    for option, wanted in ((None, {"a": 1, "b": 3}), (2, {"a": 2, "b": 2})):
        found = serving(tmp_path, stages, workers=option).pipeline
        assert found is not None
        assert {name: stage.workers for name, stage in found.stages.items()} == wanted


TOGETHER = CHAIN + '[packs]\ntogether = [["b", "a"]]\n'
TWO_WORKERS = "model,instance,batch,latency_ms,workers\nm:A,{0},1,2,{1}\nm:B,{0},1,6,{1}\n"


def workers_of(found: Serving) -> dict[str, int]:
    assert found.pipeline is not None
    return {name: stage.workers for name, stage in found.pipeline.stages.items()}


def test_stages_bought_together_have_the_workers_of_their_instance(tmp_path: Path) -> None:
    """On eight vCPUs two and six of them: the second stage takes three times as long."""
    profile = TWO_WORKERS.format("c7i.2xlarge", 8)
    on: dict[str, Any] = {
        "more": 'profile = "p.csv"',
        "profile": profile,
        "instance": "c7i.2xlarge",
        "stages_here": ["a", "b"],
    }
    assert workers_of(serving(tmp_path, TOGETHER, **on)) == {"a": 2, "b": 6}
    assert workers_of(serving(tmp_path, CHAIN, **on)) == {"a": 8, "b": 8}
    assert workers_of(serving(tmp_path, CHAIN, **on | {"stages_here": []})) == {"a": 2, "b": 6}  # all share the machine
    assert workers_of(serving(tmp_path, TOGETHER, **on | {"stages_here": ["a"]})) == {"a": 8}
    assert workers_of(serving(tmp_path, TOGETHER, **on, workers=3)) == {"a": 3, "b": 3}
    said = TOGETHER.replace('"m:A"\n', '"m:A"\nworkers = 4\n')
    assert workers_of(serving(tmp_path, said, **on)) == {"a": 4, "b": 8}
    full = on | {"profile": TWO_WORKERS.format("c7i.large", 1), "instance": "c7i.large"}
    with pytest.raises(BadInput, match="instance: has no room for a worker of each of a, b: c7i"):
        serving(tmp_path, TOGETHER, **full)


def test_a_stage_is_served_apart_or_asked_where_it_is(tmp_path: Path) -> None:
    """Its part of RT_max is the same on every machine that has the same file and profile."""
    apart = serving(tmp_path, more='profile = "p.csv"', stages_here=["b"])
    assert apart.pipeline is not None
    assert (rt_max_ms(apart), apart.pipeline.apart) == ({"b": 75.0}, True)
    (tmp_path / "key").write_text("a-key-of-the-stages")
    at = [("b", "http://127.0.0.1:8081")]
    found = serving(tmp_path, more='profile = "p.csv"', stages_at=at, stage_key=tmp_path / "key").pipeline
    assert found is not None
    assert ({name: type(stage) for name, stage in found.stages.items()}, found.apart) == (
        {"a": Serving, "b": StageAddress},
        False,
    )
    there = found.stages["b"]
    assert isinstance(there, StageAddress)
    assert (there.address.url, there.key) == (at[0][1], "a-key-of-the-stages")
    assert there.rt_max_s == pytest.approx(0.075)
    assert "a-key" not in repr(there)


def test_stages_elsewhere_run_on_other_machines(tmp_path: Path) -> None:
    """So that what they would take on this one is no reason to refuse."""
    slow = PROFILE.replace("m:B,c7i.large,1,6", "m:B,c7i.large,1,200")
    with pytest.raises(Infeasible):
        serving(tmp_path, more='profile = "p.csv"', profile=slow)
    for options in ({"stages_here": ["a"]}, {"stages_at": [("b", "http://127.0.0.1:8081")]}):
        assert serving(tmp_path, more='profile = "p.csv"', profile=slow, **options).pipeline is not None


FUNCTIONS = "model,instance,batch,latency_ms\nm:A,lambda:1024,1,9\nm:B,lambda:1024,1,3\nm:B,lambda:2048,1,2\n"
OVERFLOW = 'profile = "p.csv"\n[overflow]\nfunction = "lambda:*"\nmax_usd_per_hour = 4.0'


def test_a_stage_has_the_function_that_is_named_for_it(tmp_path: Path) -> None:
    """With the time of the size that its profile and its part make the cheapest, and its part of the dollars."""
    profile = PROFILE + FUNCTIONS.partition("\n")[2]
    of_b = [("b", "mine")]
    for options in ({"stage_functions": of_b}, {"stage_functions": of_b, "stages_here": ["b"]}):
        found = serving(tmp_path, more=OVERFLOW, profile=profile, **options).pipeline
        assert found is not None
        stage = found.stages["b"]
        assert isinstance(stage, Serving)
        assert isinstance(stage.functions, CappedFunctions)
        assert (stage.function_s, stage.late) == (0.003, REJECT)
        # Half of $4 an hour, since both stages name functions: a minute's worth may come at once.
        assert stage.functions.usd_per_hour == 2.0
    whole = serving(tmp_path, more=OVERFLOW, profile=profile, stage_functions=of_b).pipeline
    assert whole is not None
    assert isinstance(whole.stages["a"], Serving)
    assert whole.stages["a"].functions is None


def test_a_stages_function_may_be_another_server(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a-key-of-the-stages")
    functions = [("a", "http://there:80/v2/models/a"), ("b", "mine")]
    options: dict[str, Any] = {"stage_functions": functions, "function_key": tmp_path / "key", "function_ms": 5.0}
    found = serving(tmp_path, **options).pipeline
    assert found is not None
    kinds = {n: (type(s.functions), s.function_s) for n, s in found.stages.items() if isinstance(s, Serving)}
    assert kinds == {"a": (HttpFunctions, 0.005), "b": (LambdaFunctions, 0.005)}


def test_what_serves_stages_needs_no_driver_and_takes_no_feedback(tmp_path: Path) -> None:
    more = "pipeline = 'absent:respond'"
    stages = "[stage.a]\nmodel = 'm:A'\n[feedback]\nlog = 'said'\n"
    found = serving(tmp_path, stages, more, stages_here=["a"])
    assert (found.feedback, found.pipeline and found.pipeline.driver) == (None, None)


def test_stages_of_a_stand_in_play_the_faults_of_the_file(tmp_path: Path) -> None:
    """Or those of a file of their own; and their answers are late where these say so."""
    faults = "[faults]\nslow_share = 0.5\nslow_answer_ms = 20\n"
    more = 'profile = "p.csv"'
    paced: dict[str, Any] = {"pace": True, "instance": "c7i.large", "stages_here": ["b"]}
    found = serving(tmp_path, CHAIN + faults, more, **paced).pipeline
    assert found is not None
    stage = found.stages["b"]
    assert isinstance(stage, Serving)
    assert "slow_answer_s%22%3A+0.02" in stage.versions.references["1"]
    assert stage.answers_later_s is not None
    assert {stage.answers_later_s(time.time() + 7.0 * n) for n in range(200)} == {0.0, 0.02}
    (tmp_path / "f.toml").write_text("[faults]\nhangs_per_hour = 5\n")
    found = serving(tmp_path, CHAIN + faults, more, faults=str(tmp_path / "f.toml"), **paced).pipeline
    assert found is not None
    stage = found.stages["b"]
    assert isinstance(stage, Serving)
    assert "hangs_per_hour%22%3A+5.0" in stage.versions.references["1"]
    assert stage.answers_later_s is None


@pytest.mark.parametrize(
    ("stages", "more", "options", "error", "says"),
    [
        (CHAIN + "share = 0.4\n", "", {}, BadInput, r"\[stage.b\] share: nothing says which queries visit it"),
        (CHAIN, "", {"function": "f"}, BadInput, "function: is of a model by itself"),
        (CHAIN, "", {"to_measure": True}, BadInput, "to_measure: is of a model by itself"),
        (CHAIN, "", {"faults": "f.toml"}, BadInput, "faults: are played where this machine stands in for another"),
        (
            CHAIN,
            "",
            {"stages_at": [("a", "http://[::1]:1"), ("b", "http://[::1]:2")], "pace": True, "faults": "f.toml"},
            BadInput,
            "faults: are played by the servers of the stages, and none is served here",
        ),
        (CHAIN, 'profile = "p.csv"', {"instance": "p2.xlarge"}, BadInput, "no profile of m:A on it"),
        ("[stage.a]\nmodel = 'm:A'\n", "pipeline = 'absent:respond'", {}, BadInput, "no module absent"),
        (CHAIN, "", {"stages_here": ["c"]}, BadInput, "stages_here: no stage of .*p.toml: c"),
        (CHAIN, "", {"stages_here": ["a", "a"]}, BadInput, "stages_here: a stage twice: a"),
        (CHAIN, "", {"stages_here": ["a", "b"], "grpc_port": 1}, BadInput, "grpc_port: speaks of one model"),
        (
            CHAIN,
            "",
            {"stages_here": ["a"], "stages_at": [("b", "http://[::1]:1")]},
            BadInput,
            "stages_at: belongs to the server",
        ),
        (CHAIN, "", {"stages_at": [("c", "http://[::1]:1")]}, BadInput, "stages_at: no stage of .*p.toml: c"),
        (CHAIN, "", {"stages_at": [("a", "http://[::1]:1")] * 2}, BadInput, "stages_at: a stage twice: a"),
        (CHAIN, "", {"stages_at": [("a", "http://[::1]")]}, BadInput, "stages_at: must be NAME=http://host:port"),
        (CHAIN, "", {"stages_at": [("a", "http://10.0.0.1:1")]}, BadInput, "stages_at: would be reached in clear"),
        (CHAIN, "", {"stage_key": Path("key")}, BadInput, "stage_key: is for stages elsewhere"),
        (CHAIN, "", {"stage_functions": [("c", "f")]}, BadInput, "stage_functions: no stage of .*p.toml: c"),
        (CHAIN, "", {"stage_functions": [("a", "f")] * 2}, BadInput, "stage_functions: a stage twice: a"),
        (CHAIN, "", {"stage_functions": [("a", "f")]}, BadInput, "function_ms: must be said: there is no profile"),
        (
            CHAIN,
            "",
            {"stage_functions": [("a", "f")], "stages_here": ["b"]},
            BadInput,
            "stage_functions: is not served here: the server of that stage calls its function: a",
        ),
        (
            CHAIN,
            "",
            {"stage_functions": [("a", "f")], "stages_at": [("a", "http://[::1]:1")]},
            BadInput,
            "stage_functions: is not served here",
        ),
        (CHAIN, "", {"function_key": Path("key")}, BadInput, "function_key: is for functions at a URL"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, stages: str, more: str, options: dict[str, Any], error: type[MarkError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        serving(tmp_path, stages, more, **options)
    assert "\n" not in str(caught.value)


def test_a_query_that_takes_longer_than_rt_max_is_infeasible(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(PROFILE)
    path = tmp_path / "p.toml"
    path.write_text(HEAD.replace("100", "7").format(more='profile = "p.csv"') + CHAIN)
    with pytest.raises(Infeasible, match=r"a query takes 8.0 ms at least, RT_max is 7 ms"):
        pipeline_serving_of(ServerOptions(service=str(path)), load_pipeline(str(path)))
