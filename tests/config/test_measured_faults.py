"""Faults from saved metrics: of a real page, and of pages that do not tell enough."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mark.config.faults_section import load_faults
from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.serving.backend.metrics import Metrics, ModelMetrics


@cache
def page(model: str = "noisy", *, periods: int = 40, factor: float = 3.0, hangs: int = 0, seed: int = 0) -> str:
    """Return the page of an instance that was slow `periods` times, for 20 s in the mean and 5 % of the time in all."""
    rng, counts = np.random.default_rng(seed), ModelMetrics(model, "1")
    at_s = 0.0
    for _ in range(max(1, periods)):
        for mean_s, typical in ((380.0, 1.0), (20.0, factor)):
            until_s = at_s + rng.exponential(mean_s)
            while at_s < until_s and (typical == 1.0 or periods):
                ratio = typical * rng.lognormal(0.0, 0.05)
                counts.service_ratio.observe(ratio)
                counts.pace.observe(at_s, ratio)
                at_s += rng.exponential(0.5)
    for _ in range(hangs):
        counts.service_ratio.observe(50.0)
    counts.pace.observe(at_s, 1.0)
    metrics = Metrics()
    metrics.models.append(counts)
    return metrics.page().decode()


def loaded(folder: Path, text: str) -> Faults:
    file = folder / "metrics.txt"
    file.write_text(text)
    return load_faults(str(file))


def test_faults_are_read_from_saved_pages_of_several_instances(tmp_path: Path) -> None:
    found = loaded(tmp_path, page(seed=1) + page(seed=2, hangs=5))
    assert found.slow_share == pytest.approx(0.05, rel=0.25)
    assert found.slow_s == pytest.approx(20.0, rel=0.25)
    assert found.slow_factor == pytest.approx(3.0, rel=0.1), "hangs do not count"
    assert not found.hangs


def test_instances_that_were_never_slow_are_calm(tmp_path: Path) -> None:
    assert loaded(tmp_path, page(periods=0)) == Faults()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (page(periods=3), "3 slow periods, and 10 are needed"),
        (
            page().replace("mark_slow_periods_total{", "other{"),
            r"slow seconds and no mark_slow_periods_total: is it cut\?",
        ),
        (page("a") + page("b"), r"several models \(a, b\)"),
        (page().replace("mark_pace_seconds_total", "other"), "has no mark_pace_seconds_total"),
        (page(periods=0).replace('"+Inf"', '"wide"'), "must be a number of zero or more.*wide"),
        ('mark_service_ratio_bucket{le="+Inf",model="a"} 0.0\n', "has no batches"),
        (page(factor=30.0), "they hung"),
        ("# TYPE mark_requests_total counter\nmark_requests_total 5\n", "mark_service_ratio_bucket has no batches"),
        ("nothing = 1", "nothing"),
    ],
)
def test_pages_that_do_not_tell_enough_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        loaded(tmp_path, text)
