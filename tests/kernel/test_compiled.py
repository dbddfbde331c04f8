"""The compile cache: an edited rule is noticed, and a read-only home costs only the cache."""

from __future__ import annotations

import fcntl
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import mark.kernel.compiled
from mark.domain.rules import admission
from mark.kernel.compiled import Prepared, compiled

PACKAGE = Path(mark.kernel.compiled.__file__).parent.parent

PROGRAM = """
from mark.kernel.compiled import compiled
from mark.domain.rules.admission import in_time
print(compiled(in_time)(0.5, 0.6))
"""


def cache_key(package: Path) -> str:
    """Return the hash that a copy of the package puts into the name of its cache folder."""
    spec = importlib.util.spec_from_file_location("copy_of_compiled", package / "kernel" / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module._sources_hash())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    package = tmp_path / "mark"
    for folder in ("domain/rules", "kernel"):
        shutil.copytree(PACKAGE / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def run(cache: Path, checkout: Path = PACKAGE.parent, **more: str) -> str:
    environment = {**os.environ, "MARK_CACHE_DIR": str(cache), "PYTHONPATH": str(checkout), **more}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=checkout, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_an_edited_rule_or_loop_gets_a_new_cache(copy: Path) -> None:
    """numba checks the file of a compiled function only; a rule that it calls in another file must count too."""
    before = cache_key(copy)
    assert before == cache_key(PACKAGE)
    rule = copy / "domain" / "rules" / "admission.py"
    rule.write_text(rule.read_text().replace("1e-6", "1e-7"))
    with_rule = cache_key(copy)
    loop = copy / "kernel" / "loop.py"
    loop.write_text(loop.read_text() + "\n")
    assert len({before, with_rule, cache_key(copy)}) == 3


def test_the_cache_lies_where_it_is_wanted(tmp_path: Path) -> None:
    """MARK_CACHE_DIR holds a folder named after the sources, with the compiled code in it."""
    assert run(tmp_path) == "True"
    assert list(tmp_path.glob(f"kernel-{cache_key(PACKAGE)}/**/*.nbi"))


def test_checkouts_with_equal_sources_share_the_code(tmp_path: Path) -> None:
    """A second one compiles nothing: no file of the cache is written again."""
    shutil.copytree(PACKAGE, tmp_path / "other" / "mark", ignore=shutil.ignore_patterns("__pycache__"))
    cache = tmp_path / "cache"
    assert run(cache) == "True"
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb[ci]")}
    assert [path.suffix for path in sorted(written)] == [".nbc", ".nbi"]
    assert run(cache, tmp_path / "other") == "True"
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.nb[ci]")} == written


def test_shipped_code_is_used_where_the_processor_can_run_it(tmp_path: Path) -> None:
    """A wheel holds code for x86-64-v3. A processor without these features compiles its own."""
    shutil.copytree(PACKAGE, tmp_path / "wheel" / "mark", ignore=shutil.ignore_patterns("__pycache__"))
    portable = {
        "NUMBA_CPU_NAME": mark.kernel.compiled.SHIPPED_CPU,
        "NUMBA_CPU_FEATURES": mark.kernel.compiled.SHIPPED_FEATURES,
    }
    assert run(tmp_path / "build", tmp_path / "wheel", **portable) == "True"
    shutil.copytree(tmp_path / "build", tmp_path / "wheel/mark/kernel/machine_code", dirs_exist_ok=True)
    newer = {"NUMBA_CPU_NAME": "znver4", "NUMBA_CPU_FEATURES": ",".join(sorted(mark.kernel.compiled._NEEDED))}
    assert run(tmp_path / "newer", tmp_path / "wheel", **newer) == "True"
    assert not list((tmp_path / "newer").rglob("*.nbc"))
    older = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    assert run(tmp_path / "older", tmp_path / "wheel", **older) == "True"
    assert len(list((tmp_path / "older").rglob("*.nbc"))) == 1


class Looked:
    """A cache file that checks, at each access, whether another process could have access as well."""

    def __init__(self, lock: Path) -> None:
        self.lock, self.alone = lock, list[bool]()

    def save(self, key: object, data: object) -> None:
        with self.lock.open("wb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.alone.append(True)
            else:
                self.alone.append(False)

    def load(self, key: object) -> object:
        self.save(key, None)
        return key


def test_the_cache_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    """numba writes its index before the code: another process would read the code of an older source there."""
    looked = Looked(tmp_path / "lock")
    locked = mark.kernel.compiled._LockedFile(looked, str(tmp_path / "lock"))
    locked.save("a", "b")
    assert locked.load("a") == "a"
    assert looked.alone == [True, True]
    looked.save("a", "b")
    assert looked.alone[-1] is False
    run(tmp_path)
    assert list(tmp_path.glob("kernel-*/lock"))


class Kept:
    """A cache file that remembers the saved entries."""

    _index_name = "kept.nbi"

    def __init__(self) -> None:
        self.data: dict[object, object] = {}

    def save(self, key: object, data: object) -> None:
        self.data[key] = data

    def load(self, key: object) -> object:
        return self.data.get(key)


def is_held(lock: Path) -> bool:
    with lock.open("wb") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_second_process_waits_for_the_one_that_compiles_and_takes_its_code(tmp_path: Path) -> None:
    kept, lock = Kept(), str(tmp_path / "lock")
    first, second = (mark.kernel.compiled._LockedFile(kept, lock) for _ in range(2))
    assert first.load("a") is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.load, "a")
        held = is_held(tmp_path / "lock.kept.nbi.lock")
        first.save("a", "code")  # before any assertion, because the pool waits for the second one
        assert waiting.result(timeout=30) == "code"
    assert held
    assert second.load("b") is None  # it has no lock for code that it did not compile


def test_no_garbage_is_collected_while_a_function_compiles(tmp_path: Path) -> None:
    locked = mark.kernel.compiled._LockedFile(Kept(), str(tmp_path / "lock"))
    assert locked.load("a") is None
    collects = gc.isenabled()
    locked.save("a", "code")
    assert not collects
    assert gc.isenabled()


def test_without_a_place_to_write_everything_runs_uncached(tmp_path: Path) -> None:
    """A cache folder that cannot be made raises no error (a file stands in its place, which stops root as well)."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert run(blocked) == "True"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_runs_uncached(tmp_path: Path) -> None:
    """The folder has no permission to write."""
    tmp_path.chmod(0o500)
    assert run(tmp_path) == "True"
    tmp_path.chmod(0o700)


class Typed:
    """A compiled function, as far as `Prepared` asks it; keeps the types that it was compiled for."""

    def __init__(self) -> None:
        self.compiled_for: list[str] = []

    def compile(self, types: tuple[object, ...]) -> Callable[..., float]:
        self.compiled_for.append(", ".join(map(str, types)))
        return lambda array, factor: float(factor * array.sum())


def test_types_of_arguments_are_looked_up_once() -> None:
    """Later calls go straight to the code, because numba would check the types of all arrays each time."""
    function = Typed()
    call = Prepared(function)
    assert call(np.ones(3), 2.0) == 6.0
    assert call(np.ones(5), 0.5) == 2.5
    assert function.compiled_for == ["array(float64, 1d, C), float64"]


def test_objects_for_a_function_share_code_of_the_same_types_only() -> None:
    function = Typed()
    assert [Prepared(function)(array, 1.0) for array in (np.ones(3), np.zeros(2), np.ones(2, np.float32))] == [3, 0, 2]
    assert Prepared(function)(np.ones((2, 2)), 1) == 4.0
    assert function.compiled_for == [
        "array(float64, 1d, C), float64",
        "array(float32, 1d, C), float64",
        "array(float64, 2d, C), int64",
    ]


def test_prepared_code_answers_as_the_function_does() -> None:
    in_time = Prepared(compiled(admission.in_time))
    assert [in_time(0.5, 0.6), in_time(0.7, 0.6)] == [True, False]
