"""The section [selection]: its keys, and one clear line for each refusal."""

from pathlib import Path

import pytest

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput

HEAD = """
[service]
name = "digits"
slo_ms = 50
slo_attainment = 0.99
[stage.small]
model = "digits:Small"
[stage.large]
model = "digits:Large"
"""
FEEDBACK = '[feedback]\nlog = "feedback"\n'


def _load(folder: Path, text: str) -> object:
    (folder / "service.toml").write_text(text)
    return load_pipeline(str(folder / "service.toml"))


def test_selection_is_read_with_its_candidates_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = HEAD.replace('digits:Large"', 'digits:Large"\nusd_per_call = 0.002') + FEEDBACK
    text += '[selection]\npolicy = "cascade"\ncorrect_usd = 1e-4\nscore = "p"\nanswer = "label"\ncontext = "key"\n'
    found = load_pipeline(str(_written(tmp_path, text)))

    assert found.selection is not None
    assert (found.selection.policy, found.selection.correct_usd, found.selection.score) == ("cascade", 1e-4, "p")
    assert found.selection.by_key
    assert found.names == ("small", "large")
    assert [stage.usd_per_call for stage in found.stages] == [0.0, 0.002]
    assert found.pipeline is not None
    assert found.pipeline.stages[1].after == ("small",), "a cascade asks in a row"


def _written(folder: Path, text: str) -> Path:
    path = folder / "service.toml"
    path.write_text(text)
    return path


def test_candidates_of_an_ensemble_are_asked_at_once(tmp_path: Path) -> None:
    found = load_pipeline(str(_written(tmp_path, HEAD + FEEDBACK + '[selection]\npolicy = "exp4"\n')))

    assert found.pipeline is not None
    assert [stage.after for stage in found.pipeline.stages] == [(), ()]
    assert found.selection is not None
    assert found.selection.deadline_s == pytest.approx(0.045), "nine tenths of slo_ms unless said"


@pytest.mark.parametrize(
    ("selection", "where", "words"),
    [
        ('policy = "best"', "policy", "must be split"),
        ('policy = "cascade"\nscore = "p"', "policy", "correct_usd"),
        ('policy = "cascade"\nthreshold = 0.9', "policy", "score"),
        ('policy = "cascade"\nscore = "p"\nthreshold = 0.9\ncorrect_usd = 1e-4', "correct_usd", "keep one of them"),
        ('policy = "exp4"\nthreshold = 0.9', "threshold", "cascade"),
        ('policy = "split"\nweights = { small = 0.5, large = 0.6 }', "weights", "add up to 1"),
        ('policy = "split"\nweights = { small = 0.5, huge = 0.5 }', "huge", "unknown key"),
        ('policy = "thompson"\nchampion = "smal"', "champion", "is no candidate"),
        ('policy = "cascade"\nscore = "p"\nthreshold = 0.9\nchampion = "small"', "champion", "for other policies"),
        ('policy = "exp4"\ndefault = 3', "default", "min_confidence"),
        ('policy = "exp4"\nmin_confidence = 0.5', "min_confidence", "default"),
        ('policy = "thompson"\nmin_confidence = 0.5\ndefault = 3', "min_confidence", "score"),
        ('policy = "exp4"\ndeadline_ms = 50', "deadline_ms", "below slo_ms"),
        ('policy = "exp4"\nexplore = 1.5', "explore", "0 to 1"),
        ('policy = "exp4"\ncontext = "user"', "context", "must be one of key"),
        ('policy = "exp4"\nhalf_life = 0', "half_life", "above zero"),
        ('policy = "exp4"\nhalflife = 10', "halflife", "half_life"),
    ],
)
def test_selection_that_cannot_be_names_section_key_and_value(
    tmp_path: Path, selection: str, where: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _load(tmp_path, f"{HEAD}{FEEDBACK}[selection]\n{selection}\n")

    assert where in caught.value.where
    assert "[selection" in caught.value.where
    assert words in str(caught.value)


@pytest.mark.parametrize("policy", ["exp3", "exp4", "thompson"])
def test_selection_that_learns_needs_feedback(tmp_path: Path, policy: str) -> None:
    with pytest.raises(BadInput, match=r"add a section \[feedback\]"):
        _load(tmp_path, f'{HEAD}[selection]\npolicy = "{policy}"\n')


def test_fixed_shares_need_no_feedback(tmp_path: Path) -> None:
    found = load_pipeline(str(_written(tmp_path, HEAD + '[selection]\npolicy = "split"\n')))

    assert found.feedback is None
    assert found.selection is not None


def test_one_candidate_is_no_choice(tmp_path: Path) -> None:
    alone = HEAD.replace('[stage.large]\nmodel = "digits:Large"\n', "")

    with pytest.raises(BadInput, match="2 to 16 candidates"):
        _load(tmp_path, f'{alone}[selection]\npolicy = "split"\n')


def test_candidates_have_no_place_in_a_graph(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no order but that of the file"):
        _load(tmp_path, f'{HEAD}after = ["small"]\n[selection]\npolicy = "split"\n')


def test_driver_and_selection_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a driver chooses by itself"):
        _load(tmp_path, HEAD.replace("slo_ms", 'pipeline = "my:driver"\nslo_ms') + '[selection]\npolicy = "split"\n')


def test_price_of_a_call_is_for_candidates_only(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="usd_per_call"):
        _load(tmp_path, f"{HEAD}usd_per_call = 0.1\n")
