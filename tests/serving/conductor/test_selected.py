"""A conductor that selects among candidates: real replicas, whose models are in this process."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mark.domain.price_list import PriceList
from mark.models.answer import DEFAULT, INSTANCE, NOBODY, Answer, Provenance
from mark.models.call import Call, Reply
from mark.selection.one_asked import FixedSplit
from mark.selection.outcome import QueryNote, notes_from_json
from mark.selection.policies import policy_of
from mark.selection.policy import Query, SelectionPolicy
from mark.selection.query import Selection
from mark.selection.settings import SelectionSettings
from mark.selection.state import SelectionState
from mark.serving.backend.metrics import ModelMetrics
from mark.serving.backend.request import Request
from mark.serving.conductor.conductor import ConductedStage, Conductor
from mark.serving.conductor.selected import CallPrices, ServedSelection
from mark.serving.conductor.selection_learner import SelectionLearner
from mark.serving.feedback.port import Feedback, Observation, RecordedBody, ServedAnswer
from mark.serving.process_settings import SelectionServing
from tests.selection.selections import HalfRight
from tests.serving.conductor.cast import Cast, raises, run

Predict = Callable[[list[Any]], Any]
NO_BODY = RecordedBody("", 0, b"")


class Candidates(Cast):
    """Candidates that answer the label (and score) of a function of the item, selected by the settings."""

    def __init__(
        self,
        models: dict[str, Predict],
        settings: SelectionSettings,
        *,
        draws: float = 0.5,
        state: type[SelectionState] = SelectionState,
        now_usd: Sequence[float] | None = None,
        planned_usd: Sequence[float] = (),
        own_policy: SelectionPolicy | None = None,
        cached: bool = False,
    ) -> None:
        self.state = state(list(models), settings)
        generator = FixedDraws(draws)
        made = own_policy or policy_of(settings, len(models), generator)  # type: ignore[arg-type]
        prices = None if now_usd is None else lambda now_s: CallPrices(now_usd, planned_usd)
        self.served = ServedSelection(list(models), Selection(made, self.state, settings, generator.random), prices)
        self.learner = SelectionLearner(self.state, self.served.counts, settings.champion)
        super().__init__(models, driver=self.served, cached=cached)

    def feedback(self, identity: str, **said: Any) -> bool:
        """Learn from feedback on an answer; return whether there was anything to learn."""
        how = self.how[identity]
        answer = ServedAnswer(identity, "p", "1", 0.0, how.made_by, NO_BODY, NO_BODY, how.provenance)
        fact = self.learner.fact(Observation(answer, Feedback(identity, said), 0.0))
        if fact is not None:
            self.learner.apply(fact)
        return fact is not None

    def provenance(self, identity: str) -> Provenance:
        found = self.how[identity].provenance
        assert found is not None
        return found

    async def noted(self, identity: str, answers: int) -> None:
        """Wait until the note of the only item has `answers` answers: a note that took long is replaced later."""
        while sum(one.answered for one in self.notes(identity)[0].asked) < answers:
            await asyncio.sleep(0.001)

    def notes(self, identity: str) -> list[QueryNote]:
        return notes_from_json(self.provenance(identity).note)


class FixedDraws:
    """A generator whose every number is the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def says(label: Any) -> Predict:
    return lambda batch: [label for _ in batch]


def scored(label: Any, score: float) -> Predict:
    return lambda batch: [{"label": label, "score": score} for _ in batch]


def test_ensemble_passes_on_the_answer_of_the_majority() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog"), "c": says("cat")}, SelectionSettings("exp4"))

        assert await cast.ask(0) == (200, "cat", INSTANCE)
        how = cast.provenance("r1")
        assert how.selected == "exp4;a"
        assert how.confidence == pytest.approx(2 / 3)
        assert how.agreement, "no feedback has calibrated it yet"
        assert [one.model for one in how.asked] == ["a", "b", "c"]

    run(main)


def test_feedback_moves_an_ensemble_to_the_candidate_that_is_right() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog"), "c": says("cat")}, SelectionSettings("exp4"))
        for _ in range(20):
            identity = cast.send(0)
            await cast.answer(identity)
            assert cast.feedback(identity, label="dog")

        assert (await cast.ask(0))[1] == "dog"
        said = cast.served.said(0.0)
        assert said["candidates"]["b"]["error"] == 0.0
        assert said["candidates"]["a"]["error"] == 1.0
        assert said["candidates"]["b"]["weight"] > 0.9
        assert said["feedback"] == 20

    run(main)


def test_cascade_asks_the_next_only_below_its_threshold() -> None:
    async def main() -> None:
        settings = SelectionSettings("cascade", threshold=0.8, score="score", answer="label", explore=0.0)
        unsure = Candidates({"small": scored(1, 0.7), "large": scored(2, 0.1)}, settings)
        sure = Candidates({"small": scored(1, 0.9), "large": scored(2, 0.1)}, settings)

        assert (await unsure.ask(0))[1]["label"] == 2
        assert unsure.provenance("r1").selected == "cascade;large"
        assert (await sure.ask(0))[1]["label"] == 1
        assert sure.pools["large"].calls == []

    run(main)


def test_one_that_fails_is_replaced_by_another_candidate() -> None:
    async def main() -> None:
        cast = Candidates({"a": raises, "b": says("dog")}, SelectionSettings("split"), draws=0.0)

        assert await cast.ask(0) == (200, "dog", INSTANCE)
        assert cast.said("r1") == {"a": "failed", "b": ""}
        assert cast.provenance("r1").selected == "split;b"
        assert cast.served.counts.missed[0] == 1

    run(main)


def test_query_without_an_answering_candidate_ends_with_the_last_error() -> None:
    async def main() -> None:
        cast = Candidates({"a": raises, "b": raises}, SelectionSettings("exp4"))

        status, body, made_by = await cast.ask(0)
        assert status == 500
        assert "stage " in body["error"]
        assert made_by == INSTANCE

    run(main)


def test_result_without_the_answer_field_is_that_candidates_error() -> None:
    async def main() -> None:
        settings = SelectionSettings("exp4", answer="label")
        cast = Candidates({"a": says("cat"), "b": scored("dog", 0.9)}, settings)

        assert (await cast.ask(0))[1] == {"label": "dog", "score": 0.9}
        assert cast.said("r1") == {"a": "failed", "b": ""}

    run(main)


def test_candidate_that_hangs_is_left_behind_at_the_deadline_and_still_judged() -> None:
    async def main() -> None:
        settings = SelectionSettings("exp4", deadline_s=0.05)
        cast = Candidates({"a": says("cat"), "b": says("cat"), "c": says("dog")}, settings)
        cast.pools["c"].held = True
        cast.pools["b"].held = True
        began_s = cast.conductor.now()

        assert await cast.ask(0) == (200, "cat", INSTANCE)
        assert 0.05 <= cast.conductor.now() - began_s < 1.0
        assert cast.said("r1") == {"a": "", "b": "unused", "c": "unused"}
        cast.pools["c"].release()
        await cast.noted("r1", 2)
        (note,) = cast.notes("r1")
        assert [one.answered for one in note.asked] == [True, False, True]
        assert cast.feedback("r1", label="dog")
        assert cast.state.sums("").losses[2] == 0.0
        assert cast.state.sums("").counts[2] == 1.0, "its late answer was right, and counts"

    run(main)


def test_vote_is_decided_before_a_reply_that_cannot_change_it() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("cat"), "c": says("dog")}, SelectionSettings("exp4"))
        cast.pools["c"].held = True

        assert (await cast.ask(0))[1] == "cat"

    run(main)


def test_default_answers_where_nobody_is_sure() -> None:
    async def main() -> None:
        settings = SelectionSettings("exp4", min_confidence=0.6, default="unsure", has_default=True)
        cast = Candidates({"a": says("cat"), "b": says("dog")}, settings)

        assert await cast.ask(0) == (200, "unsure", DEFAULT)
        assert cast.provenance("r1").selected == "exp4;default"
        assert cast.feedback("r1", label="dog"), "feedback still judges the candidates"
        assert cast.state.sums("").losses[0] == 1.0

    run(main)


def test_default_answers_at_the_deadline_where_no_candidate_does() -> None:
    async def main() -> None:
        settings = SelectionSettings("exp4", min_confidence=0.1, default="none", has_default=True, deadline_s=0.02)
        cast = Candidates({"a": says("cat"), "b": says("cat")}, settings)
        cast.pools["a"].held = cast.pools["b"].held = True

        assert await cast.ask(0) == (200, "none", DEFAULT)

    run(main)


@pytest.mark.parametrize("policy", ["split", "exp3", "cascade"])
def test_another_candidate_answers_for_one_that_hangs_which_counts_as_wrong(policy: str) -> None:
    async def main() -> None:
        threshold = 0.5 if policy == "cascade" else None
        settings = SelectionSettings(policy, threshold=threshold, score="score", answer="label", deadline_s=0.02)
        cast = Candidates({"a": scored("cat", 0.9), "b": scored("dog", 0.9)}, settings, draws=0.1)
        cast.pools["a"].held = True

        assert (await cast.ask(0))[0] == 200
        assert cast.provenance("r1").selected == f"{policy};b"
        assert cast.said("r1") == {"a": "unused", "b": ""}
        assert cast.feedback("r1", label="dog")
        assert cast.state.sums("").losses[0] == (1.0 if policy == "exp3" else 0.0), "only bandits count misses"

    run(main)


def test_without_a_default_a_query_that_nobody_answers_ends_at_its_deadline() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("cat")}, SelectionSettings("exp4"))
        cast.pools["a"].held = cast.pools["b"].held = True

        status, _, made_by = await cast.ask(0, allowed_s=0.05)
        assert (status, made_by) == (504, NOBODY)

    run(main)


def test_answers_that_are_there_at_the_clients_own_deadline_are_combined() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog"), "c": says("dog")}, SelectionSettings("exp4"))
        cast.pools["b"].held = cast.pools["c"].held = True

        assert await cast.ask(0, allowed_s=0.05) == (200, "cat", INSTANCE)

    run(main)


def test_items_of_a_request_are_queries_of_their_own_and_labels_a_list() -> None:
    async def main() -> None:
        settings = SelectionSettings("cascade", threshold=0.5, score="score", answer="label", explore=0.0)

        def small(batch: list[Any]) -> Any:
            return [{"label": item, "score": item / 10} for item in batch]

        cast = Candidates({"small": small, "large": scored("big", 1.0)}, settings)
        identity = cast.send({"instances": [9, 1]})
        _, body, _ = await cast.answer(identity)

        assert [one["label"] for one in body["predictions"]] == [9, "big"]
        assert cast.provenance(identity).selected == "cascade;small,large"
        assert not cast.feedback(identity, label=[9]), "as many labels as items"
        assert cast.feedback(identity, label=[9, "other"])
        assert (cast.state.answers, cast.state.errors) == ([2.0, 1.0], [1.0, 1.0])

    run(main)


def test_contexts_by_key_learn_apart() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog")}, SelectionSettings("exp4", by_key=True))
        for key, label in (("u1", "cat"), ("u2", "dog")) * 30:
            identity = cast.send(0, key=key)
            await cast.answer(identity)
            assert cast.feedback(identity, label=label)

        one, other = cast.send(0, key="u1"), cast.send(0, key="u2")
        assert (await cast.answer(one))[1] == "cat"
        assert (await cast.answer(other))[1] == "dog"
        assert cast.state.contexts == 2

    run(main)


def test_reward_judges_the_candidates_that_gave_the_answer() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog"), "c": says("cat")}, SelectionSettings("exp4"))
        await cast.ask(0)

        assert cast.feedback("r1", reward=0.25)
        assert cast.state.errors == [0.75, 0.0, 0.75]
        assert not cast.feedback("r1", reward=1.5)

    run(main)


def test_guard_switches_off_the_challenger_that_is_proved_worse() -> None:
    async def main() -> None:
        settings = SelectionSettings("exp4", champion="a")
        cast = Candidates({"a": says("cat"), "b": says("dog")}, settings)
        for _ in range(40):
            identity = cast.send(0)
            await cast.answer(identity)
            cast.feedback(identity, label="cat")

        assert cast.state.off == {1}
        await cast.ask(0)
        assert [one.model for one in cast.provenance("r41").asked] == ["a"]
        assert cast.served.said(0.0)["candidates"]["b"]["off"]

    run(main)


def test_memory_that_an_answer_takes_is_counted_alike_before_and_after_a_late_reply() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("cat"), "c": says("dog")}, SelectionSettings("exp4"))
        cast.pools["c"].held = True
        await cast.ask(0)
        before = cast.provenance("r1").memory_bytes()
        note = cast.provenance("r1").note
        cast.pools["c"].release()
        await cast.noted("r1", 3)

        assert cast.provenance("r1").note != note
        assert cast.provenance("r1").memory_bytes() == before

    run(main)


class Raises(FixedSplit):
    """A policy that fails while it combines."""

    def combine(self, query: Query) -> Any:
        raise KeyError("no such thing")


def test_policy_that_raises_ends_the_request_and_not_the_server() -> None:
    async def main() -> None:
        cast = Candidates({"a": says(1), "b": says(2)}, SelectionSettings("my:Raises"), own_policy=Raises([0.5, 0.5]))

        status, body, _ = await cast.ask(0)
        assert (status, body["error"]) == (500, "the policy my:Raises failed: KeyError")
        assert (await cast.ask(1))[0] == 500

    run(main)


class Recorder:
    """A backend that answers nothing, and keeps the deadlines of its calls, in seconds after they came."""

    def __init__(self) -> None:
        self.metrics = ModelMetrics("p", "1", "a")
        self.ready, self.least_s = True, 0.0
        self.allowed_s: list[float] = []

    def offer(self, request: Request) -> None:
        self.allowed_s.append(request.deadline_s - request.arrived_s)

    def retry_after_s(self) -> float:
        return 1.0

    async def drain(self, until_s: float) -> None:
        pass


@pytest.mark.parametrize(("policy", "allowed_s"), [("exp4", 0.5), ("split", 2.0)])
def test_call_that_only_adds_to_others_must_be_answered_when_they_are_combined(policy: str, allowed_s: float) -> None:
    """A candidate that is asked alone has all of the query's time."""

    async def main() -> None:
        settings = SelectionSettings(policy, deadline_s=0.5)
        state, generator = SelectionState(["a", "b"], settings), FixedDraws(0.0)
        made = policy_of(settings, 2, generator)  # type: ignore[arg-type]
        served = ServedSelection(["a", "b"], Selection(made, state, settings, generator.random))
        backends = [Recorder(), Recorder()]
        stages = [ConductedStage(name, one, 2.0) for name, one in zip("ab", backends, strict=True)]
        loop = asyncio.get_running_loop()
        conductor = Conductor(stages, ModelMetrics("p", "1", ""), loop, name="p", router=served)
        now_s, call = conductor.now(), Call("sagemaker", "application/json", b"0")
        conductor.offer(Request(call, 1, now_s, now_s + 2.0, lambda request, answer: None, "r1"))
        assert backends[0].allowed_s == [pytest.approx(allowed_s, abs=0.05)]
        await conductor.drain(now_s)

    run(main)


class Refuser(Recorder):
    """Refuses every call immediately."""

    def offer(self, request: Request) -> None:
        super().offer(request)
        request.answer(request, Answer(Reply(503, "application/json", b"{}"), NOBODY))


@pytest.mark.parametrize(("policy", "allowed_s"), [("exp4", (0.5, 2.0)), ("thompson", (2.0, 2.0))])
def test_candidate_whose_others_have_failed_has_all_of_the_querys_time(
    policy: str, allowed_s: tuple[float, float]
) -> None:
    """It alone can answer, even after the time to combine answers."""

    async def main() -> None:
        settings = SelectionSettings(policy, deadline_s=0.5)
        state, made = SelectionState(["a", "b"], settings), policy_of(settings, 2, np.random.default_rng(0))
        served = ServedSelection(["a", "b"], Selection(made, state, settings, lambda: 0.0))
        stages, given_s = [ConductedStage(name, Refuser(), 2.0) for name in "ab"], list[float]()
        for stage in stages:
            stage.backend.allowed_s = given_s  # type: ignore[attr-defined]
        loop = asyncio.get_running_loop()
        conductor = Conductor(stages, ModelMetrics("p", "1", ""), loop, name="p", router=served)
        now_s, call = conductor.now(), Call("sagemaker", "application/json", b"0")
        conductor.offer(Request(call, 1, now_s, now_s + 2.0, lambda request, answer: None, "r1"))
        assert given_s == pytest.approx(allowed_s, abs=0.05)
        await conductor.drain(now_s)

    run(main)


def test_prices_are_the_larger_of_planned_and_marginal_with_the_price_of_the_call() -> None:
    asked = SelectionServing(SelectionSettings("split"), ("small@1", "large@2"), (1e-7, 4e-6), (0.0, 0.001))

    assert asked.prices({}).now == [1e-7, 4e-6 + 0.001]
    of_stages = {"large": PriceList(9e-6, None, 5e-6), "small": PriceList(usd_per_planned_request=2e-7)}
    assert asked.prices(of_stages) == ([2e-7, 9e-6 + 0.001], [2e-7, 5e-6 + 0.001])
    idle, full = PriceList(0.0, None, 1e-5), PriceList(3e-5, None, 1e-5)
    assert asked.prices({"": idle}).now == [1e-7, 4e-6 + 0.001]
    assert asked.prices({"": full}).now == [pytest.approx(3e-7), pytest.approx(1.2e-5 + 0.001)]
    assert asked.prices({"": full}).planned == [1e-7, 4e-6 + 0.001]


def test_calls_that_a_high_price_prevents_are_counted_as_wanted() -> None:
    """The candidate behind the answering one would be asked at half of its price."""

    async def main() -> None:
        settings = SelectionSettings("cascade", correct_usd=1.0, score="score", answer="label", explore=0.0)
        models = {"small": scored("no", 0.5), "large": scored("yes", 0.9)}
        cast = Candidates(models, settings, state=HalfRight, now_usd=(0.0, 0.6), planned_usd=(0.0, 0.3))
        assert (await cast.ask(0))[1] == {"label": "no", "score": 0.5}
        assert (cast.served.counts.asked, cast.served.counts.wanted) == ({0: 1}, {0: 1, 1: 1})
        (wanted,) = cast.served.metrics("two", "1")
        assert [one.value for one in wanted.samples] == [1.0, 1.0]

    run(main)


def test_selection_that_ignores_prices_counts_no_wanted_calls() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("cat"), "b": says("dog")}, SelectionSettings("exp4"))
        await cast.ask(0)
        assert list(cast.served.metrics("two", "1")) == []

    run(main)


def test_items_whose_candidates_answer_at_once_are_all_answered() -> None:
    """A reply from memory, or a refusal, comes within the call that asked for it."""

    async def main() -> None:
        models: dict[str, Predict] = {"a": lambda batch: [10 * one for one in batch], "b": says(0)}
        cast = Candidates(models, SelectionSettings("split", weights=(1.0, 0.0)), cached=True)
        await cast.ask({"instances": [1]})

        assert await cast.ask({"instances": [1, 2, 1]}) == (200, {"predictions": [10, 20, 10]}, INSTANCE)
        assert cast.served.counts.answers == 4
        assert len(cast.notes("r2")) == 3

    run(main)


def test_answers_from_memory_cost_nothing() -> None:
    async def main() -> None:
        settings, usd = SelectionSettings("split", weights=(1.0, 0.0)), (2.0, 2.0)
        cast = Candidates({"a": says(1), "b": says(1)}, settings, cached=True, now_usd=usd, planned_usd=usd)
        for _ in range(5):
            await cast.ask(0)

        assert cast.served.counts.usd == 2.0
        assert len(cast.pools["a"].calls) == 1

    run(main)


def test_selection_is_ready_while_one_candidate_is() -> None:
    async def main() -> None:
        cast = Candidates({"a": says(1), "b": says(1)}, SelectionSettings("exp4"))
        assert cast.conductor.ready
        for backend in cast.conductor.backends:
            await backend.drain(0.0)
            assert cast.conductor.ready == (backend is cast.conductor.backends[0])

    run(main)


def test_label_that_can_be_no_answer_teaches_nothing() -> None:
    async def main() -> None:
        cast = Candidates({"a": says(3), "b": says(4)}, SelectionSettings("exp4"))
        await cast.ask(0)

        assert not any(cast.feedback("r1", label=label) for label in ("3", None, {"label": 3}, [3, 3]))
        assert cast.feedback("r1", label=True), "a number, and wrong"
        assert cast.state.errors == [1.0, 1.0]

    run(main)


def test_result_with_several_fields_needs_to_know_which_is_the_answer() -> None:
    async def main() -> None:
        cast = Candidates({"a": scored(1, 0.9), "b": scored(1, 0.9)}, SelectionSettings("exp4"))

        status, body, _ = await cast.ask(0)
        assert status == 500
        assert "several fields, label, score: say in [selection] answer" in body["error"]

    run(main)


def test_note_that_takes_long_is_made_anew_for_many_late_replies_at_once() -> None:
    async def main() -> None:
        cast = Candidates({"a": says("x" * 300), "b": says("x" * 300), "c": says("y")}, SelectionSettings("exp4"))
        cast.pools["c"].held = True
        identity = cast.send({"instances": list(range(1000))})
        assert (await cast.answer(identity))[0] == 200
        began_s = time.process_time()
        while cast.pools["c"].waiting:
            cast.pools["c"].release()
            await asyncio.sleep(0)
        while any(not one.asked[2].answered for one in cast.notes(identity)):
            await asyncio.sleep(0.01)
        assert time.process_time() - began_s < 2.0, "once for each of them takes ten"

    gc.disable()  # a collection of the heap of a whole session takes seconds of its own
    try:
        run(main)
    finally:
        gc.enable()
