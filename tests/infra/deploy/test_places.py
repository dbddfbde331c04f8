"""Places on load balancers follow from names and are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mark_infra.deploy.places import MOST_GROUPS, MOST_SERVICES, Place, default_service, placed, priority_of

NAMES = st.text("abcdefghij", min_size=1, max_size=3)


def colliding() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for n in range(10_000):
        other = seen.setdefault(priority_of(f"s{n}"), f"s{n}")
        if other != f"s{n}":
            return other, f"s{n}"
    raise AssertionError("no two alike")


@given(st.lists(st.dictionaries(NAMES, st.integers(1, 4), min_size=1, max_size=120), min_size=1, max_size=4))
def test_places_are_kept_and_are_each_services_own(sites: list[dict[str, int]]) -> None:
    before: dict[str, Place] = {}
    for classes in sites:
        places = placed(classes, before, classes)
        assert places.keys() == classes.keys()
        where = {name: (place["balancer"], place["priority"]) for name, place in places.items()}
        assert all(
            where[name] == (before[name]["balancer"], before[name]["priority"]) for name in places & before.keys()
        )
        assert len(set(where.values())) == len(where)
        for balancer in {place["balancer"] for place in places.values()}:
            there = [place for place in places.values() if place["balancer"] == balancer]
            assert len(there) <= MOST_SERVICES
            assert sum(place["target_groups"] + 1 for place in there) <= MOST_GROUPS
        assert all(1 <= place["priority"] <= 24_999 for place in places.values())
        before = places


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1), min_size=1, max_size=6))
def test_target_groups_are_as_many_as_ever_needed(sites: list[dict[str, int]]) -> None:
    """This holds while there is room."""
    before: dict[str, Place] = {}
    most: dict[str, int] = {}
    for classes in sites:
        before = placed(classes, before, classes)
        most = {name: max(count, most.get(name, 1)) for name, count in classes.items()}
        assert {name: place["target_groups"] for name, place in before.items()} == most


def test_a_full_balancer_gives_a_service_no_more_groups() -> None:
    """It stays in its place, and types that differ more share a group."""
    full = placed([f"service-{n}" for n in range(49)], {})
    grown = placed(full, full, dict.fromkeys(full, 3))
    assert sorted(place["target_groups"] for place in grown.values()) == [1] * 48 + [3]


def test_by_grpc_fewer_services_fit() -> None:
    """Each has three rules and twice as many groups, apart from the function's."""
    one = placed([f"service-{n}" for n in range(40)], {}, grpc=True)
    assert sum(place["balancer"] == 0 for place in one.values()) == 33
    four = placed(one, {}, dict.fromkeys(one, 4), grpc=True)
    assert sum(place["balancer"] == 0 for place in four.values()) == 11


def test_a_place_of_a_site_that_had_one_group() -> None:
    assert placed(["a"], {"a": {"balancer": 0, "priority": 7}})["a"] == Place(balancer=0, priority=7, target_groups=1)


def test_the_one_that_was_there_keeps_a_priority_of_two() -> None:
    """The order of names does not matter."""
    one, other = colliding()
    for first, second in ((one, other), (other, one)):
        places = placed([one, other], placed([first], {}))
        assert places[first]["priority"] == priority_of(first)
        assert places[second]["priority"] == priority_of(second) % 24_999 + 1


def test_a_priority_goes_on_from_the_last_to_the_first() -> None:
    name = "echo"
    taken = {
        str(n): Place(balancer=0, priority=n, target_groups=1) for n in range(priority_of(name), priority_of(name) + 2)
    }
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
