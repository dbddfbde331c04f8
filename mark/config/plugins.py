"""Entry points of installed packages: how a name of the command line becomes code that mark need not know."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def names(group: str) -> tuple[str, ...]:
    """What is registered in the group, sorted; nothing is imported. Raises BadInput where that is nothing.

    Every group holds something of ours: where nothing is found, the sources are newer than what is installed.
    """
    found = tuple(sorted(_entry_points(group, tuple(sys.path)).names))
    if not found:
        raise BadInput("nothing is registered: install again (pip install -e .)", "entry points", group)
    return found


def load(group: str, name: str, what: str) -> Any:
    """The object registered by this name, one of `names`; `what` is the word for it in messages.

    Raises BadInput where it cannot be imported.
    """
    (found, *_) = _entry_points(group, tuple(sys.path)).select(name=name)
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        raise BadInput(f"does not load ({error})", f"{what} {name}", found.value) from error


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
