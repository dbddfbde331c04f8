"""Write an access log of an Application Load Balancer, in the format that AWS documents.

    python benchmarks/data_plane/make_alb_log.py 1000000 --spec 'synthetic:diurnal?rate=160' --seed 1 --out \
            access.log.gz

The requests arrive as the generator draws them. Lines are in the order of the answers, so creation times are not in
order, as in real logs. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from mark.traffic.traces import open_trace

MONDAY = datetime(2024, 3, 4, tzinfo=UTC)
DAY_S = 86400.0
GROUP = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/inception/6d0ecf831eec9f09"
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"
AGENTS = (
    "curl/7.88.1",
    "python-requests/2.31.0",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
    "okhttp/4.12.0",
)


def first_arrivals(lines: int, spec: str, seed: int, longest_days: int = 30) -> np.ndarray:
    """Return the first `lines` arrivals of a generator, in seconds."""
    trace = open_trace(spec, duration_s=longest_days * DAY_S, seed=seed)
    found: list[np.ndarray] = []
    for times, _ in trace.chunks(0.0, trace.duration_s, 1.0, seed):
        found.append(times)
        if sum(map(len, found)) >= lines:
            break
    return np.concatenate(found)[:lines]


def alb_lines(lines: int, spec: str, seed: int) -> Iterator[str]:
    """Yield the lines of the log, each with its line feed, ascending by the time of the answer."""
    rng = np.random.default_rng(seed)
    came = first_arrivals(lines, spec, seed)
    took = rng.lognormal(np.log(0.12), 0.6, len(came))
    agents = rng.integers(len(AGENTS), size=len(came))
    tls = rng.random(len(came)) < 0.9
    ports = rng.integers(1024, 65536, size=len(came))
    hosts = rng.integers(1, 255, size=(len(came), 3))
    failed = rng.random(len(came)) < 0.002
    sizes = rng.integers(200, 200_000, size=(len(came), 2))
    for i in np.argsort(came + took, kind="stable").tolist():
        status = 502 if failed[i] else 200
        created = MONDAY + timedelta(seconds=float(came[i]))
        target = f"10.0.1.{hosts[i, 2]}:80"
        yield (
            f"{'h2' if tls[i] else 'http'} {stamp(created + timedelta(seconds=float(took[i])))} "
            f"app/inference/50dc6c495c0c9188 203.0.{hosts[i, 0]}.{hosts[i, 1]}:{ports[i]} {target} "
            f"0.000 {took[i]:.3f} 0.000 {status} {status} {sizes[i, 0]} {sizes[i, 1]} "
            f'"POST https://models.example.com:443/v2/models/inception-v3/infer HTTP/{"2.0" if tls[i] else "1.1"}" '
            f'"{AGENTS[agents[i]]}" '
            f"{'ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2' if tls[i] else '- -'} {GROUP} "
            f'"Root=1-{int(created.timestamp()):08x}-{i:024x}" '
            f'"{"models.example.com" if tls[i] else "-"}" "{CERTIFICATE if tls[i] else "-"}" 1 {stamp(created)} '
            f'"forward" "-" "-" "{target}" "{status}" "-" "-" TID_{i:032x}\n'
        )


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=int)
    parser.add_argument("--spec", default="synthetic:diurnal?rate=160")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="log file, compressed if its name ends in .gz")
    options = parser.parse_args()
    text = "".join(alb_lines(options.lines, options.spec, options.seed)).encode()
    # No time stamp in the gzip header, so that equal arguments give equal bytes.
    options.out.write_bytes(gzip.compress(text, 6, mtime=0) if options.out.suffix == ".gz" else text)


if __name__ == "__main__":
    main()
