"""Records of spot markets: availability, preemption and price series (docs/semantics.md, 10)."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Literal

from mark.domain.cells import is_file, read_bytes
from mark.domain.errors import BadInput

Kind = Literal["availability", "price"]

# On-demand prices of types that only old price files have: EC2 price list, Linux, us-east-1, as of 2015.
_OLD_ON_DEMAND_USD = {
    "c3.xlarge": 0.21,
    "d2.8xlarge": 5.52,
    "g2.2xlarge": 0.65,
    "m3.medium": 0.067,
    "r3.large": 0.166,
}


@dataclass(frozen=True, slots=True)
class SpotSeries:
    """A step function of time that repeats; time 0 is the start of the evaluated part.

    `shares[i]` holds from `times_s[i]` to the next one. In an availability series it is the share of the spot capacity
    that can be held, in a price series the spot price over the on-demand price. `times_s` begins at 0 and neighbours
    differ in share. After `period_s` it starts again.
    """

    name: str
    kind: Kind
    times_s: tuple[float, ...]
    shares: tuple[float, ...]
    period_s: float
    _area: tuple[float, ...] = field(init=False, repr=False, compare=False)  # integral up to times_s[i], then period_s

    def __post_init__(self) -> None:
        area = [0.0]
        for share, begin_s, end_s in zip(self.shares, self.times_s, (*self.times_s[1:], self.period_s), strict=True):
            area.append(area[-1] + share * (end_s - begin_s))
        object.__setattr__(self, "_area", tuple(area))

    def share_at(self, t_s: float) -> float:
        """Return the share that holds at `t_s` (t_s >= 0)."""
        return self.shares[bisect_right(self.times_s, t_s % self.period_s) - 1]

    def integral(self, t_s: float) -> float:
        """Return the share integrated from 0 to `t_s`, in seconds."""
        rounds, phase_s = divmod(t_s, self.period_s)
        i = bisect_right(self.times_s, phase_s) - 1
        return rounds * self._area[-1] + self._area[i] + self.shares[i] * (phase_s - self.times_s[i])

    def changes(self) -> Iterator[tuple[float, float]]:
        """Yield (time, share from then on) of every change after time 0, without end unless the share is constant."""
        if len(set(self.shares)) == 1:
            return
        before, rounds = self.shares[0], 0
        first = 1
        while True:
            for i in range(first, len(self.times_s)):
                if self.shares[i] != before:
                    before = self.shares[i]
                    yield rounds * self.period_s + self.times_s[i], before
            rounds, first = rounds + 1, 0


def steps_by_zone(
    series: Sequence[SpotSeries], zones: Sequence[str], until_s: float
) -> dict[Kind, dict[str, list[tuple[float, float]]]]:
    """Return each zone's series as steps (from second, share) up to `until_s`, by kind. A kind may have no series.

    The nth series belongs to the nth zone; if there are fewer series than zones, they start again with the first.
    """
    found: dict[Kind, dict[str, list[tuple[float, float]]]] = {"availability": {}, "price": {}}
    for kind, by_zone in found.items():
        of_kind = [one for one in series if one.kind == kind]
        for k, zone in enumerate(zones if of_kind else ()):
            one = of_kind[k % len(of_kind)]
            changes = takewhile(lambda change: change[0] < until_s, one.changes())
            by_zone[zone] = [(0.0, one.shares[0]), *changes]
    return found


def load_spot_series(path: str | Path, on_demand_usd_per_hour: Mapping[str, float] | None = None) -> SpotSeries:
    """Read `t_seconds,nodes` (availability, preemption) or `t_seconds,usd_per_hour` (prices), plain or gzip.

    Leading rows without a node are dropped. The last row holds for the median step. A price file needs the on-demand
    price of its type: from a third column `on_demand_usd_per_hour`, from an INDEX.csv beside the file (columns
    `file,on_demand_usd`), or by the type in the file's name, looked up in `on_demand_usd_per_hour` (by instance type).
    Raises BadInput.
    """
    path = Path(path)
    rows = _read(path)
    where = path.name
    if not rows:
        raise BadInput("the file is empty", where)
    header, body = [name.strip() for name in rows[0]], rows[1:]
    if header not in (
        ["t_seconds", "nodes"],
        ["t_seconds", "usd_per_hour"],
        ["t_seconds", "usd_per_hour", "on_demand_usd_per_hour"],
    ):
        raise BadInput("the header must be t_seconds,nodes or t_seconds,usd_per_hour", where, ",".join(header))
    kind: Kind = "availability" if header[1] == "nodes" else "price"
    times, values, on_demand = _columns(body, len(header), kind, where)
    if kind == "availability":
        first = next((i for i, nodes in enumerate(values) if nodes > 0.0), None)
        if first is None:
            raise BadInput("no capacity at any time: nodes is never above 0", where)
        times, values = times[first:], values[first:]
        unit = max(values)
    else:
        unit = on_demand or _on_demand_usd(path, on_demand_usd_per_hour or {})
        for t_s, usd in zip(times, values, strict=True):
            if not 1e-6 <= usd / unit <= 1e6:
                what = f"a spot price must lie between 1e-6 and 1e6 x the on-demand price, {unit:g}"
                raise BadInput(what, f"{where} t_seconds {t_s:g}", f"{usd:g}")
    series = _series(path.name.removesuffix(".gz").removesuffix(".csv"), kind, times, [v / unit for v in values])
    if len(series.shares) > series.period_s:
        what = "changes more than once a second; is t_seconds in seconds?"
        raise BadInput(what, where, f"{len(series.shares)} values in {series.period_s:g} s")
    return series


def _read(path: Path) -> list[list[str]]:
    try:
        raw = read_bytes(path)
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return [row for row in csv.reader(raw.decode("utf-8-sig").splitlines(), strict=True) if row]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput("cannot be read as csv or csv.gz", str(path), why) from error


def _columns(body: list[list[str]], width: int, kind: Kind, where: str) -> tuple[list[float], list[float], float]:
    times: list[float] = []
    values: list[float] = []
    on_demand = 0.0
    for line, row in enumerate(body, start=2):
        try:
            t_s, value, *rest = (float(cell) for cell in row)
        except ValueError:
            raise BadInput("a row must be numbers", f"{where} line {line}", ",".join(row)) from None
        if len(row) != width:
            raise BadInput(f"a row must have {width} columns", f"{where} line {line}", ",".join(row))
        if not (math.isfinite(t_s) and math.isfinite(value)) or value < 0.0 or (kind == "price" and value == 0.0):
            what = "times and values must be finite, values not negative, prices above 0"
            raise BadInput(what, f"{where} line {line}", ",".join(row))
        # Price files list several changes of one second (zones mixed); the last of them holds.
        if times and (t_s < times[-1] or (kind == "availability" and t_s == times[-1])):
            raise BadInput("t_seconds must ascend", f"{where} line {line}", row[0])
        if rest:
            on_demand = rest[0]
            if not (math.isfinite(on_demand) and on_demand > 0.0):
                raise BadInput("a price must be above zero", f"{where} line {line} on_demand_usd_per_hour", row[2])
        times.append(t_s)
        values.append(value)
    if not times:
        raise BadInput("the file has no rows", where)
    return times, values, on_demand


def _on_demand_usd(path: Path, known: Mapping[str, float]) -> float:
    index = path.with_name("INDEX.csv")
    if is_file(index):
        header, *rows = _read(index) or [[]]
        if "file" in header and "on_demand_usd" in header:
            name, price = header.index("file"), header.index("on_demand_usd")
            for row in rows:
                if len(row) > max(name, price) and row[name] == path.name:
                    try:
                        usd = float(row[price])
                    except ValueError:
                        usd = 0.0
                    if usd > 0.0 and math.isfinite(usd):
                        return usd
                    raise BadInput("a price must be above zero", f"{index.name} {path.name} on_demand_usd", row[price])
    for part in path.name.split("_"):
        usd = known.get(part, _OLD_ON_DEMAND_USD.get(part, 0.0))
        if usd > 0.0:
            return usd
    raise BadInput(
        "a price series needs its on-demand price: a column on_demand_usd_per_hour or an INDEX.csv beside it", path.name
    )


def _series(name: str, kind: Kind, times: list[float], shares: list[float]) -> SpotSeries:
    steps = sorted(b - a for a, b in pairwise(times) if b > a)
    period_s = times[-1] - times[0] + (steps[len(steps) // 2] if steps else 1.0)
    kept_s: list[float] = []
    kept: list[float] = []
    for i, (t_s, share) in enumerate(zip(times, shares, strict=True)):
        if i + 1 < len(times) and times[i + 1] == t_s:
            continue
        if not kept or share != kept[-1]:
            kept_s.append(t_s - times[0])
            kept.append(share)
    if len(kept) == 1:
        period_s = max(period_s, 3600.0)  # it never changes, so the period only must not be too short
    return SpotSeries(name, kind, tuple(kept_s), tuple(kept), period_s)
