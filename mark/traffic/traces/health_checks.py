"""Requests that no model answers: health checks and scrapes, a browser's preflights, redirects and challenges."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mark.domain.errors import BadInput

_MOST = 0.05  # share of the requests
_LEAST = 5
_PATHS = (
    rb"(?:ping|_?health(?:z|[_-]?checks?)?|livez?|readyz?|liveness|readiness|v2/health/(?:live|ready)|-/(?:healthy|ready)"
    rb"|actuator/health(?:/[a-z]+)?|metrics|server-status|(?:nginx|stub)_status)"
)
_AGENTS = (
    *(b"kube-probe", b"ELB-HealthChecker", b"GoogleHC", b"Amazon-Route53-Health-Check", b"Consul Health Check"),
    b"internal dummy connection",  # of Apache
)
_METHODS = frozenset([b"OPTIONS", b"HEAD"])
# A client sends the request again after these. Alone they are usual: clients of an old address or without a key.
_STATUSES, _MOST_STATUSES = frozenset([b"301", b"302", b"303", b"307", b"308", b"401"]), 0.3
_STATUS = re.compile("status|code", re.IGNORECASE)
_CHECK = re.compile(
    rb"[\" ](?P<method>OPTIONS|HEAD)[ \"]|(?:[\" ](?:GET|HEAD) |\":\s*\")(?:https?://[^/ \"]+)?/"
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
    statuses = next((list(values(name)) for name in names if "status" in name.lower()), [])
    checks, said = checks_in(texts, statuses)
    if not (count := sum(checks)):
        return
    best, found = 0, ""
    for name in names:
        of_field = values(name)
        own = Counter(value for value, is_check in zip(of_field, checks, strict=True) if is_check)
        known = _METHODS | _STATUSES
        patterns = [
            (value, False) for value, _ in own.most_common(1) if value in known or (b"/" in value and _plain(value))
        ]
        patterns += [(agent, True) for agent in _AGENTS if any(agent in value for value in own)]
        for pattern, within in patterns:
            fits = [pattern in value if within else pattern == value for value in of_field]
            left = sum(is_check for fit, is_check in zip(fits, checks, strict=True) if fit)
            if left > best and left == sum(fits):
                shown = pattern.decode("utf-8", "replace")
                best, found = left, f"`log_filter` {name}!={f'*{shown}*' if within else shown} leaves"
    way = f"{found} {'them' if best == count else f'{best:,} of them'} out, " if found and best < len(texts) else ""
    what = f"{count:,} of the first {len(texts):,} requests are {said}"
    raise BadInput(f"{what}: {way}`log_filter` {every} counts all", "")


def refuse_checked_rows(rows: Sequence[Mapping[str, object]], where: str) -> None:
    """Raise BadInput if more than a few rows of a table, each of them a request, are checks."""
    status = next((name for row in rows[:1] for name in row if _STATUS.search(name)), "")
    statuses = [str(row[status]).removesuffix(".0").encode() for row in rows] if status else []
    checks, kinds = checks_in([json.dumps(row, default=str).encode() for row in rows], statuses)
    if any(checks):
        what = f"{sum(checks):,} of the first {len(rows):,} rows are {kinds}"
        raise BadInput(f"{what}: delete them, or say `count_column` none to count them all", where)


def checks_in(texts: Sequence[bytes], statuses: Sequence[bytes] = ()) -> tuple[list[bool], str]:
    """Return which lines are requests that no model answers, and their kinds; none of them if they are few."""
    found = [_CHECK.search(text) for text in texts]
    again = [status if status in _STATUSES else b"" for status in statuses]
    if sum(map(bool, again)) < _MOST_STATUSES * len(texts):
        again = [b""] * len(texts)
    checks = [match is not None or bool(status) for match, status in zip(found, again, strict=True)]
    if sum(checks) < max(_LEAST, _MOST * len(texts)):
        return [False] * len(texts), ""
    kinds = {
        f"{match['method'].decode()} (no model answers them)" if match["method"] else "health checks"
        for match in found
        if match
    }
    kinds |= {f"{status.decode()} (the client asks again)" for status in again if status}
    return checks, " or ".join(sorted(kinds, reverse=True))


def _plain(value: bytes) -> bool:
    return not {ord("*"), ord("?")} & set(value)
