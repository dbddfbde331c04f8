"""Logs with two lines for each request ask which of them to count; other logs with two kinds of lines ask nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.table_files import TableColumns

T0 = datetime(2026, 5, 1, 10, tzinfo=UTC)
N = 300


def moments(seed: int = 1) -> list[datetime]:
    random, at = Random(seed), T0
    found = []
    for _ in range(N):
        at += timedelta(seconds=random.expovariate(2.0))
        found.append(at)
    return found


def web(at: datetime, *, client: str = "10.0.0.9", path: str = "/predict", protocol: str = "1.1") -> str:
    shown = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'{client} - - [{shown}] "POST {path} HTTP/{protocol}" 200 12 "-" "curl/8"\n'


def uvicorn(at: datetime, port: int) -> str:
    shown = at.strftime("%Y-%m-%d %H:%M:%S,123")
    return f'{shown} INFO:     127.0.0.1:{port} - "POST /predict HTTP/1.1" 200 OK\n'


def logged(**fields: object) -> str:
    return json.dumps(fields) + "\n"


def both(first: Callable[[int, datetime], str], second: Callable[[int, datetime], str], late_s: float = 0.02) -> str:
    """Return both lines of each request, in the order of their times."""
    lines = []
    for i, at in enumerate(moments()):
        lines += [(at, first(i, at)), (at + timedelta(seconds=late_s), second(i, at + timedelta(seconds=late_s)))]
    return "".join(text for _, text in sorted(lines))


PAIRS = {
    "every line copied, of some that are equal": (
        "".join(2 * Random(s).randrange(1, 5) * web(T0 + timedelta(seconds=s)) for s in range(N)),
        "line=*",
    ),
    "nginx and uvicorn": (both(lambda i, at: web(at), lambda i, at: uvicorn(at, 40_000 + i)), "line=*"),
    "nginx and gunicorn": (
        both(
            lambda i, at: web(at, client=f"10.0.0.{i % 9}"), lambda i, at: web(at, client="127.0.0.1", protocol="1.0")
        ),
        "line=*HTTP/1.",
    ),
    "two paths": (
        both(lambda i, at: web(at, path=f"/{i % 3}"), lambda i, at: web(at, path=f"/{i % 3}", client="127.0.0.1")),
        "line=*10.0.0.9*",
    ),
    "two servers at a constant rate": (
        "".join(
            logged(
                time=(T0 + timedelta(seconds=k // 2 / 4)).isoformat(),
                log=("proxy", "app")[k % 2],
                path="/p",
                status=200,
            )
            for k in range(2 * N)
        ),
        "log=",
    ),
    "two lines with their number": (
        both(lambda i, at: web(at).rstrip("\n") + " 1\n", lambda i, at: web(at).rstrip("\n") + " 2 of 2\n"),
        "line=*of*",
    ),
    "a server and its runner with another path": (
        both(
            lambda i, at: f"{at.isoformat()} [api:1] (method=POST,path=/predict) (status=200) (trace=t{i},span=a)\n",
            lambda i, at: f"{at.isoformat()} [runner:1] (method=POST,path=/) (status=200) (trace=t{i},span=b)\n",
        ),
        "line=*[",
    ),
    "two blocks": ("".join(web(at) for at in moments()) + "".join(uvicorn(at, 40_000) for at in moments()), "line=*"),
    "logfmt": (
        both(
            lambda i, at: f"time={at.isoformat()} msg=started method=POST path=/p status=200 id={i}\n",
            lambda i, at: f"time={at.isoformat()} msg=done method=POST path=/p status=200 id={i}\n",
        ),
        "line=*",
    ),
    "every line copied": ("".join(2 * web(at, client=f"10.0.0.{i % 9}") for i, at in enumerate(moments())), "line=*"),
    "upstream and access": (
        both(
            lambda i, at: logged(time=at.isoformat(), log="upstream", method="POST", path="/p", status=200),
            lambda i, at: logged(time=at.isoformat(), log="access", method="POST", path="/p", status=200),
        ),
        "log=",
    ),
    "request and answer with an id": (
        both(
            lambda i, at: logged(time=at.isoformat(), kind=0, request_id=f"r{i}", method="POST", path="/p"),
            lambda i, at: logged(time=at.isoformat(), kind=1, request_id=f"r{i}", method="POST", path="/p", status=200),
            late_s=1.5,
        ),
        "kind=",
    ),
    "objects of two forms": (
        both(
            lambda i, at: logged(time=at.isoformat(), method="POST", uri="/p", upstream="10.0.0.1:80", status=200),
            lambda i, at: logged(time=at.isoformat(), method="POST", path="/p", took=31, status=200),
        ),
        "two lines",
    ),
}


def turns(lines: Callable[[int, datetime], str], seed: int = 1) -> str:
    return "".join(lines(i, at) for i, at in enumerate(moments(seed)))


SINGLE = {
    "load test": "".join(web(T0 + timedelta(seconds=s)) for s in range(N) for _ in range(100)),
    "load test, not quite even": "".join(
        web(T0 + timedelta(seconds=s)) for s in range(N) for _ in range(99 + Random(s).randrange(3))
    ),
    "load test from between two seconds": "".join(web(T0 + timedelta(seconds=k // 40 / 2.0)) for k in range(7, 9000)),
    "load test that grows by steps": "".join(
        web(T0 + timedelta(seconds=s)) for s in range(N) for _ in range(20 + 20 * (s // 60))
    ),
    "load test that grows evenly": "".join(web(T0 + timedelta(seconds=s)) for s in range(60) for _ in range(2 * s + 2)),
    "load test of two replicas in turn": "".join(
        logged(
            time=(T0 + timedelta(seconds=k / 4)).isoformat(), pod=f"web-{k % 2}", method="GET", path="/p", status=200
        )
        for k in range(N)
    ),
    "load test of two backends in turn": "".join(
        web(T0 + timedelta(seconds=k // 4)).rstrip("\n") + f' "10.0.0.{k % 2}:80"\n' for k in range(N)
    ),
    "load test of two backends in two networks": "".join(
        web(T0 + timedelta(seconds=k // 4)).rstrip("\n") + f' "10.0.{k % 2}.7:80"\n' for k in range(N)
    ),
    "load test of two workers in turn": "".join(
        logged(time=(T0 + timedelta(seconds=k / 4)).isoformat(), pid=71 + k % 2, method="GET", path="/p", status=200)
        for k in range(N)
    ),
    "two clients each minute": "".join(
        web(T0 + timedelta(minutes=k // 2), client=f"10.0.0.{k % 2}", path="/job") for k in range(N)
    ),
    "visitors of a page with two files": "".join(
        web(at, client=f"81.2.{i // 250}.{i % 250}", path=path)
        for i, at in enumerate(moments())
        for path in ("/", "/a.css", "/a.js")
    ),
    "visitors with a cookie": "".join(
        web(at, path=path).rstrip("\n") + f' "u{i:x}z1"\n'
        for i, at in enumerate(moments())
        for path in ("/cart", "/pay", "/done")
    ),
    "four requests of each client": turns(lambda i, at: web(at, client=f"10.0.1.{i // 4}")),
    "two calls of a page": turns(
        lambda i, at: logged(
            time=at.isoformat(), trace_id=f"t{i // 2}", method="GET", path=("/", "/api")[i % 2], status=200
        )
    ),
    "three calls of a page": turns(
        lambda i, at: logged(time=at.isoformat(), request_id=f"t{i // 3}", method="GET", path=f"/{i % 3}", status=200)
    ),
    "users called requests": turns(
        lambda i, at: logged(time=at.isoformat(), user_id=f"u{i // 3}", request_id=f"u{i // 3}", path="/p", status=200)
    ),
    "two servers that take turns": turns(lambda i, at: web(at).rstrip("\n") + f' "10.0.0.{i % 2}:80"\n'),
    "two clients at random": turns(lambda i, at: web(at, client=Random(i).choice(("10.0.0.1", "10.0.0.2")))),
    "a page and its style": turns(lambda i, at: web(at, path=("/", "/style.css")[i % 2])),
    "a page and its style at once": both(lambda i, at: web(at, path="/"), lambda i, at: web(at, path="/style.css")),
    "two forms at random": turns(lambda i, at: Random(i).choice((web(at), uvicorn(at, 40_000)))),
    "two pods that take turns": turns(
        lambda i, at: logged(time=at.isoformat(), pod=f"p{i % 2}", method="POST", path="/p", status=200)
    ),
    "ids, one line each": turns(
        lambda i, at: logged(time=at.isoformat(), request_id=f"r{i}", method="POST", path="/p", status=200)
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_a_log_with_two_lines_a_request_asks_which(tmp_path: Path, case: str) -> None:
    text, way = PAIRS[case]
    path = tmp_path / "access.log"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"stands twice|two lines") as refused:
        open_trace(str(path))
    assert way in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("case", "log_filter", "rows"),
    [
        ("nginx and uvicorn", ("line", '*"curl/8"*'), N),
        ("nginx and uvicorn", ("line", "*"), 2 * N),
        ("every line copied", ("line", "*"), 2 * N),
        ("upstream and access", ("log", "access"), N),
        ("upstream and access", ("log", "*"), 2 * N),
    ],
)
def test_the_filter_that_the_refusal_names_is_enough(
    tmp_path: Path, case: str, log_filter: tuple[str, str], rows: int
) -> None:
    path = tmp_path / "access.log"
    path.write_text(PAIRS[case][0])
    assert open_trace(str(path), log_filter=log_filter).rows == rows


@pytest.mark.parametrize("case", SINGLE)
def test_a_log_with_one_line_a_request_asks_nothing(tmp_path: Path, case: str) -> None:
    path = tmp_path / "access.log"
    path.write_text(SINGLE[case])
    assert open_trace(str(path)).rows == SINGLE[case].count("\n")


def test_a_document_on_one_line_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    rows = [{"ts": T0.timestamp() + i, "method": "GET", "path": "/p/" + "x" * 200} for i in range(999)]
    path.write_text(json.dumps(rows))
    assert open_trace(str(path)).rows == 999


def steps(*fields: dict[str, str | int]) -> str:
    """Return a JSON line for each step of each request."""
    return "".join(
        logged(
            time=(at + timedelta(milliseconds=10 * k)).isoformat(), path="/predict", **{"request_id": f"r{i:x}"} | row
        )
        for i, at in enumerate(moments())
        for k, row in enumerate(fields)
    )


SEVERAL = {
    "three messages": steps(*({"msg": msg, "status": 200} for msg in ("fetched", "scored", "stored"))),
    "spans of a trace": "".join(
        logged(time=at.isoformat(), trace_id=f"{i:032x}", span_id=f"{i}{k}", name=name, status=200)
        for i, at in enumerate(moments())
        for k, name in enumerate(("server", "client", "redis", "postgres"))
    ),
    "three lines of text": "".join(
        f'{at.isoformat()} [req-{i:05x}] {word} "POST /predict HTTP/1.1" 200\n'
        for i, at in enumerate(moments())
        for word in ("received", "scored", "done")
    ),
    "services with one trace": "".join(
        logged(time=at.isoformat(), trace_id=f"{i:032x}", service=service, method="POST", path=path, status=200)
        for i, at in enumerate(moments())
        for service, path in (("shop", "/checkout"), ("billing", "/charge"), ("stock", "/reserve"))
    ),
    "lines that end with their number": "".join(
        f'{at.isoformat()} [req-{i + 70_000}x] "POST /predict HTTP/1.1" 200 {word} {k}\n'
        for i, at in enumerate(moments())
        for k, word in ((1, "received"), (2, "scored"), (4, "done"))
    ),
    "a message without its method": "".join(
        logged(time=at.isoformat(), level="info", method="POST", path="/predict", status=200)
        + logged(time=at.isoformat(), level="debug", path="/predict", msg="cache miss")
        for at in moments()
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_lines_for_a_request_are_counted_once_when_asked(tmp_path: Path, case: str) -> None:
    path = tmp_path / "app.log"
    path.write_text(SEVERAL[case])
    with pytest.raises(BadInput, match=r"each request seems to have .* lines: ") as refused:
        open_trace(str(path))
    field, _, value = str(refused.value).partition("`log_filter` ")[2].partition(" ")[0].partition("=")
    assert open_trace(str(path), log_filter=(field, value)).rows == N


ROWS = {
    "three calls of a page": [f"{at.isoformat()},t{i // 3},/{i % 3},200" for i, at in enumerate(moments())],
    "one id for all": [f"{at.isoformat()},unknown,/p,200" for at in moments()],
}


@pytest.mark.parametrize("case", ROWS)
def test_ids_that_do_not_tell_requests_apart_are_passed_over(tmp_path: Path, case: str) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(["time,request_id,path,status", *ROWS[case]]) + "\n")
    assert open_trace(str(tmp_path / "rows.csv")).rows == N


TABLES = {
    "begin and end": "time,phase,path,status\n"
    + "".join(f"{at.isoformat()},{phase},/predict,200\n" for at in moments() for phase in ("begin", "end")),
    "preflights": "time,method,path,status\n"
    + "".join(f"{at.isoformat()},{method},/p,200\n" for at in moments() for method in ("OPTIONS", "POST")),
    "transactions of JMeter": "timeStamp,elapsed,label,responseCode,responseMessage\n"
    + "".join(
        f"{at.timestamp() * 1000:.0f},30,GET /,200,OK\n"
        f"{at.timestamp() * 1000:.0f},31,Login,200,Number of samples in transaction : 1\n"
        for at in moments()
    ),
    "a copy that was appended": "time,path,status,ms\n"
    + 2 * "".join(f"{at.isoformat()},/predict,200,{i % 50}\n" for i, at in enumerate(moments())),
}


@pytest.mark.parametrize("case", TABLES)
def test_rows_of_a_table_that_count_requests_twice_are_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TABLES[case])
    with pytest.raises(BadInput, match="`count_column` none"):
        open_trace(str(path))
    assert open_trace(str(path), columns=TableColumns(count="none")).rows == 2 * N


def test_steps_of_a_users_session_are_requests(tmp_path: Path) -> None:
    lines = [logged(time=at.isoformat(), user_id=f"u{i // 3}", path="/p", status=200) for i, at in enumerate(moments())]
    (tmp_path / "app.log").write_text("".join(lines))
    assert open_trace(str(tmp_path / "app.log")).rows == N


@pytest.mark.parametrize("clients", [20, 60, 100])
def test_clients_that_come_in_turn_are_no_lines_of_one_request(tmp_path: Path, clients: int) -> None:
    lines = [web(at, client=f"10.0.0.{i % clients}", path=f"/{i % 3}") for i, at in enumerate(moments())]
    (tmp_path / "app.log").write_text("".join(lines))
    assert open_trace(str(tmp_path / "app.log")).rows == N


def test_statuses_that_alternate_in_a_table_are_requests(tmp_path: Path) -> None:
    times = (T0 + timedelta(seconds=i // 2, milliseconds=i * i % 797) for i in range(N))
    rows = [f"{at.isoformat()},/predict,{200 + 300 * (i % 2)}" for i, at in enumerate(times)]
    (tmp_path / "rows.csv").write_text("\n".join(["time,path,status", *rows]) + "\n")
    assert open_trace(str(tmp_path / "rows.csv")).rows == N
