"""Bytecode of a function's modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mark_infra.deploy.bytecode import bytecode, interpreter

from mark.domain.errors import MarkError

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def compiled(folder: Path, files: dict[str, Path | bytes]) -> dict[str, Path]:
    return bytecode(files, sys.executable, HERE, folder / "cache")


def test_modules_are_imported_from_it_unchecked(tmp_path: Path) -> None:
    """A changed source does not matter: it is not read, so it need not exist."""
    made = compiled(tmp_path, {"package/one.py": b"value = 'compiled'\n", "service/weights": b"x"})
    tag = f"cpython-{HERE.replace('.', '')}"
    assert set(made) == {f"package/__pycache__/one.{tag}.pyc"}
    (tmp_path / "there" / "package" / "__pycache__").mkdir(parents=True)
    for name, path in made.items():
        (tmp_path / "there" / name).write_bytes(path.read_bytes())
    (tmp_path / "there" / "package" / "one.py").write_text("value = 'from source'\n")
    code = "from package.one import value; import package.one; print(value, package.one.__loader__.path)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "there", capture_output=True, text=True)
    assert done.stdout.startswith("compiled"), done.stderr


def test_the_same_source_makes_the_same_bytes(tmp_path: Path) -> None:
    source = b"import os\n\ndef f(self, value):\n    return {self: value, 'os': os.name}\n"
    (tmp_path / "elsewhere.py").write_bytes(source)
    first = compiled(tmp_path / "1", {"a.py": source, "b.py": b"def g(value): return value\n"})
    again = compiled(tmp_path / "2", {"b.py": b"def g(value): return value\n", "a.py": tmp_path / "elsewhere.py"})
    assert {name: path.read_bytes() for name, path in first.items()} == {
        name: path.read_bytes() for name, path in again.items()
    }
    (pyc,) = [path for name, path in first.items() if "/a." in name]
    assert str(tmp_path).encode() not in pyc.read_bytes()
    assert b"/var/task/a.py" in pyc.read_bytes()


def test_what_was_compiled_before_is_not_again(tmp_path: Path) -> None:
    before = compiled(tmp_path, {"a.py": b"x = 1\n"})
    assert bytecode({"a.py": b"x = 1\n"}, "no such program", HERE, tmp_path / "cache") == before


def test_a_module_for_another_python_has_none(tmp_path: Path) -> None:
    made = compiled(tmp_path, {"old.py": b"print 'hello'\n", "new.py": b"x = 1\n"})
    assert [name.rpartition("/")[2].partition(".")[0] for name in made] == ["new"]


def test_a_python_that_fails_is_said(tmp_path: Path) -> None:
    broken = program(tmp_path, "python", "echo no such thing >&2; exit 1")
    with pytest.raises(MarkError, match="no such thing"):
        bytecode({"a.py": b""}, str(broken), HERE, tmp_path / "cache")


def test_its_python_is_found_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter(HERE) == sys.executable
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert interpreter("3.99") is None
    found = program(tmp_path, "python3.99", "echo 3.99")
    assert interpreter("3.99") == str(found)


def test_a_launcher_without_that_python_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path, "python3.99", "echo not installed >&2; exit 127")
    assert interpreter("3.99") is None


def program(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file
