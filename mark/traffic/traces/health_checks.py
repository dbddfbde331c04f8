"""Health checks and scrapes in an access log: lines of a balancer or a monitor that are no use of the service."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from mark.domain.errors import BadInput

_MOST = 0.05  # share of the requests
_LEAST = 5
_PATHS = (
    rb"(?:ping|_?health(?:z|[_-]?checks?)?|livez?|readyz?|liveness|readiness|v2/health/(?:live|ready)|-/(?:healthy|ready)"
    rb"|actuator/health(?:/[a-z]+)?|metrics)"
)
_AGENTS = (b"kube-probe", b"ELB-HealthChecker", b"GoogleHC", b"Amazon-Route53-Health-Check", b"Consul Health Check")
_CHECK = re.compile(
    rb"(?:[\" ](?:GET|HEAD) |\":\s*\")(?:https?://[^/ \"]+)?/"
    + _PATHS
    + rb"/?(?=[? \"])|"
    + b"|".join(map(re.escape, _AGENTS)),
    re.IGNORECASE,
)


def refuse_health_checks(
    texts: Sequence[bytes], names: Sequence[str], values: Callable[[str], Sequence[bytes]], every: str
) -> None:
    """Raise BadInput if more than a few of these lines, all of them requests, are checks.

    `values` returns the values of a field of the lines, `names` are the fields by which a filter may leave them out,
    and `every` is the filter that keeps every line.
    """
    checks = [_CHECK.search(text) is not None for text in texts]
    count = sum(checks)
    if count < max(_LEAST, _MOST * len(texts)):
        return
    best, found = 0, ""
    for name in names:
        of_field = values(name)
        own = Counter(value for value, is_check in zip(of_field, checks, strict=True) if is_check)
        patterns = [(value, False) for value, _ in own.most_common(1) if b"/" in value and _plain(value)]
        patterns += [(agent, True) for agent in _AGENTS if any(agent in value for value in own)]
        for pattern, within in patterns:
            fits = [pattern in value if within else pattern == value for value in of_field]
            left = sum(is_check for fit, is_check in zip(fits, checks, strict=True) if fit)
            if left > best and left == sum(fits):
                shown = pattern.decode("utf-8", "replace")
                best, found = left, f"`log_filter` {name}!={f'*{shown}*' if within else shown} leaves"
    way = f"{found} {'them' if best == count else f'{best:,} of them'} out, " if found and best < len(texts) else ""
    what = f"{count:,} of the first {len(texts):,} requests are health checks"
    raise BadInput(f"{what}: {way}`log_filter` {every} counts all", "")


def _plain(value: bytes) -> bool:
    return not {ord("*"), ord("?")} & set(value)
