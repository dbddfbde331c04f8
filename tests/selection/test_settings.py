"""The settings of a selection."""

from __future__ import annotations

import pytest

from mark.selection.settings import POLICIES, SelectionSettings


@pytest.mark.parametrize(
    ("policy", "memory"), [("exp4", 140.0), ("exp3", 350.0), ("thompson", 350.0), ("cascade", 140.0), ("a:B", 140.0)]
)
def test_policies_that_see_one_answer_remember_longer(policy: str, memory: float) -> None:
    assert SelectionSettings(policy).memory == memory
    assert SelectionSettings(policy, half_life=9.0).memory == 9.0


def test_only_a_cascade_explores_by_itself() -> None:
    assert {policy: SelectionSettings(policy).explores for policy in POLICIES if policy != "cascade"} == dict.fromkeys(
        [policy for policy in POLICIES if policy != "cascade"], 0.0
    )
    assert SelectionSettings("cascade").explores == 0.02
    assert SelectionSettings("cascade", explore=0.0).explores == 0.0


@pytest.mark.parametrize(
    ("settings", "learns"),
    [
        (SelectionSettings("split"), False),
        (SelectionSettings("split", champion="a"), True),
        (SelectionSettings("cascade", threshold=0.5), False),
        (SelectionSettings("cascade", correct_usd=1e-5), True),
        (SelectionSettings("exp4:thesis"), True),
        (SelectionSettings("thompson"), True),
    ],
)
def test_settings_say_whether_feedback_changes_anything(settings: SelectionSettings, learns: bool) -> None:
    assert settings.learns is learns
