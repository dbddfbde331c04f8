"""Entry points of installed packages: code for names on the command line that mark need not know."""

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
OBJECT_STORES = "mark.object_stores"  # a scheme, and the opener of a place of it, given the text after the colon


def names(group: str) -> tuple[str, ...]:
    """Return the names registered in the group, sorted, without importing. Raises BadInput for an empty group.

    These groups hold entries of mark itself, so an empty group means that the sources are newer than the installation.
    """
    registered = tuple(sorted(_entry_points(group, tuple(sys.path)).names))
    if not registered:
        raise BadInput("nothing is registered: install again (pip install -e .)", "entry points", group)
    return registered


def found(group: str) -> tuple[str, ...]:
    """Return the names in a group that may be empty, sorted."""
    return tuple(sorted(_entry_points(group, tuple(sys.path)).names))


def load(group: str, name: str, what: str) -> Any:
    """Return the object registered by this name, one of `names`; `what` is the word for it in messages.

    Raises BadInput if it cannot be imported.
    """
    (entry, *_) = _entry_points(group, tuple(sys.path)).select(name=name)
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(f"does not load ({error})", f"{what} {name}", entry.value) from error


def adapter(name: str, option: str) -> Callable[..., Any]:
    """Return the function registered as `name` in `mark.adapters`, which connects AWS to values of mark.

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
    """Read the entry points once: it takes 20 ms, and a controller makes two predictors for each of its services."""
    from importlib.metadata import entry_points  # imported here because it takes 15 ms of every start-up

    return entry_points(group=group)
