"""The prices that a bouncer is told, and for how long it uses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.price_list import PriceList
from mark.serving.backend.price_header import HEADER, LASTS_S, ToldPrices, headers_of

KNOWN = PriceList(1.17e-6, 1.978e-5)
dollars = st.none() | st.floats(0.0, 1e3).map(lambda usd: float(f"{usd:.6g}"))


def told(prices: PriceList) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in headers_of(prices).items()}


@given(prices=st.builds(PriceList, dollars, dollars))
def test_what_is_sent_is_what_is_heard(prices: PriceList) -> None:
    heard = ToldPrices()
    heard.hear(told(prices), 5.0)
    assert heard.at(5.0) == prices


def test_nothing_known_is_nothing_sent() -> None:
    assert headers_of(PriceList()) == {}
    assert headers_of(KNOWN) == {HEADER: "usd_per_request=1.17e-06;usd_per_miss=1.978e-05"}


def test_it_is_believed_for_a_minute() -> None:
    """A controller that has ended sends nothing; another reader of metrics changes nothing."""
    heard = ToldPrices()
    assert heard.at(0.0) == PriceList()
    heard.hear(told(KNOWN), 100.0)
    heard.hear({b"authorization": b"Bearer key"}, 130.0)
    assert heard.at(100.0 + LASTS_S) == KNOWN
    assert heard.at(100.1 + LASTS_S) == PriceList()


def test_what_is_not_said_again_is_not_known_any_more() -> None:
    heard = ToldPrices()
    heard.hear(told(KNOWN), 0.0)
    heard.hear(told(PriceList(None, 2e-5)), 5.0)
    assert heard.at(5.0) == PriceList(None, 2e-5)


@pytest.mark.parametrize(
    "said", ["", "usd_per_request", "usd_per_request=", "usd_per_request=-1", "usd_per_request=nan", "usd_per_miss=inf",
             "usd_per_day=3", "=;=;", "usd_per_miss=\xe9", "usd_per_request=1,2"],
)  # fmt: skip
def test_what_is_malformed_is_left_out(said: str) -> None:
    heard = ToldPrices()
    heard.hear({HEADER.encode(): f"{said}; usd_per_miss=0.5".encode("latin-1")}, 0.0)
    assert heard.at(0.0) == PriceList(None, 0.5)


@given(said=st.binary(max_size=60))
def test_whatever_is_said_harms_nothing(said: bytes) -> None:
    heard = ToldPrices()
    heard.hear({HEADER.encode(): said}, 0.0)
    assert all(usd is None or usd >= 0.0 for usd in (heard.at(0.0).usd_per_request, heard.at(0.0).usd_per_miss))


def test_conductor_hears_the_prices_of_its_stages() -> None:
    heard = ToldPrices()
    stages = {"small": PriceList(0.0, None, 1e-7), "large": PriceList(usd_per_planned_request=4e-6)}
    headers = headers_of(PriceList(usd_per_miss=0.5), stages)
    heard.hear({name.encode(): value.encode() for name, value in headers.items()}, 0.0)

    assert heard.of_stages(1.0) == {"": PriceList(usd_per_miss=0.5), **stages}
    assert heard.at(1.0) == PriceList(usd_per_miss=0.5)
    assert heard.of_stages(LASTS_S + 1.0) == {}
