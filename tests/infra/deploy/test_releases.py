"""Releases through the controller's store: rolled back, requested again, and watched until they serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mark_infra.aws.site import Site, SiteService, TemplateVersion
from mark_infra.deploy.releases import LOOK_S, PATIENCE_S, RolloutNews, SiteReleases
from mark_infra.store.sqlite import SqliteTable
from mark_infra.store.store import ServiceStore

from mark.control.rollout import Rollout, RolloutStage, remembered
from mark.control.service_term import AGAIN, BACK, WISH
from mark.control.state import ControllerState
from mark.domain.errors import BadInput


class Place:
    """A site with one service whose release is b, a store, and time that passes in waits."""

    def __init__(self, table: SqliteTable) -> None:
        there = SiteService("lt-1", {"z": "subnet-1"}, release="b", launch_template_version="2")
        site = Site("mark", "eu-west-1", "sqlite:x", services={"echo": there})
        self.store, self.now_s, self.script = ServiceStore(table, "echo"), 0.0, list[Callable[[], None]]()
        self.releases = SiteReleases(site, table, monotonic=lambda: self.now_s, pause=self._wait)

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds
        if self.script:
            self.script.pop(0)()

    def has(self, rollout: Rollout | None) -> None:
        self.store.put("state", ControllerState(rollout=rollout))

    def then(self, *rollouts: Rollout) -> None:
        self.script += [lambda one=one: self.has(one) for one in rollouts]  # type: ignore[misc]

    def texts(self, *, back: bool = False) -> list[str]:
        return [one.text for one in self.releases.news(["echo"], back=back)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    table = SqliteTable(tmp_path / "t.sqlite")
    yield Place(table)
    table.close()


CANARY = Rollout("a", RolloutStage.CANARY, candidate="b")
ROLLING = Rollout("b", RolloutStage.ROLLING, "a")


def test_a_roll_out_is_followed_until_it_serves(place: Place) -> None:
    place.then(Rollout("a"), CANARY, CANARY, Rollout("b", RolloutStage.ROLLING, "a"), Rollout("b", before="a"))
    assert place.texts() == [
        "the controller starts",
        "release b waits for the controller to take it up",
        "release b: canary",
        "release b: rolling",
        "release b serves on all instances",
    ]


def test_a_stopped_release_is_no_good_end(place: Place) -> None:
    place.has(CANARY)
    stopped = Rollout("a", RolloutStage.ROLLING, refused=("b",), reason="50 of its 50 answers are errors")
    place.then(stopped, Rollout("a", refused=("b",), reason=stopped.reason))
    assert list(place.releases.news(["echo"]))[-1] == RolloutNews(
        "echo", "release b: 50 of its 50 answers are errors; a serves", settled=True, good=False
    )


def test_what_makes_no_progress_is_not_waited_for_for_ever(place: Place) -> None:
    place.has(CANARY)
    assert place.texts() == ["release b: canary"]
    assert place.now_s > PATIENCE_S


def test_what_goes_on_for_hours_is_waited_for(place: Place) -> None:
    """A long trial and slow boots are progress, though the stage stays the same."""
    place.has(None)
    looks = round(0.8 * PATIENCE_S / LOOK_S)
    trial = [replace(CANARY, minutes=90 - n, ready={"a": 8, "b": 1}) for n in range(0, 90, 20)]
    rolling = [replace(ROLLING, ready={"a": 8 - n, "b": n}) for n in (2, 4, 6)]
    for one in (*trial, *rolling):
        place.then(*[one] * looks)
    place.then(Rollout("b", before="a"))
    texts = place.texts()
    assert texts[1] == "release b: canary for 90 more min, ready: 8 of a, 1 of b"
    assert texts[-2:] == ["release b: rolling, ready: 2 of a, 6 of b", "release b serves on all instances"]
    assert place.now_s > 3 * PATIENCE_S


def test_a_paused_service_is_said_to_be_paused(place: Place) -> None:
    place.has(Rollout("a"))
    place.store.put("paused", True)
    assert place.texts() == ["release b waits for the controller to take it up; the service is paused"]


def test_what_another_version_stored_can_be_taken_back(place: Place) -> None:
    """Its state is unreadable, except for the plain facts in it."""
    place.store.put("rollout", remembered(Rollout("b", before="a")))
    place.releases.roll_back(["echo"])
    assert place.store.get(WISH) == {"wish": BACK, "release": "b"}


def test_roll_back_of_several_services_goes_on_where_it_failed(place: Place) -> None:
    """The first try reached only the first service."""
    table, site = place.releases._table, place.releases._site
    both = replace(site, services={"echo": site.service("echo"), "next": site.service("echo")})
    releases = SiteReleases(both, table)
    place.has(Rollout("a", refused=("b",)))
    following = ServiceStore(table, "next")
    following.put("state", ControllerState(rollout=Rollout("b", before="a")))
    releases.roll_back(["echo", "next"])
    assert following.get(WISH) == {"wish": BACK, "release": "b"}
    assert place.store.get(WISH) is None


def test_a_release_is_taken_back_through_the_store(place: Place) -> None:
    place.has(Rollout("b", before="a"))
    place.releases.roll_back(["echo"])
    assert place.store.get(WISH) == {"wish": BACK, "release": "b"}
    back = Rollout("a", RolloutStage.ROLLING, refused=("b",), reason="it was taken back", back=True)
    place.then(back, Rollout("a", refused=("b",), reason="it was taken back"))
    assert list(place.releases.news(["echo"], back=True))[-1] == RolloutNews(
        "echo", "release b: it was taken back; a serves", settled=True
    )


@pytest.mark.parametrize(
    ("rollout", "why"),
    [
        (None, "has no releases yet"),
        (Rollout("b"), "there is no release before this one"),
        (Rollout("a", refused=("b",)), "is taken back already, and a serves"),
        (Rollout("c", before="b"), "deployed from elsewhere"),
        (Rollout("c", RolloutStage.ROLLING, before="a"), "deployed from elsewhere"),
    ],
)
def test_a_roll_back_to_nothing_is_refused(place: Place, rollout: Rollout | None, why: str) -> None:
    if rollout is not None:
        place.has(rollout)
    with pytest.raises(BadInput, match=why):
        place.releases.roll_back(["echo"])
    assert place.store.get(WISH) is None


def test_a_revert_in_a_roll_out_can_be_taken_back(place: Place) -> None:
    """b was deployed while c took its place, so c is the release before it."""
    place.has(Rollout("b", RolloutStage.ROLLING, before="c", back=True))
    place.releases.roll_back(["echo"])
    assert place.store.get(WISH) == {"wish": BACK, "release": "b"}


def test_versions_that_may_still_be_launched(place: Place) -> None:
    def templates() -> set[tuple[str, str]]:
        return {(one.launch_template, one.version) for one in place.releases.templates("echo")}

    assert templates() == set()
    place.store.put("templates", {"z": "1", "a": "2", "b": "3", "c": "4"})
    gpu = {"launch_template": "lt-2", "version": "1"}
    place.store.put("platforms", {"c": {"x86_64": {"launch_template": "lt-1", "version": "4"}, "x86_64-gpu": gpu}})
    place.has(Rollout("b", RolloutStage.CANARY, before="a", candidate="c", refused=("z",)))
    assert templates() == {("lt-1", "2"), ("lt-1", "3"), ("lt-1", "4"), ("lt-2", "1")}
    place.has(Rollout("b", before="gone"))
    assert templates() == {("lt-1", "3")}


@pytest.mark.parametrize(
    ("rollout", "version"),
    [
        (None, None),
        (Rollout("b"), None),
        (Rollout("b", before="gone"), None),
        (Rollout("b", RolloutStage.ROLLING, before="a"), "1"),
        (Rollout("a", RolloutStage.CANARY, before="z", candidate="b"), "1"),  # a still serves
        (Rollout("a", RolloutStage.ROLLING, before="", refused=("b",)), "1"),  # taken back by an earlier call
    ],
)
def test_what_a_roll_back_would_launch_from(place: Place, rollout: Rollout | None, version: str | None) -> None:
    place.store.put("templates", {"z": "0", "a": "1", "b": "2"})
    if rollout is not None:
        place.has(rollout)
    found = place.releases.before("echo")
    assert found == (None if version is None else TemplateVersion("lt-1", version))


def test_deploying_again_asks_for_it_again(place: Place) -> None:
    place.releases.roll_out(["echo"])
    assert place.store.get(WISH) == {"wish": AGAIN, "release": "b"}
