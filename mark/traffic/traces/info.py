"""`mark trace info`: a trace in numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mark.traffic.traces.trace import Trace


def trace_info(trace: Trace) -> dict[str, Any]:
    """Return rows, duration, requests, rates, gaps and burstiness of a trace; None if undefined.

    `cv`: standard deviation over mean, of the bin counts or (arrivals) of the times between requests. `idc`: variance
    over mean of the counts per bin (60 s for arrivals); 1 for Poisson at a constant rate. The peak is over a bin too,
    and over the last 60 s of arrivals.
    """
    if trace.kind == "counts":
        counts, widths_s = trace.series.counts, trace.series.ends_s - trace.series.starts_s
        last_rps = 0.0
    else:
        bin_s = 60.0
        # Whole minutes only, because the trace's end cuts the last one.
        load = trace.series.load(0.0, max(bin_s, math.floor(trace.duration_s / bin_s) * bin_s), bin_s, 1.0)
        counts, widths_s = load.mean_rps * bin_s, np.full(len(load), bin_s)
        # The last 60 s may begin within one of these minutes.
        last_rps = trace.total_counts(max(0.0, trace.duration_s - bin_s), trace.duration_s) / bin_s
    # If a missing row means no requests, bins without a row count as empty.
    absent = round((trace.duration_s - float(widths_s.sum())) / trace.bin_s) if trace.series.silent else 0
    bins = len(counts) + (absent if trace.kind == "counts" else 0)
    mean = float(counts.sum()) / bins
    variance = (float(((counts - mean) ** 2).sum()) + (bins - len(counts)) * mean**2) / bins
    seen_s = trace.duration_s - sum(end - begin for begin, end in trace.gaps)
    requests = trace.total_counts(0.0, trace.duration_s)
    return {
        "read": trace.read,
        "name": trace.name,
        "kind": trace.kind,
        "rows": trace.rows,
        "bin_s": trace.bin_s,
        "duration_s": trace.duration_s,
        "requests": requests,
        "mean_rps": requests / seen_s,
        "peak_rps": max(float(np.max(counts / widths_s)), last_rps),
        "gaps": len(trace.gaps),
        "gap_s": trace.duration_s - seen_s,
        "cv": _number(math.sqrt(variance) / mean if trace.kind == "counts" else trace.gap_cv),
        "idc": _number(variance / mean if mean > 0.0 else math.nan),
        "notes": list(trace.notes),
    } | _sizes(trace)


def _sizes(trace: Trace) -> dict[str, Any]:
    """Return the sum of the sizes of requests, and the settings of a service file that they give."""
    sizes = trace.sizes
    return {} if sizes is None else {"units": float(sizes.values.sum()), "unit_size": sizes.mean, "tail": sizes.tail}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
