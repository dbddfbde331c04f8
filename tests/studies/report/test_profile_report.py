"""The table, the JSON and the page of `mark profile`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mark.domain.slo import Slo
from mark.profiling.measure import Measured, Size
from mark.profiling.policy import candidate
from mark.studies.report.htmlpage import html_of
from mark.studies.report.profile_report import latency_figure, profile_report, takeaways, throughput_figure
from tests.studies.report.test_forecast import printed


def found(**more: Any) -> Measured:
    """Return a profile of 5 ms and 0.2 ms an item; the second p99 rests on few times."""
    sizes = (
        Size(1, 1000, 0.0052, 0.00001, 0.0061, 0.0051),
        Size(32, 120, 0.0114, 0.0005, 0.0150, 0.0112),
    )
    return Measured("m:A <b>", "c5.large", sizes, **{"overhead_s": 0.00031, "cold_s": 0.8} | more)


def promise(measured: Measured, rt_max_s: float) -> Any:
    slo = Slo(rt_max_s, 0.98)
    return slo, candidate(measured.profile(), slo)


def shown(measured: Measured, kept: Any = None) -> str:
    return printed(profile_report(measured, kept))


def test_the_table_has_a_row_for_each_size() -> None:
    text = shown(found())
    assert "m:A <b> on c5.large: one worker" in text
    assert re.search(r"^1 +1,000 +5\.20 +0\.2 % +6\.10 +5\.10 +192", text, re.M)
    assert re.search(r"^32 +120 +11\.4 +4\.4 % +15\.0\? +11\.2 +2,807", text, re.M)
    assert "warning: the mean of a batch of 32 is less precise than +-2.0 %" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_sentences_say_what_follows() -> None:
    one = found()
    assert takeaways(one, promise(one, 0.05)) == [
        "The knee is at batches of 32: 2,807 items/s, the best that was measured.",
        "RT_max of 50 ms gives N_batch = 32, W_batch = 0 ms, and a capacity of 2,807 requests/s.",
        "Beyond these times, mark's server adds 0.310 ms to a request that need not wait.",
        "From start to ready: 0.80 s.",
    ]
    assert takeaways(one, promise(one, 0.005))[1] == (
        "RT_max of 5 ms cannot be kept: one request takes 5.5 ms, RT_max is 5 ms."
    )
    assert len(takeaways(found(overhead_s=None, cold_s=None), None)) == 1
    busy = found(workers=2, background=3)
    assert "2 workers at a time, 3 busy processes beside" in shown(busy)
    flat = Measured("m", "i", (Size(1, 9, 0.01, 0.0, 0.01, None), Size(2, 9, 0.0199, 0.0, 0.02, None)))
    assert takeaways(flat, None) == [
        "The knee is at batches of 1: 100 items/s, at least 95 % of the best (101 with 2)."
    ]
    assert re.search(r"^1 +9 +10\.0 +0\.0 % +10\.0\? +- +100", shown(flat), re.M)


def test_json_has_the_promise_beside_the_measurement() -> None:
    one = found()
    kept = profile_report(one, promise(one, 0.05)).data
    assert kept["promise"] == {
        "rt_max_ms": 50.0,
        "n_batch": 32,
        "w_batch_ms": 0.0,
        "capacity_rps": pytest.approx(32 / 0.0114),
        "why_not": None,
    }
    assert kept["sizes"][1]["batch"] == 32
    broken = profile_report(one, promise(one, 0.005)).data["promise"]
    assert broken["n_batch"] is None
    assert "one request takes" in broken["why_not"]
    assert profile_report(one, None).data["promise"] is None


def test_figures_show_intervals_the_knee_and_rt_max() -> None:
    one = found()
    figure = latency_figure(one, promise(one, 0.05))
    assert list(figure.data[0].y) == pytest.approx([5.2, 11.4])
    assert list(figure.data[0].error_y.array) == pytest.approx([0.01, 0.5])
    assert list(figure.data[1].y) == pytest.approx([6.1, 15.0])
    lines = {(shape.x0, shape.y0) for shape in figure.layout.shapes}
    assert (32, 0) in lines
    assert any(y == pytest.approx(50.0) for _, y in lines)
    assert list(throughput_figure(one).data[0].y) == pytest.approx([192.3, 2807.0], abs=0.1)


def test_the_page_needs_nothing_else_and_escapes_names() -> None:
    one = found()
    page = html_of(profile_report(one, promise(one, 0.05)))
    assert "m:A &lt;b&gt; on c5.large" in page
    assert "m:A <b>" not in page
    assert "The knee is at batches of 32" in page
    assert "Warnings" in page
    assert "http-equiv" not in page
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="http', page)
