"""Faults that are planted in the source, one at a time: the tests named for each must fail.

`make mutants` plants them all, in a copy. A test that passes with its fault does not test what it says.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    before: str
    after: str
    tests: list[str]


FAULTS = [Fault(**one) for one in tomllib.loads(Path(__file__).with_name("planted.toml").read_text())["fault"]]
each = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@each
def test_fault_has_one_place_in_the_source(fault: Fault) -> None:
    assert (ROOT / fault.file).read_text().count(fault.before) == 1
    assert fault.before != fault.after
    assert all((ROOT / name.partition("::")[0]).exists() for name in fault.tests)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, with the tests of this checkout."""
    folder = tmp_path_factory.mktemp("planted")
    # With its bytecode, which counts as long as a file is as old as it was: only the faulty one is compiled anew.
    shutil.copytree(ROOT / "mark", folder / "mark")
    for name in ("tests", "pyproject.toml", "infra", "predictors", "tools", "examples", "traces"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.slow
@each
def test_fault_is_found_by_its_tests(fault: Fault, copy: Path) -> None:
    file = copy / fault.file
    sound = file.read_text()
    file.write_text(sound.replace(fault.before, fault.after))
    try:
        code, said = run_tests(copy, fault.tests)
    finally:
        file.write_text(sound)
    assert code == 1, said  # 1: a test failed, and not its collection


@pytest.mark.slow
def test_sound_copy_passes(copy: Path) -> None:
    """Otherwise every fault would seem to be found."""
    code, said = run_tests(copy, sorted({name for fault in FAULTS for name in fault.tests}))
    assert code == 0, said


def run_tests(copy: Path, tests: list[str]) -> tuple[int | None, str]:
    """Return the exit code and the end of the output of pytest in the copy."""
    # Importing these would take half of the time of a process that starts anew.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["hypothesis", "numba", "pytest"])
    said = copy / "said"
    process = forks.Process(target=_run, args=(copy, said, tests))
    process.start()
    process.join()
    return process.exitcode, said.read_text()[-4000:]


def _run(copy: Path, said: Path, tests: list[str]) -> NoReturn:
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(copy)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # these tests need no plugin
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(copy), *(str(copy / name) for name in ("predictors", "infra"))]
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]))
