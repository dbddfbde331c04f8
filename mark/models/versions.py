"""Versions of a model side by side: choose the one that answers a request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from itertools import accumulate

from mark.domain.errors import BadInput


class Versions:
    """`{version: (reference, weight)}` with weights from 0 to 1, the shares of the requests, which add up to 1.

    A version of weight 0 answers only requests that name it. Raises BadInput.
    """

    def __init__(self, versions: Mapping[str, tuple[str, float]]) -> None:
        if not versions:
            raise BadInput("needs at least one version", "versions")
        for version, (_, weight) in versions.items():
            if not version or "/" in version:
                raise BadInput("a version is a name without a slash", "versions", version)
            if not 0.0 <= weight <= 1.0:
                raise BadInput("a weight is a share of the requests, 0 to 1", f"versions.{version}", weight)
        total = math.fsum(weight for _, weight in versions.values())
        if abs(total - 1.0) > 1e-6:
            raise BadInput("weights must add up to 1", "versions", total)
        self.references = {version: reference for version, (reference, _) in versions.items()}
        # Smallest share first, so that a version that grows from 1 % to 10 % keeps the requests it had.
        shares = sorted((weight, version) for version, (_, weight) in versions.items() if weight > 0.0)
        self._versions = [version for _, version in shares]
        self._ends = list(accumulate(weight for weight, _ in shares))

    def choose(self, key: str) -> str:
        """Return the version for a request id: always the same for one id, so that a retry stays with its version."""
        if len(self._versions) == 1:
            return self._versions[0]
        point = int.from_bytes(blake2b(key.encode(errors="replace"), digest_size=8).digest(), "big") / 2**64
        for version, end in zip(self._versions, self._ends, strict=True):
            if point < end:
                return version
        return self._versions[-1]  # rounding
