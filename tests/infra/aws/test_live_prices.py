"""Prices that move while a controller runs: when they are fetched, and which stay without an answer."""

from __future__ import annotations

from pathlib import Path

from mark_infra.aws.live_prices import ON_DEMAND_S, SPOT_S, PriceKeeper

from mark.domain.catalog.tables import load_catalog
from tests.infra.aws.test_price_list_api import (
    GOOD_LIST,
    GOOD_SPOT,
    HEADER,
    NOW_UNIX_S,
    ON_DEMAND,
    ROWS,
    SPOT_A,
    Aws,
    listed,
    spot,
    usd,
)


class Bench:
    """A keeper over stubs, which fail if more calls come than the test expects; `now_s` is its clock."""

    def __init__(self, folder: Path, scale: float = 1.0) -> None:
        path = folder / "catalog.csv"
        path.write_text(HEADER + ROWS)
        self.now_s = NOW_UNIX_S
        self.aws = Aws(load_catalog(str(path)), now_unix_s=lambda: self.now_s)
        self.keeper = PriceKeeper(self.aws.prices, scale=scale, now_unix_s=lambda: self.now_s)

    def step(self, after_s: float) -> dict[str, float]:
        self.now_s += after_s
        self.keeper.step()
        return usd(self.keeper.latest.catalog)


def test_spot_is_fetched_every_step_and_on_demand_daily(tmp_path: Path) -> None:
    """Stubs answer in order, so one list too many would be an error."""
    bench = Bench(tmp_path)
    moved = spot("us-east-1a", "0.05", NOW_UNIX_S + 100.0)
    bench.aws.on_demand(GOOD_LIST).spot(GOOD_SPOT)
    assert bench.step(0.0)[ON_DEMAND] == 0.086
    bench.aws.spot([moved])
    prices = bench.step(SPOT_S)
    assert (prices[SPOT_A], prices[ON_DEMAND]) == (0.05, 0.086)
    assert bench.keeper.latest.prices[SPOT_A].since_unix_s == NOW_UNIX_S + 100.0
    bench.aws.on_demand([listed("c5.large", "0.09")]).spot(GOOD_SPOT)
    assert bench.step(ON_DEMAND_S)[ON_DEMAND] == 0.09
    assert bench.keeper.trouble() == ""


def test_unsold_offers_are_known_after_the_first_answer(tmp_path: Path) -> None:
    """The other offers may still have the catalogue's prices."""
    bench = Bench(tmp_path)
    bench.aws.on_demand("AccessDeniedException").spot([spot("us-east-1b", "nonsense")])
    bench.step(0.0)
    assert bench.keeper.latest.unsold == {SPOT_A}


def test_without_answers_old_prices_stay_and_their_age_is_reported(tmp_path: Path) -> None:
    """A trouble is reported after three times without an answer, and the next answer ends it."""
    bench = Bench(tmp_path)
    bench.aws.on_demand(GOOD_LIST).spot(GOOD_SPOT)
    before = bench.step(0.0)
    for _ in range(2):
        bench.aws.spot("UnauthorizedOperation")
        assert bench.step(SPOT_S) == before
        assert bench.keeper.trouble() == ""
    bench.aws.spot("UnauthorizedOperation")
    assert bench.step(SPOT_S) == before
    assert bench.keeper.trouble().startswith("prices are 15 minutes old: spot prices cannot be refreshed")
    bench.aws.spot(GOOD_SPOT)
    bench.step(SPOT_S)
    assert bench.keeper.trouble() == ""


def test_a_refused_price_list_is_requested_again_every_step(tmp_path: Path) -> None:
    """The refusal is reported at once if there never was a list; answered spot prices do not hide it."""
    bench = Bench(tmp_path)
    for _ in range(2):
        bench.aws.on_demand("AccessDeniedException").spot(GOOD_SPOT)
        assert bench.step(SPOT_S)[ON_DEMAND] == 0.085
        assert bench.keeper.trouble().startswith("prices are the catalogue's: on-demand prices cannot be refreshed: ")
    bench.aws.on_demand(GOOD_LIST).spot(GOOD_SPOT)
    assert bench.step(SPOT_S)[ON_DEMAND] == 0.086
    assert bench.keeper.trouble() == ""
    for after_s in (ON_DEMAND_S, SPOT_S, SPOT_S):
        assert bench.keeper.trouble() == ""
        bench.aws.on_demand("AccessDeniedException").spot(GOOD_SPOT)
        bench.step(after_s)
    assert bench.keeper.trouble().startswith("prices are 1450 minutes old: on-demand prices cannot be refreshed: ")
    bench.aws.on_demand("AccessDeniedException").spot("UnauthorizedOperation")
    bench.step(3 * SPOT_S)
    on_demand, spot_trouble = bench.keeper.trouble().split("; ")
    assert "1465 minutes" in on_demand
    assert spot_trouble.startswith("prices are 15 minutes old: spot prices cannot be refreshed: ")


def test_the_same_prices_again_are_nothing_new(tmp_path: Path) -> None:
    """A later time of AWS's answer makes no difference; otherwise every service would make a new policy."""
    bench = Bench(tmp_path)
    bench.aws.on_demand(GOOD_LIST).spot(GOOD_SPOT)
    bench.step(0.0)
    before = bench.keeper.latest
    bench.aws.spot(GOOD_SPOT)
    bench.step(SPOT_S)
    assert bench.keeper.latest is before


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """The thread ends immediately, even before it has begun."""
    for begins in (False, True):
        keeper = Bench(tmp_path).keeper
        if begins:
            keeper.start()
        keeper.close()
        keeper.close()
