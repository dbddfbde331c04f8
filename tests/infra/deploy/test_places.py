"""Places on load balancers: from names, and kept."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from mark_infra.deploy.places import MOST_SERVICES, Place, default_service, placed, priority_of

NAMES = st.text("abcdefghij", min_size=1, max_size=3)


def colliding() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for n in range(10_000):
        other = seen.setdefault(priority_of(f"s{n}"), f"s{n}")
        if other != f"s{n}":
            return other, f"s{n}"
    raise AssertionError("no two alike")


@given(st.lists(st.sets(NAMES, min_size=1, max_size=120), min_size=1, max_size=4))
def test_places_are_kept_and_are_each_services_own(sites: list[set[str]]) -> None:
    before: dict[str, Place] = {}
    for names in sites:
        places = placed(names, before)
        assert places.keys() == names
        assert all(places[name] == before[name] for name in names & before.keys())
        assert all(one != other for one, other in combinations(places.values(), 2))
        by_balancer = [place["balancer"] for place in places.values()]
        assert all(by_balancer.count(balancer) <= MOST_SERVICES for balancer in by_balancer)
        assert all(1 <= place["priority"] <= 24_999 for place in places.values())
        before = places


def test_the_one_that_was_there_keeps_a_priority_of_two() -> None:
    """Whichever comes first in the alphabet."""
    one, other = colliding()
    for first, second in ((one, other), (other, one)):
        places = placed([one, other], placed([first], {}))
        assert places[first]["priority"] == priority_of(first)
        assert places[second]["priority"] == priority_of(second) % 24_999 + 1


def test_a_priority_goes_on_from_the_last_to_the_first() -> None:
    name = "echo"
    taken = {str(n): Place(balancer=0, priority=n) for n in range(priority_of(name), priority_of(name) + 2)}
    assert placed([name, *taken], taken)[name]["priority"] == priority_of(name) + 2


def test_a_full_balancer_is_followed_by_another() -> None:
    names = [f"service-{n}" for n in range(200)]
    places = placed(names, {})
    assert [sum(place["balancer"] == k for place in places.values()) for k in range(5)] == [49, 49, 49, 49, 4]
    fewer = {name: places[name] for name in names if places[name]["balancer"] > 0}
    assert placed([*fewer, "new"], fewer)["new"]["balancer"] == 0


def test_the_default_stays_when_others_come() -> None:
    assert default_service(["echo"], None) == "echo"
    assert default_service(["a", "echo"], "echo") == "echo"
    assert default_service(["a", "b"], None) is None
    assert default_service(["a", "b"], "") is None


def test_the_default_that_goes_is_not_replaced_by_guess() -> None:
    assert default_service(["a", "b"], "echo") is None
    assert default_service(["a"], "echo") == "a"
