"""The data plane's settings from options and a pipeline file."""

from __future__ import annotations

import hashlib
import json
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
from mark.serving.process_settings import Serving

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
    """A server of single stages has none, because its calls have already missed the conductor's cache."""
    found = serving(tmp_path, CHAIN + "[cache]\nmemory_mb = 3\n")
    assert found.cache == CacheSettings(3)
    assert found.pipeline is not None
    assert [stage.cache for stage in found.pipeline.stages.values() if isinstance(stage, Serving)] == [None, None]
    assert serving(tmp_path, CHAIN + "[cache]\n", stages_here=["a"]).cache is None


def test_what_two_machines_take_is_not_mixed(tmp_path: Path) -> None:
    """The stages have rows on different instance types, and this machine may be neither."""
    profile = PROFILE.replace("m:A,c7i.large", "m:A,g4dn.xlarge").replace("m:B,c7i.large,1,6", "m:B,c7i.large,1,200")
    found = serving(tmp_path, more='profile = "p.csv"', profile=profile)  # 200 ms are no reason to refuse
    assert rt_max_ms(found) == {"a": 50.0, "b": 50.0}
    assert found.pipeline is not None
    assert [stage.candidate for stage in found.pipeline.stages.values()] == [None, None]
    # An option may name the machine.
    with pytest.raises(BadInput, match="no profile of m:B on it"):
        serving(tmp_path, more='profile = "p.csv"', profile=profile, instance="g4dn.xlarge")
    # A model without code is replayed as on its own type, on any machine.
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
    """On eight vCPUs they have two and six, because the second stage takes three times as long."""
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
    """So their times on this machine are no reason to refuse."""
    slow = PROFILE.replace("m:B,c7i.large,1,6", "m:B,c7i.large,1,200")
    with pytest.raises(Infeasible):
        serving(tmp_path, more='profile = "p.csv"', profile=slow)
    for options in ({"stages_here": ["a"]}, {"stages_at": [("b", "http://127.0.0.1:8081")]}):
        assert serving(tmp_path, more='profile = "p.csv"', profile=slow, **options).pipeline is not None


INSURED = """[service]
name = "p"
model = "{model}"
profile = "p.csv"
slo_ms = 100
slo_attainment = 0.99
[insurance]
parity = "parity/"
"""


def insured(folder: Path, model: str = "m:A", model_sha256: str = "", **options: Any) -> Serving:
    (folder / "parity").mkdir(exist_ok=True)
    said = {"schema": 1, "code": "sum", "k": 2, "models": ["m:P"], "input": {"shape": [3]}, "output": {"shape": [4]}}
    (folder / "parity" / "parity.json").write_text(json.dumps(said | {"model_sha256": model_sha256}))
    path = folder / "p.toml"
    path.write_text(INSURED.format(model=model))
    (folder / "p.csv").write_text(PROFILE.replace("m:A", model))
    return pipeline_serving_of(replace(ServerOptions(service=str(path)), **options), load_pipeline(str(path)))


def test_parity_models_are_served_beside_the_model_with_all_of_its_time(tmp_path: Path) -> None:
    found = insured(tmp_path)
    assert rt_max_ms(found) == {"model": 100.0, "parity": 100.0}
    pipeline = found.pipeline
    assert pipeline is not None
    assert pipeline.graph is None
    assert not pipeline.apart
    assert pipeline.insurance is not None
    parity = pipeline.stages["parity"]
    assert isinstance(parity, Serving)
    assert parity.versions.references == {"1": "m:P"}
    assert parity.candidate is not None, "a parity model has the profile of its model"
    assert pipeline.insurance.capacity_rps == parity.candidate.capacity_rps
    assert (pipeline.insurance.share, pipeline.insurance.off) == (1.0, "")
    apart = insured(tmp_path, stages_here=["parity"]).pipeline
    assert apart is not None
    assert (list(apart.stages), apart.apart) == (["parity"], True)


def test_parity_calls_elsewhere_have_no_second_attempt_and_conductors_share_them(tmp_path: Path) -> None:
    at = [("model", "http://127.0.0.1:8081"), ("parity", "http://127.0.0.1:8082")]
    found = insured(tmp_path, stages_at=at).pipeline
    assert found is not None
    model, parity = found.stages.values()
    assert isinstance(model, StageAddress)
    assert isinstance(parity, StageAddress)
    assert model.retry_burst > 0.0
    assert (parity.retry_burst, parity.retry_share) == (0.0, 0.0)
    assert found.insurance is not None
    assert (found.insurance.share, found.insurance.capacity_rps) == (0.5, None), "one of two conductors"


def test_parity_models_of_another_file_are_switched_off(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"weights")
    sha = hashlib.sha256(b"weights").hexdigest()
    for said, off in ((sha, ""), ("", ""), ("0" * 64, "another version of the model (000000000000, not ")):
        found = insured(tmp_path, "onnx:model.onnx", said).pipeline
        assert found is not None
        assert found.insurance is not None
        assert off in found.insurance.off
        assert bool(off) is bool(found.insurance.off)


def test_second_calls_of_the_file_are_those_of_each_stage_elsewhere(tmp_path: Path) -> None:
    stages = CHAIN + "[insurance]\nhedge_after_ms = 20\n"
    found = serving(tmp_path, stages, stages_at=[("b", "http://127.0.0.1:8081")]).pipeline
    assert found is not None
    there = found.stages["b"]
    assert isinstance(there, StageAddress)
    assert there.hedge_after_s == 0.02


FUNCTIONS = "model,instance,batch,latency_ms\nm:A,lambda:1024,1,9\nm:B,lambda:1024,1,3\nm:B,lambda:2048,1,2\n"
OVERFLOW = 'profile = "p.csv"\n[overflow]\nfunction = "lambda:*"\nmax_usd_per_hour = 4.0'


def test_a_stage_has_the_function_that_is_named_for_it(tmp_path: Path) -> None:
    """It has the time of the size that its profile and its part make the cheapest, and its part of the dollars."""
    profile = PROFILE + FUNCTIONS.partition("\n")[2]
    of_b = [("b", "mine")]
    for options in ({"stage_functions": of_b}, {"stage_functions": of_b, "stages_here": ["b"]}):
        found = serving(tmp_path, more=OVERFLOW, profile=profile, **options).pipeline
        assert found is not None
        stage = found.stages["b"]
        assert isinstance(stage, Serving)
        assert isinstance(stage.functions, CappedFunctions)
        assert (stage.function_s, stage.late) == (0.003, REJECT)
        # Half of $4 an hour, since both stages name functions. A minute's dollars may be spent at once.
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
    """A separate file may replace those faults; answers are late if the faults say so."""
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
