"""Several files as one trace: access logs merged by time, or tables of the same columns, one below the other."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.accesslog import LogFile, LogReading, log_fault, log_file, read_logs
from mark.traffic.traces.bad_lines import BadLines
from mark.traffic.traces.cells import read_numbers
from mark.traffic.traces.exports import Export, is_parquet, read_export
from mark.traffic.traces.files import LeftOut, said_of_files
from mark.traffic.traces.meanings import Kind, Meaning
from mark.traffic.traces.stated import of_columns, stated
from mark.traffic.traces.table_files import TableColumns, trace_of_table
from mark.traffic.traces.time_columns import time_column, with_whole_times
from mark.traffic.traces.times import as_times
from mark.traffic.traces.trace import Trace

_PEEK_ROWS = 50
_LEAST_TWIN = 4096  # bytes: shorter files may have only a header
_NO_TEXT = ("binary data", "a line longer")
# The additions of rotation and compression to a name.
_ROTATED = re.compile(r"(?:[.-]?\d[\d.T_-]*|\.(?:gz|bz2|xz|zst))+$")


def read_many(
    name: str,
    files: Sequence[Path],
    left_out: Sequence[LeftOut],
    reading: LogReading,
    columns: TableColumns,
    gaps: str,
    *,
    mixed: bool,
) -> Trace:
    """Return the trace of files: their access logs if there are any, otherwise their tables. Notes name other files.

    Logs of two formats are refused unless `mixed`, because they may hold the same requests. Raises BadInput.
    """
    logs: list[LogFile] = []
    others: list[Path] = []
    left_out = list(left_out)
    for path in files if not columns.asks_for_table else ():
        if is_parquet(path):
            others.append(path)
            continue
        try:
            log = log_file(path, reading)
        except BadInput as error:
            if not error.what.startswith(_NO_TEXT):
                raise
            left_out.append((path.name, error.what))
            continue
        if log is not None:
            logs.append(log)
        else:
            others.append(path)
    if columns.asks_for_table:
        others = list(files)
    if logs:
        if not mixed:
            _refuse_two_formats(logs)
            _refuse_twins([log.path for log in logs])
        _refuse_namesake(logs, others)
        left_out += [(path.name, "no access log") for path in others]
        return read_logs(name, logs, reading, left_out, may_overlap=mixed)
    if reading.log_filter is not None:
        raise BadInput("only access logs have fields to filter by; none is here", "log_filter", name)
    return _tables(name, others, left_out, columns, gaps, reading.bad_lines)


def _refuse_two_formats(logs: Sequence[LogFile]) -> None:
    first = logs[0]
    for log in logs[1:]:
        if log.lines.name != first.lines.name:
            what = f"logs of two formats may hold the same requests, name those to read by a pattern: {first.path.name}"
            found = f"{first.lines.name}, {log.path.name}: {log.lines.name}"
            raise BadInput(what, str(first.path.parent), found)


def _refuse_twins(files: Sequence[Path]) -> None:
    """Refuse files of the same bytes: a copy counts each request twice, though two nodes may write the same lines."""
    by_size: dict[int, list[Path]] = {}
    for path in files:
        alike = by_size.setdefault(path.stat().st_size, [])
        twin = next((one for one in alike if filecmp.cmp(one, path, shallow=False)), None)
        if twin is not None and path.stat().st_size >= _LEAST_TWIN:
            what = f"holds the same bytes as {twin.name}: a copy, or another node? Name those to read by a pattern"
            raise BadInput(what, str(path))
        alike.append(path)


def _refuse_namesake(logs: Sequence[LogFile], others: Sequence[Path]) -> None:
    """Refuse to leave out a file that rotation made of a read one, because its requests would be missing."""
    names = {_ROTATED.sub("", log.path.name): log.path.name for log in logs}
    for path in others:
        if (namesake := names.get(_ROTATED.sub("", path.name))) is not None:
            raise BadInput(f"is named as {namesake} and is no access log that is known", str(path), log_fault(path))


def _tables(
    name: str,
    files: Sequence[Path],
    left_out: Sequence[LeftOut],
    columns: TableColumns,
    gaps: str,
    bad_lines: BadLines,
) -> Trace:
    exports: list[tuple[Path, Export]] = []
    broken: list[tuple[Path, BadInput]] = []
    left_out = list(left_out)
    for path in files:
        try:
            export = read_export(path)
        except BadInput as error:
            broken.append((path, error))
            continue
        if export is None or not _has_times(export):
            left_out.append((path.name, "no log and no table with times"))
        else:
            exports.append((path, export))
    if (named := next((export for _, export in exports if export.named), None)) is not None:
        exports = [(path, _under_header_of(named, export)) for path, export in exports]
        # A program's own log may look like a table without a header.
        left_out += [(path.name, "no table with a header") for path, export in exports if not export.named]
        exports = [(path, export) for path, export in exports if export.named]
    suffixes = {_ROTATED.sub("", path.name).rpartition(".")[2] for path, _ in exports}
    for path, fault in broken:
        # Files of another kind may be left out, but a table may not.
        if _ROTATED.sub("", path.name).rpartition(".")[2] in suffixes:
            raise fault
        left_out.append((path.name, "no table"))
    if not exports:
        faults = [f"{path.name}: {fault.what}" for path, fault in broken]
        faults += [f"{path.name}: {why}" for path in files if (why := log_fault(path)) is not None]
        what = "no file here is an access log or a table with a column of times that is known"
        raise BadInput("; ".join([what, *faults[:1]]), name)
    first_path, first = exports[0]
    for path, export in exports[1:]:
        if list(export.columns) != list(first.columns) or export.form != first.form:
            what = f"tables of different columns, name those to read by a pattern: {first_path.name} and {path.name}"
            raise BadInput(what, name)
        if _said_of(export) != _said_of(first):
            what = f"tables of different units or statistics, read them one by one: {first_path.name} and {path.name}"
            raise BadInput(what, name)
    for path, export in exports:
        if export.cut:
            bad_lines.check_cut(path, len(exports))
    if len(exports) > 1 and "t_seconds" in first.columns:
        raise BadInput("files with t_seconds count from their own start, so they cannot be joined", name)
    where = str(first_path) if len(exports) == 1 else f"{name}, {len(exports)} files one below the other"
    trace = trace_of_table(_joined([export for _, export in exports]), name, where, columns, gaps, bad_lines)
    if trace is None:
        raise BadInput("no column holds times that are known, name it by `time_column`", name)
    if trace.kind == "counts" and columns.series is None:
        _refuse_same_times(exports, columns)
    notes = [f"{len(exports)} files, one below the other"] if len(exports) > 1 else []
    if left_out:
        notes.append(f"{len(left_out)} other files not read: {', '.join(f'{n} ({why})' for n, why in left_out[:5])}")
    read_as = ", ".join(filter(None, (trace.read_as, said_of_files(len(exports), len(left_out)))))
    return replace(trace, read_as=read_as, notes=(*trace.notes, *notes))


def _refuse_same_times(exports: Sequence[tuple[Path, Export]], columns: TableColumns) -> None:
    """Refuse tables of counts whose times overlap: they count different things, or the same requests twice."""
    spans = []
    for path, export in exports:
        found = time_column(with_whole_times(export.columns), str(path), columns.time, columns.times)
        if found is not None:
            spans.append((float(found[1].known.min()), float(found[1].known.max()), path.name))
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            what = f"{first} and {second} hold rows of the same time: read one of them, or join both into one table"
            raise BadInput(f"{what} with a column that names the file, and say `series` sum", str(exports[0][0].parent))


def _joined(exports: Sequence[Export]) -> Export:
    """Join tables one below the other, with line numbers as in one joined file."""
    first, *others = exports
    if not others:
        return first
    columns = {key: [value for export in exports for value in export.columns[key]] for key in first.columns}
    lines: list[int] = []
    bad: list[tuple[int, str]] = []
    before = 0
    for export in exports:
        own = export.lines or range(1, len(next(iter(export.columns.values()))) + 1)
        lines += [before + line for line in own]
        bad += [(before + line, what) for line, what in export.bad]
        before = max([*lines[-1:], *(line for line, _ in bad[-1:])])
    skipped = [what for export in exports for what in export.skipped]
    lines_of_all = lines if first.lines else None
    cut = any(export.cut for export in exports)
    said = list(dict.fromkeys(one for export in exports for one in export.stated))
    return replace(first, columns=columns, lines=lines_of_all, bad=bad, skipped=skipped, cut=cut, stated=said)


def _said_of(export: Export) -> tuple[object, ...]:
    statements = [*export.stated, *of_columns(export.columns)]
    return export.unit, dict(export.meanings), stated(Meaning(Kind.COUNT), statements)


def _under_header_of(named: Export, export: Export) -> Export:
    """Return a table without a header under that of another one, if it continues its rows, as `split` leaves them."""
    if export.named or (export.form, len(export.columns)) != (named.form, len(named.columns)):
        return export
    if _kinds_of(export) != _kinds_of(named):
        return export
    return replace(export, columns=dict(zip(named.columns, export.columns.values(), strict=True)), named=True)


def _kinds_of(export: Export) -> list[tuple[bool, bool]]:
    """Return for each column whether it holds times, and whether it holds numbers."""
    peeks = {key: values[:_PEEK_ROWS] for key, values in export.columns.items()}
    return [(_are_times(key, values), read_numbers(values) is not None) for key, values in peeks.items()]


def _has_times(export: Export) -> bool:
    return any(_are_times(key, values[:_PEEK_ROWS]) for key, values in export.columns.items())


def _are_times(key: str, values: Sequence[object]) -> bool:
    try:
        return as_times(key, values) is not None
    except BadInput:
        return True  # `trace_of_table` reports the fault
