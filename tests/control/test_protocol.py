"""The protocol of lease, intents and launches: searched to the end in a model, with which the code agrees."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.control.protocol_code import PLANTED, CodeController, coded, shown_by
from tests.control.protocol_model import DONE, LOST, PROPERTIES, REFUSED, Action, Bounds, Rules, actions, after, begun
from tests.control.protocol_model import search as searched

NO_BOUNDS = 10**9
STEPS = 60  # of a history


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        (Bounds(minutes=1, crashes=0, faults=1), 2259),
        (Bounds(minutes=2, crashes=1, faults=0), 8788),
        pytest.param(Bounds(minutes=2, crashes=1, faults=1), 57862, marks=pytest.mark.acceptance),
        pytest.param(Bounds(minutes=2, crashes=0, faults=1, needs=2), 54495, marks=pytest.mark.acceptance),
        pytest.param(Bounds(minutes=1, crashes=0, faults=1, controllers=3), 15795, marks=pytest.mark.slow),
        pytest.param(Bounds(minutes=6, crashes=1, faults=1, passes=("minutes",)), 37994, marks=pytest.mark.slow),
        pytest.param(Bounds(minutes=1, crashes=1, faults=2, refusals=True), 34969, marks=pytest.mark.slow),
    ],
)
def test_whatever_fails_the_need_is_met_once(bounds: Bounds, states: int) -> None:
    """Every property holds in every reachable state. Their number is fixed so that none is lost unnoticed."""
    assert searched(bounds) == (states, "", ())


@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        (Rules(waits=False), "one leader"),
        (Rules(fenced=False), "fenced"),
        (Rules(written_first=False), "owned"),
        (Rules(looks_again=False), "met"),
        (Rules(same_token=False), "owned"),
        (Rules(counts_unsure=False), "one launch"),
        (Rules(keeps_unsure=False), "owned"),
        (Rules(keeps_made=False), "owned"),
        (Rules(dated_by_call=False), "owned"),
    ],
)
def test_no_rule_can_be_left_out(rules: Rules, broken: str) -> None:
    """Without it a property does not hold; the shortest way there is a story of a few steps."""
    found = searched(Bounds(minutes=2, crashes=0, faults=1), rules, settles=broken == "met")
    assert found.broken == broken, " / ".join(map(str, found.path))
    assert found.broken in PROPERTIES
    assert len(found.path) <= 15


def test_a_call_after_its_intent_has_ended_may_launch_twice() -> None:
    """No lease prevents this (docs/reliability.md): a controller calls after it stood still beyond the intent.

    Another controller asked for the same, was refused, and made a new launch. Then the late call arrived and succeeded.
    """
    bounds = Bounds(minutes=1, crashes=0, faults=1, refusals=True, late_calls=True)
    found = searched(bounds, settles=False)
    assert found.broken in ("one launch", "owned")
    assert [step.outcome for step in found.path if step.outcome != DONE] == [REFUSED]


# -- the code ----------------------------------------------------------------------------------------------------------


def agrees(seed: int, kind: type[CodeController] = CodeController) -> Counter[tuple[str, str]]:
    """Draw a history from the seed and play it in the model and in the code; after each step both must show the same.

    Returns how often which effect came out how.
    """
    draw, met = Random(seed), Counter[tuple[str, str]]()
    bounds = Bounds(
        draw.choice((2, 2, 3)), draw.choice((1, 1, 2)), NO_BOUNDS, NO_BOUNDS, NO_BOUNDS,
        ("minute", "minutes"), refusals=True, late_calls=True,
    )  # fmt: skip
    model, said = begun(bounds), list[str]()
    with coded(bounds.needs, bounds.controllers, kind) as code:
        assert code.shown() == shown_by(model)
        for _ in range(STEPS):
            action = _drawn(draw, list(actions(model, bounds)))
            said.append(str(action))
            if action.verb == "step":
                met[model.controllers[action.controller].at, action.outcome] += 1
            model = after(model, action)
            code.do(action)
            assert code.shown() == shown_by(model), f"seed {seed}: {', '.join(said)}"
    return met


def _agrees_to_the_end(seed: int, kind: type[CodeController]) -> bool:
    try:
        agrees(seed, kind)
    except AssertionError:
        return False
    return True


def _drawn(draw: Random, choices: list[Action]) -> Action:
    weights = {"step": 6.0, "restart": 3.0, "minute": 2.0, "crash": 0.3, "minutes": 0.2}
    return draw.choices(choices, [weights[one.verb] if one.outcome == DONE else 0.5 for one in choices])[0]


@pytest.mark.untraced
def test_the_code_agrees_with_the_model() -> None:
    """Random histories are compared at every step; in them every effect failed in each of its ways."""
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(70):
        met += agrees(seed)
    assert len(met) == 16, met


@pytest.mark.slow
@pytest.mark.parametrize("histories", [250, pytest.param(10_000, marks=pytest.mark.acceptance)])
def test_the_code_agrees_on_many_histories(histories: int) -> None:
    met: Counter[tuple[str, str]] = Counter()
    for seed in range(1000, 1000 + histories):
        met += agrees(seed)
    assert met.total() > 30 * histories


@pytest.mark.parametrize("name", PLANTED)
def test_code_with_a_planted_fault_does_not_agree(name: str) -> None:
    assert not all(_agrees_to_the_end(seed, PLANTED[name]) for seed in range(60))


def test_a_lost_answer_is_asked_for_again_under_its_token() -> None:
    """One history by hand: the launch is made, its answer lost, and the next controller finds it."""
    story = [
        Action("step", 0), Action("step", 0), Action("step", 0, LOST), Action("crash", 0), Action("step", 1),
        Action("minute"), *[Action("step", 1)] * 4,
    ]  # fmt: skip
    model = begun(Bounds())
    with coded(1, 2) as code:
        for action in story:
            model = after(model, action)
            code.do(action)
            assert code.shown() == shown_by(model)
        assert code.shown() == {
            "at": ["dead", "round"], "leads": [False, True], "parts": [0, 2], "term": (1, 2), "intents": [(1, True)],
            "launched": [1], "ledger": [1],
        }  # fmt: skip
