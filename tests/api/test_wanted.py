"""The floors on the wire, as KEDA, Prometheus and people read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.control.floor import Floor
from tests.api.conftest import CHANGER, CLIENT, READER, SCRAPER, client, keys, served
from tests.api.fake_manager import FakeManager

ONE = Floor("inception", "g6.xlarge/on-demand", 3, "370 requests/s at\n+120 s", 2.4144, 42.0)
OTHER = Floor("inception", "g6.2xlarge/on-demand", 1, "spare", 1.0, 42.0)
THIRD = Floor("sentiment", "g6.xlarge/on-demand", 0, "the plan needs none of it", 0.0, 1.0)


class Floors:
    """The fresh floors, as a test sets them."""

    def __init__(self) -> None:
        self.fresh: list[Floor] = [ONE]

    def __call__(self) -> list[Floor]:
        return self.fresh


@pytest.fixture
def floors() -> Floors:
    return Floors()


@pytest.fixture
def url(manager: FakeManager, floors: Floors) -> Iterator[str]:
    with served(manager, None, floors=floors) as address:
        yield address


def ask(url: str, path: str, key: str | None = None) -> httpx.Response:
    with client(url, key) as asking:
        return asking.get(path)


def metrics(url: str) -> dict[tuple[str, ...], float]:
    page = ask(url, "/metrics").text
    families = text_string_to_metric_families(page)
    return {
        (s.name, s.labels["service"], s.labels["offer"]): s.value
        for family in families
        for s in family.samples
        if s.name.startswith("mark_wanted")
    }


def test_floor_is_a_metric_with_dollars_and_age(url: str) -> None:
    labels = ("inception", "g6.xlarge/on-demand")
    assert metrics(url) == {
        ("mark_wanted_replicas", *labels): 3.0,
        ("mark_wanted_usd_per_hour", *labels): 2.4144,
        ("mark_wanted_age_seconds", *labels): 42.0,
    }


def test_reason_is_a_comment_and_no_series(url: str) -> None:
    page = ask(url, "/metrics").text
    assert "\n# inception g6.xlarge/on-demand: 370 requests/s at +120 s\n" in page


def test_stale_floor_is_absent_and_never_zero(url: str, floors: Floors) -> None:
    floors.fresh = []
    assert metrics(url) == {}
    for path in ("/wanted", "/wanted/inception"):
        answer = ask(url, path)
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("no fresh floor")


def test_absent_floor_has_its_reason(url: str, floors: Floors, manager: FakeManager) -> None:
    floors.fresh = []
    view = replace(manager.views["inception"], conditions=())
    for changed, why in (
        (view, "the load was not seen for 3 minutes"),
        (replace(view, plan=None), "there is no plan yet: the first one comes about a minute after the start"),
        (replace(view, plan=None, conditions=("no route", "no disk")), "no route; no disk"),
        (replace(view, mode="standing by"), "this process does not lead: it has just started, or another one leads"),
    ):
        manager.views["inception"] = changed
        assert ask(url, "/wanted/inception").json()["error"] == f"no fresh floor: {why}"


def test_json_has_the_value_that_keda_reads(url: str) -> None:
    for path in ("/wanted", "/wanted/inception", "/wanted/inception?offer=g6.xlarge/on-demand"):
        answer = ask(url, path)
        assert answer.status_code == 200
        assert answer.json() == {
            "value": 3, "service": "inception", "offer": "g6.xlarge/on-demand", "reason": ONE.reason,
            "usd_per_hour": 2.4144, "age_s": 42.0,
        }  # fmt: skip


def test_several_floors_are_asked_for_by_name(url: str, floors: Floors) -> None:
    floors.fresh = [ONE, OTHER, THIRD]
    for path in ("/wanted", "/wanted/inception"):
        assert ask(url, path).status_code == 400
    assert ask(url, "/wanted/sentiment").json()["value"] == 0
    assert ask(url, f"/wanted/inception?offer={OTHER.offer}").json()["value"] == 1
    assert len(metrics(url)) == 9


def test_unknown_service_is_refused(url: str) -> None:
    assert ask(url, "/wanted/nothing").status_code == 404


def test_unknown_offer_is_refused_with_those_that_there_are(url: str, floors: Floors) -> None:
    for path in ("/wanted", "/wanted/inception"):
        answer = ask(url, f"{path}?offer=nothing")
        assert answer.status_code == 404
        assert answer.json()["error"] == "no such offer: there is g6.xlarge/on-demand"
    floors.fresh = []
    assert ask(url, "/wanted/inception?offer=nothing").status_code == 503


@pytest.mark.parametrize(
    ("key", "path", "status"),
    [
        (None, "/wanted", 401),
        (CLIENT, "/wanted", 403),
        (SCRAPER, "/wanted", 403),
        (READER, "/wanted", 200),
        (CHANGER, "/wanted", 200),
        (None, "/metrics", 401),
        (SCRAPER, "/metrics", 200),
    ],
)
def test_keys_are_asked_for(manager: FakeManager, floors: Floors, key: str | None, path: str, status: int) -> None:
    with served(manager, keys(), floors=floors) as address:
        assert ask(address, path, key).status_code == status


def test_controller_of_a_site_has_no_floors(manager: FakeManager) -> None:
    with served(manager, None) as address:
        assert ask(address, "/wanted").status_code == 404
        assert metrics(address) == {}
