"""Traffic from a notebook: writes a pandas DataFrame or Series to a file, because all readers of traces read files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from mark.domain.errors import BadInput
from mark.traffic.traces.exports import columns_of

if TYPE_CHECKING:
    import pandas as pd


def write_frame(frame: pd.DataFrame | pd.Series, folder: Path) -> Path:
    """Write the frame as a table in `folder`; its index is a column if it has a name or holds times.

    A Series without a name holds counts. Raises BadInput for other types.
    """
    if not hasattr(frame, "columns"):
        if not hasattr(frame, "to_frame"):
            raise BadInput("must be a file, a generator, a DataFrame or a Series", "trace", type(frame).__name__)
        frame = frame.to_frame(name="count" if frame.name is None else frame.name)
    columns = columns_of(frame)
    path = folder / "DataFrame"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
