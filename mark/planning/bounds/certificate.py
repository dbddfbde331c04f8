"""A certificate of the bound in whole instances: the data with which `scripts/check_bound.py` computes it again."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass

import numpy as np

from mark.domain.errors import BadInput
from mark.planning.bounds.block_bound import block_bound, block_patterns
from mark.planning.bounds.lower_bound import BoundProblem
from mark.planning.bounds.whole_problem import whole_problem

_MOST_COUNT = 2**32 - 1


@dataclass(frozen=True, slots=True)
class BoundCertificate:
    """`content` is a npz file whose SHA-256 is `sha256`; it proves `usd`, without commitments and extras."""

    content: bytes
    sha256: str
    usd: float


def certify_blocks(of: BoundProblem, late_allowed: float) -> BoundCertificate:
    """Return the certificate of the proof by blocks. Raises BadInput if blocks prove nothing."""
    problem = whole_problem(of)
    blocks = None if problem is None else block_bound(problem, late_allowed)
    if problem is None or blocks is None or not blocks.usd > 0.0:
        raise BadInput("whole instances in blocks prove no cost: there is nothing to certify", "--certificate", 0.0)
    counts = problem.counts
    if np.any(counts != np.floor(counts)) or counts.max() > _MOST_COUNT:
        raise BadInput("a certificate needs whole numbers of requests", "--certificate", float(counts.max()))
    prices, of_block = block_patterns(problem, blocks.block_bins)
    head = {
        "format": 1,
        "usd": blocks.usd,
        "late_usd": blocks.late_usd,
        "late_allowed": late_allowed,
        "function_usd": problem.function_usd if np.isfinite(problem.function_usd) else None,
        "block_bins": blocks.block_bins,
        "bin_s": problem.bin_s,
        "rt_max_s": of.resolved.slo.rt_max_s,
        "warm_start": problem.warm_start,
        "free_rps": problem.free_rps,
        "offers": [
            {"name": name, "usd_per_s": usd, "rps": rps, "billed_boot_s": boot_s}
            for name, usd, rps, boot_s in zip(
                problem.names,
                problem.usd_per_s.tolist(),
                problem.capacity_rps.tolist(),
                problem.boot_s.tolist(),
                strict=True,
            )
        ],
    }
    buffer = io.BytesIO()
    small = counts.astype(np.uint16 if counts.max() < 2**16 else np.uint32)
    np.savez_compressed(
        buffer,
        head=np.frombuffer(json.dumps(head, sort_keys=True).encode(), dtype=np.uint8),
        counts=small,
        prices=prices,
        pattern=of_block.astype(np.uint8),
    )
    content = buffer.getvalue()
    return BoundCertificate(content, hashlib.sha256(content).hexdigest(), blocks.usd)
