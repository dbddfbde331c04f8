"""`load_alone`: cached machine code without numba's compiler.

Before it looks into its cache numba loads all that it can compile, with SciPy's linear algebra and a parser of C where
they are installed: a third of a second, which only a function that is not in the cache needs.
"""

from __future__ import annotations

from typing import Any

from numba.core import runtime as _numba_runtime

_runtime: Any = _numba_runtime


def load_alone(dispatcher: Any) -> None:
    """Let `dispatcher`, a function of numba's, load cached code by itself; without a cache it stays as it is."""
    cache = dispatcher._cache
    if not hasattr(cache, "_load_overload"):
        return

    def load(signature: Any, context: Any) -> Any:
        _runtime.rtsys.initialize(context)  # cached code may count references
        return cache._load_overload(signature, context)

    cache.load_overload = load
