"""The settings of personal heads: the meaning of a section without keys."""

from __future__ import annotations

from mark.personal.settings import ALPHAS, EXPLORING, Exploration, PersonalSettings


def test_settings_are_greedy_ridge_from_the_item_mean_unless_said() -> None:
    found = PersonalSettings()

    assert (found.loss, found.ridge, found.bias, found.prior) == ("squared", 1.0, True, "item")
    assert (found.explore, found.keep_days, found.durability) == (Exploration("greedy", 0.0, 0.0), None, "peers")


def test_every_policy_has_its_alpha() -> None:
    assert set(ALPHAS) == set(EXPLORING)
    assert ALPHAS["greedy"] == 0.0
