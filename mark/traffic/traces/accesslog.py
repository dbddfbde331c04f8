"""Access logs as traces: one file, or many that are merged by time.

Lines are in the order of the answers, each node of a balancer writes its own file, and files are rotated and
concatenated. So the times of all lines are sorted (see `ordered`), and late requests are kept. A line that is not a
request of the format is counted and named; if there are more of them than `BadLines` allows, the log is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.arrivals import trace_of
from mark.traffic.traces.bad_lines import DEFAULT, BadLines
from mark.traffic.traces.blocks import BOM, CUT_OFF, beginning, blocks, shown, watched
from mark.traffic.traces.files import said_of_files
from mark.traffic.traces.health_checks import refuse_health_checks
from mark.traffic.traces.log_json import JsonLog, from_container, in_container, json_log, messages_in, timed
from mark.traffic.traces.log_text import (
    ADDRESSES,
    ALB,
    CLASSIC,
    CONNECTIONS,
    FIELDS,
    NOTICE,
    REQUEST_LIKE,
    UNTIMED,
    LogLines,
    TextLog,
    W3cLog,
    text_format,
)
from mark.traffic.traces.meanings import Kind, meaning_of
from mark.traffic.traces.ordered import Ordered
from mark.traffic.traces.overlaps import Overlaps, Repeats
from mark.traffic.traces.partial import is_limit
from mark.traffic.traces.stamps import Micros, Stamps, TimeFormat, ZoneClock, changed_clock, stamps_of
from mark.traffic.traces.stated import sample_of, says_sample
from mark.traffic.traces.times import AS_WRITTEN, TimeForm
from mark.traffic.traces.trace import Trace
from mark.traffic.traces.twice import refuse_two_lines, refuse_two_objects

Mask = NDArray[np.bool_]

HEAD = 1 << 16  # bytes of a file by which its format is recognised
_NO_YEAR = re.compile(rb"(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ")  # of syslog
_LEAST_SHARE = 0.1  # least share of requests among a file's first lines, for the file to be a log
_LEAST_BEFORE = 10
_MOST_BEFORE = 100  # lines of start-up before a file's first request
_MOST_KEPT = 2_000_000  # requests kept in memory; more are read from their sorted file
_MOST_NAMED = 5
_FIELD = re.compile(r'(?:^|\s)([A-Za-z_][\w.]*)[=:]"?([^\s"]+)"?(?=\s|$)')  # of logfmt and LTSV
_FIRST_LINES = 20  # that may hold comments on the file
_LONGEST_LINE = 1 << 14  # bytes of a request
_REPEATED = re.compile(rb"message repeated (\d+) times: \[")  # by rsyslog
_LINES = rb"(?:messages|lines|entries|requests|records|events|logs)"
_GONE = rb"(?:suppressed|dropped|omitted|skipped|discarded|lost)"
_LEFT_OUT = re.compile(  # lines that a logger counts instead of writing them
    rb"(?i)\b(?:(?:message|line)s? repeated \d+ times|suppressed\W{1,3}[1-9]\d*\b|\d+ more "
    + rb"%b|%b [1-9]\d* (?:\w+ )?%b|[1-9]\d* (?:\w+ )?%b (?:were )?%b)" % (_LINES, _GONE, _LINES, _LINES, _GONE)
)
_PAIRS = 1 << 20  # bytes of a file that show whether each request has two lines
_SECOND_US = 1_000_000
# Prefixes of Kubernetes' node logs and of docker compose.
_PREFIX = re.compile(rb"^(?:\d{4}-\S+ std(?:out|err) [FP] |[\w.-]+ +\| ?)", re.MULTILINE)
_PREFIX_TIME = re.compile(rb"^(\d{4}-\S+) std(?:out|err) [FP] ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LogReading:
    """A user's settings for a log.

    `log_filter` is a field and its value (exact, or a shell pattern of `*` and `?`): other lines are skipped as if they
    did not exist; with a `!` behind the field the lines with this value are. `time_field` names the field of a JSON
    log. `times` is the form of a line's time (only forms of `strptime` concern logs), and the zone of times that name
    none (otherwise UTC).
    """

    log_filter: tuple[str, str] | None = None
    time_field: str | None = None
    times: TimeForm = AS_WRITTEN
    bad_lines: BadLines = DEFAULT


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, its format, and how its lines are unwrapped from objects or prefixes."""

    path: Path
    lines: LogLines
    unwrap: Callable[[bytes], bytes] | None = None

    def are_requests(self, block: bytes) -> list[bool]:
        """Return for each line whether it is a request."""
        found: list[bool] = (
            self.lines.stamps(block if self.unwrap is None else self.unwrap(block)).micros >= 0
        ).tolist()
        return found


def log_file(path: Path, reading: LogReading) -> LogFile | None:
    """Return the file as an access log, by its first lines, or None. Raises BadInput for an unreadable file."""
    head = _short_lines(beginning(path, HEAD))
    found = _recognised(path, head, reading)
    if found is not None and reading.log_filter is None:
        _refuse_sample(found, b"".join(head.splitlines(keepends=True)[:_FIRST_LINES]))
    return found


def _refuse_sample(log: LogFile, first: bytes) -> None:
    """Raise BadInput if a comment, a first line that is no request, or a field says that requests stand for others."""
    lines = list(zip(first.split(b"\n"), log.are_requests(first), strict=False))
    # A field that is 0 in some request counts something within a request, as `queries=0` of a database.
    within = {key for line, is_request in lines if is_request for key, value in _fields(line) if value == "0"}
    for number, (line, is_request) in enumerate(lines, 1):
        if not is_request and (number == 1 or line.startswith((b"#", b";", b"//"))) and says_sample(shown(line)):
            what = "the requests are a sample: `log_filter` line=* counts its lines, and `scale` more"
            raise BadInput(what, f"{log.path} line {number}", shown(line)[:80])
        fields = _fields(line) if is_request and isinstance(log.lines, TextLog) else []
        several = (
            f"{key}={value}"
            for key, value in fields
            if sample_of(key, value) or (key not in within and _counts(key, value))
        )
        if (odd := next(several, None)) is not None:
            what = "a line stands for several requests: `log_filter` line=* counts the lines, and `scale` more"
            raise BadInput(what, f"{log.path} line {number}", odd)


def _fields(line: bytes) -> list[tuple[str, str]]:
    return _FIELD.findall(line.decode("utf-8", "replace"))


def _counts(key: str, value: str) -> bool:
    """Return whether a field of a line counts requests, and not one."""
    return value.isdigit() and int(value) != 1 and (key == "n" or meaning_of(key).kind in (Kind.REQUESTS, Kind.COUNT))


def is_log(head: bytes, reading: LogReading) -> bool:
    """Return whether these bytes begin an access log."""
    return _recognised(Path(), _short_lines(head[: head.rfind(b"\n") + 1]), reading) is not None


def log_fault(path: Path) -> str | None:
    """Return why a file that resembles an access log cannot be read as one; None if it does not resemble one."""
    head = _short_lines(beginning(path, HEAD))
    if in_container(head):
        return "a container's log, and its lines are no access log in a known format"
    if CONNECTIONS.search(head):
        return "its lines are connections, which hold any number of requests"
    lines = [line for line in head.split(b"\n") if not NOTICE.match(line)]
    if UNTIMED.search(head) or sum(map(bool, map(REQUEST_LIKE.search, lines))) > len(lines) / 2:
        if _NO_YEAR.match(head):
            return "its times have no year: export them with one, as `journalctl -o short-iso` does"
        what = "its requests show no time that is known: say how they write it by `time_format`, or log the time too"
        return f"{what}; in a table, name the columns by `time_column` and `count_column`"
    return None


def read_logs(
    name: str,
    files: Sequence[LogFile],
    reading: LogReading,
    left_out: Sequence[tuple[str, str]] = (),
    *,
    may_overlap: bool = True,
) -> Trace:
    """Return the arrivals of the files of a log; second 0 is the first request.

    `left_out` are names of other files and why they were not read, for the notes. Raises BadInput for a log with more
    bad lines than allowed, for a filter's field that the format lacks, and for a filter that leaves no lines; unless
    `may_overlap`, also for files that hold the same requests.
    """
    log = _Log(name, files, reading, left_out, may_overlap)
    trace = trace_of(name, log.stream, notes=log.notes, most_kept=_MOST_KEPT)
    return replace(trace, read_as=log.read_as, began_s=float(log.origin) / 1e6)


def _recognised(path: Path, head: bytes, reading: LogReading) -> LogFile | None:
    if in_container(head):
        return _within(path, head, reading, (from_container, timed(head)))
    if _is_prefixed(head):
        return _within(path, head, reading, (_without_prefix, _with_time_of_prefix))
    if FIELDS.search(head):
        return LogFile(path, W3cLog())
    form = reading.times.form
    time_format = TimeFormat(form) if form is not None and "%" in form else None
    parse = stamps_of if time_format is None else time_format.stamps
    try:
        whole = reading.log_filter is None
        found = json_log(head, parse, reading.time_field, whole=whole) or text_format(head, time_format)
    except BadInput as error:
        raise BadInput(error.what, str(path), error.value) from None
    if found is None:
        return _within(path, head, reading, (messages_in(head), timed(head)))
    lines, requests = found
    others = sum(1 for line in head.split(b"\n")[_MOST_BEFORE:] if line.strip() and not NOTICE.match(line))
    return LogFile(path, lines) if requests >= _LEAST_SHARE * min(others, 2 * HEAD) else None


def _within(
    path: Path, head: bytes, reading: LogReading, ways: Sequence[Callable[[bytes], bytes] | None]
) -> LogFile | None:
    """Return the log whose lines the first of these functions unwraps that gives one: without times of their own, the
    lines keep those of their wrappers."""
    for unwrap in ways:
        lines = head if unwrap is None else unwrap(head)
        inner = None if lines == head else _recognised(path, lines, reading)
        if inner is not None:
            return LogFile(path, inner.lines, unwrap)
    return None


def _short_lines(head: bytes) -> bytes:
    """Return the lines that may be a request's; a document on one line would take the patterns minutes."""
    return b"".join(line for line in head.splitlines(keepends=True) if len(line) <= _LONGEST_LINE)


def _is_prefixed(head: bytes) -> bool:
    first = [line for line in head.split(b"\n", 20)[:20] if line.strip()]
    return bool(first) and all(map(_PREFIX.match, first))


def _without_prefix(block: bytes) -> bytes:
    return _PREFIX.sub(b"", block)


def _with_time_of_prefix(block: bytes) -> bytes:
    return _PREFIX_TIME.sub(rb"\1 ", block)


# -- lines left out ----------------------------------------------------------------------------------------------------


class _Filter:
    """Keeps the lines whose field is `value`, or fits it as a shell pattern of `*` and `?`; a `name!` the others."""

    def __init__(self, name: str, value: str) -> None:
        self.name = name.removesuffix("!")
        self._keeps = self.name == name
        self.text = shown(f"{name}={value}".encode("utf-8", "surrogateescape"))
        # Brackets are escaped, because paths and IPv6 addresses contain them.
        self._pattern = re.compile(translate(value.replace("[", "[[]")))

    def values(self, block: bytes, lines: LogLines) -> list[bytes]:
        """Return each line's value. Raises BadInput for an unknown field."""
        try:
            return lines.values(self.name, block)
        except BadInput as error:
            raise BadInput(error.what, "log_filter", self.text) from None

    def fits(self, value: bytes) -> bool:
        text = value.decode("utf-8", "surrogateescape")
        address = text.rpartition(":")[0] if self.name in ADDRESSES else text
        return any(self._pattern.match(one) for one in (text, address)) is self._keeps


_Place = tuple[Path, int, str]  # a file, the number of a line, and the line
_NOWHERE: _Place = (Path(), 0, "")


def _named(place: _Place) -> tuple[str, str]:
    """Return the place of a line, without folders, and its beginning."""
    path, number, line = place
    return f"{path.name} line {number}", line[:80]


@dataclass(slots=True)
class _Tally:
    """Counts from the reading of a log."""

    lines: int = 0  # without blank lines
    requests: int = 0  # before the filter
    bad: int = 0
    first_bad: _Place = _NOWHERE
    cut: int = 0  # of the bad lines, those at the end of a file
    cut_files: list[Path] = field(default_factory=list)  # compressed files that end too early
    before: int = 0  # unknown lines before the first request of a file
    notices: int = 0  # including `before`
    first_notice: _Place = _NOWHERE
    filtered: int = 0
    first_filtered: str = ""
    nul_bytes: int = 0
    local: int = 0
    formats: set[str] = field(default_factory=set)
    whole_seconds: bool = True

    def saw_nuls(self, count: int) -> None:
        self.nul_bytes += count

    def check(self, allowed: BadLines) -> None:
        """Raise BadInput if too many lines are bad. A file may end with a cut line."""
        # Start-up is short; more lines before few requests are lines of another format.
        bad, first = self.bad, self.first_bad
        if self.before > max(_LEAST_BEFORE, self.requests):
            bad, first = bad + self.before, self.first_notice
        most = allowed.allowed(self.lines, least=1)  # a log of a few lines may have a bad one too
        if bad and (not self.requests or bad > most + (self.cut if most else 0)):
            path, number, line = first
            share = -(-10_000 * bad // self.lines) / 100
            what = f"{bad} of {self.lines} lines are no requests of its format; `skip_bad_lines` {share:g}% leaves"
            raise BadInput(f"{what} them out; the first", f"{path} line {number}", line)


@dataclass(slots=True)
class _Log:
    """The files of a log. They are read once; their sorted times are kept."""

    name: str
    files: Sequence[LogFile]
    reading: LogReading
    left_out: Sequence[tuple[str, str]]
    may_overlap: bool
    overlaps: Overlaps = field(default_factory=Overlaps)
    tally: _Tally = field(default_factory=_Tally)
    clock: ZoneClock | None = None
    ordered: Ordered | None = None
    origin: int = 0

    def stream(self) -> Iterator[FloatArray]:
        """Yield ascending seconds from the first request."""
        if self.ordered is None:
            self.ordered = self._sorted()
        stamps = self.ordered.blocks()
        for block in _spread(stamps) if self.tally.whole_seconds else stamps:
            self.origin = self.origin or int(block[0])
            yield (block - self.origin) / 1e6

    @property
    def read_as(self) -> str:
        """The format, and how many lines, files and requests were left out."""
        tally = self.tally
        parts = [" and ".join(sorted(tally.formats))]
        parts += filter(None, [said_of_files(len(self.files), len(self.left_out))])
        left_out = tally.lines - tally.requests
        parts += [f"{left_out} of {tally.lines} lines left out"] if left_out else []
        parts += [f"{path.name}: {CUT_OFF}" for path in tally.cut_files]
        parts += [f"{tally.filtered} requests filtered out"] if tally.filtered else []
        cut = is_limit(tally.lines) and all(isinstance(file.lines, JsonLog) for file in self.files)
        parts += [f"exactly {tally.lines:,} lines, as after a query's limit"] if cut else []
        return ", ".join(parts)

    def notes(self) -> tuple[str, ...]:
        tally, named = self.tally, " and ".join(sorted(self.tally.formats))
        keep = self.reading.log_filter
        if len(self.files) > 1 or tally.lines > tally.requests:
            files = f" of {len(self.files)} files" if len(self.files) > 1 else ""
            named = f"{named}: {tally.requests} requests in {tally.lines} lines{files}"
        notes = [named]
        if keep is not None:
            text = _Filter(*keep).text
            notes.append(f"{tally.requests - tally.filtered} of {tally.requests} lines kept by --log-filter {text}")
        if tally.bad:
            where, line = _named(tally.first_bad)
            share = f"{100.0 * tally.bad / tally.lines:.2g} %"
            cut = f", {tally.cut} of them cut at the end of a file" if tally.cut else ""
            notes.append(f"{tally.bad} malformed lines left out ({share}{cut}), the first at {where}: {line}")
        if tally.notices:
            where, line = _named(tally.first_notice)
            notes.append(f"{tally.notices} lines that are no requests left out, the first at {where}: {line}")
        if tally.nul_bytes:
            notes.append(f"{tally.nul_bytes} NUL bytes between lines passed over")
        if self.left_out:
            notes.append(f"{len(self.left_out)} other files not read: {_listed(self.left_out)}")
        if tally.local and self.clock is None:
            notes.append("times without a zone read as UTC (--time-zone names another)")
        elif tally.local and self.clock is not None:
            twice = f", {self.clock.twice} lines in an hour that it showed twice" if self.clock.twice else ""
            notes.append(f"times without a zone read on the clock of {self.reading.times.zone}{twice}")
        if tally.whole_seconds:
            notes.append("whole-second stamps: requests of a second are spread evenly over it")
        return tuple(notes)

    def _sorted(self) -> Ordered:
        self.tally = _Tally()
        zone = self.reading.times.zone
        self.clock = None if zone is None else ZoneClock(zone)
        keep = None if self.reading.log_filter is None else _Filter(*self.reading.log_filter)
        ordered = Ordered()
        if len(self.files) > 1 and not self.may_overlap:
            self.overlaps = Overlaps.of((file.path, file.are_requests) for file in self.files)
        sizes = [file.path.stat().st_size for file in self.files]
        teller = watched.get()
        before = 0
        for file, size in zip(self.files, sizes, strict=True):
            told = None if teller is None else _part(teller, before, sum(sizes))
            for stamps in self._stamps(file, keep, told):
                ordered.add(stamps)
                if self.tally.whole_seconds:
                    self.tally.whole_seconds = not np.any(stamps % _SECOND_US)
            before += size
        self.tally.check(self.reading.bad_lines)
        if self.tally.cut_files:
            self.reading.bad_lines.check_cut(self.tally.cut_files[0], len(self.files))
        if keep is not None and not ordered.count:
            first = f"the first of {self.tally.filtered} in {self.name} has {self.tally.first_filtered!r}"
            raise BadInput(f"no lines match; {first}", "log_filter", keep.text)
        return ordered

    def _stamps(self, file: LogFile, keep: _Filter | None, told: Callable[[int, int], None] | None) -> Iterator[Micros]:
        """Yield the times of the requests that are kept, in the order of the lines, never empty."""
        tally = self.tally
        tally.formats.add(file.lines.name)
        tally.whole_seconds = tally.whole_seconds and file.lines.name not in (ALB.name, CLASSIC.name)
        if self.clock is not None:
            self.clock.begin()
        begun = ends_bad = False
        repeats = Repeats()
        for line, raw in blocks(file.path, nuls=tally.saw_nuls, cut=tally.cut_files.append, told=told):
            self.overlaps.check(file.path, raw)
            # Each of several joined files may have begun with a byte-order mark.
            block = raw.replace(b"\n" + BOM, b"\n") if BOM in raw else raw
            block = block if file.unwrap is None else file.unwrap(block)
            try:
                found = file.lines.stamps(block)
            except BadInput as error:
                raise BadInput(error.what, str(file.path), error.value) from None
            micros = found.micros
            if keep is None and not begun:
                self._refuse_doubtful(file, block[: block.rfind(b"\n", 0, _PAIRS) + 1] or block)
            if keep is None and not found.local.any():  # clocks that are set back repeat lines, too
                repeats.see(line, raw, micros)
            wrong = np.flatnonzero(micros < 0)
            tally.lines += len(micros)
            if len(wrong):
                first = int(np.argmax(micros >= 0)) if len(wrong) < len(micros) else len(micros)
                startup = 0 if begun else first
                ends_bad = self._count_others(file, line, block, wrong, startup, ends_bad=ends_bad)
            else:
                ends_bad = False
            begun = begun or len(wrong) < len(micros)
            tally.requests += len(micros) - len(wrong)
            kept = micros >= 0 if keep is None else self._kept(keep, block, file.lines, micros >= 0)
            utc = self._in_utc(found, kept, (file.path, line))
            if len(utc):
                yield utc
        tally.cut += ends_bad
        repeats.check(file.path, f"`log_filter` {_any_line(file.lines)}")
        if self.clock is not None:
            try:
                self.clock.end()
            except BadInput as error:
                raise BadInput(f"{error.where} {error.value}: {error.what}", str(file.path)) from None

    def _refuse_doubtful(self, file: LogFile, head: bytes) -> None:
        """Raise BadInput if in the first lines of a file requests have several lines, or many are health checks."""
        lines = file.lines
        micros = lines.stamps(head).micros
        good = np.flatnonzero(micros >= 0).tolist()
        seconds = micros[good] / 1e6

        def values(name: str) -> list[bytes]:
            of_all = lines.values(name, head)
            return [of_all[i] for i in good]

        try:
            all_lines = head.split(b"\n")
            texts = [all_lines[i] for i in good]
            if (repeated := _REPEATED.search(head)) is not None:
                what = f"a line stands for {repeated[1].decode()} requests: `log_filter` line=* counts each once"
                raise BadInput(f"{what}, and line!=*repeated* leaves them out", "")
            if isinstance(lines, JsonLog):
                rows = lines.rows(head)
                refuse_two_objects([rows[i] or {} for i in good], seconds)
            elif isinstance(lines, TextLog) and "path" in lines.fields:
                known = values("status") if "status" in lines.fields else [b""] * len(good)
                statuses = [b"" if status == b"-" else status for status in known]
                refuse_two_lines(texts, seconds, list(zip(values("method"), values("path"), statuses, strict=True)))
            refuse_health_checks(texts, lines.names(head), values, _any_line(lines))
        except BadInput as error:
            raise BadInput(error.what, str(file.path)) from None

    def _count_others(
        self, file: LogFile, line: int, block: bytes, wrong: Micros, startup: int, *, ends_bad: bool
    ) -> bool:
        """Count the lines of a block that are not requests. Return whether the last line so far is a bad one."""
        tally = self.tally
        texts = block.split(b"\n")
        for i in wrong.tolist():
            text = texts[i]
            if not text.strip():
                tally.lines -= 1
                continue
            before = i < startup and i < _MOST_BEFORE and not REQUEST_LIKE.search(text)
            place = (file.path, line + i, shown(text))
            if self.reading.log_filter is None and _LEFT_OUT.search(text):
                what = f"the logger left lines out here: `log_filter` {_any_line(file.lines)} counts the others"
                raise BadInput(what, f"{file.path} line {line + i}", shown(text)[:80])
            if before or NOTICE.match(text):
                tally.notices += 1
                tally.before += before
                tally.first_notice = tally.first_notice if tally.notices > 1 else place
                ends_bad = False
            else:
                tally.bad += 1
                tally.first_bad = tally.first_bad if tally.bad > 1 else place
                ends_bad = True
        last = next((i for i in range(len(texts) - 1, -1, -1) if texts[i].strip()), -1)
        if last >= 0 and not (len(wrong) and last in wrong[-50:]):
            return False
        return ends_bad

    def _kept(self, keep: _Filter, block: bytes, lines: LogLines, valid: Mask) -> Mask:
        """Return which of the valid lines of a block a filter keeps; the others are counted."""
        values = keep.values(block, lines)
        verdicts = {value: keep.fits(value) for value in set(values)}  # most fields have few values
        fits = np.fromiter(map(verdicts.__getitem__, values), dtype=np.bool_, count=len(values))
        others = np.flatnonzero(valid & ~fits)
        if len(others) and not self.tally.filtered:
            self.tally.first_filtered = shown(values[others[0]])
        self.tally.filtered += len(others)
        return valid & fits

    def _in_utc(self, found: Stamps, kept: Mask, place: tuple[Path, int]) -> Micros:
        """Return the kept times in UTC. Raises BadInput for a clock change in an unknown zone."""
        micros, local = found.micros[kept], found.local[kept]
        if local.any():
            self.tally.local += int(local.sum())
            if self.clock is not None:
                micros[local] = self.clock.utc(micros[local])
            elif (jump := changed_clock(micros[local])) is not None:
                at, zone = jump
                path, line = place
                number = line + int(np.flatnonzero(kept & found.local)[at])
                shown_at = str(np.datetime64(int(micros[local][at]), "us"))[:19].replace("T", " ")
                what = f"times jump as where clocks are set (in {zone}, for instance): say `time_zone`,"
                raise BadInput(f"{what} UTC if they are not", f"{path} line {number}", shown_at)
        return micros


def _any_line(lines: LogLines) -> str:
    """Return a filter that keeps every line."""
    if isinstance(lines, JsonLog):
        return f"{'.'.join(lines.paths[0])}=*"
    return "time=*" if isinstance(lines, W3cLog) else "line=*"


def _part(teller: Callable[[int, int], None], before: int, total: int) -> Callable[[int, int], None]:
    return lambda done, _: teller(before + done, total)


def _listed(left_out: Sequence[tuple[str, str]]) -> str:
    named = [f"{name} ({why})" for name, why in left_out[:_MOST_NAMED]]
    more = len(left_out) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _spread(stream: Iterator[Micros]) -> Iterator[Micros]:
    """Spread whole-second stamps, ascending, evenly over their second. A second is never split."""
    held = np.empty(0, dtype=np.int64)
    for block in stream:
        stamps = np.concatenate((held, block))
        cut = int(np.searchsorted(stamps, stamps[-1]))
        if cut:
            yield _over_seconds(stamps[:cut])
        held = stamps[cut:]
    if len(held):
        yield _over_seconds(held)


def _over_seconds(stamps: Micros) -> Micros:
    begins = np.flatnonzero(np.diff(stamps, prepend=-1))
    counts = np.diff(begins, append=len(stamps))
    place = np.arange(len(stamps)) - np.repeat(begins, counts)
    return np.asarray(stamps + place * _SECOND_US // np.repeat(counts, counts), dtype=np.int64)
