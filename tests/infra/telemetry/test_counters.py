"""Metrics pages of bouncers and gateways, read as counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from mark_infra.telemetry.counters import (
    BouncerCounters,
    GatewayCounts,
    read_bouncer,
    read_conductor,
    read_gateway,
    read_whole,
)

from mark.selection.cascade import Cascade
from mark.selection.query import Selection
from mark.selection.settings import SelectionSettings
from mark.selection.state import SelectionState
from mark.serving.backend.metrics import SECONDS, CacheCounts, Metrics, ModelMetrics
from mark.serving.conductor.selected import ServedSelection


class Spent:
    calls, billed_s, capped = 7, 1.5, 0


def page() -> bytes:
    metrics = Metrics()
    for version, count in (("1", 100), ("2} 9", 11)):
        one = ModelMetrics('odd "model"', version)
        one.requests["instance", 200] = count
        one.requests["function", 200] = 5
        one.requests["nobody", 503] = 2
        one.requests["instance", 500] = 1
        one.deadline_misses = 3
        one.service_s.observe(0.5)
        one.answered("instance", 200, 0.25, 1.0)
        one.answered("nobody", 503, 9.0, 1.0)
        one.workers_ready = 2
        metrics.models.append(one)
    metrics.spent = [(("odd",), Spent())]  # type: ignore[list-item]
    return metrics.page()


def test_a_bouncers_page_is_summed_over_versions() -> None:
    """Labels may hold any text."""
    assert read_bouncer(page()) == BouncerCounters(
        requests=131.0, misses=8.0, by_functions=10.0, service_s=1.0, function_calls=7.0, function_billed_s=1.5,
        errors=2.0, answered=2.0, latency_s=0.5, workers=4.0,
        within=(*(2.0 * (bound >= 0.25) for bound in SECONDS), 2.0),
    )  # fmt: skip


def test_requests_that_a_cache_answered_are_told_apart() -> None:
    """They count as requests, but capacity is bought without them."""
    metrics = Metrics()
    for version in ("1", "2"):
        one = ModelMetrics("m", version)
        one.requests["instance", 200], one.requests["cache", 200], one.requests["nobody", 504] = 10, 7, 1
        one.cache = CacheCounts()
        one.cache.hits, one.cache.misses, one.cache.coalesced = 5, 10, 3
        metrics.models.append(one)
    found = read_bouncer(metrics.page())
    assert (found.requests, found.from_cache, found.load) == (36.0, 16.0, 20.0)
    assert found.since(BouncerCounters(requests=6.0, from_cache=2.0)).load == 16.0


def test_a_conductors_page_is_read_without_its_stages() -> None:
    metrics = Metrics()
    for stage, count in (("", 10), ("first", 100), ("second", 1000)):
        one = ModelMetrics("two", "1", stage)
        one.requests["instance", 200] = count
        one.deadline_misses = 3 * count
        metrics.models.append(one)
    found = read_conductor(metrics.page())
    assert (found.requests, found.misses) == (10.0, 30.0)
    with pytest.raises(ValueError, match="no metrics"):
        read_conductor(page())


def test_conductor_counts_wanted_calls_by_stage() -> None:
    metrics = Metrics()
    for stage in ("", "small", "large"):
        metrics.models.append(ModelMetrics("two", "1", stage))
    settings = SelectionSettings("cascade", correct_usd=1.0, score="score")
    state = SelectionState(("small@1", "large@2"), settings)
    served = ServedSelection(("small", "large"), Selection(Cascade(correct_usd=1.0), state, settings, float))
    served.counts.wanted.update({0: 7, 1: 3})
    metrics.more.append(partial(served.metrics, "two", "1"))
    found = read_conductor(metrics.page())
    assert found.wanted == (("small", 7.0), ("large", 3.0))
    assert found.since(BouncerCounters(wanted=(("small", 5.0),))).wanted == (("small", 2.0), ("large", 3.0))


def test_server_of_whole_pipeline_counts_queries_and_workers_of_all_stages() -> None:
    metrics = Metrics()
    for stage, count, workers, busy_s in (("", 10, 1, ()), ("first", 100, 3, (0.5, 0.25)), ("second", 1000, 1, (2.0,))):
        one = ModelMetrics("two", "1", stage)
        one.requests["instance", 200] = count
        one.workers_ready = workers
        for seconds in busy_s:
            one.service_s.observe(seconds)
        metrics.models.append(one)
    found = read_whole(metrics.page())
    assert (found.requests, found.workers, found.service_s) == (10.0, 4.0, 2.75)
    with pytest.raises(ValueError, match="no metrics"):
        read_whole(page())


def test_buckets_of_other_bounds_are_not_read() -> None:
    """They come from a server of another version."""
    lines = page().splitlines(keepends=True)
    left = b"".join(line for line in lines if b'le="0.25"' not in line)
    assert read_bouncer(left) == read_bouncer(page())._replace(within=())


def test_a_gateways_page_counts_clients_and_refusals() -> None:
    """Reasons and statuses are added up."""
    text = (
        b'# HELP x y\nmark_gateway_requests_total{code="200"} 10.0\nmark_gateway_requests_total{code="503"} 2.0\n'
        b'mark_gateway_refused_total{reason="none"} 2.0\nmark_gateway_in_flight_requests 0.0\n'
    )
    assert read_gateway(text) == GatewayCounts(12.0, 2.0)
    text += b"mark_gateway_by_functions_total 4.0\nmark_gateway_late_total 1.0\n"
    text += b"mark_gateway_function_calls_total 5.0\nmark_gateway_function_billed_seconds_total 0.5\n"
    assert read_gateway(text) == GatewayCounts(12.0, 2.0, 4.0, 1.0, 5.0, 0.5)


def test_a_new_gateway_has_counted_nothing_and_says_so() -> None:
    """Its page has no labels and so no lines, but it is a gateway's."""
    assert read_gateway(b"# TYPE\nmark_gateway_in_flight_requests 0.0\n") == GatewayCounts()


@pytest.mark.parametrize("text", [b"", b"<html>", b"up 1\n", b"mark_workers_ready{} many\n"])
def test_another_page_is_none(text: bytes) -> None:
    """A wrong port or a proxy's error can give such a page."""
    with pytest.raises(ValueError, match=r".+"):
        read_bouncer(text)
    with pytest.raises(ValueError, match=r".+"):
        read_gateway(text)


def test_counters_that_fell_began_anew() -> None:
    """The bouncer restarted, so all its counts are new."""
    before, now = (
        BouncerCounters(100.0, 5.0, 1.0, 9.0, 0.0, 0.0, workers=2.0),
        BouncerCounters(110.0, 5.0, 1.0, 9.5, 0.0, 0.0, workers=1.0),
    )
    assert now.since(before) == BouncerCounters(10.0, 0.0, 0.0, 0.5, 0.0, 0.0, workers=1.0)
    assert before.since(now) == before
    before, now = before._replace(within=(1.0, 4.0)), now._replace(within=(3.0, 5.0))
    assert now.since(before).within == (2.0, 1.0)
    assert now.since(before._replace(within=())).within == ()  # the stored counters lack this one
    assert GatewayCounts(5.0, 1.0).since(GatewayCounts(9.0, 1.0)) == GatewayCounts(5.0, 1.0)
    grown = GatewayCounts(9.0, 2.0, 4.0, 1.0, 5.0, 0.5).since(GatewayCounts(5.0, 1.0))
    assert grown == GatewayCounts(4.0, 1.0, 4.0, 1.0, 5.0, 0.5)


@pytest.mark.parametrize("read", [read_bouncer, read_conductor])
def test_age_of_facts_that_are_not_stored_is_read(read: Callable[[bytes], BouncerCounters]) -> None:
    """A conductor's page has it, too, in a line without a stage. It is no counter, so it may fall."""
    metrics = Metrics()
    metrics.models.append(ModelMetrics("two", "1", ""))
    assert read(metrics.page()).unstored_s is None
    learned = b'mark_learned_unstored_seconds{model="two"} 61.5\n'
    before = read(metrics.page() + learned)
    assert before.unstored_s == 61.5
    now = before._replace(unstored_s=0.0, requests=before.requests + 2.0)
    assert now.since(before)._replace(within=()) == BouncerCounters(requests=2.0, workers=now.workers, unstored_s=0.0)
