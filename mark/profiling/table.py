"""Profiles: read latencies by batch size from CSV; the paper's models ship with mark, measured and derived for today.

Columns are `model,instance,batch,latency_ms` and those of `_OPTIONAL`, with one row per batch size; functions are
instances called `lambda:MEMORY_MB`. A file with the column `units_per_s` has one row per type instead, with the
throughput of a whole instance in a unit other than requests. docs/profiles.md explains the columns and the sources of
the shipped rows.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

from mark.domain.cells import Row, read_rows, read_text
from mark.domain.errors import BadInput
from mark.domain.function_offer import is_function
from mark.domain.load_unit import REQUESTS, checked_unit
from mark.domain.profile import Basis, Profile, ProfileRow
from mark.profiling.policy import sigma_of

_DATA = Path(__file__).parent / "data"
_SHIPPED = (_DATA / "derived-2026.csv", _DATA / "paper.csv")
_REQUIRED = ("model", "instance", "batch", "latency_ms")
_REQUIRED_IN_UNITS = ("model", "instance", "unit", "units_per_s")
_OPTIONAL_IN_UNITS = ("overhead_ms", "cold_ms", "workers", "vcpus", "memory_mb", "basis", "source")
_MOST_UNITS_PER_S, _LEAST_UNITS_PER_S = 1e6, 1e-6  # of a worker
_MILLISECONDS = re.compile(r"\bms\b|millisecond|^mark profile:")
_LEAST_MS = {"latency_ms": 0.2, "cold_ms": 20.0}
_FALLS = 0.8  # of the time of a smaller batch
_MOST_APART = 300.0  # times, of requests of one model on any types
_SECONDS = re.compile(r"0?\.\d{3,6}")  # three decimals of a second
_OPTIONAL = (
    *("p99_ms", "w_batch_ms", "overhead_ms", "cold_ms", "workers", "vcpus", "memory_mb"),
    *("basis", "source"),
)


def measured_profiles(name_or_path: str | None, file: str) -> dict[str, dict[str, Profile]]:
    """Return `load_profiles` for a service or pipeline `file`.

    If its profile does not exist, the error names the command that makes it.
    """
    if file and name_or_path not in (None, "paper") and _is_missing(Path(str(name_or_path))):
        how = f"`mark profile {file} --instance TYPE --out {name_or_path}`"
        raise BadInput(f"is not there yet: measure first, {how}", f"{file} profile", name_or_path)
    return load_profiles(name_or_path)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # not a valid path: its reader reports why
        pass
    return False


def load_profiles(name_or_path: str | None = None) -> dict[str, dict[str, Profile]]:
    """Return model -> instance -> profile, from the shipped table (None or "paper") or the CSV file at that path.

    Raises BadInput for a file that cannot be read, an unknown or missing column, a number out of range, a repeated
    batch size, and rows of one type that disagree about workers or overhead.
    """
    paths = _SHIPPED if name_or_path in (None, "paper") else (Path(str(name_or_path)),)
    rows: dict[tuple[str, str], dict[int, ProfileRow]] = {}
    for line in chain.from_iterable(map(_lines, paths)):
        row = _row(line)
        of_type = rows.setdefault((line.text("model"), line.text("instance")), {})
        first = next(iter(of_type.values()), row)
        if row.batch in of_type:
            if "units_per_s" in line.cells:
                raise BadInput("the same model and instance twice", f"{line.where} instance", line.text("instance"))
            raise BadInput("the same model, instance and batch twice", f"{line.where} batch", row.batch)
        if row.workers != first.workers:
            raise BadInput("all batch sizes of a type share one number", f"{line.where} workers", row.workers)
        if row.overhead_ms != first.overhead_ms:
            raise BadInput("all batch sizes of a type share one overhead", f"{line.where} overhead_ms", row.overhead_ms)
        of_type[row.batch] = row
    if not rows:
        raise BadInput("the profile has no row", str(paths[0]))
    if paths is not _SHIPPED:
        _refuse_seconds(paths[0])
        _refuse_times_of_requests(rows, paths[0])
    profiles: dict[str, dict[str, Profile]] = {}
    for (model, instance), of_type in rows.items():
        by_batch = tuple(of_type[batch] for batch in sorted(of_type))
        if by_batch[0].batch > 1 and not is_function(instance):
            of_model = {other: of for (name, other), of in rows.items() if name == model}
            family = {other: of for other, of in of_model.items() if _family(other) == _family(instance)}
            by_batch = (*(_alone(family, by_batch[0]) or _alone(of_model, by_batch[0])), *by_batch)
        profiles.setdefault(model, {})[instance] = Profile(model, instance, by_batch)
    return profiles


def _lines(path: Path) -> Iterator[Row]:
    columns = {cell.strip() for cell in read_text(path).partition("\n")[0].split(",")}
    if "units_per_s" in columns:
        return read_rows(path, _REQUIRED_IN_UNITS, _OPTIONAL_IN_UNITS)
    return read_rows(path, _REQUIRED, _OPTIONAL)


def _refuse_seconds(path: Path) -> None:
    """Raise BadInput if most latencies of a file made by hand look like seconds: a fraction of 1.

    Rows whose source says ms, and those of `mark profile`, are believed. A registry keeps the latter without a source.
    """
    lines = [
        line
        for line in _lines(path)
        if not _MILLISECONDS.search(line.cells.get("source", "")) and not (line.has("basis") and line.has("memory_mb"))
    ]
    for column, least_ms in _LEAST_MS.items():
        known = [line for line in lines if line.has(column) and line.number(column) > 0.0]
        short = [line for line in known if line.number(column) < least_ms or _SECONDS.fullmatch(line.cells[column])]
        each = [line.number(column) / max(line.number_or("batch", 1.0), 1.0) for line in known]
        if short and (len(short) >= max(0.5 * len(known), 1.0) or max(each) > _MOST_APART * min(each)):
            what = "are these seconds? Write milliseconds; if they are, say `ms` in the column source"
            raise BadInput(what, f"{short[0].where} {column}", short[0].cells[column])


def _refuse_times_of_requests(rows: Mapping[tuple[str, str], Mapping[int, ProfileRow]], path: Path) -> None:
    """Raise BadInput if times fall with the batch size, because they may be per request and not per batch.

    Rows with a basis are not checked: `mark profile` writes one, and warns of such times itself.
    """
    stated = {(line.text("model"), line.text("instance")) for line in _lines(path) if line.has("basis")}
    for (model, instance), of_type in rows.items():
        if (model, instance) in stated:
            continue
        for small, large in pairwise(sorted(of_type)):
            if of_type[large].latency_ms < _FALLS * of_type[small].latency_ms:
                what = f"a batch of {large} takes less than one of {small}: is it the time of one request in the batch?"
                where = f"{path} {model} on {instance} latency_ms"
                raise BadInput(f"{what} Write the time of the whole batch", where, of_type[large].latency_ms)


def _family(instance: str) -> str:
    return instance.removeprefix("ml.").partition(".")[0]


def _alone(others: Mapping[str, Mapping[int, ProfileRow]], smallest: ProfileRow) -> tuple[ProfileRow, ...]:
    """Return the row of batch 1 for a type whose smallest batch b is larger; nothing if no other type has both.

    T_1 is T_b times the median of T_1 / T_b over the other types. Using T_b instead would halve the capacity of a type
    that has no time for two batches of b within RT_max.
    """
    pairs = [(rows[1], rows[smallest.batch]) for rows in others.values() if {1, smallest.batch} <= rows.keys()]
    if not pairs:
        return ()
    ratio = min(1.0, statistics.median(one.latency_ms / several.latency_ms for one, several in pairs))
    assumed = any(row.basis is Basis.ASSUMED for row in chain.from_iterable((*pairs, (smallest,))))
    alone = replace(
        smallest,
        batch=1,
        latency_ms=smallest.latency_ms * ratio,
        p99_ms=None if smallest.p99_ms is None else smallest.p99_ms * ratio,
        w_batch_ms=None,
        basis=Basis.ASSUMED if assumed else Basis.DERIVED,
    )
    return (alone,)


def _row(line: Row) -> ProfileRow:
    basis = line.cells.get("basis") or Basis.MEASURED
    if basis not in set(Basis):
        raise BadInput(f"must be one of {', '.join(Basis)}", f"{line.where} basis", basis)
    in_units = "units_per_s" in line.cells
    workers = line.whole("workers", 1, least=1)
    try:
        row = ProfileRow(
            batch=1 if in_units else line.whole("batch", least=1),
            latency_ms=1e3 / _units_per_s(line, workers) if in_units else line.number("latency_ms"),
            p99_ms=line.number("p99_ms") if line.has("p99_ms") else None,
            w_batch_ms=line.number("w_batch_ms") if line.has("w_batch_ms") else None,
            overhead_ms=line.number_or("overhead_ms", 0.0),
            cold_ms=line.number("cold_ms") if line.has("cold_ms") else None,
            workers=workers,
            vcpus=line.number("vcpus") if line.has("vcpus") else None,
            memory_mb=line.number("memory_mb") if line.has("memory_mb") else None,
            basis=Basis(basis),
            unit=_unit(line) if in_units else REQUESTS.name,
        )
        sigma_of(row)  # find an impossible p99 here, where file and line are known
        return row
    except BadInput as error:
        if error.where.startswith(line.where):
            raise
        raise BadInput(error.what, f"{line.where} {error.where}", error.value) from None


def _units_per_s(line: Row, workers: int) -> float:
    """Return the units/s of one worker: the instance's share."""
    found = line.number("units_per_s") / workers
    if not _LEAST_UNITS_PER_S <= found <= _MOST_UNITS_PER_S:
        what = f"a worker does between {_LEAST_UNITS_PER_S:g} and {_MOST_UNITS_PER_S:g} units/s: choose another unit"
        raise BadInput(what, f"{line.where} units_per_s", line.cells["units_per_s"])
    return found


def _unit(line: Row) -> str:
    name = line.text("unit")
    if name == REQUESTS.name:
        raise BadInput("requests have the columns batch and latency_ms", f"{line.where} unit", name)
    return checked_unit(name, 1.0, f"{line.where} ").name
