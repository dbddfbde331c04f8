"""The notation of policies on the command line; this file imports no policy."""

from __future__ import annotations

AS_IS = "as-is"
BEST_FIXED = "best-fixed"
FIXED = "fixed:"  # the one name that carries its fleet: fixed:c5.xlarge=10,p2.xlarge=2


def split_policy(named: str, predictor: str | None) -> tuple[str, str | None]:
    """Split `name[:predictor]`, or `fixed:...` with its own colon; `predictor` for a name without one."""
    if named.startswith(FIXED):
        return named, predictor
    name, _, other = named.partition(":")
    return name, other or predictor
