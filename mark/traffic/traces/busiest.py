"""The busiest window of a trace."""

from __future__ import annotations

import numpy as np

from mark.traffic.traces.trace import Part, Trace

# A window begins at a multiple of this fraction of its length.
_STEPS = 12


def busiest_window(trace: Trace, part: Part, window_s: float, *, fewest: float = 0.0, scale: float = 1.0) -> Part:
    """Return the window within a part that expects most requests, the first of equal ones.

    Windows begin at every twelfth of their length. If the busiest expects fewer than `fewest`, longer ones are tried,
    twice as long each time, up to the whole part.
    """
    while window_s < part.duration_s:
        starts_s = np.arange(part.start_s, part.end_s - window_s + 1e-9, window_s / _STEPS)
        before, _ = trace.series.until(starts_s)
        behind, _ = trace.series.until(starts_s + window_s)
        requests = (behind - before) * scale
        # Rounding errors must not decide if all are equal.
        most = int(np.argmax(requests >= requests.max() * (1.0 - 1e-9)))
        if requests[most] >= max(fewest, 1e-9):
            start_s = float(starts_s[most])
            return Part(start_s, start_s + window_s, float(requests[most]))
        window_s *= 2.0
    return part
