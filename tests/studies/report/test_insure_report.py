"""How the protections are shown, from fleets made by hand."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from mark.domain.faults import NO_FAULTS, Faults
from mark.domain.slo import Slo
from mark.studies.insure import HEDGE, INSTANCES, NONE, PARITY, Insurance, InsuredFleet, OtherShare
from mark.studies.report.htmlpage import html_of
from mark.studies.report.insure_report import faults_words, insure_report, takeaways
from mark.studies.report.terminal import on_terminal

SLOW = Faults(slow_share=0.05, slow_s=20.0, slow_factor=3.0)


def fleet(option: str, usd: float, **changed: Any) -> InsuredFleet:
    found = InsuredFleet(option, {}, 12, 0, usd, 0.995, 0.001, True, 0.0, 0.3)
    return replace(found, **changed)


def insurance(*options: InsuredFleet, faults: Faults = SLOW, **changed: Any) -> Insurance:
    found = Insurance(
        service="noisy",
        offer="c7i.large/on-demand",
        slo=Slo(0.2, 0.99),
        faults=faults,
        routing="least-completion",
        requests=360_000,
        duration_s=3600.0,
        request_s=0.1,
        priced="aws-2026",
        read="",
        options=options,
    )
    return replace(found, **changed)


def shown(found: Insurance) -> str:
    console = Console(width=200, file=io.StringIO(), markup=False, highlight=False)
    console.print(on_terminal(insure_report(found)))
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_crashes_are_said_to_be_left_out() -> None:
    """With crashes alone the note takes the place of the advice to measure faults."""
    crashing = shown(insurance(fleet(NONE, 0.9), faults=NO_FAULTS, leaves_out_crashes=True))
    assert "crashes are left out" in crashing
    assert "no faults are known" not in crashing
    assert "crashes are left out" not in shown(insurance(fleet(NONE, 0.9)))


def test_cheapest_fleet_that_keeps_the_promise_is_advised() -> None:
    hedge = fleet(HEDGE, 1.2, settings={"hedge_after_ms": 150.0})
    missed = fleet(INSTANCES, 1.0, attainment=0.98, keeps=False)
    none = fleet(NONE, 0.9, attainment=0.9, keeps=False)
    found = insurance(none, missed, hedge, fleet(PARITY, 1.5, settings={"k": 4}, parity_instances=3))
    assert takeaways(found)[0].startswith("Buy hedging (12 instances, 150 ms, $876 a month)")
    assert takeaways(found)[1:3] == [
        "Other fleets that keep the promise: parity models (12 + 3 instances, k = 4, $219 a month more).",
        "With up to 56 instances these do not keep it: more instances (98.00 % at best).",
    ]
    assert "hedge_after_ms = 150" in takeaways(found)[3]


def test_fleet_at_the_price_of_the_advised_one_is_not_called_dearer() -> None:
    none = fleet(NONE, 0.9)
    hedge = fleet(HEDGE, 0.9, settings={"hedge_after_ms": 150.0})
    assert "hedging (12 instances, 150 ms, at the same price)" in takeaways(insurance(none, hedge))[1]


def test_part_with_few_slow_periods_is_said_to_be_too_short() -> None:
    """Each of 12 instances is slow once in 400 s: 36 times in 20 minutes, and 3 times in 100 s."""
    none = fleet(NONE, 0.9)
    assert "too short" not in " ".join(takeaways(insurance(none, duration_s=1200.0)))
    told = takeaways(insurance(none, duration_s=100.0))
    assert told[-1].startswith("The part is too short to rely on this: its instances are slow or hang 3 times in it.")
    assert "at least 6 min" in told[-1]
    missed = fleet(NONE, 0.9, attainment=0.98, keeps=False)
    assert "too short" in takeaways(insurance(missed, duration_s=100.0))[-1]
    hangs = Faults(hangs_per_hour=3.0)
    assert "slow or hang 1 times" in takeaways(insurance(none, faults=hangs, duration_s=100.0))[-1]
    assert "too short" not in " ".join(takeaways(insurance(none, faults=NO_FAULTS, duration_s=1.0)))


def test_fleet_that_melts_down_is_marked_and_not_advised() -> None:
    worse = fleet(HEDGE, 1.0, worse=True, settings={"hedge_after_ms": 150.0})
    none = fleet(NONE, 0.9, attainment=0.9, keeps=False)
    found = insurance(none, worse, fleet(PARITY, 1.5, settings={"k": 2}, parity_instances=6))
    assert found.advised is not None
    assert found.advised.option == PARITY
    assert "99.50 WORSE" in shown(found)
    assert "hedging only with a longer tail than without" in " ".join(takeaways(found))
    by_option = {one["option"]: one for one in insure_report(found).data["options"]}
    assert by_option[HEDGE]["keeps"] is False


def test_nothing_is_advised_where_no_option_keeps_the_promise() -> None:
    found = insurance(fleet(INSTANCES, 1.0, attainment=0.9, keeps=False))
    assert takeaways(found)[0].startswith("No option keeps 99 % within 200 ms; closest is more instances")
    assert insure_report(found).data["advice"]["option"] is None


def test_table_without_faults_says_how_to_measure_them() -> None:
    found = insurance(fleet(NONE, 1.0), faults=NO_FAULTS)
    assert "give it with --faults" in shown(found)
    assert takeaways(found)[0].startswith("Buy no protection")


def test_advice_says_what_another_slow_share_changes() -> None:
    hedge, parity = fleet(HEDGE, 1.0, settings={"hedge_after_ms": 150.0}), fleet(PARITY, 1.5, settings={"k": 2})
    others = (OtherShare(0.5, 0.025, (hedge,)), OtherShare(2.0, 0.1, (replace(hedge, keeps=False), parity)))
    said = takeaways(insurance(hedge, parity, others=others))[-1]
    assert said.startswith("If instances are slow 2.5 % of the time, the advice stays")
    assert "10.0 % of the time, parity models would be cheapest" in said


def test_attainment_close_to_the_promise_is_called_uncertain() -> None:
    found = insurance(fleet(PARITY, 1.0, attainment=0.9905, settings={"k": 2}))
    assert "parity: 99.05 % +- 0.10 % lies too close to the promise" in shown(found)


def test_accuracy_has_a_column_where_it_is_known() -> None:
    parity = fleet(PARITY, 1.0, settings={"k": 2}, degraded=0.02, accuracy=0.915)
    assert "accuracy" in shown(insurance(parity))
    assert "91.50 %" in shown(insurance(parity))
    assert "accuracy" not in shown(insurance(replace(parity, accuracy=None)))


def test_page_holds_table_and_plot() -> None:
    page = html_of(insure_report(insurance(fleet(PARITY, 1.0, settings={"k": 2}, degraded=0.02))))
    assert "2.00 %" in page
    assert "class=figure" in page


def test_faults_are_told_in_words() -> None:
    assert faults_words(SLOW) == "slow 5.0 % of the time (x 3, for 20 s)"
    both = replace(SLOW, host_group=3, slow_add_s=0.05, hangs_per_hour=6.0, hang_s=2.0)
    assert (
        faults_words(both) == "slow 5.0 % of the time (x 3 + 50 ms, for 20 s, 3 at a time) and 6 hangs of 2 s an hour"
    )
    assert faults_words(NO_FAULTS) == ""


def test_the_advised_fleet_is_not_its_own_dearer_one() -> None:
    one = fleet(NONE, 1.0, instances=1)
    found = insurance(one, replace(one, option=INSTANCES), faults=NO_FAULTS)
    assert "a fleet (1 instance, $730 a month)" in takeaways(found)[0]
    assert not any("Dearer" in line for line in takeaways(found))
