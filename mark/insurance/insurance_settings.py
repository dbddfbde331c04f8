"""The settings of insurance against slow and lost instances: section `[insurance]` of a service file."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mark.domain.offer import Market

SUM, CONCAT = "sum", "concat"
CODES = (SUM, CONCAT)
LEAST_K, MOST_K = 2, 8  # queries of a coding group
MOST_R = 2  # parity models, each of which replaces one missing answer of a group

EXACT, DEGRADED = "exact", "degraded"  # values of `mark-accept`
ACCEPTS = (EXACT, DEGRADED)

# A reconstruction is answered this long before the deadline by default, if no exact answer has come by then.
BEFORE_DEADLINE_S = 0.005
# Parity calls may miss their limits more often than the promise says, because most of them are not needed.
PARITY_ATTAINMENT = 0.9
# The automatic fill keeps the parity fleet's load below this share of its ready capacity.
MOST_PARITY_LOAD = 0.7


@dataclass(frozen=True, slots=True)
class ParitySettings:
    """A code and its parity models, as `parity.json` states them.

    A group has `k` queries. Each of the `r` parity models gets one encoded query of every group, and with any k of the
    k + r outputs the others can be reconstructed (ParM, SOSP '19, section 3).
    """

    code: str
    k: int
    r: int = 1
    models: tuple[str, ...] = ()  # references of the parity models, in order; empty: only simulated
    input_shape: tuple[int, ...] = ()  # of one query without the batch axis
    output_shape: tuple[int, ...] = ()
    encode_s: float = 0.0
    decode_s: float = 0.0
    available_accuracy: float | None = None  # A_a, of exact answers
    degraded_accuracy: float | None = None  # A_d, of reconstructions
    file: str = ""  # the parity.json that it was read from
    model_sha256: str = ""  # of the model file or registry version that they were trained for; "": unknown


@dataclass(frozen=True, slots=True)
class InsuranceSettings:
    """Either parity models, or a second call of the same model after `hedge_after_s`; never both.

    `after_s` is the time from a query's arrival until its reconstruction may answer it. `fill_s` is the time from a
    group's first query until it is closed with older queries in the free places; None: chosen by the load every minute;
    infinite: a group waits for all of its queries, as in the paper.
    """

    parity: ParitySettings | None = None
    hedge_after_s: float = math.inf
    after_s: float = 0.0
    accept: str = EXACT  # for requests without `mark-accept`
    fill_s: float | None = None
    markets: tuple[Market, ...] = ()  # of parity instances; empty: those of the service
