"""The base install runs `compare`, `plan` and `simulate`; every other command names the extra that it lacks."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Makes only modules of the base install importable, as in an environment without any other.
_ALONE = """
import sys
from importlib.machinery import PathFinder

class Alone(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Alone
"""
_LARGE = {"scipy", "sklearn", "pandas", "statsmodels", "plotly", "torch"}


@cache
def hidden() -> frozenset[str]:
    """Return modules of the distributions that the base install does not have."""
    base, todo = {"mark-serving"}, [Requirement("mark-serving")]
    while todo:
        needs = [Requirement(line) for line in requires(todo.pop().name) or ()]
        new = [one for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
        todo += [one for one in new if canonicalize_name(one.name) not in base]
        base |= {canonicalize_name(one.name) for one in new}
    # The checkout may be installed with dependencies of another time, so pyproject.toml counts.
    found = packages_distributions().items()
    return frozenset(top for top, owners in found if not {canonicalize_name(one) for one in owners} & base) | _LARGE


def alone(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = _ALONE.replace("{hidden}", repr(set(hidden()))) + code
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return alone(f"from mark.cli.main import main\nsys.exit(main({list(words)!r}))", folder)


def test_all_names_of_mark_are_there(tmp_path: Path) -> None:
    done = alone("import mark\nfor name in mark.__all__: getattr(mark, name)", tmp_path)
    assert done.returncode == 0, done.stderr


def test_default_forecast_learns_its_forest_and_reports_have_their_script(tmp_path: Path) -> None:
    code = """
import numpy as np
from mark.domain.load import Load
from mark.traffic.forecast.predictor_registry import make_predictor
from mark.studies.report.htmlpage import packed_plotly
rates = 50.0 + 20.0 * np.sin(np.arange(1440) / 229.0) + np.random.default_rng(1).normal(size=1440)
auto = make_predictor("auto", 0)
auto.fit(Load(0.0, 120.0, rates, rates))
assert auto.predict(30).steps == 30
assert "mark_predictors.trees" in sys.modules
assert len(packed_plotly()) > 1_000_000
"""
    done = alone(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_commands_name_the_extra_that_they_lack(tmp_path: Path) -> None:
    """Each error is one line; all other commands show their help."""
    code = """
from contextlib import redirect_stdout
from io import StringIO
from mark.cli.commands import commands_for
from mark.cli.main import main
for name in commands_for(None):
    try:
        with redirect_stdout(StringIO()):
            code = main([name, "--help"])
    except SystemExit as ended:
        code = ended.code
    print(name, code)
"""
    done = alone(code, tmp_path)
    codes = dict(line.split() for line in done.stdout.splitlines())
    refused = [name for name, code in codes.items() if code == "2"]
    lines = done.stderr.splitlines()
    assert set(codes.values()) == {"0", "2"}, done.stderr
    assert {"serve", "gateway", "controller", "testbed", "deploy", "profile"} <= set(refused)
    assert not {"simulate", "compare", "plan", "bound", "frontier", "trace", "init", "check", "models"} & set(refused)
    for name, line in zip(refused, lines, strict=True):
        assert line.startswith(f"mark: error: mark {name}: needs ")
        assert "pip install 'mark-serving[" in line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["frontier", "synthetic:diurnal", "--service", "inception-v3-2026", "--report", "page.html"],
            "plotly: .*report",
        ),
        (
            ["simulate", "synthetic:diurnal", "--service", "inception-v3-2026", "--predictor", "arima"],
            "statsmodels: .*arima",
        ),
        (["trace", "info", "traffic.parquet"], "Parquet needs pandas and pyarrow: .*parquet"),
    ],
)
def test_option_that_needs_an_extra_names_it(words: list[str], line: str, tmp_path: Path) -> None:
    (tmp_path / "traffic.parquet").write_bytes(b"PAR1" + bytes(64) + b"PAR1")
    done = command(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (found := done.stderr.strip()).endswith("]')") or found.endswith("traffic.parquet"), found
    package, _, extra = line.partition(": .*")
    assert package in found
    assert f"pip install 'mark-serving[{extra}]'" in found
