"""Load cached machine code without numba's compiler.

Before numba looks into its cache, it loads its implementation of everything it can compile, with SciPy's linear algebra
and a C parser if they are installed. That takes a third of a second, which only functions missing from the cache need.
"""

from __future__ import annotations

from typing import Any

from numba.core import runtime as _numba_runtime

_runtime: Any = _numba_runtime


def load_alone(dispatcher: Any) -> None:
    """Let a numba dispatcher load its cached code alone. A dispatcher without a cache stays unchanged."""
    cache = dispatcher._cache
    if not hasattr(cache, "_load_overload"):
        return

    def load(signature: Any, context: Any) -> Any:
        _runtime.rtsys.initialize(context)  # cached code may count references
        return cache._load_overload(signature, context)

    cache.load_overload = load
