"""Health checks in a log are asked about, because they are no use of the service."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace

T0 = datetime(2026, 5, 1, 10, tzinfo=UTC)
N = 200
HEAD = "#Fields: date time cs-method cs-uri-stem cs(User-Agent) sc-status\n"


def web(i: int, path: str, agent: str = "curl/8") -> str:
    shown = (T0 + timedelta(seconds=i)).strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'10.0.0.{i % 7} - - [{shown}] "GET {path} HTTP/1.1" 200 {i} "-" "{agent}"\n'


def w3c(i: int, path: str, agent: str = "curl/8") -> str:
    return f"{T0 + timedelta(seconds=i):%Y-%m-%d %H:%M:%S} GET {path} {agent} 200\n"


def object_of(i: int, path: str, agent: str = "curl/8") -> str:
    row = {"time": (T0 + timedelta(seconds=i)).isoformat(), "method": "GET", "path": path, "status": 200, "bytes": i}
    return json.dumps(row | {"user_agent": agent}) + "\n"


LOGS = {
    "SageMaker's pings": (
        "".join(web(i, "/ping" if i % 4 == 0 else "/invocations") for i in range(N)),
        "path!",
        "/ping",
    ),
    "probes of two paths": (
        "".join(
            web(i, ("/healthz", "/readyz")[i % 2], "kube-probe/1.31") if i % 4 < 2 else web(i, "/predict")
            for i in range(N)
        ),
        "line!",
        "*kube-probe*",
    ),
    "a balancer's checks of the front page": (
        "".join(web(i, "/", "ELB-HealthChecker/2.0" if i % 5 == 0 else "curl/8") for i in range(N)),
        "line!",
        "*ELB-HealthChecker*",
    ),
    "absolute addresses, as of an ALB": (
        "".join(web(i, f"https://example.org:443/{'ping' if i % 4 == 0 else 'p'}") for i in range(N)),
        "path!",
        "/ping",
    ),
    "objects": ("".join(object_of(i, "/livez" if i % 10 == 0 else "/predict") for i in range(N)), "path!", "/livez"),
    "a browser's preflights": (
        "".join(web(i, "/p").replace("GET", "OPTIONS" if i % 2 else "POST") for i in range(N)),
        "method!",
        "OPTIONS",
    ),
    "challenges": (
        "".join(web(i, "/p").replace('" 200', '" 401' if i % 2 else '" 200') for i in range(N)),
        "status!",
        "401",
    ),
    "redirects in objects": (
        "".join(object_of(i, "/p").replace("200,", "301," if i % 2 else "200,") for i in range(N)),
        "status!",
        "301",
    ),
    "challenges of IIS": (
        HEAD + "".join(w3c(i, "/p").replace(" 200", " 401" if i % 3 else " 200") for i in range(N)),
        "sc-status!",
        "401",
    ),
    "a monitor's status page": (
        "".join(web(i, "/server-status" if i % 4 == 0 else "/p") for i in range(N)),
        "path!",
        "/server-status",
    ),
    "W3C": (HEAD + "".join(w3c(i, "/health" if i % 10 == 0 else "/p") for i in range(N)), "cs-uri-stem!", "/health"),
}


@pytest.mark.parametrize("case", LOGS)
def test_health_checks_are_left_out_or_counted_when_asked(tmp_path: Path, case: str) -> None:
    text, field, value = LOGS[case]
    path = tmp_path / "access.log"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"of the first 200 requests are (health checks|\w+ \(.*\)): ") as refused:
        open_trace(str(path))
    assert f"`log_filter` {field}={value} leaves them out" in str(refused.value)
    checks = int(str(refused.value).partition(": ")[2].partition(" ")[0])
    assert open_trace(str(path), log_filter=(field, value)).rows == N - checks
    every = str(refused.value).rpartition("`log_filter` ")[2].removesuffix(" counts all").split("=")
    assert open_trace(str(path), log_filter=(every[0], every[1])).rows == N


@pytest.mark.parametrize(
    "text",
    [
        "".join(web(i, "/ping" if i % 50 == 0 else "/invocations") for i in range(N)),
        "".join(web(i, "/v1/healthcare/claims") for i in range(N)),
        "".join(web(i, "/predict?next=/health") for i in range(N)),
        "".join(web(i, "/p").replace('" 200', '" 401' if i % 4 == 0 else '" 200') for i in range(N)),
    ],
)
def test_few_checks_and_other_paths_ask_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "access.log").write_text(text)
    assert open_trace(str(tmp_path / "access.log")).rows == N


def test_a_filter_that_leaves_nothing_is_not_advised(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("".join(web(i, "/ping") for i in range(N)))
    with pytest.raises(BadInput, match=r"are health checks: `log_filter` line=\* counts all"):
        open_trace(str(tmp_path / "access.log"))
