"""Settings of all tests."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import pkgutil
import signal
from collections.abc import Iterator

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

# Collecting makes millions of objects that stay: the collector would take a sixth of the time to find nothing.
gc.disable()

# A background job starts with SIGINT ignored, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests already run side by side. Otherwise each comparison would start processes that import for two seconds to work
# for a tenth of one, and BLAS a thread for every processor. Tests of several processes ask for them.
os.environ.setdefault("PYTHON_CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples have no deadline, because their time depends on the machine. They are the same every time, so that a red run
# means a change, on any machine; `make explore` tries new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# Tests in these places run traced, each in the worker that runs it. Popped, because tests start pytest, too.
_TRACED_PLACES = tuple(os.environ.pop("MARK_TRACED", "").split()) if "PYTEST_XDIST_WORKER" in os.environ else ()


def _tracer() -> Coverage:
    """Import the modules that are measured, and return the coverage of the lines that this ran."""
    tracer = Coverage(data_suffix=True)
    tracer.start()
    for name in tracer.get_option("run:source_pkgs"):
        for module in pkgutil.walk_packages(getattr(importlib.import_module(name), "__path__", []), f"{name}."):
            importlib.import_module(module.name)
    tracer.stop()
    return tracer


_TRACER = _tracer() if _TRACED_PLACES else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of `make acceptance` as slow, so that `make test` leaves it out."""
    if item.get_closest_marker("acceptance"):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)  # after `-m` has deselected tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if workers := getattr(config, "workerinput", {}).get("workercount"):
        items[:] = _dealt(items, workers)


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Begin the row of items that xdist gives to each worker with its share of the files that have slow tests.

    Idle workers steal from the end of a row. A slow test there would leave the others idle at the end of the session.
    """
    slow_files = {item.path for item in items if _slow(item)}
    rows: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for slow in (True, False):
        part = [item for item in items if (item.path in slow_files) == slow]
        for position, item in enumerate(part):
            rows[position * workers // len(part)].append(item)
    return [item for row in rows for item in row]


def _slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _traced(item: pytest.Item) -> bool:
    """Slow tests, tests of many cases and tests that measure time run untraced."""
    untraced = any(map(item.get_closest_marker, ("slow", "hypothesis", "untraced")))
    return not untraced and item.nodeid.startswith(_TRACED_PLACES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _TRACER is None or not _traced(item):
        return (yield)
    _TRACER.start()
    try:
        return (yield)
    finally:
        _TRACER.stop()


def pytest_sessionfinish() -> None:
    if _TRACER is not None:
        _TRACER.save()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo the logging that a server sets up for its process, when its command is called in this one."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    root.handlers[:] = [one for one in root.handlers if type(one).__module__.startswith("_pytest")]


@pytest.fixture
def coarse_late_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.coarse_counting import count_coarsely  # here, because it imports numba

    count_coarsely(monkeypatch.setattr)


def pytest_collection_finish() -> None:
    """Exempt all imported modules from garbage collections: otherwise each `gc.collect()` of a test takes 0.4 s."""
    gc.collect()
    gc.freeze()
    gc.enable()
