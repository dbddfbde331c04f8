"""Access logs of one JSON object a line (Envoy, nginx, Caddy, Traefik, Google's and Elasticsearch's exports).

A file's first lines decide which field holds the time and which one marks a request. The other lines are searched for
these two names; only an unusual line is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mark.domain.errors import BadInput
from mark.traffic.traces.stamps import Stamps, stamps_of
from mark.traffic.traces.stated import sample_of

Parse = Callable[[Sequence[bytes]], Stamps]
Path = tuple[str, ...]

_PEEK_ROWS = 200
_INNER = frozenset(
    (
        "_source",
        "httprequest",
        "request",
        "http",
        "jsonpayload",
        "fields",
        "event",
        "attributes",
        "properties",
        "response",
        "req",
        "res",
    )
)
_OUTER = frozenset(("_source", "jsonpayload"))  # objects whose fields may be the record's time
# Names without capitals and signs. The time of arrival is better than the time of the answer.
_BEGAN = ("startutc", "starttime", "startlocal", "starttimestamp", "requestcreationtime", "requeststarttime")
_USUAL = frozenset(
    ("timestamp", "time", "ts", "datetime", "timeiso8601", "timelocal", "msec", "date", "asctime", "eventtime", "t")
)
_REQUEST = frozenset(
    (
        *("status", "statuscode", "responsecode", "scstatus", "downstreamstatus", "originstatus", "httpstatus"),
        *(
            "elbstatuscode",
            "responsestatus",
            "method",
            "requestmethod",
            "httpmethod",
            "csmethod",
            "verb",
            "requestverb",
        ),
        *("httprequestmethod", "httpresponsestatuscode", "uri", "requesturi", "csuristem", "path", "requestpath"),
        *("httppath", "urlpath", "url", "requesturl", "request", "httprequest", "requestline", "useragent"),
        *("csuseragent", "httpuseragent"),
    )
)
_COUNTS = frozenset(
    (
        *("count", "counts", "requests", "reqs", "hits", "calls", "invocations", "queries", "sum", "total", "value"),
        *("rps", "qps", "tps", "rpm", "qpm", "rate", "throughput", "events"),
    )
)
_OF_COUNTS = _COUNTS | {"request", "http", "num", "number", "n", "of", "doc", "docs", "per", "second", "minute", "all"}
_TRAEFIK = frozenset({("DownstreamStatus",), ("OriginStatus",)})  # whose `RequestCount` numbers the requests
_EVENTS = frozenset(("event", "message", "msg", "name", "phase", "type", "action", "stage", "event_type"))
_BEGINS = re.compile(r"(?i:start|begin|began|receiv|incoming)")
_ENDS = re.compile(r"(?i:finish|complet|end(?:ed)?\b|sent|respon|done|handled|served)")
_MESSAGES = ("_raw", "message", "MESSAGE", "@message", "log", "line", "msg", "textPayload")
_TIMES_OF_MESSAGES = ("_time", "time", "timestamp", "@timestamp", "ts", "__REALTIME_TIMESTAMP")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SIGNS = re.compile(r"[^a-z0-9]")
_SECOND_US = 1_000_000
_SAME_US = _SECOND_US  # largest distance of two times of one moment
_DAY = re.compile(rb"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")


def json_log(
    head: bytes, parse: Parse = stamps_of, time_field: str | None = None, *, whole: bool = True
) -> tuple[JsonLog, int] | None:
    """Return the log that a file's first lines begin, and how many of them are its requests; None for other files.

    Objects without a mark of a request and objects that count are not a log: see `tables`. Raises BadInput if several
    fields hold different times and, if the log is read as a `whole`, if each request has two objects or an object
    stands for several requests.
    """
    rows = [row for row in map(_parsed, head.split(b"\n")[: 5 * _PEEK_ROWS]) if row is not None][:_PEEK_ROWS]
    if len(rows) == 1 and any(map(_holds_series, rows[0].values())):
        return None  # an answer with series or rows in it
    flat = [_flat(row) for row in rows]
    requests = [row for row in flat if _is_request(row)]
    if not requests or any(
        _counts(path, row[path]) for row in requests[:20] if not _TRAEFIK & row.keys() for path in row
    ):
        return None
    found = _time_field(requests, parse, time_field)
    if found is None:
        return None
    paths, stamps = found
    if whole:
        _refuse_sample(requests)
        _refuse_pairs(requests)
    if len(stamps) >= 3 and np.all(stamps % 60_000_000 == 0):
        return None  # sums of minutes
    return JsonLog(paths, _marker(requests), parse), len(requests)


@dataclass(frozen=True, slots=True)
class JsonLog:
    """A log whose requests are the objects with a time in `paths` (two: a day and a clock) and a field of a request."""

    paths: tuple[Path, ...]
    marker: str
    parse: Parse

    @property
    def name(self) -> str:
        return f"JSON access log, times from {' and '.join(repr('.'.join(path)) for path in self.paths)}"

    def stamps(self, block: bytes) -> Stamps:
        text = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(text == 10)
        micros = np.full(len(ends), -1, dtype=np.int64)
        local = np.zeros(len(ends), dtype=np.bool_)
        if len(self.paths) == 1:
            self._search(block, text, ends, micros, local)
        rows = np.flatnonzero(micros < 0).tolist()
        if rows:
            lines = block.split(b"\n")
            texts = [self._time(lines[i]) for i in rows]
            parsed = self.parse(texts)
            micros[rows], local[rows] = parsed.micros, parsed.local
        return Stamps(micros, local)

    def values(self, field: str, block: bytes) -> list[bytes]:
        return [self._value(field, line) for line in block.split(b"\n")[:-1]]

    def names(self, block: bytes) -> Sequence[str]:
        row = next(filter(None, self.rows(block)), {})
        return [".".join(path) for path, value in _flat(row).items() if isinstance(value, str | int)]

    def rows(self, block: bytes) -> list[dict[str, object] | None]:
        """Return the object of each line; None for other lines."""
        return [_parsed(line) for line in block.split(b"\n")[:-1]]

    def _search(self, block: bytes, text: np.ndarray, ends: np.ndarray, micros: np.ndarray, local: np.ndarray) -> None:
        """Fill in the lines that have one time, a marker, closed braces and paired quotes."""
        name = json.dumps(self.paths[0][-1]).encode()
        places, values = [], []
        for found in re.finditer(re.escape(name) + rb'\s*:\s*("[^"\n]*|[-+.\deE]+)', block):
            places.append(found.start())
            values.append(found[1])
        marks = [m.start() for m in re.finditer(re.escape(json.dumps(self.marker).encode()) + rb"\s*:", block)]
        begins = np.concatenate(([0], ends[:-1] + 1))
        line = np.searchsorted(ends, places)
        usual = np.bincount(line, minlength=len(ends)) == 1
        usual &= np.bincount(np.searchsorted(ends, marks), minlength=len(ends)) > 0
        last = text[np.maximum(ends - 1, 0)]
        last = np.where(last == ord(","), text[np.maximum(ends - 2, 0)], last)  # a list with an object a line
        usual &= (text[begins] == ord("{")) & (last == ord("}"))
        opened, closed, quotes = (
            np.bincount(np.searchsorted(ends, np.flatnonzero(text == ord(sign))), minlength=len(ends)) for sign in '{}"'
        )
        usual &= (opened == closed) & (quotes % 2 == 0)
        chosen = usual[line]
        if not chosen.any():
            return
        parsed = self.parse([v.lstrip(b'"') for v, is_usual in zip(values, chosen.tolist(), strict=True) if is_usual])
        micros[line[chosen]], local[line[chosen]] = parsed.micros, parsed.local

    def _time(self, line: bytes) -> bytes:
        row = _parsed(line)
        flat = None if row is None else _flat(row)
        if flat is None or not _is_request(flat) or any(path not in flat for path in self.paths):
            return b""
        return b" ".join(_text(flat[path]) for path in self.paths)

    def _value(self, field: str, line: bytes) -> bytes:
        row = _parsed(line)
        if row is None:
            return b"-"
        if field not in row:
            row = {".".join(path): value for path, value in _flat(row).items()}
        value = row.get(field, "-")
        return _text(value) or b"-"


# -- a container's log -------------------------------------------------------------------------------------------------


def in_container(head: bytes) -> bool:
    """Return whether it is a log of Docker's `json-file` driver, whose objects each hold a line of a container."""
    row = next(filter(None, map(_parsed, head.split(b"\n")[:20])), {})
    return isinstance(row.get("log"), str) and row.get("stream") in ("stdout", "stderr")


def messages_in(head: bytes) -> Callable[[bytes], bytes] | None:
    """Return a function that extracts the messages of a log shipper's objects as lines; None without a message."""
    row = _message_of(head)
    name = next((name for name in _MESSAGES if isinstance(row.get(name), str)), None)
    return None if name is None else partial(_texts, name=name)


def timed(head: bytes, name: str = "log") -> Callable[[bytes], bytes] | None:
    """Return a function that extracts messages with the times of their objects; None if these have none."""
    row = _message_of(head)
    name = name if name in row else next((one for one in _MESSAGES if isinstance(row.get(one), str)), "")
    time = next((one for one in _TIMES_OF_MESSAGES if isinstance(row.get(one), str | int | float)), None)
    return None if time is None or not name else partial(_texts, name=name, time=time)


def from_container(block: bytes) -> bytes:
    """Return the lines that the container wrote, one for each object."""
    return _texts(block, "log")


def _message_of(head: bytes) -> Mapping[str, object]:
    return _of_splunk(next(filter(None, map(_parsed, head.split(b"\n")[:20])), None)) or {}


def _of_splunk(row: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """Return the event of a search result of Splunk; other objects as they are."""
    event = None if row is None else row.get("result")
    return event if isinstance(event, dict) and "_raw" in event else row


def _texts(block: bytes, name: str, time: str = "") -> bytes:
    return b"".join(_field(line, name, time) + b"\n" for line in block.split(b"\n")[:-1])


def _field(line: bytes, name: str, time: str) -> bytes:
    row = _of_splunk(_parsed(line))
    text = None if row is None else row.get(name)
    if row is None or not isinstance(text, str):
        return line
    message = text.rstrip("\r\n").replace("\n", " ")
    return (f"{row.get(time, '-')} {message}" if time else message).encode("utf-8", "replace")


# -- objects -----------------------------------------------------------------------------------------------------------


def _parsed(line: bytes) -> dict[str, object] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        row = json.loads(line.rstrip(b", \t"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _flat(row: Mapping[str, object]) -> dict[Path, object]:
    """Return fields by their path: its own fields, and fields of known objects in it."""
    found: dict[Path, object] = {}
    for name, value in row.items():
        found[name,] = value
        if isinstance(value, dict) and _plain(name) in _INNER | _OUTER:
            found.update({(name, *path): inner for path, inner in _flat(value).items()})
    return found


def _holds_series(value: object) -> bool:
    """Return whether a value is a list of objects with lists or objects in them."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and any(isinstance(inner, list | dict) for inner in first.values())


def _plain(name: str) -> str:
    return name if name == "_source" else _SIGNS.sub("", name.lower())


def _is_request(row: Mapping[Path, object]) -> bool:
    return any(_plain(path[-1]) in _REQUEST for path in row)


def _refuse_sample(requests: Sequence[Mapping[Path, object]]) -> None:
    """Raise BadInput if objects stand for several requests."""
    for row in requests:
        for path, value in row.items():
            if sample_of(path[-1], value):
                what = "a line stands for several requests: `log_filter` "
                raise BadInput(
                    f"{what}{'.'.join(path)}=* counts the lines, and `scale` more", ".".join(path), str(value)[:60]
                )


def _refuse_pairs(requests: Sequence[Mapping[Path, object]]) -> None:
    """Raise BadInput if a request has one object at its beginning and another at its end."""
    for path in [path for path in requests[0] if len(path) == 1 and path[0].lower() in _EVENTS]:
        texts = [str(row.get(path, "")) for row in requests]
        begins = sum(bool(_BEGINS.search(text)) for text in texts)
        ends = [text for text in texts if _ENDS.search(text) and not _BEGINS.search(text)]
        if min(begins, len(ends)) >= 0.25 * len(requests):
            value = ends[0] if len(set(ends)) == 1 else f"*{_ENDS.findall(ends[0])[0]}*"
            what = f"each request has two lines: `log_filter` {path[0]}=* counts both; or choose one with `log_filter`"
            raise BadInput(what, "this JSON log", f"{path[0]}={value}")


def _counts(path: Path, value: object) -> bool:
    words = {word.lower() for word in _WORDS.findall(path[-1])}
    return bool(words & _COUNTS) and words <= _OF_COUNTS and _is_number(value)


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "replace")


def _marker(requests: Sequence[Mapping[Path, object]]) -> str:
    """Return the name of the request field that most objects have."""
    names = [path[-1] for row in requests for path in row if _plain(path[-1]) in _REQUEST]
    return max(dict.fromkeys(names), key=names.count)


# -- the time ----------------------------------------------------------------------------------------------------------


def _time_field(
    rows: Sequence[Mapping[Path, object]], parse: Parse, asked: str | None
) -> tuple[tuple[Path, ...], np.ndarray] | None:
    """Return the paths of the time, and the times of the first rows."""
    held: dict[tuple[Path, ...], Stamps] = {}
    names = dict.fromkeys(path for row in rows for path in row if len(path) == 1 or path[0].lower() in _OUTER)
    for path in names:
        texts = [_text(row[path]) for row in rows if path in row and not isinstance(row[path], dict | list | bool)]
        parsed = parse(texts) if texts else None
        if parsed is not None and np.count_nonzero(parsed.micros >= 0) >= 0.9 * len(rows):
            held[path,] = parsed
    if asked is not None:
        found = next((paths for paths in held if asked in (paths[0][-1], ".".join(paths[0]))), None)
        return None if found is None else (found, held[found].micros)
    if not held:
        return _day_and_clock(rows, names, parse)
    for name in _BEGAN:
        for paths, stamps in held.items():
            if _plain(paths[0][-1]) == name:
                return paths, stamps.micros
    usual = {paths: s for paths, s in held.items() if _plain(paths[0][-1]) in _USUAL} or held
    zoned = {paths: s for paths, s in usual.items() if not s.local.any()} or usual
    first, *others = zoned.values()
    apart = [s for s in others if len(s.micros) != len(first.micros)]
    if apart or any(np.median(np.abs(s.micros - first.micros)) > _SAME_US for s in others):
        names_of = ", ".join(".".join(paths[0]) for paths in zoned)
        raise BadInput("several fields hold times, choose one with `time_column`", "this JSON log", names_of)
    # Fields tie if whole seconds separate all their times; then the one with fractions is better.
    finest = max(zoned, key=lambda p: (len(np.unique(zoned[p].micros)), np.count_nonzero(zoned[p].micros % _SECOND_US)))
    return finest, zoned[finest].micros


def _day_and_clock(
    rows: Sequence[Mapping[Path, object]], names: Mapping[Path, None], parse: Parse
) -> tuple[tuple[Path, ...], np.ndarray] | None:
    """Return a date in one field and a clock in another."""

    def all_fit(path: Path, pattern: re.Pattern[bytes]) -> bool:
        return all(path in row and pattern.fullmatch(_text(row[path])) for row in rows)

    days = [path for path in names if all_fit(path, _DAY)]
    clocks = [path for path in names if all_fit(path, _CLOCK)]
    if len(days) != 1 or len(clocks) != 1:
        return None
    paths = (days[0], clocks[0])
    return paths, parse([b" ".join(_text(row[path]) for path in paths) for row in rows]).micros
