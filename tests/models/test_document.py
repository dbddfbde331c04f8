"""The examples of docs/models.md work as the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.models.answering import warm_up
from mark.models.loading import load
from tests.models.calls import oip, one, outputs, sagemaker, tensor

_PAGE = Path(__file__).parent.parent.parent / "docs" / "models.md"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with every example under the name in its first line."""
    path, modules = list(sys.path), set(sys.modules)
    for code in re.findall(r"```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / code.partition("\n")[0].removeprefix("# ")).write_text(code, encoding="utf-8")
    assert {file.name for file in tmp_path.iterdir()} == {"ranker.py", "simple.py"}
    yield tmp_path
    sys.path[:] = path
    for name in {"ranker", "simple"} - modules:
        sys.modules.pop(name, None)


def test_the_ranker(folder: Path) -> None:
    """One model, the same rows over both protocols."""
    model = load("ranker:Ranker", folder)
    warm_up(model)
    (output,) = outputs(one(model, oip(tensor("features", [2, 3], data=[1, 1, 1, 2, 4, 8]))))
    assert output == {"name": "score", "datatype": "FP32", "shape": [2], "data": [1.0, 4.0]}
    assert one(model, sagemaker(b'{"instances": [[2, 4, 8]]}')).body == b'{"predictions":[4.0]}'
    assert one(model, sagemaker(b"[1, 1]")).status == 400


def test_the_decorated(folder: Path) -> None:
    """A function and a class."""
    assert one(load("simple:shout", folder), sagemaker(b"ab", "text/plain")).body == b'"AB"'
    reply = one(load("simple:Counter", folder), sagemaker(b'{"inputs": ["a b"]}'))
    assert reply.body == b'[{"words":2,"first":"a"}]'
