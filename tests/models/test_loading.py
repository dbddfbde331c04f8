"""References to models, and the one line where one leads nowhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.loading import find, library, load

_CODE = """
import mark

class Echo(mark.Model):
    loaded = 0

    def load(self):
        self.loaded += 1

    def predict(self, batch):
        return batch


@mark.model
def double(batch):
    return [2 * item for item in batch]


@mark.model
class Decorated:
    def predict(self, batch):
        import shelf_of_load  # beside this module, imported late

        return [shelf_of_load.VALUE for _ in batch]


class Needy(mark.Model):
    def __init__(self, file, size="small"):
        self.asked = (file, size)


def plain(batch):
    return batch


number = 7
"""


@pytest.fixture(autouse=True)
def _path() -> Iterator[None]:
    """Restore the Python path after each test, because references extend it for good."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.endswith("_of_load"):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a module of models, and some modules that cannot be imported."""
    (tmp_path / "models_of_load.py").write_text(_CODE)
    (tmp_path / "shelf_of_load.py").write_text("VALUE = 9\n")
    (tmp_path / "raises_of_load.py").write_text("raise OSError('no\\ndisk')\n")
    (tmp_path / "exits_of_load.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "imports_of_load.py").write_text("import nothing_of_load\n")
    (tmp_path / "weights.bin").write_bytes(b"junk")
    return tmp_path


def test_models_of_code(folder: Path) -> None:
    """A class, a decorated function, a decorated class; loaded once; neighbours can be imported later too."""
    echo = load("models_of_load:Echo", folder)
    assert isinstance(echo, mark.Model)
    assert echo.loaded == 1  # type: ignore[attr-defined]
    assert load("models_of_load:double", folder).predict([1]) == [2]
    assert load("models_of_load:Decorated", folder).predict([1]) == [9]
    assert find("models_of_load:Echo", folder).loaded == 0  # type: ignore[attr-defined]


def test_options_are_keywords_of_the_class(folder: Path) -> None:
    """Their values are text, decoded as in an address; options with a default may be left out."""
    assert find("models_of_load:Needy?file=a/b.bin", folder).asked == ("a/b.bin", "small")  # type: ignore[attr-defined]
    given = find("models_of_load:Needy?file=a%20b&size=", folder)
    assert given.asked == ("a b", "")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "no such form of reference"),
        ("nothing", "no such form of reference"),
        ("tensorrt:weights.bin", "no such form of reference"),
        ("a b:C", "no such form of reference"),
        ("../models:C", "no such form of reference"),
        ("nothing_of_load:Echo", "no module nothing_of_load in"),
        ("models_of_load.inner:Echo", "no module models_of_load.inner in"),
        ("models_of_load:Missing", "has no Missing"),
        ("models_of_load:number", "is no model"),
        ("models_of_load:plain", "decorate it with @mark.model"),
        ("models_of_load:Needy", r"Needy\(\) failed: TypeError"),
        ("models_of_load:Needy?file=a&color=red", r"Needy\(\) failed: TypeError: .*'color'"),
        ("models_of_load:Needy?file", "options are written"),
        ("models_of_load:double?file=a", "double is no class, only those have options"),
        ("raises_of_load:Echo", "importing it failed: OSError: no disk"),
        ("exits_of_load:Echo", "importing it failed: SystemExit: 0"),
        ("imports_of_load:Echo", "importing it failed: ModuleNotFoundError: No module named 'nothing_of_load'"),
        ("torch:missing.pt", "no such file"),
        ("torch:", "no such file"),
        ("onnx:..", "no such file"),
        ("torch:weights.bin", "neither TorchScript nor an exported program"),
        ("torch:weights.bin?fast=1", "unknown option"),
        ("onnx:weights.bin", "cannot be read"),
        ("onnx:weights.bin?fast", "options are written"),
        ("sklearn:weights.bin", "runs any code in it"),
        ("sklearn:weights.bin?pickle=trusted", "cannot be read"),
        ("sklearn:weights.bin?pickle=trusted&method=fit", "method must be one of"),
        ("http://host:80/model", "address must end in"),
        ("http:///v2/models/m", "address must end in"),
        ("http://127.0.0.1:1/v2/models/m", "127.0.0.1"),
        ("http://127.0.0.1:1/invocations?send=xml", "send must be one of"),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_line(folder: Path, reference: str, message: str) -> None:
    """The line says what is wrong and where."""
    with pytest.raises(BadInput, match=message) as caught:
        load(reference, folder)
    assert "\n" not in str(caught.value)


def test_a_missing_library_says_how_to_get_it() -> None:
    """Users of ONNX need not have torch."""
    with pytest.raises(BadInput, match="pip install nothing_of_load"):
        library("nothing_of_load", "onnx:m.onnx")
