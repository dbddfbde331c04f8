"""Turns a trace of tokens, pages or seconds into one of requests of the mean size.

A bin of u units becomes a Poisson number of requests, u / size on average. The service times of requests scatter as
their sizes do, so the work of a bin is a compound Poisson number: counted in units, its variance is u E[S^2] / E[S].

Requests whose sizes are known keep their times. Where a thousand in a row are larger than the mean size, some are
repeated, and where they are smaller, some are left out, so that the work follows the trace through days. Their own
sizes are not replayed: service times are drawn for them like for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.service import ServiceConfig
from mark.traffic.traces.arrivals import trace_of
from mark.traffic.traces.trace import Chunk, Source, Trace

_NEAR = 0.1  # a counted mean or tail this near to the stated one needs no note
_ALIKE = 1000  # consecutive requests that share a mean size: fewer would count the scatter of sizes twice


@dataclass(frozen=True, eq=False, slots=True)
class _FewerRequests:
    """A Source of `share` of the arrivals of another one."""

    source: Source
    share: float

    def chunks(self, start_s: float, end_s: float, scale: float, seed: int) -> Iterator[Chunk]:
        return self.source.chunks(start_s, end_s, scale * self.share, seed)


def counted_in(trace: Trace, service: ServiceConfig) -> Trace:
    """Return the trace as requests, if the service counts its load in another unit.

    Raises BadInput for sizes that the service has no unit for, and for single requests without a size.
    """
    unit, where = service.unit, service.source or service.name
    if unit.is_requests:
        if trace.sizes is not None:
            what = f"the load is requests with sizes, so {where} [service] needs `unit` and `unit_size` (mean here"
            raise BadInput(f"{what} {trace.sizes.mean:.4g})", "size_column")
        return trace
    notes = (*trace.notes, *_notes(trace, service))
    if trace.sizes is not None:
        chunks = trace.source.chunks(0.0, trace.duration_s, 1.0, 0)
        times = resized(np.concatenate([times for times, _ in chunks]), trace.sizes.values, unit.size)
        found = trace_of(trace.name, lambda: iter([times]), notes=lambda: notes, duration_s=trace.duration_s)
        return replace(found, read_as=trace.read_as, began_s=trace.began_s, sizes=trace.sizes, unit=unit)
    if trace.kind != "counts":
        what = f"holds requests without sizes, and {where} counts {unit.name}"
        raise BadInput(f"{what}: name the column of their {unit.name} by `size_column`", trace.name)
    source = _FewerRequests(trace.source, 1.0 / unit.size)
    return replace(trace, series=trace.series.times(1.0 / unit.size), source=source, notes=notes, unit=unit)


def resized(times_s: FloatArray, sizes: FloatArray, size: float) -> FloatArray:
    """Return ascending times of requests of one `size` with the same work; a copy comes before the next request.

    Each `_ALIKE` requests keep their sum of sizes, to within one request.
    """
    groups = np.arange(len(sizes)) // _ALIKE
    shares = np.bincount(groups, weights=sizes) / np.bincount(groups) / size
    # Rounded to the nearest number, so that equal sizes keep every request.
    copies = np.diff(np.floor(np.cumsum(shares[groups]) + 0.5), prepend=0.0).astype(np.int64)
    first = np.repeat(np.cumsum(copies) - copies, copies)
    part = (np.arange(len(first)) - first) / np.repeat(copies, copies)
    gaps = np.diff(times_s, append=times_s[-1])
    return np.asarray(np.repeat(times_s, copies) + part * np.repeat(gaps, copies), dtype=np.float64)


def _notes(trace: Trace, service: ServiceConfig) -> list[str]:
    unit, sizes = service.unit, trace.sizes
    counted = f"requests of {unit.size:.4g} {unit.name} on average"
    found = [f"the load is counted as {counted}; shares in time are of requests"]
    if sizes is not None and abs(sizes.mean / unit.size - 1.0) > _NEAR:
        found.append(f"a request of this trace has {sizes.mean:.4g} {unit.name}, unit_size says {unit.size:g}")
    if sizes is not None and abs(sizes.tail / (service.tail or 1.0) - 1.0) > _NEAR:
        said = "no tail is stated" if service.tail is None else f"tail says {service.tail:g}"
        found.append(f"sizes of this trace scatter as tail = {sizes.tail:.3g} does, and {said}")
    return found
