"""Read users' files strictly: every mistake is reported with file, line, column and value."""

from __future__ import annotations

import csv
import math
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from mark.domain.errors import BadInput


def is_file(path: Path) -> bool:
    """Return whether there is a regular file; False also for impossible file names."""
    try:
        return path.is_file()
    except OSError:
        return False


def not_a_file(path: Path) -> str:
    """Return in words why there is no regular file at `path`, which may be an impossible name."""
    if os.path.isdir(path):
        return "is a folder, not a file"
    return "is no regular file" if os.path.exists(path) else "no such file"


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. Raises BadInput if it is missing, unreadable or not a regular file.

    Pipes and devices are refused because they may never end, and because runs on several processes read a file
    repeatedly.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadInput("cannot be read (is no regular file)", str(path))
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({(error.strerror or 'error').lower()})", str(path)) from None
    except ValueError as error:  # a NUL in the name
        raise BadInput(f"cannot be read ({error})", str(path)) from None


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises BadInput if it is missing, unreadable or not text."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is no UTF-8 text", str(path)) from None
    if "\0" in text:
        raise BadInput("is no text: it holds NUL bytes", str(path))
    return text


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file. A blank cell and a missing column both mean "not applicable"."""

    where: str  # file:line
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the cell. Raises BadInput if it is blank."""
        cell = self.cells.get(column, "")
        if not cell:
            raise BadInput("must not be blank", f"{self.where} {column}")
        return cell

    def has(self, column: str) -> bool:
        return bool(self.cells.get(column, ""))

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """Return a finite number in [least, most]. Raises BadInput for anything else, including a blank."""
        cell = self.text(column)
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadInput("must be a finite number", f"{self.where} {column}", cell)
        if not least <= value <= most:
            limits = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
            raise BadInput(f"must be {limits}", f"{self.where} {column}", cell)
        return value

    def number_or(self, column: str, default: float, *, least: float = 0.0, most: float = math.inf) -> float:
        """Return the result of `number`, or `default` if the cell is blank."""
        return self.number(column, least=least, most=most) if self.has(column) else default

    def whole(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        """Return an integer like `number`. Without a default the cell must not be blank."""
        if default is not None and not self.has(column):
            return default
        value = self.number(column, least=least)
        if value != int(value):
            raise BadInput("must be a whole number", f"{self.where} {column}", self.cells[column])
        return int(value)

    def flag(self, column: str) -> bool:
        """Return true or false; a blank is false."""
        cell = self.cells.get(column, "").lower()
        if cell not in ("", "true", "false"):
            raise BadInput("must be true or false", f"{self.where} {column}", cell)
        return cell == "true"


def read_rows(path: Path, required: Collection[str], optional: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a CSV file whose header has all `required` columns and otherwise only `optional` ones.

    Cells are stripped, empty lines skipped. Raises BadInput for the file, its header, or a row of another width.
    """
    reader = csv.reader(StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        if not header:
            raise BadInput("is empty", str(path))
        for column in header:
            if column not in required and column not in optional:
                raise BadInput("unknown column", f"{path}:1", column)
            if header.count(column) > 1:
                raise BadInput("the same column twice", f"{path}:1", column)
        for column in required:
            if column not in header:
                raise BadInput("missing column", f"{path}:1", column)
        for cells in reader:
            where = f"{path}:{reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise BadInput(f"{len(cells)} cells under a header of {len(header)}", where)
            yield Row(where, dict(zip(header, (cell.strip() for cell in cells), strict=True)))
    except csv.Error as error:
        raise BadInput(f"is no CSV ({error})", f"{path}:{reader.line_num}") from None
