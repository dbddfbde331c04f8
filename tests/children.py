"""The processes that a test has started."""

import psutil


def children() -> list[psutil.Process]:
    """Those of this process, but for multiprocessing's tracker of resources, which stays once anybody needed it."""
    return [child for child in psutil.Process().children() if not any("resource_tracker" in w for w in child.cmdline())]
