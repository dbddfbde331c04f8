from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import BadInput
from mark.domain.fleet import Fleet
from mark.domain.offer import Market
from mark.planning.planner import PlanningContext
from mark.planning.policies.fixed import fixed
from tests.planning.build import resolved, sold

OF = resolved(
    sold("large", 1.5),
    sold("large", 0.5, Market.SPOT, "a"),
    sold("slow", 0.1),
    sold("bare", 0.1),
    sold("ml.large", 2.0, Market.SAGEMAKER),
    replace(sold("old", 0.1), retired=True),
    latencies_ms={"large": 10.0, "slow": 900.0, "old": 10.0},
    max_instances=2,
)


def test_the_fleet_is_what_was_written() -> None:
    """An instance means on-demand; full offer names work; types outside the service's list and its limits as well."""
    policy = fixed("fixed:large=3, slow=1,large/spot/a=2", OF)
    plan, _ = policy.planner.plan(PlanningContext(0.0, policy.resolved, Fleet(())), None)
    assert plan.counts == {"large/on-demand": 3, "slow/on-demand": 1, "large/spot/a": 2}
    assert [offer.name for offer in policy.resolved.offers] == list(plan.counts)
    assert policy.resolved.service.max_instances >= 6


def test_the_fleet_is_bought_in_the_services_markets() -> None:
    spot = replace(OF, service=replace(OF.service, markets=(Market.SPOT,)))
    policy = fixed("fixed:large=3,ml.large=1", spot)
    assert [offer.name for offer in policy.resolved.offers] == ["large/spot/a", "ml.large/sagemaker"]
    assert [offer.name for offer in fixed("fixed:large/on-demand=3", spot).resolved.offers] == ["large/on-demand"]
    with pytest.raises(BadInput) as caught:
        fixed("fixed:slow=1", spot)
    assert str(caught.value) == "policy: is sold as on-demand, not as spot; slow/on-demand names that offer: slow"


def test_it_has_neither_bouncers_nor_functions() -> None:
    """Users run such a fleet today, without mark."""
    policy = fixed("fixed:large=3", OF)
    assert not policy.bouncers
    assert policy.resolved.function is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fixed:", "INSTANCE=COUNT"),
        ("fixed:large", "INSTANCE=COUNT"),
        ("fixed:large=", "whole number"),
        ("fixed:large=0", "whole number"),
        ("fixed:large=-1", "whole number"),
        ("fixed:large=2.5", "whole number"),
        ("fixed:large=²", "whole number"),
        ("fixed:large=99999999999999999999", "whole number"),
        ("fixed:huge=1", "no such instance: huge"),
        ("fixed:lrge=1", r"policy: test has no such instance, did you mean large\?: lrge"),
        ("fixed:old=1", "no longer be bought: old"),
        ("fixed:bare=1", "no profile"),
        ("fixed:large=1,large/on-demand=1", "twice"),
    ],
)
def test_what_cannot_be_is_one_clear_line(name: str, says: str) -> None:
    """The line names the wrong value."""
    with pytest.raises(BadInput, match=says) as caught:
        fixed(name, OF)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_fleet_or_bad_input(text: str) -> None:
    """No text ends in a traceback."""
    with suppress(BadInput):
        fixed("fixed:" + text, OF)
