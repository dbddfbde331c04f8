"""Traffic files as people's tools write them: read with the right number of requests, or refused with the way out."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.traffic.traces import open_trace
from mark.traffic.traces.bad_lines import DEFAULT, BadLines
from mark.traffic.traces.table_files import RECOGNISED, TableColumns
from mark.traffic.traces.times import TimeForm
from mark.traffic.traces.trace import Trace

FILES = Path(__file__).parent / "cases"
T0 = 1_777_629_600  # 2026-05-01 10:00 UTC
N = 40
COUNTS = [1000 + 37 * i % 101 for i in range(N)]  # no straight line: a counter and counts differ
SUM = sum(COUNTS)


def at(i: float, form: str = "%Y-%m-%d %H:%M:%S", start: int = T0) -> str:
    return datetime.fromtimestamp(start + 60 * i, UTC).strftime(form)


def table(header: str, row: Callable[[int], str], n: int = N) -> str:
    return "\n".join([header, *(row(i) for i in range(n))]) + "\n"


def values(header: str, cell: Callable[[int], str]) -> str:
    """Return counts of each minute as `cell` writes the i-th one."""
    return table(f"Time,{header}", lambda i: f"{at(i)},{cell(i)}")


def matrix(*series: tuple[dict[str, str], Sequence[float]]) -> str:
    result = [
        {"metric": labels, "values": [[T0 + 60 * i, str(value)] for i, value in enumerate(numbers)]}
        for labels, numbers in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def german(number: float) -> str:
    return f"{number:,.1f}".translate(str.maketrans(",.", ".,"))


RISING = [900_000 + sum(COUNTS[:i]) for i in range(N)]
RESET = [*RISING[:25], *(n - RISING[25] + 400 for n in RISING[25:])]


def wrapped(width: int) -> list[int]:
    """Return a counter that goes on at 0 after `width` - 1."""
    return [(width - 20_000 + sum(COUNTS[: i + 1])) % width for i in range(N)]


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("traffic.csv", data)
    return packed.getvalue()


SMALL = [1, 2, 2, 3, 5, 5, 8, 9, 9, 9, 11, 12, 12, 14, 14, 15, 16, 16, 18, 20]
ROWS_OF_SERIES = [("GET", 3), ("POST", 1)]
K6 = "metric_name,timestamp,metric_value,method\n" + "".join(
    f"http_reqs,{T0 + i // 3},1,GET\nhttp_req_duration,{T0 + i // 3},{31.5 + i},GET\nvus,{T0 + i // 3},5,\n"
    for i in range(99)
)
STATISTICS = {
    "Label": "RequestCount",
    "Datapoints": [
        {
            "Timestamp": at(i, "%Y-%m-%dT%H:%M:%S+00:00"),
            "Sum": float(n),
            "Average": 1.0,
            "SampleCount": n / 2,
            "Unit": "Count",
        }
        for i, n in enumerate(COUNTS)
    ],
}
LATENCIES = {
    "Label": "TargetResponseTime",
    "Datapoints": [
        {"Timestamp": at(i, "%Y-%m-%dT%H:%M:%SZ"), "Sum": 3.5, "SampleCount": float(n), "Unit": "Seconds"}
        for i, n in enumerate(COUNTS)
    ],
}
METRIC_DATA = {"Id": "m1", "Label": "RequestCount", "Timestamps": [at(i) + "Z" for i in range(N)], "Values": COUNTS}
BERLIN = ["00:00", "01:00", "02:00", "02:00", "03:00", "04:00"]


# The file's text, and the number of its requests or the text of the refusal.
def frame(vals: Sequence[float], *, unit: str = "", legend: str = "") -> dict[str, object]:
    """Return a data frame of Grafana, as its inspector shows the answer of a query."""
    config = {"unit": unit} if unit else {"displayNameFromDS": legend} if legend else {}
    fields = [{"name": "Time", "type": "time"}, {"name": "Value", "type": "number", "config": config}]
    return {"schema": {"fields": fields}, "data": {"values": [[1000 * (T0 + 60 * i) for i in range(N)], list(vals)]}}


LIFE = range(12, 28)  # rows of a pod that was launched and ended
ISO_ROWS = [[at(i, "%Y-%m-%dT%H:%M:%SZ"), n] for i, n in enumerate(COUNTS)]
AZURE = [{"timeStamp": at(5 * i, "%Y-%m-%dT%H:%M:%SZ"), "total": n} for i, n in enumerate(COUNTS)]
ROUNDED = [f"{(5e6 + sum(COUNTS[:i])) / 1e6:.2f} Mil" for i in range(N)]
LOCUST = "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,Total Request Count,Total Failure Count"
GERMAN, FRENCH = ("Mai", "Juni", "Juli", "August", "Sept.", "Okt."), ("juin", "juil.", "ao\u00fbt")
READ: dict[str, tuple[str | bytes, float]] = {
    "line protocol": (
        "# DML\n"
        + table("", lambda i: f"http,host=a requests={COUNTS[i]}i,errors=3i {10**9 * (T0 + 60 * i)}").lstrip(),
        SUM,
    ),
    "line protocol of one field": (
        table("", lambda i: rf'requests,host=a\,b value={COUNTS[i]}i,note="a, b=c" {T0 + 60 * i}').lstrip(),
        SUM,
    ),
    "Graphite's plain text": (table("", lambda i: f"stats.counts.requests {COUNTS[i]} {T0 + 60 * i}").lstrip(), SUM),
    "Graphite's counts without a header": (
        table("", lambda i: f"stats.counts.web.requests,{at(i)},{COUNTS[i]}").lstrip(),
        SUM,
    ),
    "Locust's history": (
        table(LOCUST, lambda i: f"{T0 + i},5,,Aggregated,{40 + i % 3},0.0,12,{sum(COUNTS[: i + 1])},0"),
        SUM - COUNTS[0],
    ),
    "Locust's history of each request": (
        table(
            LOCUST,
            lambda i: (
                f"{T0 + i},5,GET,/a,7,0.0,12,{5 * i},0\n"
                f"{T0 + i},5,,Aggregated,{40 + i % 3},0.0,12,{sum(COUNTS[: i + 1])},0"
            ),
        ),
        SUM - COUNTS[0],
    ),
    "Locust's history whose first rows have no rate": (
        table(LOCUST, lambda i: f"{T0 + i},5,,Aggregated,N/A,N/A,N/A,{max(0, 10 * (i - 3))},0"),
        10 * (N - 4),
    ),
    "months": (
        table("month,requests", lambda i: f"{2024 + i // 12}-{i % 12 + 1:02},{COUNTS[i]}", 24),
        sum(COUNTS[:24]),
    ),
    "months by name": (
        table("month;requests", lambda i: f"{date(2024 + i // 12, i % 12 + 1, 1):%b %Y};{COUNTS[i]}", 24),
        sum(COUNTS[:24]),
    ),
    "months before years": (
        table("month,requests", lambda i: f"{i % 12 + 1:02}/{2024 + i // 12},{COUNTS[i]}", 24),
        sum(COUNTS[:24]),
    ),
    "months in German": (
        table("Monat;Anfragen", lambda i: f"{GERMAN[i]} 2026;{COUNTS[i]}", 6),
        sum(COUNTS[:6]),
    ),
    "days in German": (table("Datum;Anfragen", lambda i: f"{i + 1}. M\u00e4rz 2026;{COUNTS[i]}", 31), sum(COUNTS[:31])),
    "months in French": (
        table("Mois;Requ\u00eates", lambda i: f"{FRENCH[i]} 2026;{COUNTS[i]}", 3),
        sum(COUNTS[:3]),
    ),
    "quarters": (table("quarter,requests", lambda i: f"2025-Q{i + 1},{COUNTS[i]}", 4), sum(COUNTS[:4])),
    "quarters before years": (table("quarter,hits", lambda i: f"Q{i + 1} 2025,{COUNTS[i]}", 4), sum(COUNTS[:4])),
    "rates of quarters": (
        "quarter,rps\n2025-Q1,1.5\n2025-Q2,2.5\n2025-Q3,3.5\n",
        86_400 * (90 * 1.5 + 91 * 2.5 + 92 * 3.5),
    ),
    "pandas, orient split": (
        json.dumps({"columns": ["requests"], "index": [at(i) for i in range(N)], "data": [[n] for n in COUNTS]}),
        SUM,
    ),
    "years": ("year,requests\n2023,400\n2024,300\n2025,500\n", 1200),
    "ids of base64, of a path, or a number with commas": (
        table(
            "time,path,request_id,id",
            lambda i: (
                f'{at(i + (i % 3) / 9)},/p,{(f"aB{i}+9xZy/7Q", f"h/ab/{i:05}", f"{i:032x}/12")[i % 3]},"1,{i:03}"'
            ),
        ),
        N,
    ),
    "Splunk's lines of requests": (
        table(
            '"_raw","_time"', lambda i: f'"10.0.0.{i % 9} - - ""GET /p HTTP/1.1"" 200 {i * i}",{T0 + 7 * i + i * i % 3}'
        ),
        N,
    ),
    "ab -g": (
        table(
            "starttime\tseconds\tctime\tdtime\tttime\twait",
            lambda i: f"{at(i * i % 17, '%a %b %d %T %Y')}\t{T0 + 60 * (i * i % 17)}\t0\t{i}\t{i}\t{i}",
        ),
        N,
    ),
    "year and month": (
        table("year,month,requests", lambda i: f"{2025 + (i + 10) // 12},{(i + 10) % 12 + 1},{COUNTS[i]}", 9),
        sum(COUNTS[:9]),
    ),
    "a rate as the only item": (table("time,Item,Value", lambda i: f"{at(i)},requests/s,{COUNTS[i]}"), 60 * SUM),
    "MongoDB's export": (
        "".join(
            f'{{"minute":{{"$date":"{at(i, "%Y-%m-%dT%H:%M:%SZ")}"}},"requests":{n}}}\n' for i, n in enumerate(COUNTS)
        ),
        SUM,
    ),
    "MongoDB's export with types": (
        json.dumps(
            [
                {"time": {"$date": {"$numberLong": str(1000 * (T0 + 60 * i))}}, "requests": {"$numberInt": str(n)}}
                for i, n in enumerate(COUNTS)
            ]
        ),
        SUM,
    ),
    "Graphite's raw answer": (
        f"stats.counts.requests,{T0},{T0 + 60 * N},60|" + ",".join(f"{n}.0" for n in COUNTS) + "\n",
        SUM,
    ),
    "Graphite's raw answer without a value": (
        f"stats.counts.requests,{T0},{T0 + 60 * N},60|None," + ",".join(f"{n}.0" for n in COUNTS[1:]) + "\n",
        SUM - COUNTS[0],
    ),
    "lines of uniq -c": (table("", lambda i: f"{COUNTS[i]:7} {at(i, '%d/%b/%Y:%H:%M')}").lstrip("\n"), SUM),
    "lines of uniq -c with a header": (
        table("  count minute", lambda i: f"{COUNTS[i]:7} {at(i, '%Y-%m-%d %H:%M')}"),
        SUM,
    ),
    "rows of sqlcmd": (
        table("minute              n   \n------------------- ----", lambda i: f"{at(i)} {COUNTS[i]}"),
        SUM,
    ),
    "UTF-16 within a zip": (zipped(values("requests", lambda i: str(COUNTS[i])).encode("utf-16")), SUM),
    "UTF-16 within gzip": (gzip.compress(values("requests", lambda i: str(COUNTS[i])).encode("utf-16")), SUM),
    "names of months beside years": ("year,month,requests\n2025,Nov,50\n2025,Dec,60\n2026,January,70\n", 180),
    "German months beside years": ("Jahr;Monat;Anfragen\n2025;November;50\n2025;Dezember;60\n2026;Januar;70\n", 180),
    "French days and hours": (
        table("jour;heure;requetes", lambda i: f"{at(60 * i, '%Y-%m-%d')};{i % 24};{COUNTS[i]}", 24),
        sum(COUNTS[:24]),
    ),
    "a few days and then hours": (
        "time,requests\n"
        + "".join(f"{at(1440 * i)},{24 * n}\n" for i, n in enumerate(COUNTS[:5]))
        + "".join(f"{at(7200 + 60 * i)},{n}\n" for i, n in enumerate(COUNTS)),
        24 * sum(COUNTS[:5]) + SUM,
    ),
    "a month without rows": (
        "date,requests\n2026-04-02,1003\n" + "".join(f"{at(1440 * i, '%Y-%m-%d')},{n}\n" for i, n in enumerate(COUNTS)),
        1003 + SUM,
    ),
    "a comment on all requests": ("# sampling: 100 %\n" + values("requests", lambda i: str(COUNTS[i])), SUM),
    "objects one behind the other": (
        "".join(json.dumps({"ts": T0 + 7 * i + i % 3, "took_ms": 3}) for i in range(N)),
        N,
    ),
    "objects over several lines": (
        "\n".join(json.dumps({"time": at(i), "requests": n}, indent=1) for i, n in enumerate(COUNTS)),
        SUM,
    ),
    "Prometheus' text without labels": (
        "".join(f"http_requests_total {n} {1000 * (T0 + 60 * i)}\n" for i, n in enumerate(RISING)),
        SUM - COUNTS[-1],
    ),
    "objects with lists of their inputs": (
        "".join(
            json.dumps({"ts": T0 + 7 * i + i % 3, "latency_ms": 3, "instances": [[1, 2]] * (i % 3 + 1)}) + "\n"
            for i in range(N)
        ),
        N,
    ),
    "a time and a number between blanks": (table("# time count", lambda i: f"{T0 + 60 * i} {COUNTS[i]:.3e}"), SUM),
    "fractions of millions": (values("requests (millions)", lambda i: f"{COUNTS[i] / 1e6:.6f}"), SUM),
    "Datadog's answer with its span": (
        json.dumps(
            {
                "status": "ok",
                "from_date": 1000 * T0,
                "to_date": 1000 * (T0 + 60 * N),
                "series": [
                    {
                        "expression": "sum:trace.http.request.hits{*}.as_count()",
                        "pointlist": [[1000.0 * (T0 + 60 * i), n] for i, n in enumerate(COUNTS)],
                    }
                ],
            }
        ),
        SUM,
    ),
    "Azure's records of requests": (
        json.dumps(
            {
                "records": [
                    {"time": at(i * i * 37 % 997 / 10), "properties": {"httpMethod": "GET", "requestUri": "/p"}}
                    for i in range(N)
                ]
            }
        ),
        N,
    ),
    "F: rows that end with a delimiter": (table("Time,requests", lambda i: f"{at(i)},{COUNTS[i]},"), SUM),
    "F: row numbers of R": (table('"time","requests"', lambda i: f'"{i + 1}","{at(i)}",{COUNTS[i]}'), SUM),
    "F: row numbers from zero": (table("time,requests", lambda i: f"{i},{at(i)},{COUNTS[i]}"), SUM),
    "A: rounded in its third digit": (values("requests", lambda i: f"{COUNTS[i] / 1e3:.3f} K"), SUM),
    "A: scientific and whole": (
        values("requests_total", lambda i: f"{900_000 + sum(COUNTS[:i]):.6e}"),
        SUM - COUNTS[-1],
    ),
    "B: New Relic's rate": (values('"rate(count(*), 1 minute)"', lambda i: str(COUNTS[i])), SUM),
    "B: New Relic's rate of seconds": (values('"rate(sum(hits), 1 second)"', lambda i: str(COUNTS[i] / 60)), SUM),
    "B: a rate in words": (values("Request Rate (per minute)", lambda i: str(COUNTS[i])), SUM),
    "B: Grafana's frame of a query": (
        json.dumps(
            {
                "results": {
                    "A": {"frames": [frame([n / 60 for n in COUNTS], legend="sum(rate(http_requests_total[5m]))")]}
                }
            }
        ),
        SUM,
    ),
    "B: Grafana's frame with a unit": (json.dumps([frame([n / 60 for n in COUNTS], unit="reqps")]), SUM),
    "B: Grafana's panel": (
        json.dumps(
            {
                "state": "Done",
                "series": [
                    {
                        "fields": [
                            {"name": "Time", "values": [1000 * (T0 + 60 * i) for i in range(N)]},
                            {"name": "Value", "values": COUNTS},
                        ]
                    }
                ],
            }
        ),
        SUM,
    ),
    "E: CloudWatch's default labels": (
        json.dumps(
            {
                "MetricDataResults": [
                    METRIC_DATA | {"Label": "my-endpoint Invocations"},
                    METRIC_DATA | {"Label": "my-endpoint ModelLatency", "Values": [7.5 + i % 3 for i in range(N)]},
                ]
            }
        ),
        SUM,
    ),
    "E: InfluxDB": (
        json.dumps({"results": [{"series": [{"name": "http", "columns": ["time", "count"], "values": ISO_ROWS}]}]}),
        SUM,
    ),
    "E: Elasticsearch's SQL": (json.dumps({"columns": [{"name": "t"}, {"name": "requests"}], "rows": ISO_ROWS}), SUM),
    "E: Azure's logs": (
        json.dumps(
            {
                "tables": [
                    {
                        "name": "PrimaryResult",
                        "columns": [{"name": "TimeGenerated"}, {"name": "count_"}],
                        "rows": ISO_ROWS,
                    }
                ]
            }
        ),
        SUM,
    ),
    "E: Splunk's results": (
        json.dumps(
            {
                "preview": False,
                "fields": [{"name": "_time"}, {"name": "count"}],
                "results": [{"_time": t, "count": str(n), "_span": "60"} for t, n in ISO_ROWS],
            }
        ),
        SUM,
    ),
    "E: Splunk's export": (
        "".join(json.dumps({"preview": False, "result": {"_time": t, "count": str(n)}}) + "\n" for t, n in ISO_ROWS),
        SUM,
    ),
    "E: Google's log as a list": (
        json.dumps(
            [
                {
                    "insertId": str(i),
                    "timestamp": f"2026-05-01T10:{i * i % 60:02}:{i:02}.5Z",
                    "httpRequest": {"requestMethod": "GET", "status": 200},
                }
                for i in range(N)
            ],
            indent=1,
        ),
        N,
    ),
    "E: InfluxDB's CSV": (
        table("result,table,_start,_stop,_time,_value", lambda i: f",0,{at(0)},{at(N)},{at(i)},{COUNTS[i]}"),
        SUM,
    ),
    "H: rows with requests in words": (
        table("timestamp,name,duration", lambda i: f"{at(i, '%Y-%m-%dT%H:%M')}:{i * 17 % 59:02}.5,GET /predict,12.5"),
        N,
    ),
    "A: thousands by commas": (values("requests", lambda i: f'"{COUNTS[i]:,}"'), SUM),
    "A: thousands by commas, smaller ones without": (values("Value", lambda i: f'"{COUNTS[i] - 50:,}"'), SUM - 50 * N),
    "A: thousands by points, decimal commas": (table("Zeit;Anfragen", lambda i: f"{at(i)};{german(COUNTS[i])}"), SUM),
    "A: thousands by spaces": (values("requests", lambda i: f"{COUNTS[i]:,}".replace(",", "\u202f")), SUM),
    "A: thousands by apostrophes": (values("requests", lambda i: f"{COUNTS[i]:,}".replace(",", "'")), SUM),
    "A: a unit a second": (values("credit", lambda i: f"{COUNTS[i] / 60:.4f} req/s"), SUM),
    "A: a unit a minute": (values("credit", lambda i: f"{COUNTS[i]} rpm"), SUM),
    "A: thousands as K": (values("requests", lambda i: f"{COUNTS[i] / 1000:.3f}K"), SUM),
    "A: missing values in several words": (
        values("requests", lambda i: ["undefined", "null", "-", "+Inf", "NaN", "N/A"][i] if i < 6 else str(COUNTS[i])),
        SUM - sum(COUNTS[:6]),
    ),
    "A: decimal texts in JSON": (
        json.dumps([{"time": at(i), "requests": f"{n}.00"} for i, n in enumerate(COUNTS)]),
        SUM,
    ),
    "A: an object without the count": (
        json.dumps([{"time": at(i)} | ({"requests": n} if i else {}) for i, n in enumerate(COUNTS)]),
        SUM - COUNTS[0],
    ),
    "A: statistics of latencies": (json.dumps(LATENCIES), SUM),
    "A: beside percentiles": (table("Time,requests,p99,avg", lambda i: f"{at(i)},{COUNTS[i]},7,3"), SUM),
    "B: irate": (values('"sum by (job) (irate(http_requests_total[1m]))"', lambda i: f"{COUNTS[i] / 60:.5f}"), SUM),
    "B: rate times sixty": (values('"sum(rate(x_requests_total[5m])) * 60"', lambda i: f"{COUNTS[i]}.0"), SUM),
    "B: increase over the step": (values("sum(increase(requests_total[1m]))", lambda i: f"{COUNTS[i]}.004"), SUM),
    "B: increase over five steps": (values("increase(requests_total[5m])", lambda i: f"{5 * COUNTS[i]}"), SUM),
    "B: rate of a histogram's count": (
        values("rate(http_request_duration_seconds_count[5m])", lambda i: f"{COUNTS[i] / 60:.5f}"),
        SUM,
    ),
    "B: req/s in the header": (values("Requests (req/s)", lambda i: f"{COUNTS[i] / 60:.5f}"), SUM),
    "B: requests of five minutes, every minute": (values("requests per 5 min", lambda i: str(5 * COUNTS[i])), SUM),
    "B: requests a day, every minute": (values("requests/day", lambda i: str(1440 * COUNTS[i])), SUM),
    "B: thousands by the header": (values("requests (thousands)", lambda i: str(COUNTS[i])), 1000 * SUM),
    "B: thousands a second": (values("kreq/s", lambda i: f"{COUNTS[i]}.0"), 60_000 * SUM),
    "B: a query of Loki": (values('"sum(count_over_time({app=""x""}[1m]))"', lambda i: str(COUNTS[i])), SUM),
    "B: a query of Loki over five minutes": (
        values('"sum(count_over_time({app=""x""} | json [5m]))"', lambda i: str(5 * COUNTS[i])),
        SUM,
    ),
    "B: a rate of Datadog": (values("sum:web.hits{env:x}.as_rate()", lambda i: f"{COUNTS[i]}.0"), 60 * SUM),
    "C: a counter in a table": (values("Value", lambda i: str(RISING[i])), SUM - COUNTS[-1]),
    "C: a counter called requests": (values("requests", lambda i: str(RISING[i])), SUM - COUNTS[-1]),
    "C: a counter that begins again": (
        matrix(({"__name__": "requests_total"}, RESET)),
        SUM - COUNTS[24] - COUNTS[-1] + 400,
    ),
    "C: a histogram's count": (
        matrix(({"__name__": "latency_seconds_count"}, [n - 900_000 for n in RISING])),
        SUM - COUNTS[-1],
    ),
    "C: a counter of 32 bits that overflows": (
        matrix(({"__name__": "requests_total"}, wrapped(2**32))),
        SUM - COUNTS[0],
    ),
    "C: an overflow in a table": (values("requests_total", lambda i: str(wrapped(2**32)[i])), SUM - COUNTS[0]),
    "C: a counter of 31 bits that overflows": (
        values("requests_total", lambda i: str(wrapped(2**31)[i])),
        SUM - COUNTS[0],
    ),
    "C: a restart far from an overflow": (
        values("requests_total", lambda i: str(3_900_000_000 + 1000 * i if i < 25 else 1000 * (i - 25) + 400)),
        38_400,
    ),
    "C: sums so far": (values("cumulative requests", lambda i: str(sum(COUNTS[: i + 1]))), SUM - COUNTS[0]),
    "D: date and time in two columns": (
        table("date,time,requests", lambda i: f"{at(i, '%Y-%m-%d')},{at(i, '%H:%M:%S')},{COUNTS[i]}"),
        SUM,
    ),
    "D: date and hour": (table("date,hour,requests", lambda i: f"2026-05-{1 + i // 24:02},{i % 24},{COUNTS[i]}"), SUM),
    "D: date, hour and minute": (
        table("date,hour,minute,requests", lambda i: f"2026-05-01,{10 + i // 20},{3 * (i % 20)},{COUNTS[i]}"),
        SUM,
    ),
    "D: year, month, day and hour": (
        table("year,month,day,hour,requests", lambda i: f"2026,5,{1 + i // 24},{i % 24},{COUNTS[i]}"),
        SUM,
    ),
    "D: date and span of hours": (
        table("day,hour,requests", lambda i: f"2026-05-{1 + i // 24:02},{i % 24:02}:00-{i % 24:02}:59,{COUNTS[i]}"),
        SUM,
    ),
    "G: hours in digits": (table("Hour,requests", lambda i: f"{at(60 * i, '%Y%m%d%H')},{COUNTS[i]}"), SUM),
    "D: digits of a date, and a clock": (
        table("date,time,requests", lambda i: f"{at(i, '%Y%m%d,%H:%M')},{COUNTS[i]}"),
        SUM,
    ),
    "D: seconds of begin and end in camel case": (
        json.dumps(
            [
                {"beginTimeSeconds": T0 + 60 * i, "endTimeSeconds": T0 + 60 * i + 60, "count": n}
                for i, n in enumerate(COUNTS)
            ]
        ),
        SUM,
    ),
    "D: times of another column are no counts": (
        table("ts,scraped,value", lambda i: f"{T0 + 60 * i},{1000 * (T0 + 60 * i) + 70},{COUNTS[i]}"),
        SUM,
    ),
    "D: requests with the times of their ends": (
        table("received_at,finished_at", lambda i: f"{1000 * (T0 + i * i % 997)},{1000 * (T0 + i * i % 997) + 37}"),
        N,
    ),
    "E: an index of pandas": (table(",time,value", lambda i: f"{1000 + i},{at(i)},{COUNTS[i]}"), SUM),
    "E: titles of CloudWatch's console": (
        "Full label,app/shop RequestCount\nLabel,RequestCount\nPeriod,60\nStatistic,Sum\n"
        + table("Timestamp (UTC),RequestCount", lambda i: f"{at(i, '%Y/%m/%d %H:%M:%S')},{COUNTS[i]}.0"),
        SUM,
    ),
    "D: German date and time": (
        table("Datum;Uhrzeit;requests", lambda i: f"{at(i, '%d.%m.%Y')};{at(i, '%H:%M')};{COUNTS[i]}"),
        SUM,
    ),
    "D: start and end": (table("start_time,end_time,requests", lambda i: f"{at(i)},{at(i + 1)},{COUNTS[i]}"), SUM),
    "E: k6": (K6, 99),
    "E: one of the series says requests": (
        table(
            "metric,time,value",
            lambda i: f"{('RequestCount', 'CPUUtilization')[i % 2]},{at(i // 2)},{COUNTS[i // 2]}",
            80,
        ),
        SUM,
    ),
    "E: one series with its name": (table("Series,Time,Value", lambda i: f"a,{at(i)},{COUNTS[i]}"), SUM),
    "E: several statistics": (json.dumps(STATISTICS), SUM),
    "F: a comment at the top and a header again": (
        f"# exported by hand\n{values('requests', lambda i: str(COUNTS[i]) + (chr(10) + 'Time,requests') * (i == 20))}",
        SUM,
    ),
    "F: totals without a name": (values("requests", lambda i: str(COUNTS[i])) + f",{SUM}\n", SUM),
    "F: a last number that lost digits": (
        values("requests", lambda i: str(COUNTS[i])).removesuffix(f"{COUNTS[-1] % 100:02}\n"),
        SUM - COUNTS[-1],
    ),
    "F: a last number without a line feed": (values("requests", lambda i: str(COUNTS[i])).rstrip("\n"), SUM),
    "F: a quiet end behind a line feed": (values("requests", lambda i: str(COUNTS[i])) + f"{at(N)},10\n", SUM + 10),
    "F: a last line of JSON that is cut": (
        "".join(json.dumps({"time": at(i), "requests": COUNTS[i % N]}) + "\n" for i in range(100))[:-4],
        sum(COUNTS[i % N] for i in range(99)),
    ),
    "F: lines above the header": (f"Report\nAccount: 7\n\n{values('requests', lambda i: str(COUNTS[i]))}", SUM),
    "F: a bad line in 200": (
        table("Time,requests", lambda i: f"{at(i)},{7 + i % 5}" if i != 99 else "Connection reset", 200),
        9 * 200 - 11,
    ),
    "G: milliseconds behind a comma": (table("ts;requests", lambda i: f"{at(i)},000;{COUNTS[i]}"), SUM),
    "G: RFC 2822": (table("t\trequests", lambda i: f"{at(i, '%a, %d %b %Y %H:%M:%S +0000')}\t{COUNTS[i]}"), SUM),
    "G: Kibana": (
        table(
            '"@timestamp per minute","Count of records"',
            lambda i: f'"{at(i, "%b %d, %Y @ %H:%M:%S.000")}","{COUNTS[i]:,}"',
        ),
        SUM,
    ),
    "G: Excel's days": (
        table("Time,requests", lambda i: f"{at(i, '%-m/%-d/%Y %-I:%M %p', T0 + 14 * 86400)},{COUNTS[i]}"),
        SUM,
    ),
    "G: Go": (table("time,requests", lambda i: f"{at(i)} +0000 UTC,{COUNTS[i]}"), SUM),
    "H: a BOM and sep=;": ("\ufeffsep=;\n" + table("Time;requests", lambda i: f"{at(i)};{COUNTS[i]}"), SUM),
    "H: psql": (
        "       bucket        | requests \n---------------------+----------\n"
        + "".join(f" {at(i)} |     {n}\n" for i, n in enumerate(COUNTS))
        + "(40 rows)\n",
        SUM,
    ),
    "H: carriage returns": (values("requests", lambda i: str(COUNTS[i])).replace("\n", "\r\n"), SUM),
    "H: carriage returns alone": (values("requests", lambda i: str(COUNTS[i])).replace("\n", "\r"), SUM),
    "J: numbers in headers": (
        table("ts,requests,2xx,50%,p99.9", lambda i: f"{T0 + 60 * i},{COUNTS[i]},{COUNTS[i] - 5},12,90"),
        SUM,
    ),
    "J: a header without a name": (table(",requests", lambda i: f"{at(i)},{COUNTS[i]}"), SUM),
    "J: a status beside all": (table("timestamp,requests,status_200", lambda i: f"{at(i)},{COUNTS[i]},7"), SUM),
    "K: from minutes to five": (
        table(
            "Time,requests", lambda i: f"{at(i if i < 20 else 20 + 5 * (i - 20))},{COUNTS[i] * (1 if i < 20 else 5)}"
        ),
        sum(COUNTS[:20]) + 5 * sum(COUNTS[20:]),
    ),
    "K: a rate whose step changes": (
        table("Time,req/s", lambda i: f"{at(i if i < 20 else 20 + 5 * (i - 20))},{COUNTS[i]}"),
        60 * sum(COUNTS[:20]) + 300 * sum(COUNTS[20:]),
    ),
    "K: stamps that wander": (table("Time,requests", lambda i: f"{T0 + 60 * i + 7 * i % 5},{COUNTS[i]}"), SUM),
    "L: the last page": (
        json.dumps({"data": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)], "next": None}),
        SUM,
    ),
}
REFUSED: dict[str, tuple[str, str]] = {
    "latencies named in the rows without a header": (
        table("", lambda i: f"stats.timers.web.latency.mean,{at(i)},{COUNTS[i]}").lstrip(),
        "no column holds requests",
    ),
    "errors named in the rows without a header": (
        table("", lambda i: f"stats.counts.web.errors,{at(i)},{COUNTS[i]}").lstrip(),
        "counts only errors",
    ),
    "an unknown metric named in the rows without a header": (
        table("", lambda i: f"stats.gauges.foo,{at(i)},{COUNTS[i]}").lstrip(),
        "which column holds counts",
    ),
    "numbers called n beside a path": (
        table("time,path,status,n", lambda i: f"{at(i * i * 37 % 997 / 10)},/a,200,{1 + i % 5}"),
        "times are irregular; counts.*: n",
    ),
    "line protocol of one method": (
        table("", lambda i: f"requests,method=GET,code=200 value={COUNTS[i]}i {10**9 * (T0 + 60 * i)}").lstrip(),
        "only a part of the requests",
    ),
    "line protocol of latencies": (
        table("", lambda i: f"latency,host=a mean={COUNTS[i]} {10**9 * (T0 + 60 * i)}").lstrip(),
        "no column holds requests",
    ),
    "Graphite's raw answer of latencies": (
        f"stats.timers.web.mean,{T0},{T0 + 60 * N},60|" + ",".join(f"{n}.0" for n in COUNTS) + "\n",
        "look like a summary",
    ),
    **{
        f"Graphite's {function}": (
            json.dumps([{"target": function, "datapoints": [[n, T0 + 60 * i] for i, n in enumerate(COUNTS)]}]),
            "requests in each row, or a rate, or neither|look like a summary",
        )
        for function in (
            *("scale(web.requests.count,0.5)", "offset(web.requests.count,5)", "pow(web.requests.count,2)"),
            *('summarize(web.requests.count,"1min","avg")', 'consolidateBy(web.requests.count,"max")'),
        )
    },
    "a single row": ("time,requests\n2026-05-01 10:00,1000\n", "a single row does not say how long it lasts"),
    "two months and then days": (
        "date,requests\n2026-03-01,31000\n2026-04-01,30000\n"
        + "".join(f"{at(1440 * i, '%Y-%m-%d')},{n}\n" for i, n in enumerate(COUNTS)),
        "are these rows longer, or are some missing",
    ),
    "days and then months": (
        table("date,requests", lambda i: f"{at(1440 * i - 43200, '%Y-%m-%d')},{COUNTS[i]}", 30)
        + "2026-05-01,31000\n2026-06-01,30000\n",
        "are these rows longer, or are some missing",
    ),
    **{
        f"objects that list {name}": (
            "".join(json.dumps({"ts": T0 + 1.3 * i, name: [{"id": i}] * (i % 3 + 1)}) + "\n" for i in range(N)),
            "a row stands for several requests",
        )
        for name in ("requests", "records", "events", "batch")
    },
    "objects with the rate of their sample": (
        "".join(json.dumps({"ts": T0 + 7 * i + i % 3, "ms": 3, "sampling": {"rate": 0.1}}) + "\n" for i in range(N)),
        "a row stands for several requests: .*sampling",
    ),
    "a comment with a share": ("# 1:100 sample\n" + values("requests", lambda i: str(COUNTS[i])), "counts a sample"),
    "Triton's inferences": (
        "".join(f'nv_inference_count{{model="m"}} {n} {1000 * (T0 + 60 * i)}\n' for i, n in enumerate(RISING)),
        "which column holds counts",
    ),
    "ClickHouse's limit": (
        json.dumps(
            {"data": [{"minute": at(i), "n": n} for i, n in enumerate(COUNTS)], "rows_before_limit_at_least": 99}
        ),
        "more than the 40 rows",
    ),
    "InfluxDB's part": (
        json.dumps(
            {"results": [{"partial": True, "series": [{"columns": ["time", "n"], "values": [[T0, 1], [T0 + 60, 2]]}]}]}
        ),
        "the answer is not complete",
    ),
    "a single month": ("month,requests\n2026-05,1000\n", "a single row does not say how long it lasts"),
    **{
        f"{value} as the only {name}": (
            table(f"time,{name},value", lambda i, v=value: f"{at(i)},{v},{COUNTS[i]}"),  # type: ignore[misc]
            "look like a summary|errors",
        )
        for name, value in [
            *(("Item", "CPU utilization"), ("check", "http response time"), ("object", "memory used")),
            *(("type", "cpu"), ("metric id", "jvm_threads"), ("indicator", "Error count"), ("key", "http.p99")),
        ]
    },
    "rows of batches": (
        "timestamp,batch_size,latency_ms\n" + "".join(f"{T0 + 7 * i + i % 3},{i % 8 + 1},{i % 13}\n" for i in range(N)),
        "a row stands for several requests",
    ),
    "rows of a short batch size": (
        "timestamp,bs,latency_ms\n" + "".join(f"{T0 + 7 * i + i % 3},{i % 8 + 1},{i % 13}\n" for i in range(N)),
        "a row stands for several requests",
    ),
    **{
        f"ids of several requests joined by {sign!r}": (
            "timestamp,path,request_id\n" + "".join(f"{T0 + 7 * i + i % 3},/p,r{i}{sign}r{i + 1}\n" for i in range(N)),
            "a row stands for several requests",
        )
        for sign in (";", "|", " ", "/")
    },
    "months of small counts before days": (
        "date,requests\n2026-03-01,900\n2026-04-01,950\n"
        + "".join(f"2026-05-{i + 1:02},{COUNTS[i]}\n" for i in range(30)),
        "are these rows longer",
    ),
    "ClickHouse's rows of a LIMIT": (
        json.dumps({"meta": [{"name": "t"}, {"name": "count()"}], "data": ISO_ROWS, "rows_before_limit_at_least": 900}),
        "is more than the 40 rows here",
    ),
    "Azure's totals of a rate": (
        json.dumps({"value": [{"name": {"value": "RequestsPerMinute"}, "timeseries": [{"data": AZURE}]}]}),
        "`count_unit`",
    ),
    "events of Kubernetes": (
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [{"t": at(i), "count": 3 + i % 5} for i in range(N)]}),
        "holds no requests",
    ),
    "weeks of small counts before days": (
        "date,requests\n2026-04-06,900\n2026-04-13,950\n2026-04-20,940\n"
        + "".join(f"2026-04-{i + 21:02},{COUNTS[i]}\n" for i in range(10)),
        "are these rows longer",
    ),
    "years of cars": ("user,year\na,2019\nb,2017\nc,2021\n", "no column holds times"),
    "an error's lines in Splunk's export": (
        table('"_raw","_time"', lambda i: f'"upstream timed out, request: ""GET / HTTP/1.1""",{T0 + 7 * i + i % 3}'),
        "a program's own log",
    ),
    "rows of several inputs": (
        "timestamp,path,num_inputs\n" + "".join(f"{T0 + 7 * i + i % 3},/p,{i % 8 + 1}\n" for i in range(N)),
        "a row stands for several requests",
    ),
    "Graphite's plain text of latencies": (
        table("", lambda i: f"stats.timers.web.latency.mean {COUNTS[i]} {T0 + 60 * i}").lstrip(),
        "no column holds requests",
    ),
    "messages that end with a number": (table("", lambda i: f"{at(i)} queue {COUNTS[i]}").lstrip(), "neither a trace"),
    "dollars": (values("requests ($)", lambda i: str(COUNTS[i])), "no column holds requests"),
    "HTML": ("<table><tr><td>time</td></tr></table>\n", "HTML or XML, no table: export CSV or JSON"),
    "counters of StatsD": (table("", lambda i: f"web.requests:{COUNTS[i]}|c").lstrip(), "no column holds times"),
    "F: shortened by dots": (
        table("time,requests", lambda i: f"{at(i)},{i * 37 % 101}" if i != 99 else "...,...", 200),
        "line 101: rows are left out here",
    ),
    "F: shortened by an ellipsis": (
        values("requests", lambda i: "7").replace(f"{at(9)},7", "\u2026,\u2026"),
        "rows are left out here",
    ),
    "F: errors below the requests": (
        values("requests", lambda i: str(COUNTS[i])) + table("Time,errors", lambda i: f"{at(N + i)},3"),
        "line 42: another table begins here: keep one of them: Time,errors",
    ),
    "F: a table of another method": (
        values("GET", lambda i: str(COUNTS[i])) + "\n" + table("time,POST", lambda i: f"{at(N + i)},3"),
        "another table begins here",
    ),
    "A: rounded to thousands": (
        values("requests", lambda i: f"{COUNTS[i] / 1e3:.0f}K"),
        "rounded to 1,000, .* or say `count_unit`",
    ),
    "A: a rounded counter": (
        values("http_requests_total", lambda i: ROUNDED[i]),
        "rounded to 10,000, .* of an increase",
    ),
    "A: a scientific counter": (
        values("requests_total", lambda i: f"{5e6 + sum(COUNTS[:i]):.2E}"),
        "rounded to 10,000, .* of an increase",
    ),
    "B: CloudWatch's function": (values("RATE(m1)", lambda i: str(COUNTS[i])), "or a rate"),
    "B: a rate of requests": (values("Rate (requests)", lambda i: str(COUNTS[i])), "or a rate"),
    "B: Datadog without a unit": (values('"sum:trace.web.request.hits{*}"', lambda i: str(COUNTS[i])), "or a rate"),
    "E: frames of two series": (
        json.dumps({"results": {"A": {"frames": [frame(COUNTS), frame(COUNTS)]}}}),
        "2 tables in one document: ask for one series",
    ),
    "E: a document of another form": (
        json.dumps({"data": {"attributes": {"times": [T0], "values": [[1]]}}}),
        "export CSV, or a list of objects with their times: data",
    ),
    "E: batches of inferences": (
        matrix(({"__name__": "nv_inference_exec_count"}, RISING)),
        "which column holds counts",
    ),
    "E: retries": (matrix(({"__name__": "http_retries_total"}, RISING)), "which column holds counts"),
    "L: Splunk's preview": (
        "".join(json.dumps({"preview": i < N, "result": {"_time": at(i), "count": "3"}}) + "\n" for i in range(2 * N)),
        "preliminary rows",
    ),
    "L: hits of more documents": (
        json.dumps(
            {
                "hits": {
                    "total": {"value": 10_000, "relation": "gte"},
                    "hits": [{"_source": {"@timestamp": at(i), "status": 200, "path": "/"}} for i in range(N)],
                }
            }
        ),
        "is more than the 40 rows here",
    ),
    "A: an average of CPU": (values("CPUUtilization", lambda i: f"{COUNTS[i] / 20}"), "summary.*count_column"),
    "A: seconds as a unit": (values("credit", lambda i: f"{COUNTS[i]} ms"), "summary.*count_column"),
    "A: requests in flight": (values("requests_in_flight", lambda i: str(COUNTS[i])), "summary.*count_column"),
    "A: requests of a target": (values("RequestCountPerTarget", lambda i: str(COUNTS[i])), "summary.*count_column"),
    "A: the highest rate of a minute": (values("peak_rps", lambda i: str(COUNTS[i])), "summary.*count_column"),
    "A: a latency in German": (table("Zeit;Antwortzeit", lambda i: f"{at(i)};{COUNTS[i]}"), "summary.*count_column"),
    "A: a word that may name anything": (values("revenue", lambda i: str(COUNTS[i])), "which column.*: revenue"),
    "A: only times, a minute apart": (table("Time", lambda i: at(i)), "summary.*count_column` none"),
    "A: a latency at times that wander": (
        table("Time,p95 latency", lambda i: f"{T0 + 60 * i + 17 * i % 29},{COUNTS[i]}"),
        "summary.*count_column",
    ),
    "A: thousands or decimals": (table("Time;Value", lambda i: f"{at(i)};1,{100 + i}"), "decimal. point or comma"),
    "A: decimals or thousands": (table("Time,rps", lambda i: f"{at(i)},1.{100 + i}"), "decimal. point or comma"),
    "A: words between counts": (
        values("requests", lambda i: "down" if i in (3, 4) else str(COUNTS[i])),
        "line 5, no number.*skip_bad",
    ),
    "A: a value in each third row": (
        values("requests", lambda i: "" if i % 3 else str(COUNTS[i])),
        "rows every 60 s, and only every 180 s one with a value.*gaps",
    ),
    "C: a fast counter at an overflow": (
        values("requests_total", lambda i: str((2**32 - 20 * 50_000_000 + 50_000_000 * i) % 2**32 + i % 2)),
        "a restart, or an overflow at 4294967296.*count_unit. counter-32",
    ),
    "C: a sum of counters of which one restarts": (
        values("requests_total", lambda i: str(4_000_000 + 1000 * i - (900_000 if i > 20 else 0))),
        "a sum of several counters.*increase",
    ),
    **{
        f"C: {n} sums of few requests": (
            table("Time,requests", lambda i: f"{at(i)},{SMALL[i]}", n),
            "never falls.*count_unit",
        )
        for n in (5, 8, 12, 20)
    },
    "C: few sums that begin again": (
        table("Time,n", lambda i: f"{at(i)},{[1, 2, 2, 3, 5, 5, 0, 1, 1, 4, 6, 7][i]}", 12),
        "never falls.*count_unit",
    ),
    "C: a slow counter": (values("requests", lambda i: str(1000 + i // 3)), "never falls.*count_unit"),
    "C: sums of few requests in mark's own form": (
        table("t_seconds,count", lambda i: f"{60 * i},{SMALL[i]}", 20),
        "never falls.*count_unit",
    ),
    "F: as many rows as a limit": (
        table("ts,path,status", lambda i: f"{T0 + 0.7 * i},/p,200", 1000),
        "exactly 1,000 rows.*count_column. none",
    ),
    "F: as many objects as a limit": (
        json.dumps([{"ts": T0 + 0.7 * i, "method": "GET", "status": 200} for i in range(500)]),
        "exactly 500 rows.*count_column. none",
    ),
    "F: as many rows as a sheet has": (
        table("ts,path,status", lambda i: f"{T0 + 0.7 * i},/p,200", 65_535),
        "exactly 65,535 rows.*count_column. none",
    ),
    "F: a comment with the limit": (
        "# SELECT * FROM log LIMIT 60\n" + table("ts,path,status", lambda i: f"{T0 + 0.7 * i},/p,200", 60),
        "as many rows as a comment limits",
    ),
    "F: an answer with its limit": (
        json.dumps({"limit": 60, "data": [{"ts": T0 + 0.7 * i, "method": "GET"} for i in range(60)]}),
        "limit: is the number of rows here",
    ),
    "F: an answer of Insights that matched more": (
        json.dumps(
            {
                "results": [[{"field": "@timestamp", "value": at(i)}] for i in range(N)],
                "statistics": {"recordsMatched": 41.0},
                "status": "Complete",
            }
        ),
        "recordsMatched: is more than the 40 rows",
    ),
    "H: ratings": (
        table("userId,movieId,rating,timestamp", lambda i: f"{i % 7},{i},{1 + i % 5},{T0 + i * i % 997}"),
        "no column tells.*count_column. none.*rating",
    ),
    "H: ratings in milliseconds beside an event": (
        table("event_id,rating,timestamp", lambda i: f"{i},{1 + i % 5},{1000 * (T0 + i * i % 997)}"),
        "no column tells.*count_column. none.*rating",
    ),
    "H: ratings without a header": (
        table(f"1,2,5,{T0}", lambda i: f"{i % 7},{i},{1 + i % 5},{T0 + i * i % 997}"),
        "irregular.*count_column",
    ),
    "H: temperatures": (
        table("time,temperature", lambda i: f"{T0 + i * i % 997},{20 + i % 5}.5"),
        "no column tells.*count_column. none.*temperature",
    ),
    "H: clicks of users on items": (
        table("user_id,item_id,clicks,timestamp", lambda i: f"{i % 7},{i},{1 + i % 5},{T0 + i * i % 997}"),
        "no column tells.*count_column. none.*clicks",
    ),
    "H: two rows for each request": (
        table("ts,request_id,method", lambda i: f"{T0 + (i // 2) ** 2 % 997},r{i // 2},GET"),
        "40 rows for 20 requests.*count_column. none",
    ),
    "E: an average in the titles of CloudWatch's console": (
        "Label,RequestCount\nStatistic,Average\n" + values("RequestCount", lambda i: str(1 + i % 2)),
        "summary.*RequestCount",
    ),
    "F: a list of JSON that is cut": (
        json.dumps([{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)])[:-30],
        "line 1: the JSON document ends too early",
    ),
    "H: messages of a program": (
        table("timestamp,message", lambda i: f"{T0 + i * i % 997},{('loaded', 'cache hit')[i % 2]}"),
        "program's own log.*count_column. none",
    ),
    "H: events": (
        "".join(json.dumps({"ts": T0 + i * i % 997, "event": "deploy"}) + "\n" for i in range(N)),
        "program's own log.*count_column. none",
    ),
    "H: spans of a tracer": (
        "".join(
            json.dumps({"trace_id": i // 3, "span_id": i, "name": "sql", "start": T0 + i * i % 997, "duration_ms": 3})
            + "\n"
            for i in range(N)
        ),
        "program's own log.*count_column. none",
    ),
    "A: an average in CloudWatch's data": (
        json.dumps({"MetricDataResults": [METRIC_DATA | {"Values": [1.0] * N}]}),
        "every row holds 1",
    ),
    "A: seconds of a Sum": (
        json.dumps(
            LATENCIES
            | {"Datapoints": [{k: v for k, v in p.items() if k != "SampleCount"} for p in LATENCIES["Datapoints"]]}
        ),
        "summary.*Sum",
    ),
    "B: fractions under the name of requests": (
        values("http requests", lambda i: f"{COUNTS[i] / 60:.4f}"),
        "or a rate.*count_unit",
    ),
    "B: logarithms of rates": (values("log_rps", lambda i: f"{1 + i % 7 / 10:.3f}"), "summary.*log_rps"),
    "B: logarithms, rounded": (values("log requests", lambda i: str(2 + i % 2)), "summary.*log requests"),
    "B: fractions under no name": (values("Value", lambda i: f"{COUNTS[i] / 60:.4f}"), "or a rate.*count_unit"),
    "B: a ratio of rates": (values("sum(rate(a[1m])) / sum(rate(b[1m]))", lambda i: f"{i}"), "or a rate.*count_unit"),
    "B: the highest rate": (values("max(rate(http_requests_total[5m]))", lambda i: f"{i}"), "summary.*count_column"),
    "B: the number of series": (values("count(rate(http_requests_total[5m]))", lambda i: "3"), "summary.*count_column"),
    "B: a rate of errors by its selector": (
        values('"sum(rate(http_requests_total{code=~""5..""}[5m]))"', lambda i: f"{COUNTS[i]}"),
        "only errors.*count_column",
    ),
    "B: a share called a rate": (values("success rate", lambda i: str(98 + i % 3)), "summary.*count_column"),
    "C: a rise from nothing": (values("Value", lambda i: str(RISING[i] - 900_000)), "or a counter.*count_unit"),
    "D: two times of no known order": (
        table("seen,noted,requests", lambda i: f"{at(i)},{at(i + 1)},{COUNTS[i]}"),
        "time_column",
    ),
    "D: clocks without a date": (
        table("time,requests", lambda i: f"{at(i, '%H:%M:%S')},{COUNTS[i]}"),
        "no column holds times",
    ),
    "E: series in Prometheus": (
        matrix(*(({"__name__": "m", "pod": pod}, COUNTS) for pod in "ab")),
        r"2 series.*series. sum.*pod=a",
    ),
    "E: two zones of Cloudflare": (
        json.dumps({"zones": [{"groups": [{"at": t, "sum": {"requests": n}} for t, n in ISO_ROWS]}] * 2}),
        "2 series.*series. sum.*number=2",
    ),
    "E: New Relic's parts beside their total": (
        json.dumps({"facets": [{"name": "a", "rows": ISO_ROWS}], "totalResult": {"rows": ISO_ROWS}}),
        "several places.*facets.rows, totalResult.rows",
    ),
    "L: buckets without some documents": (
        json.dumps(
            {"aggregations": {"a": {"sum_other_doc_count": 7, "buckets": [{"key": t, "n": n} for t, n in ISO_ROWS]}}}
        ),
        "other buckets are missing.*7",
    ),
    "D: Prometheus' text without times": (
        "# TYPE http_requests_total counter\nhttp_requests_total 5\n",
        "line 2: a sample without a time",
    ),
    "E: series in CloudWatch": (
        json.dumps({"MetricDataResults": [METRIC_DATA, METRIC_DATA | {"Label": "Requests"}]}),
        "2 series.*series",
    ),
    "E: a summary by endpoint, whose minimum is no minute": (
        "endpoint,requests,avg,min,max\n"
        + "".join(f"/e{i},{COUNTS[i]},{12 + i},{3 + i},{120 + i}\n" for i in range(6)),
        "no column holds times",
    ),
    "E: a status in Prometheus": (
        matrix(({"__name__": "http_requests_total", "job": "web", "code": "200"}, RISING)),
        "only a part of the requests.*code=200",
    ),
    "E: errors in Prometheus": (
        matrix(({"__name__": "http_requests_total", "code": "503"}, RISING)),
        "only errors.*code=503",
    ),
    "E: kinds of requests": (
        table("time,kind,n", lambda i: f"{at(i // 2)},{('web', 'mobile')[i % 2]} requests,{COUNTS[i // 2]}", 80),
        "2 series.*web requests, mobile requests",
    ),
    "E: methods": (
        table("time,method,n", lambda i: f"{at(i // 2)},{('GET', 'POST')[i % 2]},{COUNTS[i // 2]}", 80),
        "2 series.*GET, POST",
    ),
    "E: status codes": (
        table("time,status,requests", lambda i: f"{at(i // 2)},{(200, 500)[i % 2]},{COUNTS[i // 2]}", 80),
        "2 series.*200, 500",
    ),
    "F: three bad lines in 40": (
        table("Time,requests", lambda i: f"{at(i)},{7 + i % 5}" if i % 15 else "??"),
        "3 of 40 lines.*line 2",
    ),
    "F: a line cut short": (
        values("requests", lambda i: str(COUNTS[i])) + "2026-05-01 10:4",
        "1 of 41 lines.*skip_bad_lines` 1",
    ),
    "F: words below the table": (
        values("requests", lambda i: str(COUNTS[i])) + "End of report,\n",
        "1 of 41 lines.*End of report",
    ),
    "G: day or month": (
        table("Time,requests", lambda i: f"{at(i, '11/2/2026 %-I:%M %p')},{COUNTS[i]}"),
        "time_format. day-first",
    ),
    "G: letters for a zone": (table("Time,requests", lambda i: f"{at(i)} CEST,{COUNTS[i]}"), "time_zone.*CEST"),
    "G: years of two digits": (
        table("Time,requests", lambda i: f"{at(i, '%d.%m.%y %H:%M')},{COUNTS[i]}"),
        "time_format",
    ),
    "J: a status in a header": (
        table("timestamp,status_200", lambda i: f"{at(i)},{COUNTS[i]}"),
        "only a part.*count_column",
    ),
    "J: only status codes": (
        table("timestamp,status_2xx,status_5xx", lambda i: f"{at(i)},{COUNTS[i]},{i % 3}"),
        r"status_2xx\+status_5xx",
    ),
    "J: rates beside counts": (
        table("ts,requests,rps", lambda i: f"{at(i)},{COUNTS[i]},{COUNTS[i] / 60}"),
        "count_column",
    ),
    "K: exports that overlap": (
        values("requests", lambda i: str(COUNTS[i])) + "".join(f"{at(i)},{COUNTS[i % N]}\n" for i in range(30, 60)),
        "10 times have two rows",
    ),
    "K: five minutes of counts as small as a minute's": (
        table("Time,requests", lambda i: f"{at(i if i < 20 else 20 + 5 * (i - 20))},{COUNTS[i]}"),
        "300 s apart.*gaps",
    ),
    "K: clocks set forward in Berlin": (
        table("Time,requests", lambda i: f"{at(60 * (i + (i > 1)), start=1_774_742_400)},{COUNTS[i]}", 12),
        "set forward in Europe/Berlin: say .time_zone. Europe/Berlin",
    ),
    "K: clocks set forward": (
        table(
            "Time,requests", lambda i: f"{at(i, start=1_774_746_000)},{COUNTS[i % N]}" if not 60 <= i < 120 else "", 180
        ),
        "time_zone",
    ),
    "E: a metric of success and of errors in Prometheus": (
        matrix(*(({"__name__": "http_requests_total", "code": code}, RISING) for code in ("200", "500"))),
        "2 series.*series. sum",
    ),
    "E: a metric of success and of errors, side by side": (
        table('Time;reqs{code="200"};reqs{code="500"}', lambda i: f"{at(i)};{COUNTS[i]};{COUNTS[i] // 5}"),
        "several columns may hold counts",
    ),
    "E: a counter and a mean since the start": (
        table("Time;Total Accesses;ReqPerSec", lambda i: f"{at(i)};{RISING[i]};17"),
        "several columns may hold counts",
    ),
    "E: rule evaluations of CloudWatch": (
        json.dumps(STATISTICS | {"Label": "RuleEvaluations"}),
        "summary.*Sum",
    ),
    "D: hours in a column of an unknown name": (
        table("giorno;ora;richieste", lambda i: f"{at(60 * i, '%Y-%m-%d')};{i % 24};{COUNTS[i]}"),
        "times are irregular; counts.*richieste",
    ),
    "G: a year that is wrong": (
        values("requests", lambda i: str(COUNTS[i])) + f"2062-05-01 12:00:00,{COUNTS[0]}\n",
        "spans more than ten years",
    ),
    "G: ticks of .NET": (
        table("Time,requests", lambda i: f"{(T0 + 62_135_596_800 + 60 * i) * 10**7},{COUNTS[i]}"),
        "no column holds times",
    ),
    "L: a comment on what is missing": (
        "# results limited to 40 rows\n" + values("requests", lambda i: str(COUNTS[i])),
        "line 1: a comment says that rows are missing.*delete the comment",
    ),
    "L: a preview of Splunk": (
        json.dumps({"preview": True, "results": [{"_time": at(i), "count": n} for i, n in enumerate(COUNTS)]}),
        "preview: true|not complete",
    ),
    "L: a token in CloudWatch": (
        json.dumps({"MetricDataResults": [METRIC_DATA], "NextToken": "AAF"}),
        "one page of several",
    ),
    "L: partial data": (
        json.dumps({"MetricDataResults": [METRIC_DATA | {"StatusCode": "PartialData"}]}),
        "more data points",
    ),
    "L: more results": (
        json.dumps(
            {"items": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)], "moreResultsAvailable": True}
        ),
        "one page of several",
    ),
    "L: a link to more": (
        json.dumps({"@odata.nextLink": "x", "value": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)]}),
        "one page of several",
    ),
    "L: the first of ten pages": (
        json.dumps(
            {"items": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)], "page": 1, "total_pages": 10}
        ),
        "one page of several",
    ),
    "L: a total beside the rows": (
        json.dumps(
            {"items": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)], "pagination": {"total": 400}}
        ),
        "more than the 40 rows",
    ),
    "L: a message of Datadog": (
        json.dumps(
            {
                "series": [{"metric": "web.hits", "pointlist": [[T0 + 60, 9], [T0 + 120, 9]]}],
                "message": "partial results",
            }
        ),
        "not complete",
    ),
    "L: psql's number of rows": (
        " bucket | requests\n--------+------\n"
        + "".join(f" {at(i)} | {n}\n" for i, n in enumerate(COUNTS))
        + "(400 rows)\n",
        "says more rows than the 40",
    ),
    "L: a next page": (
        json.dumps(
            {"data": [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)], "meta": {"next_cursor": "x"}}
        ),
        "one page of several",
    ),
}
# Names of a column of whole numbers, a minute apart: requests over the sum of the numbers, or the refusal.
NAMES: dict[str, float | str] = {
    "increase(requests)": "or a rate",
    "job:http_requests:rate5m": 60.0,
    "http_requests:irate1m": 60.0,
    "job:http_errors:rate5m": "only errors",
    '"sum:web.hits{service:x,http.status_code:200}.as_count()"': "only a part",
    '"sum:web.hits{service:x,http.status_code:503}.as_count()"': "only errors",
    '"sum:web.hits{env:test,name:public-alb,port:443}.as_count()"': 1.0,
    '"rate(istio_requests_total{reporter=""destination"",destination_workload=""batch-scorer""}[1m])"': 60.0,
    '"rate(istio_requests_total{reporter=""destination"",destination_service_name=""batch-scorer""}[1m])"': 60.0,
    '"sum(count_over_time({app=""x""} |= ""POST"" [1m]))"': "a part of them",
    '"sum(count_over_time({app=""x""} != ""timeout"" [1m]))"': "a part of them",
    '"sum(count_over_time({app=""x""} |= ""error"" [1m]))"': "only errors",
    '"sum(rate({app=""x""} |~ ""status=5.."" [1m]))"': "only errors",
    '"sum(rate({app=""x""} | json | status=""503"" [1m]))"': "only errors",
    '"sum(rate({app=""x""} | json | __error__="""" [1m]))"': 60.0,
    "app/my-alb/50dc6c495c0c9188 RequestCount": 1.0,
    "requests/60": "or a rate",
    "requests / 5": "or a rate",
    "http_client_requests_total": "which column",
    "Outgoing requests": "which column",
    "dns_queries": "which column",
    "queries_to_postgres_total": "which column",
    "promhttp_metric_handler_requests_total": "which column",
    "kube_pod_container_resource_requests": "which column",
    "sum by (client) (increase(http_requests_total[1m]))": 1.0,
    "envoy_cluster_upstream_rq_total": 1.0,
    "Requests (10^3)": 1e3,
    "Requests (hundreds)": 1e2,
    "Anfragen in Tausend": 1e3,
    "K Requests": 1e3,
    "kRPS": 6e4,
    "Requests x1000": "or a rate",
    "Anfragen pro Sekunde": 60.0,
    "Solicitudes por segundo": 60.0,
    "requests par heure": 1 / 60,
    "requests s^-1": 60.0,
    "requests (Hz)": 60.0,
    "requests_ps": 60.0,
    "requests prod": 1.0,
    "rxpck/s": "which column",
    "Throughput (rpm)": 1.0,
    "requests per minute of shop": 1.0,
    "requests_5m": "requests of each row, or of 300 s.*count_unit. count.*requests per 300 s",
    "requests_1m": 1.0,
    "requests (last hour)": "or of 3600 s",
    "Requests (24h)": "or of 86400 s",
    "hourly requests": "or of 3600 s",
    "namespace:http_requests:increase5m": "or of 300 s",
    "CacheHits": "only a part",
    "cached requests": "only a part",
    "slow requests": "only a part",
    "sampled requests": "only a part",
    "requests (previous period)": "which column",
    "cancelled requests": "only errors",
    "open requests": "summary",
    "requests/pod": "summary",
    "Anfragen pro Pod": "summary",
    "requests/route a": "a part of them",
    "requests [k]": 1e3,
    "requests in k": 1e3,
    "requests_k": 1e3,
    "requests k/s": 6e4,
    "kilo requests": 1e3,
    "requests mn": 1e6,
    "requests (bn)": 1e9,
    "requests (G)": "or a rate",
    "requests (1e3)": "or a rate",
    "1000 requests": "or a rate",
    "requests (lakh)": "or a rate",
    "requests (dozen)": "or a rate",
    "requests (2xx)": "only a part",
    "COUNT(1)": 1.0,
    "requests/15min": 1 / 15,
    "req/min": 1.0,
    "log10(requests)": "summary",
    "requests (log)": "summary",
    "ln rps": "summary",
    "sqrt(requests)": "summary",
    "requests_smoothed": "summary",
    "requests zscore": "summary",
    "yhat_upper requests": "summary",
    "delta_requests": "or a rate",
    "requests growth": "or a rate",
    "requests_cumsum": "no restart at 0",
    "num_requests_running": "summary",
    "ratelimit_remaining_requests": "which column",
    "unique requests": "only a part",
    "week_before(sum:web.requests.hits{*}.as_count())": "which column",
    "sum:web.requests.hits{*}.as_count() / 60": "or a rate",
    "default_zero(sum:web.requests.hits{*}.as_count())": 1.0,
    "overall_sum(sum(requests))": "or a rate",
    "log requests": 1.0,
    "retry_count": "which column",
    "BlockedRequests": "only a part",
    "forecast requests": "which column",
    "order_count": "which column",
    "user_count": "summary",
    "NewFlowCount": "summary",
    "cluster.upstream_cx_total": "summary",
    "ApproximateNumberOfMessagesVisible": "summary",
    "max by (pod) (rate(http_requests_total[5m]))": "summary",
    "rate(go_gc_duration_seconds_count[5m])": "summary",
    "rate(container_network_receive_packets_total[5m])": "summary",
    "rate(disk_orders_total[1m])": "summary",
    "rate(orders_total[1m])": "which column",
    "prediction_count": "which column",
    "aiplatform.googleapis.com/prediction/online/prediction_count": "which column",
    "\"top(sum:web.hits{*} by {service}.as_count(),1,'max','desc')\"": "summary",
    '"topk(1, rate(http_requests_total[1m]))"': "summary",
    "rate(http_requests_total[1m]) offset 1d": "count_unit",
    "sum(rate(istio_requests_total[1m]))": "count_unit",
    "requests_1k": "count_unit",
    "rate(cache_hits_total[1m])": "only a part",
    "rate(envoy_cluster_upstream_rq_retry[1m])": "which column",
    "rate(envoy_cluster_upstream_rq_total[1m])": 60.0,
    '"rate(http_requests_total{code!=""200""}[1m])"': "only errors",
    '"rate(http_requests_total{code!~""5..""}[1m])"': 60.0,
}
OWN: dict[str, float | str] = {
    "a1_undefined_cell.csv": 40_780 - 1007,
    "a5_latency_only.csv": "summary.*p99 latency.*count_column",
    "a7_cloudwatch_average.json": "Average.*count_column.*Sum",
    "b1_rate_legend.csv": 60 * 40_798.0,
    "c1_counter_without_total.json": 924_115 - 900_600,
    "e1_long_format.csv": "2 series.*series. sum: a, b",
    "f3_total_row.csv": 40_780,
    "g1_utc_suffix.csv": 40_780,
    "h2_sep_line.csv": 40_780,
    "h4_postgres.csv": 40_780,
    "j1_percent_header.csv": 4_800,
    "k1_mixed_step.csv": 140_970,
    "k2_dst_autumn.csv": 12_066,
}
# The way out of a refusal, and the requests that are then read.
WAYS_OUT: list[tuple[str, TableColumns, float]] = [
    ("A: thousands or decimals", TableColumns(decimal="point"), sum(1100 + i for i in range(N))),
    ("A: decimals or thousands", TableColumns(decimal="point"), 60 * sum(1.1 + i / 1000 for i in range(N))),
    ("B: fractions under no name", TableColumns(unit="per-second"), SUM),
    ("B: a ratio of rates", TableColumns(unit="per-hour"), sum(range(N)) / 60),
    ("C: a rise from nothing", TableColumns(unit="counter"), SUM - COUNTS[-1]),
    ("E: series in Prometheus", TableColumns(series="sum"), 2 * SUM),
    ("E: series in Prometheus", TableColumns(series="m"), 2 * SUM),
    ("E: series in Prometheus", TableColumns(series="m{pod=b}"), SUM),
    ("E: methods", TableColumns(series="POST"), SUM),
    ("E: kinds of requests", TableColumns(series="mobile requests"), SUM),
    ("A: a rounded counter", TableColumns(unit="counter"), 1e4 * round((SUM - COUNTS[-1]) / 1e4)),
    ("A: rounded to thousands", TableColumns(unit="count"), 1000 * N),
    ("B: CloudWatch's function", TableColumns(unit="per-second"), 60 * SUM),
    ("E: status codes", TableColumns(series="sum"), 2 * SUM),
    ("G: day or month", TableColumns(times=TimeForm("month-first")), SUM),
    ("G: letters for a zone", TableColumns(times=TimeForm(zone="Europe/Berlin")), SUM),
    ("G: years of two digits", TableColumns(times=TimeForm("%d.%m.%y %H:%M")), SUM),
    ("J: only status codes", TableColumns(count="status_2xx+status_5xx"), SUM + sum(i % 3 for i in range(N))),
    (
        "K: clocks set forward",
        TableColumns(times=TimeForm(zone="Europe/Berlin")),
        sum(COUNTS[i % N] for i in range(180) if not 60 <= i < 120),
    ),
]


def total(trace: Trace) -> float:
    return trace.total_counts(0.0, trace.duration_s)


def opened(folder: Path, text: str | bytes, columns: TableColumns = RECOGNISED, skip: BadLines = DEFAULT) -> Trace:
    path = folder / "traffic"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_trace(str(path), columns=columns, skip_bad_lines=skip)


@pytest.mark.parametrize("number", ["inf", "1e400", "1E+999"])
def test_infinite_number_is_missing(tmp_path: Path, number: str) -> None:
    rows = "".join(f"{at(i)},{number if i == 5 else n}\n" for i, n in enumerate(COUNTS))
    assert total(opened(tmp_path, "time,requests\n" + rows)) == SUM - COUNTS[5]


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_the_collection_is_read_right_or_refused(name: str) -> None:
    wanted = OWN[name]
    if isinstance(wanted, str):
        with pytest.raises(BadInput, match=wanted):
            open_trace(str(FILES / name))
    else:
        assert total(open_trace(str(FILES / name))) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("case", READ)
def test_a_table_with_one_reading_is_read(tmp_path: Path, case: str) -> None:
    text, wanted = READ[case]
    trace = opened(tmp_path, text)
    assert total(trace) == pytest.approx(wanted, rel=1e-4)
    assert trace.read.startswith("read ")


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_with_two_readings_is_refused_with_the_options(tmp_path: Path, case: str) -> None:
    text, what = REFUSED[case]
    with pytest.raises(BadInput, match=what) as refused:
        opened(tmp_path, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("header", "months", "days"),
    [
        ("month", ["2025-12", "2026-01", "2026-02", "2026-03"], 121),
        ("date", ["2025-12-01", "2026-01-01", "2026-02-01", "2026-03-01"], 121),
        ("month", ["2025-09", "2025-10", "2025-11", "2025-12", "2026-02"], 30 + 31 + 30 + 31 + 28),
        ("quarter", ["2025-Q2", "2025-Q3", "2025-Q4"], 275),
        ("quarter", ["2024-Q2", "2024-Q3", "2024-Q4", "2025-Q1", "2025-Q3"], 91 + 92 + 92 + 90 + 92),
        ("year", ["2023-01-01", "2024-01-01"], 731),
    ],
)
@pytest.mark.parametrize("zone", [None, "America/Los_Angeles"])
def test_rows_of_months_have_their_own_lengths(
    tmp_path: Path, header: str, months: list[str], days: int, zone: str | None
) -> None:
    text = f"{header},requests\n" + "".join(f"{month},{n}\n" for month, n in zip(months, COUNTS, strict=False))
    trace = opened(tmp_path, text, columns=TableColumns(times=TimeForm(zone=zone)))
    seen_s = trace.duration_s - sum(end - begin for begin, end in trace.gaps)
    assert seen_s == pytest.approx(86_400.0 * days, abs=7_200.0)  # clocks may be set within a row
    assert trace.duration_s == trace.series.ends_s[-1]


# Fields by which an answer says that it is not whole, and those that every whole answer may have.
PARTS: list[dict[str, object]] = [
    {"LastEvaluatedKey": {"k": 1}},
    {"continuationToken": "x"},
    {"pageToken": "x"},
    {"meta": {"cursor": "x"}},
    {"totalRows": "5000"},
    {"truncated": True},
    {"rowLimitExceeded": True},
    {"limitReached": True},
    {"partialSuccess": True},
    {"terminated_early": True},
    {"isPartialResponse": True},
    {"isComplete": False},
    {"jobComplete": False},
    {"status": "QUEUED"},
    {"sampled": True},
    {"samplingRate": 0.1},
]
WHOLES: list[dict[str, object]] = [
    {"cursor": None},
    {"has_more": False, "cursor": "x"},
    {"totalRows": str(N)},
    {"truncated": False, "timed_out": False},
    {"complete": True},
    {"status": "success"},
    {"samplingRate": 1.0},
]


@pytest.mark.parametrize("said", PARTS, ids=str)
def test_an_answer_that_says_that_it_is_a_part_is_refused(tmp_path: Path, said: dict[str, object]) -> None:
    rows = [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)]
    with pytest.raises(BadInput, match=r"other pages|not complete|still ran|sample of the requests"):
        opened(tmp_path, json.dumps({"data": rows, **said}))


@pytest.mark.parametrize(
    ("said", "way"),
    [({"cursor": "x"}, "write them one behind the other"), ({"meta": {"cursor": "x"}}, "join their rows")],
)
def test_way_out_of_a_page_is_one_that_works(tmp_path: Path, said: dict[str, object], way: str) -> None:
    """Pages one behind the other are read only if their token stands beside the rows."""
    rows = [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)]
    with pytest.raises(BadInput, match=way):
        opened(tmp_path, json.dumps({"data": rows, **said}))


@pytest.mark.parametrize("said", WHOLES, ids=str)
def test_an_answer_that_says_that_it_is_whole_is_read(tmp_path: Path, said: dict[str, object]) -> None:
    rows = [{"time": at(i), "requests": n} for i, n in enumerate(COUNTS)]
    assert total(opened(tmp_path, json.dumps({"data": rows, **said}))) == SUM


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_which_requests_it_counts(tmp_path: Path, name: str) -> None:
    text, wanted = values(name, lambda i: str(COUNTS[i])), NAMES[name]
    if isinstance(wanted, str):
        with pytest.raises(BadInput, match=wanted):
            opened(tmp_path, text)
    else:
        assert total(opened(tmp_path, text)) == pytest.approx(wanted * SUM, rel=1e-4)


@pytest.mark.parametrize(("case", "columns", "wanted"), WAYS_OUT)
def test_the_option_that_a_refusal_names_is_enough(
    tmp_path: Path, case: str, columns: TableColumns, wanted: float
) -> None:
    assert total(opened(tmp_path, REFUSED[case][0], columns)) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("case", ["F: three bad lines in 40", "F: a line cut short", "A: words between counts"])
def test_more_bad_lines_are_skipped_when_asked(tmp_path: Path, case: str) -> None:
    trace = opened(tmp_path, REFUSED[case][0], skip=BadLines.parse("10%"))
    assert any("cannot be read left out" in note for note in trace.notes)


def test_a_change_of_the_clocks_keeps_every_hour(tmp_path: Path) -> None:
    """The repeated hour counts as two hours, with a zone and without; the spring's missing hour is not a gap."""
    text = table("Time,requests", lambda i: f"2026-10-25 {BERLIN[i]},{COUNTS[i]}", len(BERLIN))
    berlin = TableColumns(times=TimeForm(zone="Europe/Berlin"))
    for columns in (RECOGNISED, berlin):
        trace = opened(tmp_path, text, columns)
        assert (trace.duration_s, trace.gaps, total(trace)) == (6 * 3600.0, (), sum(COUNTS[:6]))
    spring = opened(tmp_path, REFUSED["K: clocks set forward"][0], berlin)
    assert (spring.gaps, spring.duration_s) == ((), 7200.0)


def test_hours_in_digits_are_no_seconds(tmp_path: Path) -> None:
    """2026050110 is also a second of the year 2034, but 61 of them in a minute are not."""
    trace = opened(tmp_path, READ["G: hours in digits"][0])
    assert (trace.bin_s, trace.began_s) == (3600.0, T0)
    later = opened(tmp_path, table("time,requests", lambda i: f"{2_026_050_110 + 30 * i},{COUNTS[i]}"))
    assert (later.bin_s, later.began_s) == (30.0, 2_026_050_110)


def test_steps_that_change_leave_no_gap(tmp_path: Path) -> None:
    """Rows of five minutes become five bins, so that rates and the length are right."""
    trace = open_trace(str(FILES / "k1_mixed_step.csv"))
    assert (trace.duration_s, trace.gaps, trace.bin_s) == (8400.0, (), 60.0)


def test_utf_16_and_latin_1_are_text(tmp_path: Path) -> None:
    for encoding, wanted in (("utf-16", SUM), ("utf-16-le", None), ("cp1252", SUM)):
        text = values("requests", lambda i: f"{COUNTS[i]:,}".replace(",", "\u00a0"))
        if wanted is not None:
            assert total(opened(tmp_path, text.encode(encoding))) == wanted
        else:
            with pytest.raises(BadInput, match="binary"):
                opened(tmp_path, text.encode(encoding))


def test_days_of_excel_are_read_when_asked(tmp_path: Path) -> None:
    text = table("Time,requests", lambda i: f"{46143 + (600 + i) / 1440:.7f},{COUNTS[i]}")
    trace = opened(tmp_path, text, TableColumns(times=TimeForm("excel")))
    assert (total(trace), trace.began_s) == (pytest.approx(SUM), T0)


def test_days_of_excel_are_read(tmp_path: Path) -> None:
    """They have one step, any decimal sign and at least five decimals; whole days and other steps are refused."""
    days = [46143 + (600 + i) / 1440 for i in range(N)]
    for cell, separator in (("{:.10f}", ","), ("{:.5f}", ","), ("{:.8f}", ";")):
        cells = [cell.format(day) for day in days]
        comma = separator == ";"
        cells = [one.replace(".", ",") for one in cells] if comma else cells
        trace = opened(
            tmp_path, table(f"Zeit{separator}Anfragen", lambda i, c=cells, s=separator: f"{c[i]}{s}{COUNTS[i]}")
        )
        assert (total(trace), trace.began_s, trace.bin_s) == (SUM, T0, 60.0)
    for asked in ([46143 + i for i in range(N)], [46143 + (600 + i * i) / 1440 for i in range(N)]):
        with pytest.raises(BadInput, match=r"column Date: days of Excel\? Say `time_format` excel: 46143"):
            opened(tmp_path, table("Date,requests", lambda i, d=asked: f"{d[i]},{COUNTS[i]}"))
    with pytest.raises(BadInput, match="no column holds times"):
        opened(tmp_path, table("when,requests", lambda i: f"week {i},{40_000.5 + i / 2}"))


def test_a_total_with_a_time_is_asked_for(tmp_path: Path) -> None:
    text = values("requests", lambda i: str(COUNTS[i] if i < N - 1 else sum(COUNTS[: N - 1])))
    with pytest.raises(BadInput, match="the last row is the sum of the others: a total"):
        opened(tmp_path, text)
    assert total(opened(tmp_path, text, TableColumns(unit="count"))) == 2 * sum(COUNTS[: N - 1])
    small = values("requests", lambda i: str(39 if i == N - 1 else i % 3))
    assert total(opened(tmp_path, small)) == 78


def program_log(form: str) -> str:
    return "".join(
        form.format(datetime.fromtimestamp(T0 + i * i % 97 + 60 * i, UTC).strftime("%Y-%m-%dT%H:%M:%S"), i) + "\n"
        for i in range(N)
    )


PROGRAM_LOGS = {
    "logging's default": "{},123 INFO app.worker: batch {} took 7 ms",
    "with a comma": "{},123 - root - INFO - hello, user {}",
    "with bars": "{} | INFO | app:run:9 | hello {}",
    "JSON": '{{"ts": "{}Z", "level": "info", "logger": "app", "msg": "hello {}"}}',
}


@pytest.mark.parametrize("case", PROGRAM_LOGS)
def test_a_programs_own_log_is_no_table_of_requests(tmp_path: Path, case: str) -> None:
    text = program_log(PROGRAM_LOGS[case])
    with pytest.raises(BadInput, match="looks like a program's own log; `count_column` none"):
        opened(tmp_path, text)
    assert opened(tmp_path, text, TableColumns(count="none")).rows == N


def test_a_header_says_that_words_belong_to_requests(tmp_path: Path) -> None:
    text = program_log("{},POST,/predict/{}")
    with pytest.raises(BadInput, match="program's own log"):
        opened(tmp_path, text)
    assert opened(tmp_path, "time,method,path\n" + text).rows == N


def test_counters_of_instances_begin_at_zero(tmp_path: Path) -> None:
    """Instances are launched and end while the others go on, so each has its own rows."""
    pods = {
        "a": [(i, 70_000 + sum(COUNTS[: i + 1])) for i in range(N)],
        "b": [(i, sum(COUNTS[LIFE.start : i + 1])) for i in LIFE],
        "c": [(N - 1, COUNTS[N - 1])],
        "d": [(0, 900)],
    }
    result = [
        {"metric": {"__name__": "http_requests_total", "pod": pod}, "values": [[T0 + 60 * i, str(n)] for i, n in rows]}
        for pod, rows in pods.items()
    ]
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    read = total(opened(tmp_path, text, TableColumns(series="sum")))
    assert read == (SUM - COUNTS[0]) + sum(COUNTS[i] for i in LIFE) + COUNTS[N - 1]
