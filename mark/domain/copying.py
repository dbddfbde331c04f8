"""Copy frozen values with some fields changed, several times as fast as `dataclasses.replace`.

A controller's round copies its state of some 30 fields several times. A frozen dataclass checks each assignment in its
`__init__`, but the slots of a class without `__post_init__` can be written directly. `unchecked` does so for any class
with slots, where the changes are known to pass its checks. Like the `__init__` of
`dataclasses`, the code for this is generated, once for each class and set of changed fields.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    # Type checkers check the arguments only under the original name.
    from dataclasses import replace as replace

    unchecked = replace
else:

    def replace(value, /, **changes):
        """Return a copy with changes, like `dataclasses.replace`, for any dataclass."""
        copied = _copier(type(value), True, *changes) or dataclasses.replace
        return copied(value, **changes)

    def unchecked(value, /, **changes):
        """Return a copy without `__post_init__`, with changes that are known to pass its checks."""
        copied = _copier(type(value), False, *changes) or dataclasses.replace
        return copied(value, **changes)


@cache
def _copier(kind: type[Any], checks: bool, *changed: str) -> Callable[..., Any] | None:
    """Return a function that copies a value of the class with these fields changed; None if it needs `__init__`."""
    fields = dataclasses.fields(kind)
    names = [f.name for f in fields]
    checked = checks and hasattr(kind, "__post_init__")
    if checked or not all(f.init for f in fields) or not set(changed) <= set(names):
        return None
    writers = {f"_write_{name}": getattr(getattr(kind, name, None), "__set__", None) for name in names}
    if None in writers.values():
        return None  # it lacks slots
    writes = [f"    _write_{name}(_copy, {name if name in changed else f'_value.{name}'})" for name in names]
    head = f"def copied({', '.join(['_value', '/', *changed])}):"
    code = "\n".join([head, "    _copy = _new(_kind)", *writes, "    return _copy"])
    scope: dict[str, Any] = {**writers, "_new": object.__new__, "_kind": kind}
    exec(code, scope)
    made: Callable[..., Any] = scope["copied"]
    return made
