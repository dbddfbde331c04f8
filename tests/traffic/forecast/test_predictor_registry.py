from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.traffic.forecast.predictor_registry import make_predictor, predictor_names


@pytest.mark.parametrize("name", ["seasonal-naive", "artefact"])
def test_a_predictor_is_made_by_name(name: str) -> None:
    """Each call gives a fresh one that answers before it has seen anything."""
    one, other = make_predictor(name, 7), make_predictor(name, 7)
    assert one is not other
    assert one.name == name
    assert one.predict(60).steps == 60


def test_every_registered_predictor_loads_and_keeps_the_port() -> None:
    """An entry point that points nowhere is found here, not by a user."""
    for name in predictor_names():
        predictor = make_predictor(name, 0)
        assert predictor.name == name
        predictor.fit(Load(0.0, 60.0, np.full(10, 5.0), np.full(10, 5.0)))
        assert predictor.predict(3).origin_s == 600.0


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """The error lists the known names in one line."""
    with pytest.raises(BadInput, match=r"artefact.*seasonal-naive.*: oracle-of-delphi"):
        make_predictor("oracle-of-delphi", 0)


def test_torch_is_imported_only_when_used() -> None:
    """The base install does not have it: neither listing predictors nor making another one needs it."""
    code = """
import sys
from mark.traffic.forecast.predictor_registry import make_predictor, predictor_names
assert "lstm" in predictor_names()
make_predictor("seasonal-naive", 0)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
