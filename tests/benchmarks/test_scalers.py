"""A sample of benchmarks/scalers: a floor does not hurt, and the leaderboard has a line and a point for each scaler."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "scalers"))

import floor
import leaderboard
from worlds import World, late_share, run, scaler

STEPS = World("synthetic:mmpp?rates=40,160&dwell_s=600", 1.0, 0.0)


def test_floor_that_fails_adds_no_late_requests() -> None:
    """An HPA near its capacity, two hours, alone and above a floor whose exporter fails five times."""
    inputs = STEPS.inputs(Path(), 2.0, certain_boots=True)
    own = scaler(replace(inputs, request=replace(inputs.request, with_bound=False)), "hpa", floor.SHARE)
    alone = late_share(run(own))
    failing = run(own, with_floor=True, outages=floor.outages(2.0))
    assert alone > 0.02  # otherwise there is nothing to mend
    assert late_share(failing) <= alone + floor.HARM


def test_table_of_floors_has_a_line_for_each_trace_and_the_worst_of_all() -> None:
    def day(world: str, harm: float, saving: float | None) -> dict[str, object]:
        static = None if saving is None else {"min": 7, "usd": 9.0, "late": 0.0}
        late = {"usd": 8.0, "late": 0.1}
        return {"world": world, "scaler": "keda", "alone": late, "floor": late, "failing": late, "static": static,
                "harm": harm, "saving": saving}  # fmt: skip

    text = floor.table(
        [day("nasa day 5.4", 0.0001, 0.2), day("nasa day 6.4", -0.01, 0.4), day("fb day 9", 0.0, None)], 24
    )
    assert "| nasa | 5.4, 6.4 | keda | 10.00 % | 10.00 % | 0.010 | 7 | 30 % |" in text
    assert "| fb | 9 | keda | 10.00 % | 10.00 % | 0.000 |  |  |" in text
    assert "| all |  | all | 10.00 % | 10.00 % | 0.010 |  | 30 % |" in text


def found(**rows: tuple[float, float]) -> dict[str, object]:
    return {"bound_usd": 10.0, "rows": {name: {"usd": usd, "late": late} for name, (usd, late) in rows.items()}}


def test_table_names_first_who_keeps_the_promise_most_often() -> None:
    text = leaderboard.table([found(cheap=(12.0, 0.5), kept=(20.0, 0.01)), found(cheap=(11.0, 0.0), kept=(20.0, 0.02))])
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == ["kept", "cheap"]
    assert "| cheap | 1 of 2 | 1.15 | 25.00 % | 50.0 % |" in text


def test_row_of_a_scaler_is_its_cheapest_that_keeps_the_promise() -> None:
    rows = [{"usd": 5.0, "late": 0.3}, {"usd": 9.0, "late": 0.01}, {"usd": 7.0, "late": 0.02}]
    assert leaderboard.best(rows, 0.02)["usd"] == 7.0
    assert leaderboard.best(rows, 0.001)["usd"] == 9.0


def test_picture_shows_every_scaler() -> None:
    drawn = leaderboard.svg([found(mark=(12.0, 0.01), HPA=(15.0, 0.3))])
    assert drawn.count("<circle") == 2
    assert ">mark<" in drawn
    near = leaderboard.svg([found(HPA=(12.0, 0.01), KEDA=(12.0, 0.01))])
    heights = re.findall(r'y="(\d+)" fill="#444">(?:HPA|KEDA)<', near)
    assert abs(int(heights[0]) - int(heights[1])) >= 13
    assert leaderboard.days([{"world": "a day 1", "requests": 2e6}], 24.0).startswith(
        "1 part of 24 hours with 2.0 million"
    )
