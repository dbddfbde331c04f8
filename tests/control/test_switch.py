"""While no instance is ready, functions of the serving release answer, even after another release was deployed."""

from __future__ import annotations

from dataclasses import replace

from mark.control.rollout import RolloutStage
from mark.domain.backoff import ROLLOUT
from mark.domain.errors import ThrottledError
from tests.control.test_rollout import Rolling, serving


def switches(world: Rolling) -> list[tuple[str, str]]:
    return [(what, outcome) for what, outcome in world.journal() if what.startswith("switch")]


def test_the_first_release_is_told_once() -> None:
    world = Rolling()
    assert world.functions.switched == ["a"]
    assert switches(world) == [("switch functions to release a", "done")]


def test_a_new_release_answers_once_its_canary_passed() -> None:
    world = Rolling()
    world.deploy("b")
    world.until(RolloutStage.CANARY)
    world.run(30.0)
    assert world.functions.switched == ["a"], "it is on trial"
    world.until(RolloutStage.ROLLING)
    world.run(5.0)
    assert world.functions.switched == ["a", "b"]
    world.until(RolloutStage.DONE)
    world.run(600.0)
    assert world.functions.switched == ["a", "b"], "the same is not asked for again"


def test_a_release_that_is_stopped_at_its_canary_never_answers() -> None:
    world = Rolling()
    world.ill["b"] = "errors"
    world.deploy("b")
    world.run(1800.0)
    assert world.rollout.refused == ("b",)
    assert world.functions.switched == ["a"]


def test_a_release_that_is_taken_back_answers_no_more() -> None:
    world = Rolling()
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(5.0)
    world.controller.roll_back()
    world.run(5.0)
    assert world.rollout.release == "a"
    assert world.functions.switched == ["a", "b", "a"]


def test_a_failure_is_tried_again_after_a_minute() -> None:
    world = Rolling()
    world.functions.error = ThrottledError("slowly")
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    began_s = world.clock.t_s
    world.run(ROLLOUT.first_s - 10.0)
    failed = switches(world)[1:]
    assert [what for what, _ in failed] == ["switch functions to release b"], "and not with every round"
    assert "slowly" in failed[0][1]
    world.functions.error = None
    world.run(ROLLOUT.first_s)
    assert world.functions.switched == ["a", "b"]
    assert world.clock.t_s - began_s <= 2.0 * ROLLOUT.first_s


def test_another_controller_does_not_ask_again() -> None:
    world = Rolling()
    world.controller = world.controller_again()
    world.run(60.0)
    assert world.functions.switched == ["a"]


def test_a_release_without_a_function_leaves_it_as_it_is() -> None:
    world = Rolling()
    world.functions.without = {"b"}
    world.deploy("b")
    world.until(RolloutStage.ROLLING)
    world.run(600.0)
    assert world.functions.switched == ["a"]
    assert len(switches(world)) == 1, "nothing was changed, so there is no line"


def test_a_service_without_functions_asks_for_nothing() -> None:
    world = Rolling(replace(serving(), function=None))
    world.deploy("b")
    world.run(1800.0)
    assert world.rollout.release == "b"
    assert world.functions.switched == []


def test_what_is_on_trial_is_not_told_of_late_switches() -> None:
    world = Rolling()
    world.functions.reset()
    world.deploy("b")
    world.controller.state = replace(world.controller.state, switched="", switch_at_s=world.clock.t_s + 30.0)
    world.until(RolloutStage.CANARY)
    world.run(30.0)
    assert world.functions.switched == ["a"]
