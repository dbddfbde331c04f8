"""The section [personal]: its keys, and one clear line for each refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.personal.settings import Exploration, Retraining

HEAD = """
[service]
name = "songs"
slo_ms = 50
slo_attainment = 0.99
[stage.tower]
model = "torch:tower.pt2"
"""
FEEDBACK = '[feedback]\nlog = "feedback"\n'


def _load(folder: Path, text: str) -> PipelineConfig:
    (folder / "service.toml").write_text(text)
    return load_pipeline(str(folder / "service.toml"))


def test_section_of_one_line_has_the_defaults(tmp_path: Path) -> None:
    found = _load(tmp_path, f'{HEAD}{FEEDBACK}[personal]\nfeatures = "tower"\n').personal

    assert found is not None
    assert (found.features, found.table, found.loss, found.explore) == ("tower", "", "squared", Exploration())
    assert found.retrain is None


def test_all_keys_are_read(tmp_path: Path) -> None:
    feedback = FEEDBACK + 'store = "store"\n'
    text = """[personal]
table = "songs.npz"
loss = "logistic"
ridge = 2.5
bias = false
prior = "mean"
explore = { policy = "item", alpha = 0.3, share = 0.02 }
memory_mb = 64
keep_days = 90
durability = "store"
warm_s = 2
[personal.retrain]
command = ["python", "train.py"]
metric = "log_loss"
"""
    found = _load(tmp_path, HEAD + feedback + text).personal

    assert found is not None
    assert (found.features, found.table) == ("", str(tmp_path / "songs.npz"))
    assert (found.loss, found.ridge, found.bias, found.prior) == ("logistic", 2.5, False, "mean")
    assert found.explore == Exploration("item", 0.3, 0.02)
    assert (found.memory_mb, found.keep_days, found.durability) == (64, 90.0, "store")
    assert found.warm_s == 2.0
    assert found.retrain == Retraining(("python", "train.py"), "log_loss")


def test_table_may_be_a_version_of_a_registry(tmp_path: Path) -> None:
    found = _load(tmp_path, f'{HEAD}{FEEDBACK}[personal]\ntable = "registry:songs-table@production"\n').personal

    assert found is not None
    assert found.table == "registry:songs-table@production"


def test_file_without_the_section_has_no_heads(tmp_path: Path) -> None:
    assert _load(tmp_path, HEAD).personal is None


def test_exploring_has_the_alpha_of_its_policy(tmp_path: Path) -> None:
    text = f'{HEAD}{FEEDBACK}[personal]\nfeatures = "tower"\nexplore = {{ policy = "item" }}\n'
    found = _load(tmp_path, text).personal

    assert found is not None
    assert found.explore == Exploration("item", 0.6, 0.0)


@pytest.mark.parametrize(
    ("personal", "where", "words"),
    [
        ("", "features", "missing: name the stage"),
        ('features = "towr"', "features", "is no stage, did you mean tower?: towr"),
        ('features = "tower"\ntable = "songs.npz"', "features", "keep one of them"),
        ('table = "songs.csv"', "table", "must be a file of numpy.savez"),
        ('table = ""', "table", "must be a text that is not empty"),
        ('features = "tower"\nloss = "hinge"', "loss", "must be one of squared, logistic"),
        ('features = "tower"\nridge = 0', "ridge", "above zero"),
        ('features = "tower"\nbias = 1', "bias", "must be true or false"),
        ('features = "tower"\nprior = "zero"', "prior", "must be one of item, mean"),
        ('features = "tower"\nloss = "logistic"\nprior = "mean"', "prior", "needs a table"),
        ('features = "tower"\nexplore = "item"', "explore", "must be a section"),
        ('features = "tower"\nexplore = { policy = "ucb" }', "policy", "must be one of greedy, item, linucb, thompson"),
        ('features = "tower"\nexplore = { policy = "greedy", alpha = 1 }', "alpha", "is for other policies"),
        ('features = "tower"\nexplore = { policy = "item", alpha = -1 }', "alpha", "zero or more"),
        ('features = "tower"\nexplore = { share = 1.5 }', "share", "must be 0 to 1"),
        ('features = "tower"\nexplore = { epsilon = 0.1 }', "epsilon", "unknown key"),
        ('features = "tower"\nmemory_mb = 0', "memory_mb", "between 1"),
        ('features = "tower"\nkeep_days = 0', "keep_days", "above zero"),
        ('features = "tower"\nwarm_s = -1', "warm_s", "zero or more"),
        ('features = "tower"\ndurability = "disk"', "durability", "must be one of peers, store"),
        ('features = "tower"\ndurability = "store"', "durability", "needs `store` in [feedback]"),
        ('features = "tower"\nretrain = { metric = "rmse" }', "command", "must be a list of texts"),
        ('features = "tower"\nretrain = { command = ["x"], metric = "auc" }', "metric", "must be one of rmse, mae"),
        ('features = "tower"\nretrain = { command = "x" }', "command", "must be a list of texts"),
        ('features = "tower"\nfeature = "tower"', "feature", "did you mean features?"),
    ],
)
def test_section_that_cannot_be_names_section_key_and_value(
    tmp_path: Path, personal: str, where: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        _load(tmp_path, f"{HEAD}{FEEDBACK}[personal]\n{personal}\n")

    assert where in caught.value.where
    assert "[personal" in caught.value.where
    assert words in str(caught.value)


def test_heads_learn_from_feedback(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\[personal\]: learns from feedback: add a section \[feedback\]"):
        _load(tmp_path, f'{HEAD}[personal]\nfeatures = "tower"\n')


def test_selection_and_personal_are_two_services(tmp_path: Path) -> None:
    text = HEAD + '[stage.other]\nmodel = "a:B"\n[selection]\npolicy = "split"\n[personal]\nfeatures = "tower"\n'
    with pytest.raises(BadInput, match=r"has no place beside \[selection\]"):
        _load(tmp_path, text + FEEDBACK)


def test_no_stage_has_the_name_of_the_one_that_is_added(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="choose another one"):
        _load(tmp_path, HEAD.replace("tower]", "personal]") + FEEDBACK + '[personal]\nfeatures = "personal"\n')
