"""The limits that service times alone set, and the changes that leave room for a promise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.domain.profile import Candidate, Profile, ProfileRow
from mark.domain.promise_help import HelpKind
from mark.domain.service import FunctionUse, ServiceConfig
from mark.domain.slo import Slo
from mark.planning.demand.tails import ROOM, fewest_requests, share_alone, tail_helps
from mark.profiling.policy import candidate, late_alone
from tests.planning.build import usual

SLO = Slo(0.08, 0.995)
SLOW = Profile("m", "slow", (ProfileRow(1, 24.0, 75.0), ProfileRow(4, 60.0, 150.0)))
QUICK = Profile("m", "quick", (ProfileRow(1, 14.0, 40.0),))


def service(slo: Slo = SLO) -> ServiceConfig:
    return replace(load_service("inception-v3-2026"), slo=slo)


def late(profile: Profile, rt_max_s: float) -> float:
    found = candidate(profile, Slo(rt_max_s, 0.995))
    assert isinstance(found, Candidate)
    return late_alone(found, rt_max_s)


def test_the_least_rt_max_is_exact_to_a_millisecond() -> None:
    (longer, *_) = tail_helps(service(), {"slow": (0.1, SLOW)}, {}, None)
    assert (longer.kind, longer.instance, longer.usd_per_hour, longer.confidence) == (
        HelpKind.RT_MAX,
        "slow",
        0.1,
        None,
    )
    assert longer.rt_max_s is not None
    assert longer.longer_s == pytest.approx(longer.rt_max_s - 0.08)
    assert late(SLOW, longer.rt_max_s) <= ROOM * 0.005 < late(SLOW, longer.rt_max_s - 0.001)


def test_a_longer_rt_max_helps_a_slow_mean() -> None:
    certain = Profile("m", "slow", (ProfileRow(1, 500.0),))
    (longer,) = tail_helps(service(), {"slow": (0.1, certain)}, {}, None)
    assert longer.rt_max_s == pytest.approx(0.5)


def test_quicker_types_are_named_from_the_cheapest_on() -> None:
    others = {"dear": (0.9, QUICK), "cheap": (0.2, QUICK), "slower": (0.1, SLOW)}
    named = [one for one in tail_helps(service(), {"slow": (0.1, SLOW)}, others, None) if one.kind is HelpKind.TYPE]
    assert [(one.instance, one.usd_per_hour) for one in named] == [("cheap", 0.2), ("dear", 0.9)]


def test_a_function_helps_only_in_time() -> None:
    def kinds(use: FunctionUse | None) -> set[HelpKind]:
        return {one.kind for one in tail_helps(service(), {"slow": (0.1, SLOW)}, {}, use)}

    use = usual().function
    assert use is not None
    assert HelpKind.FUNCTION in kinds(replace(use, warm_s=0.07))
    assert HelpKind.FUNCTION not in kinds(replace(use, warm_s=0.09))


def test_a_lower_share_leaves_room() -> None:
    one = tail_helps(service(), {"slow": (0.1, SLOW)}, {}, None)[-1]
    assert one.kind is HelpKind.ATTAINMENT
    assert one.attainment is not None
    assert late(SLOW, 0.08) <= ROOM * (1.0 - one.attainment)
    assert one.attainment < share_alone(SLOW, SLO, "work-conserving")  # type: ignore[operator]


def test_windows_of_the_fewest_requests_are_kept_as_stated() -> None:
    slo = Slo(0.08, 0.99, confidence=0.9)
    few = math.ceil(fewest_requests(slo, 0.0073))
    draws = np.random.default_rng(3).binomial(few, 0.0073, 20_000)
    assert (draws <= 0.01 * few).mean() == pytest.approx(0.9, abs=0.02)
    assert fewest_requests(slo, 0.0101) == math.inf
