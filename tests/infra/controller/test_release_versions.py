"""Which versions of template and function belong to a release, across controllers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.site import SiteService, TemplateVersion
from mark_infra.controller.release_versions import (
    FUNCTIONS,
    MOST,
    PLATFORMS,
    TEMPLATES,
    ReleaseVersions,
    know_release,
    with_release,
)

from mark.control.memory_store import MemoryStore

RELEASES = st.sampled_from("abcdefg")


def site(release: str, template: str, function: str | None = None, platforms: tuple[str, ...] = ()) -> SiteService:
    return SiteService(
        "lt-1", {"a": "s"}, function=function, release=release, launch_template_version=template,
        platforms={name: TemplateVersion(f"lt-{name}", template) for name in platforms},
    )  # fmt: skip


def test_each_release_keeps_what_it_was_deployed_with() -> None:
    store = MemoryStore()
    assert know_release(site("a", "1", "f:1"), store, store) == ReleaseVersions({"a": "1"}, {}, {"a": "f:1"})
    known = know_release(site("b", "2", None, ("arm64",)), store, store)
    of_b = {"arm64": {"launch_template": "lt-arm64", "version": "2"}}
    assert known == ReleaseVersions({"a": "1", "b": "2"}, {"b": of_b}, {"a": "f:1"})
    assert know_release(site("c", "3", "f:2"), store, store).functions == {"a": "f:1", "c": "f:2"}
    assert store.get(TEMPLATES) == {"a": "1", "b": "2", "c": "3"}
    assert store.get(FUNCTIONS) == {"a": "f:1", "c": "f:2"}
    assert store.get(PLATFORMS) == {"b": of_b}


def test_a_dry_run_writes_to_its_own_store_only() -> None:
    kept, own = MemoryStore(), MemoryStore()
    assert know_release(site("a", "1"), kept, own).templates == {"a": "1"}
    assert kept.get(TEMPLATES) is None
    assert own.get(TEMPLATES) == {"a": "1"}


def test_without_releases_nothing_is_known() -> None:
    store = MemoryStore()
    assert know_release(site("", "", "f"), store, store) == ReleaseVersions()
    assert store.get(FUNCTIONS) is None


def test_a_release_that_lost_its_function_has_none() -> None:
    assert with_release({"a": "f:1", "b": "f:2"}, "a", None, ()) == {"b": "f:2"}


@given(st.dictionaries(st.integers(0, 99).map(str), st.just("1"), max_size=60), st.sets(st.integers(0, 99).map(str)))
def test_what_a_roll_out_needs_is_never_forgotten(known: dict[str, str], needed: set[str]) -> None:
    found = with_release(known, "new", "2", needed)
    assert found.pop("new") == "2"
    assert needed & set(known) <= set(found) <= set(known)
    assert len(set(found) - needed) <= MOST - 1
    assert list(found) == [name for name in known if name in found], "the oldest are forgotten first"


@given(st.lists(st.tuples(RELEASES, st.integers(1, 9).map(str)), min_size=1))
def test_the_last_word_on_a_release_counts(said: list[tuple[str, str]]) -> None:
    known: dict[str, str] = {}
    for release, version in said:
        known = with_release(known, release, version, ())
    assert known == dict(said)
