"""`open_trace`: opens every kind of trace that a user may name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mark.config import plugins
from mark.domain.errors import BadInput
from mark.domain.time import DAY_S
from mark.traffic.traces.accesslog import HEAD, LogReading, is_log, log_fault, log_file, read_logs
from mark.traffic.traces.arrivals import read_arrivals
from mark.traffic.traces.bad_lines import DEFAULT, BadLines
from mark.traffic.traces.blocks import beginning, is_folder, shown
from mark.traffic.traces.counts import COLUMNS, GAPS, read_counts
from mark.traffic.traces.exports import is_parquet, is_table
from mark.traffic.traces.files import below, is_pattern, matching
from mark.traffic.traces.many import read_many
from mark.traffic.traces.pipes import PipeLimits, from_pipe
from mark.traffic.traces.synthetic import PREFIX, read_synthetic
from mark.traffic.traces.table_files import RECOGNISED, TableColumns, read_table
from mark.traffic.traces.trace import Trace, check_times

GROUP = "mark.trace_sources"  # entry points: a scheme and its reader, called as `read(spec without scheme, gaps)`


def open_trace(
    spec: str,
    *,
    gaps: str = "bridge",
    start_s: float = 0.0,
    duration_s: float | None = None,
    seed: int = 0,
    log_filter: tuple[str, str] | None = None,
    columns: TableColumns = RECOGNISED,
    skip_bad_lines: BadLines = DEFAULT,
) -> Trace:
    """Open a trace by name.

    The name is a file, a folder, a pattern of files, a pipe (`-`), `synthetic:NAME?...` or
    `cloudwatch:NAMESPACE/METRIC?...`.

    A file's content decides its kind. `gaps` (see GAPS) concerns counts only. Start, duration and seed make a
    generator's trace, which runs for start + duration (default: a day); a file is returned whole. `log_filter` (see
    `read_logs`) concerns access logs only, and is refused elsewhere; `columns` concern tables (see `read_table`), and
    its times logs too: other columns make a table of any file. At most `skip_bad_lines` lines of logs and tables are
    left out. Raises BadInput, one line naming file, line and value, for unusable input.
    """
    check_times(start_s, duration_s)
    if gaps not in GAPS:
        raise BadInput(f"must be one of {', '.join(GAPS)}", "gaps", gaps)
    source = _source(spec)
    if log_filter is not None and (source is not None or spec.startswith(PREFIX)):
        raise _no_log(spec)
    if spec.startswith(PREFIX):
        return read_synthetic(spec, start_s + (DAY_S if duration_s is None else duration_s), seed)
    if source is not None:
        trace: Trace = source(spec.partition(":")[2], gaps)
        return trace
    if not spec:
        raise BadInput("names no trace", "TRACE", spec)  # Path("") would be the current folder
    how = LogReading(log_filter, columns.time, columns.times, skip_bad_lines)
    try:
        return _read_files(spec, how, columns, gaps)
    except OSError as error:  # a file that is rotated or removed meanwhile
        why = error.strerror or str(error)
        raise BadInput("cannot be read (removed or renamed meanwhile?)", str(error.filename or spec), why) from error


def _read_files(spec: str, how: LogReading, columns: TableColumns, gaps: str) -> Trace:
    path = Path(spec)
    if is_pattern(spec):
        return read_many(spec, *matching(spec), how, columns, gaps, mixed=True)
    if (piped := kept_pipe(spec, how.log_filter, columns)) is not None:
        return _read_pipe(spec, piped, how, columns, gaps)
    if is_folder(path):
        return read_many(path.name or spec, *below(path), how, columns, gaps, mixed=False)
    return _read_file(path, how, columns, gaps)


def kept_pipe(spec: str, log_filter: tuple[str, str] | None = None, columns: TableColumns = RECOGNISED) -> Path | None:
    """Return the temporary file with the bytes of a pipe of this name; None for other names. Raises BadInput."""
    how = LogReading(log_filter, columns.time, columns.times)
    return from_pipe(spec, PipeLimits(lambda head: head.startswith(b"t_seconds") or is_log(head, how)))


def _read_pipe(spec: str, path: Path, how: LogReading, columns: TableColumns, gaps: str) -> Trace:
    """Read a pipe's temporary file; errors name the pipe."""
    try:
        return _read_file(path, how, columns, gaps)
    except BadInput as error:
        raise BadInput(error.what, error.where.replace(str(path), spec), error.value) from None


def _read_file(path: Path, how: LogReading, columns: TableColumns, gaps: str) -> Trace:
    if is_parquet(path) or columns.asks_for_table:
        return _table(path, columns, gaps, how)
    head = beginning(path, HEAD)
    if not head.strip():
        raise BadInput("the file is empty", str(path))
    header = shown(head.split(b"\n", 1)[0]).strip()
    named = tuple(column.strip() for column in header.split(","))
    if named[0] == "t_seconds" and (how.log_filter is not None or columns.said):
        return _table(path, columns, gaps, how)
    if named == COLUMNS:
        return read_counts(path, gaps)
    if named[0] == "t_seconds" and "count" not in named:
        return read_arrivals(path, header)
    if named[0] == "t_seconds":
        raise BadInput(f"a file of counts has exactly the columns {','.join(COLUMNS)}", f"{path} line 1", header)
    log = log_file(path, how)
    if log is not None:
        return read_logs(path.name, [log], how)
    is_asked = columns.time is not None or columns.count is not None
    if not is_asked and not is_table(head) and (fault := log_fault(path)) is not None:
        raise BadInput(fault, str(path))
    return _table(path, columns, gaps, how)


def _table(path: Path, columns: TableColumns, gaps: str, how: LogReading) -> Trace:
    if how.log_filter is not None:
        raise _no_log(str(path))
    table = read_table(path, columns, gaps, how.bad_lines)
    if table is None:
        what = "neither a trace, an access log nor a table with a column of times that is known (see docs/traces.md)"
        raise BadInput(what, str(path))
    return table


def _source(spec: str) -> Callable[[str, str], Trace] | None:
    """Return the reader of this scheme if a package registers one, or None."""
    scheme, colon, _ = spec.partition(":")
    if not colon or scheme not in plugins.names(GROUP):
        return None
    read: Callable[[str, str], Trace] = plugins.load(GROUP, scheme, "trace source")
    return read


def _no_log(spec: str) -> BadInput:
    return BadInput("only access logs have fields to filter by; this is none", "log_filter", spec)
