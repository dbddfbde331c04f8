"""A conductor of a service with parity models: real replicas, whose models are in this process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mark.domain.price_list import PriceList
from mark.insurance.insurance_settings import DEGRADED, EXACT, SUM, InsuranceSettings, ParitySettings
from mark.models.answer import INSTANCE, NOBODY, RECONSTRUCTION
from mark.serving.conductor.coded_service import CodedService
from mark.serving.conductor.conductor import ConductedStage
from tests.serving.conductor.cast import Cast, raises, run

WEIGHTS = np.array([[1, -2, 0], [0, 1, 3]], np.float32)

REFUSED = (429, {"error": "overloaded: it would not be answered in time"}, NOBODY)


def linear(batch: list[Any]) -> Any:
    return np.asarray(batch, np.float32) @ WEIGHTS


def not_numbers(batch: list[Any]) -> Any:
    return linear(batch) * np.float32("nan")


def settings(accept: str = DEGRADED, **changed: Any) -> InsuranceSettings:
    parity = ParitySettings(SUM, k=2, input_shape=(2,), output_shape=(3,), degraded_accuracy=0.93)
    made = InsuranceSettings(parity=parity, accept=accept, after_s=0.0, fill_s=float("inf"))
    return replace(made, **changed)


def insured(model: Any = linear, parity: Any = linear, elsewhere: bool = False, **changed: Any) -> Cast:
    return Cast({"model": model, "parity": parity}, insurance=settings(**changed), elsewhere=elsewhere)


def coded(cast: Cast) -> CodedService:
    assert cast.coded is not None
    return cast.coded


async def slow_pair(cast: Cast, **sent: Any) -> tuple[str, str]:
    """Send a query whose call is answered and one whose call is held; return their ids."""
    quick = cast.send([1, 2], **sent)
    await cast.answer(quick)
    cast.pools["model"].held = True
    return quick, cast.send([3, 4], **sent)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_answer_that_is_late_is_reconstructed(elsewhere: bool) -> None:
    async def main() -> None:
        cast = insured(elsewhere=elsewhere)
        await cast.is_ready()
        quick, slow = await slow_pair(cast)
        assert cast.answers[quick][2] == INSTANCE
        assert await cast.answer(slow) == (200, [3.0, -2.0, 12.0], RECONSTRUCTION)
        provenance = cast.how[slow].provenance
        assert provenance is not None
        assert provenance.degraded == "agreement=0.93", "that of training, until enough were compared"
        cast.pools["model"].release()
        claims = coded(cast).groups.claims
        while not claims.compared:
            await asyncio.sleep(0)
        assert (claims.reconstructed, claims.agreed, claims.saved) == (1, 1, 0), "the exact answer was in time"
        assert coded(cast).groups.kept_bytes == 0

    run(main)


def test_two_parity_models_replace_two_missing_answers() -> None:
    async def main() -> None:
        parity = ParitySettings(SUM, k=3, r=2, input_shape=(2,), output_shape=(3,))
        made = InsuranceSettings(parity=parity, accept=DEGRADED, after_s=0.0, fill_s=float("inf"))
        cast = Cast({"model": linear, "parity_1": linear, "parity_2": linear}, insurance=made)
        assert (await cast.ask([1, 2]))[2] == INSTANCE
        cast.pools["model"].held = True
        lost = [cast.send([3, 4]), cast.send([5, 6])]
        assert [await cast.answer(one) for one in lost] == [
            (200, pytest.approx([3.0, -2.0, 12.0]), RECONSTRUCTION),
            (200, pytest.approx([5.0, -4.0, 18.0]), RECONSTRUCTION),
        ]
        provenance = cast.how[lost[0]].provenance
        assert provenance is not None
        assert provenance.degraded == "agreement=unknown", "nothing was measured when they were trained"

    run(main)


def test_requests_that_take_exact_answers_wait_for_the_model() -> None:
    async def main() -> None:
        cast = insured()
        _, slow = await slow_pair(cast, accepts=EXACT)
        while not coded(cast).groups.claims.parity_calls:
            await asyncio.sleep(0)
        await cast.has("model")
        assert slow not in cast.answers
        cast.pools["model"].release()
        assert await cast.answer(slow) == (200, [3.0, -2.0, 12.0], INSTANCE)
        assert cast.how[slow].provenance is None

    run(main)


def test_service_file_says_what_requests_accept_that_do_not() -> None:
    async def main() -> None:
        cast = insured(accept=EXACT)
        _, slow = await slow_pair(cast)
        await cast.has("model")
        assert slow not in cast.answers
        cast = insured(accept=EXACT)
        _, slow = await slow_pair(cast, accepts=DEGRADED)
        assert (await cast.answer(slow))[2] == RECONSTRUCTION

    run(main)


def test_reconstruction_waits_for_its_time() -> None:
    async def main() -> None:
        cast = insured(after_s=0.2)
        began_s = cast.conductor.now()
        _, slow = await slow_pair(cast)
        assert (await cast.answer(slow))[2] == RECONSTRUCTION
        assert cast.conductor.now() - began_s >= 0.2

    run(main)


def test_request_of_several_items_is_degraded_if_one_is() -> None:
    async def main() -> None:
        cast = insured()
        cast.pools["model"].held = True
        both = cast.send({"instances": [[1, 2], [3, 4]]})
        await cast.has("model")
        assert coded(cast).groups.claims.members == 2
        other = cast.send({"instances": [[5, 6], "no numbers"]})
        cast.pools["model"].held = False
        cast.pools["model"].release()
        assert (await cast.answer(both))[0] == 200
        assert (await cast.answer(other))[0] == 500, "the model fails on text"
        assert coded(cast).groups.claims.passed_by == 1

    run(main)


def test_parity_model_that_answers_nan_is_counted_and_nothing_is_passed_on() -> None:
    async def main() -> None:
        cast = insured(parity=not_numbers)
        _, slow = await slow_pair(cast)
        while not coded(cast).groups.claims.malformed:
            await asyncio.sleep(0)
        assert slow not in cast.answers
        cast.pools["model"].release()
        assert await cast.answer(slow) == (200, [3.0, -2.0, 12.0], INSTANCE)

    run(main)


def test_model_whose_answers_cannot_be_used_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        cast = insured(model=lambda batch: np.argmax(linear(batch), axis=1))
        for _ in range(2):
            assert (await cast.ask([1, 2]))[2] == INSTANCE
        assert coded(cast).groups.claims.unusable == 2

    run(main)
    (said,) = [one.message for one in caplog.records if "cannot reconstruct" in one.message]
    assert said.endswith("they need finite scores of shape [3]")


def test_parity_model_that_fails_costs_no_answer() -> None:
    async def main() -> None:
        cast = insured(parity=raises)
        _, slow = await slow_pair(cast)
        while not coded(cast).groups.claims.parity_missed:
            await asyncio.sleep(0)
        cast.pools["model"].release()
        assert (await cast.answer(slow))[2] == INSTANCE

    run(main)


@pytest.mark.parametrize("answers", [True, False])
def test_refusal_is_held_until_a_reconstruction_comes_or_cannot(answers: bool) -> None:
    async def main() -> None:
        cast = insured(parity=linear if answers else raises)
        cast.pools["parity"].held = True
        quick = cast.send([1, 2])
        await cast.answer(quick)
        cast.lose("model")
        refused = cast.send([3, 4])
        await cast.has("parity")
        assert coded(cast).groups.claims.held == 1
        assert refused not in cast.answers
        cast.pools["parity"].release()
        if answers:
            assert await cast.answer(refused) == (200, [3.0, -2.0, 12.0], RECONSTRUCTION)
        else:
            assert await cast.answer(refused) == REFUSED

    run(main)


def test_refusal_is_passed_on_at_the_deadline() -> None:
    async def main() -> None:
        cast = insured()
        cast.pools["parity"].held = True
        await cast.ask([1, 2])
        cast.lose("model")
        assert await cast.ask([3, 4], allowed_s=0.05) == REFUSED

    run(main)


@pytest.mark.parametrize("off", [True, False])
def test_service_without_parity_models_answers_as_without_insurance(off: bool) -> None:
    async def main() -> None:
        cast = insured()
        if off:
            coded(cast).switch_off("another model")
        else:
            cast.lose("parity")
        assert cast.conductor.ready or not off
        assert await cast.ask([1, 2]) == (200, [1.0, 0.0, 6.0], INSTANCE)
        cast.lose("model")
        refused = cast.send([3, 4])
        assert cast.answers[refused] == REFUSED, "nothing is held"
        assert coded(cast).groups.claims.members == 0
        assert (coded(cast).said()["uninsured_because"] == "another model") is off

    run(main)


def test_service_begins_with_its_parity_models_and_goes_on_without() -> None:
    async def main() -> None:
        cast = insured()
        cast.lose("parity")
        assert not cast.conductor.ready
        cast.replicas["parity"].worker_ready(0)
        assert cast.conductor.ready
        cast.lose("parity")
        assert cast.conductor.ready

    run(main)


def test_reconstruction_has_the_name_of_the_models_output() -> None:
    async def main() -> None:
        cast = insured(model=lambda batch: [{"scores": row} for row in linear(batch)])
        _, slow = await slow_pair(cast)
        assert await cast.answer(slow) == (200, {"scores": [3.0, -2.0, 12.0]}, RECONSTRUCTION)

    run(main)


def test_late_query_is_told_so_and_still_serves_the_others() -> None:
    async def main() -> None:
        cast = insured()
        cast.pools["model"].held = True
        late = cast.send([1, 2], allowed_s=0.05)
        assert (await cast.answer(late))[0] == 504
        slow = cast.send([3, 4])
        cast.pools["model"].release()  # the batch of the late one
        assert await cast.answer(slow) == (200, [3.0, -2.0, 12.0], RECONSTRUCTION)

    run(main)


def test_drain_leaves_no_query_without_an_answer() -> None:
    async def main() -> None:
        cast = insured(after_s=1000.0)
        _, slow = await slow_pair(cast)
        await cast.conductor.drain(cast.conductor.now() + 0.05)
        assert cast.answers[slow][0] in (200, 503)

    run(main)


def test_load_chooses_the_fill_once_a_minute() -> None:
    async def main() -> None:
        now_s, cast = 0.0, insured()
        stage = ConductedStage("parity", cast.conductor.backends[1], 1.0)
        service = CodedService(
            settings(fill_s=None), 1.0, [stage], asyncio.get_running_loop(),
            told=lambda now_s: PriceList(usd_per_hour=0.5, ready_rps=100.0), share=0.5, now=lambda: now_s,
        )  # fmt: skip
        service._set_fill(now_s)
        assert service.groups.fill_s == pytest.approx(1.0 / (0.7 * 50.0)), "no rate is known"
        service.groups.claims.members = 60 * 40
        now_s = 60.0
        service._set_fill(now_s)
        assert 0.0 < service.groups.fill_s < float("inf"), "40 queries/s, and half of 100 parity calls/s"
        service.groups.claims.members += 60
        service._set_fill(now_s := 120.0)
        assert service.groups.fill_s == 0.0
        service.groups.claims.members += 60 * 40
        service._set_fill(now_s := 180.0)
        assert 0.0 < service.groups.fill_s < float("inf"), "the minute until 180 s was busy"
        service.groups.claims.members += 60 * 40
        service._set_fill(now_s := 3000.0)
        assert service.groups.fill_s == pytest.approx(1.0 / (0.7 * 50.0)), "a pause says nothing of the rate to come"
        assert service.said()["premium_usd_per_hour"] == 0.5

    run(main)


def test_claims_are_in_the_metrics_and_on_the_page() -> None:
    async def main() -> None:
        cast = insured()
        _, slow = await slow_pair(cast)
        await cast.answer(slow)
        found = {one.name: one.samples[0].value for one in coded(cast).metrics("p")}
        assert found["mark_insurance_reconstructed"] == 1.0
        assert found["mark_insurance_on"] == 1.0
        said = coded(cast).said()
        assert (said["k"], said["reconstructed"], said["members"]) == (2, 1, 2)

    run(main)
