"""Logs made at random: a format, a disorder, dirt and files, with the number of requests that each must be read as."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import zstandard

from mark.traffic.traces.table_files import TableColumns
from mark.traffic.traces.times import TimeForm
from tests.traffic.traces.files import ALB_LINE

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
NOISE = (
    "?",
    "Killed",
    "Segmentation fault (core dumped)",
    "{",
    '{"level": "warn", "msg": "slow"}',
    "Total,300",
    "\x1b[31merror\x1b[0m",
    "Traceback (most recent call last):",
    '"',
    "ÄÖÜ " * 40,
)
STARTS = (
    ["/docker-entrypoint.sh: Configuration complete; ready for start up"] * 6,
    ["2026/05/01 10:00:00 [notice] 1#1: start worker processes"] * 4,
    [" * Serving Flask app 'app'", " * Debug mode: off", "Press CTRL+C to quit"],
    ["INFO:     Started server process [1]", "INFO:     Application startup complete."],
    ["[2026-05-01 10:00:00 +0000] [7] [INFO] Listening at: http://0.0.0.0:8000 (7)"],
    ["waiting for postgres", "model loaded"],
)


@dataclass(frozen=True, slots=True)
class MadeLog:
    """A log in files, from which exactly `requests` must be read, unless it is refused."""

    path: Path
    columns: TableColumns
    requests: int
    came: list[float]
    step_s: float  # how precisely the format shows times
    what: str


def _alb(at: datetime, k: int, rng: Random) -> str:
    created = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    agent = rng.choice(("curl/7.46.0", 'a \\"quoted\\" agent', "-"))
    return ALB_LINE.format(kind=rng.choice(("http", "h2", "grpcs")), answered=created, agent=agent, created=created)


def _classic(at: datetime, k: int, rng: Random) -> str:
    return (
        f"{at.strftime('%Y-%m-%dT%H:%M:%S.%fZ')} lb 192.168.131.39:2817 {rng.choice(('10.0.0.1:80', '-'))} 0.000073 "
        f"{rng.choice(('0.001', '-1'))} 0.000057 200 {rng.choice(('200', '-'))} 0 {k} "
        '"GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -\n'
    )


def _combined(at: datetime, k: int, rng: Random) -> str:
    zone = ZoneInfo(rng.choice(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")))
    shown = at.astimezone(zone).strftime("%d/%b/%Y:%H:%M:%S %z")
    return f'192.0.2.{k % 9} - - [{shown}] "POST /p?k={k} HTTP/1.1" {rng.choice((200, 502))} 12 "-" "curl/8 [x]"\n'


def _ingress(at: datetime, k: int, rng: Random) -> str:
    line = _combined(at, k, rng)[:-1]
    return f"{line} 512 0.003 [default-web-80] [] 10.1.2.3:80 12 0.004 200 {rng.getrandbits(128):032x}\n"


def _milliseconds(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%d/%b/%Y:%H:%M:%S,") + f"{at.microsecond // 1000:03}"
    return f'192.0.2.{k % 9} - - [{shown} +0000] "GET /{k} HTTP/2.0" 200 12 "-" "-"\n'


def _flask(at: datetime, k: int, rng: Random) -> str:
    return f'10.0.0.{k % 9} - - [{at.strftime("%d/%b/%Y %H:%M:%S")}] "POST /predict HTTP/1.1" 200 -\n'


def _haproxy(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%d/%b/%Y:%H:%M:%S.") + f"{at.microsecond // 1000:03}"
    timers = rng.choice(("10/0/30/69/109", "-1/-1/-1/-1/+7", "0/0/1/2/3"))
    return (
        f"{at.strftime('%b %d %H:%M:%S')} lb haproxy[1]: 10.0.1.2:33317 [{shown}] http-in~ static/srv1 {timers} 200 "
        '2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu|} "GET /index.html HTTP/1.1"\n'
    )


def _uvicorn(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%Y-%m-%d %H:%M:%S,") + f"{at.microsecond // 1000:03}"
    return f'{shown} INFO:     127.0.0.1:{k} - "GET /{k} HTTP/1.1" 200 OK\n'


def _envoy_text(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
    return f'[{shown}] "POST /api/{k} HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "{k}"\n'


def _envoy(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"
    agent = rng.choice(("curl", 'a "quoted" {agent', "-"))
    return (
        json.dumps({"start_time": shown, "method": "GET", "path": f"/{k}", "response_code": 200, "agent": agent}) + "\n"
    )


def _caddy(at: datetime, k: int, rng: Random) -> str:
    request = {"method": "GET", "uri": f"/{k}", "headers": {"Ts": ["1"]}}
    row = {"level": "info", "ts": at.timestamp(), "msg": "handled request", "request": request, "status": 200}
    return json.dumps(row, separators=(",", ":")) + "\n"


def _docker(at: datetime, k: int, rng: Random) -> str:
    return json.dumps({"log": _uvicorn(at, k, rng), "stream": "stdout", "time": at.isoformat()}) + "\n"


def _iis(at: datetime, k: int, rng: Random) -> str:
    return f"{at.strftime('%Y-%m-%d %H:%M:%S')} 10.0.0.1 GET /{k} - 443 - 192.0.2.1 curl/8 200 0 0 15\n"


def _cloudfront(at: datetime, k: int, rng: Random) -> str:
    return at.strftime("%Y-%m-%d\t%H:%M:%S") + f"\tFRA56-P1\t{k}\t192.0.2.1\tGET\td.example\t/{k}\t200\n"


def _ltsv(at: datetime, k: int, rng: Random) -> str:
    shown = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    labels = ["host:192.0.2.1", "req:POST /predict HTTP/1.1", f"status:{rng.choice((200, 503))}", f"reqtime:0.0{k % 9}"]
    rng.shuffle(labels)
    return "\t".join(rng.sample([f"time:[{shown}]", *labels], 5)) + "\n"


def _nginx_json(at: datetime, k: int, rng: Random) -> str:
    row = {"time_iso8601": at.strftime("%Y-%m-%dT%H:%M:%S+00:00"), "msec": f"{at.timestamp():.3f}"}
    return json.dumps(row | {"request": f"GET /{k} HTTP/1.1", "status": "200", "request_time": "0.003"}) + "\n"


def _traefik_json(at: datetime, k: int, rng: Random) -> str:
    logged = at + timedelta(seconds=rng.random())
    row = {
        "ClientAddr": "192.0.2.1:40000",
        "DownstreamStatus": 200,
        "Duration": k,
        "RequestMethod": "POST",
        "RequestPath": f"/{k}",
        "StartLocal": at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z"),
        "StartUTC": at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z"),
        "level": "info",
        "msg": "",
        "time": logged.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps(row, separators=(",", ":")) + "\n"


def _traefik(at: datetime, k: int, rng: Random) -> str:
    return f'{_combined(at, k, rng)[:-1]} {k} "web@docker" "http://10.0.0.2:80" 3ms\n'


def _google(at: datetime, k: int, rng: Random) -> str:
    request = {"requestMethod": "GET", "requestUrl": f"https://example.com/{k}", "status": 200, "latency": "0.031s"}
    received = (at + timedelta(seconds=1.0 + rng.random())).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    row = {"httpRequest": request, "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "receiveTimestamp": received}
    return json.dumps({"insertId": f"{k:x}", **row}) + "\n"


def _s3(at: datetime, k: int, rng: Random) -> str:
    return (
        f"79a59df900b949e5 bucket [{at.strftime('%d/%b/%Y:%H:%M:%S +0000')}] 192.0.2.3 - 3E57427F3EXAMPLE "
        f'REST.GET.OBJECT k{k} "GET /bucket/k{k} HTTP/1.1" 200 - 113 113 7 5 "-" "S3Console/0.4" - Xhost= SigV4 '
        "ECDHE-RSA-AES128-GCM-SHA256 AuthHeader bucket.s3.us-west-1.amazonaws.com TLSv1.2\n"
    )


def _virtual_host(at: datetime, k: int, rng: Random) -> str:
    return f"www.example.com:443 {_combined(at, k, rng)[:-1]} {rng.randrange(10**6)}\n"


IIS_HEAD = (
    "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2026-05-01 10:00:00\n"
    "#Fields: date time "
    "s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) sc-status sc-substatus "
    "sc-win32-status time-taken\n"
)
CLOUDFRONT_HEAD = (
    "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status\n"
)
FORMATS: dict[str, tuple[Callable[[datetime, int, Random], str], float, str]] = {
    "ALB": (_alb, 1e-6, ""),
    "classic ELB": (_classic, 1e-6, ""),
    "combined": (_combined, 1.0, ""),
    "ingress-nginx": (_ingress, 1.0, ""),
    "comma milliseconds": (_milliseconds, 1e-3, ""),
    "Flask": (_flask, 1.0, ""),
    "HAProxy": (_haproxy, 1e-3, ""),
    "uvicorn": (_uvicorn, 1e-3, ""),
    "Envoy": (_envoy_text, 1e-3, ""),
    "Envoy JSON": (_envoy, 1e-3, ""),
    "Caddy": (_caddy, 1e-6, ""),
    "Docker": (_docker, 1e-3, ""),
    "IIS": (_iis, 1.0, IIS_HEAD),
    "CloudFront": (_cloudfront, 1.0, CLOUDFRONT_HEAD),
    "LTSV": (_ltsv, 1.0, ""),
    "nginx JSON": (_nginx_json, 1e-3, ""),
    "Traefik JSON": (_traefik_json, 1e-6, ""),
    "Traefik": (_traefik, 1.0, ""),
    "Google's balancer": (_google, 1e-6, ""),
    "S3": (_s3, 1.0, ""),
    "Apache with a virtual host": (_virtual_host, 1.0, ""),
}
LOCAL = ("Flask", "HAProxy", "uvicorn", "Docker")


def made_log(folder: Path, seed: int, most: int = 400) -> MadeLog:
    """Write the log of a seed below `folder`."""
    rng = Random(seed)
    name = rng.choice(list(FORMATS))
    line, step_s, head = FORMATS[name]
    zone = rng.choice(("Europe/Berlin", "America/New_York")) if name in LOCAL and rng.random() < 0.5 else None
    # Around a day on which clocks are set back, where the zone matters.
    nights = {"Europe/Berlin": datetime(2026, 10, 24, 20, tzinfo=UTC)}
    nights["America/New_York"] = datetime(2026, 11, 1, 2, tzinfo=UTC)
    began = datetime(2026, 5, 1, 10, tzinfo=UTC) if zone is None else nights[zone]
    requests = rng.randint(30, most)
    span_s = rng.choice((60.0, 3600.0, 40_000.0))
    came = sorted(began.timestamp() + rng.random() * span_s for _ in range(requests))
    local = UTC if zone is None else ZoneInfo(zone)
    texts = [line(datetime.fromtimestamp(at, UTC).astimezone(local), k, rng) for k, at in enumerate(came)]
    disorder = rng.choice(("in order", "late answers", "nodes", "shuffled") if zone is None else ("in order", "nodes"))
    parts = _disordered(texts, disorder, rng)
    dirt: list[str] = []
    files: list[bytes] = []
    cuts = rng.choice((1, 1, 2, 5)) if zone is None else 1
    for part in parts:
        for i in range(cuts):
            piece = part[len(part) * i // cuts : len(part) * (i + 1) // cuts]
            files.append(_dirty(piece, head, line, rng, dirt))
    path = _written(folder, files, rng)
    what = f"seed {seed}: {name}, {requests} requests, {disorder}, {len(files)} files, zone {zone}, {sorted(set(dirt))}"
    return MadeLog(path, TableColumns(times=TimeForm(zone=zone)), requests, came, step_s, what)


def _disordered(texts: list[str], disorder: str, rng: Random) -> list[list[str]]:
    if disorder == "nodes":
        nodes = [rng.randrange(3) for _ in texts]
        return [[text for text, node in zip(texts, nodes, strict=True) if node == n] for n in range(3)]
    if disorder == "shuffled":
        return [rng.sample(texts, len(texts))]
    if disorder == "late answers":
        return [[texts[i] for i in sorted(range(len(texts)), key=lambda i: i + rng.random() * 9)]]
    return [texts]


def _dirty(
    lines: list[str], head: str, line: Callable[[datetime, int, Random], str], rng: Random, dirt: list[str]
) -> bytes:
    """Write a file of these lines, with some lines of dirt that are not requests."""
    lines = list(lines)
    at = datetime(2026, 10, 30, tzinfo=UTC)
    if rng.random() < 0.2:
        lines[:0] = [f"{text}\n" for text in rng.choice(STARTS)]
        dirt.append("start-up")
    if rng.random() < 0.2 and len(lines) > 2:
        for _ in range(rng.choice((1, 1, 2, 20))):
            lines.insert(rng.randrange(1, len(lines)), rng.choice(NOISE) + "\n")
        dirt.append("noise")
    if head and rng.random() < 0.5 and len(lines) > 2:
        lines.insert(rng.randrange(1, len(lines)), head)
        dirt.append("a header again")
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), "\n" * rng.randint(1, 3))
        dirt.append("blank lines")
    if rng.random() < 0.2 and len(lines) > 2:
        lines.insert(rng.choice((0, len(lines) // 2, len(lines))), "\0" * rng.randint(1, 90_000))
        dirt.append("NUL bytes")
    if rng.random() < 0.3:
        lines.append(line(at, 1, rng)[: rng.randint(1, 22)])
        dirt.append("cut")
    data = (head + "".join(lines)).encode()
    if rng.random() < 0.1:
        data = data.replace(b"\n", b"\r\n")
        dirt.append("CRLF")
    if rng.random() < 0.1 and not data.startswith(b"\0"):
        data = b"\xef\xbb\xbf" + data
        dirt.append("BOM")
    return data


def _written(folder: Path, files: list[bytes], rng: Random) -> Path:
    """Write one file, a folder with other files, or a pattern, and return its path."""
    how = rng.choice(("one", "folder", "pattern"))
    packer = rng.choice(list(PACKERS))
    if how == "one":
        path = folder / f"all.log{packer}"
        path.write_bytes(PACKERS[packer](b"".join(data if data.endswith(b"\n") else data + b"\n" for data in files)))
        return path
    below = folder / "logs"
    below.mkdir()
    for number, data in enumerate(files):
        packer = rng.choice(list(PACKERS))
        (below / f"access.log.{number}{packer}").write_bytes(PACKERS[packer](data))
    if how == "pattern":
        return below / "access.log*"
    for name, data in (
        ("README", b"Logs.\n"),
        (".DS_Store", b"\0\1\2\3Bud1"),
        ("error.log", b"2026/05/01 10:00:00 [error] x\n"),
    ):
        if rng.random() < 0.5:
            (below / name).write_bytes(data)
    return below
