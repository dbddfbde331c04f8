"""Sections of layers: installed packages read theirs, and all others are still unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.layers import opened
from mark.config.pipeline_file import load_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.service import LayerSection
from tests.serving.layers.counting import install

SERVICE = '[service]\nname = "m"\nmodel = "m:M"\nslo_ms = 100\nslo_attainment = 0.9\n'
PIPELINE = '[service]\nname = "m"\nslo_ms = 100\nslo_attainment = 0.9\n[stage.a]\nmodel = "m:M"\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder where the layers `counting` and `again` are installed."""
    install(tmp_path / "site", "counting", "again")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path


def layers_in(folder: Path, text: str) -> tuple[LayerSection, ...]:
    """Return the layers of a service file with these sections, after checking that a pipeline file gives the same."""
    (folder / "m.toml").write_text(SERVICE + text)
    (folder / "p.toml").write_text(PIPELINE + text)
    service, pipeline = load_service(str(folder / "m.toml")).layers, load_pipeline(str(folder / "p.toml")).layers
    assert [(one.name, one.settings) for one in service] == [(one.name, one.settings) for one in pipeline]
    return service


def test_layers_are_in_the_order_of_the_file(site: Path) -> None:
    found = layers_in(site, '[again]\nlabel = "x"\n[counting]\nlabel = "y"\n')
    assert [(one.name, one.settings) for one in found] == [("again", {"label": "x"}), ("counting", {"label": "y"})]
    assert all(callable(layer) for layer in opened(found))
    assert layers_in(site, "") == ()


def test_a_service_with_layers_can_be_a_key(site: Path) -> None:
    layers_in(site, '[again]\nlabel = "x"\n')
    assert {load_service(str(site / "m.toml")): 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[counting]\nlabel = ""\n', r"m\.toml \[counting\] label: must be a text that is not empty: $"),
        ("[counting]\n", r"m\.toml \[counting\] label: missing$"),
        ('[counting]\nlabel = "x"\nlable = 1\n', r"m\.toml \[counting\] lable: unknown key, did you mean label\?: 1$"),
        ("[[counting]]\n", r"m\.toml counting: must be a section: "),
        ("[cuonting]\n", r"m\.toml \[cuonting\]: unknown section, did you mean counting\?$"),
        ("[fleet]\nmost = 1\n", r"m\.toml \[fleet\] most: unknown key"),
    ],
)
def test_bad_sections_are_named_where_the_file_is_read(site: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        layers_in(site, text)


def test_a_layer_that_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "broken", what="no_such_module:layer")))
    with pytest.raises(BadInput, match=r"^layer broken: does not load \(No module named 'no_such_module'\)"):
        layers_in(tmp_path, "[broken]\n")
