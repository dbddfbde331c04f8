"""A table with a column of times as a trace: of counts if another column holds them, otherwise of one row a request.

Columns are recognised by their names and values, and the first note of the trace states the assumptions. A table is
read only if one reading is possible. Otherwise it is refused with the option for each reading, because a wrong guess
costs more than a question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load_unit import UnitSizes
from mark.domain.time import DAY_S, HOUR_S
from mark.traffic.traces.arrivals import trace_of
from mark.traffic.traces.bad_lines import DEFAULT, BadLines, may_be_cut
from mark.traffic.traces.bins import added, from_zero, rows_as_bins
from mark.traffic.traces.blocks import CUT_OFF
from mark.traffic.traces.cells import COMMA, MEASURE, MIXED, POINT, NumberColumn, is_missing, read_numbers
from mark.traffic.traces.counts import trace_of_counts
from mark.traffic.traces.exports import SERIES, Columns, Export, read_export
from mark.traffic.traces.health_checks import refuse_checked_rows
from mark.traffic.traces.log_text import UNTIMED
from mark.traffic.traces.meanings import (
    COUNTER,
    RATES,
    ROW,
    UNITS,
    Kind,
    Meaning,
    Unit,
    is_answered,
    is_of_all,
    is_total,
    meaning_of,
)
from mark.traffic.traces.overlaps import repeated_row
from mark.traffic.traces.partial import is_limit
from mark.traffic.traces.points import UNNAMED
from mark.traffic.traces.several import K6, NAMES, chosen_series, is_part_beside, series_of
from mark.traffic.traces.stated import Statement, doubt, is_statement, of_columns, part_of, sample_of, stated
from mark.traffic.traces.steps import FALLS, Rising, check_clocks, is_summary, rising, unfolded
from mark.traffic.traces.time_columns import (
    TableRows,
    cell_of,
    span_stated,
    time_column,
    with_whole_times,
    without_bad_times,
)
from mark.traffic.traces.times import AS_WRITTEN, TimeForm, Times
from mark.traffic.traces.trace import Trace, step_shown
from mark.traffic.traces.twice import are_calls, refuse_two_objects

_LEAST_TOTAL = 100.0  # requests
_PEEK, _MOST_ROWS = 200, 5000  # rows that show whether each request has several
_ANSWERS = re.compile("status|code|success|bytes|size", re.IGNORECASE)
_TRANSACTION = "Number of samples in transaction"  # of JMeter, beside the rows of the samples
_FEW = 3
_ROUNDED_SUM, _ROUNDED_RISE = 0.02, 0.25  # largest shares of the numbers, of a counter's mean increase
_MOST_LOG = 50.0  # no logarithm of a count is above
NONE = "none"  # --count-column none: one row a request
DECIMALS = (POINT, COMMA)

# Columns of a log of requests; two of them distinguish a log from a summary.
_LOG = frozenset(
    [
        *("status", "status_code", "sc-status", "response_code", "http_status", "method"),
        *("request_method", "cs-method"),
        *("verb", "path", "uri", "url", "request", "request_uri", "cs-uri-stem", "endpoint", "route", "remote_addr"),
        *("client_ip", "c-ip", "ip", "client", "user_agent", "useragent", "referer", "referrer", "x-edge-location"),
        *("request_id", "trace_id", "traceid", "requestid", "bytes_sent", "sc-bytes", "body_bytes_sent", "protocol"),
        *("dtime", "ttime"),  # of `ab -g`
    ]
)
# Columns of a program's own log: a level and a message.
_LEVELS = frozenset(
    ["level", "lvl", "levelname", "loglevel", "log.level", "log_level", "severity", "severitytext", "priority"]
)
_MESSAGES = frozenset(["message", "msg", "event", "text", "log", "body", "textpayload", "content", "_raw", "@message"])
_SPANS = frozenset(["span_id", "spanid", "span.id", "parentspanid", "parent_id"])  # a request has several
_TAKEN = ("latency", "duration", "elapsed", "response", "took", "token", "bytes", "prompt", "request")  # of a request
_HITS, _MISSES = re.compile("hits?", re.IGNORECASE), re.compile("miss", re.IGNORECASE)  # of a cache
_IDS = frozenset(["request_id", "requestid", "req_id", "x_request_id", "x-request-id", "correlation_id", "trace_id"])
_NUMBERED = re.compile(r".*id|index|seq|row|nr|no|n|user|client|host|node|model|count")
# Names of a number that may be anything.
_VALUES = frozenset(["value", "values", "val", "_value", "metric_value", "y", "data", "n", "cnt"])
# Names without information: of unnamed columns, of queries without an alias, of series with only labels.
_NEUTRAL = re.compile(
    rf"(?i:{'|'.join(sorted(_VALUES))}|[a-z]|cnt|wert|valor|valeur|_?col(?:umn)?[ _]?\d+|f\d+_|[a-z]-series|\d+|_)"
    r"|\{[^}]*\}"
)


_UNNAMED = re.compile(r"column \d+|Unnamed: \d+")
_METRIC = re.compile(r"[A-Za-z][\w-]*(?:[.:_][\w-]+)+")  # as in `stats.timers.latency`, `cpu_percent`


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A user's settings for a table: `time` and `count` name columns (`count` may be `none`), `unit` is one of UNITS.

    `count` may name several columns joined by +, which are added. `series` is the name of one of several series, or
    `sum`. `decimal` is one of DECIMALS. None: to be recognised. `size` names a column with the size of each request, in
    the unit of the service, or several joined by +; then a row is a request.
    """

    time: str | None = None
    count: str | None = None
    unit: str | None = None
    series: str | None = None
    times: TimeForm = AS_WRITTEN
    decimal: str | None = None
    size: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in (None, *UNITS):
            raise BadInput(f"must be one of {', '.join(UNITS)}", "count_unit", self.unit)
        if self.decimal not in (None, *DECIMALS):
            raise BadInput(f"must be one of {', '.join(DECIMALS)}", "decimal", self.decimal)
        if self.size is not None and (self.count not in (None, NONE) or self.unit is not None):
            raise BadInput("needs one row a request, so no column of counts", "size_column", self.size)

    @property
    def said(self) -> bool:
        return self != RECOGNISED

    @property
    def asks_for_table(self) -> bool:
        """True if a setting is given that a log lacks: counts, series, numbers."""
        return self.count not in (None, NONE) or (self.unit, self.series, self.decimal, self.size) != (None,) * 4


RECOGNISED = TableColumns()


def read_table(
    path: Path, columns: TableColumns = RECOGNISED, gaps: str = "bridge", bad_lines: BadLines = DEFAULT
) -> Trace | None:
    """Return the trace of a file that other tools wrote; None without a table or a column of times.

    Raises BadInput, one line, for a table that may be read in two ways, and for a broken one.
    """
    export = read_export(path)
    return None if export is None else trace_of_table(export, path.name, str(path), columns, gaps, bad_lines)


def trace_of_table(
    export: Export,
    name: str,
    where: str,
    columns: TableColumns = RECOGNISED,
    gaps: str = "bridge",
    bad_lines: BadLines = DEFAULT,
) -> Trace | None:
    """Return the trace of a table, see `read_table`. `where` is for BadInput."""
    found = time_column(with_whole_times(export.columns), where, columns.time, columns.times)
    if found is None:
        if export.named and len(export.columns) > 1:
            raise BadInput(
                "no column holds times that are known, name it by `time_column`, its form by `time_format` "
                f"({export.form})",
                where,
            )
        return None
    time_name, times, used = found
    rows = TableRows(
        {key: values for key, values in export.columns.items() if key not in used},
        times,
        export.lines or range(1, len(times.seconds) + 1),
        list(export.bad),
        list(export.skipped),
    )
    spans = span_stated(export.columns, time_name, times, columns.times)
    rows = without_bad_times(rows, export.columns.get(time_name, ()), time_name)
    table = _Table(replace(export, stated=[*export.stated, *spans]), rows, columns, where, time_name)
    trace = table.trace(name, gaps, bad_lines)
    return trace if times.since_1970 else replace(trace, began_s=None)


# -- which column is which ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of numbers with the meaning of its name and units."""

    name: str
    numbers: NumberColumn
    meaning: Meaning


class _Table:
    """One table on its way to a trace."""

    def __init__(self, export: Export, rows: TableRows, said: TableColumns, where: str, time_name: str) -> None:
        self._export, self._said, self._where = export, said, where
        self._time_name = time_name
        self.rows = rows
        self._series: list[str] = []  # of each row, if there are several
        self._aside: set[str] = set()  # columns that number the rows or hold other times
        self._take_series()
        same = of_columns(self.rows.columns)
        self._stated, self._part = [*export.stated, *same], part_of(same)
        self._names = set(self._series) or _only_names(self._stated, self.rows.columns)

    def _take_series(self) -> None:
        rows, said = self.rows, self._said
        names = (
            [str(name) for name in rows.columns[SERIES]]
            if SERIES in rows.columns and not self._export.lines
            else series_of(rows.columns, rows.times.seconds)
        )
        if names is None:
            if said.series is not None:
                raise BadInput(f"there is one series only in {self._where}", "series", said.series)
            return
        wanted = set(chosen_series(names, said.series, self._where))
        kept = [i for i, name in enumerate(names) if name in wanted]
        self._series = [names[i] for i in kept]
        self.rows = rows.at(kept)

    def trace(self, name: str, gaps: str, bad_lines: BadLines) -> Trace:
        self._left_out(self.rows.bad, bad_lines)  # too many bad times matter more than the rest of the table
        if self._said.size is not None:
            return self._of_sizes(name, self._said.size, bad_lines)
        column = self._count_column()
        if column is None:
            return self._of_requests(name, bad_lines)
        unit = self._unit(column)
        if (times := column.meaning.times) != 1.0:
            unit = replace(unit, times=times, said=f"{unit.said}, times {times:,.0f}")
        return self._of_counts(name, column, unit, gaps, bad_lines)

    # -- the decision

    def _count_column(self) -> _Column | None:
        """Return the column of counts or rates; None if each row is a request.

        The table of decisions; the first line that fits decides. R are columns whose names say requests or a rate, C
        counts of something, P parts of the requests and errors, U unknown numbers, M measures, S statistics.

        | rows         | columns                      | decision                                          |
        |--------------|------------------------------|---------------------------------------------------|
        | any          | a column that was named      | it, or its sum; `none`: a row is a request        |
        | any          | k6's requests                | a row is a request                                |
        | any          | R+C+P has two, not one R + P | ask which, or for the sum                         |
        | irregular    | one of R+C+P                 | ask whether it counts                             |
        | regular      | one R, or one C alone        | it; one P alone, or a name that may be one: ask   |
        | regular      | one U and nothing else       | it                                                |
        | regular      | U                            | ask                                               |
        | any          | S                            | refuse: a summary without counts                  |
        | irregular    | U that may be anything, or   | ask                                               |
        |              | only whole hours             |                                                   |
        | regular      | nothing, and no log          | refuse: a summary without counts                  |
        | irregular    | words or numbers, and none   | ask: a program's own log, or ratings, orders, a   |
        |              | of a request; level, message | sensor                                            |
        | irregular, or a log of requests   | | a row is a request                                |
        """
        columns = self._numbers()
        if self._said.count is not None:
            return None if self._said.count == NONE else self._asked("count_column", self._said.count, columns)
        if set(self._series) == {K6} and any(_ones(column) for column in columns):
            return None
        kinds = {kind: [column for column in columns if column.meaning.kind is kind] for kind in Kind}
        sure = [*kinds[Kind.REQUESTS], *kinds[Kind.COUNT], *kinds[Kind.UNCLEAR], *kinds[Kind.PERHAPS]]
        parts = [*kinds[Kind.PART], *kinds[Kind.ERRORS]]
        # A number that never changes numbers a table or a query, or states a fact, unless it is the only one.
        changing = [
            column
            for column in kinds[Kind.UNKNOWN]
            if np.nanmin(column.numbers.values) < np.nanmax(column.numbers.values)
        ]
        unknown = changing or kinds[Kind.UNKNOWN]
        seconds = self.rows.times.seconds
        regular = any(is_summary(part) for part in self._parts(seconds))
        requests = kinds[Kind.REQUESTS]
        if len(requests) == 1 and len(sure) == 1:
            answered = is_answered(requests[0].name)
            parts = [part for part in parts if is_part_beside(requests[0].name, part.name) or answered]
        if not (self._export.named or self._names):
            unknown, sure, parts = [*unknown, *sure, *parts], [], []
        if parts and not sure and unknown:
            unknown, parts = [*unknown, *parts], []
        if len(sure) + len(parts) > 1:
            every = sure or parts
            alike = [column for column in every if not is_total(column.name, [other.name for other in every])]
            one_unit = len(alike) > 1 and len({(column.meaning.unit, column.meaning.times) for column in alike}) == 1
            sums = f", or add some: {'+'.join(column.name for column in alike)}" if one_unit else ""
            what = f"several columns may hold counts, choose one with `count_column`{sums}"
            raise BadInput(what, self._where, _names(sure + parts))
        if not regular or self._is_log():
            self._refuse_sample()
        if not regular:
            if (one := next(iter(sure + parts), None)) is not None and not _ones(one):
                what = "times are irregular; counts? Name it by `count_column`, or none for one row a request"
                raise BadInput(what, self._where, one.name)
            # Requests do not come at whole hours only, so such rows are sums of hours.
            are_sums = len(seconds) > _FEW and bool(np.all(seconds % HOUR_S == 0.0)) and self.rows.times.since_1970
            if odd := [
                c
                for c in unknown
                if (are_sums or c.name.lower() in _VALUES or not self._export.named)
                and not (_ones(c) or _rises_by_one(c.numbers))
            ]:
                what = "times are irregular; counts? Name it by `count_column`, or none for one row a request"
                raise BadInput(what, self._where, _names(odd))
        elif sure or parts:
            one = (sure or parts)[0]
            kind = one.meaning.kind
            if kind is Kind.ERRORS or (kind in (Kind.PART, Kind.PERHAPS) and not self._series):
                why = "" if self._part is None else f" ({' '.join(self._part[1])} in all rows)"
                what = f"the column counts {kind.value}{why}: name it by `count_column` if it is meant"
                raise BadInput(what, self._where, one.name)
            return one
        elif unknown:
            one = unknown[0]
            if len(unknown) == 1 and (self._series or self._alone(one.name)) and self._may_count(one):
                return one
            what = "which column holds counts? Name it by `count_column`, or none for one row a request"
            raise BadInput(what, self._where, _names(unknown))
        if kinds[Kind.STATISTIC] or (regular and not self._is_log()):
            raise self._no_counts(kinds[Kind.STATISTIC] + kinds[Kind.MEASURE], regular)
        if self._is_program_log({column.name for column in columns}):
            what = "looks like a program's own log; `count_column` none if each line is a request"
            first = next((str(values[0]) for values in self.rows.columns.values() if len(values)), "")
            raise BadInput(what, self._where, first[:60])
        if odd := self._of_no_request(columns):
            what = "no column tells that the rows are requests; `count_column` none if each row is one"
            raise BadInput(what, self._where, _names(odd))
        self._refuse_twice()
        self._refuse_limit()
        return None

    def _of_no_request(self, columns: Sequence[_Column]) -> list[_Column]:
        """Return columns of numbers that may be of anything, such as ratings, if no column is of a request."""
        if not self._export.named or _are_of_requests(self.rows.columns):
            return []
        return [
            c for c in columns if c.name not in self._aside and not _NUMBERED.fullmatch(c.name.lower()) and not _ones(c)
        ]

    def _refuse_sample(self) -> None:
        """Raise BadInput if rows stand for several requests."""
        for name, values in self.rows.columns.items():
            if (odd := next((value for value in values if sample_of(name, value)), None)) is not None:
                what = "a row stands for several requests: `count_column` none counts the rows, and `scale` more"
                raise BadInput(what, f"{self._where} column {name}", str(odd))

    def _refuse_twice(self) -> None:
        """Raise BadInput if the rows of a table have several for each request."""
        for name, values in self.rows.columns.items():
            known = {value for value in values if not is_missing(value)}
            several = len(values) >= 20 and len(values) >= 1.9 * len(known) and len(known) > 1
            if name.strip().lower() in _IDS and several and not self._are_calls(values):
                times = f"{len(values):,} rows for {len(known):,} requests"
                what = f"{times}: leave all but one of each out, or say `count_column` none to count them all"
                raise BadInput(what, f"{self._where} column {name}")
        columns, seconds = self.rows.columns, self.rows.times.seconds
        if any(str(cell).startswith(_TRANSACTION) for values in columns.values() for cell in values[:_PEEK]):
            what = "rows of transactions stand beside their requests: delete them, or say `count_column` none for all"
            raise BadInput(what, self._where)
        cells = [values for values in columns.values() if isinstance(values[0], str | int | float | None)]
        if (again := repeated_row([seconds.tolist(), *cells], seconds)) is not None:
            what = "repeats earlier rows, as a copy that was appended: cut it there, or say `count_column` none for all"
            raise BadInput(what, f"{self._where} {self._word} {self.rows.lines[again]}")
        rows = _first_rows(columns)
        refuse_checked_rows(rows, self._where)
        # Answers with two statuses may alternate.
        asked = [{name: cell for name, cell in row.items() if not _ANSWERS.search(name)} for row in rows]
        try:
            refuse_two_objects(asked, seconds[:_MOST_ROWS])
        except BadInput as error:
            what = error.what.partition(":")[0]
            what = f"{what}: leave all but one out, or say `count_column` none to count them all"
            raise BadInput(what, self._where) from None

    def _are_calls(self, ids: Sequence[object]) -> bool:
        return are_calls(
            ["" if is_missing(one) else str(one) for one in ids[:_MOST_ROWS]], _first_rows(self.rows.columns)
        )

    def _refuse_limit(self) -> None:
        """Raise BadInput for as many rows as a query's limit, unless they begin and end with whole hours or days."""
        rows = len(self.rows.lines) + len(self.rows.bad)
        if not is_limit(rows):
            return
        first, last = float(self.rows.times.known.min()), float(self.rows.times.known.max())
        near = 5.0 * (last - first) / rows
        for whole_s in (HOUR_S, DAY_S):
            if near <= 0.05 * whole_s and first % whole_s <= near and -last % whole_s <= near:
                return
        what = (
            f"exactly {rows:,} rows, as a query's limit leaves: export all, or say `count_column` none if they are all"
        )
        raise BadInput(what, self._where)

    def _numbers(self) -> list[_Column]:
        """Return columns of numbers. A column with an open decimal sign takes the sign of the others."""
        # Programs write a decimal point in JSON; only delimited text, which has lines, may also come from people.
        said = self._said.decimal or (None if self._export.lines else POINT)
        read = {name: read_numbers(values, said) for name, values in self.rows.columns.items()}
        signs = {numbers.decimal for numbers in read.values() if numbers is not None and numbers.decimal is not None}
        found = []
        for name, numbers in read.items():
            if numbers is not None and numbers.unclear is not None and len(signs) == 1:
                numbers = read_numbers(self.rows.columns[name], next(iter(signs)))
            if numbers is not None:
                meaning = self._meaning(name, numbers)
                if name not in self._export.meanings:  # a format knows its own fields
                    of_rows = is_statement(name, self._stated)
                    meaning = Meaning(Kind.MEASURE) if of_rows else stated(meaning, self._stated)
                if self._part is not None and meaning.counts:
                    meaning = replace(meaning, kind=self._part[0])
                found.append(_Column(name, numbers, meaning))
        shown = [column.name for column in found if column.name not in self._aside]
        for i, one in enumerate(found):
            if one.meaning.kind is Kind.PERHAPS and is_of_all(one.name, shown):
                found[i] = replace(one, meaning=replace(one.meaning, kind=Kind.REQUESTS))
        return found

    def _meaning(self, name: str, numbers: NumberColumn) -> Meaning:
        """Return the meaning, by the format, the name, the name of the only series, and the units after the numbers."""
        meaning = self._export.meanings.get(name) or (meaning_of(name) if self._export.named else Meaning(Kind.UNKNOWN))
        if _is_other_time(numbers, self.rows.times) or _is_index(name, numbers):
            self._aside.add(name)
            return Meaning(Kind.MEASURE)
        if meaning.kind is Kind.UNKNOWN:
            of_series = {meaning_of(one) for one in self._names}
            if len(of_series) == 1 and (self._series or _NEUTRAL.fullmatch(name.strip())):
                meaning = of_series.pop()
        if _HITS.search(name) and any(_MISSES.search(other) for other in self.rows.columns):
            return Meaning(Kind.UNKNOWN)
        if meaning.may_be_log and np.nanmax(numbers.values) <= _MOST_LOG:
            return Meaning(Kind.STATISTIC)
        if self._export.unit is not None and meaning.kind not in (Kind.MEASURE, Kind.STATISTIC):
            return Meaning(Kind.REQUESTS, UNITS[self._export.unit])
        if numbers.unit in (MEASURE, MIXED):
            return Meaning(Kind.MEASURE)
        if numbers.unit in RATES and meaning.kind not in (Kind.MEASURE, Kind.STATISTIC):
            kind = Kind.REQUESTS if meaning.kind in (Kind.UNKNOWN, Kind.COUNT, Kind.UNCLEAR) else meaning.kind
            return replace(meaning, kind=kind, unit=RATES[numbers.unit])
        if numbers.unit == "count" and meaning.kind is Kind.UNKNOWN:
            return Meaning(Kind.REQUESTS)
        return meaning

    def _asked(self, option: str, asked: str, columns: Sequence[_Column]) -> _Column:
        names = [asked] if asked in self.rows.columns else asked.split("+")
        numbers = {column.name: column for column in columns}
        for name in names:
            if name not in self.rows.columns:
                known = list(self.rows.columns)
                what = f"no such column in {self._where}: there are {', '.join(known)}"
                raise BadInput(what, option, name, known=known)
            if name not in numbers:
                cell = next((c for c in self.rows.columns[name] if not is_missing(c)), "")
                raise BadInput(f"holds no numbers, in {self._where}: {str(cell)[:60]!r}", option, name)
        first = numbers[names[0]]
        if len(names) == 1:
            return first
        if len({(numbers[name].meaning.unit, numbers[name].meaning.times) for name in names}) > 1:
            raise BadInput(f"columns of different units cannot be added, in {self._where}", option, asked)
        add = np.nansum if option == "count_column" else np.sum  # half of a size is no size
        values = add([numbers[name].numbers.values for name in names], axis=0)
        bad = sorted({i for name in names for i in numbers[name].numbers.bad})
        return _Column(asked, replace(first.numbers, values=values, bad=tuple(bad)), first.meaning)

    def _may_count(self, column: _Column) -> bool:
        """Return whether a column of an unknown name may be read as requests.

        Its name must carry no information, such as `value`, because a word may name anything. A counter of `served` and
        the one requested series need no such name.
        """
        if self._said.series is not None:
            return True
        if not self._export.named or _NEUTRAL.fullmatch(column.name.strip()):
            return bool(self._series) or not self._names
        parts = self._parts(column.numbers.values)
        return column.meaning.may_count and any(rising(part) is Rising.SURELY for part in parts)

    def _alone(self, name: str) -> bool:
        """Return whether the other columns are the same in every row."""
        others = (values for other, values in self.rows.columns.items() if other not in self._aside | {name})
        return all(len(set(map(str, values))) <= 1 for values in others)

    def _is_log(self) -> bool:
        return len({name.strip().lower() for name in self.rows.columns} & _LOG) >= 2 or _hold_requests(
            self.rows.columns
        )

    def _is_program_log(self, numbers: set[str]) -> bool:
        names = {name.strip().lower() for name in self.rows.columns}
        words = [values for name, values in self.rows.columns.items() if name not in numbers]
        has_words = any(not is_missing(value) for values in words for value in values)
        if not self._export.named:
            return has_words
        if names & _SPANS or (names & _LEVELS and names & _MESSAGES and not self._is_log()):
            return True
        return has_words and not _are_of_requests(self.rows.columns)

    def _no_counts(self, others: Sequence[_Column], regular: bool) -> BadInput:
        held = f" ({_names(others)})" if others else ""
        step = self._step_s()
        rows = f"{len(self.rows.lines):,} rows" + (f" every {step_shown(step)}" if regular and step else "")
        hint = ", or ask CloudWatch for the Sum" if "CloudWatch" in self._export.form else ""
        what = f"{rows} look like a summary, and no column holds requests{held}: name one by `count_column`{hint}"
        return BadInput(f"{what}; `count_column` none: each row is a request", self._where)

    def _step_s(self) -> float:
        times = np.unique(self.rows.times.seconds)
        return float(np.median(np.diff(times))) if len(times) > 1 else 0.0

    # -- units

    def _unit(self, column: _Column) -> Unit:
        """Return the unit of a column: the user's, the one of its name or unit, or the one of its values."""
        numbers, meaning = column.numbers, column.meaning
        if numbers.unclear is not None and self._said.decimal is None:
            whole = "," in numbers.unclear and meaning.unit is None and "semicolons" not in self._export.form
            if not whole:
                what = f"is the sign in {numbers.unclear!r} the decimal sign? Say `decimal` {POINT} or {COMMA}"
                raise BadInput(what, f"{self._where} column {column.name}")
            # Only in a table with other delimiters than commas are commas decimal signs of whole columns.
        if self._said.unit is not None:
            return UNITS[self._said.unit]
        units = "|".join(UNITS)
        at = f"{self._where} column {column.name}"
        step_s, seconds = self._step_s(), self.rows.times.seconds
        whole_s = float(np.ptp(seconds)) + step_s
        if (open_by := doubt(meaning, self._stated, step_s, whole_s)) is not None:
            what = "a sample of the requests" if open_by.sample else "the requests of each row"
            raise BadInput(f"counts {what}? The table says {open_by.statement!r}. Say `count_unit` {units}", at)
        if meaning.unit is not None:
            return meaning.unit
        values = _in_order(self.rows.times.seconds, numbers.values)
        if meaning.kind is Kind.UNCLEAR:
            what = "requests in each row, or a rate, or neither, as a change is? Say `count_unit`"
            raise BadInput(f"{what} {units}, or name another column by `count_column`", at)
        if meaning.window_s and abs(self._step_s() - meaning.window_s) > 0.01 * meaning.window_s:
            what = f"requests of each row, or of {meaning.window_s:g} s? Say `count_unit` count, or name the column"
            raise BadInput(f"{what} `requests per {meaning.window_s:g} s`", at)
        grows = max((rising(part) for part in self._parts(numbers.values)), key=list(Rising).index)
        metric = self._export.form.startswith("Prometheus")
        if metric and all(name.split("{")[0] == UNNAMED for name in self._series or [column.name]):
            # A function on a metric drops its name.
            raise BadInput(f"requests in each row, or a rate? Say `count_unit` {units}", at)
        if grows is Rising.SURELY or (metric and grows is Rising.PERHAPS):
            return COUNTER
        if meaning.may_count and (metric or _never_falls(values)):
            return COUNTER
        if grows is Rising.PERHAPS:
            raise BadInput(f"never falls: requests in each row that grow, or a counter? Say `count_unit` {units}", at)
        falls = values.min() >= 0.0 and not np.any(np.diff(values) > 0.0)
        if falls and not self._series and rising(values[::-1]) is not Rising.NO:
            what = "never rises: requests in each row that fall, or a number that counts down? Say `count_unit` count"
            raise BadInput(what, at)
        counts = values * meaning.times
        if np.any(np.abs(counts - np.round(counts)) > 1e-6 * np.maximum(1.0, np.abs(counts))):
            raise BadInput(f"requests in each row, or a rate? Say `count_unit` {units}", at)
        if len(values) > 9 and np.all(values == 1.0):
            what = "every row holds 1, as an average does: requests in each row? Say `count_unit` count"
            raise BadInput(what, at)
        return ROW

    def _parts(self, values: FloatArray) -> list[FloatArray]:
        seconds = self.rows.times.seconds
        if not self._series:
            return [_in_order(seconds, values)]
        names = np.array(self._series)
        return [_in_order(seconds[names == name], values[names == name]) for name in dict.fromkeys(self._series)]

    def _is_cut(self, column: _Column) -> bool:
        """Return whether the file may end within the last number of a column, whose row is then the last line."""
        values = column.numbers.values
        names = [name for name in self._export.columns if name != self._time_name]
        at_end = self._export.unended and names[-1:] == [column.name] and len(values) > 2
        whole = not self._export.bad and list(self.rows.lines[-1:]) == list((self._export.lines or ())[-1:])
        return at_end and whole and may_be_cut(float(values[-1]), float(values[-2]))

    # -- traces

    def _left_out(self, bad: Sequence[tuple[int, str]], bad_lines: BadLines) -> list[str]:
        """Return notes on the lines that were left out. Raises BadInput if they are too many."""
        rows = self.rows
        if bad:
            line, first = min(bad)
            bad_lines.check(len(bad), len(rows.lines) + len(rows.bad), f"{self._word} {line}, {first}", self._where)
        notes = [f"{len(bad)} line{'s' if len(bad) > 1 else ''} that cannot be read left out"] if bad else []
        return notes + [f"{what} left out" for what in rows.skipped]

    @property
    def _cut(self) -> str:
        return f", {CUT_OFF}" if self._export.cut else ""

    @property
    def _word(self) -> str:
        return "line" if self._export.lines else "row"

    def _assumed(self) -> str:
        return f"read as {self._export.form}: times from {self._time_name!r} ({self.rows.times.written})"

    def _of_requests(self, name: str, bad_lines: BadLines) -> Trace:
        times = self.rows.times
        notes = [f"{self._assumed()}, one row a request", *self._left_out(self.rows.bad, bad_lines)]
        if times.local:
            check_clocks(times.seconds, self._where)
        seconds = np.sort(times.seconds, kind="stable")
        if np.array_equal(seconds, np.floor(seconds)) and len(np.unique(seconds)) < len(seconds):
            # As with access logs, the requests of a second are spread over it.
            _, first, counts = np.unique(seconds, return_index=True, return_counts=True)
            seconds = seconds + (np.arange(len(seconds)) - np.repeat(first, counts)) / np.repeat(counts, counts)
            notes.append("whole-second stamps: requests of a second are spread evenly over it")
        stream = seconds - seconds[0]
        trace = trace_of(name, lambda: iter([stream]), notes=lambda: tuple(notes))
        return replace(trace, read_as=f"a row is a request{self._cut}", began_s=float(seconds[0]))

    def _of_sizes(self, name: str, asked: str, bad_lines: BadLines) -> Trace:
        rows, column = self.rows, self._asked("size_column", asked, self._numbers())
        values, cells = column.numbers.values, rows.columns.get(column.name, ())
        known = np.isfinite(values)
        bad = [
            (rows.lines[i], f"no number in {column.name!r}: {cell_of(cells, i)}")
            for i in np.flatnonzero(~known).tolist()
        ]
        if np.any(values < 0.0):
            least = int(np.nanargmin(values))
            where = f"{self._where} {self._word} {rows.lines[least]}"
            raise BadInput("a size is negative", where, f"{values[least]:g}")
        if not np.any(values > 0.0):
            raise BadInput("no size is above zero", self._where)
        order = np.argsort(rows.times.seconds[known], kind="stable")
        self.rows = replace(rows, bad=[*rows.bad, *bad]).at(np.flatnonzero(known).tolist())
        trace = self._of_requests(name, bad_lines)
        sized = f"{trace.read_as}, its size in {column.name!r}"
        return replace(trace, read_as=sized, sizes=UnitSizes(values[known][order]))

    def _refuse_rounded(self, column: _Column, unit: Unit) -> None:
        """Raise BadInput if the numbers are rounded so that their sum, or a counter's increases, are not known."""
        numbers = column.numbers
        known = numbers.values[np.isfinite(numbers.values)]
        rise = float(np.ptp(known)) / max(len(known) - 1, 1)
        off = numbers.grain / rise if unit.counter and rise > 0.0 else numbers.slip
        if off > (_ROUNDED_RISE if unit.counter else _ROUNDED_SUM):
            share = f"{100.0 * off:.0f} % of {'an increase' if unit.counter else 'them'}"
            what = f"the numbers are rounded to {numbers.grain:,.12g}, {share}: export them in full,"
            raise BadInput(
                f"{what} or say `count_unit` to read them as they are", f"{self._where} column {column.name}"
            )

    def _of_counts(self, name: str, column: _Column, unit: Unit, gaps: str, bad_lines: BadLines) -> Trace:
        rows, numbers = self.rows, column.numbers
        seconds = rows.times.seconds
        notes: list[str] = []
        if rows.times.local and not self._series:
            seconds, note = unfolded(seconds, self._where)
            notes += [note] if note else []
        if self._is_cut(column):
            last = len(numbers.values) - 1
            notes.append(f"the last line may be cut within its number and is left out: {numbers.values[last]:g}")
            numbers = replace(numbers, values=np.where(np.arange(last + 1) < last, numbers.values, np.nan))
        wrong = set(numbers.bad)
        cells = rows.columns.get(column.name, ())
        bad = [*rows.bad, *((rows.lines[i], f"no number in {column.name!r}: {cell_of(cells, i)}") for i in numbers.bad)]
        notes += self._left_out(bad, bad_lines)
        missing = int((~np.isfinite(numbers.values)).sum()) - len(wrong)
        assumed = f"{self._assumed()}, {unit.said} from {column.name!r}"
        if self._series:
            names = list(dict.fromkeys(self._series))
            assumed += f" of {names[0]!r}" if len(names) == 1 else f", the sum of {len(names)} series"
        if missing:
            assumed += f", {missing} rows without a value left out"
        if self._said.unit is None:
            self._refuse_rounded(column, unit)
        if numbers.slip > 0.005:
            notes.append(f"the numbers are rounded: their sum may be off by {100.0 * numbers.slip:.1f} %")
        labels = np.array(self._series or [""] * len(seconds))
        bins = []
        parts = [(seconds[labels == one], numbers.values[labels == one]) for one in dict.fromkeys(labels.tolist())]
        for at_s, values in from_zero(parts) if unit.counter else parts:
            bins.append(rows_as_bins(at_s, values, unit, self._where, sure=gaps != "bridge"))
        starts, counts, width_s = bins[0] if len(bins) == 1 else added(bins, self._where)
        if width_s < 1e-3:
            raise BadInput("bins narrower than 1 ms", self._where, f"{width_s:g} s")
        if not counts.any():
            raise BadInput("no requests: every count is 0", self._where)
        if not (unit.per_s or unit.counter or self._said.unit) and (place := _total(counts)) is not None:
            what = f"the {place} row is the sum of the others: a total? Leave it out, or say `count_unit` count"
            raise BadInput(what, self._where, f"{counts[0 if place == 'first' else -1]:g}")
        trace = trace_of_counts(name, self._where, starts, counts, width_s, gaps)
        said = f"column {column.name!r} as {unit.said}{self._cut}"
        notes = [f"{assumed}, every {step_shown(width_s)}", *notes, *trace.notes]
        return replace(trace, read_as=said, notes=tuple(notes), began_s=float(starts[0]))


def _first_rows(columns: Columns) -> list[dict[str, object]]:
    first = {name: values[:_MOST_ROWS] for name, values in columns.items()}
    return [dict(zip(first, row, strict=True)) for row in zip(*first.values(), strict=True)]


def _are_of_requests(columns: Columns) -> bool:
    """Return whether a column is of a request, by its name or its lines."""
    names = {name.strip().lower() for name in columns}
    taken = any(part in name for name in names for part in _TAKEN)
    return bool(names & _LOG) or taken or _hold_requests(columns)


def _hold_requests(columns: Columns) -> bool:
    """Return whether a column holds lines of an access log, as Splunk's `_raw` does."""
    return any(
        all(UNTIMED.search(str(cell).encode()) is not None for cell in cells[:_PEEK])
        for name, cells in columns.items()
        if name.strip().lower() in _MESSAGES
    )


def _total(counts: FloatArray) -> str | None:
    """Return whether the first row or the last is the sum of all others; small sums may be so by chance."""
    total = float(counts.sum())
    if len(counts) < 4 or total < 2.0 * _LEAST_TOTAL:
        return None
    return next(
        (place for place, i in (("last", -1), ("first", 0)) if abs(2.0 * counts[i] - total) < 1e-9 * total), None
    )


def _names(columns: Sequence[_Column]) -> str:
    return ", ".join(column.name for column in columns)


def _ones(column: _Column) -> bool:
    """Return whether each row counts one request."""
    return bool(np.all(column.numbers.values == 1.0))


def _only_names(statements: Sequence[Statement], columns: Collection[str]) -> set[str]:
    """Return the texts that name the only series in all rows: under the name of a name, or a measure in any column.

    Without a header an identifier of parts does.
    """
    return {
        text
        for key, text in statements
        if ((kind := meaning_of(text).kind) in (Kind.MEASURE, Kind.STATISTIC) and key in columns)
        or (key.strip("_ ").lower() in NAMES and kind is not Kind.UNKNOWN)
        or (_UNNAMED.fullmatch(key) and _METRIC.fullmatch(text))
    }


def _is_other_time(numbers: NumberColumn, times: Times) -> bool:
    """Return whether the numbers are times near the rows' times, such as the ends of requests."""
    if not times.since_1970 or not np.any(known := np.isfinite(numbers.values)):
        return False
    apart = (np.abs(numbers.values[known] / per_s - times.seconds[known]) for per_s in (1.0, 1e3, 1e6, 1e9))
    return any(float(np.median(each)) <= DAY_S for each in apart)


def _is_index(name: str, numbers: NumberColumn) -> bool:
    """Return whether an unnamed column numbers the rows, as the index of pandas does."""
    return _UNNAMED.fullmatch(name) is not None and _rises_by_one(numbers)


def _rises_by_one(numbers: NumberColumn) -> bool:
    return len(numbers.values) > 1 and bool(np.all(np.diff(numbers.values) == 1.0))


def _in_order(seconds: FloatArray, values: FloatArray) -> FloatArray:
    ordered = values[np.argsort(seconds, kind="stable")]
    return ordered[np.isfinite(ordered)]


def _never_falls(values: FloatArray) -> bool:
    """Return whether values hardly ever fall, as a counter's do, which begins again."""
    steps = np.diff(values)
    return bool((steps < 0.0).sum() <= FALLS * len(steps))
