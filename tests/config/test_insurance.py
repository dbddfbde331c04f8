"""The section [insurance]: its keys, and one clear line for each refusal."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.service import Version

HEAD = '[service]\nname = "digits"\nmodel = "digits:Net"\nslo_ms = 200\nslo_attainment = 0.99\n'
PARITY = {
    "schema": 1,
    "code": "sum",
    "k": 2,
    "models": ["parity-1.pt2"],
    "input": {"shape": [8, 8]},
    "output": {"shape": [10]},
    "degraded_accuracy": 0.9,
}
INSURED = HEAD + '[insurance]\nparity = "parity/"\n'


def _path(folder: Path, text: str, **changed: object) -> str:
    (folder / "parity").mkdir(exist_ok=True)
    for number in (1, 2):
        (folder / "parity" / f"parity-{number}.pt2").touch()
    (folder / "parity" / "parity.json").write_text(json.dumps(PARITY | changed))
    (folder / "service.toml").write_text(text)
    return str(folder / "service.toml")


def _insured(folder: Path, text: str, **changed: object) -> PipelineConfig:
    return load_pipeline(_path(folder, text, **changed))


def test_service_with_parity_models_is_a_pipeline_of_its_model_and_these(tmp_path: Path) -> None:
    path = _path(tmp_path, INSURED + '[fleet]\nmarkets = ["on-demand"]\n[overflow]\nfunction = "lambda:2048"\n')
    assert names_pipeline(path)
    found = load_pipeline(path)

    assert found.names == ("model", "parity")
    assert found.pipeline is not None
    assert [stage.after for stage in found.pipeline.stages] == [(), ()]
    model, parity = found.stages
    assert (model.reference, parity.reference) == ("digits:Net", "torch:parity/parity-1.pt2")
    assert parity.model == "digits:Net", "a parity model has the profile of its model"
    assert (model.functions, parity.functions) == (("lambda:2048",), ())
    assert found.conductors == 2
    assert found.insurance is not None
    assert found.insurance.parity is not None
    assert (found.insurance.parity.code, found.insurance.parity.k) == ("sum", 2)
    assert found.insured is not None
    assert found.insured.model == "digits:Net"


def test_parity_models_have_fleets_of_their_own(tmp_path: Path) -> None:
    text = HEAD.replace("slo_ms", 'routing = "least-completion"\nslo_ms') + '[insurance]\nparity = "parity/"\n'
    found = _insured(tmp_path, text + 'markets = ["spot"]\n[faults]\nslow_share = 0.1\nslow_factor = 3\n')
    model, parity = found.stage_services()
    assert (model.name, parity.name) == ("digits-model", "digits-parity")
    assert (model.slo.attainment, parity.slo.attainment) == (0.99, 0.9)
    assert (model.slo.rt_max_s, parity.slo.rt_max_s) == (0.2, 0.2)
    assert (model.markets, parity.markets) == ((Market.ON_DEMAND,), (Market.SPOT,))
    assert (model.versions, parity.versions) == ((), (Version("1", "torch:parity/parity-1.pt2", 1.0),))
    assert model.routing == parity.routing == "least-completion"
    assert found.faults.slow_factor == model.faults.slow_factor == 3.0


def test_two_parities_are_two_stages(tmp_path: Path) -> None:
    found = _insured(tmp_path, INSURED, k=3, r=2, models=["parity-1.pt2", "parity-2.pt2"])
    assert found.names == ("model", "parity_1", "parity_2")
    assert found.stages[2].reference == "torch:parity/parity-2.pt2"


def test_settings_of_insurance_have_defaults(tmp_path: Path) -> None:
    found = _insured(tmp_path, INSURED).insurance
    assert found is not None
    assert found.after_s == pytest.approx(0.195), "RT_max less 5 ms"
    assert (found.accept, found.fill_s, found.markets) == ("exact", None, ())
    said = 'after_ms = 0\naccept = "degraded"\nfill_ms = "never"\n'
    full = _insured(tmp_path, INSURED + said).insurance
    assert full is not None
    assert (full.after_s, full.accept, full.fill_s) == (0.0, "degraded", math.inf)
    some = _insured(tmp_path, INSURED + "fill_ms = 12.5\n").insurance
    assert some is not None
    assert some.fill_s == 0.0125


def test_code_without_models_can_be_simulated_but_not_served(tmp_path: Path) -> None:
    found = _insured(tmp_path, HEAD + '[insurance]\nparity = { code = "concat", k = 4 }\n')
    assert found.insurance is not None
    assert found.insurance.parity is not None
    assert (found.insurance.parity.code, found.insurance.parity.k, found.insurance.parity.models) == ("concat", 4, ())
    assert [stage.reference for stage in found.stages] == ["digits:Net", "digits:Net"]
    with pytest.raises(BadInput, match="train them with `mark insure train`: concat, k = 4"):
        found.check_visits()


def test_insured_service_names_what_is_not_made_of_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a bound is not made of a service with parity models"):
        _insured(tmp_path, INSURED).check_uninsured("a bound")


def test_second_calls_leave_a_service_a_service(tmp_path: Path) -> None:
    text = HEAD.replace("slo_ms", 'routing = "fewest-in-flight"\nslo_ms') + "[insurance]\nhedge_after_ms = 50\n"
    path = _path(tmp_path, text)
    assert not names_pipeline(path)
    assert load_service(path).hedge_after_s == 0.05


def test_second_calls_of_a_pipeline_go_behind_any_balancer(tmp_path: Path) -> None:
    graph = HEAD.replace('model = "digits:Net"\n', "") + '[stage.one]\nmodel = "digits:Net"\n'
    found = _insured(tmp_path, graph + "[insurance]\nhedge_after_ms = 50\n")
    assert found.insurance is not None
    assert found.insurance.hedge_after_s == 0.05
    assert found.names == ("one",)
    with pytest.raises(BadInput, match=r"\[insurance\] hedge_after_ms: second calls .* are not simulated.*: 50$"):
        found.check_unhedged()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "[insurance]\n", '[insurance]: must say how: parity = "FOLDER"'),
        (HEAD + '[insurance]\naccept = "degraded"\n', "[insurance]: must say how"),
        (INSURED + "hedge_after_ms = 50\n", "[insurance] hedge_after_ms: protects by second calls"),
        (INSURED + "hedge = 50\n", "[insurance] hedge: unknown key"),
        (INSURED + "after_ms = 201\n", "[insurance] after_ms: must not be above slo_ms, 200"),
        (INSURED + "after_ms = -1\n", "[insurance] after_ms: must be zero or more: -1"),
        (INSURED + 'accept = "all"\n', "[insurance] accept: must be one of exact, degraded: all"),
        (INSURED + 'fill_ms = "fast"\n', '[insurance] fill_ms: must be "auto", "never" or milliseconds'),
        (INSURED + "fill_ms = true\n", '[insurance] fill_ms: must be "auto"'),
        (INSURED + "fill_ms = -1\n", "[insurance] fill_ms: must be zero or more: -1"),
        (INSURED + 'markets = ["sport"]\n', "[insurance] markets: must be one of on-demand, spot"),
        (INSURED + "markets = []\n", "[insurance] markets: must be a list of texts that is not empty"),
        (HEAD + "[insurance]\nparity = 2\n", "[insurance] parity: must be the folder of parity models"),
        (HEAD + '[insurance]\nparity = "none/"\n', "none/parity.json: no such file: `mark insure train` writes it"),
        (HEAD + '[insurance]\nparity = { code = "sum" }\n', "[insurance.parity] k: missing"),
        (HEAD + "[insurance]\nparity = { k = 1 }\n", "[insurance.parity] k: a group has 2 to 8 queries: 1"),
        (HEAD + "[insurance]\nparity = { k = 9 }\n", "[insurance.parity] k: a group has 2 to 8 queries: 9"),
        (HEAD + "[insurance]\nparity = { k = 2, r = 2 }\n", "[insurance.parity] r: must be 1 to 1"),
        (HEAD + '[insurance]\nparity = { k = 2, code = "xor" }\n', "[insurance.parity] code: must be sum or concat"),
        (HEAD + "[insurance]\nparity = { k = 2, n = 2 }\n", "[insurance.parity] n: unknown key"),
        (INSURED + '[stage.a]\nmodel = "m"\n', "[insurance] parity: protects a service of one model"),
        (INSURED + '[service.versions]\n"1" = { model = "a:B", weight = 1 }\n', "[service.versions]: parity models"),
        (INSURED + '[overflow]\nlate = "function"\n', '[overflow] late: must be "refuse" beside parity models'),
        (INSURED + "[conductors]\ncount = 0\n", "[conductors] count: parity models protect"),
        (INSURED + "[packs]\n", "[packs]: unknown section"),
        ('service = 3\n[insurance]\nparity = "parity/"\n', "service: must be a section"),
    ],
)
def test_insurance_that_cannot_be_names_section_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = _path(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        load_pipeline(path) if names_pipeline(path) else load_service(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("routing", "said", "message"),
    [
        ("alb", "50", "an ALB sends no second copies: another `routing` does, and parity models work behind it"),
        ("fewest-in-flight", "0", "[insurance] hedge_after_ms: must be above zero: 0"),
        ("fewest-in-flight", "50\naccept = 'degraded'", "[insurance] accept: is for parity models"),
    ],
)
def test_second_calls_that_cannot_be_are_refused(tmp_path: Path, routing: str, said: str, message: str) -> None:
    text = HEAD.replace("slo_ms", f'routing = "{routing}"\nslo_ms') + f"[insurance]\nhedge_after_ms = {said}\n"
    with pytest.raises(BadInput) as caught:
        load_service(_path(tmp_path, text))
    assert message in str(caught.value)
