"""Tables in CSV files, plain or compressed, read line by line, so that a long one takes no memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import blocks


def csv_rows(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each row: file:line and its stripped cells by column. Raises BadInput, also for a row of another width."""
    reader = csv.reader((decoded(where, line) for where, line in text_lines(name)), strict=True)
    try:
        header = [cell.strip() for cell in next(filter(None, reader), [])]
        for column in header:
            if header.count(column) > 1:
                raise BadInput("the same column twice", f"{name}:{reader.line_num}", column)
        for cells in reader:
            where = f"{name}:{reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise BadInput(f"{len(cells)} cells under a header of {len(header)}", where)
            yield where, dict(zip(header, (cell.strip() for cell in cells), strict=True))
    except csv.Error as error:
        raise BadInput(f"is no CSV ({error})", f"{name}:{reader.line_num}") from None


def text_lines(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield each line of a file with file:line. Raises BadInput."""
    for first, block in blocks(Path(name)):
        for number, line in enumerate(block.splitlines(keepends=True), first):
            yield f"{name}:{number}", line


def decoded(where: str, line: bytes) -> str:
    """Return the line as text. Raises BadInput."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadInput("is no UTF-8 text", where) from None
