"""Entry points of installed packages: how a name of the command line becomes code that mark need not know."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def names(group: str) -> tuple[str, ...]:
    """What is registered in the group, sorted; nothing is imported. Raises BadInput where that is nothing.

    These groups hold something of ours: where nothing is found, the sources are newer than what is installed.
    """
    registered = tuple(sorted(_entry_points(group, tuple(sys.path)).names))
    if not registered:
        raise BadInput("nothing is registered: install again (pip install -e .)", "entry points", group)
    return registered


def found(group: str) -> tuple[str, ...]:
    """The names in a group that may be empty, sorted. An empty one costs 2 ms, not the 150 of `importlib.metadata`."""
    return tuple(sorted(_entry_points(group, tuple(sys.path)).names)) if _is_declared(group) else ()


def load(group: str, name: str, what: str) -> Any:
    """The object registered by this name, one of `names`; `what` is the word for it in messages.

    Raises BadInput where it cannot be imported.
    """
    (entry, *_) = _entry_points(group, tuple(sys.path)).select(name=name)
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(f"does not load ({error})", f"{what} {name}", entry.value) from error


def _is_declared(group: str) -> bool:
    """Does a package in a folder of the import path have entry points of this group?"""
    header = f"[{group}]".encode()
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.endswith((".dist-info", ".egg-info")):
                    with suppress(OSError), open(os.path.join(entry.path, "entry_points.txt"), "rb") as file:
                        if header in file.read():
                            return True
    return False


def adapter(name: str, option: str) -> Callable[..., Any]:
    """What is registered as `mark.adapters`: AWS behind a function that takes and returns values of mark.

    Calling it raises BadInput, which names `option`, where the adapter or a library that it needs is not installed.
    """

    def called(*args: Any, **options: Any) -> Any:
        assert name in names("mark.adapters")
        (found,) = _entry_points("mark.adapters", tuple(sys.path)).select(name=name)
        try:
            return found.load()(*args, **options)
        except ImportError as error:
            raise BadInput(f"needs the extra `aws` ({error}): pip install 'mark-serving[aws]'", option) from None

    return called


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Read once: it takes 20 ms, and a controller makes two predictors for each of its services."""
    from importlib.metadata import entry_points  # here, because its import takes 15 ms of every start-up

    return entry_points(group=group)
