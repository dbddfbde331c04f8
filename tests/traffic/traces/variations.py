"""Variations of each kind of fault (letters A to L), invented without a look at the code that reads them.

Each has the requests in it, or None where only a refusal is right. `REFUSED` are the others that are refused, too: with
a way out, because they have two readings or no form that is known.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

T0 = datetime(2026, 5, 1, 10, 0, 0, tzinfo=UTC)
N = 60


def at(i: float, step: int = 60) -> datetime:
    return T0 + timedelta(seconds=i * step)


def iso(i: float, step: int = 60, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return at(i, step).strftime(form)


C = [1000 + (i * 37) % 91 for i in range(N)]
S = sum(C)


def second(i: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (T0 + timedelta(seconds=i)).strftime(form)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], sep: str = ",") -> str:
    return "\n".join([sep.join(map(str, head)), *(sep.join(map(str, r)) for r in rows)]) + "\n"


def counter(start: int = 900_000, reset: int | None = None) -> list[int]:
    out, v = [], start
    for i, c in enumerate(C):
        v = 0 if reset == i else v
        v += c
        out.append(v)
    return out


CASES: dict[str, tuple[str | bytes | dict[str, str | bytes], float | None]] = {}


def case(name: str, data: str | bytes | dict[str, str | bytes], truth: float | None) -> None:
    CASES[name] = (data, truth)


# A
cells = ["#N/A" if i == 5 else "#DIV/0!" if i == 20 else str(c) for i, c in enumerate(C)]
case("A1 Excel errors", table(["Time", "requests"], [(iso(i), c) for i, c in enumerate(cells)]), S - C[5] - C[20])
big = [120_345 + c for c in C]
case(
    "A2 Indian groups",
    table(
        ["Time", "requests"],
        [(iso(i), f'"{b // 100000},{b % 100000 // 1000:02d},{b % 1000:03d}"') for i, b in enumerate(big)],
    ),
    sum(big),
)
case("A3 percent cells", table(["Time", "Value"], [(iso(i), f"{12 + i % 7}.5%") for i in range(N)]), None)
case(
    "A4 comma exponent",
    table(["Zeit", "Anfragen"], [(iso(i), f"{c / 1000:.6f}E+03".replace(".", ",")) for i, c in enumerate(C)], ";"),
    S,
)
case(
    "A5 negative in brackets",
    table(["Time", "requests"], [(iso(i), f'"({c:,})"' if i == 7 else f'"{c:,}"') for i, c in enumerate(C)]),
    None,
)
case("A6 unit word", table(["Time", "Value"], [(iso(i), f"{c} requests") for i, c in enumerate(C)]), S)
case("A7 duration cells", table(["Time", "Value"], [(iso(i), f"{30 + i % 5} ms") for i in range(N)]), None)
case("A8 bytes", table(["Time", "Value"], [(iso(i), f"{30 + i % 5}.2 kB") for i in range(N)]), None)
# B
case(
    "B1 rate x 60",
    table(['"Time"', '"sum(rate(http_requests_total[5m])) * 60"'], [(iso(i), float(c)) for i, c in enumerate(C)]),
    S,
)
case(
    "B2 rate of a latency sum",
    table(['"Time"', '"sum(rate(http_request_duration_seconds_sum[5m]))"'], [(iso(i), 3.2 + i % 3) for i in range(N)]),
    None,
)
case(
    "B3 ratio of rates",
    table(
        ['"Time"', '"sum(rate(http_requests_total{code=~""5..""}[5m])) / sum(rate(http_requests_total[5m]))"'],
        [(iso(i), 0.01 * (1 + i % 3)) for i in range(N)],
    ),
    None,
)
case(
    "B4 cpu rate",
    table(['"Time"', '"sum(rate(node_cpu_seconds_total[5m]))"'], [(iso(i), 3.2 + i % 3) for i in range(N)]),
    None,
)
case("B5 integer legend req/s", table(["Time", "credit - req/s"], [(iso(i), c) for i, c in enumerate(C)]), S * 60)
case(
    "B6 increase 1h every minute",
    table(['"Time"', '"sum(increase(http_requests_total[1h]))"'], [(iso(i), c * 60) for i, c in enumerate(C)]),
    S,
)
case(
    "B7 avg_over_time",
    table(['"Time"', '"avg_over_time(http_inflight_requests[5m])"'], [(iso(i), 3 + i % 3) for i in range(N)]),
    None,
)
case(
    "B8 topk of rate with by",
    table(
        ['"Time"', '"topk(1, sum by (route) (rate(http_requests_total[1m])))"'], [(iso(i), c) for i, c in enumerate(C)]
    ),
    None,
)
case("B9 per hour name", table(["Time", "requests per hour"], [(iso(i), c * 60) for i, c in enumerate(C)]), S)
# C
case(
    "C1 reset in the middle", table(["Time", "Value"], [(iso(i), v) for i, v in enumerate(counter(reset=30))]), S - C[0]
)
case(
    "C2 json lines counter",
    "".join(json.dumps({"ts": at(i).timestamp(), "requests_total": v}) + "\n" for i, v in enumerate(counter())),
    S - C[0],
)
case(
    "C3 histogram count beside sum",
    table(
        ["time", "request_seconds_count", "request_seconds_sum"],
        [(iso(i), v, v * 0.03) for i, v in enumerate(counter())],
    ),
    S - C[0],
)
case(
    "C4 counter with separators",
    table(["Time", "served"], [(iso(i), f'"{v:,}"') for i, v in enumerate(counter())]),
    S - C[0],
)
case(
    "C5 counter newest first", table(["Time", "Value"], [(iso(i), v) for i, v in enumerate(counter())][::-1]), S - C[0]
)
case(
    "C6 counter of CloudWatch Maximum",
    json.dumps(
        {
            "Label": "requests_total",
            "Datapoints": [
                {"Timestamp": at(i).isoformat(), "Maximum": float(v), "Unit": "Count"} for i, v in enumerate(counter())
            ],
        }
    ),
    S - C[0],
)
# D
case(
    "D1 Datum Uhrzeit",
    table(
        ["Datum", "Uhrzeit", "Anfragen"],
        [(iso(i, form="%d.%m.%Y"), iso(i, form="%H:%M"), c) for i, c in enumerate(C)],
        ";",
    ),
    S,
)
case(
    "D2 end before start",
    json.dumps([{"period_end": iso(i + 1), "period_start": iso(i), "requests": c} for i, c in enumerate(C)]),
    S,
)
case(
    "D3 date and hour",
    table(
        ["date", "hour", "requests"], [(at(i, 3600).strftime("%Y-%m-%d"), at(i, 3600).hour, c) for i, c in enumerate(C)]
    ),
    S,
)
case(
    "D4 date, hour, minute",
    table(
        ["date", "hour", "minute", "requests"],
        [(at(i).strftime("%Y-%m-%d"), at(i).hour, at(i).minute, c) for i, c in enumerate(C)],
    ),
    S,
)
case(
    "D5 year month day",
    table(
        ["year", "month", "day", "hour", "requests"],
        [(at(i, 3600).year, at(i, 3600).month, at(i, 3600).day, at(i, 3600).hour, c) for i, c in enumerate(C)],
    ),
    S,
)
case("D6 time only no date", table(["time", "requests"], [(iso(i, form="%H:%M:%S"), c) for i, c in enumerate(C)]), S)
# E
case(
    "E1 pods", table(["time", "pod", "requests"], [(iso(i), p, c) for i, c in enumerate(C) for p in ("a", "b")]), 2 * S
)
case(
    "E2 wide with total",
    table(["Time", "api", "web", "total"], [(iso(i), c, 2 * c, 3 * c) for i, c in enumerate(C)]),
    3 * S,
)
case(
    "E3 Influx annotated",
    "#group,false,false,true,true,false,false,true,true\n#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string,string\n#default,_result,,,,,,,\n"
    + table(
        ["", "result", "table", "_start", "_stop", "_time", "_value", "_field", "_measurement"],
        [
            (
                "",
                "",
                0,
                iso(0, form="%Y-%m-%dT%H:%M:%SZ"),
                iso(N, form="%Y-%m-%dT%H:%M:%SZ"),
                iso(i, form="%Y-%m-%dT%H:%M:%SZ"),
                c,
                "requests",
                "http",
            )
            for i, c in enumerate(C)
        ],
    ),
    S,
)
case(
    "E4 statuses long",
    table(["minute", "status", "count"], [(iso(i), s, c) for i, c in enumerate(C) for s in (200, 500)]),
    2 * S,
)
case(
    "E5 k6 json",
    "".join(
        json.dumps(x) + "\n"
        for i in range(300)
        for x in (
            {
                "metric": "http_reqs",
                "type": "Point",
                "data": {"time": (T0 + timedelta(seconds=i * 0.7)).isoformat(), "value": 1, "tags": {"status": "200"}},
            },
            {
                "metric": "http_req_duration",
                "type": "Point",
                "data": {
                    "time": (T0 + timedelta(seconds=i * 0.7)).isoformat(),
                    "value": 31.2,
                    "tags": {"status": "200"},
                },
            },
        )
    ),
    300,
)
case(
    "E6 locust",
    table(
        [
            "Timestamp",
            "User Count",
            "Type",
            "Name",
            "Requests/s",
            "Failures/s",
            "50%",
            "99%",
            "Total Request Count",
            "Total Failure Count",
            "Total Average Response Time",
        ],
        [
            (
                int(at(i, 1).timestamp()),
                10,
                t,
                n,
                100.5 if n == "Aggregated" else 50.25,
                0,
                12,
                40,
                int(100.5 * i) if n == "Aggregated" else int(50.25 * i),
                0,
                13.1,
            )
            for i in range(N)
            for t, n in (("GET", "/a"), ("GET", "/b"), ("", "Aggregated"))
        ],
    ),
    int(100.5 * (N - 1)),  # the total of the first row came before it
)
# F
case(
    "F1 average at the end",
    table(["Time", "requests"], [*((iso(i), c) for i, c in enumerate(C)), ("Average", S / N)]),
    S,
)
case(
    "F2 subtotal each hour",
    table(
        ["Time", "requests"],
        [
            r
            for i, c in enumerate(C)
            for r in ([(iso(i), c)] + ([("Subtotal", sum(C[i - 29 : i + 1]))] if i % 30 == 29 else []))
        ],
    ),
    S,
)


def ngx(i: int, extra: str = "") -> str:
    web = second(i, "%d/%b/%Y:%H:%M:%S +0000")
    return f'10.0.0.{i % 9} - - [{web}] "POST /predict HTTP/1.1" 200 12 "-" "curl/8.0"{extra}\n'


log = [ngx(i) for i in range(400)]
case(
    "F3 NULs and half a line",
    "".join(log[:200]).encode() + b"\0" * 5000 + log[200][40:].encode() + "".join(log[201:]).encode(),
    399,
)
case(
    "F4 footer of a query tool",
    table(["Time", "requests"], [(iso(i), c) for i, c in enumerate(C)]) + "\n60 rows in set (0.01 sec)\n",
    S,
)
case("F5 3 percent of the lines", "".join(log[i] if i % 33 else "garbage here\n" for i in range(400)), None)
case(
    "F6 max row below",
    table(
        ["Time", "requests"], [*((iso(i), c) for i, c in enumerate(C)), ("Max", max(C)), ("Min", min(C)), ("Total", S)]
    ),
    S,
)
case("F7 total with a date", table(["Time", "requests"], [*((iso(i), c) for i, c in enumerate(C)), (iso(N), S)]), None)
case(
    "F8 truncated gz", gzip.compress("".join(ngx(i, extra=f" {i * 7919}") for i in range(4000)).encode())[:-3000], 3619
)
# G
case("G1 millis with comma", table(["Time", "requests"], [('"' + iso(i) + ',000"', c) for i, c in enumerate(C)]), S)
case(
    "G2 date(1)",
    table(["Time", "requests"], [(iso(i, form="%a %b %e %H:%M:%S UTC %Y"), c) for i, c in enumerate(C)]),
    S,
)
case(
    "G3 Oracle",
    table(["Time", "requests"], [(iso(i, form="%d-%b-%y %I.%M.%S.000000 %p").upper(), c) for i, c in enumerate(C)]),
    S,
)
case("G4 ISO week", table(["Time", "requests"], [(iso(i, form="%G-W%V-%uT%H:%M:%S"), c) for i, c in enumerate(C)]), S)
case(
    "G5 two-digit year US",
    table(["Time", "requests"], [(iso(i, form="%-m/%-d/%y %H:%M"), c) for i, c in enumerate(C)]),
    S,
)
case("G6 offset GMT+2", table(["Time", "requests"], [(iso(i) + " GMT+0200", c) for i, c in enumerate(C)]), S)
case(
    "G7 excel serial",
    table(["Time", "requests"], [(f"{46143 + 10 / 24 + i / 1440:.8f}", c) for i, c in enumerate(C)]),
    S,
)
case(
    "G8 JavaScript Date",
    table(
        ["Time", "requests"],
        [(iso(i, form="%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)"), c) for i, c in enumerate(C)],
    ),
    S,
)
case(
    "G9 epoch as float text",
    table(["Time", "requests"], [(f"{at(i).timestamp():.6E}", c) for i, c in enumerate(C)]),
    None,
)
# H
case(
    "H1 uvicorn no times",
    "".join(f'INFO:     127.0.0.1:{50000 + i} - "POST /predict HTTP/1.1" 200 OK\n' for i in range(200)),
    None,
)
case(
    "H2 UTF-16BE tabs",
    b"\xfe\xff" + table(["Time", "requests"], [(iso(i), c) for i, c in enumerate(C)], "\t").encode("utf-16-be"),
    S,
)
case(
    "H3 IIS fields change",
    "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time cs-method sc-status\n"
    + "".join(f"{second(i)} POST 200\n" for i in range(200))
    + "#Fields: date time s-ip cs-method sc-status\n"
    + "".join(f"{second(i)} 10.0.0.1 POST 200\n" for i in range(200, 400)),
    400,
)
case(
    "H4 LTSV",
    "".join(
        f"time:{second(i, '%d/%b/%Y:%H:%M:%S +0000')}\thost:10.0.0.1\treq:POST /predict HTTP/1.1\tstatus:200\n"
        for i in range(400)
    ),
    400,
)
case(
    "H5 Traefik common",
    "".join(ngx(i).rstrip("\n") + f' {i} "web@docker" "http://10.0.0.2:80" 3ms\n' for i in range(400)),
    400,
)
case(
    "H6 logfmt",
    "".join(
        f"time={(T0 + timedelta(seconds=i)):%Y-%m-%dT%H:%M:%SZ} level=info method=POST path=/predict status=200\n"
        for i in range(400)
    ),
    400,
)
case(
    "H7 gunicorn error log",
    "".join(f"[{second(i)} +0000] [12] [INFO] Handling signal: term\n" for i in range(200)),
    None,
)
case(
    "H8 HAProxy ISO",
    "".join(
        f"{second(i)}+00:00 lb haproxy[12]: 10.0.0.1:40000 [{second(i, '%d/%b/%Y:%H:%M:%S')}.000] fe be/s1 0/0/1/30/31 "
        '200 120 - - ---- 1/1/0/0/0 0/0 "POST /predict HTTP/1.1"\n'
        for i in range(400)
    ),
    400,
)
# I
t2 = [(iso(i), c) for i, c in enumerate(C)]
case(
    "I1 two nodes as tables",
    {"n1.csv": table(["Time", "requests"], t2), "n2.csv": table(["Time", "requests"], t2)},
    None,
)
case(
    "I2 logs and others",
    {
        "access.log": "".join(log[200:]),
        "access.log.1.gz": gzip.compress("".join(log[:200]).encode()),
        "error.log": "2026/05/01 10:00:00 [error] 7#7: *1 upstream timed out\n" * 20,
        ".access.log.swp": b"b0VIM 8.2" + b"\0" * 200,
        "README.md": "# logs\n",
    },
    400,
)
case(
    "I3 one row of overlap",
    {"a.csv": table(["Time", "requests"], t2[:31]), "b.csv": table(["Time", "requests"], t2[30:])},
    S,
)
case(
    "I4 two days of prometheus",
    {
        "a.json": json.dumps(
            {
                "status": "success",
                "data": {
                    "resultType": "matrix",
                    "result": [
                        {
                            "metric": {"__name__": "http_requests_total"},
                            "values": [[at(i).timestamp(), str(v)] for i, v in list(enumerate(counter()))[:30]],
                        }
                    ],
                },
            }
        ),
        "b.json": json.dumps(
            {
                "status": "success",
                "data": {
                    "resultType": "matrix",
                    "result": [
                        {
                            "metric": {"__name__": "http_requests_total"},
                            "values": [[at(i).timestamp(), str(v)] for i, v in list(enumerate(counter()))[30:]],
                        }
                    ],
                },
            }
        ),
    },
    S - C[0],
)
case("I5 log and its copy", {"access.log": "".join(log), "access.log.bak": "".join(log)}, 400)
case("I6 ALB partly twice", {"a.log": "".join(log[:250]), "b.log": "".join(log[150:])}, None)
# J
case(
    "J1 classes",
    table(["Time", "2xx", "3xx", "4xx", "5xx"], [(iso(i), c, 1, 2, 3) for i, c in enumerate(C)]),
    S + 6 * N,
)
case("J2 codes", table(["Time", "200", "404", "500"], [(iso(i), c, 1, 2) for i, c in enumerate(C)]), S + 3 * N)
case(
    "J3 requests per 5m",
    table(["Time", "p50", "p95", "requests per 5m"], [(iso(i, 300), 31, 40, c) for i, c in enumerate(C)]),
    S,
)
case("J4 years", table(["Time", "requests 2025", "requests 2026"], [(iso(i), c, 2 * c) for i, c in enumerate(C)]), None)
case("J5 only digits header", table(["0", "1"], [(iso(i), c) for i, c in enumerate(C)]), S)
case("J6 no header", table([iso(0), C[0]], [(iso(i), c) for i, c in list(enumerate(C))[1:]]), S)
# K
case(
    "K1 five minutes then one",
    table(
        ["Time", "requests"],
        [*((iso(i, 300), 5 * c) for i, c in enumerate(C[:30])), *((iso(150 + i), c) for i, c in enumerate(C[30:]))],
    ),
    5 * sum(C[:30]) + sum(C[30:]),
)
case("K2 overlap of exports", table(["Time", "requests"], t2[:40] + t2[35:]), S)
case(
    "K3 spring",
    table(
        ["Time", "requests"],
        [
            ((datetime(2026, 3, 28, 12) + timedelta(hours=i + (i >= 14))).strftime("%Y-%m-%d %H:%M"), c)
            for i, c in enumerate(C)
        ],
    ),
    S,
)
case(
    "K4 rate with step change",
    table(
        ["Time", "req/s"],
        [*((iso(i, 300), c) for i, c in enumerate(C[:30])), *((iso(150 + i), c) for i, c in enumerate(C[30:]))],
    ),
    300 * sum(C[:30]) + 60 * sum(C[30:]),
)
case(
    "K5 autumn descending quarter hours",
    table(
        ["Time", "requests"],
        [
            ((datetime(2026, 10, 25, 0) + timedelta(minutes=15 * i - 60 * (i >= 12))).strftime("%Y-%m-%d %H:%M"), c)
            for i, c in enumerate(C)
        ][::-1],
    ),
    S,
)
case(
    "K6 weekly and daily",
    table(
        ["day", "requests"],
        [((datetime(2026, 1, 1) + timedelta(days=i)).strftime("%Y-%m-%d"), c) for i, c in enumerate(C)],
    ),
    S,
)


# L
def cw(label: str, status: str, name: str = "m1") -> dict[str, object]:
    return {
        "Id": name,
        "Label": label,
        "StatusCode": status,
        "Timestamps": [at(i).isoformat() for i in range(N)],
        "Values": [float(c) for c in C],
    }


case(
    "L1 partial in the second",
    json.dumps({"MetricDataResults": [cw("RequestCount", "Complete"), cw("RequestCount", "PartialData", "m2")]}),
    None,
)
case(
    "L2 prometheus truncated",
    json.dumps(
        {
            "status": "success",
            "warnings": ["results truncated due to limit"],
            "data": {
                "resultType": "matrix",
                "result": [
                    {
                        "metric": {"__name__": "http_requests_total"},
                        "values": [[at(i).timestamp(), str(v)] for i, v in enumerate(counter())],
                    }
                ],
            },
        }
    ),
    None,
)
case(
    "L3 Elasticsearch hits",
    json.dumps(
        {
            "took": 3,
            "timed_out": False,
            "hits": {
                "total": {"value": 10000, "relation": "gte"},
                "hits": [
                    {
                        "_index": "x",
                        "_source": {
                            "@timestamp": (T0 + timedelta(seconds=i)).isoformat(),
                            "http": {"request": {"method": "GET"}},
                            "url": {"path": "/"},
                        },
                    }
                    for i in range(100)
                ],
            },
        }
    ),
    None,
)
case(
    "L4 Datadog logs page",
    json.dumps(
        {
            "data": [
                {
                    "id": str(i),
                    "attributes": {
                        "timestamp": (T0 + timedelta(seconds=i)).isoformat(),
                        "status": "info",
                        "attributes": {"http": {"method": "GET"}},
                    },
                }
                for i in range(100)
            ],
            "links": {"next": "https://api.example/next"},
            "meta": {"page": {"after": "xyz"}},
        }
    ),
    None,
)
case(
    "L5 CloudWatch Logs Insights",
    json.dumps(
        {
            "results": [
                [{"field": "bin(1m)", "value": iso(i) + ".000"}, {"field": "count()", "value": str(c)}]
                for i, c in enumerate(C)
            ],
            "status": "Running",
            "statistics": {"recordsMatched": 1.0},
        }
    ),
    None,
)
case(
    "L6 Insights complete",
    json.dumps(
        {
            "results": [
                [{"field": "bin(1m)", "value": iso(i) + ".000"}, {"field": "count()", "value": str(c)}]
                for i, c in enumerate(C)
            ],
            "status": "Complete",
        }
    ),
    S,
)
case(
    "L7 filter-log-events page",
    json.dumps(
        {
            "events": [
                {
                    "logStreamName": "a",
                    "timestamp": int((T0 + timedelta(seconds=i)).timestamp() * 1000),
                    "message": ngx(i).strip(),
                    "ingestionTime": 1,
                    "eventId": str(i),
                }
                for i in range(100)
            ],
            "searchedLogStreams": [],
            "nextToken": "abc",
        }
    ),
    None,
)
case(
    "L8 timed out shards",
    json.dumps(
        {
            "took": 3,
            "timed_out": True,
            "_shards": {"total": 5, "failed": 2},
            "aggregations": {
                "per": {
                    "buckets": [
                        {"key_as_string": at(i).isoformat(), "key": int(at(i).timestamp() * 1000), "doc_count": c}
                        for i, c in enumerate(C)
                    ]
                }
            },
        }
    ),
    None,
)
case(
    "L9 Elasticsearch histogram",
    json.dumps(
        {
            "took": 3,
            "timed_out": False,
            "aggregations": {
                "per": {
                    "buckets": [
                        {"key_as_string": at(i).isoformat(), "key": int(at(i).timestamp() * 1000), "doc_count": c}
                        for i, c in enumerate(C)
                    ]
                }
            },
        }
    ),
    S,
)
case(
    "B10 delta of five minutes",
    table(['"Time"', '"sum(delta(http_requests_total[5m]))"'], [(iso(i), 5 * c) for i, c in enumerate(C)]),
    None,
)
case(
    "B11 changes",
    table(['"Time"', '"changes(process_start_time_seconds[1h])"'], [(iso(i), i % 3) for i in range(N)]),
    None,
)
ITEMS = [{"time": stamp, "requests": c} for stamp, c in t2]
case("L10 more rows than these", json.dumps({"total": 500, "items": ITEMS}), None)
case("L11 more results than these", json.dumps({"count": 60, "total_count": 5000, "results": ITEMS}), None)
case("L12 the sum of the rows", json.dumps({"total": S, "items": ITEMS}), S)
case("L13 no further page", json.dumps({"has_more": False, "total": N, "data": ITEMS}), S)
case(
    "A9 Arabic digits",
    table(["Time", "requests"], [(iso(i), "".join(chr(0x660 + int(d)) for d in str(c))) for i, c in enumerate(C)]),
    S,
)
case(
    "G10 a half of the day without a blank",
    table(["Time", "requests"], [(iso(i, form="%Y-%m-%d %I:%M:%S%p"), c) for i, c in enumerate(C)]),
    S,
)
case(
    "C7 counter with a gap",
    table(["time", "requests_total"], [(iso(i), v) for i, v in enumerate(counter()) if not 20 <= i < 25]),
    S - C[0] - sum(C[20:26]),
)
case(
    "I7 table and its copy", {"a.csv": table(["Time", "requests"], t2), "a.csv.bak": table(["Time", "requests"], t2)}, S
)
PARTLY = [
    "deferred requests",
    "requests skipped",
    "estimated requests",
    "requests shed",
    "abandoned requests",
    "test_requests",
]
PARTLY += ["requests mtd", "requests wow", "requests today", "requests x1k", "requests per second and pod"]
PARTLY += ["HTTP_Redirect_Count", "HTTP_Fixed_Response_Count", "non-2xx requests", "requests over SLO", "requests/1k"]
PARTLY += ["requests since midnight", "requests prev"]
PARTLY += ["Requêtes en erreur", "Mittlere Anfragen", "peticiones simultáneas", "http_requests_created"]
PARTLY += ["sum:nginx.requests{*}.as_count().rollup(avg, 60)", "sum:nginx.requests{*}.as_count().rollup(max)"]
for number, name in enumerate(PARTLY, 20):
    case(f"B{number} {name}", table(["Time", f'"{name}"'], [(iso(i), c) for i, c in enumerate(C)]), None)
case("B19 rate with p.", table(["Time", "Anfragen p. Sekunde"], [(iso(i), c) for i, c in enumerate(C)]), 60 * S)
for number, name in enumerate(["requests '000", "requests [10^3]", "requests (10³)"], 40):
    case(f"B{number} {name}", table(["Time", name], [(iso(i), c) for i, c in enumerate(C)]), 1000 * S)
ALL = ["requests processed", "answered requests", "Anfragen gesamt", "nombre de requêtes", "solicitudes recibidas"]
ALL += ["requêtes reçues", "eingehende Anfragen"]
for number, name in enumerate(ALL, 93):
    case(f"B{number} {name}", table(["Time", name], [(iso(i), c) for i, c in enumerate(C)]), S)
case(
    "B50 answered and shed",
    table(["Time", "requests served", "requests shed"], [(iso(i), c, 9) for i, c in enumerate(C)]),
    None,
)
case("B51 all and deferred", table(["Time", "requests", "deferred"], [(iso(i), c, 9) for i, c in enumerate(C)]), S)
beside = {
    "status": "error",
    "code": 500,
    "result": "failed",
    "duration_s": 300,
    "aggregation": "5 minutes",
    "scale": 1000,
}
beside |= {"multiplier": 10, "partial": "true", "complete": "no", "is_forecast": 1, "func": "mean", "rollup": "avg"}
for number, (name, value) in enumerate(beside.items(), 55):
    case(f"B{number} {name}", table(["Time", "requests", name], [(iso(i), c, value) for i, c in enumerate(C)]), None)
fine = {"env": "prod", "duration_s": 60, "seconds": 0, "scale": 1, "partial": "false", "complete": "yes"}
for number, (name, value) in enumerate(fine.items(), 70):
    case(f"B{number} {name}", table(["Time", "requests", name], [(iso(i), c, value) for i, c in enumerate(C)]), S)
for number, (result, truth) in enumerate({"mean": None, "max": None, "sum": S, "_result": S}.items(), 80):
    annotated = (
        "#datatype,string,long,dateTime:RFC3339,double\n#group,false,false,false,false\n#default," + f"{result},,,\n"
    )
    rows = [("", "", 0, iso(i, form="%Y-%m-%dT%H:%M:%SZ"), c) for i, c in enumerate(C)]
    case(f"B{number} InfluxDB {result}", annotated + table(["", "result", "table", "_time", "_value"], rows), truth)
values = [[1000 * int(at(i).timestamp()) for i in range(N)], C]
for number, (title, truth) in enumerate({"p99 latency": None, "requests": S}.items(), 90):
    fields = [{"name": "Time", "type": "time"}, {"name": "Value", "config": {"displayName": title}}]
    data = [{"schema": {"fields": fields}, "data": {"values": values}}]
    case(f"B{number} Grafana shows {title}", json.dumps(data), truth)
left = counter()
case(
    "C8 number that counts down",
    table(["time", "requests"], [(iso(i), left[-1] - v) for i, v in enumerate(left)]),
    None,
)

# Found by files of further tools.
parts = {"status": 200, "response.keyword": 200, "method": "GET", "cache_status": "HIT", "class": "2xx", "result": "ok"}
for number, (name, value) in enumerate(parts.items(), 110):
    rows_of_part = [(iso(i), value, c) for i, c in enumerate(C)]
    case(f"B{number} the same {name} in all rows", table(["@timestamp per minute", name, "Count"], rows_of_part), None)
own = {"region": "eu-west-1", "path": "/api/get", "service": "web", "name": "x", "limit": 500, "host": "10.0.0.1"}
for number, (name, value) in enumerate(own.items(), 120):
    rows_of_all = [(iso(i), value, c) for i, c in enumerate(C)]
    case(f"B{number} the same {name} in all rows", table(["time", name, "requests"], rows_of_all), S)
case(
    "B100 title with the unit of a load",
    "Load (req/s);\n" + table(["Zeit", "Wert"], [(iso(i), c) for i, c in enumerate(C)], ";"),
    None,
)
case(
    "B101 load with its unit",
    table(["time", "Load (req/s)"], [(iso(i), c / 60) for i, c in enumerate(C)]),
    S,
)
case(
    "C9 cumulative requests",
    table(["t", "cumulative_requests"], [(iso(i), v) for i, v in enumerate(counter())]),
    S - C[0],
)
views = [(iso(i, 3600, "%Y%m%d"), at(i, 3600).hour, c) for i, c in enumerate(C)]
case("D7 total below date and hour", table(["Date", "Hour", "Views"], [*views, ("", "", S)]), S)
for number, (mark, end) in enumerate({" - ": "%H:59", "-": "%H:59", " to ": "%H:59"}.items(), 8):
    spans = [(iso(i, 3600, f"%Y-%m-%d %H:00{mark}{end}"), c) for i, c in enumerate(C)]
    case(f"D{number} span of an hour behind{mark.rstrip()} a date", table(["Interval", "Requests"], spans), S)
half = (range(30), range(30, N))
case(
    "I8 split without a second header",
    {
        name: table(["time", "requests"] if name == "xaa.csv" else [], [(iso(i), C[i]) for i in rows]).lstrip()
        for name, rows in zip(("xaa.csv", "xab.csv"), half, strict=True)
    },
    S,
)


def page(rows: range, status: str) -> dict[str, object]:
    times = [iso(i, form="%Y-%m-%dT%H:%M:%SZ") for i in rows]
    values = [C[i] for i in rows]
    return {"Id": "m1", "Label": "Invocations", "Timestamps": times, "Values": values, "StatusCode": status}


for number, (last, truth) in enumerate({"Complete": S, "PartialData": None}.items(), 20):
    pages = [page(half[0], "PartialData"), page(half[1], last)]
    case(f"L{number} pages of which the last is {last}", json.dumps({"MetricDataResults": pages}), truth)
both = [{"MetricDataResults": [page(half[i], "Complete")], "NextToken": token} for i, token in enumerate(("abc", None))]
case("L23 pages one behind the other", "\n".join(json.dumps(one, indent=4) for one in both), S)
case("L24 pages on a line each", "\n".join(map(json.dumps, both)), S)
case("L25 pages in a list", json.dumps(both), S)
numbered = [{"time": iso(i), "requests": c, "next": i + 1} for i, c in enumerate(C)]
case("L27 rows that name the next one, in a list", json.dumps(numbered), S)
case("L28 rows that name the next one, on a line each", "\n".join(map(json.dumps, numbered)), S)
case("L26 pages without the last one", json.dumps([both[0], both[0]]), None)
long = [[int(at(i).timestamp()), str(900_000 + 1000 * i)] for i in range(50_000)]
case(
    "L22 an answer of over a MiB on one line",
    json.dumps(
        {
            "status": "success",
            "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "requests_total"}, "values": long}]},
        }
    ),
    1000 * (len(long) - 1),
)
graphite: dict[str, tuple[Sequence[float], int | None]] = {
    "stats_counts.http.requests": (C, S),
    "perSecond(http.requests.count)": ([c / 60 for c in C], S),
    "stats.http.requests": (C, None),
    "servers.web1.cpu.user": (C, None),
}
for number, (name, (numbers, truth)) in enumerate(graphite.items(), 20):
    points = [[n, int(at(i).timestamp())] for i, n in enumerate(numbers)]
    case(f"E{number} Graphite's {name}", json.dumps([{"target": name, "datapoints": points}]), truth)
samples = {"values": counter(), "timestamps": [1000 * int(at(i).timestamp()) for i in range(N)]}
for number, (pods, truth) in enumerate({("a",): S - C[0], ("a", "b"): None}.items(), 24):
    exported = [{"metric": {"__name__": "http_requests_total", "pod": pod}, **samples} for pod in pods]
    case(f"E{number} VictoriaMetrics of {len(pods)} pods", "\n".join(map(json.dumps, exported)) + "\n", truth)
for number, name in enumerate(("t_ms", "elapsedMillis", "t"), 11):
    rows = [(1_000_000_000 + 60_000 * i, c) for i, c in enumerate(C)]
    case(f"G{number} milliseconds from a start in {name}", table([name, "requests"], rows), None)

# M: points in nested JSON, found by their shape.
Z = "%Y-%m-%dT%H:%M:%SZ"


def azure(name: str, points: Sequence[dict[str, object]], unit: str = "Count") -> dict[str, object]:
    """Return one metric of Azure Monitor."""
    found = {
        "id": f"/subscriptions/0/providers/Microsoft.Insights/metrics/{name}",
        "type": "Microsoft.Insights/metrics",
    }
    named = {"name": {"value": name, "localizedValue": name}, "displayDescription": "Requests", "unit": unit}
    return {**found, **named, "timeseries": [{"metadatavalues": [], "data": list(points)}], "errorCode": "Success"}


def azures(*metrics: dict[str, object]) -> str:
    around = {"cost": 59, "timespan": f"{iso(0, form=Z)}/{iso(N, form=Z)}", "interval": "PT1M", "resourceregion": "eu"}
    return json.dumps({**around, "value": metrics, "namespace": "Microsoft.Web/sites"})


def stamped(key: str, numbers: Sequence[float], field: str = "timeStamp") -> list[dict[str, object]]:
    return [{field: iso(i, form=Z), key: n} for i, n in enumerate(numbers)]


averages = [{"timeStamp": iso(i, form=Z), "total": c, "average": c / 2} for i, c in enumerate(C)]
case("M1 Azure's total", azures(azure("Requests", stamped("total", C))), S)
case("M2 Azure's total and average", azures(azure("Requests", averages)), S)
case("M3 Azure's average", azures(azure("Requests", stamped("average", C))), None)
case("M4 Azure's number of samples", azures(azure("Requests", stamped("count", C))), None)
case(
    "M5 Azure's requests beside its CPU",
    azures(azure("Requests", stamped("total", C)), azure("CpuTime", stamped("total", [3.5] * N), "Seconds")),
    S,
)
case("M6 Azure's requests of two kinds", azures(*(azure(f"Http{k}xx", stamped("total", C)) for k in "24")), None)
case("M7 Azure's rate", azures(azure("Requests", stamped("average", C), "CountPerSecond")), None)
split = azure("Requests", stamped("total", C))
split["timeseries"] = [
    {"metadatavalues": [{"name": {"value": "Instance"}, "value": pod}], "data": stamped("total", C)} for pod in "ab"
]
case("M8 Azure split by instance", azures(split), None)
segments = [{"start": iso(i, form=Z), "end": iso(i + 1, form=Z), "requests/count": {"sum": c}} for i, c in enumerate(C)]
insights = {"start": iso(0, form=Z), "end": iso(N, form=Z), "interval": "PT1M", "segments": segments}
case("M9 Application Insights", json.dumps({"value": insights}), S)


def google(kind: str, cells: Sequence[tuple[Any, ...]], **said: object) -> dict[str, object]:
    """Return a series of Google's, the newest point first."""
    points = [{"interval": {"startTime": start, "endTime": end}, "value": value} for start, end, value in cells]
    metric = {"type": "run.googleapis.com/request_count", "labels": said.pop("labels", {})}
    resource = {"type": "cloud_run_revision", "labels": {"service_name": "checkout", "location": "europe-west1"}}
    return {"metric": metric, "resource": resource, "metricKind": kind, **said, "points": points[::-1]}


spans = [(iso(i, form=Z), iso(i + 1, form=Z)) for i in range(N)]
deltas = [(*span, {"int64Value": str(c)}) for span, c in zip(spans, C, strict=True)]
rates = [(end, end, {"doubleValue": c / 60}) for (_, end), c in zip(spans, C, strict=True)]
sums = [(iso(0, form=Z), end, {"int64Value": str(n)}) for (_, end), n in zip(spans, counter(0), strict=True)]
googles: dict[str, tuple[list[dict[str, object]], float | None]] = {
    "M10 Google's deltas": ([google("DELTA", deltas, valueType="INT64", unit="1")], S),
    "M11 Google's rates": ([google("GAUGE", rates, valueType="DOUBLE", unit="1/s")], S),
    "M12 Google's means or rates": ([google("GAUGE", rates, valueType="DOUBLE")], None),
    "M13 Google's cumulative counter": ([google("CUMULATIVE", sums, valueType="INT64")], S - C[0]),
    "M14 Google's errors": ([google("DELTA", deltas, labels={"response_code_class": "5xx"})], None),
    "M15 Google's codes": ([google("DELTA", deltas, labels={"response_code_class": c}) for c in ("2xx", "5xx")], None),
}
for title, (of_google, wanted) in googles.items():
    case(title, json.dumps({"timeSeries": of_google}), wanted)
case(
    "M16 Google's next page", json.dumps({"timeSeries": googles["M10 Google's deltas"][0], "nextPageToken": "x"}), None
)

epochs = [int(at(i).timestamp()) for i in range(N + 1)]
relics = [{"beginTimeSeconds": epochs[i], "endTimeSeconds": epochs[i + 1]} for i in range(N)]
nrql = [{**one, "count": c} for one, c in zip(relics, C, strict=True)]
legacy = [{**one, "inspectedCount": 2 * c, "results": [{"count": c}]} for one, c in zip(relics, C, strict=True)]
total = {"beginTimeSeconds": epochs[0], "endTimeSeconds": epochs[-1], "results": [{"count": S}]}
account = {"name": "Acme", "nrql": {"results": nrql}}
case("M17 New Relic by GraphQL", json.dumps({"data": {"actor": {"account": account}}}), S)
case("M18 New Relic's Insights", json.dumps({"timeSeries": legacy, "total": total, "metadata": {"guid": "0"}}), S)
facets = {"facets": [{"name": n, "timeSeries": legacy} for n in ("GET", "POST")], "totalResult": {"timeSeries": legacy}}
case("M19 New Relic's facets and their total", json.dumps(facets), None)
averaged = [{**one, "average.duration": c / 1e4} for one, c in zip(relics, C, strict=True)]
case("M20 New Relic's average", json.dumps({"data": {"actor": {"account": {"nrql": {"results": averaged}}}}}), None)

groups = [
    {
        "dimensions": {"datetime": iso(i, form=Z)},
        "sum": {"requests": c, "cachedRequests": c // 2, "bytes": 900 * c},
        "uniq": {"uniques": 7},
        "avg": {"bytes": 900.0},
    }
    for i, c in enumerate(C)
]
zones = {"data": {"viewer": {"zones": [{"httpRequests1mGroups": groups[::-1]}]}}, "errors": None}
case("M21 Cloudflare", json.dumps(zones), S)
case(
    "M22 Cloudflare of two zones",
    json.dumps({"data": {"viewer": {"zones": zones["data"]["viewer"]["zones"] * 2}}}),
    None,
)
adaptive = [{"count": c, "dimensions": {"datetimeMinute": iso(i, form=Z)}} for i, c in enumerate(C)]
case("M23 Cloudflare's adaptive groups", json.dumps({"data": {"viewer": {"zones": [{"a": adaptive}]}}}), S)

intermediate = [
    {
        "counters": {"vusers.created": 2 * c, "http.requests": c, "http.responses": c, "http.codes.200": c},
        "rates": {"http.request_rate": c // 10},
        "firstCounterAt": 1000 * epochs[0] + 10_000 * i + 37 * i % 91,
        "lastCounterAt": 1000 * epochs[0] + 10_000 * i + 9800 + 11 * i % 91,
        "summaries": {"http.response_time": {"min": 1, "max": 90, "p95": 77.5}},
        "period": str(1000 * epochs[0] + 10_000 * i),
    }
    for i, c in enumerate(C)
]
aggregate = {**intermediate[0], "counters": {"http.requests": S}}
case("M24 Artillery", json.dumps({"aggregate": aggregate, "intermediate": intermediate}), S)

tsdb = {
    "metric": "http.requests",
    "tags": {"host": "a"},
    "aggregateTags": [],
    "dps": dict(zip(epochs, C, strict=False)),
}
case("M25 OpenTSDB", json.dumps([tsdb]), S)
case("M26 OpenTSDB of two hosts", json.dumps([tsdb, tsdb | {"tags": {"host": "b"}}]), None)
case("M27 OpenTSDB with arrays", json.dumps([tsdb | {"dps": list(zip(epochs, C, strict=False))}]), S)
case("M28 OpenTSDB, aggregated somehow", json.dumps([tsdb | {"aggregateTags": ["host"]}]), None)
counted = dict(zip(epochs, counter(), strict=False))
case("M29 OpenTSDB's counter", json.dumps([tsdb | {"dps": counted}]), S - C[0])


def otlp(
    kind: str, points: Sequence[dict[str, object]], unit: str = "{request}", **said: object
) -> dict[str, list[Any]]:
    """Return one export of OpenTelemetry with one metric."""
    metric = {"name": "http.server.requests", "unit": unit, kind: {"dataPoints": list(points), **said}}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "checkout"}}]}
    return {
        "resourceMetrics": [{"resource": resource, "scopeMetrics": [{"scope": {"name": "x"}, "metrics": [metric]}]}]
    }


def point(i: int, start: int, **value: object) -> dict[str, object]:
    attributes = [{"key": "server.port", "value": {"intValue": "443"}}]
    times = {"startTimeUnixNano": str(10**9 * start), "timeUnixNano": str(10**9 * epochs[i + 1])}
    return {"attributes": attributes, **times, **value}


delta = [point(i, epochs[i], asInt=str(c)) for i, c in enumerate(C)]
cumulative = [point(i, epochs[0], asInt=str(n)) for i, n in enumerate(counter(0))]
rising = [point(i, epochs[i], asInt=str(5 + 3 * i)) for i in range(8)]
restarted = [point(i, epochs[30 * (i >= 30)], asInt=str(n)) for i, n in enumerate(counter(0, reset=30))]
others = json.loads(json.dumps(otlp("gauge", delta, "1")).replace("http.server.requests", "process.cpu.time"))
others = others["resourceMetrics"]
otlps: dict[str, tuple[str, float | None]] = {
    "M30 OpenTelemetry's deltas": (json.dumps(otlp("sum", delta, aggregationTemporality=1, isMonotonic=True)), S),
    "M31 OpenTelemetry's counter": (
        json.dumps(otlp("sum", cumulative, aggregationTemporality="AGGREGATION_TEMPORALITY_CUMULATIVE")),
        S - C[0],
    ),
    "M32 OpenTelemetry's counter, a line a point": (
        "\n".join(json.dumps(otlp("sum", [one], aggregationTemporality=2, isMonotonic=True)) for one in cumulative),
        S - C[0],
    ),
    "M33 OpenTelemetry's deltas that rise": (
        json.dumps(otlp("sum", rising, aggregationTemporality=1, isMonotonic=True)),
        sum(5 + 3 * i for i in range(8)),
    ),
    "M34 OpenTelemetry's gauge": (json.dumps(otlp("gauge", delta)), None),
    "M35 OpenTelemetry's up and down": (
        json.dumps(otlp("sum", delta, aggregationTemporality=1, isMonotonic=False)),
        None,
    ),
    "M36 OpenTelemetry's bytes": (json.dumps(otlp("sum", delta, "By", aggregationTemporality=1)), None),
    "M44 OpenTelemetry's requests beside other metrics": (
        json.dumps({"resourceMetrics": [*otlp("sum", delta, aggregationTemporality=1)["resourceMetrics"], *others]}),
        S,
    ),
    "M45 OpenTelemetry's histogram": (
        json.dumps(otlp("histogram", [one | {"count": one["asInt"], "sum": 3.5} for one in delta], "s")).replace(
            "server.requests", "server.request.duration"
        ),
        S,
    ),
    "M46 OpenTelemetry of two hosts": (
        json.dumps({"resourceMetrics": otlp("sum", delta, aggregationTemporality=1)["resourceMetrics"] * 2}),
        None,
    ),
    "M73 OpenTelemetry's counter that restarts": (
        json.dumps(otlp("sum", restarted, aggregationTemporality=2, isMonotonic=True)),
        S - C[0],
    ),
    "M74 OpenTelemetry's deltas of a minute in five": (
        json.dumps(otlp("sum", delta[::5], aggregationTemporality=1, isMonotonic=True)),
        None,
    ),
    "M37 OpenTelemetry's errors": (
        json.dumps(
            otlp(
                "sum",
                [one | {"attributes": [{"key": "status_code", "value": {"intValue": "503"}}]} for one in delta],
                aggregationTemporality=1,
            )
        ),
        None,
    ),
}
for title, (text, wanted) in otlps.items():
    case(title, text, wanted)

loki = [
    [str(10**9 * epochs[0] + (700 * i + 7919 * i * i % 1009) * 10**6), f'10.0.0.{i % 9} - "GET /p HTTP/1.1" 200 {i}']
    for i in range(250)
]
streams: list[dict[str, Any]] = [{"stream": {"app": "web", "pod": "a"}, "values": loki[::-1]}]
case("M38 Loki's lines", json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams}}), 250)
fields = [[at_ns, json.dumps({"method": "GET", "status": 200, "path": f"/{i}"})] for i, (at_ns, _) in enumerate(loki)]
streams = [{"stream": {"pod": pod}, "values": fields[i::2]} for i, pod in enumerate("ab")]
case("M39 Loki's objects", json.dumps({"data": {"resultType": "streams", "result": streams}}), 250)
streams = [{"stream": {"app": "web"}, "values": loki[:100]}]
case("M40 Loki's limit", json.dumps({"data": {"resultType": "streams", "result": streams}}), None)
streams = [{"stream": {"app": "web"}, "values": [[at_ns, f"deployed {i}"] for i, (at_ns, _) in enumerate(loki)]}]
case("M41 Loki's lines of a program", json.dumps({"data": {"resultType": "streams", "result": streams}}), None)
app = [{"startTimeInMillis": 1000 * e, "value": c, "min": 0, "max": 9} for e, c in zip(epochs, C, strict=False)]
case(
    "M42 AppDynamics",
    json.dumps([{"metricName": "Overall|Calls per Minute", "frequency": "ONE_MIN", "metricValues": app}]),
    S,
)
of_service = {"dimensions": ["x"], "timestamps": [1000 * e for e in epochs[1:]], "values": C}
dynatrace = {"metricId": "builtin:service.requestCount.total", "data": [of_service]}
case("M43 Dynatrace", json.dumps({"totalCount": 1, "nextPageKey": None, "resolution": "1m", "result": [dynatrace]}), S)

buckets = [
    {"key": 1000 * e, "doc_count": c, "latency": {"value": 3.2}, "codes": {"buckets": [{"key": "200", "doc_count": c}]}}
    for e, c in zip(epochs, C, strict=False)
]
documents = {"total": {"value": 10_000}, "hits": [{"_source": {"@timestamp": iso(i), "status": 200}} for i in range(9)]}
case(
    "M47 Elasticsearch's buckets with others in them, beside documents",
    json.dumps({"hits": documents, "aggregations": {"2": {"buckets": buckets}}}),
    S,
)
terms = [{"key": k, "doc_count": S, "2": {"buckets": buckets}} for k in ("GET", "POST")]
case("M48 Elasticsearch's buckets of methods", json.dumps({"aggregations": {"m": {"buckets": terms}}}), None)
case("M49 a map by time", json.dumps({iso(i, form=Z): c for i, c in enumerate(C)}), S)
case("M50 times beside numbers", json.dumps({"time": [iso(i, form=Z) for i in range(N)], "requests": C}), S)
timed = [
    {"ts": e * 1.0 + i * i % 37, "method": "GET", "status": 200, "timing": {"min": 1, "max": 2}}
    for i, e in enumerate(epochs)
]
case("M51 requests with statistics in them", json.dumps(timed), N + 1)
noted = {"note": "in thousands", "data": [{"time": iso(i), "requests": c} for i, c in enumerate(C)]}
case("M52 a note around the rows", json.dumps(noted), None)
board = {"name": "My board", "data": [{"time": iso(i), "value": c} for i, c in enumerate(C)]}
case("M53 a title around the rows", json.dumps(board), S)
listed = [{"metric": "cpu_usage", "values": [[e, c] for e, c in zip(epochs, C, strict=False)]}]
case("M54 a metric of a machine", json.dumps({"result": listed}), None)
typed = [
    {
        "metric": {"__name__": "m_requests_total", "type": t},
        "values": [[e, n] for e, n in zip(epochs, counter(), strict=False)],
    }
    for t in ("GET", "POST")
]
for number, some in ((55, typed), (56, typed[:1])):
    answer = {"data": {"resultType": "matrix", "result": some}}
    case(f"M{number} Prometheus' label `type` of {len(some)}", json.dumps(answer), None)
named = [one | {"metric": {"type": "x", "name": "y"}} for one in typed]
answer = {"data": {"resultType": "matrix", "result": [named[0]]}}
case("M57 Prometheus' labels without a metric", json.dumps(answer), None)


def scrapes(line: str, head: str = "", *, ms: int = 1000) -> str:
    """Return scrapes of one counter and of a machine, one behind the other."""
    return "".join(
        f'{head}{line} {n} {ms * e}\nprocess_cpu_seconds{{job="x"}} {i / 7} {ms * e}\n'
        for i, (e, n) in enumerate(zip(epochs, counter(), strict=False))
    )


HELP = "# HELP http_requests_total All.\n# TYPE http_requests_total counter\n# TYPE process_cpu_seconds gauge\n"
case("N1 Prometheus' text", scrapes('http_requests_total{job="x"}', HELP), S - C[0])
case("N2 OpenMetrics in seconds", scrapes('http_requests_total{job="x"}', HELP, ms=1) + "# EOF\n", S - C[0])
case("N3 promtool's dump", scrapes('{__name__="http_requests_total", job="x"}'), S - C[0])
case("N4 text without times", HELP + 'http_requests_total{job="x"} 5\n', None)
two = "".join(
    f'http_requests_total{{code="{code}"}} {n} {1000 * e}\n'
    for e, n in zip(epochs, counter(), strict=False)
    for code in (200, 404)
)
case("N5 text with codes", HELP + two, None)
case("N6 a gauge under the name of requests", scrapes("http_requests", "# TYPE http_requests gauge\n"), None)
case(
    "N7 text with exemplars",
    scrapes('http_requests_total{a="}"}', HELP).replace("000\n", '000 # {t="1"} 1\n'),
    S - C[0],
)
grouped = [{"count": c, "dimensions": {"datetime": iso(i, form=Z), "edgeResponseStatus": 500}} for i, c in enumerate(C)]
case("M59 Cloudflare's errors", json.dumps({"data": {"viewer": {"zones": [{"a": grouped}]}}}), None)
for number, (query, truth) in enumerate(
    (
        ({"rate": True}, 60 * S),
        ({"downsample": "1m-avg"}, None),
        ({"aggregator": "avg"}, None),
        ({"aggregator": "sum"}, S),
    ),
    60,
):
    asked = tsdb | {"aggregateTags": ["host"] if "aggregator" in query else [], "query": query}
    case(f"M{number} OpenTSDB's query {query}", json.dumps([asked]), truth)
pairs = [[e, c] for e, c in zip(epochs, C, strict=False)]
case("M64 names beside pairs", json.dumps({"labels": ["time", "requests"], "data": pairs}), S)
case("M65 other names beside pairs", json.dumps({"labels": ["time", "cpu"], "data": pairs}), None)
case("M66 pairs under the name of a machine's number", json.dumps({"cpu": pairs}), None)
case(
    "M67 points under the name of a machine's number",
    json.dumps({"cpu": [{"t": e, "value": c} for e, c in pairs]}),
    None,
)
case("M68 a map under the name of requests", json.dumps({"counters": {"web.requests": tsdb["dps"]}}), S)
records = [{"timeUnixNano": at_ns, "body": {"stringValue": f"deployed {i}"}} for i, (at_ns, _) in enumerate(loki)]
case("M69 OpenTelemetry's log", json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}), None)
latest = [{**one, "latest.requestsPerMinute": c} for one, c in zip(relics, C, strict=True)]
case("M70 New Relic's latest", json.dumps({"results": latest}), None)
latencies = google(
    "DELTA", [(*span, {"distributionValue": {"count": str(c), "mean": 3.5}}) for span, c in zip(spans, C, strict=True)]
)
latencies["metric"] = {"type": "run.googleapis.com/request_latencies"}
case("M71 Google's distribution of latencies", json.dumps({"timeSeries": [latencies]}), S)
case(
    "M72 times alone",
    json.dumps({"data": {"events": [{"at": e + i * i % 37, "x": {"y": 1}} for i, e in enumerate(epochs)]}}),
    None,
)
lacking = [[None if i == 7 else c, epochs[i]] for i, c in enumerate(C)]
for number, (target, truth) in enumerate(
    (("latency.p99", None), ("requests.count", S - C[7]), ("rps", 60 * (S - C[7]))), 75
):
    case(f"M{number} Graphite's {target} with a null", json.dumps([{"target": target, "datapoints": lacking}]), truth)
idle = [one for i, one in enumerate(stamped("total", C)) if i != 7] + [{"timeStamp": iso(7, form=Z)}]
case("M78 Azure's errors with a minute without any", azures(azure("Http5xx", idle)), None)
for number, start in ((79, 1_500_000_000), (80, 20_200_101)):
    large = [[e, str(start + n)] for e, n in zip(epochs, counter(0), strict=False)]
    answer = {"data": {"resultType": "matrix", "result": [{"metric": {"__name__": "requests_total"}, "values": large}]}}
    case(f"M{number} Prometheus' counter that looks like times from {start}", json.dumps(answer), S - C[0])
case("M81 units beside the numbers of pairs", json.dumps({"errors": [[e, f"{c} req/s"] for e, c in pairs]}), None)
rising_pairs = [[10**9 + n, e] for e, n in zip(epochs, counter(0), strict=False)]
v = [{"t": e, "v": c} for e, c in pairs]
nested: list[tuple[str, object, float | None]] = [
    ("a rate above pairs", {"rps": {"data": pairs}}, 60 * S),
    ("a measure far above pairs", {"cpu": {"series": [{"points": pairs}]}}, None),
    ("errors above a total", {"errors": {"total": pairs}}, None),
    ("errors above a count", {"errors": [{"t": e, "count": c} for e, c in pairs]}, None),
    ("a measure above other fields", {"latency": v}, None),
    ("a rate above other fields", {"rps": v}, 60 * S),
    ("requests over time", {"requests_over_time": v}, S),
    ("a title of a measure", {"title": "Latency p99 (ms)", "data": pairs}, None),
    ("a query of a measure", {"query": "avg:system.cpu.user{*}", "values": pairs}, None),
    ("a title of errors beside requests", {"title": "Errors", "data": [{"t": e, "requests": c} for e, c in pairs]}, S),
    ("a measure under metric", {"metric": {"name": "latency"}, "values": pairs}, None),
    ("pairs whose time may be the second", {"requests_total": rising_pairs}, None),
]
for number, (title, held, wanted) in enumerate(nested, 82):
    case(f"M{number} {title}", json.dumps(held), wanted)
named_rows = [{"time": e, "requests": c} for e, c in pairs]
twice = [{"time": e, "sum": {"requests": c}, "value": {"requests": 3 * c}} for e, c in pairs]
doubled = [{**one, "results": [{"count": c}, {"count": 2 * c}]} for one, c in zip(relics, C, strict=True)]
bucket_sums = [one | {"1": {"value": 9 * one["doc_count"]}} for one in buckets]
bucket_means = [one | {"1": {"value": 0.3 * one["doc_count"]}} for one in buckets]
logged = [{"ts": e + i * i % 7 * 0.31, "method": "GET", "status": 200} for i, e in enumerate(epochs[:N])]
answers: list[tuple[str, object, float | None]] = [
    ("a page within", {"a": {"b": {"pageInfo": {"hasNextPage": True}, "nodes": named_rows}}}, None),
    ("a token within", {"results": [{"name": "requests", "nextToken": "x", "values": pairs}]}, None),
    ("a marker of a chart", {"series": [{"name": "requests", "marker": {"radius": 2}, "data": pairs}]}, S),
    ("a limit within", {"a": {"b": {"limit": N, "requests": pairs}}}, None),
    ("a total within", {"a": {"b": {"total": 10 * N, "requests": pairs}}}, None),
    ("GraphQL's errors", zones | {"errors": [{"message": "timed out"}]}, None),
    ("a unit beside the points", {"meta": {"unit": "percent"}, "values": pairs}, None),
    ("OpenTSDB's longer steps", [tsdb | {"query": {"downsample": "5m-sum"}}], None),
    ("requests twice in a row", {"data": twice}, None),
    ("counts twice in a row", {"timeSeries": doubled}, None),
    ("sums beside documents", {"aggregations": {"2": {"buckets": bucket_sums}}}, None),
    ("means beside documents", {"aggregations": {"2": {"buckets": bucket_means}}}, S),
    ("points within rows", {"data": [one | {"events": [{"at": iso(0), "n": 3}]} for one in named_rows]}, S),
    ("points within the bodies of a log", {"logs": [one | {"body": {"x": [[one["ts"], 3]]}} for one in timed]}, N + 1),
    ("objects of data within a log", {"logs": [one | {"data": {"x": 3}} for one in logged]}, N),
    ("results within rows", [one | {"results": [{"ok": True, "count": 3}]} for one in named_rows], S),
    (
        "series with starts of their own",
        {"all": [{"name": n, "start": e, "points": pairs} for n, e in (("cpu", epochs[0]), ("requests", epochs[1]))]},
        S,
    ),
    ("a null first", {"timestamps": epochs[:N], "requests": [None, *C[1:]], "cpu": [3.5] * N}, S - C[0]),
]
for number, (title, held, wanted) in enumerate(answers, 94):
    case(f"M{number} {title}", json.dumps(held), wanted)
# G: years of two digits, 24:00, weeks, and epoch seconds at steps of thousands.
draws = random.Random(5)
versions = [
    (iso(draws.uniform(0, 999), 1), f"1.{draws.randrange(1, 13)}.{draws.randrange(10, 29)}", 200, "/")
    for _ in range(200)
]
case("G25 versions beside the times", table(["Time", "version", "status", "path"], versions), 200)
for number, (form, hours) in enumerate(
    {
        "%d.%m.%y %H:%M": 6,
        "%m/%d/%y %H:%M": 6,
        "%y-%m-%d %H:%M": 6,
        "%d-%b-%y %H:%M": 1,
        "%d-%b-%y %I.%M.%S.000000 %p": 1,
    }.items(),
    14,
):
    rows = [(iso(i, 3600 * hours, form), c) for i, c in enumerate(C)]
    case(f"G{number} {form} every {hours} hours", table(["Time", "requests"], rows), S)
day = [(iso(i, form="%d/%m/%y %H:%M"), c) for i, c in enumerate(C)]
case("G19 a day with a year of two digits", table(["Time", "requests"], day), None)
ends = [(at(i, 3600).strftime("%Y-%m-%d "), at(i, 3600).hour or 24, c) for i, c in enumerate(C)]
ends = [
    (iso(i, 3600, "%Y-%m-%d ") if h < 24 else iso(i - 1, 3600, "%Y-%m-%d "), h, c) for i, (_, h, c) in enumerate(ends)
]
case("G20 24:00", table(["Time", "requests"], [(f"{d}{h:02}:00", c) for d, h, c in ends]), S)
case("G21 24:00 in its own column", table(["Day", "Hour", "requests"], [(d, f"{h:02}:00", c) for d, h, c in ends]), S)
weeks = [(iso(i, 7 * 86_400, "%G-W%V"), c) for i, c in enumerate(C)]
case("G22 weeks", table(["Week", "requests"], weeks), S)
clocks = [(iso(i, form="%H.%M.%S"), c) for i, c in enumerate(C)]
case("G26 clocks with points and no date", table(["Tageszeit", "Anfragen"], clocks, ";"), None)
first = [(iso(i, 86_400, "%y-%b-%d"), c) for i, c in enumerate(C[:8])]
case("G27 years of two digits before names of months", table(["day", "requests"], first), None)
case(
    "G28 minutes without a century",
    table(["Time", "requests"], [(iso(i, form="%y%m%d%H%M"), c) for i, c in enumerate(C)]),
    None,
)
evening = [(f"2026-05-01 {h}:00 PM", c) for h, c in zip(range(13, 25), C, strict=False)]
case("G29 24:00 in the evening", table(["Time", "requests"], evening), None)
thousands = [(1_777_629_600 + 2000 * i, c) for i, c in enumerate(C)]
case("G23 epoch seconds 2000 s apart", table(["timestamp", "requests"], thousands), S)
answer = {
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"__name__": "requests_total"},
                "values": [[1_777_629_600 + 2000 * i, n] for i, n in enumerate(counter())],
            }
        ],
    }
}
case("G24 Prometheus 2000 s apart", json.dumps(answer), S - C[0])
no_samples = json.dumps({"metric": {"__name__": "requests_total"}, "values": [], "timestamps": []})
case("M58 VictoriaMetrics without samples", no_samples + "\n" + no_samples, None)

# Several readings are possible, or the form is unknown.
REFUSED = frozenset(
    (
        *("C1 reset in the middle", "C6 counter of CloudWatch Maximum"),
        *("D6 time only no date", "E1 pods", "E4 statuses long"),
        *("F2 subtotal each hour", "G5 two-digit year US", "I3 one row of overlap"),
        *("J1 classes", "J2 codes", "J5 only digits header", "K2 overlap of exports", "K3 spring"),
    )
)
