"""Random traffic in the files of common tools, with the requests in it: locales, units, gaps, zones and dirt."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

NAMES = ("requests", "Value", "http_requests", "hits", "count", "Anfragen", "RequestCount", "credit", "Total requests")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")


@dataclass(frozen=True, slots=True)
class Made:
    tool: str
    data: bytes
    requests: float  # in the rows that hold a number
    said: str  # the special trait of the file
    seconds: float | None = None  # from the first row to the end of the last, where no counter is read


@dataclass(frozen=True, slots=True)
class Minutes:
    """The begin, length and requests of each row; None if the tool has no number."""

    at: list[datetime]
    step_s: int
    counts: list[int | None]

    @property
    def requests(self) -> int:
        return sum(n for n in self.counts if n is not None)

    @property
    def seconds(self) -> float:
        known = [at for at, n in zip(self.at, self.counts, strict=True) if n is not None]
        return (known[-1] - known[0]).total_seconds() + self.step_s


def made(seed: int) -> Made:
    random = Random(seed)
    tool = random.choice(list(TOOLS))
    return TOOLS[tool](random)


def _minutes(random: Random, *, whole_days: bool = False) -> Minutes:
    step_s = random.choice([10, 60, 60, 60, 300, 900, 3600])
    rows = random.randint(25, 300)
    level = 10 ** random.uniform(0.5, 5.5)
    day = datetime(2026, random.randint(1, 12), random.randint(1, 28), tzinfo=UTC)
    if random.random() < 0.1:  # over a change of the clocks
        day = datetime(2026, *random.choice([(3, 29), (10, 25), (3, 8), (11, 1)]), tzinfo=UTC) - timedelta(hours=12)
    begin = day + timedelta(seconds=0 if whole_days else random.randrange(24) * 3600)
    at = [begin + timedelta(seconds=step_s * i) for i in range(rows)]
    shape = random.choice(["noise", "noise", "ramp", "flat"])
    counts: list[int | None] = []
    for i in range(rows):
        mean = level * (0.2 + i / rows if shape == "ramp" else 1.0)
        counts.append(max(0, round(random.gauss(mean, 0.0 if shape == "flat" else mean**0.5))))
    if random.random() < 0.15:  # rows that are not there
        first, length = random.randrange(rows // 2), random.randint(1, 10)
        del at[first : first + length], counts[first : first + length]
    if random.random() < 0.15:
        for _ in range(random.randint(1, 3)):
            counts[random.randrange(len(counts))] = None
    if not any(counts):
        counts[0] = 7
    return Minutes(at, step_s, counts)


# -- numbers and times as people write them ----------------------------------------------------------------------------

LOCALES: dict[str, Callable[[float, int], str]] = {
    "plain": lambda value, digits: f"{value:.{digits}f}",
    "English": lambda value, digits: f"{value:,.{digits}f}",
    "German": lambda value, digits: f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,")),
    "German without groups": lambda value, digits: f"{value:.{digits}f}".replace(".", ","),
    "French": lambda value, digits: f"{value:,.{digits}f}".translate(str.maketrans(",.", "\u202f,")),
    "Swiss": lambda value, digits: f"{value:,.{digits}f}".replace(",", "'"),
    "Swedish": lambda value, digits: f"{value:,.{digits}f}".translate(str.maketrans(",.", "\u00a0,")),
}


def _number(random: Random, locale: str) -> Callable[[float], str]:
    digits = random.choice([0, 0, 0, 2])
    return lambda value: LOCALES[locale](value, digits)


TIMES = {
    "ISO": "%Y-%m-%d %H:%M:%S",
    "ISO, T": "%Y-%m-%dT%H:%M:%S",
    "minutes": "%Y-%m-%d %H:%M",
    "German": "%d.%m.%Y %H:%M:%S",
    "American": "%m/%d/%Y %I:%M:%S %p",
    "British": "%d/%m/%Y %H:%M:%S",
    "Kibana": "%b %d, %Y @ %H:%M:%S.000",
    "RFC 2822": "%a, %d %b %Y %H:%M:%S +0000",
    "compact": "%Y%m%dT%H%M%S",
    "slashes": "%Y/%m/%d %H:%M:%S",
}


EXCEL_DAYS = "days of Excel"


def _table(rows: list[list[str]], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _dirty(random: Random, rows: list[list[str]], delimiter: str, total: str, said: list[str]) -> str:
    """Return the table's text with some of the lines that tools and people add."""
    rows = list(rows)
    dirt = random.choice([None] * 6 + ["total", "header", "comment", "cut", "sep", "blank", "words"])
    if dirt is not None:
        said.append(dirt)
    if dirt == "total":
        rows.append([random.choice(["Total", "Summe", "", "Grand Total"]), *[""] * (len(rows[0]) - 2), total])
    if dirt == "header":
        rows.insert(len(rows) // 2, rows[0])
    text = _table(rows, delimiter)
    if dirt == "cut":  # within the time of a further row
        text += text.rstrip("\n").rpartition("\n")[2][:6]
    if dirt == "comment":
        text = "# exported on Monday\n" + text
    if dirt == "sep":
        text = f"sep={delimiter}\n{text}"
    if dirt == "blank":
        text = text.replace("\n", "\n\n", 3)
    if dirt == "words":
        text += "End of report\n"
    return text


def _encoded(random: Random, text: str, said: list[str]) -> bytes:
    encoding = random.choice(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "cp1252"])
    if encoding != "utf-8":
        said.append(encoding)
    if random.random() < 0.2:
        text = text.replace("\n", "\r\n")
    return text.encode(encoding, "replace")


# -- tools -------------------------------------------------------------------------------------------------------------


def _spreadsheet(random: Random) -> Made:
    """Write a table as Excel or LibreOffice does: any locale, any date, sometimes columns other than counts."""
    minutes = _minutes(random)
    locale, form = random.choice(list(LOCALES)), random.choice([*TIMES, EXCEL_DAYS])
    delimiter = ";" if "German" in locale or locale in ("French", "Swedish") else random.choice([",", ",", "\t", ";"])
    if form == "minutes" and minutes.step_s < 60:
        form = "ISO"
    number, name = _number(random, locale), random.choice(NAMES)
    said = [locale, form, name]
    others: dict[str, Callable[[int], str]] = {}
    if random.random() < 0.3:
        others["avg latency ms"] = lambda i: number(30.0 + i % 7)
        others["p99"] = lambda i: number(90.0 + i % 11)
    if random.random() < 0.1:
        others["errors"] = lambda i: number(float(i % 3))
    zone = ZoneInfo(random.choice(ZONES)) if random.random() < 0.3 and form != "RFC 2822" else UTC
    rows = [["Time", name, *others]]
    for i, (at, n) in enumerate(zip(minutes.at, minutes.counts, strict=True)):
        cell = random.choice(["", "-", "n/a", "#N/A", "#DIV/0!"]) if n is None else number(float(n))
        clock = at.astimezone(zone)
        if form == EXCEL_DAYS:
            days = (clock.replace(tzinfo=UTC) - datetime(1899, 12, 30, tzinfo=UTC)) / timedelta(days=1)
            shown = f"{days:.6f}".replace(".", "," if "German" in locale or locale == "French" else ".")
        else:
            shown = clock.strftime(TIMES[form])
        rows.append([shown, cell, *(make(i) for make in others.values())])
    if str(zone) != "UTC":
        said.append(str(zone))
    text = _dirty(random, rows, delimiter, number(float(minutes.requests)), said)
    return Made("spreadsheet", _encoded(random, text, said), minutes.requests, ", ".join(said), minutes.seconds)


def _grafana(random: Random) -> Made:
    """Return the text of "Inspect, Data, Download CSV": the legend is the query; formatted data have units."""
    minutes = _minutes(random)
    kind = random.choice(["rate", "increase", "formatted", "formatted K", "legend", "latency", "counter", "wide"])
    said = [kind]
    rates = [None if n is None else n / minutes.step_s for n in minutes.counts]
    requests = float(minutes.requests)
    if kind == "rate":
        query = random.choice(["rate", "irate"])
        name = f'sum by (job) ({query}(http_requests_total{{job="credit"}}[5m]))'
        cells = ["" if rate is None else repr(rate) for rate in rates]
    elif kind == "increase":
        window = random.choice([minutes.step_s, 300])
        name = f"sum(increase(http_requests_total[{window}s]))"
        cells = ["" if n is None else repr(n * window / minutes.step_s) for n in minutes.counts]
    elif kind == "formatted":
        unit = random.choice(["req/s", "reqps", "rps", "requests/sec"])
        name = random.choice(["credit", "Value", "requests"])
        cells = ["undefined" if rate is None else f"{rate:.4f} {unit}" for rate in rates]
        requests = sum(float(cell.split()[0]) * minutes.step_s for cell in cells if cell != "undefined")
    elif kind == "formatted K":
        name = random.choice(["requests", "Value"])
        cells = ["" if n is None else f"{n / 1e3:.2f}K" if n >= 1000 else str(n) for n in minutes.counts]
        requests = sum(float(c[:-1]) * 1e3 if c.endswith("K") else float(c or 0.0) for c in cells)
    elif kind == "latency":
        name = random.choice(["p99 latency", "avg", "CPU %", "response time"])
        cells = [str(20 + i % 9) for i in range(len(minutes.at))]
        requests = 0.0  # the file has no requests
    elif kind == "counter":
        name = random.choice(["http_requests_total", "Value", "requests", "http_request_duration_seconds_count"])
        start = random.choice([0, 10 ** random.randint(5, 8)])
        sums = [start + sum(n or 0 for n in minutes.counts[: i + 1]) for i in range(len(minutes.at))]
        cells = list(map(str, sums))
        # Rows that are not there are gaps, and their increase is not counted.
        step = timedelta(seconds=minutes.step_s)
        requests = float(
            sum(sums[i + 1] - sums[i] for i in range(len(sums) - 1) if minutes.at[i + 1] - minutes.at[i] == step)
        )
    else:
        name = random.choice(NAMES)
        cells = ["" if n is None else str(n) for n in minutes.counts]
    stamp = random.choice(["ISO", "epoch"])
    times = [
        at.strftime("%Y-%m-%d %H:%M:%S") if stamp == "ISO" else str(round(at.timestamp() * 1e3)) for at in minutes.at
    ]
    rows = [["Time", name], *(list(row) for row in zip(times, cells, strict=True))]
    if kind == "wide":
        rows = [[*rows[0], f"{name} of another service"], *([*row, row[1]] for row in rows[1:])]
        requests = -1.0  # may only be refused
    text = _table(rows, ",") if kind == "counter" else _dirty(random, rows, ",", str(requests), said)
    return Made("Grafana", _encoded(random, text, [*said]), requests, ", ".join([*said, name]))


def _prometheus(random: Random) -> Made:
    minutes = _minutes(random)
    kind = random.choice(["counter", "counter", "rate", "several", "histogram"])
    times = [at.timestamp() for at in minutes.at]
    sums, total = [], random.choice([0, 10**6])
    for n in minutes.counts:
        total += n or 0
        sums.append(total)
    requests = float(
        sum(b - a for a, b, s, t in zip(sums, sums[1:], times, times[1:], strict=False) if t - s == minutes.step_s)
    )
    if random.random() < 0.2 and kind in ("counter", "histogram"):  # a restart
        half = len(sums) // 2
        before = sums[half - 1]
        sums = [n if i < half else n - before for i, n in enumerate(sums)]
    name = {
        "counter": random.choice(["http_requests_total", "nv_inference_request_success", "served"]),
        "histogram": "request_duration_seconds_count",
    }.get(kind)
    values: list[float] = list(map(float, sums))
    if kind == "rate":
        values = [(n or 0) / minutes.step_s for n in minutes.counts]
        requests = -1.0
    metric = {"__name__": name} if name else {}
    series = [{"metric": metric, "values": [[at, repr(value)] for at, value in zip(times, values, strict=True)]}]
    if kind == "several":
        series = [dict(series[0], metric={"pod": pod}) for pod in ("a", "b")]
        requests = -1.0
    text = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})
    return Made("Prometheus", text.encode(), requests, f"{kind}, {name}")


def _cloudwatch(random: Random) -> Made:
    minutes = _minutes(random)
    form = random.choice(["statistics", "data", "several", "page"])
    label = random.choice(["RequestCount", "Invocations", "TargetResponseTime", "CPUUtilization"])
    known = [(at, n) for at, n in zip(minutes.at, minutes.counts, strict=True) if n is not None]
    requests = float(sum(n for _, n in known)) if label in ("RequestCount", "Invocations") else -1.0
    if form == "statistics":
        wanted = random.sample(["Sum", "Average", "SampleCount", "Maximum"], random.randint(1, 3))
        units = {"TargetResponseTime": "Seconds", "CPUUtilization": "Percent"}
        points = [
            {"Timestamp": at.strftime("%Y-%m-%dT%H:%M:%S+00:00"), "Unit": units.get(label, "Count")}
            | {
                stat: {"Sum": float(n), "Average": 1.0, "SampleCount": float(n), "Maximum": 1.0}[stat]
                for stat in wanted
            }
            for at, n in known
        ]
        if "SampleCount" in wanted and label == "TargetResponseTime":
            requests = float(sum(n for _, n in known))
        random.shuffle(points)
        return Made(
            "CloudWatch", json.dumps({"Label": label, "Datapoints": points}).encode(), requests, f"{wanted} {label}"
        )
    series = {
        "Id": "m1",
        "Label": label,
        "StatusCode": "Complete",
        "Timestamps": [at.isoformat() for at, _ in known][::-1],
        "Values": [float(n) for _, n in known][::-1],
    }
    if form == "page":
        requests = -1.0
        token = random.choice([True, False])
        answer = {"MetricDataResults": [series | ({} if token else {"StatusCode": "PartialData"})]} | (
            {"NextToken": "x"} if token else {}
        )
        return Made("CloudWatch", json.dumps(answer).encode(), requests, form)
    found = [series] if form == "data" else [series, series | {"Id": "m2", "Label": "HTTPCode_Target_2XX_Count"}]
    return Made("CloudWatch", json.dumps({"MetricDataResults": found}).encode(), requests, f"{form} {label}")


def _datadog(random: Random) -> Made:
    minutes = _minutes(random)
    per = random.choice([None, "second", "minute"])
    size = {None: 1.0, "second": 1.0 / minutes.step_s, "minute": 60.0 / minutes.step_s}[per]
    unit = [{"name": "request"}, None if per is None else {"name": per}]
    points = [
        [at.timestamp() * 1e3, None if n is None else n * size]
        for at, n in zip(minutes.at, minutes.counts, strict=True)
    ]
    one = {
        "metric": random.choice(["trace.web.request.hits", "aws.applicationelb.request_count"]),
        "unit": unit,
        "pointlist": points,
    }
    return Made(
        "Datadog",
        json.dumps({"status": "ok", "series": [one]}).encode(),
        minutes.requests,
        f"per {per}",
        minutes.seconds,
    )


def _k6(random: Random) -> Made:
    at, rows, requests = 1_777_629_600.0, [], 0
    for _ in range(random.randint(50, 2000)):
        at += random.expovariate(random.choice([0.5, 3.0, 30.0]))
        stamp = str(int(at))
        requests += 1
        rows += [
            ["http_reqs", stamp, "1.000000", "200"],
            ["http_req_duration", stamp, f"{random.uniform(20, 90):.6f}", "200"],
        ]
        if random.random() < 0.1:
            rows.append(["vus", stamp, "10.000000", ""])
    return Made(
        "k6", _table([["metric_name", "timestamp", "metric_value", "status"], *rows], ",").encode(), requests, ""
    )


def _k6_json(random: Random) -> Made:
    at, lines, requests = datetime(2026, 5, 1, 10, tzinfo=UTC), [], random.randint(50, 1000)
    declared = {"type": "Metric", "data": {"name": "http_reqs", "type": "counter"}, "metric": "http_reqs"}
    for _ in range(requests):
        at += timedelta(seconds=random.expovariate(3.0))
        for name, value in (("http_reqs", 1), ("http_req_duration", 31.7), ("vus", 5)):
            if name != "vus" or random.random() < 0.1:
                data = {"time": at.isoformat(), "value": value, "tags": {"status": "200", "method": "POST"}}
                lines.append({"type": "Point", "data": data, "metric": name})
    text = "".join(json.dumps(line) + "\n" for line in [declared, *lines])
    return Made("k6 JSON", text.encode(), requests, "")


def _locust(random: Random) -> Made:
    """Return the text of `--csv`: a row a second, and requests so far.

    `--csv-full-history` adds a row for each name.
    """
    full = random.random() < 0.5
    rows, total = [["Timestamp", "User Count", "Type", "Name", "Requests/s", "Failures/s", "50%", "99%"]], 0.0
    for second in range(random.randint(30, 200)):
        rate = random.uniform(20.0, 90.0)
        total += rate
        stamp = str(1_777_629_600 + second)
        for kind, name, share in [("GET", "/a", 0.25), ("POST", "/b", 0.75)] if full else []:
            rows.append([stamp, "10", kind, name, repr(rate * share), "0.0", "12", "40"])
        rows.append([stamp, "10", "", "Aggregated", repr(rate), "0.0", "12", "40"])
    return Made("Locust", _table(rows, ",").encode(), total, "full" if full else "")


def _insights(random: Random) -> Made:
    """Return the JSON of `aws logs get-query-results`: `stats count() by bin(1m)`."""
    minutes = _minutes(random)
    status = random.choice(["Complete", "Complete", "Complete", "Running"])
    rows = [
        [{"field": "bin", "value": at.strftime("%Y-%m-%d %H:%M:%S.000")}, {"field": "requests", "value": str(n)}]
        for at, n in zip(minutes.at, minutes.counts, strict=True)
        if n is not None
    ]
    random.shuffle(rows)
    text = json.dumps({"results": rows, "statistics": {"recordsMatched": 9.0}, "status": status})
    requests = minutes.requests if status == "Complete" else -1.0
    return Made("Logs Insights", text.encode(), requests, status, minutes.seconds if status == "Complete" else None)


def _elasticsearch(random: Random) -> Made:
    minutes = _minutes(random)
    known = [(at, n) for at, n in zip(minutes.at, minutes.counts, strict=True) if n is not None]
    split, failed = random.random() < 0.2, random.random() < 0.2
    buckets: list[dict[str, object]] = [
        {"key_as_string": at.isoformat(), "key": round(at.timestamp() * 1e3), "doc_count": n} for at, n in known
    ]
    if split:
        buckets = [one | {"by": {"buckets": [{"key": 200, "doc_count": 1}]}} for one in buckets]
    shards = {"total": 5, "successful": 5 - failed, "failed": int(failed)}
    answer = {"took": 3, "timed_out": False, "_shards": shards, "aggregations": {"per": {"buckets": buckets}}}
    requests, seconds = (-1.0, None) if failed else (minutes.requests, minutes.seconds)
    return Made("Elasticsearch", json.dumps(answer).encode(), requests, f"{split} {failed}", seconds)


def _postgres(random: Random) -> Made:
    minutes = _minutes(random)
    name = random.choice(["requests", "count", "n", "sum"])
    offset = random.choice(["+00", "+00:00", "", "+02", "+05:30"])
    hours = {"+02": 2.0, "+05:30": 5.5}.get(offset, 0.0)
    rows = [["bucket", name]]
    for at, n in zip(minutes.at, minutes.counts, strict=True):
        rows.append([(at + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M:%S") + offset, "" if n is None else str(n)])
    said = [name, offset]
    if random.random() < 0.3:
        text = "\n".join(
            [" bucket | " + name, "--------+-------", *(f" {a} | {b}" for a, b in rows[1:]), f"({len(rows) - 1} rows)"]
        )
    else:
        text = _dirty(random, rows, ",", str(minutes.requests), said)
    return Made("PostgreSQL", text.encode(), minutes.requests, ", ".join(said), minutes.seconds)


def _kibana(random: Random) -> Made:
    minutes = _minutes(random)
    locale = random.choice(["plain", "English"])
    said = [locale]
    rows = [[f"@timestamp per {minutes.step_s} seconds", "Count of records"]]
    for at, n in zip(minutes.at, minutes.counts, strict=True):
        rows.append([at.strftime("%b %-d, %Y @ %H:%M:%S.000"), "-" if n is None else LOCALES[locale](n, 0)])
    if random.random() < 0.3:  # the default of Lens splits by a field
        said.append("split")
        rows = [
            [rows[0][0], "status", rows[0][1]],
            *([row[0], code, row[1]] for row in rows[1:] for code in ("200", "404")),
        ]
        return Made("Kibana", _table(rows, ",").encode(), -1.0, ", ".join(said))
    return Made(
        "Kibana",
        _dirty(random, rows, ",", str(minutes.requests), said).encode(),
        minutes.requests,
        ", ".join(said),
        minutes.seconds,
    )


TOOLS: dict[str, Callable[[Random], Made]] = {
    "spreadsheet": _spreadsheet,
    "Grafana": _grafana,
    "Prometheus": _prometheus,
    "CloudWatch": _cloudwatch,
    "Datadog": _datadog,
    "k6": _k6,
    "k6 JSON": _k6_json,
    "Locust": _locust,
    "Logs Insights": _insights,
    "Elasticsearch": _elasticsearch,
    "PostgreSQL": _postgres,
    "Kibana": _kibana,
}


# -- kinds of trouble --------------------------------------------------------------------------------------------------

UNITS = {
    "requests (k)": (1e-3, 0.0),
    "requests in thousands": (1e-3, 0.0),
    "requests [k]": (1e-3, 0.0),
    "requests (Mio)": (1e-6, 0.0),
    "Anfragen (Tsd.)": (1e-3, 0.0),
    "hits 10^3": (1e-3, 0.0),
    "Krps": (1e-3, 1.0),
    "kreq/min": (1e-3, 60.0),
    "k requests per hour": (1e-3, 3600.0),
    "req/min": (1.0, 60.0),
    "Zugriffe je Minute": (1.0, 60.0),
    "Anfragen/Std": (1.0, 3600.0),
    "requests/h": (1.0, 3600.0),
    "requests per day": (1.0, 86_400.0),
    "requests per 30s": (1.0, 30.0),
}
# Names of numbers that are no requests of a known unit.
OTHERS = (
    *("rps x1000", "requests per 10k users", "Requests per sec (avg)", "req/s (max)", "requests/s per node"),
    *("requests vs last week", "\u0394 requests", "requests, log scale", "log2(rps)", "requests (ln)", "requests_norm"),
    *("requests - 1h avg", "% requests", "requests forecast", "share of requests", "requests index", "requests 1:100"),
    *("requests per 1k", "sampled requests", "requests_ma7", "requests remaining", "num_requests_running", "log_rps"),
)


def made_kind(seed: int) -> Made:
    random = Random(seed)
    return random.choice(KINDS)(random)


def _two_columns(random: Random, at: list[datetime], name: str, cells: list[str]) -> bytes:
    form = random.choice(["ISO", "ISO, T", "German"])
    rows = [[moment.strftime(TIMES[form]), cell] for moment, cell in zip(at, cells, strict=True)]
    return _table([["Time", name], *rows], ",").encode()


def _between(minutes: Minutes, counts: list[int]) -> float:
    """Return the increases between rows without a gap."""
    step = timedelta(seconds=minutes.step_s)
    rows = zip(minutes.at, minutes.at[1:], counts[1:], strict=False)
    return float(sum(n for before, at, n in rows if at - before == step))


def _overflow(random: Random) -> Made:
    minutes = _minutes(random)
    counts = [n or 0 for n in minutes.counts]
    width = random.choice([2**31, 2**32] if max(counts) > 3000 else [2**16, 2**31, 2**32])
    last = width - random.randrange(1, max(2, sum(counts)))
    sums = []
    for n in counts:
        last = (last + n) % width
        sums.append(str(last))
    name = random.choice(["requests_total", "http_requests_total", "served_total"])
    data = _two_columns(random, minutes.at, name, sums)
    return Made("overflow", data, _between(minutes, counts), f"{width}, {name}")


def _restart_of_one(random: Random) -> Made:
    """Return the sum of several counters, of which one restarts: its increase is lost."""
    minutes = _minutes(random)
    pods = random.randint(2, 5)
    sums = [random.randrange(1_000_000) for _ in range(pods)]
    restart = random.randrange(len(minutes.at) // 3, 2 * len(minutes.at) // 3)
    increases, cells = [], []
    for i, n in enumerate(minutes.counts):
        sums[0] = 0 if i == restart else sums[0]
        each = [max(0, round(random.gauss(n or 0, 1.0))) for _ in range(pods)]
        sums = [a + b for a, b in zip(sums, each, strict=True)]
        increases.append(sum(each))
        cells.append(str(sum(sums)))
    name = random.choice(["requests_total", "Value", "requests"])
    data = _two_columns(random, minutes.at, name, cells)
    return Made("restart of one", data, _between(minutes, increases), f"{pods}, {name}")


def _sums_so_far(random: Random) -> Made:
    """Return few requests, summed. Fewer than six rows may be in this order by accident."""
    minutes = _minutes(random)
    rows = random.randint(6, 24)
    minutes = Minutes(minutes.at[:rows], minutes.step_s, minutes.counts[:rows])
    mean = random.choice([0.5, 1.0, 2.0, 5.0, 20.0])
    counts = [sum(random.random() < mean / 50.0 for _ in range(50)) for _ in range(rows)]
    counts[rows // 3], counts[2 * rows // 3] = counts[rows // 3] + 1, counts[2 * rows // 3] + 1
    cells = [str(sum(counts[: i + 1])) for i in range(rows)]
    name = random.choice(["requests", "Value", "count", "hits", "requests so far", "cumulative hits"])
    return Made("sums so far", _two_columns(random, minutes.at, name, cells), _between(minutes, counts), name)


def _unit(random: Random) -> Made:
    minutes = _minutes(random)
    if random.random() < 0.4:
        name = random.choice(OTHERS)
        cells = [f"{math.log1p(n or 0):.3f}" if "log" in name else str(n or 0) for n in minutes.counts]
        return Made("unit", _two_columns(random, minutes.at, name, cells), -1.0, name)
    name, (times, per_s) = random.choice(list(UNITS.items()))
    size = times * (per_s / minutes.step_s if per_s else 1.0)
    cells = [f"{(n or 0) * size:.9f}" for n in minutes.counts]
    return Made("unit", _two_columns(random, minutes.at, name, cells), float(minutes.requests), name)


def _ratings(random: Random) -> Made:
    rows = random.randint(20, 900)
    per_s = random.choice([1, 1000])
    at = sorted(random.randrange(1_600_000_000, 1_600_000_000 + 500 * rows) * per_s for _ in range(rows))
    head = random.choice([["userId", "movieId", "rating"], ["event_id", "score"], ["user", "item", "plays"], ["stars"]])
    body = [[*(str(random.randint(1, 5)) for _ in head), str(moment)] for moment in at]
    return Made("ratings", _table([[*head, "timestamp"], *body], ",").encode(), -1.0, ", ".join(head))


def _stated(random: Random) -> Made:
    """Return counts beside a statement about them: in a column, a comment, a title, or below the header."""
    minutes = _minutes(random)
    counts = [n or 0 for n in minutes.counts]
    span = random.choice([minutes.step_s, 5 * minutes.step_s])
    key, value, factor = random.choice(
        [
            *(("unit", unit, float(minutes.step_s)) for unit in ("req/s", "Count/Second", "rps")),
            *(("unit", unit, 1000.0) for unit in ("thousands", "Tsd.")),
            ("unit", random.choice(["ms", "Bytes", "%", "widgets"]), -1.0),
            ("unit", random.choice(["Count", "requests", "None"]), 1.0),
            (random.choice(["stat", "aggregation"]), random.choice(["Average", "p99", "max", "Sample Count"]), -1.0),
            (random.choice(["Statistic", "stat"]), random.choice(["Sum", "total"]), 1.0),
            (random.choice(["Period", "interval", "step"]), str(span), 1.0 if span == minutes.step_s else -1.0),
            (random.choice(["sample_rate", "sampling"]), random.choice(["0.1", "1:100", "10%"]), -1.0),
            (random.choice(["service", "region", "exported by"]), random.choice(["shop", "eu-west-1"]), 1.0),
        ]
    )
    rows = [[at.strftime(TIMES["ISO"]), str(n)] for at, n in zip(minutes.at, counts, strict=True)]
    where = random.choice(["column", "comment", "title", "below"] if key == "unit" else ["column", "comment", "title"])
    head = [["time", "requests"]]
    if where == "column":
        head, rows = [["time", "requests", key]], [[*row, value] for row in rows]
    elif where == "title":
        head = [[key, value], *head]
    elif where == "below":
        head = [*head, ["", value]]
    text = (f"# {key}: {value}\n" if where == "comment" else "") + _table(head + rows, ",")
    requests = float(sum(counts)) * factor if factor > 0.0 else -1.0
    return Made("stated", text.encode(), requests, f"{key} {value} in {where}")


def _rounded(random: Random) -> Made:
    """Return numbers with few digits: of counts they are rounded a little, of a counter they are not known."""
    minutes = _minutes(random)
    counts = [n or 0 for n in minutes.counts]
    digits = random.choice([0, 1, 2, 3])
    if random.random() < 0.5:
        start = 10 ** random.randint(6, 9)
        sums = [start + sum(counts[: i + 1]) for i in range(len(counts))]
        scientific = random.random() < 0.5
        cells = [f"{n:.{digits}E}" if scientific else f"{n / 1e6:.{digits}f} Mil" for n in sums]
        return Made(
            "rounded", _two_columns(random, minutes.at, "requests_total", cells), _between(minutes, counts), "sums"
        )
    cells = [f"{n:.{digits}e}" if n else "0" for n in counts]
    return Made("rounded", _two_columns(random, minutes.at, "requests", cells), float(sum(counts)), f"{digits}")


def _twice(random: Random) -> Made:
    """Return a log with a copy of a part of itself, several lines for each request, or health checks."""
    at, lines = datetime(2026, 5, 1, 10, tzinfo=UTC), []
    rows, kind = random.randint(60, 600), random.choice(["plain", "copy", "steps", "checks", "sampled"])
    for i in range(rows):
        at += timedelta(seconds=random.expovariate(random.choice([0.5, 3.0])))
        one = {"time": at.isoformat(), "client": f"10.0.0.{random.randrange(200)}", "path": "/predict", "status": 200}
        if kind == "checks" and i % 5 == 0:
            one |= {"path": random.choice(["/ping", "/healthz"])}
        if kind == "sampled":
            one |= {random.choice(["sampleRate", "itemCount"]): 10}
        steps = ("scored", "stored", "told") if kind == "steps" else ("",)
        lines += [one | ({"request_id": f"{i:08x}", "step": step} if step else {}) for step in steps]
    if random.random() < 0.5:
        texts = [json.dumps(line) + "\n" for line in lines]
    else:
        names = list(lines[0])
        texts = [",".join(map(str, line.values())) + "\n" for line in lines]
        texts[0] = ",".join(names) + "\n" + texts[0]
    if kind == "copy":
        texts += texts[random.randrange(1, rows - 40) :]
    # Health checks in a table of paths are rows as others.
    refused = kind in ("copy", "steps", "sampled") or (kind == "checks" and texts[0].startswith("{"))
    return Made("twice", "".join(texts).encode(), -1.0 if refused else float(rows), kind)


def _documents(random: Random) -> Made:
    """Return names of columns beside rows or columns of values, as APIs do."""
    minutes = _minutes(random)
    counts = [n or 0 for n in minutes.counts]
    epoch = [round(at.timestamp() * 1e3) for at in minutes.at]
    rate = random.random() < 0.5
    numbers = [n / minutes.step_s for n in counts] if rate else counts
    rows = [[at.strftime("%Y-%m-%dT%H:%M:%SZ"), n] for at, n in zip(minutes.at, numbers, strict=True)]
    name = "requests/s" if rate else "requests"
    fields = [{"name": "time"}, {"name": name}]
    document: object = random.choice(
        [
            {"results": [{"series": [{"name": "http", "columns": ["time", name], "values": rows}]}]},
            {"columns": fields, "rows": rows},
            {"tables": [{"name": "PrimaryResult", "columns": fields, "rows": rows}]},
            {"meta": fields, "data": rows, "rows": len(rows)},
            {"results": {"A": {"frames": [{"schema": {"fields": fields}, "data": {"values": [epoch, numbers]}}]}}},
            [{"schema": {"fields": fields}, "data": {"values": [epoch, numbers]}}],
        ]
    )
    return Made("documents", json.dumps(document).encode(), float(sum(counts)), name)


KINDS = (_overflow, _restart_of_one, _sums_so_far, _unit, _ratings, _stated, _rounded, _twice, _documents)
