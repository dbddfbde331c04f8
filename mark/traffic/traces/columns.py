"""Numbers from comma-separated blocks: fast for valid blocks, exact about the line of a fault."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import shown


def read_numbers(block: bytes, line: int, path: Path, names: tuple[str, ...], *, more: bool) -> FloatArray:
    """Return the leading columns of each line of `block`, shape (lines, len(names)); `line` is the first one's number.

    With `more`, any number of columns with any content may follow. Every value is finite and not negative. Raises
    BadInput naming the first line that breaks this.
    """
    lines = block.count(b"\n")
    if not block.strip():
        return np.empty((0, len(names)))
    if not more and (whole := _whole_numbers(block, len(names))) is not None:
        return whole
    try:
        values = np.loadtxt(
            io.BytesIO(block),
            delimiter=",",
            comments=None,
            ndmin=2,
            encoding="latin1",
            usecols=range(len(names)) if more else None,
        )
    except ValueError:
        values = np.empty((0, 0))
    # loadtxt skips blank lines, so a lower number of rows is a fault too.
    if values.shape != (lines, len(names)) or not np.all(np.isfinite(values)) or values.min() < 0.0:
        return _slowly(block, line, path, names, more)
    return values


def _whole_numbers(block: bytes, columns: int) -> FloatArray | None:
    """Return a block of only digits in `columns` columns, shape (lines, columns); None for any other block.

    Most traces of counts have such blocks, and this is several times as fast as a general reader.
    """
    text = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(text < 48)  # commas, line feeds and invalid characters
    if len(ends) % columns or text.max() > 57:
        return None
    marks = text[ends].reshape(-1, columns)
    lengths = np.diff(ends, prepend=-1) - 1
    # 15 digits are exact in a float, and an empty cell is refused.
    if np.any(marks[:, -1] != 10) or np.any(marks[:, :-1] != 44) or lengths.min() < 1 or lengths.max() > 15:
        return None
    values = np.zeros(len(ends))
    for place in range(int(lengths.max())):
        digits = text[np.maximum(ends - 1 - place, 0)] - 48.0
        values += np.where(lengths > place, digits, 0.0) * 10.0**place
    return values.reshape(-1, columns)


def _slowly(block: bytes, line: int, path: Path, names: tuple[str, ...], more: bool) -> FloatArray:
    """Check line by line to name the first wrong one; return the numbers if all are good (blank lines at the end)."""
    rows: list[list[float]] = []
    for number, text in enumerate(block.rstrip(b"\n").split(b"\n"), line):
        where = f"{path} line {number}"
        fields = text.split(b",")
        if len(fields) < len(names) or (len(fields) > len(names) and not more):
            raise BadInput(f"expected the columns {','.join(names)}", where, shown(text))
        row = []
        for name, field in zip(names, fields, strict=False):
            try:
                value = float(field.replace(b"_", b"?"))  # Python's own 1_000 is no number elsewhere
            except ValueError:
                raise BadInput(f"{name} is not a number", where, shown(field)) from None
            if not math.isfinite(value):  # numpy's function would take most of the time
                raise BadInput(f"{name} must be finite", where, shown(field))
            if value < 0.0:
                raise BadInput(f"{name} must not be negative", where, shown(field))
            row.append(value)
        rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
