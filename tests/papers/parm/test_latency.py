"""Figures of ParM's section 6, with few queries: their columns, and that parity models help."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mark_papers.panels import PanelFigure
from mark_papers.parm import fleets, latency

FEW = 2_000


@pytest.fixture(autouse=True)
def known_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the calibration, which takes a hundred runs, by a known delay."""
    monkeypatch.setattr(fleets, "delay_s", lambda cluster, share=0.0: 1.6 * cluster.batch_s[0])


@pytest.mark.parametrize(
    ("run", "rows"),
    [
        (latency.run_parm_fig10, (4, 4)),
        (latency.run_parm_fig11, (6,)),
        (latency.run_parm_delays, (4,)),
        (latency.run_parm_batches, (3,)),
        (latency.run_parm_fig12, (4,)),
        (latency.run_parm_fig13, (4,)),
        (latency.run_parm_fig14, (4,)),
    ],
)
def test_figure_has_a_row_for_each_case(run: Callable[..., PanelFigure], rows: tuple[int, ...]) -> None:
    told: list[float] = []
    found = run(queries=FEW, progress=told.append)
    assert tuple(len(panel.rows) for panel in found.panels) == rows
    assert told == sorted(told)
    assert told[-1] == 1.0
    for panel in found.panels:
        assert len({tuple(row) for row in panel.rows}) == 1, "all rows have the same columns"


def test_parity_lowers_the_tail_at_every_rate() -> None:
    for panel in latency.run_parm_fig10(queries=FEW).panels:
        assert all(float(row["p99.9"]) < 0.0 for row in panel.rows)
