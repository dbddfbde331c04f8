"""Access logs: Application Load Balancer, and Common or Combined Log Format; one file or a folder of them.

ALB lines carry the time at which the request came (`request_creation_time`, microseconds) but stand in the order in
which they were answered, and each node of a balancer writes its own file. So arrivals are sorted again within a
window of 15 minutes; a line that is later than that is counted, reported and left out.
Format: AWS, "Access logs for your Application Load Balancer", section "Access log entries".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import translate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.workload.arrivals import trace_of
from mark.workload.blocks import blocks, is_folder, shown
from mark.workload.trace import Trace

Mask = NDArray[np.bool_]
Micros = NDArray[np.int64]  # microseconds since 1970

_WINDOW_US = 15 * 60 * 1_000_000
_MOST_MALFORMED = 0.01
_MOST_LATE = 0.5
_PEEK_LINES = 20
# Elastic Load Balancing leaves this file in the bucket when logging is switched on.
_NOT_LOGS = frozenset({"ELBAccessLogTestFile"})
_DELIVERED = re.compile(r"_(\d{8}T\d{4})Z_")

_TEXT = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
# type time elb client target, three times, two status codes, two sizes; "request" "user_agent"; cipher protocol group;
# "trace_id" "domain_name" "chosen_cert_arn"; priority; request_creation_time; what follows grows with the years.
_ALB = re.compile(
    rb"^(?:https?|h2|grpcs?|wss?) (?:[^ \n\"]++ ){11}" + _TEXT + rb" " + _TEXT + rb" (?:[^ \n\"]++ ){3}"
    + rb" ".join([_TEXT] * 3) + rb" [^ \n\"]++ (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)(?: |$)",
    re.MULTILINE,
)  # fmt: skip
# host ident user [time] "request" status bytes, and for Combined "referer" "agent". A user may hold blanks.
_COMMON = re.compile(
    rb"^[^ \n]++ [^ \n]++ [^\[\n]*+\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    + _TEXT
    + rb" (?:\d{3}|-) (?:\d++|-)",
    re.MULTILINE,
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")


class LogFormat(Enum):
    ALB = "ALB access log"
    COMMON = "Common or Combined Log Format"


_PATTERNS = {LogFormat.ALB: _ALB, LogFormat.COMMON: _COMMON}

# What finds a field in one line (without its line feed), as the only group that takes part.
_WORD = rb"[^ ]++"
_TO_QUOTE = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_QUOTED = b'"' + _TO_QUOTE + b'"'
_HELD = rb'(?:([^ "]++)|"(' + _TO_QUOTE + rb')")'
_ALB_LINE = (
    "type time elb client:port target:port request_processing_time target_processing_time response_processing_time "
    'elb_status_code target_status_code received_bytes sent_bytes "request" "user_agent" ssl_cipher ssl_protocol '
    'target_group_arn "trace_id" "domain_name" "chosen_cert_arn" matched_rule_priority request_creation_time '
    '"actions_executed" "redirect_url" "error_reason" "target:port_list" "target_status_code_list" "classification" '
    '"classification_reason" conn_trace_id "transformed_host" "transformed_uri" "request_transform_status"'
)
_ALB_WORDS = [_QUOTED if name.startswith('"') else _WORD for name in _ALB_LINE.split()]
_ALB_REQUEST = rb'(?:[^ ]++ ){12}"'
# A user may hold blanks, or be missing.
_COMMON_TIME = rb"[^ ]++ [^ ]++ [^\[]*+\[[^\]]*+\] "
_COMMON_SIZES = _COMMON_TIME + _QUOTED + rb" [^ ]++ [^ ]++ "
# After the quote that opens a request: `GET https://host:443/path?query HTTP/1.1` or `GET /path?query HTTP/1.1`.
_SITE = rb'(?:\[[^\] "]*+\]|[^:/? "]++)'
_METHOD = rb'([^ "]++)'
_HOST = rb'[^ "]*+ [a-z]++://(' + _SITE + rb")"
_PATH = rb'[^ "]*+ (?:[a-z]++://' + _SITE + rb'(?::\d++)?+)?+([^? "\\]++(?:\\.[^? "\\]*+)*+)'
_FIELDS: dict[LogFormat, dict[str, bytes]] = {
    LogFormat.ALB: {
        **{name.strip('"'): b" ".join([*_ALB_WORDS[:i], _HELD]) for i, name in enumerate(_ALB_LINE.split())},
        "client": rb"(?:[^ ]++ ){3}([^ ]++)",
        "target": rb"(?:[^ ]++ ){4}([^ ]++)",
        "method": _ALB_REQUEST + _METHOD,
        "host": _ALB_REQUEST + _HOST,
        "path": _ALB_REQUEST + _PATH,
    },
    LogFormat.COMMON: {
        "host": rb"([^ ]++)",
        "user": rb"[^ ]++ [^ ]++ ([^\[]*?) ?\[",
        "request": _COMMON_TIME + _HELD,
        "method": _COMMON_TIME + b'"' + _METHOD,
        "path": _COMMON_TIME + b'"' + _PATH,
        "status": _COMMON_TIME + _QUOTED + rb" ([^ ]++)",
        "referer": _COMMON_SIZES + _HELD,
        "user_agent": _COMMON_SIZES + _QUOTED + b" " + _HELD,
    },
}
_ADDRESSES = frozenset({"client", "target"})  # compared with the port and without it


def log_format(block: bytes) -> LogFormat | None:
    """The format of a log by its first lines: that of most of them that are of any, or None."""
    head = b"\n".join(block.split(b"\n", _PEEK_LINES)[:_PEEK_LINES])
    found = {form: len(pattern.findall(head)) for form, pattern in _PATTERNS.items()}
    best = max(found, key=lambda form: found[form])
    return best if found[best] else None


class _Filter:
    """Keeps the lines whose field is `value`, or fits it as a shell pattern of `*` and `?`."""

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.text = shown(f"{name}={value}".encode("utf-8", "surrogateescape"))
        # Brackets are no pattern here: paths and IPv6 addresses hold them.
        self._pattern = re.compile(translate(value.replace("[", "[[]")))

    def values(self, block: bytes, form: LogFormat) -> list[bytes]:
        """What each line has in the field, `-` where it has none. Raises BadInput for a field unknown to the format."""
        fields = _FIELDS[form]
        if self.name not in fields:
            raise BadInput(f"unknown field, {form.value} has {', '.join(fields)}", "log_filter", self.text)
        match = re.compile(fields[self.name]).match
        found = map(match, block.split(b"\n")[:-1])
        return [m[m.lastindex or 0] if m else b"-" for m in found]

    def fits(self, value: bytes) -> bool:
        text = value.decode("utf-8", "surrogateescape")
        if self._pattern.match(text):
            return True
        return self.name in _ADDRESSES and self._pattern.match(text.rpartition(":")[0]) is not None


@dataclass(slots=True)
class _Tally:
    """What one reading of a log met with; begun anew with each reading."""

    lines: int = 0
    malformed: int = 0
    first_malformed: tuple[str, str] = ("", "")
    late: int = 0
    most_late_s: float = 0.0
    formats: set[LogFormat] = field(default_factory=set)
    filtered: int = 0  # well-formed lines that the filter left out
    first_filtered: str = ""

    def check(self, name: str) -> None:
        if self.malformed > _MOST_MALFORMED * self.lines:
            where, line = self.first_malformed
            raise BadInput(f"{self.malformed} of {self.lines} lines are no access log lines, the first", where, line)
        if self.late > _MOST_LATE * (self.lines - self.filtered):
            raise BadInput(
                "most lines are over 15 minutes out of order; is the log sorted by time?", name, f"{self.late} late"
            )

    def notes(self, log_filter: _Filter | None) -> tuple[str, ...]:
        notes = [" and ".join(sorted(form.value for form in self.formats))]
        if log_filter is not None:
            read = self.lines - self.malformed
            notes.append(f"{read - self.filtered} of {read} lines kept by --log-filter {log_filter.text}")
        if self.malformed:
            notes.append(f"{self.malformed} malformed lines left out, the first at {self.first_malformed[0]}")
        if self.late:
            notes.append(f"{self.late} lines over 15 minutes late left out, the latest by {self.most_late_s:g} s")
        if LogFormat.COMMON in self.formats:
            notes.append(
                "whole-second stamps: requests of a second are spread evenly over it, in the order of the file"
            )
        return tuple(notes)


def read_logs(path: Path, log_filter: tuple[str, str] | None = None) -> Trace:
    """The arrivals of an access log or a folder of them, streamed; second 0 is the first request.

    `log_filter` is a field and its value (exact, or a shell pattern of `*` and `?`): other lines are passed over, as if
    they were not there. Raises BadInput for a file in no known format, for a log of which more than 1 % of the lines
    are malformed, for one of which most lines stand more than 15 minutes late, for a filter's field that the format
    does not have, and for a filter that leaves nothing.
    """
    keep = None if log_filter is None else _Filter(*log_filter)
    log = _Log(path.name or str(path), _in_order(path) if is_folder(path) else [path], keep)
    trace = trace_of(log.name, log.stream, notes=lambda: log.tally.notes(keep))
    return replace(trace, began_s=None if log.origin is None else float(log.origin) / 1e6)


@dataclass(slots=True)
class _Log:
    """Files of one log in order; `tally` is that of the reading begun last, `origin` its first request."""

    name: str
    files: list[Path]
    keep: _Filter | None
    tally: _Tally = field(default_factory=_Tally)
    origin: np.int64 | None = None

    def stream(self) -> Iterator[FloatArray]:
        """Ascending seconds from the first request."""
        self.tally = tally = _Tally()
        origin: np.int64 | None = None
        for stamps in _sorted(_stamps(self.files, tally, self.keep), tally):
            self.origin = origin = stamps[0] if origin is None else origin
            yield (stamps - origin) / 1e6
        tally.check(self.name)
        if self.keep is not None and origin is None:
            first = f"the first of {tally.filtered} in {self.name} has {tally.first_filtered!r}"
            raise BadInput(f"no lines match; {first}", "log_filter", self.keep.text)


def _in_order(folder: Path) -> list[Path]:
    """The logs below a folder: by the time of delivery in their names, else by the time of their first line."""
    found = sorted(
        p
        for p in folder.rglob("*")
        if p.is_file() and not p.name.startswith(".") and p.name not in _NOT_LOGS and p.stat().st_size
    )
    if not found:
        raise BadInput("no log files in this folder", str(folder))
    delivered = [_DELIVERED.search(p.name) for p in found]
    keys: list[str | int] = [match[1] if match else "" for match in delivered]
    if not all(keys):
        keys = [_first_stamp(p) for p in found]
    return [p for _, p in sorted(zip(keys, found, strict=True))]


def _first_stamp(path: Path) -> int:
    for stamps in _stamps([path], _Tally(), size=1 << 16):
        return int(stamps[0])
    return 0


def _stamps(files: list[Path], tally: _Tally, keep: _Filter | None = None, size: int = 8 << 20) -> Iterator[Micros]:
    """Times of the requests that are kept in the order of the lines, never empty."""
    for path in files:
        form: LogFormat | None = None
        for line, block in blocks(path, size):
            form = form or log_format(block)
            if form is None:
                first = next((text for text in block.split(b"\n") if text.strip()), b"")
                raise BadInput("not an access log in a known format", f"{path} line {line}", shown(first))
            tally.formats.add(form)
            stamps = _alb_stamps(block) if form is LogFormat.ALB else _common_stamps(block)
            tally.lines += len(stamps)
            wrong = np.flatnonzero(stamps < 0)
            if len(wrong):
                texts = block.split(b"\n")
                for i in wrong.tolist():
                    if texts[i].strip():
                        tally.malformed += 1
                        if tally.malformed == 1:
                            tally.first_malformed = (f"{path} line {line + i}", shown(texts[i]))
                    else:
                        tally.lines -= 1
            if keep is not None:
                stamps = stamps[_kept(keep, block, form, stamps >= 0, tally)]
            elif len(wrong):
                stamps = stamps[stamps >= 0]
            if len(stamps):
                yield stamps


def _kept(keep: _Filter, block: bytes, form: LogFormat, valid: Mask, tally: _Tally) -> Mask:
    """Which of the valid lines of a block a filter keeps; the others are counted."""
    values = keep.values(block, form)
    verdicts = {value: keep.fits(value) for value in set(values)}  # most fields have few values
    fits = np.fromiter(map(verdicts.__getitem__, values), dtype=np.bool_, count=len(values))
    others = np.flatnonzero(valid & ~fits)
    if len(others) and not tally.filtered:
        tally.first_filtered = shown(values[others[0]])
    tally.filtered += len(others)
    return valid & fits


def _alb_stamps(block: bytes) -> Micros:
    """`request_creation_time` of each line, negative where the line is none of an ALB log.

    The quotes give the usual line away: after twelve blank-separated words and five quoted ones, the eleventh quote
    follows the time. Lines that do not fit (a quote inside quotes, a shorter fraction) are looked at one by one.
    """
    text = np.frombuffer(block + bytes(29), dtype=np.uint8)  # so that 29 bytes can always be looked at
    ends = np.flatnonzero(text == 10)
    begins = np.concatenate(([0], ends[:-1] + 1))
    quotes = np.flatnonzero(text == 34)
    blanks = np.flatnonzero(text == 32)
    first = np.searchsorted(quotes, begins)
    quotes = np.append(quotes, np.full(11, len(text)))
    words = np.searchsorted(blanks, quotes[first]) - np.searchsorted(blanks, begins)
    after = quotes[first + 10]
    usual = (after < ends) & (words == 12) & (after - begins > 64)
    # Where nothing usual stands the table shows the block's beginning, and is not used.
    table = text[np.where(usual, after, 29)[:, None] + np.arange(-29, 0)]
    usual &= (table[:, 0] == 32) & (table[:, 28] == 32) & np.isin(text[begins], np.frombuffer(b"ghw", np.uint8))
    usual &= np.all(table[:, [5, 8, 11, 14, 17, 20, 27]] == np.frombuffer(b"--T::.Z", np.uint8), axis=1)
    digits = table[:, _ALB_DIGITS].astype(np.int64) - 48
    usual &= np.all((digits >= 0) & (digits <= 9), axis=1)
    stamps = _civil_micros(digits)
    for i in np.flatnonzero(~usual).tolist():
        found = _ALB.match(block, begins[i], ends[i])
        stamps[i] = _alb_micros(found[1]) if found else -1
    return stamps


# Columns of the digits in ` 2018-07-02T22:22:48.364000Z `, the blank before it included.
_ALB_DIGITS = [1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 23, 24, 25, 26]


def _alb_micros(stamp: bytes) -> int:
    """`2018-07-02T22:22:48.364Z`, with a fraction or without."""
    seconds, _, fraction = stamp[:-1].partition(b".")
    digits = [int(c) for c in re.sub(rb"\D", b"", seconds).decode() + fraction.decode().ljust(6, "0")]
    return int(_civil_micros(np.array([digits], dtype=np.int64))[0])


def _common_stamps(block: bytes) -> Micros:
    """The time of each line, negative where the line is none of Common Log Format."""
    found = _COMMON.findall(block)
    lines = block.count(b"\n")
    if len(found) == lines:
        return _common_micros(found)
    matches = [_COMMON.match(text) for text in block.split(b"\n")[:-1]]
    stamps = np.full(lines, -1, dtype=np.int64)
    if found:
        stamps[[match is not None for match in matches]] = _common_micros(found)
    return stamps


def _common_micros(stamps: list[bytes]) -> Micros:
    """`10/Oct/2000:13:55:36 -0700` to microseconds; an impossible date is negative."""
    table = np.array(stamps, dtype="S26").view(np.uint8).reshape(len(stamps), 26)
    digits = table.astype(np.int64) - 48
    names = np.ascontiguousarray(table[:, 3:6]).view("S3")[:, 0]
    month = np.zeros(len(stamps), dtype=np.int64)
    for number, name in enumerate(_MONTHS, 1):
        month[names == name] = number
    date = np.column_stack(
        (digits[:, 7:11], month // 10, month % 10, digits[:, 0:2], digits[:, [12, 13, 15, 16, 18, 19]])
    )  # fmt: skip
    local = _civil_micros(np.column_stack((date, np.zeros((len(stamps), 6), dtype=np.int64))))
    two = np.array([10, 1])
    offset_s = (digits[:, 22:24] @ two) * 3600 + (digits[:, 24:26] @ two) * 60
    east = np.where(table[:, 21] == ord("-"), -1, 1)
    return np.asarray(np.where(local < 0, local, local - east * offset_s * 1_000_000), dtype=np.int64)


def _civil_micros(digits: Micros) -> Micros:
    """Microseconds since 1970 of UTC dates, rows of 20 digits YYYYMMDDhhmmssuuuuuu; impossible ones are negative."""
    two = np.array([10, 1])
    year = digits[:, 0:4] @ np.array([1000, 100, 10, 1])
    fields = (digits[:, i : i + 2] @ two for i in range(4, 14, 2))
    micros = _micros(year, *fields)
    return np.asarray(micros + digits[:, 14:20] @ np.array([100_000, 10_000, 1_000, 100, 10, 1]), dtype=np.int64)


def _micros(year: Micros, month: Micros, day: Micros, hour: Micros, minute: Micros, second: Micros) -> Micros:
    """Microseconds since 1970 of a date in UTC; below zero where a field is out of range.

    Days by the civil calendar of 400-year eras that begin in March, so that the leap day ends a year.
    """
    y = np.where(month <= 2, year - 1, year)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * y + y // 4 - y // 100 + y // 400 + day_of_year - 719_468
    wrong = (
        (month < 1)
        | (month > 12)
        | (day < 1)
        | (day > 31)
        | (hour > 23)
        | (minute > 59)
        | (second > 60)
        | (year < 1971)
    )
    micros = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000
    return np.where(wrong, np.int64(-2_000_000), micros)


def _sorted(stream: Iterator[Micros], tally: _Tally) -> Iterator[Micros]:
    """Ascending stamps, late ones dropped; whole-second stamps spread over their second. Never empty arrays."""
    waiting = np.empty(0, dtype=np.int64)
    newest = np.int64(0)
    for stamps in stream:
        # Late by the newest line that stands before, so the size of a block changes nothing.
        before = np.maximum.accumulate(np.concatenate(([newest], stamps)))
        late = stamps < before[:-1] - _WINDOW_US
        if late.any():
            tally.late += int(late.sum())
            tally.most_late_s = max(tally.most_late_s, float((before[:-1] - stamps)[late].max()) / 1e6)
            stamps = stamps[~late]
        newest = before[-1]
        waiting = np.sort(np.concatenate((waiting, stamps)), kind="stable")
        # Whole seconds, so that a second is never torn apart.
        cut = int(np.searchsorted(waiting, (newest - _WINDOW_US) // 1_000_000 * 1_000_000))
        if cut:
            yield _spread(waiting[:cut], tally)
            waiting = waiting[cut:]
    if len(waiting):
        yield _spread(waiting, tally)


def _spread(stamps: Micros, tally: _Tally) -> Micros:
    if tally.formats != {LogFormat.COMMON}:
        return stamps
    begins = np.flatnonzero(np.diff(stamps, prepend=-1))
    counts = np.diff(begins, append=len(stamps))
    place = np.arange(len(stamps)) - np.repeat(begins, counts)
    return np.asarray(stamps + place * 1_000_000 // np.repeat(counts, counts), dtype=np.int64)
