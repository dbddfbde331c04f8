"""Builders of trace files and naive answers for the tests beside this file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.traffic.traces import Trace


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> str:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


def counts_file(folder: Path, rows: list[tuple[float, float]], name: str = "trace.csv") -> str:
    return written(folder, "t_seconds,count\n" + "".join(f"{t!r},{n!r}\n" for t, n in rows), name)


def arrivals_file(folder: Path, times: list[float], name: str = "arrivals.csv") -> str:
    return written(folder, "t_seconds\n" + "".join(f"{t!r}\n" for t in times), name)


def arrivals(trace: Trace, start_s: float, end_s: float, scale: float = 1.0, seed: int = 0) -> FloatArray:
    """Return all arrivals of a part in seconds from the trace's first row, and check the promises of every chunk."""
    covered_s = 0.0
    found = []
    for times, until_s in trace.chunks(start_s, end_s, scale, seed):
        assert until_s >= covered_s
        assert np.all(np.diff(times) >= 0.0)
        assert not len(times) or (times[0] >= covered_s and times[-1] <= until_s)
        found.append(times)
        covered_s = until_s
    assert covered_s == end_s - start_s
    return np.concatenate(found) + start_s


ALB_LINE = (
    "{kind} {answered} app/lb/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "
    '"GET http://www.example.com:80/ HTTP/1.1" "{agent}" - - arn:aws:elasticloadbalancing:us-east-2:1:targetgroup/t/7 '
    '"Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 {created} "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"\n'
)


def stamp(at_s: float) -> str:
    """Return the seconds from 2018-07-02T22:00 as AWS writes them."""
    micros = round(at_s * 1e6)
    hour, rest = divmod(micros, 3_600_000_000)
    minute, rest = divmod(rest, 60_000_000)
    return f"2018-07-{2 + (22 + hour) // 24:02}T{(22 + hour) % 24:02}:{minute:02}:{rest / 1e6:09.6f}Z"


def alb_line(created_s: float, answered_s: float | None = None, kind: str = "http", agent: str = "curl/7.46.0") -> str:
    answered = stamp(created_s if answered_s is None else answered_s)
    return ALB_LINE.format(kind=kind, answered=answered, agent=agent, created=stamp(created_s))
