"""Spot series: which files are read or refused, and how a series repeats."""

from __future__ import annotations

import gzip
import os
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.ec2.spot_series import SpotSeries, load_spot_series, steps_by_zone
from mark.domain.errors import BadInput


def write(folder: Path, text: str, name: str = "zone.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_leading_zeros_are_dropped_and_shares_are_of_the_maximum(tmp_path: Path) -> None:
    """t = 0 is the first tick with a node. The last row holds for a tick, then the series begins again."""
    series = load_spot_series(write(tmp_path, "t_seconds,nodes\n0,0\n60,0\n120,4\n180,4\n240,1\n300,0\n360,2\n"))
    assert series.kind == "availability"
    assert series.times_s == (0.0, 120.0, 180.0, 240.0)
    assert series.shares == (1.0, 0.25, 0.0, 0.5)
    assert series.period_s == 300.0
    assert [series.share_at(t) for t in (0, 119, 120, 299, 300, 420)] == [1, 1, 0.25, 0.5, 1, 0.25]
    assert list(islice(series.changes(), 5)) == [(120, 0.25), (180, 0), (240, 0.5), (300, 1), (420, 0.25)]


def test_equal_ends_are_no_change_at_the_turn(tmp_path: Path) -> None:
    """If the last share equals the first, nothing happens when the series repeats."""
    series = load_spot_series(write(tmp_path, "t_seconds,nodes\n0,2\n10,1\n20,2\n"))
    assert list(islice(series.changes(), 4)) == [(10, 0.5), (20, 1), (40, 0.5), (50, 1)]


def test_a_constant_series_never_changes(tmp_path: Path) -> None:
    """The search for its changes ends."""
    series = load_spot_series(write(tmp_path, "t_seconds,nodes\n0,3\n60,3\n"))
    assert list(series.changes()) == []
    assert series.share_at(1e9) == 1.0


def test_a_price_file_is_relative_to_the_on_demand_price(tmp_path: Path) -> None:
    """That price comes from a column, an INDEX.csv, or the type in the name; of equal times the last row holds."""
    text = "t_seconds,usd_per_hour\n0,0.04\n0,0.05\n100,0.1\n"
    with_column = "t_seconds,usd_per_hour,on_demand_usd_per_hour\n0,0.05,0.2\n100,0.1,0.2\n"
    assert load_spot_series(write(tmp_path, with_column)).shares == (0.25, 0.5)
    named = write(tmp_path, text, "price_x_m9.huge_zone.csv.gz")
    assert load_spot_series(named, {"m9.huge": 0.2}).shares == (0.25, 0.5)
    write(tmp_path, "file,on_demand_usd\nprice_x_m9.huge_zone.csv.gz,0.1\n", "INDEX.csv")
    assert load_spot_series(named, {"m9.huge": 0.2}).shares == (0.5, 1.0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("t_seconds,count\n0,1\n", "header"),
        ("t_seconds,nodes\n", "no rows"),
        ("t_seconds,nodes\n0,0\n60,0\n", "no capacity"),
        ("t_seconds,nodes\n0,1\n0,1\n", "ascend"),
        ("t_seconds,nodes\n60,1\n0,1\n", "ascend"),
        ("t_seconds,nodes\n0,-1\n", "not negative"),
        ("t_seconds,nodes\n0,nan\n", "finite"),
        ("t_seconds,nodes\ninf,1\n", "finite"),
        ("t_seconds,nodes\n0,one\n", "numbers"),
        ("t_seconds,nodes\n0\n", "numbers"),
        ("t_seconds,nodes\n0,1,2\n", "2 columns"),
        ("t_seconds,usd_per_hour\n0,0\n", "above 0"),
        ("t_seconds,usd_per_hour\n0,1\n", "on-demand price"),
        ("t_seconds,usd_per_hour,on_demand_usd_per_hour\n0,1,0\n", "above zero"),
        ("\x00\x01", "header"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    """Every fault has its own message and names the file."""
    with pytest.raises(BadInput, match=what) as refused:
        load_spot_series(write(tmp_path, text))
    assert "zone.csv" in str(refused.value)
    assert "\n" not in str(refused.value)


TRUNCATED = gzip.compress(b"t_seconds,nodes\n0,1\n", mtime=0)[:-9]


@pytest.mark.parametrize("raw", [b"\x1f\x8b\x08broken", TRUNCATED, b"\xff\xfe\x00"])
def test_binary_and_truncated_files_are_refused(tmp_path: Path, raw: bytes) -> None:
    """Text that cannot be decoded is bad input, not a traceback."""
    path = tmp_path / "zone.csv.gz"
    path.write_bytes(raw)
    with pytest.raises(BadInput, match="cannot be read"):
        load_spot_series(path)
    with pytest.raises(BadInput, match="cannot be read"):
        load_spot_series(tmp_path / "nothing.csv")


SERIES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4)), min_size=1, max_size=6)


@given(SERIES, st.integers(0, 400))
def test_the_integral_is_the_sum_of_seconds(steps: list[tuple[int, int]], t_s: int) -> None:
    """A plain loop over every second agrees."""
    times, shares, now = [], [], 0
    for length, share in steps:
        times.append(float(now))
        shares.append(share / 4)
        now += length
    series = SpotSeries("x", "availability", tuple(times), tuple(shares), float(now))
    assert series.integral(float(t_s)) == pytest.approx(sum(series.share_at(s + 0.5) for s in range(t_s)))


@given(SERIES)
def test_changes_agree_with_share_at(steps: list[tuple[int, int]]) -> None:
    """Walking the changes gives the share at any time."""
    times, shares, now = [], [], 0
    for length, quarters in steps:
        times.append(float(now))
        shares.append(quarters / 4)
        now += length
    if len(set(shares)) == 1:
        times, shares = times[:1], shares[:1]
    series = SpotSeries("x", "availability", tuple(times), tuple(shares), float(now))
    walked = dict(islice(series.changes(), 10))
    share = shares[0]
    for t_s in range(int(max(walked, default=0))):
        share = walked.get(float(t_s), share)
        assert series.share_at(t_s) == share


def _real_spot_files() -> list[Path]:
    data = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3].parent / "shared" / "data"))
    return sorted((data / "spot").glob("*.csv.gz"))


def test_every_real_series_is_read() -> None:
    """Availability, preemption and price files are read as they come."""
    files = _real_spot_files()
    if not files:
        pytest.skip("no real spot series: set MARK_DATA")
    for path in files[::3]:
        series = load_spot_series(path)
        assert series.period_s > 86400.0
        assert series.kind == ("price" if path.name.startswith("price") else "availability")
        assert series.shares[0] > 0.0


def test_series_are_assigned_to_zones_round_robin_and_repeat() -> None:
    """Fewer series than zones start again; a kind without series leaves its zones alone."""
    series = SpotSeries("a", "price", (0.0, 10.0), (0.5, 0.25), 20.0)
    steps = [(0.0, 0.5), (10.0, 0.25), (20.0, 0.5)]
    assert steps_by_zone([series], ["x", "y"], 30.0) == {"availability": {}, "price": {"x": steps, "y": steps}}
    steady = SpotSeries("b", "availability", (0.0,), (0.7,), 20.0)
    assert steps_by_zone([steady, series], ["x"], 5.0) == {
        "availability": {"x": [(0.0, 0.7)]},
        "price": {"x": [(0.0, 0.5)]},
    }
