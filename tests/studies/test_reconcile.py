"""Reconciling: the invoice of a simulated run is explained wholly, and each difference shows on its own line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mark.cloud.billing.invoice_lines import BALANCER, COMMITMENTS, DISKS, InvoiceLine
from mark.cloud.billing.line_items import parse_time
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.studies.reconcile import InvoiceQuery, Reconciliation, reconcile
from tests.samples import first
from tests.traffic.traces.cur import HOUR, MAY, Item, invoice_of, legacy
from tests.traffic.traces.files import alb_line

REQUEST = RunRequest(
    trace="synthetic:poisson?rate=40",
    service="inception-v3",
    duration_s=2 * HOUR,
    predictor="seasonal-naive",
    with_bound=False,
)
POLICY = '[policy]\nkind = "asg"\ninstance = "c5.xlarge"\ntarget = 0.5\nmin = 1\nmax = 40\n'
C5 = InvoiceLine("on_demand", "c5.xlarge", "h")


def service(folder: Path, more: str = "", catalog: str = "aws-2019", name: str = "s.toml") -> str:
    path = folder / name
    path.write_text(
        '[service]\nname = "s"\nmodel = "inception-v3"\nslo_ms = 600\nslo_attainment = 0.98\nresponse_kb = 20.0\n'
        f'[fleet]\ncatalog = "{catalog}"\nmarkets = ["on-demand"]\ninstances = ["c5.*", "t2.*"]\n'
        f'[overflow]\nfunction = "lambda:3008"\n{more}'
    )
    return str(path)


def steady(count: float = 4.0, hours: int = 2, price: float = 0.17) -> list[Item]:
    return [
        Item("BoxUsage:c5.xlarge", count, count * price, start_s=MAY + k * HOUR, end_s=MAY + (k + 1) * HOUR)
        for k in range(hours)
    ]


def reconciled(
    folder: Path,
    request: RunRequest,
    items: list[Item],
    own: str | None = None,
    others: tuple[str, ...] = (),
    **how: str,
) -> Reconciliation:
    query = InvoiceQuery((legacy(folder / "cur.csv", items),), MAY, **how)  # type: ignore[arg-type]
    found = reconcile(request, query, others, own=own)
    check_sums(found)
    return found


def check_sums(found: Reconciliation) -> None:
    """Check that lines add up on both sides."""
    assert sum(one.invoiced_usd for one in found.lines) == pytest.approx(found.invoice.usd, abs=1e-6)
    assert sum(one.simulated_usd for one in found.lines) == pytest.approx(found.simulated_usd, abs=1e-6)
    assert found.paid_usd(found.policy) == pytest.approx(found.invoice.usd)
    if found.prices == "catalog":
        for name, result in found.results.items():
            assert found.usd[name] == pytest.approx(result.bill.total, abs=1e-6)


RUNS = (  # a policy, and whether instances are committed
    *(("fixed:c5.xlarge=5,t2.large=2", True), ("as-is", False), ("mark", True)),
    *(("fixed:c5.xlarge=5,t2.large=2", False), ("as-is", True), ("mark", False)),
    *(("reactive", False), ("reactive", True), ("static-mean", False), ("static-mean", True)),
    *(("target-tracking", False), ("target-tracking", True)),
)


@pytest.mark.parametrize(("policy", "commits"), first(3, RUNS, slow=3))
def test_the_invoice_of_a_run_explains_itself(tmp_path: Path, policy: str, commits: bool) -> None:
    """A conservation law: nothing is lost or counted twice on the way from a bill to an invoice and back."""
    own = service(tmp_path, POLICY + '[fleet.committed]\n"c5.xlarge" = 2\n' * commits)
    markets = ("on-demand", "spot", "burstable") if policy == "mark" else ("on-demand",)
    # One hour: invoices have whole ones.
    request = replace(REQUEST, service=own, markets=markets, policy=policy, duration_s=HOUR)
    run = simulate(request)
    found = reconciled(tmp_path, request, invoice_of(run, load_catalog("aws-2019")), own=policy)
    for one in found.lines:
        assert one.difference_usd == pytest.approx(0.0, abs=1e-6), one
        if one.line.is_instance:
            assert one.simulated == pytest.approx(one.invoiced)
    assert found.explained == pytest.approx(1.0)
    assert not found.not_simulated
    assert found.invoice.usd == pytest.approx(run.bill.total)


def test_extras_are_lines_where_the_catalogue_bills_them(tmp_path: Path) -> None:
    request = replace(REQUEST, service=service(tmp_path, catalog="aws-2026"), policy="fixed:c5.xlarge=4")
    found = reconciled(tmp_path, request, [*steady(), Item("LoadBalancerUsage", 2.0, 0.045, product="AWSELB")])
    lines = {one.line: one for one in found.lines}
    assert lines[BALANCER].difference_usd == pytest.approx(0.0)
    assert lines[DISKS].simulated == pytest.approx(4 * 8.0 * 2 / 730.0)
    assert all(one.simulates and one.simulated_usd > 0.0 for line, one in lines.items() if line.market == "other")
    assert not found.not_simulated


def test_extras_are_not_simulated_where_it_does_not(tmp_path: Path) -> None:
    items = [*steady(), Item("LoadBalancerUsage", 2.0, 0.045, product="AWSELB"), Item("NatGateway-Hours", 2.0, 0.09)]
    found = reconciled(tmp_path, replace(REQUEST, service=service(tmp_path)), items)
    assert [one.line.name for one in found.not_simulated] == ["AmazonEC2 NatGateway-Hours", "balancer"]
    assert found.explained == pytest.approx(4 * 0.17 * 2 / (4 * 0.17 * 2 + 0.045 + 0.09))


def test_a_constant_fleet_is_read_from_the_invoice(tmp_path: Path) -> None:
    request = replace(REQUEST, service=service(tmp_path))
    items = [*steady(), Item("BoxUsage:t2.large", 4.0, 0.0928 * 4, end_s=MAY + 2 * HOUR)]  # two of them for two hours
    found = reconciled(tmp_path, request, items, others=("mark",))
    assert found.policy == "fixed:c5.xlarge=4,t2.large=2"
    assert found.explained == pytest.approx(1.0)
    assert list(found.results) == [found.policy, "mark"]
    saved = found.simulated_usd - found.usd["mark"]
    assert found.paid_usd("mark") == pytest.approx(found.invoice.usd - saved)


@pytest.mark.slow
def test_a_roll_out_does_not_make_a_fleet_inconstant(tmp_path: Path) -> None:
    """For one hour of twenty-four, the fleet has twice the instances."""
    request = replace(REQUEST, service=service(tmp_path), trace="synthetic:poisson?rate=0.1", duration_s=24 * HOUR)
    items = [*steady(hours=24), replace(steady()[0], start_s=MAY + 20 * HOUR, end_s=MAY + 21 * HOUR)]
    found = reconciled(tmp_path, request, items)
    assert found.policy == "fixed:c5.xlarge=4"
    assert found.lines[0].difference_usd == pytest.approx(-4 * 0.17)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([*steady(4.0, 1), *steady(6.0, 2)[1:]], "not a constant fleet of it: c5.xlarge 4 to 6"),
        (steady(hours=1), "fleet of it: c5.xlarge 0 to 4"),
        ([*steady(), Item("SpotUsage:c5.large", 2.0, 0.06)], "fleet of it: c5.large spot"),
        (
            [*steady(), Item("BoxUsage:r5.large", 2.0, 0.2)],
            "fleet of it: r5.large, which inception-v3 has no profile on",
        ),
        ([Item("NatGateway-Hours", 2.0, 0.09)], "none was invoiced"),
    ],
)
def test_a_fleet_that_is_not_constant_must_be_said(tmp_path: Path, items: list[Item], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        reconciled(tmp_path, replace(REQUEST, service=service(tmp_path)), items)


def test_the_user_may_say_what_ran(tmp_path: Path) -> None:
    request = replace(REQUEST, service=service(tmp_path, POLICY))
    assert reconciled(tmp_path, request, steady()).policy == "as-is"
    assert reconciled(tmp_path, request, steady(), own="fixed:c5.xlarge=4").explained == pytest.approx(1.0)


def test_prices_of_the_invoice_concern_every_policy(tmp_path: Path) -> None:
    """Ten per cent off: the lines agree, and the alternative, on another type, is cheaper by as much."""
    request = replace(REQUEST, service=service(tmp_path))
    items = steady(price=0.153)
    listed = reconciled(tmp_path, request, items, others=("fixed:c5.large=9",))
    paid = reconciled(tmp_path, request, items, others=("fixed:c5.large=9",), prices="invoice")
    assert listed.lines[0].difference_usd == pytest.approx(4 * 2 * 0.017)
    assert paid.lines[0].difference_usd == pytest.approx(0.0)
    assert paid.usd["fixed:c5.large=9"] == pytest.approx(0.9 * listed.usd["fixed:c5.large=9"])
    rate = paid.rates[0]
    assert (rate.line, rate.invoice_usd_per_hour, rate.catalog_usd_per_hour) == (C5, pytest.approx(0.153), 0.17)
    assert rate.factor == pytest.approx(0.9)


def test_prices_of_the_invoice_leave_what_was_promised(tmp_path: Path) -> None:
    committed = '[fleet.committed]\n"c5.xlarge" = { count = 2, usd_per_hour = 0.1 }\n'
    request = replace(REQUEST, service=service(tmp_path, committed))
    fees = Item("HeavyUsage:c5.xlarge", 2.0, 0.1 * 2 * 2, "RIFee", end_s=MAY + 2 * HOUR)
    free = Item("BoxUsage:c5.xlarge", 4.0, 0.0, "DiscountedUsage", list_cost=4 * 0.153, end_s=MAY + 2 * HOUR)
    found = reconciled(tmp_path, request, [*steady(2.0, price=0.153), free, fees], prices="invoice")
    lines = {one.line: one for one in found.lines}
    assert lines[COMMITMENTS].difference_usd == pytest.approx(0.0)
    assert lines[C5].difference_usd == pytest.approx(0.0)
    assert found.notes == ()


def test_what_the_service_file_does_not_say_is_noted(tmp_path: Path) -> None:
    fees = Item("HeavyUsage:c5.xlarge", 2.0, 0.4, "RIFee", end_s=MAY + 2 * HOUR)
    items = [replace(item, region="eu-west-1") for item in steady()]
    found = reconciled(tmp_path, replace(REQUEST, service=service(tmp_path)), [*items, fees])
    assert found.notes == (
        "reserved instances or savings plans were invoiced; say them in [fleet.committed]",
        "instances in eu-west-1; the catalogues shipped are of us-east-1",
    )


def test_types_outside_the_catalogue_have_no_rate(tmp_path: Path) -> None:
    items = [*steady(), Item("BoxUsage:x9.large", 1.0, 0.5)]
    found = reconciled(tmp_path, replace(REQUEST, service=service(tmp_path, POLICY)), items, prices="invoice")
    assert {rate.line.name: rate.catalog_usd_per_hour for rate in found.rates} == {"c5.xlarge": 0.17, "x9.large": None}


def test_an_access_log_knows_when_it_was(tmp_path: Path) -> None:
    """2018-07-02T22:00:00Z and on; the part that --start cuts is the invoice's, too."""
    log = tmp_path / "a.log"
    log.write_text("".join(alb_line(s) for s in range(0, 7200, 2)))
    began_s = parse_time("2018-07-02T22:00:00Z")
    items = [replace(item, start_s=began_s + k * HOUR, end_s=None) for k, item in enumerate(steady(1.0, 3))]
    query = InvoiceQuery((legacy(tmp_path / "cur.csv", items),))
    request = replace(REQUEST, trace=str(log), service=service(tmp_path), start_s=1800.0, duration_s=3600.0)
    found = reconcile(request, query, ())
    assert (found.begin_s, found.end_s) == (began_s + 1800.0, began_s + 5400.0)
    assert found.invoice.usd == pytest.approx(0.17)
    assert found.explained == pytest.approx(1.0)


def test_another_trace_must_be_told(tmp_path: Path) -> None:
    query = InvoiceQuery((legacy(tmp_path / "cur.csv", steady()),))
    with pytest.raises(BadInput, match="began: say when its first row was"):
        reconcile(replace(REQUEST, service=service(tmp_path)), query, ())
