"""Logs of rewards by key and item in CSV files: `user,item,rating` and perhaps `t_seconds`, or other column names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mark.domain.errors import BadInput
from mark.personal.rewards_replay import LoggedRewards
from mark.studies.csv_rows import csv_rows

TIME = "t_seconds"
_MOST_REWARD = 1e9
_MOST_TWICE = 0.05  # of the rows
_LEAST_COPY = 50  # rows


@dataclass(frozen=True, slots=True)
class RatingColumns:
    """The columns of a file; other columns are not read."""

    key: str = "user"
    item: str = "item"
    reward: str = "rating"

    def options(self) -> dict[str, str]:
        """Return the options that name columns, with their columns."""
        return {"--key": self.key, "--item": self.item, "--reward": self.reward}


def read_ratings(name: str, columns: RatingColumns) -> LoggedRewards:
    """Return the rewards of a file, in its order. Raises BadInput for an unusable file, header or cell."""
    _check_names(columns)
    key_numbers: dict[str, int] = {}
    item_numbers: dict[str, int] = {}
    keys, items, rewards, times_s = list[int](), list[int](), list[float](), list[float]()
    for where, cells in csv_rows(name):
        if not rewards:
            _check_header(name, cells, columns)
        key, item = _text(where, cells, columns.key), _text(where, cells, columns.item)
        keys.append(key_numbers.setdefault(key, len(key_numbers)))
        items.append(item_numbers.setdefault(item, len(item_numbers)))
        rewards.append(_number(where, cells, columns.reward, _MOST_REWARD))
        times_s.append(_number(where, cells, TIME, math.inf) if TIME in cells else 0.0)
    log = LoggedRewards(
        np.array(keys, dtype=np.int64),
        np.array(items, dtype=np.int64),
        np.array(rewards),
        np.array(times_s),
        list(key_numbers),
        list(item_numbers),
    )
    _refuse_copies(log, name)
    return log


def _refuse_copies(log: LoggedRewards, name: str) -> None:
    """Raise BadInput for a file joined with itself, because its held-out rows would have been learned."""
    columns = np.stack([log.keys.astype(float), log.items.astype(float), log.rewards, log.times_s])
    half, odd = divmod(len(log), 2)
    twice = half if half >= _LEAST_COPY and not odd and np.array_equal(columns[:, :half], columns[:, half:]) else 0
    if not twice and np.any(log.times_s):
        ordered = columns[:, np.lexsort(columns)]
        twice = int(np.all(ordered[:, 1:] == ordered[:, :-1], axis=0).sum())
    if twice > _MOST_TWICE * len(log):
        what = f"has {twice:,} rows twice, so that held-out rows would be learned: keep one copy"
        raise BadInput(what, name)


def _check_names(columns: RatingColumns) -> None:
    options = columns.options()
    for option, column in options.items():
        if list(options.values()).count(column) > 1:
            raise BadInput("names a column that another option names, too", option, column)
        if column == TIME:
            raise BadInput("names the column of times: name another one", option, column)


def _check_header(name: str, cells: Mapping[str, str], columns: RatingColumns) -> None:
    for option, column in columns.options().items():
        if column not in cells:
            raise BadInput(f"has no column {column!r}: name the one it has by {option}", f"{name}:1", ",".join(cells))


def _text(where: str, cells: Mapping[str, str], column: str) -> str:
    found = cells[column]
    if not found:
        raise BadInput("must not be blank", f"{where} {column}")
    return found


def _number(where: str, cells: Mapping[str, str], column: str, most: float) -> float:
    cell = _text(where, cells, column)
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput("must be a finite number", f"{where} {column}", cell)
    if abs(value) > most:
        raise BadInput(f"must lie between -{most:g} and {most:g}", f"{where} {column}", cell)
    return value
