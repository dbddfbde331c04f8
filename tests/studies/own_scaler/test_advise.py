"""The own scaler as measured, and the sentences about it, against numbers worked out by hand."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.studies.own_scaler.advise import AdviseOptions, advise
from mark.studies.own_scaler.advised_changes import changes
from mark.studies.own_scaler.scaler_advice import ScalerAdvice
from mark.studies.own_scaler.scaler_record import observed, priced_replica
from mark.studies.report.advise_report import advise_page, advise_report
from mark.studies.report.htmlpage import html_of
from mark.traffic.prometheus.history import LatencyBuckets, WorkloadHistory
from mark.traffic.prometheus.workload import Workload
from mark.traffic.traces.counts import trace_of_bins
from tests.studies.report.test_simulate_report import plain

SLO = Slo(0.5, 0.98)
CATALOG = load_catalog("aws-2026")
USD = next(one.usd_per_hour for one in CATALOG.offers if one.name == "c7i.large/on-demand")
HOURS = 3
BEGAN = 1.79e9
NONE: tuple[dict[str, int], dict[str, int]] = ({}, {})
SAID = AdviseOptions(slo=SLO, instance="c7i.large", rps_per_replica=8.0, policies=("best-fixed",), simulated_s=3600.0)


def _history(replicas: float = 6.0, rps: float = 16.0, late: float | None = 0.05) -> WorkloadHistory:
    minutes = np.arange(HOURS * 60.0)
    trace = trace_of_bins("ranker", BEGAN + 60.0 * minutes, np.full(len(minutes), 60.0 * rps), 60.0)
    latency = None
    if late is not None:
        ends = BEGAN + 300.0 * np.arange(1.0, HOURS * 12.0 + 1.0)
        answers = 300.0 * rps * np.array([1.0 - 2.0 * late, 1.0, 1.0])
        latency = LatencyBuckets(np.array([0.4, 0.6, math.inf]), ends, np.tile(answers, (len(ends), 1)))
    workload = Workload("ranker", "shop", "rate", "replicas", None, 1.0, "http_requests_total", "kube_deployments")
    ends = BEGAN + 60.0 * (minutes + 1.0)
    trace = replace(trace, began_s=BEGAN)
    return WorkloadHistory(workload, trace, BEGAN, ends, np.full(len(ends), replicas), latency)


@pytest.fixture(scope="module")
def advised(tmp_path_factory: pytest.TempPathFactory) -> ScalerAdvice:
    # Without latencies, service times are equal and nothing is counted, which takes seconds instead of half a minute.
    return advise(_history(late=None), NONE, SAID, tmp_path_factory.mktemp("advise"))


def test_own_scaler_costs_its_replicas_and_is_late_by_its_histogram() -> None:
    replica = priced_replica(CATALOG, "c7i.large", 2, NONE)
    found = observed(_history(), replica, SLO, 0.0)
    assert found.usd == pytest.approx(6.0 * HOURS * USD / 2.0)
    assert found.month_usd == pytest.approx(6.0 * 730.0 * USD / 2.0)
    assert found.replica_hours == pytest.approx(18.0)
    assert (found.late_share, found.late_least, found.late_most) == pytest.approx((0.05, 0.0, 0.10))
    assert found.as_json(SLO)["keeps"] is False


def test_lateness_is_unknown_without_a_histogram() -> None:
    found = observed(_history(late=None), priced_replica(CATALOG, "c7i.large", None, NONE), SLO, 0.0)
    assert found.late_share is None
    assert found.as_json(SLO)["keeps"] is None


def test_lateness_is_unknown_where_the_histogram_ends_below_the_promise(tmp_path: Path) -> None:
    """All answers beyond its last bound would count as late, though most may be in time."""
    slow = replace(SAID, slo=Slo(0.7, 0.98))
    found = advise(_history(late=0.3), NONE, slow, tmp_path)
    assert (found.now.late_share, found.part.late_share) == (None, None)
    assert [one.about for one in found.advice if one.about == "late"] == []
    assert any("bounds reach from 0.4 to 0.6 s, without RT_max (0.7 s)" in note for note in found.notes)


def test_replica_is_priced_by_the_types_of_its_nodes() -> None:
    found = priced_replica(CATALOG, None, None, ({"c7i.large": 6}, {"c7i.large": 2}))
    assert (found.offer.instance, found.per_instance) == ("c7i.large", 3)
    assert found.usd_per_hour == pytest.approx(USD / 3.0)
    uneven = priced_replica(CATALOG, None, None, ({"c7i.large": 3}, {"c7i.large": 2}))
    assert uneven.usd_per_hour == pytest.approx(2.0 * USD / 3.0)
    said = priced_replica(CATALOG, None, 4, ({"c7i.large": 3}, {"c7i.large": 2}))
    assert said.usd_per_hour == pytest.approx(USD / 4.0)
    assert uneven.said.endswith("(3 pods on 2 c7i.large); 1.5 a node are paid, 2 a node simulated")
    xlarge = next(one.usd_per_hour for one in CATALOG.offers if one.name == "c7i.xlarge/on-demand")
    mixed = priced_replica(CATALOG, None, None, ({"c7i.large": 3, "c7i.xlarge": 1}, {"c7i.large": 3, "c7i.xlarge": 1}))
    assert mixed.usd_per_hour == pytest.approx((3.0 * USD + xlarge) / 4.0)


def test_unknown_type_asks_for_one_that_the_catalogue_sells() -> None:
    with pytest.raises(BadInput, match="--instance: is not known: kube_node_labels"):
        priced_replica(CATALOG, None, None, NONE)
    with pytest.raises(BadInput, match=r"--instance: aws-2026 does not sell it .*did you mean c7i.large\?: c7i.larg$"):
        priced_replica(CATALOG, "c7i.larg", None, NONE)


def test_advice_names_the_dollars_of_a_static_minimum(advised: ScalerAdvice) -> None:
    first = advised.advice[0]
    # 16 requests/s need two of the six replicas.
    assert first.about == "minimum"
    assert first.usd_per_month == pytest.approx(4.0 * 730.0 * USD)
    assert "minimum of 6 replicas for 100 % of the time, when 2.0 on average, used to 100 %, would have" in first.text
    assert "A lower minimum saves less than $261 of $391 a month, by the utilisation" in first.text


@pytest.mark.parametrize(
    ("scaler", "needed"),
    [
        ("hpa:target=0.5,min=6", 4),  # 16 requests/s at half of 8 for each replica
        ("asg:target=0.7,min=6", 3),
        ("keda:target=4,min=6", 4),
        ("knative:target=5,metric=rps,target_utilization_percentage=100,min=6", 4),
    ],
)
def test_dollars_of_a_minimum_count_at_the_target_of_the_scaler(scaler: str, needed: int, tmp_path: Path) -> None:
    found = advise(_history(late=None), NONE, replace(SAID, scaler=scaler, policies=()), tmp_path)
    assert found.advice[0].usd_per_month == pytest.approx((6.0 - needed) * 730.0 * USD)
    assert (
        f"its settings without a minimum ask for {needed:.1f} on average: that minimum costs about"
        in found.advice[0].text
    )


@pytest.mark.parametrize(
    ("scaler", "minutes"),
    [
        ("hpa:target=0.5,min=6", 5),
        ("hpa:target=0.5,min=6,stabilization_window_s=60", 1),
        ("ray:target=100,min=6", 10),
        ("asg:target=0.5,min=6", 15),
    ],
)
def test_dollars_of_a_minimum_leave_out_the_time_before_the_scaler_goes_down(
    scaler: str, minutes: int, tmp_path: Path
) -> None:
    """A minute of 32 requests/s in every half hour asks for eight replicas, or for four by their number in flight."""
    counts = np.full(HOURS * 60, 960.0)
    counts[29::30] = 1920.0
    history = _history(late=None)
    starts = BEGAN + 60.0 * np.arange(float(len(counts)))
    history = replace(history, trace=replace(trace_of_bins("ranker", starts, counts, 60.0), began_s=BEGAN))
    found = advise(history, NONE, replace(SAID, scaler=scaler, policies=()), tmp_path)
    assert found.settings is not None
    assert found.settings.held is not None
    most = found.settings.held.max()
    # The last burst ends with the history.
    assert (found.settings.held == most).sum() == 1 + 5 * minutes


def test_target_of_the_scaler_counts_replicas_on_shared_instances(tmp_path: Path) -> None:
    """Two of the six replicas share an instance, and 16 requests/s need one and a half instances at 0.7."""
    options = replace(SAID, scaler="hpa:target=0.7,min=6", replicas_per_instance=2, policies=())
    found = advise(_history(late=None), NONE, options, tmp_path)
    assert found.advice[0].usd_per_month == pytest.approx(2.0 * 730.0 * USD / 2.0)


def test_fixed_fleet_has_no_target_to_count_a_minimum_at(tmp_path: Path) -> None:
    found = advise(_history(late=None), NONE, replace(SAID, scaler="fixed:min=6", policies=()), tmp_path)
    assert "used to 100 %" in found.advice[0].text


@pytest.mark.parametrize(
    ("scaler", "said"),
    [
        ("hpa:target=0.7,min=6", None),
        ("hpa:target=0.7,min=3", "their minimum is 3, but there never were fewer than 6 replicas"),
        ("hpa:target=0.7,min=8", "their minimum is 8, but there were 6 replicas"),
        ("hpa:target=0.7,min=1,max=5", "their maximum is 5, but there were 6 replicas"),
        ("hpa:target=0.3,min=3", None),  # this target asks for seven
    ],
)
def test_settings_that_contradict_the_measurement_are_called_a_what_if(
    scaler: str, said: str | None, tmp_path: Path
) -> None:
    found = advise(_history(late=None), NONE, replace(SAID, scaler=scaler, policies=()), tmp_path)
    assert found.what_if == said
    shown = plain(advise_report(found), 300)
    assert ("what-if, simulated" in shown) == (said is not None)
    assert ("simulation was not checked against the measurement" in shown) == (said is not None)
    assert ("yours, simulated" in shown) == (said is None)


def test_saving_is_against_the_simulated_settings(tmp_path: Path) -> None:
    """The settings cost eight replicas, not the six that were measured."""
    found = advise(_history(late=None), NONE, replace(SAID, scaler="fixed:min=8"), tmp_path)
    fixed = found.results["best-fixed"]
    cheap = replace(fixed, policy="mark", notes=(*fixed.notes, "instances launched beside the plan: 3"))
    late = replace(cheap.slo_result, attainment=0.99, minutes_below_target=3)
    found = replace(found, results=found.results | {"mark": replace(cheap, slo_result=late)})
    (of_mark,) = [one for one in changes(found) if one.about == "mark"]
    eight, own = 8.0 * 730.0 * USD, found.results["best-fixed"].month_usd
    assert own is not None
    assert of_mark.usd_per_month == pytest.approx(eight - own)
    assert of_mark.text == (
        f"Simulated on the same 1 h, your what-if settings kept the promise for ${eight:,.0f} a month (0.00 % late; "
        f"0 of 60 minutes below the promise), and mark kept the promise for ${own:,.0f} (1.00 % late; 3 of 60 minutes "
        f"below the promise): {100.0 * (1.0 - own / eight):.0f} % less."
    )
    shown = advise_report(found)
    assert "minutes below the promise, of 60: what-if, simulated 0; best-fixed 0; mark 3" in shown.notes
    assert "mark: instances launched beside the plan: 3" in shown.notes
    assert "Today" not in html_of(advise_page(shown, found))


def test_saving_without_settings_names_the_measured_side(advised: ScalerAdvice) -> None:
    cheap = replace(advised.results["best-fixed"], policy="mark")
    for late, said in (
        (None, "your scaler cost $391 a month, and"),
        (0.01, "kept the promise for $391 a month (1.00 % "),
    ):
        found = changes(replace(advised, part=replace(advised.part, late_share=late), results={"mark": cheap}))
        text = next(one.text for one in found if one.about == "mark")
        assert text.startswith("Over the same 1 h, with your scaler measured and mark simulated, your scaler ")
        assert said in text


def test_own_scaler_that_missed_the_promise_is_not_said_to_be_cheaper(advised: ScalerAdvice) -> None:
    kept = replace(advised.results["best-fixed"], policy="mark")
    late = replace(advised.part, usd=0.01, late_share=0.2)
    found = changes(replace(advised, part=late, results={"mark": kept}))
    (of_mark,) = [one for one in found if one.about == "mark"]
    assert "your scaler missed the promise for $7 a month (20.00 % late), and mark kept the promise for" in of_mark.text
    assert of_mark.text.endswith("keeping the promise costs more.")


def test_advice_without_spare_minimum_says_how_busy_the_replicas_are(tmp_path: Path) -> None:
    found = advise(_history(replicas=2.0, late=None), NONE, SAID, tmp_path)
    assert found.advice[0].about == "busy"
    assert "100 % busy" in found.advice[0].text


def test_policies_bill_instances_only_and_carry_the_names_of_what_was_read(advised: ScalerAdvice) -> None:
    fixed = advised.results["best-fixed"]
    assert fixed.bill.other == 0.0
    assert fixed.bill.total == pytest.approx(fixed.fleet.instance_hours["c7i.large/on-demand"] * USD)
    assert fixed.trace.duration_s == 3600.0
    assert (fixed.service, fixed.trace.name, fixed.priced) == ("ranker", "Prometheus", CATALOG.priced)
    assert advised.bound_usd is not None
    assert 0.0 < advised.bound_usd <= fixed.bill.total


def test_json_has_the_stable_keys(advised: ScalerAdvice) -> None:
    report = advise_report(advised)
    found = json.loads(json.dumps(report.data))
    assert found["notes"] == report.notes
    assert any(
        note.startswith("only the replicas' instances are billed. mark's own process") for note in found["notes"]
    )
    assert list(found) == ["schema", "read", "replica", "now", "policies", "bound_usd", "advice", "notes"]
    assert {"usd", "late_share", "replica_hours"} <= set(found["now"])
    assert found["now"]["hours"] == 3.0
    assert found["now"]["simulated_part"]["hours"] == 1.0
    assert found["read"]["requests"] == pytest.approx(HOURS * 3600.0 * 16.0)
    assert "tmp" not in json.dumps(found)


def test_table_and_page_say_first_what_was_read(advised: ScalerAdvice) -> None:
    page = html_of(advise_page(advise_report(advised), advised))
    assert "yours, 3 h, measured" in page
    assert "Your scaler stood at its minimum of 6" in page
    assert "/tmp" not in page
    assert plain(advise_report(advised), 200).startswith("read 172,800 requests in 3 hours, 16/s, every 60 s")


def test_table_says_why_a_policy_has_no_regret(advised: ScalerAdvice) -> None:
    refusing = replace(advised.results["best-fixed"], regret=None, regret_reason="it refused requests")
    shown = plain(advise_report(replace(advised, results={"best-fixed": refusing})), 200)
    assert "note: no regret for best-fixed: it refused requests" in shown


def test_settings_of_the_own_scaler_are_simulated_in_whole_instances(tmp_path: Path) -> None:
    options = replace(SAID, scaler="fixed:min=7", replicas_per_instance=2, policies=())
    found = advise(_history(late=None), NONE, options, tmp_path)
    assert found.results["as-is"].fleet.peak_instances == 4


def test_target_of_each_replica_is_that_of_all_replicas_on_an_instance(tmp_path: Path) -> None:
    options = replace(SAID, scaler="keda:target=10,min=2", replicas_per_instance=3, policies=())
    with suppress(BadInput):
        advise(_history(late=None), NONE, options, tmp_path)
    text = (tmp_path / "service.toml").read_text()
    assert '"target" = 30' in text
    assert '"min" = 1' in text


@pytest.mark.parametrize(
    ("scaler", "what"),
    [("hpa:target", "must be KIND"), ("nothing:min=1", "kind"), ("hpa:aim=2", "aim"), ("hpa:min=1,min=2", "twice")],
)
def test_settings_that_are_none_are_refused(scaler: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=what):
        advise(_history(late=None), NONE, replace(SAID, scaler=scaler), tmp_path)


def test_kind_may_be_written_in_capitals(tmp_path: Path) -> None:
    found = advise(_history(late=None), NONE, replace(SAID, scaler="HPA:target=0.7,min=6", policies=()), tmp_path)
    assert found.what_if is None


def test_gap_is_dated(tmp_path: Path) -> None:
    history = _history(late=None)
    minutes = np.delete(np.arange(HOURS * 60.0), [130, 131])
    trace = trace_of_bins("ranker", BEGAN + 60.0 * minutes, np.full(len(minutes), 960.0), 60.0)
    found = advise(replace(history, trace=replace(trace, began_s=BEGAN)), NONE, SAID, tmp_path)
    # 1.79e9 is 2026-09-21 14:13:20 UTC, and the gap begins 130 minutes later.
    (note,) = [one for one in found.results["best-fixed"].notes if "gap" in one]
    assert note == "1 gap bridged, 120 s in all, the longest 120 s from 2026-09-21 16:23 UTC"


def test_boot_may_be_said(tmp_path: Path) -> None:
    options = replace(SAID, boot_s=20.0)
    assert advise(_history(late=None), NONE, options, tmp_path).results["best-fixed"].kept


def test_capacity_must_be_said_without_latencies(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--rps-per-replica: there is no histogram"):
        advise(_history(late=None), NONE, replace(SAID, rps_per_replica=None), tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_late_shares")
def test_capacity_that_was_fitted_is_the_one_that_is_simulated(tmp_path: Path) -> None:
    """Replicas that were late from 8 requests/s on keep the promise in the simulator up to about the same load."""
    history = _history()
    assert history.latency is not None
    ends = history.latency.ends_s
    replicas = np.linspace(1.5, 8.0, len(history.replicas))
    load = 16.0 / replicas[4::5]
    beyond = np.minimum(0.9, 0.02 * np.exp(1.5 * (load - 8.0)))
    within = 16.0 * 300.0 * np.stack([0.9 * (1.0 - beyond), 1.0 - beyond, np.ones(len(ends))], axis=1)
    latency = LatencyBuckets(np.array([0.15, 0.5, math.inf]), ends, within)
    options = replace(SAID, rps_per_replica=None)
    found = advise(replace(history, replicas=replicas, latency=latency), NONE, options, tmp_path)
    assert found.fitted is not None
    assert found.rps_per_replica == pytest.approx(8.0, rel=0.1)
    assert found.results["best-fixed"].kept
    assert found.results["best-fixed"].fleet.peak_instances in (2, 3)


def _fitting(knee_rps: float) -> WorkloadHistory:
    """Replicas that are late beyond `knee_rps` requests/s, at loads from 2 to 11."""
    history = _history()
    assert history.latency is not None
    replicas = np.linspace(1.5, 8.0, len(history.replicas))
    beyond = np.where(16.0 / replicas[4::5] > knee_rps, 0.3, 0.001)
    within = 16.0 * 300.0 * np.stack([0.9 * (1.0 - beyond), 1.0 - beyond, np.ones(len(beyond))], axis=1)
    return replace(
        history,
        replicas=replicas,
        latency=replace(history.latency, bounds_s=np.array([0.15, 0.5, math.inf]), within=within),
    )


@pytest.mark.parametrize(
    ("rps", "said"),
    [
        (40.0, "by the histogram a replica broke the promise at"),
        (1.2, "by the histogram a replica did .* requests/s in time"),
    ],
)
def test_capacity_far_from_the_histogram_is_refused(rps: float, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"--rps-per-replica: contradicts Prometheus: {said}"):
        advise(_fitting(6.0), NONE, replace(SAID, rps_per_replica=rps), tmp_path)


def test_capacity_far_below_the_load_is_refused(tmp_path: Path) -> None:
    """Six replicas with 16 requests/s do 2.7 each."""
    with pytest.raises(BadInput, match=r"half of the time a replica did 2\.67 requests/s or more; correct it: 0\.5"):
        advise(_history(late=None), NONE, replace(SAID, rps_per_replica=0.5), tmp_path)


def test_capacity_a_little_below_the_load_is_said(tmp_path: Path) -> None:
    found = advise(_history(late=None), NONE, replace(SAID, rps_per_replica=2.0), tmp_path)
    assert (
        "--rps-per-replica says 2 requests/s, but half of the time a replica did 2.67 requests/s or more" in found.notes
    )


def test_scaler_that_had_no_replica_for_a_while_is_told_so(tmp_path: Path) -> None:
    """Two of three hours at zero replicas, and without requests, cost nothing."""
    history = _history(late=None)
    minutes = np.arange(HOURS * 60.0)
    asleep = minutes < 120.0
    trace = trace_of_bins("ranker", BEGAN + 60.0 * minutes, np.where(asleep, 0.0, 960.0), 60.0)
    replicas = np.where(asleep, 0.0, 2.0)
    history = replace(history, replicas=replicas, trace=replace(trace, began_s=BEGAN))
    found = advise(history, NONE, SAID, tmp_path)
    assert found.now.mean_replicas == pytest.approx(2.0 / 3.0)
    assert found.advice[0].text.startswith(
        "Your scaler stood at zero replicas for 67 % of the time, which costs nothing."
    )
    slept = advise(replace(history, replicas=np.zeros(len(replicas))), NONE, SAID, tmp_path)
    assert slept.part.usd == 0.0
    assert [one.about for one in slept.advice] == ["busy", "asleep"]
    html_of(advise_page(advise_report(slept), slept))


SCHEDULED = """[service]
name = "ranker"
model = "workload"
slo_ms = 500
slo_attainment = 0.98
[fleet]
catalog = "aws-2026"
instances = ["c7i.large"]
markets = ["on-demand"]
[overflow]
function = "none"
[policy]
kind = "cron"
instance = "c7i.large"
min = 2
[[policy.cron]]
start = "0 18 * * *"
end = "0 20 * * *"
replicas = 5
timezone = "Europe/Berlin"
"""


def test_schedule_of_the_own_scaler_follows_the_clock_of_the_history(tmp_path: Path) -> None:
    """The last hour is 18:13 to 19:13 in Berlin, and 16:13 to 17:13 in UTC."""
    (tmp_path / "s.toml").write_text(SCHEDULED)
    own = replace(SAID, slo=None, service=str(tmp_path / "s.toml"), policies=("as-is",))
    found = advise(_history(late=None), NONE, own, tmp_path)
    assert found.results["as-is"].fleet.peak_instances == 5
    (tmp_path / "s.toml").write_text(SCHEDULED.replace("min = 2", "min = 2\nbegins = 2026-01-05T18:30:00+01:00"))
    with pytest.raises(BadInput, match="whose part begins at 2026-09-21T16:13:20Z: leave the key out if the trace's"):
        advise(_history(late=None), NONE, own, tmp_path)
