"""Entry points of installed packages: how a name of the command line becomes code that mark need not know."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from mark.domain.errors import BadInput
from mark.domain.extras import missing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ADAPTERS = "mark.adapters"
OBJECT_STORES = "mark.object_stores"  # a scheme, and what opens a place of it, given as it stands after the colon


def names(group: str) -> tuple[str, ...]:
    """What is registered in the group, sorted; nothing is imported. Raises BadInput where that is nothing.

    These groups hold something of ours: where nothing is found, the sources are newer than what is installed.
    """
    registered = tuple(sorted(_entry_points(group, tuple(sys.path)).names))
    if not registered:
        raise BadInput("nothing is registered: install again (pip install -e .)", "entry points", group)
    return registered


def found(group: str) -> tuple[str, ...]:
    """The names in a group that may be empty, sorted."""
    return tuple(sorted(_entry_points(group, tuple(sys.path)).names))


def load(group: str, name: str, what: str) -> Any:
    """The object registered by this name, one of `names`; `what` is the word for it in messages.

    Raises BadInput where it cannot be imported.
    """
    (entry, *_) = _entry_points(group, tuple(sys.path)).select(name=name)
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(f"does not load ({error})", f"{what} {name}", entry.value) from error


def adapter(name: str, option: str) -> Callable[..., Any]:
    """The function registered as `name` in `mark.adapters`: AWS behind values of mark.

    Calling it raises BadInput, which names `option`, if a library of an extra is not installed.
    """

    def called(*args: Any, **options: Any) -> Any:
        if name not in names(ADAPTERS):  # the metadata is older than the sources
            raise BadInput("is not registered: install again (pip install -e .)", option, f"{ADAPTERS} {name}")
        (entry,) = _entry_points(ADAPTERS, tuple(sys.path)).select(name=name)
        try:
            return entry.load()(*args, **options)
        except ModuleNotFoundError as error:
            if (refusal := missing(error, option)) is None:
                raise
            raise refusal from None

    return called


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Read once: it takes 20 ms, and a controller makes two predictors for each of its services."""
    from importlib.metadata import entry_points  # here, because its import takes 15 ms of every start-up

    return entry_points(group=group)
