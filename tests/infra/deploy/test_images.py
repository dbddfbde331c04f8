"""Machine images stay until newer ones are asked for."""

from __future__ import annotations

from typing import Any

from mark_infra.deploy.images import PinnedImages, pinned

HAD: dict[str, Any] = {
    "controller": "ami-c",
    "services": {"a": {"parameter": "x86", "id": "ami-1"}, "b": {"parameter": "x86", "id": "ami-1"}},
    "former": ["ami-0"],
}


def test_a_new_site_takes_the_newest() -> None:
    assert pinned({"a": "x86"}, {}, newest=False) == PinnedImages(None, {"a": None}, ())


def test_a_site_keeps_what_it_has() -> None:
    assert pinned({"a": "x86", "b": "x86", "c": "x86"}, HAD, newest=False) == PinnedImages(
        "ami-c", {"a": "ami-1", "b": "ami-1", "c": None}, ("ami-0",)
    )


def test_another_kind_of_image_is_looked_up() -> None:
    """The old one may be needed for a roll-back, though another service has it still."""
    assert pinned({"a": "gpu", "b": "x86"}, HAD, newest=False) == PinnedImages(
        "ami-c", {"a": None, "b": "ami-1"}, ("ami-0",)
    )
    assert pinned({"a": "gpu", "b": "gpu"}, HAD, newest=False).former == ("ami-1", "ami-0")


def test_newer_ones_are_asked_for() -> None:
    assert pinned({"a": "x86"}, HAD, newest=True) == PinnedImages(None, {"a": None}, ("ami-1", "ami-0"))


def test_only_the_last_former_ones_are_kept() -> None:
    had = {**HAD, "former": [f"ami-f{n}" for n in range(9)]}
    assert pinned({"a": "gpu"}, had, newest=False).former == ("ami-1", "ami-f0", "ami-f1", "ami-f2", "ami-f3")
