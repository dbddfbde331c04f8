"""Prices refreshed from AWS, or the last good ones if that fails; the price list by botocore's stubs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import ANY, Stubber
from mark_infra.aws.price_list_api import Price, Prices, product, repriced, rezoned

from mark.cli.main import main
from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Catalog
from tests.infra.conftest import REGION, MotoServer

NOW_UNIX_S = 1_800_000_000.0
HEADER = (
    "instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,retired,"
    "baseline,credits_per_hour,max_credits,launch_credits,source"
)
ROWS = """
c5.large,on-demand,,0.085,2,4,0,60,120,,false,,,,,by hand
c5.large,spot,us-east-1a,0.03,2,4,0,60,120,3e-5,false,,,,,
c5.large,spot,us-east-1b,0.03,2,4,0,60,120,3e-5,false,,,,,
t3.micro,burstable,,0.0104,2,1,0,60,120,,false,0.1,12,288,0,
p2.xlarge,on-demand,,0.9,4,61,1,60,120,,true,,,,,
ml.c5.large,sagemaker,,0.102,2,4,0,60,120,,false,,,,,
"""
ON_DEMAND, SPOT_A, SPOT_B, MICRO = (
    "c5.large/on-demand", "c5.large/spot/us-east-1a", "c5.large/spot/us-east-1b", "t3.micro/burstable",
)  # fmt: skip
SHIPPED = {
    ON_DEMAND: 0.085, SPOT_A: 0.03, SPOT_B: 0.03, MICRO: 0.0104, "p2.xlarge/on-demand": 0.9,
    "ml.c5.large/sagemaker": 0.102,
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.csv"
    path.write_text(HEADER + ROWS)
    return path


def listed(instance: str, usd: object, unit: str = "Hrs", currency: str = "USD") -> str:
    """Return a product as the price list has it."""
    dimension = {"unit": unit, "pricePerUnit": {currency: usd}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": instance}}, "terms": terms})


def spot(zone: str, usd: str, at_unix_s: float = NOW_UNIX_S) -> dict[str, Any]:
    at = datetime.fromtimestamp(at_unix_s, UTC)
    return {"InstanceType": "c5.large", "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": at}


class Aws:
    """Prices from an AWS that answers page by page as the test says; a text is an error's code."""

    def __init__(
        self, catalog: Catalog, cache: Path | None = None, now_unix_s: Callable[[], float] = lambda: NOW_UNIX_S
    ) -> None:
        options = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.prices = Prices(catalog, REGION, cache, options=options, now_unix_s=now_unix_s)
        self._pricing = Stubber(self.prices.pricing_gate.client("pricing"))
        self._ec2 = Stubber(self.prices.ec2_gate.client("ec2"))

    def on_demand(self, *pages: list[str] | str) -> Aws:
        asked = {"ServiceCode": "AmazonEC2", "Filters": ANY, "FormatVersion": "aws_v1", "MaxResults": 100}
        self._answer(self._pricing, "get_products", "PriceList", asked, pages)
        return self

    def spot(self, *pages: list[dict[str, Any]] | str) -> Aws:
        asked = {"InstanceTypes": ["c5.large"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": ANY, "EndTime": ANY}
        self._answer(self._ec2, "describe_spot_price_history", "SpotPriceHistory", asked, pages)
        return self

    @staticmethod
    def _answer(stubber: Stubber, method: str, key: str, asked: dict[str, Any], pages: tuple[Any, ...]) -> None:
        for number, page in enumerate(pages):
            if isinstance(page, str):
                stubber.add_client_error(method, page)
                continue
            more = {"NextToken": f"page {number + 1}"} if number + 1 < len(pages) else {}
            before = {"NextToken": f"page {number}"} if number else {}
            stubber.add_response(method, {key: page, **more}, {**asked, **before})
        stubber.activate()


def usd(catalog: Catalog) -> dict[str, float]:
    return {offer.name: offer.usd_per_hour for offer in catalog.offers}


GOOD_LIST = [listed("c5.large", "0.0860000000"), listed("t3.micro", "0.0105"), listed("x9.huge", "99")]
GOOD_SPOT = [spot("us-east-1a", "0.035"), spot("us-east-1b", "0.036"), spot("us-east-1f", "0.01")]


def test_prices_come_from_aws_and_all_else_from_the_catalogue(file: Path) -> None:
    """On-demand prices include burstables, spot is by zone, all pages are read; other types keep their prices."""
    catalog = load_catalog(str(file))
    aws = Aws(catalog).on_demand(GOOD_LIST[:1], GOOD_LIST[1:]).spot(GOOD_SPOT[:1], GOOD_SPOT[1:])
    refreshed = aws.prices.refresh()
    assert usd(refreshed.catalog) == SHIPPED | {ON_DEMAND: 0.086, SPOT_A: 0.035, SPOT_B: 0.036, MICRO: 0.0105}
    assert refreshed.prices[SPOT_A] == Price(0.035, NOW_UNIX_S)
    assert refreshed.notes == (
        "2 of 2 on-demand prices are of AWS, up to 0 s old",
        "2 of 2 spot prices are of AWS, up to 0 s old",
    )
    for before, after in zip(catalog.offers, refreshed.catalog.offers, strict=True):
        assert (before.boot, before.credits, before.name) == (after.boot, after.credits, after.name)


def test_the_latest_spot_price_holds(file: Path) -> None:
    history = [
        spot("us-east-1a", "0.02", NOW_UNIX_S - 900.0),
        spot("us-east-1a", "0.04"),
        spot("us-east-1a", "0.03", 0.0),
    ]
    aws = Aws(load_catalog(str(file))).on_demand(GOOD_LIST).spot(history)
    assert usd(aws.prices.refresh().catalog)[SPOT_A] == 0.04


def test_what_fails_falls_back_to_the_catalogue_and_is_said(file: Path) -> None:
    aws = Aws(load_catalog(str(file))).on_demand("AccessDeniedException").spot("UnauthorizedOperation")
    refreshed = aws.prices.refresh()
    assert usd(refreshed.catalog) == SHIPPED
    assert refreshed.prices == {}
    assert [note.partition(":")[0] for note in refreshed.notes] == [
        "on-demand prices cannot be refreshed",
        "spot prices cannot be refreshed",
    ]
    assert refreshed.notes == (refreshed.failed_on_demand, refreshed.failed_spot)


def test_a_failed_refresh_keeps_the_last_good_prices(file: Path, tmp_path: Path) -> None:
    """A price that could not be read keeps its last good value, with its age; the answered half is used."""
    catalog, cache = load_catalog(str(file)), tmp_path / "there" / "prices.json"
    Aws(catalog, cache).on_demand(GOOD_LIST).spot(GOOD_SPOT).prices.refresh()
    later = Aws(catalog, cache, lambda: NOW_UNIX_S + 7200.0)
    assert usd(later.prices.last().catalog)[ON_DEMAND] == 0.086, "known before the first refresh"
    refreshed = (
        later.on_demand([listed("c5.large", "0.087")], "InternalErrorException").spot("Throttling").prices.refresh()
    )
    assert usd(refreshed.catalog) == SHIPPED | {ON_DEMAND: 0.087, SPOT_A: 0.035, SPOT_B: 0.036, MICRO: 0.0105}
    assert "2 of 2 on-demand prices are of AWS, up to 2 h old" in refreshed.notes
    assert "2 of 2 spot prices are of AWS, up to 2 h old" in refreshed.notes
    assert Aws(catalog, cache, lambda: NOW_UNIX_S + 86400.0).prices.last().prices[ON_DEMAND] == Price(
        0.087, NOW_UNIX_S + 7200.0
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"region": "eu-west-1", "prices": {"c5.large/on-demand": [1.0, 1.0]}}',
             '{"region": "us-east-1", "prices": {"c5.large/on-demand": 1.0}}',
             '{"region": "us-east-1", "prices": {"c5.large/on-demand": [NaN, 1.0]}}'],
)  # fmt: skip
def test_a_cache_that_cannot_be_used_is_as_none(file: Path, tmp_path: Path, text: str) -> None:
    cache = tmp_path / "prices.json"
    cache.write_text(text)
    assert Aws(load_catalog(str(file)), cache).prices.last().prices == {}


def test_a_cache_that_cannot_be_written_is_said(file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    aws = Aws(load_catalog(str(file)), tmp_path / "file" / "prices.json").on_demand(GOOD_LIST).spot(GOOD_SPOT)
    refreshed = aws.prices.refresh()
    assert len(refreshed.prices) == 4
    assert any(note.startswith("prices cannot be kept for later") for note in refreshed.notes)


@pytest.mark.parametrize("absurd", ["0", "-0.085", "0.0001", "8.5", "1e9", "nan", "inf", "much", ""])
def test_absurd_prices_are_not_taken(file: Path, absurd: str) -> None:
    """A price off by orders of magnitude, or no number, keeps the last good one, and a note names the offer."""
    aws = Aws(load_catalog(str(file)))
    aws.on_demand([listed("c5.large", absurd), GOOD_LIST[1]]).spot([spot("us-east-1a", absurd), GOOD_SPOT[1]])
    refreshed = aws.prices.refresh()
    assert usd(refreshed.catalog) == SHIPPED | {MICRO: 0.0105, SPOT_B: 0.036}
    said = " ".join(refreshed.notes)
    assert f"{ON_DEMAND} for " in said
    assert f"{SPOT_A} for " in said


def test_spot_is_never_dearer_than_on_demand_of_today(file: Path) -> None:
    aws = Aws(load_catalog(str(file))).on_demand([listed("c5.large", "0.05")])
    aws.spot([spot("us-east-1a", "0.051"), spot("us-east-1b", "0.049")])
    assert usd(aws.prices.refresh().catalog) == SHIPPED | {ON_DEMAND: 0.05, SPOT_B: 0.049}


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", "7", '{"product": {"attributes": {}}}', listed("c5.large", "1", unit="Quantity")),
        *(listed("c5.large", "1", currency="CNY"), listed("c5.large", None), listed("c5.large", [])),
    ],
)
def test_an_odd_product_is_passed_over(text: str) -> None:
    assert product(text)[1] is None


def test_missing_prices_are_counted(file: Path) -> None:
    refreshed = Aws(load_catalog(str(file))).on_demand([]).spot([]).prices.refresh()
    assert refreshed.notes == (
        f"no on-demand prices for 2 of 2 offers, {ON_DEMAND} among them",
        f"no spot prices for 2 of 2 offers, {SPOT_A} among them",
    )


def test_spot_that_ec2_does_not_list_is_not_sold(file: Path) -> None:
    """Zones are crossed with types, and not every zone sells every type.

    An offer with an impossible price still counts as sold. Without EC2's answer no offer counts as unsold.
    """
    aws = Aws(load_catalog(str(file)))
    refreshed = aws.on_demand(GOOD_LIST).spot([spot("us-east-1a", "nonsense")]).prices.refresh()
    assert refreshed.unsold == {SPOT_B}
    assert SPOT_A in {o.name for o in refreshed.sold.offers}
    assert SPOT_B not in {o.name for o in refreshed.sold.offers}
    assert len(refreshed.catalog.offers) == len(refreshed.sold.offers) + 1
    aws.spot("UnauthorizedOperation")
    assert aws.prices.refresh(spot_only=True).unsold == {SPOT_B}
    assert Aws(load_catalog(str(file))).spot([]).prices.refresh(spot_only=True).unsold == frozenset()
    assert Aws(load_catalog(str(file))).spot("Throttling").prices.refresh(spot_only=True).unsold == frozenset()


@pytest.mark.parametrize(
    ("zones", "text"),
    [
        (["us-east-1a"], ""),
        (["us-east-1a", "us-east-1f"], "75 types of spot are offered in us-east-1f, which aws-2026 does not name"),
        (["x-1b", "x-1a"], "75 types of spot are offered in x-1a, x-1b, which aws-2026 does not name"),
    ],
)
def test_zones_that_the_catalogue_does_not_name_are_said(zones: list[str], text: str) -> None:
    assert rezoned(load_catalog("aws-2026"), zones) == text


def test_the_catalogue_is_written_with_the_prices_and_their_source(file: Path, tmp_path: Path) -> None:
    """It reads back the same, and other lines keep their texts."""
    prices = {ON_DEMAND: Price(0.0861234, NOW_UNIX_S), SPOT_B: Price(0.036, NOW_UNIX_S)}
    out = tmp_path / "new.csv"
    out.write_text(repriced(str(file), prices))
    assert usd(load_catalog(str(out))) == SHIPPED | {ON_DEMAND: 0.0861234, SPOT_B: 0.036}
    lines = out.read_text().splitlines()
    assert lines[1].endswith("AWS price list,2027-01-15")
    assert lines[3].endswith("EC2 spot price history,2027-01-15")
    assert lines[2].endswith(",,")
    for name in ("aws-2019", "aws-2026"):
        out.write_text(repriced(name, {}))
        assert load_catalog(str(out)).offers == load_catalog(name).offers


def test_a_cloud_without_sensible_prices_changes_nothing(
    moto: MotoServer, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto has no price list and sells all spot at one price; the command line says so and stops."""
    for name, value in {
        "AWS_ENDPOINT_URL": moto.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    out = tmp_path / "new.csv"
    assert main(["catalog", "refresh", str(file), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "on-demand prices cannot be refreshed" in said
    assert f"{SPOT_A} for 1e-05 $/h cannot be true" in said
    assert "nothing is written" in said.splitlines()[-1]
    assert not out.exists()
