"""How likely a promise is kept by a past and its forecasts, and which changes of a service would help."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Delay
from mark.domain.profile import Profile, ProfileRow
from mark.domain.promise_help import HelpKind, PromiseHelp
from mark.domain.promise_outlook import PromiseOutlook
from mark.domain.service import ResolvedService
from mark.domain.slo import Slo
from mark.planning.promise_help import PastMinute, promise_outlook
from mark.planning.resolve import resolve
from tests.planning.build import forecast, resolved, sold


def small(rt_max_s: float = 0.6, resume_s: float | None = None, max_instances: int = 500) -> ResolvedService:
    """Return a service of 10 requests/s an instance at 0.2 $/h, 98 % in time, three minutes of boot, no function."""
    offer = sold("small", 0.2)
    if resume_s is not None:
        offer = replace(offer, resume=Delay(resume_s, resume_s))
    of = resolved(
        offer,
        latencies_ms={"small": 100.0},
        function_ms=None,
        rt_max_s=rt_max_s,
        max_instances=max_instances,
    )
    return replace(of, service=replace(of.service, functions=()))


def minute(rps: float, believed_rps: float) -> PastMinute:
    return PastMinute(rps, np.full(12, rps), forecast(believed_rps, 0.02))


def steady(rps: float, minutes: int = 120) -> list[PastMinute]:
    return [minute(rps, rps) for _ in range(minutes)]


def surges(low_rps: float, high_rps: float, every: int, minutes: int = 480) -> list[PastMinute]:
    """Return load that rises and falls without a warning: forecasts give the arrivals of the minute before."""
    rates = [low_rps if (k // (every // 2)) % 2 == 0 else high_rps for k in range(minutes)]
    return [minute(now, before) for before, now in zip([rates[0], *rates], rates, strict=False)]


def outlook(of: ResolvedService, past: list[PastMinute], rps: float) -> PromiseOutlook:
    found = promise_outlook(of, past, forecast(rps, 0.02))
    assert found is not None
    return found


@cache
def outlook_of_surges(resume_s: float | None = None) -> PromiseOutlook:
    """Return the outlook for 100 requests/s more every two hours."""
    return outlook(small(resume_s=resume_s), surges(50.0, 150.0, every=120), 50.0)


def help_of(found: PromiseOutlook, kind: HelpKind) -> PromiseHelp:
    return next(one for one in found.helps if one.kind is kind)


def test_one_request_a_second_without_history_takes_one_instance() -> None:
    found = outlook(small(), [], 1.0)
    assert found.can_be_had
    assert found.helps == ()
    assert found.seen_s == 0.0
    assert found.usd_per_hour == pytest.approx(0.2)


def test_steady_load_costs_what_its_fleet_costs() -> None:
    """100 requests/s on instances of 10: ten of them, of which 1 % of the requests find no room."""
    found = outlook(small(), steady(100.0), 100.0)
    assert found.can_be_had
    assert found.seen_s == 120 * 60.0
    assert found.usd_per_hour == pytest.approx(2.0)


def test_limits_that_are_too_low_are_named() -> None:
    found = outlook(small(max_instances=5), steady(100.0), 100.0)
    assert found.confidence < 0.01
    one = help_of(found, HelpKind.LIMITS)
    assert one.confidence is not None
    assert found.enough(one.confidence)
    assert one.instances is not None
    assert one.instances == 10


@pytest.mark.untraced
def test_a_warm_pool_or_more_instances_meet_surges() -> None:
    """Every two hours 100 requests/s more: late for three minutes of boot, 2.5 %, or for one of a resume, 0.8 %."""
    of = small(resume_s=60.0)
    found = outlook_of_surges(60.0)
    assert not found.can_be_had
    pool, more = help_of(found, HelpKind.WARM_POOL), help_of(found, HelpKind.MORE_INSTANCES)
    for one in (pool, more):
        assert one.confidence is not None
        assert found.enough(one.confidence)
    assert pool.instances is not None
    assert 10 <= pool.instances <= 13
    assert more.usd_per_hour is not None
    assert pool.usd_per_hour is not None
    assert pool.usd_per_hour < more.usd_per_hour
    as_quick = replace(of, offers=tuple(replace(o, resume=o.boot) for o in of.offers))
    kinds = {one.kind for one in outlook(as_quick, surges(50.0, 150.0, every=120), 50.0).helps}
    assert HelpKind.WARM_POOL not in kinds


def test_more_instances_are_the_fewest_that_are_enough() -> None:
    """A surge of 20 requests/s needs two instances more, held always for 0.4 $/h."""
    past = surges(50.0, 70.0, every=20)
    found = outlook(small(), past, 50.0)
    more = help_of(found, HelpKind.MORE_INSTANCES)
    assert more.instances in {1, 2}
    assert more.confidence is not None
    assert found.enough(more.confidence)


def test_a_lower_share_that_is_told_can_be_had() -> None:
    of, past = small(), surges(50.0, 150.0, every=120)
    one = help_of(outlook_of_surges(), HelpKind.ATTAINMENT)
    assert one.attainment is not None
    assert 0.96 < one.attainment < 0.98
    lower = replace(of, service=replace(of.service, slo=Slo(0.6, one.attainment)))
    assert outlook(lower, past, 50.0).can_be_had


def test_a_function_in_time_is_named() -> None:
    of = small()
    function = Profile("some-model", "lambda:3008", (ProfileRow(1, 380.0),))
    of = replace(of, profiles={**of.profiles, "lambda:3008": function})
    one = help_of(outlook(of, surges(50.0, 150.0, every=120), 50.0), HelpKind.FUNCTION)
    assert one.instance == "lambda:3008"
    assert one.confidence is not None
    assert one.confidence > 0.99


def test_what_is_enough_comes_first_and_the_cheapest_in_front() -> None:
    found = outlook_of_surges(60.0)
    enough = [found.enough(one.confidence or 0.0) for one in found.helps]
    assert enough == sorted(enough, reverse=True)
    usd = [one.usd_per_hour for one, is_enough in zip(found.helps, enough, strict=True) if is_enough]
    assert usd == sorted(usd, key=lambda amount: amount or 0.0)
    assert len(usd) > 1


def test_minutes_without_an_observation_are_left_out() -> None:
    past = steady(100.0)
    gap = [replace(one, load_rps=math.nan) if 30 <= k < 60 else one for k, one in enumerate(past)]
    assert outlook(small(), gap, 100.0).usd_per_hour == pytest.approx(outlook(small(), past, 100.0).usd_per_hour)


def test_nothing_is_said_where_functions_alone_serve() -> None:
    of = replace(small(), offers=(), candidates=())
    assert promise_outlook(of, [], forecast(1.0)) is None


@pytest.mark.untraced
def test_equal_arguments_have_equal_answers_and_progress_never_falls() -> None:
    shares: list[float] = []
    past = surges(50.0, 150.0, every=120)
    found = promise_outlook(small(), past, forecast(50.0, 0.02), shares.append)
    assert found == outlook_of_surges()
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < shares[-1] < 1.0


@pytest.mark.untraced
@pytest.mark.usefixtures("coarse_late_shares")
def test_a_quicker_type_or_more_time_helps_a_tail() -> None:
    """24 ms on average and 75 at p99 leave 0.73 % late within 80 ms, and 0.75 % may be."""
    profiles = {
        "m": {
            "c5.large": Profile("m", "c5.large", (ProfileRow(1, 24.0, 75.0),)),
            "c5.xlarge": Profile("m", "c5.xlarge", (ProfileRow(1, 14.0, 40.0),)),
        }
    }
    asked = replace(
        load_service("inception-v3"), model="m", functions=(), instances=("c5.large",), slo=Slo(0.08, 0.9925)
    )
    of = resolve(asked, load_catalog("aws-2019"), profiles)
    found = outlook(of, steady(20.0, minutes=120), 20.0)
    assert not found.can_be_had
    quicker = help_of(found, HelpKind.TYPE)
    assert quicker.instance == "c5.xlarge"
    longer = help_of(found, HelpKind.RT_MAX)
    assert longer.rt_max_s is not None
    assert longer.longer_s == pytest.approx(longer.rt_max_s - 0.08)
    assert 0.0 < longer.longer_s < 0.02
    for one in (quicker, longer):
        assert one.confidence is not None
        assert found.enough(one.confidence)
    kept = resolve(replace(asked, slo=replace(asked.slo, rt_max_s=longer.rt_max_s)), load_catalog("aws-2019"), profiles)
    assert outlook(kept, steady(20.0, minutes=120), 20.0).can_be_had


def test_json_has_the_difference_from_now() -> None:
    one = PromiseHelp(HelpKind.RT_MAX, 0.96, 0.36, rt_max_s=0.082, longer_s=0.002)
    found = PromiseOutlook(Slo(0.08, 0.9925), 0.81, 0.52, 86_400.0, (one,), "c7i.large/on-demand").as_json()
    assert found.keys() == {
        "asked_confidence", "window_s", "can_be_had", "confidence", "usd_per_hour", "seen_s", "offer", "helps",
    }  # fmt: skip
    assert not found["can_be_had"]
    assert found["helps"] == [
        {
            "kind": "rt-max",
            "confidence": 0.96,
            "usd_per_hour": 0.36,
            "difference_usd_per_hour": pytest.approx(-0.16),
            "instances": None,
            "instance": None,
            "rt_max_ms": 82.0,
            "longer_ms": 2.0,
            "attainment": None,
        }
    ]
