"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A job in the background is started with SIGINT ignored, and hands that on to every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run side by side already. Else each comparison would start processes that import for two seconds to work for a
# tenth of one, and BLAS a thread for every processor. What tests several processes asks for them.
os.environ.setdefault("PYTHON_CPU_COUNT", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes is the machine's affair: no deadline. The examples are the same every time, so that a red
# run means a change, on any machine; `make explore` looks at new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

# `make coverage` runs the tests in these places; CI's other session leaves them to it.
_LEFT_OUT = tuple(os.environ.get("MARK_LEFT_OUT", "").split())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.nodeid.startswith(_LEFT_OUT) and not _only_untraced(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.nodeid.startswith(_LEFT_OUT) or _only_untraced(item)]


def _only_untraced(item: pytest.Item) -> bool:
    """Tests that take minutes, and those of which a tracer would take the time."""
    return any(item.get_closest_marker(name) for name in ("slow", "untraced"))


def pytest_collection_finish() -> None:
    """Keep all that was imported out of garbage collections: a test that asks for one would pay for the whole suite."""
    gc.collect()
    gc.freeze()
