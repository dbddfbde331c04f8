"""Access logs of one request a line as text: which lines are requests, and the position of their time.

Formats: AWS, "Access logs for your Application Load Balancer" and "... Classic Load Balancer"; Apache, "Log Files"
(Common and Combined Log Format; nginx, gunicorn, Traefik and werkzeug write the same, some with fractions or without a
zone); HAProxy, "HTTP log format"; W3C, "Extended Log File Format" (IIS, CloudFront); and lines that show a time and a
quoted request with its status (Envoy, uvicorn, S3, nginx with ISO times).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mark.domain.errors import BadInput
from mark.traffic.traces.stamps import ISO, WEB, Micros, Stamps, TimeFormat, civil_micros, stamps_of

TEXT = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_REQUEST = rb'"[A-Z]{3,12} [^"\n]*HTTP/\d(?:\.\d)?"'
_STATUS = rb" \d{3}\b"
_VERB = rb"\b(?:GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH) +\"?"
_TARGET = rb"/[^ \"\n]*+"  # an absolute address may be a call to another server
# A request and its status: in quotes; without a protocol; of Gin, status first; of Squid; of Chi.
_STATUSES = (
    _REQUEST + rb" (\d{3})\b",
    _VERB + _TARGET + rb"\"?(?: HTTP/[\d.]+)?\"? ([1-5]\d\d)\b",
    rb"\| *([1-5]\d\d) *\|[^\n]*" + _VERB + rb"/",
    rb"\b[A-Z_]+/([1-5]\d\d) \d+ [A-Z]+ https?://",
    _REQUEST + rb" from [^ \n]+ - (\d{3})\b",
)
_ANSWERED = rb"(?:" + rb"|".join(_STATUSES).replace(rb"(\d", rb"(?:\d").replace(rb"([1", rb"(?:[1") + rb")"
# Up to a bracket that opens a time: brackets of prefixes are skipped.
_TO_BRACKET = rb"^(?:[^\[\n]*+\[)+?"
_TO_STAMP = rb"^(?:[^\n]*?[\s\[\"|(=>])??"

# Lines that are known to be no requests: start-up, errors, directives.
NOTICE = re.compile(
    rb"#|[\[\]]\s*$|/\S*entrypoint\S*[ :]|\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[\w+\] |"
    rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\] \[\d+\] \[[A-Z]+\] |"
    rb"(?:[^\n]* )?(?:INFO|WARNING):\s+(?:Started |Waiting |Application |Uvicorn |Shutting |Finished |Stopping |Will )|"
    rb" \* |WARNING: This is a development|Press CTRL\+C|[^\n]*\] code \d{3}, message |"
    rb"[^\n]*haproxy\[\d+\]: (?:\[?(?:NOTICE|WARNING|ALERT)|Proxy |Server |Stopping |Health |backend )|"
    rb"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? \d{4}\] \[|AH\d{5}: |Enable AccessLog for ELB"
)
REQUEST_LIKE = re.compile(rb"\b(?:GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH|CONNECT|TRACE) [^ \n]|HTTP/\d")


class LogLines(Protocol):
    """The lines of one file of a log. Blocks must come in their order."""

    @property
    def name(self) -> str:
        """The format, for notes and errors."""

    def stamps(self, block: bytes) -> Stamps:
        """Return the time of each line's request; negative for other lines."""

    def values(self, field: str, block: bytes) -> list[bytes]:
        """Return each line's value of a field, `-` if it is missing. Raises BadInput for an unknown field."""

    def names(self, block: bytes) -> Sequence[str]:
        """Return the fields that tell health checks from other requests."""


@dataclass(frozen=True, slots=True)
class TextLog:
    """A format that a pattern finds: its only group is the time."""

    name: str
    pattern: re.Pattern[bytes]
    fields: Mapping[str, bytes]
    time_format: TimeFormat | None = None

    def stamps(self, block: bytes) -> Stamps:
        found = self.pattern.findall(block)
        lines = block.count(b"\n")
        parse = stamps_of if self.time_format is None else self.time_format.stamps
        parsed = parse(found) if found else Stamps(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_))
        if len(found) == lines:
            return parsed
        match = self.pattern.match
        rows = [match(text) is not None for text in block.split(b"\n")[:-1]]
        return spread_over(parsed, rows)

    def values(self, field: str, block: bytes) -> list[bytes]:
        if field == "line":
            return block.split(b"\n")[:-1]
        if field not in self.fields:
            raise BadInput(f"unknown field, {self.name} has {', '.join(self.fields)}, line", "log_filter", field)
        match = re.compile(self.fields[field]).match
        found = map(match, block.split(b"\n")[:-1])
        return [m[m.lastindex or 0] if m else b"-" for m in found]

    def names(self, block: bytes) -> Sequence[str]:
        known = {"line", *self.fields}
        return [name for name in ("path", "method", "status", "line") if name in known]


def spread_over(parsed: Stamps, rows: Sequence[bool]) -> Stamps:
    """Return the stamps of the rows that are requests, spread over all rows."""
    micros, local = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.bool_)
    micros[np.array(rows)], local[np.array(rows)] = parsed.micros, parsed.local
    return Stamps(micros, local)


# -- fields of a line, as the only group that takes part ---------------------------------------------------------------

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
_CLASSIC_LINE = (
    "timestamp elb client:port backend:port request_processing_time backend_processing_time response_processing_time "
    'elb_status_code backend_status_code received_bytes sent_bytes "request" "user_agent" ssl_cipher ssl_protocol'
)
# A user name may contain blanks, or be missing.
_COMMON_TIME = rb"[^ ]++ [^ ]++ [^\[]*+\[[^\]]*+\] "
_COMMON_SIZES = _COMMON_TIME + _QUOTED + rb" [^ ]++ [^ ]++ "
# After the quote that opens a request: `GET https://host:443/path?query HTTP/1.1` or `GET /path?query HTTP/1.1`.
_SITE = rb'(?:\[[^\] "]*+\]|[^:/? "]++)'
_METHOD = rb'([^ "]++)'
_HOST = rb'[^ "]*+ [a-z]++://(' + _SITE + rb")"
_PATH = rb'[^ "]*+ (?:[a-z]++://' + _SITE + rb'(?::\d++)?+)?+([^? "\\]++(?:\\.[^? "\\]*+)*+)'


def _by_place(line: str) -> dict[str, bytes]:
    words = [_QUOTED if name.startswith('"') else _WORD for name in line.split()]
    return {name.strip('"'): b" ".join([*words[:i], _HELD]) for i, name in enumerate(line.split())}


def _of_request(before: bytes) -> dict[str, bytes]:
    return {"method": before + _METHOD, "host": before + _HOST, "path": before + _PATH}


_ALB_FIELDS = {
    **_by_place(_ALB_LINE),
    "client": rb"(?:[^ ]++ ){3}([^ ]++)",
    "target": rb"(?:[^ ]++ ){4}([^ ]++)",
    **_of_request(rb'(?:[^ ]++ ){12}"'),
}
_CLASSIC_FIELDS = {
    **_by_place(_CLASSIC_LINE),
    "client": rb"(?:[^ ]++ ){2}([^ ]++)",
    "target": rb"(?:[^ ]++ ){3}([^ ]++)",
    **_of_request(rb'(?:[^ ]++ ){11}"'),
}
_COMMON_FIELDS = {
    "host": rb"([^ ]++)",
    "user": rb"[^ ]++ [^ ]++ ([^\[]*?) ?\[",
    "request": _COMMON_TIME + _HELD,
    "method": _COMMON_TIME + b'"' + _METHOD,
    "path": _COMMON_TIME + b'"' + _PATH,
    "status": _COMMON_TIME + _QUOTED + rb" ([^ ]++)",
    "referer": _COMMON_SIZES + _HELD,
    "user_agent": _COMMON_SIZES + _QUOTED + b" " + _HELD,
}
_LINE_REQUEST = rb'.*?"(?=[A-Z]{3,12} )'
_LINE_FIELDS = {
    "method": rb'.*?(?:"|' + _VERB[:2] + rb')(?=[A-Z]{3,12} +"?(?:/|\*|[a-z]++://))' + _METHOD,
    "path": rb'.*?\b[A-Z]{3,12} +"?(?:[a-z]++://' + _SITE + rb"(?::\d++)?+)?+([/*][^? \"\\]*+(?:\\.[^? \"\\]*+)*+)",
    "status": rb".*?(?:" + rb"|".join(_STATUSES) + rb")",
}
_HAPROXY_BACK = rb".*?\] [^ ]++ "
_HAPROXY_FIELDS = {
    "frontend": rb".*?\] ([^ ]++)",
    "backend": _HAPROXY_BACK + rb"([^ /]++)",
    "server": _HAPROXY_BACK + rb"[^ /]++/([^ ]++)",
    "status": _HAPROXY_BACK + rb"[^ ]++ [^ ]++ ([^ ]++)",
    "method": _LINE_REQUEST + _METHOD,
    "path": _LINE_REQUEST + _PATH,
}
ADDRESSES = frozenset({"client", "target"})  # compared with the port and without it

# -- formats -----------------------------------------------------------------------------------------------------------

# type time elb client target, three times, two status codes, two sizes; "request" "user_agent"; cipher protocol group;
# "trace_id" "domain_name" "chosen_cert_arn"; priority; request_creation_time; AWS adds further fields over the years.
_ALB = re.compile(
    rb"^(?:https?|h2|grpcs?|wss?) (?:[^ \n\"]++ ){11}" + TEXT + rb" " + TEXT + rb" (?:[^ \n\"]++ ){3}"
    + rb" ".join([TEXT] * 3) + rb" [^ \n\"]++ (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)(?: |$)",
    re.MULTILINE,
)  # fmt: skip


class AlbLog(TextLog):
    """Requests by `request_creation_time`, because lines are in the order of the answers."""

    def stamps(self, block: bytes) -> Stamps:
        micros = _alb_micros(block)
        return Stamps(micros, np.zeros(len(micros), dtype=np.bool_))


ALB = AlbLog("ALB access log", _ALB, _ALB_FIELDS)
CLASSIC = TextLog(
    "Classic Load Balancer access log",
    # A listener of TCP writes `"- - - "`: a connection, no request.
    re.compile(
        rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z) [^ \n]++ [^ \n]++ [^ \n]++ (?:-?[\d.]++ ){3}"
        rb"(?:\d{3}|-) (?:\d{3}|-) \d++ \d++ (?!\"- - - \")" + TEXT,
        re.MULTILINE,
    ),
    _CLASSIC_FIELDS,
)
HAPROXY = TextLog(
    "HAProxy HTTP log",
    re.compile(
        _TO_BRACKET + rb"(" + WEB + rb")\] [^ \n]++ [^ \n/]++/[^ \n]++ (?:[+-]?\d++/){4}[+-]?\d++ -?\d{1,3} \+?\d++ ",
        re.MULTILINE,
    ),
    _HAPROXY_FIELDS,
)
# host ident user [time] "request" status bytes, and for Combined "referer" "agent". A user name may contain blanks.
COMMON = TextLog(
    "Common or Combined Log Format",
    re.compile(_TO_BRACKET + rb"(" + WEB + rb")\] " + TEXT + rb" (?:\d{3}|-) (?:\d++|-)", re.MULTILINE),
    _COMMON_FIELDS,
)
LINES = TextLog(
    "lines with a time and a request",
    re.compile(
        _TO_STAMP + rb"((?:" + ISO + rb")|(?:" + WEB + rb"))(?=[\s\]\"|),])[^\n]*?" + _REQUEST + _STATUS, re.MULTILINE
    ),
    _LINE_FIELDS,
)
LINES_AFTER = TextLog(
    "lines with a request and a time",
    re.compile(
        rb"^[^\n]*?" + _REQUEST + _STATUS + rb"[^\n]*?[\s\[\"|]((?:" + ISO + rb")|(?:" + WEB + rb"))(?=[\s\]\"|,]|$)",
        re.MULTILINE,
    ),
    _LINE_FIELDS,
)
LINES_EPOCH = TextLog(
    "lines with a time since 1970 and a request",
    re.compile(rb"^\[?(\d{10}(?:\.\d{1,6})?|\d{13}|\d{16}|\d{19})\]?[ \t][^\n]*?" + _REQUEST + _STATUS, re.MULTILINE),
    _LINE_FIELDS,
)
LINES_OTHER = TextLog(
    LINES.name,
    re.compile(
        _TO_STAMP + rb"((?:" + ISO + rb")|(?:" + WEB + rb")|(?<![^\n])\d{10}\.\d{3})(?=[\s\]\"|),])[^\n]*?" + _ANSWERED,
        re.MULTILINE,
    ),
    _LINE_FIELDS,
)
LOGFMT = TextLog(
    "lines with a time, and fields of a method and a status",
    re.compile(
        # or of objects of JSON behind a time, as Caddy writes them to a console; only servers log the protocol
        rb"^(?=[^\n]*(?:\bmethod=\"?[A-Z]{3,12}\b|\"proto\": ?\"HTTP/))(?=[^\n]*\bstatus(?:=\"?|\": ?)\d{3}\b)"
        + _TO_STAMP[1:]
        + rb"("
        + ISO
        + rb")(?=[\s\"])",
        re.MULTILINE,
    ),
    {
        "method": rb'.*?\bmethod(?:="?|": ?")([A-Z]+)',
        "path": rb'.*?\b(?:path="?|uri": ?")([^\s"?]+)',
        "status": rb'.*?\bstatus(?:="?|": ?)(\d{3})',
    },
)
# ltsv.org, "Labels for Web server's Log"; label:value, tabs in between, in any order.
_LABELS = (
    *("host", "user", "ident", "req", "method", "uri", "protocol", "status", "size", "reqsize", "referer", "ua"),
    *("vhost", "forwardedfor", "forwardedproto", "upstream_addr", "cache", "path", "request", "server", "scheme"),
)
LTSV = TextLog(
    "LTSV log",
    re.compile(
        rb"^(?=(?:[^\n]*\t)?(?:status:\d{3}|req(?:uest)?:\"?[A-Z]|method:[A-Z]))(?:[^\n]*\t)?"
        rb"(?:time(?:_local|_iso8601|stamp)?|datetime|ts):\[?((?:"
        + ISO
        + rb")|(?:"
        + WEB
        + rb")|\d{10}(?:\.\d{1,6})?|\d{13})\]?(?=\t|\r?$)",
        re.MULTILINE,
    ),
    {label: rb"(?:.*\t)?" + label.encode() + rb":([^\t]*+)" for label in _LABELS},
)
FORMATS: tuple[TextLog, ...] = (ALB, CLASSIC, HAPROXY, COMMON, LINES, LINES_AFTER, LINES_EPOCH, LOGFMT, LTSV)
CONNECTIONS = re.compile(rb'"- - - ?"')  # of TCP, in the logs of a balancer or of Envoy
UNTIMED = re.compile(rb"^[^\n]*" + _REQUEST + _STATUS, re.MULTILINE)


def text_format(head: bytes, time_format: TimeFormat | None) -> tuple[TextLog, int] | None:
    """Return the format of most lines of a file's beginning, and their number; of equal ones the first listed."""
    if time_format is not None:
        found = _of_own(head, time_format)
        return None if found is None else (found, len(found.pattern.findall(head)))
    counts = [len(form.pattern.findall(head)) for form in FORMATS]
    # Beside lines of an access log, other lines with a status may be calls to other servers.
    if not any(counts):
        return (LINES_OTHER, others) if (others := len(LINES_OTHER.pattern.findall(head))) else None
    most = max(counts)
    return FORMATS[counts.index(most)], most


def _of_own(head: bytes, time_format: TimeFormat) -> TextLog | None:
    """Return lines with a time of the user's format and a request; None if they are few, and for a table."""
    lines = [line for line in head.split(b"\n") if line.strip()]
    if sum(map(bool, map(REQUEST_LIKE.search, lines))) * 2 <= len(lines):
        return None
    others = [re.sub(time_format.pattern, b"", line) for line in lines[1:] or lines]  # without a header
    if any(len(cells) == 1 and cells != {0} for cells in ({line.count(d) for line in others} for d in _DELIMITERS)):
        return None  # equal numbers of cells in each line
    shown = rb"(?=[^\n]*(?:" + REQUEST_LIKE.pattern + rb"))"
    pattern = re.compile(rb"^" + shown + rb"[^\n]*?(" + time_format.pattern + rb")", re.MULTILINE)
    if pattern.search(head) is None:
        return None
    return TextLog(f"lines with a request and a time as {time_format.text}", pattern, _LINE_FIELDS, time_format)


_DELIMITERS = (b",", b";", b"\t", b"|")


# -- ALB, faster -------------------------------------------------------------------------------------------------------


def _alb_micros(block: bytes) -> Micros:
    """Return `request_creation_time` of each line, negative for lines that are not from an ALB log.

    A usual line is recognised by its quotes: after twelve blank-separated words and five quoted ones, the eleventh
    quote follows the time. Other lines (a quote inside quotes, a shorter fraction) are read one by one.
    """
    text = np.frombuffer(block + bytes(29), dtype=np.uint8)  # so that 29 bytes can always be read
    ends = np.flatnonzero(text == 10)
    begins = np.concatenate(([0], ends[:-1] + 1))
    quotes = np.flatnonzero(text == 34)
    blanks = np.flatnonzero(text == 32)
    first = np.searchsorted(quotes, begins)
    quotes = np.append(quotes, np.full(11, len(text)))
    words = np.searchsorted(blanks, quotes[first]) - np.searchsorted(blanks, begins)
    after = quotes[first + 10]
    usual = (after < ends) & (words == 12) & (after - begins > 64)
    # If a line is unusual, the table shows the block's beginning, which is not used.
    table = text[np.where(usual, after, 29)[:, None] + np.arange(-29, 0)]
    usual &= (table[:, 0] == 32) & (table[:, 28] == 32) & np.isin(text[begins], np.frombuffer(b"ghw", np.uint8))
    usual &= np.all(table[:, [5, 8, 11, 14, 17, 20, 27]] == np.frombuffer(b"--T::.Z", np.uint8), axis=1)
    digits = table[:, _ALB_DIGITS].astype(np.int64) - 48
    usual &= np.all((digits >= 0) & (digits <= 9), axis=1)
    stamps = civil_micros(digits)
    for i in np.flatnonzero(~usual).tolist():
        found = _ALB.match(block, begins[i], ends[i])
        stamps[i] = stamps_of([found[1]]).micros[0] if found else -1
    return stamps


# Columns of the digits in ` 2018-07-02T22:22:48.364000Z `, including the blank before it.
_ALB_DIGITS = [1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 23, 24, 25, 26]

# -- W3C ---------------------------------------------------------------------------------------------------------------

_DIRECTIVE = re.compile(rb"^#[^\n]*\n", re.MULTILINE)
FIELDS = re.compile(rb"^#Fields:[ \t]*([^\n]*)", re.MULTILINE)


@dataclass(slots=True)
class W3cLog:
    """A log whose `#Fields:` names the columns of the following lines, date and time separate, in UTC; repeatable."""

    name: str = "W3C log"
    _fields: list[str] = field(default_factory=list)

    def stamps(self, block: bytes) -> Stamps:
        parts = []
        for text, directive in self._segments(block):
            rows = text.count(b"\n")
            nothing = Stamps(np.full(rows, -1, dtype=np.int64), np.zeros(rows, dtype=np.bool_))
            parts.append(nothing if directive or not self._fields else self._parsed(text))
        return Stamps(np.concatenate([p.micros for p in parts]), np.concatenate([p.local for p in parts]))

    def values(self, field: str, block: bytes) -> list[bytes]:
        values: list[bytes] = []
        for text, directive in self._segments(block):
            if self._fields and field not in self._fields:
                raise BadInput(f"unknown field, this W3C log has {', '.join(self._fields)}", "log_filter", field)
            at = self._fields.index(field) if self._fields else 0
            for line in text.split(b"\n")[:-1]:
                cells = _cells(line)
                values.append(cells[at] if not directive and at < len(cells) else b"-")
        return values

    def names(self, block: bytes) -> Sequence[str]:
        self.stamps(block)
        return [name for name in self._fields if name in ("cs-uri-stem", "cs(User-Agent)", "cs-method", "sc-status")]

    def _segments(self, block: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield directives and the lines between them; the fields are set for the current segment."""
        at = 0
        for found in _DIRECTIVE.finditer(block):
            if found.start() > at:
                yield block[at : found.start()], False
            if (named := FIELDS.match(found[0])) is not None:
                self._fields = named[1].decode("utf-8", "replace").split()
                if not {"date", "time"} <= set(self._fields):
                    text = found[0].decode("utf-8", "replace").strip()
                    raise BadInput("a log of W3C's form needs the fields date and time", "#Fields", text[:80])
            yield found[0], True
            at = found.end()
        if at < len(block):
            yield block[at:], False

    def _parsed(self, text: bytes) -> Stamps:
        rows, texts = [], []
        day, clock = self._fields.index("date"), self._fields.index("time")
        for line in text.split(b"\n")[:-1]:
            cells = _cells(line)
            rows.append(len(cells) == len(self._fields))
            if rows[-1]:
                texts.append(b"%b %bZ" % (cells[day], cells[clock]))
        return spread_over(stamps_of(texts), rows)


def _cells(line: bytes) -> list[bytes]:
    if b"\t" in line:
        return line.split(b"\t")
    return [cell for _, cell in _W3C_CELL.findall(line)] if b'"' in line else line.split(b" ")


_W3C_CELL = re.compile(rb'(^| )("[^"]*"|[^ ]+)')
