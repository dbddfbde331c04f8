from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.domain.load import Load
from mark.traffic.forecast.saved import Saved, fingerprint, load, save

STATE = {"weights": np.arange(6.0).reshape(2, 3), "name": np.array("x"), "deep/er": np.array([1, 2])}


def some(kind: str = "predictor") -> Saved:
    return Saved("lstm", 3, 60.0, "abc", kind, STATE)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """The file may have any name, with or without a suffix, and replaces an older file."""
    path = tmp_path / "a-model"
    path.write_text("old")
    save(str(path), some())
    found = load(str(path))
    assert (found.predictor, found.version, found.step_s, found.learned_from) == ("lstm", 3, 60.0, "abc")
    assert set(found.state) == set(STATE)
    for name, array in STATE.items():
        np.testing.assert_array_equal(found.state[name], array)
    assert [file.name for file in tmp_path.iterdir()] == ["a-model"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """It leaves no half-written file beside it either."""
    path = tmp_path / "model.npz"
    save(str(path), some())
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"pickle|Object"):
        save(str(path), Saved("lstm", 3, 60.0, "", state={"bad": np.array([object()])}))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]
    with pytest.raises(BadInput, match=r"cannot be written \("):
        save(str(tmp_path / "nowhere" / "model.npz"), some())


def write(path: Path, header: object, **arrays: Any) -> None:
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def test_every_other_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """Examples are another file, half a file, a flipped bit, code to run, and another kind or format."""
    path = tmp_path / "model.npz"
    save(str(path), some())
    whole = path.read_bytes()
    middle = whole.index(np.arange(6.0).tobytes()) + 5
    header = {"predictor": "lstm", "version": 3, "step_s": 60.0, "learned_from": "", "kind": "predictor"}
    for bad in (b"", b"t_s,count\n0,1\n", whole[: len(whole) // 2], whole[:middle] + b"\xff" + whole[middle + 1 :]):
        path.write_bytes(bad)
        with pytest.raises(BadInput, match="is damaged, or not a predictor") as caught:
            load(str(path))
        assert "\n" not in str(caught.value)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(BadInput, match="is damaged"):
        load(str(path.with_suffix(".npy")))
    for wrong in ({}, [1], {"format": 1}, {"format": 1, **header, "more": 1}, {"format": 1, **header, "step_s": -1.0}):
        write(path, wrong)
        with pytest.raises(BadInput, match="is damaged"):
            load(str(path))
    with path.open("wb") as file:
        np.savez(file, header=np.array([object()]))
    with pytest.raises(BadInput, match="is damaged"):
        load(str(path))
    write(path, {"format": 2, **header})
    with pytest.raises(BadInput, match="has format 2, this mark reads format 1"):
        load(str(path))
    save(str(path), some("checkpoint"))
    assert load(str(path), "checkpoint").kind == "checkpoint"
    with pytest.raises(BadInput, match="is a checkpoint, not a predictor"):
        load(str(path))
    with pytest.raises(BadInput, match=r"cannot be read \(No such file.*nothing"):
        load(str(tmp_path / "nothing"))


def test_a_fingerprint_is_of_history_and_seed() -> None:
    """Equal for equal ones, gaps included; any difference shows."""

    def history(rate: float = 1.0, start_s: float = 0.0) -> Load:
        return Load(start_s, 60.0, np.array([rate, np.nan]), np.array([2.0, np.nan]))

    assert fingerprint(history(), 0) == fingerprint(history(), 0)
    others = [(history(), 1), (history(1.5), 0), (history(1.0, 60.0), 0)]
    assert len({fingerprint(*one) for one in [(history(), 0), *others]}) == 4
