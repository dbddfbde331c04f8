"""The warm pool: drained instances are stopped and launches resume them, within the pool's limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.control.ports import Result
from mark.control.snapshot import Outcome
from mark.control.state import ControllerState, learn
from mark.control.warm_pool import WarmPool
from mark.domain.backoff import RESUME
from mark.domain.command import Command, Launch, Resume, Stop, Terminate
from mark.domain.errors import CapacityError, CloudError, LimitError
from mark.domain.fleet import Fleet, Instance, Phase
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A, Bench, offer, resolved

LARGE, SPOT, BURST = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name
OTHER = offer("c5.xlarge", usd_per_hour=0.17)


def pooling(most: int) -> ResolvedService:
    plain = resolved(ON_DEMAND, OTHER, SPOT_A, BURSTABLE)
    return replace(plain, service=replace(plain.service, warm_pool=most))


def stopped(number: int, name: str = LARGE, since_s: float = 0.0, *, standby: bool = False) -> Instance:
    return Instance(number, name, Phase.STOPPED, 0.0, standby=standby, stopped_s=since_s)


def drained(number: int, name: str = LARGE, *, idle: bool = True, gone_s: float | None = None) -> Instance:
    return Instance(number, name, Phase.DRAINING, 0.0, 0.0, gone_s, idle=idle)


def launch(name: str = LARGE, count: int = 1, *, standby: bool = False) -> Launch:
    return Launch("needed", count * 0.085, name, count, standby)


def test_a_launch_resumes_first_and_launches_the_rest() -> None:
    """The last stopped is resumed first; others grow old, and are terminated."""
    fleet = Fleet((stopped(1, since_s=5.0), stopped(2, since_s=9.0), stopped(3, OTHER.name)))
    commands = WarmPool(pooling(5)).resumed_first((launch(count=3),), fleet, {}, 60.0)
    assert [type(c) for c in commands] == [Resume, Resume, Launch]
    assert [c.number for c in commands if isinstance(c, Resume)] == [2, 1]
    assert commands[-1] == launch(count=1)
    assert sum(c.usd_per_hour for c in commands) == pytest.approx(3 * 0.085)


def test_a_resumed_rescue_stays_a_rescue() -> None:
    fleet = Fleet((stopped(1, since_s=5.0),))
    commands = WarmPool(pooling(5)).resumed_first((replace(launch(count=2), rescue=True),), fleet, {}, 60.0)
    assert [(type(c), c.rescue) for c in commands] == [(Resume, True), (Launch, True)]


def test_what_counts_for_another_offer_is_launched() -> None:
    """A resumed instance counts as its own offer, which is not planned, so it would be terminated."""
    fleet = Fleet((stopped(1, since_s=5.0),))
    instead = replace(launch(), planned=OTHER.name)
    assert WarmPool(pooling(5)).resumed_first((instead,), fleet, {}, 60.0) == (instead,)
    first, second = WarmPool(pooling(5)).resumed_first((instead, launch()), fleet, {}, 60.0)
    assert (first, type(second)) == (instead, Resume)


def test_standbys_bridge_and_are_no_pool() -> None:
    fleet = Fleet((stopped(1, BURST, standby=True), stopped(2)))
    assert [i.number for i in fleet.standbys()] == [1]
    commands = (launch(BURST), launch(standby=True))
    assert WarmPool(pooling(5)).resumed_first(commands, fleet, {}, 0.0) == commands


def test_what_was_refused_is_put_off() -> None:
    """The whole offer is put off, because a launch may be in another zone."""
    pool, fleet = WarmPool(pooling(5)), Fleet((stopped(1), stopped(2)))
    assert pool.resumed_first((launch(),), fleet, {LARGE: 100.0}, 99.0) == (launch(),)
    assert isinstance(pool.resumed_first((launch(),), fleet, {LARGE: 100.0}, 100.0)[0], Resume)


def test_what_is_still_stopping_is_not_resumed() -> None:
    fleet = Fleet((stopped(1, since_s=70.0), stopped(2, since_s=30.0)))
    (command,) = WarmPool(pooling(5)).resumed_first((launch(),), fleet, {}, 60.0)
    assert isinstance(command, Resume)
    assert command.number == 2


def test_what_is_unfit_is_ended() -> None:
    """It did not answer, or the cloud refused to stop it."""
    commands = WarmPool(pooling(5)).drained(Fleet((drained(1), drained(2))), (1,))
    assert [type(c) for c in commands] == [Terminate, Stop]


def test_a_standby_that_cannot_be_stopped_is_ended() -> None:
    fleet = Fleet((replace(drained(1, BURST), standby=True), replace(drained(2, BURST), standby=True)))
    assert [type(c) for c in WarmPool(pooling(0)).drained(fleet, {2})] == [Stop, Terminate]


@pytest.mark.parametrize("name", [SPOT, BURST])
def test_spot_and_burstables_are_ended(name: str) -> None:
    assert [type(c) for c in WarmPool(pooling(5)).drained(Fleet((drained(1, name),)), ())] == [Terminate]


def test_what_is_taken_back_is_ended() -> None:
    assert [type(c) for c in WarmPool(pooling(5)).drained(Fleet((drained(1, gone_s=9.0),)), ())] == [Terminate]


def test_a_full_pool_keeps_what_was_needed_last() -> None:
    """The pool has two places with two c5.large. When both types drain, the c5.xlarge displaces the older c5.large."""
    fleet = Fleet((stopped(1, since_s=5.0), stopped(2, since_s=1.0), drained(3), drained(4, OTHER.name)))
    commands = WarmPool(pooling(2)).drained(fleet, ())
    assert [(type(c), c.number) for c in commands if isinstance(c, Stop | Terminate)] == [
        (Terminate, 3),
        (Terminate, 2),
        (Stop, 4),
    ]


def test_a_smaller_pool_ends_the_oldest() -> None:
    fleet = Fleet((stopped(1, since_s=5.0), stopped(2, since_s=1.0), stopped(3, BURST, standby=True)))
    assert [c.number for c in WarmPool(pooling(1)).drained(fleet, ()) if isinstance(c, Terminate)] == [2]


def test_without_a_pool_nothing_is_stopped() -> None:
    commands = WarmPool(pooling(0)).drained(Fleet((drained(1), drained(2))), ())
    assert [type(c) for c in commands] == [Terminate, Terminate]


def test_a_pool_begins_with_the_largest_share() -> None:
    targets = (Target(LARGE, 3, ""), Target(OTHER.name, 2, ""), Target(SPOT, 9, ""))
    pool = WarmPool(pooling(4))
    assert pool.begun(Plan(0.0, targets), OTHER) == Target(LARGE, 4, "stopped, in the warm pool")
    assert pool.begun(Plan(0.0, ()), OTHER) == Target(OTHER.name, 4, "stopped, in the warm pool")
    assert pool.begun(Plan(0.0, ()), None) is None
    assert WarmPool(pooling(0)).begun(Plan(0.0, targets), OTHER) is None


NAMES = st.sampled_from([LARGE, OTHER.name, SPOT])


@given(
    st.lists(st.tuples(NAMES, st.floats(0.0, 1e6)), max_size=6),
    st.lists(st.tuples(NAMES, st.booleans(), st.booleans()), max_size=6),
    st.integers(0, 5),
)
def test_the_pool_never_exceeds_its_size(
    held: list[tuple[str, float]], leaving: list[tuple[str, bool, bool]], most: int
) -> None:
    """Each drained instance is stopped or terminated, once; of the others only stopped ones may be terminated."""
    pool = [stopped(n, name, at_s) for n, (name, at_s) in enumerate(held, 1)]
    others = [
        drained(n, name, idle=idle, gone_s=9.0 if taken else None)
        for n, (name, idle, taken) in enumerate(leaving, len(pool) + 1)
    ]
    commands = WarmPool(pooling(most)).drained(Fleet((*pool, *others)), ())
    numbers = Counter(c.number for c in commands if isinstance(c, Stop | Terminate))
    assert set(numbers.values()) <= {1}
    assert (
        {i.number for i in others if i.idle}
        <= set(numbers)
        <= {i.number for i in (*pool, *others) if i.idle or i in pool}
    )
    after = {i.number for i in pool} - {c.number for c in commands if isinstance(c, Terminate)}
    after |= {c.number for c in commands if isinstance(c, Stop)}
    assert len(after) <= most
    assert len(after) == most or {i.number for i in pool} <= after, "nothing is ended while there is room"
    by_number = {i.number: i for i in (*pool, *others)}
    assert all(by_number[c.number].offer != SPOT for c in commands if isinstance(c, Stop))


@given(st.lists(NAMES, max_size=6), st.lists(st.tuples(NAMES, st.integers(1, 4)), max_size=4))
def test_as_many_come_as_were_asked_for(held: list[str], asked: list[tuple[str, int]]) -> None:
    fleet = Fleet(tuple(stopped(n, name) for n, name in enumerate(held, 1)))
    before = [launch(name, count) for name, count in asked]
    after = WarmPool(pooling(9)).resumed_first(before, fleet, {}, 0.0)

    def by_offer(commands: tuple[Command, ...] | list[Launch]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for c in commands:
            if isinstance(c, Launch | Resume):
                counts[c.offer] += c.count if isinstance(c, Launch) else 1
        return counts

    assert by_offer(after) == by_offer(before)
    resumed = [c.number for c in after if isinstance(c, Resume)]
    assert len(set(resumed)) == len(resumed)
    assert all(c.count > 0 for c in after if isinstance(c, Launch))


class TestController:
    """A controller among fakes: three instances, then one, then three again."""

    def began(self, most: int = 1) -> Bench:
        bench = Bench(where=pooling(most))
        bench.tick({LARGE: 3})
        bench.cloud.boot()
        bench.tick({LARGE: 1})
        bench.fast()
        return bench

    def test_one_is_kept_and_comes_back(self) -> None:
        bench = self.began()
        assert sorted(bench.phases().values()) == [f"{LARGE} ready", f"{LARGE} stopped"]
        (kept,) = bench.cloud.fleet().pooled()
        bench.tick({LARGE: 3})
        assert ("resume", kept.number) in bench.cloud.calls
        assert sorted(bench.phases().values()) == [f"{LARGE} pending", f"{LARGE} pending", f"{LARGE} ready"]
        bench.cloud.boot()
        bench.tick({LARGE: 3})
        assert len(bench.cloud.fleet().ready()) == 1
        assert bench.cloud.fleet().ready()[LARGE] == 3

    def test_one_that_boots_again_goes_back(self) -> None:
        """Its first boot is over; an instance that boots for the first time is terminated instead."""
        bench = self.began()
        bench.tick({LARGE: 3})
        bench.tick({LARGE: 1})
        bench.fast()
        assert sorted(bench.phases().values()) == [f"{LARGE} ready", f"{LARGE} stopped"]

    @pytest.mark.parametrize("error", [CapacityError("no capacity for it"), LimitError("VcpuLimitExceeded")])
    def test_a_refused_resume_is_a_launch_the_next_time(self, error: CloudError) -> None:
        """None of the offer's stopped instances, however many, is resumed."""
        bench = self.began(most=2)
        bench.cloud.fail["resume"] = error
        bench.tick({LARGE: 2})
        assert bench.controller.state.not_resumed
        bench.tick({LARGE: 2})
        assert Counter(bench.phases().values()) == {f"{LARGE} ready": 1, f"{LARGE} pending": 1, f"{LARGE} stopped": 2}

    def test_a_refused_stop_is_an_end(self) -> None:
        bench = Bench(where=pooling(2))
        bench.tick({LARGE: 3})
        bench.cloud.boot()
        bench.cloud.fail["stop"] = CloudError("UnsupportedOperation")
        bench.tick({LARGE: 1})
        bench.fast()
        bench.fast()
        assert list(bench.phases().values()) == [f"{LARGE} ready"]


def test_a_resumed_stand_in_counts_as_what_it_is() -> None:
    state = ControllerState(stands_for={1: SPOT, 2: SPOT}, not_resumed={LARGE: 50.0, OTHER.name: 1000.0})
    done = Outcome(Resume("", 0.0, LARGE, 1), "done", Result.DONE)
    assert learn(state, done, 60.0).stands_for == {2: SPOT}
    assert learn(state, done, 60.0).not_resumed == {OTHER.name: 1000.0}
    refused = replace(done, result=Result.FAILED, refused=True)
    assert learn(state, refused, 60.0).not_resumed == {LARGE: 60.0 + RESUME.first_s, OTHER.name: 1000.0}
