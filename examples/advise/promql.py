"""The part of PromQL that `mark advise` uses, over arrays in memory.

Selectors with matchers; `rate`, `increase`, `max_over_time` and `count_over_time` of a window; `sum`, `max`, `min`,
`avg` and `count` with `by` or `without`; the sum of two vectors. Rates are extrapolated to their window and counters
may restart, as in Prometheus' own `extrapolatedRate` (promql/functions.go).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mark.domain.arrays import FloatArray

LOOKBACK_S = 300.0
NAME = "__name__"

Labels = tuple[tuple[str, str], ...]
Vector = dict[Labels, FloatArray]  # values at the evaluated times; NaN: no value

_TOKEN = re.compile(r'\s*(?:([A-Za-z_:][A-Za-z0-9_:]*)|("(?:[^"\\]|\\.)*")|(\[[0-9]+[smhd]\])|(=~|!~|!=|[(){},=+]))')
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AGGREGATIONS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "sum": lambda rows: np.nansum(rows, axis=0),
    "max": lambda rows: np.nanmax(np.where(np.isnan(rows), -np.inf, rows), axis=0),
    "min": lambda rows: np.nanmin(np.where(np.isnan(rows), np.inf, rows), axis=0),
    "avg": lambda rows: np.nansum(rows, axis=0) / np.maximum(1, np.sum(~np.isnan(rows), axis=0)),
    "count": lambda rows: np.sum(~np.isnan(rows), axis=0).astype(np.float64),
}


class PromqlError(Exception):
    """A query that this part of PromQL does not support, with a message in Prometheus' style."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A scraped series: times ascend; NaN for scrapes without the target."""

    labels: Mapping[str, str]
    times_s: FloatArray
    values: FloatArray


def evaluate(query: str, series: Sequence[Stored], at_s: FloatArray) -> Vector:
    """Return the value of every resulting series at each time. Raises PromqlError."""
    tokens = list(_tokens(query))
    parser = _Parser(tokens, series, at_s)
    found = parser.expression()
    if parser.place != len(tokens):
        raise PromqlError(f"parse error: unexpected {tokens[parser.place]!r}")
    return {key: values for key, values in found.items() if not np.isnan(values).all()}


def _tokens(query: str) -> Iterator[str]:
    place = 0
    while query[place:].strip():
        found = _TOKEN.match(query, place)
        if found is None:
            raise PromqlError(f"parse error: unexpected character at {place}: {query[place : place + 10]!r}")
        yield found[0].strip()
        place = found.end()


class _Parser:
    """Parses and evaluates in one pass."""

    def __init__(self, tokens: Sequence[str], series: Sequence[Stored], at_s: FloatArray) -> None:
        self.tokens, self.series, self.at_s, self.place = tokens, series, at_s, 0

    def expression(self) -> Vector:
        found = self._operand()
        while self._peek() == "+":
            self._next()
            other = self._operand()
            found = {key: values + other[key] for key, values in found.items() if key in other}
        return found

    def _operand(self) -> Vector:
        name = self._next()
        if name in _AGGREGATIONS and self._peek() in ("(", "by", "without"):
            return self._aggregation(name)
        if name in ("rate", "increase", "max_over_time", "count_over_time") and self._peek() == "(":
            self._expect("(")
            found = self._windowed(name)
            self._expect(")")
            return found
        return {tuple(sorted(one.labels.items())): _instant(one, self.at_s) for one in self._selected(name)}

    def _aggregation(self, name: str) -> Vector:
        by, labels = self._grouping()
        self._expect("(")
        inner = self.expression()
        self._expect(")")
        if by is None:
            by, labels = self._grouping()
        groups: dict[Labels, list[FloatArray]] = {}
        for key, values in inner.items():
            kept = tuple(pair for pair in key if pair[0] != NAME and (pair[0] in labels) == (by != "without"))
            groups.setdefault(kept, []).append(values)
        found = {}
        for kept, rows in groups.items():
            table = np.array(rows)
            found[kept] = np.where(np.isnan(table).all(axis=0), np.nan, _AGGREGATIONS[name](table))
        return found

    def _grouping(self) -> tuple[str | None, tuple[str, ...]]:
        """Read `by` or `without` with its labels; neither means by no label."""
        if self._peek() not in ("by", "without"):
            return None, ()
        how, labels = self._next(), []
        self._expect("(")
        while self._peek() != ")":
            labels.append(self._next())
            if self._peek() == ",":
                self._next()
        self._expect(")")
        return how, tuple(labels)

    def _windowed(self, name: str) -> Vector:
        chosen = self._selected(self._next())
        window = self._next()
        if not window.startswith("["):
            raise PromqlError(f'parse error: expected type range vector in call to function "{name}"')
        window_s = float(window[1:-2]) * _UNITS_S[window[-2]]
        found = {}
        for one in chosen:
            how = {"max_over_time": _highest, "count_over_time": _counted}.get(name, _increase)
            values = how(one, self.at_s, window_s)
            key = tuple(sorted((k, v) for k, v in one.labels.items() if k != NAME))
            if key in found:
                raise PromqlError("vector cannot contain metrics with the same labelset")
            found[key] = values / window_s if name == "rate" else values
        return found

    def _selected(self, name: str) -> list[Stored]:
        tests: list[tuple[str, str, str]] = []
        if self._peek() == "{":
            self._next()
            while self._peek() != "}":
                tests.append((self._next(), self._next(), self._text()))
                if self._peek() == ",":
                    self._next()
            self._expect("}")
        return [
            one
            for one in self.series
            if one.labels.get(NAME) == name and all(_holds(one.labels.get(label, ""), *test) for label, *test in tests)
        ]

    def _text(self) -> str:
        token = self._next()
        if not token.startswith('"'):
            raise PromqlError(f"parse error: unexpected {token!r}, expected string")
        return re.sub(r"\\(.)", r"\1", token[1:-1])

    def _peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise PromqlError("parse error: unexpected end of input")
        self.place += 1
        return token

    def _expect(self, token: str) -> None:
        if (found := self._next()) != token:
            raise PromqlError(f"parse error: unexpected {found!r}, expected {token!r}")


def _holds(value: str, how: str, wanted: str) -> bool:
    if how in ("=", "!="):
        return (value == wanted) == (how == "=")
    try:
        return (re.fullmatch(wanted, value) is not None) == (how == "=~")
    except re.error as error:
        raise PromqlError(f"parse error: {error}") from None


def _instant(one: Stored, at_s: FloatArray) -> FloatArray:
    """Return the last sample, unless it is too old; a missing target ends its series immediately."""
    place = np.searchsorted(one.times_s, at_s, "right") - 1
    there = (place >= 0) & (at_s - one.times_s[np.maximum(place, 0)] < LOOKBACK_S)
    return np.where(there, one.values[np.maximum(place, 0)], np.nan)


def _samples(one: Stored, at_s: FloatArray, window_s: float) -> tuple[FloatArray, FloatArray, _Places, _Places]:
    """Return the existing samples, and the indices of the first and the last one in each window."""
    there = ~np.isnan(one.values)
    times, values = one.times_s[there], one.values[there]
    first = np.searchsorted(times, at_s - window_s, "right")
    return times, values, first, np.searchsorted(times, at_s, "right") - 1


def _increase(one: Stored, at_s: FloatArray, window_s: float) -> FloatArray:
    times, values, first, last = _samples(one, at_s, window_s)
    found = np.full(len(at_s), np.nan)
    able = last > first
    if not able.any():
        return found
    first, last, at_s = first[able], last[able], at_s[able]
    # Add a counter's value before each restart to all later values.
    lost = np.concatenate(([0.0], np.cumsum(np.where(np.diff(values) < 0.0, values[:-1], 0.0))))
    rising = values + lost
    delta = rising[last] - rising[first]
    sampled_s = times[last] - times[first]
    between_s = sampled_s / (last - first)
    before_s, after_s = times[first] - (at_s - window_s), at_s - times[last]
    with np.errstate(divide="ignore", invalid="ignore"):
        to_zero_s = np.where(delta > 0.0, sampled_s * values[first] / delta, np.inf)
    before_s = np.minimum(np.where(before_s >= 1.1 * between_s, between_s / 2.0, before_s), to_zero_s)
    after_s = np.where(after_s >= 1.1 * between_s, between_s / 2.0, after_s)
    found[able] = delta * (sampled_s + before_s + after_s) / sampled_s
    return found


def _highest(one: Stored, at_s: FloatArray, window_s: float) -> FloatArray:
    _, values, first, last = _samples(one, at_s, window_s)
    return np.array(
        [values[i : j + 1].max() if j >= i else np.nan for i, j in zip(first.tolist(), last.tolist(), strict=True)]
    )


def _counted(one: Stored, at_s: FloatArray, window_s: float) -> FloatArray:
    _, _, first, last = _samples(one, at_s, window_s)
    return np.where(last >= first, last - first + 1.0, np.nan)


_Places = NDArray[np.intp]
