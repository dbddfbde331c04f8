"""A release whose launches were all refused is held: no launch until a pause is over, while other releases go on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.held_releases import HeldRelease, allowed, launched, refused, trouble
from mark.control.ports import Launched
from mark.domain.backoff import RELEASE
from mark.domain.command import Drain, Launch
from mark.domain.errors import CapacityError, CloudError, NotFoundError, RefusalScope
from tests.control.control_fakes import ON_DEMAND, SPOT_A, SPOT_B, Bench
from tests.control.test_controller import reading
from tests.control.test_rollout import LARGE, Rolling

OD, A, B = ON_DEMAND.name, SPOT_A.name, SPOT_B.name
NO_IMAGE = CapacityError("InvalidAMIID.NotFound: it is gone", RefusalScope.EVERYTHING)


def refuse_all(bench: Bench, release: str | None = None) -> list[tuple[float, str]]:
    """Refuse every launch, or all of a release; the returned list gets the time and offer of each later request."""
    launch, asked = bench.cloud.launch, []

    def refuses(offer: str, count: int, token: str, **more: Any) -> Launched:
        if release in (None, more["release"]):
            asked.append((bench.clock.t_s, offer))
            raise NO_IMAGE
        return launch(offer, count, token, **more)

    bench.cloud.launch = refuses  # type: ignore[method-assign]
    return asked


def test_pauses_double_up_to_five_minutes() -> None:
    held: dict[str, HeldRelease] = {}
    pauses, now_s = [], 0.0
    for _ in range(5):
        held = refused(held, "a", "gone", now_s)
        pauses.append(held["a"].until_s - now_s)
        now_s = held["a"].until_s
    assert pauses == [RELEASE.first_s, 2 * RELEASE.first_s, 4 * RELEASE.first_s, RELEASE.longest_s, RELEASE.longest_s]
    held = refused(launched(held, "a"), "a", "gone", now_s)
    assert held["a"].until_s - now_s == RELEASE.first_s


def test_what_was_under_way_makes_a_pause_no_longer() -> None:
    held = refused(refused({}, "a", "gone", 0.0), "a", "gone, too", 1.0)
    assert held == {"a": HeldRelease(1, RELEASE.first_s, "gone, too")}


def test_only_launches_of_a_held_release_are_left_out() -> None:
    launch, other, drain = Launch("", 1.0, OD, 1, release="a"), Launch("", 1.0, OD, 1), Drain("", 0.0, OD, 1)
    held = refused({}, "a", "gone", 0.0)
    assert allowed(held, [launch, other, drain], RELEASE.first_s - 1.0) == [other, drain]
    assert allowed(held, [launch, other, drain], RELEASE.first_s) == [launch, other, drain]


def test_people_are_told() -> None:
    held = refused(refused({}, "", "no image", 0.0), "b", "no role", 0.0)
    assert trouble(held, 1.0) == "every launch is refused of the service: no image; of release b: no role"
    assert trouble(held, RELEASE.first_s) == ""


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 90.0))))
def test_two_releases_are_asked_for_twice_a_minute_together(asks: list[tuple[str, float]]) -> None:
    """Within less than a minute, each release is asked for at most once."""
    held: dict[str, HeldRelease] = {}
    asked: list[float] = []
    now_s = 0.0
    for release, passed_s in asks:
        now_s += passed_s
        if allowed(held, [Launch("", 1.0, OD, 1, release=release)], now_s):
            asked.append(now_s)
            held = refused(held, release, "gone", now_s)
    assert all(later - earlier >= RELEASE.first_s for earlier, later in zip(asked, asked[2:], strict=False))


def test_no_offer_is_put_off_and_the_plan_stays() -> None:
    """No other offer is tried and nothing is terminated for the refused launches. After the repair, launches go on."""
    bench = reading(OD, A)
    bench.tick()
    bench.cloud.boot()
    launch = bench.cloud.launch
    asked = refuse_all(bench)
    bench.planner.offers = (A, OD)  # type: ignore[attr-defined]
    for _ in range(10):
        bench.tick()
        for _ in range(5):
            bench.fast()
    assert [offer for _, offer in asked] == [A] * len(asked)
    assert 3 <= len(asked) <= 5
    assert bench.controller.state.beliefs.get(A) is None or bench.controller.state.beliefs[A].refusals == 0
    assert bench.cloud.fleet().ready() == {OD: 2}
    assert bench.controller.last_plan is not None
    assert bench.controller.last_plan.counts == {A: 2}
    assert (f"launch 2 {A}", str(NO_IMAGE)) in bench.journal()
    bench.cloud.launch = launch  # type: ignore[method-assign]
    for _ in range(6):
        bench.tick()
    assert bench.cloud.fleet().live()[A] == 2
    assert bench.controller.state.held == {}


@pytest.mark.parametrize("error", [NO_IMAGE, NotFoundError("no version of the template is known for release c")])
def test_what_is_launched_beside_it_is_not_asked_for(error: CapacityError | NotFoundError) -> None:
    """Another zone is not asked either, if the planner cannot replan; the journal says that the launch was dropped."""
    bench = Bench()
    bench.cloud.fail = {OD: error, A: error, B: error}
    bench.tick({A: 1, OD: 2})
    assert len(bench.cloud.calls) == 1
    assert bench.journal() == [
        (f"launch 1 {A}", str(error)),
        (f"launch 2 {OD}", "dropped: launches of its release were refused just now"),
    ]


def test_a_launch_in_part_shows_that_not_everything_is_refused() -> None:
    bench = reading(A, OD)
    bench.cloud.left, bench.cloud.why = {A: 1}, NO_IMAGE
    bench.tick()
    assert bench.controller.state.held == {}
    assert bench.controller.state.beliefs[A].refusals == 1
    assert bench.cloud.fleet().live()[OD] == 2


def test_an_end_at_launch_for_such_reasons_holds_the_release() -> None:
    """The key of its volumes may be wrong, for example: no offer is put off, and no boot counts as failed."""
    bench = reading(A, OD)
    bench.cloud.ends = {A: CapacityError("Client.InternalError: at launch", RefusalScope.EVERYTHING)}
    bench.tick()
    for _ in range(5):
        bench.fast()
    assert [call[1] for call in bench.cloud.calls] == [A]
    assert bench.controller.state.held[""].reason.endswith("Client.InternalError: at launch")
    assert bench.controller.state.beliefs == {}


def test_a_refusal_of_a_repeated_launch_holds_the_release() -> None:
    bench = reading(A, OD)
    bench.cloud.fail = {A: CloudError("no answer in time")}
    bench.tick()
    bench.cloud.fail = {A: NO_IMAGE, OD: NO_IMAGE}
    bench.fast()
    assert bench.controller.state.held[""].reason == str(NO_IMAGE)
    bench.fast()
    assert len(bench.cloud.calls) == 2


def test_a_candidate_that_cannot_be_launched_hinders_nothing_that_serves() -> None:
    """The candidate is tried less and less often. Serving releases launch as usual, and no release is condemned."""
    world = Rolling(wanted=4)
    asked = refuse_all(world, "b")
    world.deploy("b")
    world.run(60.0)
    assert len(asked) == 1
    world.planner.wanted = {LARGE: 6}
    world.run(1200.0)
    assert world.releases() == {"a": 6}
    assert len(asked) <= 6
    assert world.rollout.refused == ()
    world.planner.wanted = {LARGE: 4}
    world.run(300.0)
    assert world.releases() == {"a": 4}, "nor is anything kept from its end"


def test_a_release_that_serves_is_held_alone() -> None:
    """A candidate is not held, because it may be the repair."""
    world = Rolling(wanted=4)
    refuse_all(world, "a")
    world.planner.wanted = {LARGE: 5}
    world.run(120.0)
    assert world.releases() == {"a": 4}
    world.deploy("b")
    world.run(1800.0)
    assert world.releases() == {"b": 5}
