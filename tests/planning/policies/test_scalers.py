"""Decisions of other projects' autoscalers, against their documents and, of Ray, against its own code's."""

from __future__ import annotations

import csv
import gzip
import math
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.scaler import HpaSettings, KpaSettings, RaySettings
from mark.planning.policies.scalers import (
    Leaning,
    Panic,
    Wishes,
    hpa_by_utilisation,
    hpa_by_value,
    hpa_scaled,
    kpa_scaled,
    ray_scaled,
)

RECORDED = Path(__file__).parent / "ray_decisions.csv.gz"


# -- Kubernetes: "Horizontal Pod Autoscaling", algorithm details -------------------------------------------------------


@pytest.mark.parametrize(("current_m", "wanted"), [(200.0, 2), (50.0, 1), (104.0, 1), (112.0, 2)])
def test_hpa_follows_the_ratio_of_its_document(current_m: float, wanted: int) -> None:
    """Its examples: 200m against 100m doubles, 50m halves (of two pods), and a ratio within 0.1 of one does nothing."""
    pods = 2 if current_m < 100.0 else 1
    assert hpa_by_value(pods * current_m, 100.0, pods, 0.1) == wanted
    assert hpa_by_utilisation(current_m / 1000.0, 0.1, pods, 0, 0.1) == wanted


def documented_hpa(ready: int, unready: int, usage: float, target: float) -> int:
    """Return the document's formula, pod by pod: pods not yet ready have 0 % of their target when the scale grows."""
    usages, everyone = [usage] * ready, ready + unready
    ratio = sum(usages) / len(usages) / target
    if unready and ratio > 1.0:
        usages += [0.0] * unready
        again = sum(usages) / len(usages) / target
        if again < 1.0:
            return everyone  # the direction turned
        ratio = again
    return everyone if abs(ratio - 1.0) <= 0.1 else math.ceil(len(usages) * ratio - 1e-9)


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.0, 1.0), st.floats(0.1, 1.0))
def test_hpa_on_cpu_equals_the_document_s_formula(ready: int, unready: int, usage: float, target: float) -> None:
    ratios = (usage / target, usage * ready / (ready + unready) / target)
    near = min(abs(abs(ratio - 1.0) - 0.1) for ratio in ratios) < 1e-9 or any(abs(r - 1.0) < 1e-9 for r in ratios)
    whole = any(abs(n * r - round(n * r)) < 1e-6 for n in (ready, ready + unready) for r in ratios)
    if not near and not whole:  # there the order of float operations decides
        assert hpa_by_utilisation(usage, target, ready, unready, 0.1) == documented_hpa(ready, unready, usage, target)


def test_hpa_grows_by_four_pods_or_doubles_and_shrinks_to_the_highest_wish_of_five_minutes() -> None:
    """The default behavior of autoscaling/v2, on ticks of 15 s."""
    wishes: Wishes = ()
    counts, current = [], 1
    for tick, wish in enumerate([50, 50, 50, 50, *[10] * 21]):
        current, wishes = hpa_scaled(15.0 * tick, wish, current, wishes, HpaSettings())
        counts.append(current)
    assert counts[:4] == [5, 10, 20, 40]
    # The last wish of 50 was at 45 s. It keeps running instances until 345 s.
    assert counts[4:23] == [40] * 19
    assert counts[23:] == [10, 10]


# -- Knative: "Additional autoscaling configuration for Knative Pod Autoscaler" ---------------------------------------


class DocumentedKpa:
    """Knative's description as a separate program: modes by name, times as ticks."""

    def __init__(self, settings: KpaSettings) -> None:
        self.settings, self.mode, self.calm_from, self.held = settings, "stable", 0.0, 0

    def decide(self, now_s: float, stable: float, panic: float, target: float, ready: int) -> int:
        s, pods = self.settings, ready if ready > 0 else 1
        if -(-panic // target) >= pods * s.panic_threshold_percentage / 100.0:
            self.mode, self.calm_from = "panic", now_s + s.stable_window_s
        elif self.mode == "panic" and now_s > self.calm_from:
            self.mode, self.held = "stable", 0
        limited = []
        for value in (stable, panic):
            wish = -(-value // target)
            wish = wish if wish > pods // s.max_scale_down_rate else pods // s.max_scale_down_rate
            limited.append(min(wish, -(-(pods * s.max_scale_up_rate) // 1)))
        if self.mode == "stable":
            return int(limited[0])
        self.held = int(max(self.held, *limited))  # in panic mode pods are added only
        return self.held


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(0, 40)), min_size=1, max_size=40),
    st.sampled_from([KpaSettings(), KpaSettings(max_scale_up_rate=2.0), KpaSettings(panic_threshold_percentage=110.0)]),
    st.sampled_from([1.0, 7.0, 70.0]),
)
def test_knative_equals_its_description(
    ticks: list[tuple[int, int, int]], settings: KpaSettings, target: float
) -> None:
    reference, memory = DocumentedKpa(settings), Panic()
    for tick, (stable, panic, ready) in enumerate(ticks):
        wanted = reference.decide(5.0 * tick, float(stable), float(panic), target, ready)
        count, memory = kpa_scaled(5.0 * tick, stable, panic, target, ready, memory, settings)
        assert count == wanted


def test_knative_panics_on_twice_what_its_pods_may_have_and_calms_down_after_the_stable_window() -> None:
    """Two pods of 7 requests each panic from four pods' worth on; below, the stable window counts."""
    memory, counts = Panic(), []
    loads = [(10, 21), (15, 28), *[(15, 7)] * 13]  # (stable, panic) every 5 s
    for tick, (stable, panic) in enumerate(loads):
        count, memory = kpa_scaled(5.0 * tick, stable, panic, 7.0, 2, memory, KpaSettings())
        counts.append(count)
    assert counts == [2, *[4] * 13, 3]


def test_knative_halves_at_most_and_never_counts_fewer_than_one_pod() -> None:
    assert kpa_scaled(0.0, 0.0, 0.0, 7.0, 9, Panic(), KpaSettings())[0] == 4
    assert kpa_scaled(0.0, 20.0, 20.0, 7.0, 0, Panic(), KpaSettings(max_scale_up_rate=2.0))[0] == 2


# -- Ray Serve: its own code's decisions, recorded by benchmarks/scalers/ray_decisions.py ------------------------------


def test_ray_decides_as_its_own_code_does() -> None:
    """Bit-equal on 1,000 recorded ticks of Ray 2.60, bounds included."""
    with gzip.open(RECORDED, "rt", newline="") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert len(rows) == 1000
    for _, ticks in groupby(rows, key=lambda row: row["service"]):
        memory = Leaning()
        for row in ticks:
            settings = RaySettings(
                row["upscale_delay_s"], row["downscale_delay_s"], row["upscaling_factor"], row["downscaling_factor"]
            )
            count, memory = ray_scaled(
                row["now_s"],
                row["ongoing"],
                int(row["running"]),
                int(row["target"]),
                row["target_ongoing_requests"],
                memory,
                settings,
            )
            assert max(row["min_replicas"], min(row["max_replicas"], count)) == row["decision"], row
