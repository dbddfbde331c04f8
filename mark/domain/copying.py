"""Copies of frozen values with some fields changed, several times as fast as those of `dataclasses`.

A controller's round copies its state of some 30 fields a few times. A frozen dataclass checks each assignment of its
`__init__`; a copy of one that has slots, and nothing to do after `__init__`, can be written slot by slot instead. As
`dataclasses` does for `__init__`, the code that does so is made once for a class, and the fields that change.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    # Under its own name type checkers know which fields there are.
    from dataclasses import replace as replace
else:

    def replace(value, /, **changes):
        """As `dataclasses.replace`, for any dataclass."""
        copied = _copier(type(value), *changes) or dataclasses.replace
        return copied(value, **changes)


@cache
def _copier(kind: type[Any], *changed: str) -> Callable[..., Any] | None:
    """What copies a value of the class with these fields changed; None where `__init__` has to do it."""
    fields = dataclasses.fields(kind)
    names = [f.name for f in fields]
    if hasattr(kind, "__post_init__") or not all(f.init for f in fields) or not set(changed) <= set(names):
        return None
    writers = {f"_write_{name}": getattr(getattr(kind, name, None), "__set__", None) for name in names}
    if None in writers.values():
        return None  # it has no slots
    writes = [f"    _write_{name}(_copy, {name if name in changed else f'_value.{name}'})" for name in names]
    head = f"def copied({', '.join(['_value', '/', *changed])}):"
    code = "\n".join([head, "    _copy = _new(_kind)", *writes, "    return _copy"])
    scope: dict[str, Any] = {**writers, "_new": object.__new__, "_kind": kind}
    exec(code, scope)
    made: Callable[..., Any] = scope["copied"]
    return made
