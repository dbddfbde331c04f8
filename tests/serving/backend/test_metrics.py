"""The page of a bouncer's numbers, read back by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from mark.domain.price_list import PriceList
from mark.serving.backend.metrics import ITEMS, Histogram, Metrics, ModelMetrics
from mark.serving.frontend.http import HttpServer
from mark.serving.overflow.functions import Spent


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(page.decode())
        for s in family.samples
    }


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    """Prometheus' `le` includes the bound; a value above all bounds still counts."""
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 99.0):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 1.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.total == 103.5


def test_the_page_says_what_was_counted() -> None:
    """Every number with its model, version and reason."""
    metrics = Metrics()
    one = ModelMetrics("echo", "2")
    metrics.models.append(one)
    one.requests["instance", 200] += 3
    one.requests["function", 200] += 1
    one.overflow["capacity"] += 1
    one.refused["overload"] += 2
    one.deadline_misses = 4
    one.queued, one.workers_ready = 7, 2
    one.latency_s.observe(0.02)
    one.batch_items.observe(8.0)
    metrics.spent = [(("echo",), Spent(9, 2.75, 4))]
    metrics.listener = HttpServer(lambda exchange: None)
    metrics.listener.counts.dropped_answers, metrics.listener.counts.cut = 5, 6
    metrics.listener.counts.refuse(401)
    found = samples(metrics.page())
    of = (("model", "echo"), ("version", "2"))
    by_instance = tuple(sorted((("answered_by", "instance"), ("code", "200"), *of)))
    assert found["mark_requests_total", by_instance] == 3.0
    assert found["mark_overflow_total", tuple(sorted((*of, ("reason", "capacity"))))] == 1.0
    assert found["mark_refused_total", tuple(sorted((*of, ("reason", "overload"))))] == 2.0
    assert found["mark_deadline_misses_total", of] == 4.0
    assert found["mark_queued_requests", of] == 7.0
    assert found["mark_workers_ready", of] == 2.0
    assert found["mark_latency_seconds_count", of] == 1.0
    assert found["mark_latency_seconds_sum", of] == 0.02
    assert found["mark_batch_items_bucket", tuple(sorted((*of, ("le", "8.0"))))] == 1.0
    assert found["mark_function_calls_total", of[:1]] == 9.0
    assert found["mark_function_billed_seconds_total", of[:1]] == 2.75
    assert found["mark_function_capped_total", of[:1]] == 4.0
    assert found["mark_clients_gone_total", ()] == 5.0
    assert found["mark_cut_total", ()] == 6.0
    assert found["mark_connections", ()] == 0.0
    assert found["mark_listener_refused_total", (("code", "401"),)] == 1.0


def test_functions_of_stages_are_counted_by_stage() -> None:
    metrics = Metrics()
    metrics.spent = [(("p", "small"), Spent(9, 2.75, 4)), (("p", "large"), Spent(1, 0.5))]
    page = samples(metrics.page())
    for stage, calls in (("small", 9.0), ("large", 1.0)):
        assert page["mark_function_calls_total", (("model", "p"), ("stage", stage))] == calls
    assert "mark_function_calls_total" not in Metrics().page().decode()


def test_two_versions_are_kept_apart() -> None:
    metrics = Metrics()
    for version, count in (("1", 1), ("2", 5)):
        one = ModelMetrics("echo", version)
        one.batch_items.observe(ITEMS[0])
        one.expired = count
        metrics.models.append(one)
    found = samples(metrics.page())
    assert found["mark_expired_total", (("model", "echo"), ("version", "1"))] == 1.0
    assert found["mark_expired_total", (("model", "echo"), ("version", "2"))] == 5.0


def test_prices_are_shown_as_far_as_they_are_known() -> None:
    metrics = Metrics()
    assert not [name for name, _ in samples(metrics.page()) if "usd" in name]
    metrics.prices = PriceList(None, 2e-5)
    found = samples(metrics.page())
    assert found["mark_usd_per_miss", ()] == 2e-5
    assert ("mark_usd_per_request", ()) not in found
