"""Pipeline files: their meaning, their refusals, and that services stay unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.pipeline import ALL, FIRST, Join

HEAD = '[service]\nname = "social"\nslo_ms = 300\nslo_attainment = 0.99\n'
GRAPH = """
[stage.categorise]
model = "sklearn:topics.joblib?pickle=trusted"
after = ["translate", "vision"]
[stage.language]
model = "onnx:language.onnx"
[stage.translate]
model = "torch:nmt.pt2"
after = ["language"]
share = 0.4
function = "lambda:*"
[stage.vision]
model = "torch:resnet152.pt2"
share = 0.6
instances = ["g6.xlarge"]
"""
DRIVEN = HEAD + 'pipeline = "social:respond"\n[stage.vision]\nmodel = "vision:Net"\n'


def pipeline(folder: Path, text: str) -> PipelineConfig:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return load_pipeline(str(path))


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        pipeline(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_stage_may_say_its_workers(tmp_path: Path) -> None:
    found = pipeline(tmp_path, HEAD + GRAPH.replace("share = 0.6", "share = 0.6\nworkers = 4"))
    assert [stage.workers for stage in found.stages] == [None, 4, None, None]
    assert "workers: must lie between 1" in refusal(tmp_path, HEAD + GRAPH + "workers = 0\n")


PARTS: dict[str, float] = {"language": 50, "translate": 150, "vision": 180, "categorise": 100}


def with_parts(text: str, parts: Mapping[str, float]) -> str:
    for stage, part_ms in parts.items():
        text = text.replace(f"[stage.{stage}]\n", f"[stage.{stage}]\nslo_ms = {part_ms}\n")
    return text


def test_stages_with_their_parts_of_the_time_are_services(tmp_path: Path) -> None:
    """Each may miss as much, and has as much of the limits: together they stay within the pipeline's."""
    limits = "[fleet]\nmax_instances = 10\nmax_usd_per_hour = 8.0\nwarm_pool = 9\n"
    found = pipeline(tmp_path, with_parts(HEAD + GRAPH, PARTS) + limits)
    services = found.stage_services()
    assert [service.name for service in services] == [f"social-{service.stage}" for service in services]
    assert {service.stage: service.slo.rt_max_s for service in services} == {n: ms / 1e3 for n, ms in PARTS.items()}
    for service in services:
        assert service.slo.attainment == pytest.approx(0.9975)
        assert (service.max_instances, service.max_usd_per_hour, service.late) == (2, 2.0, "refuse")
        assert service.warm_pool == 2
        assert service.source == found.source
    assert services[0].model == "onnx:language.onnx"


TOGETHER = '[packs]\ntogether = [["categorise", "language"]]\n'


def test_stages_are_bought_together_in_the_pipelines_order(tmp_path: Path) -> None:
    text = with_parts(HEAD + GRAPH, PARTS) + "[fleet]\nmax_instances = 12\nmax_usd_per_hour = 9.0\n"
    assert pipeline(tmp_path, text).groups == (("language",), ("vision",), ("translate",), ("categorise",))
    found = pipeline(tmp_path, text + TOGETHER)
    assert found.together == (("language", "categorise"),)
    assert found.groups == (("language", "categorise"), ("vision",), ("translate",))
    alone = [found.stage_service(stage, PARTS[stage.name] / 1e3) for stage in found.stages]
    assert {(one.max_instances, one.max_usd_per_hour) for one in alone} == {(4, 3.0)}, (
        "what is bought as one counts once"
    )
    one, vision, _ = found.bought_services()
    assert vision == alone[1]
    assert (one.name, one.stage, one.together) == ("social-language-categorise", "", ("language", "categorise"))
    assert (one.slo.rt_max_s, one.max_instances, one.functions) == (0.1, 4, ())
    assert one.slo.attainment == pytest.approx(0.995), "it misses what one of both does"
    assert list(found.service_of_stages()) == list(found.names)
    assert list(found.service_of_stages().values()) == [one.name, "social-vision", "social-translate", one.name]


CHAIN = """[stage.language]
model = "onnx:language.onnx"
instances = ["c7i.*"]
[stage.topics]
model = "sklearn:topics.joblib?pickle=trusted"
after = ["language"]
"""
NO_CONDUCTORS = "[conductors]\ncount = 0\n"


def test_pipeline_without_conductors_is_bought_as_one_service(tmp_path: Path) -> None:
    fleet = "[fleet]\nmax_instances = 9\nwarm_pool = 1\n"
    (one,) = pipeline(tmp_path, HEAD + CHAIN + fleet + NO_CONDUCTORS).bought_services()
    assert (one.name, one.slo.rt_max_s, one.slo.attainment) == ("social", 0.3, 0.99), "the whole promise"
    assert (one.whole, one.together, one.stage) == (("language", "topics"), (), "")
    assert (one.max_instances, one.warm_pool, one.functions, one.late) == (9, 1, (), "refuse")
    assert one.instances == ("c7i.*", "*")


def test_only_selections_have_no_conductors_unless_said(tmp_path: Path) -> None:
    selects = CHAIN.replace('after = ["language"]\n', "") + '[selection]\npolicy = "split"\n'
    assert pipeline(tmp_path, HEAD + CHAIN).conductors == 2
    assert pipeline(tmp_path, HEAD + selects).conductors == 0
    assert pipeline(tmp_path, HEAD + selects + "[conductors]\ncount = 3\n").conductors == 3
    assert "[conductors] count: must be 2 to 100, or 0" in refusal(tmp_path, HEAD + CHAIN + "[conductors]\ncount = 1\n")


@pytest.mark.parametrize(
    ("more", "where", "words"),
    [
        ('[overflow]\nfunction = "lambda:1024"\n', "[stage.language] function", "no functions yet"),
        ("workers = 2\n", "[stage.topics] workers", "as many workers of each stage as fit"),
        ('[packs]\ntogether = [["language", "topics"]]\n', "[packs] together", "all stages together"),
        ('[packs]\nallow = "separate"\n', "[packs] allow", "all stages together"),
        ("share = 0.5\n", "[stage.topics] share", "takes a driver"),
    ],
)
def test_settings_of_fleets_of_stages_are_refused_without_conductors(
    tmp_path: Path, more: str, where: str, words: str
) -> None:
    found = pipeline(tmp_path, HEAD + CHAIN + more + NO_CONDUCTORS)
    with pytest.raises(BadInput) as caught:
        found.bought_services()
    assert where in str(caught.value)
    assert words in str(caught.value)


def test_what_to_buy_together_may_be_left_to_a_simulation(tmp_path: Path) -> None:
    found = pipeline(tmp_path, with_parts(HEAD + GRAPH, PARTS) + '[packs]\ntogether = "auto"\n')
    assert (found.together, found.chooses_together, len(found.groups)) == ((), True, 4)
    with pytest.raises(BadInput, match=r"\[packs\] together: must be said as lists of stages to be run .*: auto$"):
        found.bought_services()


def test_a_stage_without_a_part_is_no_service(tmp_path: Path) -> None:
    found = pipeline(tmp_path, with_parts(HEAD + GRAPH, {"language": 50}))
    with pytest.raises(BadInput, match=r"\[stage\.vision\] slo_ms: must be said"):
        found.stage_services()


def test_parts_on_one_path_are_no_more_than_the_whole(tmp_path: Path) -> None:
    said = refusal(tmp_path, with_parts(HEAD + GRAPH, PARTS | {"vision": 201}))
    assert said.startswith("pipeline.toml [stage.*] slo_ms: those of the stages on one path sum to more than")
    assert "300, not 301" in said or said.endswith("301")


def test_feedback_is_on_answers_of_the_whole(tmp_path: Path) -> None:
    assert pipeline(tmp_path, HEAD + GRAPH).feedback is None
    found = pipeline(tmp_path, HEAD + GRAPH + '[feedback]\nlog = "said"\n').feedback
    assert found is not None
    assert found.log == str(tmp_path / "said")


def test_a_graph_that_is_said(tmp_path: Path) -> None:
    found = pipeline(tmp_path, HEAD + GRAPH + '[fleet]\ninstances = ["c7i.*"]\nmarkets = ["spot"]\n')
    assert (found.name, found.slo.rt_max_s, found.slo.attainment, found.driver) == ("social", 0.3, 0.99, None)
    # In the order of the file as far as predecessors allow.
    assert found.names == ("language", "vision", "translate", "categorise")
    assert found.pipeline is not None
    assert [stage.after for stage in found.pipeline.stages] == [(), (), ("language",), ("translate", "vision")]
    assert {stage.join for stage in found.pipeline.stages} == {ALL}
    assert [stage.share for stage in found.stages] == [1.0, 0.6, 0.4, 1.0]
    assert [stage.instances for stage in found.stages] == [("c7i.*",), ("g6.xlarge",), ("c7i.*",), ("c7i.*",)]
    assert [stage.functions for stage in found.stages] == [(), (), ("lambda:*",), ()]
    assert found.fleet.markets == (Market.SPOT,)
    assert (found.fleet.max_instances, found.packs) == (500, "auto")


def test_a_stage_may_leave_gpus_alone(tmp_path: Path) -> None:
    found = pipeline(tmp_path, DRIVEN + 'gpus = 0\n[stage.text]\nmodel = "m"\n')
    assert [stage.without_gpu for stage in found.stages] == [True, False]


def test_a_driver_leaves_the_graph_open(tmp_path: Path) -> None:
    found = pipeline(tmp_path, DRIVEN + '[packs]\nallow = "separate"\n[overflow]\nfunction = "lambda:2048"\n')
    assert (found.driver, found.pipeline, found.names) == ("social:respond", None, ("vision",))
    assert found.packs == "separate"
    assert found.stages[0].functions == ("lambda:2048",)
    assert math.isinf(found.fleet.max_function_usd_per_hour)


@pytest.mark.parametrize(
    ("said", "join"),
    [
        ("", ALL),
        ('join = "all"', ALL),
        ('join = "first"', FIRST),
        ("join = { deadline_ms = 40 }", Join(1, 0.04)),
        ("join = { deadline_ms = 40, least = 2 }", Join(2, 0.04)),
    ],
)
def test_joins(tmp_path: Path, said: str, join: Join) -> None:
    stages = '[stage.a]\nmodel = "m"\n[stage.b]\nmodel = "m"\nafter = []\n'
    found = pipeline(tmp_path, HEAD + stages + f'[stage.c]\nmodel = "m"\nafter = ["a", "b"]\n{said}\n')
    assert found.pipeline is not None
    assert found.pipeline.stages[2].join == join


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "pipeline.toml: is no pipeline: it has neither a section [stage.NAME] nor [service] pipeline"),
        (HEAD + 'pipeline = "a:b"\n', "pipeline.toml [stage.NAME]: a pipeline has 1 to 62 stages: 0"),
        ("stage = 3\n" + HEAD, "pipeline.toml stage: must be a section: 3"),
        (HEAD + "[stage]\na = 1\n", "pipeline.toml [stage.a]: must be a section: 1"),
        (HEAD + "[stage.a]\n", "pipeline.toml [stage.a] model: missing"),
        (HEAD + '[stage.a]\nmodle = "m"\n', "[stage.a] modle: unknown key, did you mean model?: m"),
        (HEAD + '[stage.a]\nmodel = " "\n', "[stage.a] model: must be a text that is not empty:"),
        (HEAD + '[stage.a-b]\nmodel = "m"\n', "drivers call models.NAME: a-b"),
        (HEAD + '[stage.class]\nmodel = "m"\n', "drivers call models.NAME: class"),
        (HEAD + '[stage._a]\nmodel = "m"\n', "drivers call models.NAME: _a"),
        (HEAD + '[stage.queries]\nmodel = "m"\n', "[stage.queries]: is the name of the count column"),
        (
            HEAD + 'model = "m"\n[stage.a]\nmodel = "m"\n',
            "[service] model: a pipeline's models stand in [stage.NAME]: m",
        ),
        (HEAD + '[stage.a]\nmodel = "m"\n[flet]\n', "pipeline.toml [flet]: unknown section, did you mean fleet?"),
        (HEAD + '[stage.a]\nmodel = "m"\n[packs]\nallow = "no"\n', "[packs] allow: must be one of auto, separate: no"),
        (HEAD + GRAPH + '[packs]\ntogether = ["language"]\n', '[packs] together: must be "auto", or lists of two'),
        (
            HEAD + GRAPH + '[packs]\ntogether = [["language"]]\n',
            '[packs] together: must be "auto", or lists of two',
        ),
        (
            HEAD + GRAPH + '[packs]\nallow = "separate"\ntogether = "auto"\n',
            '[packs] together: lets stages share instances, and allow = "separate" does not: auto',
        ),
        (
            HEAD + "".join(f'[stage.s{n}]\nmodel = "m"\n' for n in range(7)) + '[packs]\ntogether = "auto"\n',
            "[packs] together: chooses among 6 stages at most: say lists of stages: auto",
        ),
        (
            HEAD + GRAPH + '[packs]\ntogether = [["language", "visoin"]]\n',
            "[packs] together: is no stage, did you mean vision?: visoin",
        ),
        (
            HEAD + GRAPH + '[packs]\ntogether = [["language", "vision"], ["vision", "categorise"]]\n',
            "[packs] together: names a stage twice: vision",
        ),
        (
            HEAD + GRAPH + '[packs]\ntogether = [["language", "translate"]]\n',
            "[stage.translate] function: is bought together with others, which have no functions yet: say function = "
            '"none" of it: lambda:*',
        ),
        (
            HEAD + GRAPH + '[packs]\nallow = "separate"\ntogether = [["language", "vision"]]\n',
            '[packs] together: says that stages share instances, and allow = "separate" that none does',
        ),
        (HEAD + '[stage.a]\nmodel = "m"\ngpus = 1\n', "[stage.a] gpus: may be 0 only, for a model that runs on the"),
        (HEAD + '[stage.a]\nmodel = "m"\ngpus = true\n', "[stage.a] gpus: must be a whole number: True"),
        (HEAD + '[stage.a]\nmodel = "m"\nafter = ["b"]\n', "[stage.a] after: is no stage: b"),
        (HEAD + GRAPH.replace('["language"]', '["langage"]'), "is no stage, did you mean language?: langage"),
        (HEAD + '[stage.a]\nmodel = "m"\nafter = "b"\n', "[stage.a] after: must be a list of texts"),
        (HEAD + '[stage.a]\nmodel = "m"\nafter = ["a"]\n', "[stage.*]: the stages form a circle: a -> a"),
        (
            HEAD + '[stage.a]\nmodel = "m"\n[stage.b]\nmodel = "m"\nafter = ["a", "a"]\n',
            "[stage.b] after: names a stage twice: a, a",
        ),
        (HEAD + '[stage.a]\nmodel = "m"\nshare = 0\n', "[stage.a] share: must be above zero: 0"),
        (HEAD + '[stage.a]\nmodel = "m"\nshare = 1.5\n', "[stage.a] share: a share of the queries"),
        (HEAD + '[stage.a]\nmodel = "m"\njoin = "all"\n', "[stage.a] join: joins the answers of several stages"),
        (HEAD + GRAPH.replace('"vision"]', '"vision"]\njoin = "any"', 1), '[stage.categorise] join: must be "all"'),
        (HEAD + GRAPH.replace('"vision"]', '"vision"]\njoin = ["all"]', 1), '[stage.categorise] join: must be "all"'),
        (HEAD + GRAPH.replace('"vision"]', '"vision"]\njoin = {least = 1}', 1), "join] deadline_ms: missing"),
        (
            HEAD + GRAPH.replace('"vision"]', '"vision"]\njoin = {deadline_ms = 1, least = 3}', 1),
            "join] least: waits for more stages than `after` names (2): 3",
        ),
        (HEAD + GRAPH.replace('"vision"]', '"vision"]\njoin = {deadline = 1}', 1), "join] deadline: unknown key"),
        (HEAD + '[stage.a]\nmodel = "m"\nfunction = "lambda:huge"\n', "[stage.a] function: must be lambda:MEMORY_MB"),
        (DRIVEN.replace("social:respond", "social"), "[service] pipeline: must be module:function: social"),
        (DRIVEN + "share = 0.4\n", "[stage.vision] share: is decided by the driver social:respond: leave it out: 0.4"),
        (DRIVEN + 'after = ["x"]\n', "[stage.vision] after: is decided by the driver social:respond"),
        (DRIVEN.replace("slo_ms = 300", "slo_ms = 0"), "[service] slo_ms: RT_max must lie between"),
        (DRIVEN + "[fleet]\nmin_instances = 9\nmax_instances = 3\n", "[fleet] min_instances: must not be above"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    line = refusal(tmp_path, text)
    assert said in line
    assert "\n" not in line


def test_too_many_stages(tmp_path: Path) -> None:
    stages = "".join(f'[stage.s{n}]\nmodel = "m"\n' for n in range(63))
    assert "a pipeline has 1 to 62 stages: 63" in refusal(tmp_path, HEAD + 'pipeline = "a:b"\n' + stages)


def test_a_missing_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_pipeline(str(tmp_path / "no.toml"))
    assert "is no TOML" in refusal(tmp_path, "[stage.a\n")
    assert not names_pipeline(str(tmp_path / "pipeline.toml"))
    assert not names_pipeline(str(tmp_path / "no.toml"))


def test_a_reader_of_services_says_that_it_takes_no_pipeline(tmp_path: Path) -> None:
    for text in (HEAD + GRAPH, DRIVEN):
        path = tmp_path / "pipeline.toml"
        path.write_text(text)
        assert names_pipeline(str(path))
        with pytest.raises(BadInput, match="is a pipeline, which this command does not take yet"):
            load_service(str(path))
    path.write_text(HEAD + 'model = "m"\n[packs]\nallow = "auto"\n')
    with pytest.raises(BadInput, match="unknown section"):
        load_service(str(path))


def test_a_stages_service_has_its_own_instances_and_functions(tmp_path: Path) -> None:
    found = pipeline(tmp_path, HEAD + GRAPH + "[fleet]\nmax_usd_per_hour = 5\n")
    service = found.service(found.stages[2])
    assert (service.name, service.model, service.functions) == ("social-translate", "torch:nmt.pt2", ("lambda:*",))
    assert (service.slo, service.max_usd_per_hour) == (found.slo, 5.0)
