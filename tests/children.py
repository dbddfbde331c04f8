"""The processes that a test has started."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

_HELPERS = {"multiprocessing.resource_tracker", "multiprocessing.forkserver"}  # once started, they stay


@contextmanager
def new_children() -> Iterator[Callable[[], list[psutil.Process]]]:
    """Yield the child processes started since the block began, without multiprocessing's own helpers."""
    before = set(psutil.Process().children())
    yield lambda: [child for child in psutil.Process().children() if child not in before and not _is_helper(child)]


def _is_helper(process: psutil.Process) -> bool:
    try:
        return any(helper in word for word in process.cmdline() for helper in _HELPERS)
    except psutil.Error:  # it has just ended, and its parent has not waited for it
        return False
