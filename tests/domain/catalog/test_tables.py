"""Catalogues: the shipped ones, and refusals."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mark.domain.catalog.tables import CATALOG_NAMES, catalog_path, load_catalog
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market, Offer

COLUMNS = (
    "instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,retired"
    ",resume_mean_s,resume_p95_s,baseline,credits_per_hour,max_credits,launch_credits,surplus_usd_per_vcpu_hour"
    ",usd_per_gb_second,usd_per_million_requests,billing_step_ms,concurrency,ramp_per_10s,keep_alive_s,burst,bills_init"
)
GOOD = {
    "on-demand": {"instance": "c5.large", "usd_per_hour": "0.085", "boot_mean_s": "180", "boot_p95_s": "300"},
    "spot": {"instance": "c5.large", "usd_per_hour": "0.03", "zone": "a", "boot_mean_s": "180", "boot_p95_s": "300"},
    "burstable": {
        "instance": "t2.micro", "usd_per_hour": "0.0116", "boot_mean_s": "180", "boot_p95_s": "300", "baseline": "0.1",
        "credits_per_hour": "6", "max_credits": "144", "launch_credits": "30",
    },
    "sagemaker": {"instance": "ml.c5.large", "usd_per_hour": "0.119", "boot_mean_s": "300", "boot_p95_s": "300"},
    "function": {
        "instance": "lambda:3008", "usd_per_gb_second": "0.0000166667", "usd_per_million_requests": "0.2",
        "billing_step_ms": "100", "concurrency": "1000", "ramp_per_10s": "1000", "keep_alive_s": "300",
    },
}  # fmt: skip


def catalog(folder: Path, *rows: dict[str, str]) -> Catalog:
    path = folder / "prices.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS.split(","), restval="")
        writer.writeheader()
        writer.writerows(rows)
    return load_catalog(str(path))


def good(market: str, **changes: str) -> dict[str, str]:
    return {**GOOD[market], "market": market, **changes}


def offer(catalog: Catalog, name: str) -> Offer:
    return next(o for o in catalog.offers if o.name == name)


def facts(name: str) -> list[dict[str, str]]:
    root = Path(os.environ.get("MARK_DATA", Path(__file__).parents[3] / ".." / "shared" / "data"))
    path = root / "facts" / name
    if not path.is_file():
        pytest.skip(f"no data at {path}: set MARK_DATA")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_of_each_market_is_read_with_every_column(tmp_path: Path) -> None:
    read = catalog(
        tmp_path,
        *(good(market) for market in GOOD),
        good("spot", zone="b", interruptions_per_hour="0.01", resume_mean_s="60", resume_p95_s="60", vcpu="2"),
        good("burstable", instance="t3.micro", surplus_usd_per_vcpu_hour="0.05", retired="TRUE"),
    )
    assert [o.name for o in read.offers] == [
        "c5.large/on-demand", "c5.large/spot/a", "t2.micro/burstable", "ml.c5.large/sagemaker", "c5.large/spot/b",
        "t3.micro/burstable",
    ]  # fmt: skip
    spot = offer(read, "c5.large/spot/b")
    assert (spot.interruptions_per_hour, spot.vcpu, spot.boot.p95_s) == (0.01, 2.0, 300.0)
    assert spot.resume is not None
    assert spot.resume.mean_s == 60.0
    standard, unlimited = offer(read, "t2.micro/burstable").credits, offer(read, "t3.micro/burstable").credits
    assert standard is not None
    assert unlimited is not None
    assert (standard.surplus_usd_per_vcpu_hour, unlimited.surplus_usd_per_vcpu_hour) == (None, 0.05)
    assert offer(read, "t3.micro/burstable").retired
    assert read.function("lambda:3008").concurrency == 1000
    assert not read.bills_extras


def test_a_plain_lambda_row_offers_sizes_up_to_its_own(tmp_path: Path) -> None:
    read = catalog(tmp_path, good("function", instance="lambda", memory_gib="10"), good("function", burst="7"))
    assert read.function("lambda:1769").memory_mb == 1769
    assert read.function("lambda:10240").memory_mb == 10240
    # A row for exactly this memory wins over the general row.
    assert read.function("lambda:3008").burst == 7.0
    for name in ("lambda:10241", "lambda:64", "lambda:", "lambda:x", "lambda:-3008", "3008"):
        with pytest.raises(BadInput, match=name):
            read.function(name)


def test_functions_on_arm64_are_rows_of_their_own(tmp_path: Path) -> None:
    rows = (good("function", instance="lambda", memory_gib="10"), good("function", instance="lambda-arm64:512"))
    read = catalog(tmp_path, *rows)
    assert read.function("lambda-arm64:512").name == "lambda-arm64:512"
    with pytest.raises(BadInput, match="no such function"):
        read.function("lambda-arm64:1024")
    every = catalog(tmp_path, *rows, good("function", instance="lambda-arm64", memory_gib="10"))
    assert every.function("lambda-arm64:1024").arm64
    assert not every.function("lambda:1024").arm64


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**good("on-demand"), "market": "weekly"}, "2 market: must be one of"),
        (good("on-demand", instance=""), "2 instance: must not be blank"),
        (good("on-demand", usd_per_hour="0"), "2 usd_per_hour: a price must be above zero: 0"),
        (good("on-demand", usd_per_hour="nan"), "2 usd_per_hour: must be a finite number: nan"),
        (good("on-demand", usd_per_hour=""), "2 usd_per_hour: must not be blank"),
        (good("on-demand", boot_p95_s="170"), "2 boot_p95_s: a delay's p95 must lie between"),
        (good("on-demand", resume_mean_s="60"), "2 resume_p95_s: must not be blank"),
        (good("on-demand", resume_mean_s="60", resume_p95_s="600"), "2 resume_p95_s: a delay's p95 must lie between"),
        (good("on-demand", interruptions_per_hour="0.1"), "2 interruptions_per_hour: only spot is interrupted"),
        (good("on-demand", gpus="0.5"), "2 gpus: must be a whole number: 0.5"),
        (good("on-demand", baseline="0.1"), "2 baseline: does not apply to on-demand rows"),
        (good("on-demand", keep_alive_s="1"), "2 keep_alive_s: does not apply to on-demand rows"),
        (good("on-demand", instance="ml.c5.large"), "belong to the market sagemaker: ml.c5.large"),
        (good("sagemaker", instance="c5.large"), "belong to the market sagemaker: c5.large"),
        (good("burstable", baseline=""), "2 baseline: must not be blank"),
        (good("burstable", baseline="10"), "2 baseline: must be between 1e-06 and 1: 10"),
        (good("burstable", max_credits="-1"), "2 max_credits: must be at least 0: -1"),
        (good("function", usd_per_hour="1"), "2 usd_per_hour: does not apply to functions"),
        (good("function", instance="gcf:2048"), "2 instance: a function is named lambda:MEMORY_MB"),
        (good("function", instance="lambda:0"), "2 instance: a function is named lambda:MEMORY_MB"),
        (good("function", instance="lambda"), "2 memory_gib: must not be blank"),
        (good("function", concurrency="0"), "2 concurrency: must be at least 1: 0"),
        (good("function", billing_step_ms="0"), "2 billing_step_ms: must be at least 0.001: 0"),
        (good("function", bills_init="1"), "2 bills_init: must be true or false: 1"),
    ],
)
def test_an_inconsistent_row_is_reported_by_line_column_and_value(
    tmp_path: Path, row: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        catalog(tmp_path, row)
    assert message in str(caught.value)
    assert "prices.csv:2" in str(caught.value)


def test_a_duplicate_offer_or_function_is_refused_with_its_line(tmp_path: Path) -> None:
    for market in GOOD:
        with pytest.raises(BadInput, match=r"prices\.csv:3: the same instance"):
            catalog(tmp_path, good(market), good(market))


def test_an_empty_catalogue_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no row"):
        catalog(tmp_path)
    with pytest.raises(BadInput, match=r"aws-2020: no such file.*aws-2019, aws-2026"):
        load_catalog("aws-2020")


def test_shipped_catalogues_have_all_markets_and_a_source_per_row() -> None:
    for name in CATALOG_NAMES:
        read = load_catalog(name)
        assert {o.market for o in read.offers} == set(Market) - {Market.FUNCTION}
        assert all(o.resume is not None for o in read.offers if o.market is Market.BURSTABLE)
        assert all(o.zone.startswith("us-east-1") for o in read.offers if o.market is Market.SPOT)
        path = Path(__file__).parents[3] / "mark" / "domain" / "catalog" / "data" / f"{name}.csv"
        with path.open(newline="") as file:
            assert all(row["source"] and row["source_date"] for row in csv.DictReader(file))


def test_aws_2019_has_the_papers_prices_boots_and_function_rules() -> None:
    day = load_catalog("aws-2019")
    assert not day.bills_extras
    assert offer(day, "c5.large/on-demand").usd_per_hour == 0.085
    assert offer(day, "p2.xlarge/on-demand").usd_per_hour == 0.9
    assert offer(day, "ml.p2.xlarge/sagemaker").usd_per_hour == 1.26
    assert offer(day, "ml.p2.xlarge/sagemaker").boot.mean_s == 300.0
    boot, resume = offer(day, "p2.xlarge/on-demand").boot, offer(day, "t2.micro/burstable").resume
    assert (boot.mean_s, boot.p95_s) == (180.0, 300.0)
    assert resume is not None
    assert (resume.mean_s, resume.p95_s) == (90.0, 120.0)
    assert not any(o.retired for o in day.offers)
    function = day.function("lambda:3008")
    assert (function.billing_step_ms, function.burst, function.keep_alive_s) == (100.0, 3000.0, 2700.0)
    assert function.ramp_per_10s * 6.0 == pytest.approx(500.0)
    assert not function.bills_init
    with pytest.raises(BadInput, match="128 to 3008 MB"):
        day.function("lambda:10240")


def test_aws_2026_has_current_families_and_retires_p2_and_p3() -> None:
    today = load_catalog("aws-2026")
    assert today.bills_extras
    families = {o.instance.removeprefix("ml.").split(".")[0] for o in today.offers if not o.retired}
    assert (
        " ".join(sorted(families)) == "c5 c5a c6a c6g c6i c7a c7g c7i c8g g4dn g5 g6 inf1 inf2 m5 m6i m7i t2 t3 t3a t4g"
    )
    retired = {o.instance.removeprefix("ml.").split(".")[0] for o in today.offers if o.retired}
    assert retired == {"p2", "p3"}
    assert offer(today, "c7i.large/on-demand").boot.p95_s == 120.0
    assert offer(today, "g5.xlarge/on-demand").boot.p95_s == 240.0
    function = today.function("lambda:10240")
    assert (function.billing_step_ms, function.ramp_per_10s, function.bills_init) == (1.0, 1000.0, True)
    arm = today.function("lambda-arm64:10240")
    assert (arm.name, arm.arm64) == ("lambda-arm64:10240", True)
    assert arm == replace(function, arm64=True, usd_per_gb_second=0.0000133334), "a fifth cheaper, else the same"
    surplus = {
        o.instance.split(".")[0]: o.credits.surplus_usd_per_vcpu_hour for o in today.offers if o.credits is not None
    }
    assert surplus == {"t2": None, "t3": 0.05, "t3a": 0.05, "t4g": 0.04}


def test_interruption_rates_are_those_of_the_advisor_s_buckets() -> None:
    """-ln(1 - p) / 730 per hour for the midpoints 2.5, 7.5, 12.5, 17.5 % and, above 20 %, 25 %."""
    allowed = [-math.log1p(-p) / 730.0 for p in (0.025, 0.075, 0.125, 0.175, 0.25)]
    for name in CATALOG_NAMES:
        for spot in load_catalog(name).offers:
            if spot.market is Market.SPOT:
                assert any(spot.interruptions_per_hour == pytest.approx(rate, rel=1e-5) for rate in allowed), spot


@pytest.mark.parametrize(("name", "date"), [("aws-2019", "2019-12-10"), ("aws-2026", "2026-07-20")])
def test_shipped_prices_agree_with_the_price_list_of_their_date(name: str, date: str) -> None:
    listed = {
        row["instance"]: float(row["usd_per_hour"]) for row in facts("prices.csv") if row["snapshot_date"] == date
    }
    listed |= {
        f"c8g.{size}": 0.03988 * n
        for n, size in ((1, "medium"), (2, "large"), (4, "xlarge"), (8, "2xlarge"), (16, "4xlarge"))
    }
    read = load_catalog(name)
    assert read.priced_on == date
    for found in read.offers:
        if found.market in (Market.ON_DEMAND, Market.BURSTABLE):
            assert found.usd_per_hour == pytest.approx(listed[found.instance]), found.name
        elif found.market is Market.SPOT:
            assert 0.05 * listed[found.instance] < found.usd_per_hour < listed[found.instance], found.name
        else:
            ratio = found.usd_per_hour / listed[found.instance.removeprefix("ml.")]
            assert 1.1 < ratio < 1.45, found.name


def test_shipped_catalogue_is_read_once_and_a_file_every_time(tmp_path: Path) -> None:
    assert load_catalog("aws-2026") is load_catalog("aws-2026")
    path = tmp_path / "prices.csv"
    path.write_bytes(catalog_path("aws-2019").read_bytes())
    before = load_catalog(str(path))
    path.write_bytes(catalog_path("aws-2026").read_bytes())
    assert load_catalog(str(path)).offers != before.offers


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (730.0, "times the usual price: is it the price of a month"),
        (8760.0, "is it the price of a year"),
        (100.0, "is it in cents"),
        (73_000.0, "is it the cents of a month"),
        (1.0 / 60.0, "1/.* the usual price: is it the price of a minute"),
        (1.0 / 3600.0, "is it the price of a second"),
    ],
)
@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_prices_in_another_unit_are_refused(tmp_path: Path, market: str, times: float, said: str) -> None:
    others = [good("on-demand"), good("spot")]
    row = good(market, zone="b", usd_per_hour=repr(times * 0.08))
    with pytest.raises(
        BadInput, match=f"prices.csv usd_per_hour: c5.large costs .*{said}.*Write the dollars of an hour"
    ):
        catalog(tmp_path, *(other for other in others if other["market"] != market), row)


def test_an_unknown_type_is_compared_by_its_size(tmp_path: Path) -> None:
    unknown = good("on-demand", instance="zz9.large", vcpu="2")
    with pytest.raises(BadInput, match=r"zz9.large costs 620 times.*price of a month"):
        catalog(tmp_path, unknown | {"usd_per_hour": "62"})
    catalog(tmp_path, unknown | {"usd_per_hour": "0.9"})


@pytest.mark.parametrize("times", [0.1, 0.5, 2.0, 10.0])
def test_prices_of_other_regions_and_years_are_read(tmp_path: Path, times: float) -> None:
    read = catalog(tmp_path, good("on-demand", usd_per_hour=repr(times * 0.085)))
    assert read.offers[0].usd_per_hour == times * 0.085


@pytest.mark.parametrize(("times", "said"), [(730.0, "a month"), (100.0, "in cents"), (1.0 / 3600.0, "a second")])
def test_one_price_in_another_unit_among_right_ones_is_refused(tmp_path: Path, times: float, said: str) -> None:
    right = [good("on-demand", zone=zone, usd_per_hour="0.085") for zone in ("a", "b")]
    wrong = good("on-demand", zone="c", usd_per_hour=repr(times * 0.085))
    with pytest.raises(BadInput, match=rf"c5.large costs .* the usual price: is it .*{said}"):
        catalog(tmp_path, *right, wrong)


@pytest.mark.parametrize(("vcpu", "memory_gib"), [("2", "4096"), ("96", "786432"), ("", "512")])
def test_memory_in_mebibytes_is_refused(tmp_path: Path, vcpu: str, memory_gib: str) -> None:
    with pytest.raises(BadInput, match=rf"memory_gib: no type has more than 128 GiB a vCPU: .*Write GiB: {memory_gib}"):
        catalog(tmp_path, good("on-demand", vcpu=vcpu, memory_gib=memory_gib))


@pytest.mark.parametrize("usd", ["16.67", "1.667e-8"])
def test_a_function_priced_by_another_unit_is_refused(tmp_path: Path, usd: str) -> None:
    with pytest.raises(BadInput, match=rf"usd_per_gb_second: must be between 1e-06 and 0.01: {usd}"):
        catalog(tmp_path, good("function", usd_per_gb_second=usd))
