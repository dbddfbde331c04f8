"""`compiled`: numba's njit with a cache that notices every edited source.

numba stamps a cache entry with the file of the compiled function only, so an edited rule in another file would go
unnoticed. Therefore the cache folder's name holds a hash of all sources that the kernel compiles. (The functions that
mark/planning compiles call only compiled functions of the same file, which numba's own stamp covers.)

numba also keeps a folder for each place that a file was imported from. With the hash, equal sources have equal code:
checkouts and installations of one user share it, which saves the second one a minute of compilation.

A wheel brings code for processors with the features of x86-64-v3 (packaging/machine_code.py), which is used where the
cache has none of its own.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import caching as _caching
from numba.core import config as _numba_config

from mark.domain.cached_code import load_alone
from mark.kernel.inlining import called_from

config: Any = _numba_config  # its settings are made at run time, so type stubs lack them
_njit: Any = numba.njit  # `_nrt` is missing in stubs too: no reference counts in code that allocates nothing
_typeof: Any = numba.typeof
_index_file: Any = _caching.IndexDataCacheFile
F = TypeVar("F", bound=Callable[..., Any])

_ROOT = Path(__file__).resolve().parent.parent
_HASHED = ("domain/rules", "kernel")
SHIPPED = _ROOT / "kernel" / "machine_code"  # in a wheel only
SHIPPED_CPU, SHIPPED_FEATURES = "x86-64-v3", ""
_NEEDED = frozenset(("+avx2", "+bmi", "+bmi2", "+f16c", "+fma", "+lzcnt", "+movbe"))


def sources_hash(sources: Iterable[Path]) -> str:
    """Return a hash of the sources' names and contents and of numba's version, for the names of cached results."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sources:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sources_hash() -> str:
    return sources_hash(path for folder in _HASHED for path in sorted((_ROOT / folder).glob("*.py")))


def _cache_dir() -> str | None:
    base = os.environ.get("MARK_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mark-serving"
    )
    path = os.path.join(base, f"kernel-{_sources_hash()}")
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return None


# Depends on all sources of the kernel; None if no folder is writable.
CACHE_DIR = _cache_dir()


def compiled(function: F) -> F:
    """Compile `function` at its first call, or take it from the cache. Without a writable folder it works uncached."""
    return _compiled(function, _nrt=False, forceinline=True)


def allocating(function: F) -> F:
    """Compile a function that makes arrays, otherwise like `compiled`."""
    return _compiled(function)


def _compiled(function: F, **options: Any) -> F:
    before = config.CACHE_DIR
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        if CACHE_DIR is not None:
            config.CACHE_DIR = CACHE_DIR
        cached = CACHE_DIR is not None
        result: Any = _njit(function, cache=cached, no_cfunc_wrapper=True, **options)
        called_from(result, **options)
        load_alone(result)
        if CACHE_DIR is not None:
            result._cache._cache_file = _file_of(result._cache, CACHE_DIR)
        made: F = result
        return made
    finally:
        config.CACHE_DIR = before


def _file_of(cache: Any, folder: str) -> Any:
    """Return the cache file of a function, named by the content of its source, with the shipped one beside it."""
    source, stamp = Path(cache._py_func.__code__.co_filename).resolve().parent, cache._impl.locator.get_source_stamp()
    if not source.is_relative_to(_ROOT):
        return _LockedFile(cache._cache_file, os.path.join(folder, "lock"))
    content = hashlib.sha256(repr(stamp).encode()).hexdigest()[:12]
    room, name = source.relative_to(_ROOT).as_posix().replace("/", "."), f"{cache._impl.filename_base}-{content}"
    os.makedirs(os.path.join(folder, room), exist_ok=True)
    own = _index_file(os.path.join(folder, room), name, stamp)
    shipped = SHIPPED / os.path.basename(folder) / room
    return _LockedFile(
        own, os.path.join(folder, "lock"), _index_file(str(shipped), name, stamp) if shipped.is_dir() else None
    )


class _LockedFile:
    """numba's cache of a function, for one process at a time.

    A process waits while another one compiles the same function. numba names the code of a signature by a number,
    writes that into an index, and then the code itself. Without a lock, a process that writes another signature at the
    same time may choose the same number, and a reader may find the code of an older source there: either would run code
    for other types, without an error.

    A process that finds no entry holds a lock on the function from there until it has saved, or ends. Waiting cannot
    deadlock, because only functions called from Python are cached, and compiling one waits for no other entry.
    """

    def __init__(self, file: Any, lock: str, shipped: Any = None) -> None:
        self._file, self._lock, self._shipped, self._compiling = file, lock, shipped, ExitStack()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def save(self, key: Any, data: Any) -> None:
        with self._compiling, _held(self._lock):
            self._file.save(key, data)

    def load(self, key: Any) -> Any:
        if (found := self._known(key)) is None:
            self._compiling.close()
            self._compiling.enter_context(_held(f"{self._lock}.{self._index_name}.lock"))
            if (found := self._known(key)) is not None:
                self._compiling.close()
            else:
                self._compiling.enter_context(_uncollected())
        return found

    def _known(self, key: Any) -> Any:
        with _held(self._lock):
            found = self._file.load(key)
        if found is None and self._shipped is not None and (shipped := _shipped_key(key)) is not None:
            return self._shipped.load(shipped)
        return found


def _shipped_key(key: Any) -> Any:
    """Return numba's key of the same function in a wheel; None if this processor cannot run the wheel's code."""
    signature, (triple, _, features), code = key
    return (signature, (triple, SHIPPED_CPU, SHIPPED_FEATURES), code) if _NEEDED.issubset(features.split(",")) else None


@contextmanager
def _held(lock: str) -> Iterator[None]:
    with open(lock, "wb") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage, because numba keeps most objects that it makes: this takes an eighth of the compile time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Prepared:
    """A compiled function, for calls from Python with arguments of the same types each time.

    numba looks up the types of all arguments at every call, and of each array in a tuple separately: for a stage that
    took fifteen times as long as the call. This class uses the types of the first call without checks: a number must
    not be an int in one call and a float in another, and an array must not change its dtype, dimensions or layout.
    Objects for the same function share its code by `_kinds`, because numba takes milliseconds for the types of a stage.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._code: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._code is None:
            key = self._function, _kinds(arguments)
            if key not in _CODE:
                _CODE[key] = self._function.compile(tuple(_typeof(argument) for argument in arguments))
            self._code = _CODE[key]
        return self._code(*arguments)


_CODE: dict[Any, Callable[..., Any]] = {}


def _kinds(argument: Any) -> Any:
    """Return a value that is equal for arguments of equal types, and different for others."""
    if isinstance(argument, tuple):
        return type(argument), *map(_kinds, argument)
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    return type(argument)
