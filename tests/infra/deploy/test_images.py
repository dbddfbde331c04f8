"""Machine images stay until newer ones are requested."""

from __future__ import annotations

from typing import Any

import pytest
from mark_infra.deploy.images import PinnedImages, pinned

HAD: dict[str, Any] = {
    "controller": "ami-c",
    "services": {"a": {"parameter": "x86", "id": "ami-1"}, "b": {"parameter": "x86", "id": "ami-1"}},
    "former": ["ami-0"],
}


def test_a_new_site_takes_the_newest() -> None:
    assert pinned({"a": ["x86", "gpu"]}, {}, newest=False) == PinnedImages(None, {"a": {"x86": None, "gpu": None}}, ())


def test_a_site_keeps_what_it_has() -> None:
    assert pinned({"a": ["x86"], "b": ["x86"], "c": ["x86"]}, HAD, newest=False) == PinnedImages(
        "ami-c", {"a": {"x86": "ami-1"}, "b": {"x86": "ami-1"}, "c": {"x86": None}}, ("ami-0",)
    )


def test_another_kind_of_image_is_looked_up() -> None:
    """The old image stays for a roll-back: as another service's, or else among the former ones."""
    assert pinned({"a": ["gpu"], "b": ["x86"]}, HAD, newest=False) == PinnedImages(
        "ami-c", {"a": {"gpu": None}, "b": {"x86": "ami-1"}}, ("ami-0",)
    )
    assert pinned({"a": ["gpu"], "b": ["gpu"]}, HAD, newest=False).former == ("ami-1", "ami-0")


def test_each_platform_keeps_its_image() -> None:
    """The order of platforms does not matter, because an image is known by its parameter."""
    more = {"arm64": {"parameter": "arm", "id": "ami-2"}, "x86_64-gpu": {"parameter": "gpu", "id": "ami-3"}}
    had = {**HAD, "services": {"a": {"parameter": "x86", "id": "ami-1", "platform": "x86_64", "more": more}}}
    assert pinned({"a": ["gpu", "x86"]}, had, newest=False) == PinnedImages(
        "ami-c", {"a": {"gpu": "ami-3", "x86": "ami-1"}}, ("ami-2", "ami-0")
    )


def test_newer_ones_are_asked_for() -> None:
    assert pinned({"a": ["x86"]}, HAD, newest=True) == PinnedImages(None, {"a": {"x86": None}}, ("ami-1", "ami-0"))


@pytest.mark.parametrize(("images", "kept"), [(1, 8), (13, 7), (18, 5)])
def test_only_the_last_former_ones_are_kept(images: int, kept: int) -> None:
    """They are those of two releases of four platforms, unless the site's rights have too little room."""
    had = {**HAD, "former": [f"ami-f{n}" for n in range(9)]}
    asked = {"a": [f"parameter-{n}" for n in range(images)]}
    assert pinned(asked, had, newest=False).former == ("ami-1", *had["former"])[:kept]
