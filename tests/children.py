"""The processes that a test has started."""

from __future__ import annotations

from collections.abc import Collection

import psutil

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # stay once anything has needed them


def children(since: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """Child processes of this one that are not in `since`, which is what `children()` gave when the test began.

    An earlier test's remains are not this test's business, nor are the helpers that multiprocessing keeps.
    """
    return [child for child in psutil.Process().children() if child not in since and not _is_helper(child)]


def _is_helper(process: psutil.Process) -> bool:
    try:
        return any(helper in word for word in process.cmdline()[1:] for helper in _HELPERS)
    except psutil.NoSuchProcess:
        return True
