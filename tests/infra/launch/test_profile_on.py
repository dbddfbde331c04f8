"""Renting machines to measure on: the launches, the end of each machine in any case, and the bill."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.launch.profile_on import (
    ProfileFile,
    ProfileOnOptions,
    measure_in_time,
    offers_of,
    profile_on,
    sample_in_time,
    save_profile,
    within,
)
from mark_infra.launch.rented_search import LeftS, RentalOverdue, RentedSearch

from mark.cloud.machine import InstanceLife
from mark.control.ports import Launched
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, CapacityError, CloudError, DeniedError, ThrottledError
from mark.domain.offer import Delay, Market, Offer
from mark.domain.slo import Slo
from mark.models.call import Call
from mark.profiling.measure import Measured, Size, sizes_of
from mark.profiling.measure_server import Profiling
from mark.profiling.search import ProfileSearch, Rent, RoundsInTime, SearchDone, SearchGoal, longest_s
from mark.profiling.table import load_profiles
from mark.testing.fakes import FakeCloud, ManualClock
from tests.certificates import of_its_own

WANTED = SearchGoal(Slo(0.3, 0.98), batches=(1, 4), seconds=10.0)
BOOT_S = 70.0


def offer(name: str, vcpu: float, usd_per_hour: float, market: Market = Market.ON_DEMAND) -> Offer:
    zone = "z" if market is Market.SPOT else ""
    return Offer(name, market, usd_per_hour, Delay(60.0, 120.0), vcpu=vcpu, zone=zone)


LARGE, XLARGE, OTHER = offer("c.large", 2, 0.1), offer("c.xlarge", 4, 0.2), offer("d.large", 2, 0.11)
SPOT = offer("c.large", 2, 0.03, Market.SPOT)


class Rented:
    """A search over a cloud whose time passes only by its clock. A look takes a second, a boot BOOT_S, a batch its own
    time.

    `one_ms` is by type. `meet` is called in every measurement with the instance's number, and may change the cloud.
    """

    def __init__(
        self,
        *offers: Offer,
        one_ms: Mapping[str, float],
        budget_usd: float = 10.0,
        spot: tuple[Offer, ...] = (),
        wanted: SearchGoal = WANTED,
    ) -> None:
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock)
        self.one_ms, self.boots, self.measured_of = one_ms, True, list[str]()
        self.meet: Callable[[int], None] = lambda number: None
        self.search = ProfileSearch(offers, wanted, budget_usd)
        self.rented = RentedSearch(
            self.search,
            {o.instance: [*(s for s in spot if s.instance == o.instance), o] for o in offers},
            self.cloud,
            self.clock,
            self.measure,
            self.look,
            "run",
        )

    def look(self) -> None:
        self.clock.t_s += 1.0
        if self.boots and all(self.clock.t_s >= i.launched_s + BOOT_S for i in self.cloud.instances.values()):
            self.cloud.boot()

    def measure(self, number: int, rent: Rent, left_s: LeftS) -> Measured:
        self.measured_of.append(self.cloud.instances[number].offer)
        self.meet(number)
        self.clock.t_s += rent.seconds * len(rent.batches)
        left_s()
        one_s = self.one_ms[rent.instance] / 1e3
        sizes = tuple(Size(b, 300, b * one_s, 0.0, b * one_s, None) for b in rent.batches)
        failed = {} if number in self.cloud.instances else {4: "no connection"}
        return Measured("m", rent.instance, sizes, failed=failed)

    def launched(self) -> list[str]:
        return [call[1] for call in self.cloud.calls if call[0] == "launch"]

    def end(self) -> SearchDone:
        stop = self.rented.execute()
        assert not self.cloud.instances, "something still runs"
        return stop


class Sampled(Rented):
    """A search that measures each request; an item takes `one_ms`.

    `hangs` tells by instance number and size which requests get no answer.
    """

    hangs: Callable[[int, int], bool] = staticmethod(lambda number, size: False)

    def measure(self, number: int, rent: Rent, left_s: LeftS) -> Measured:
        def ask(size: int) -> float:
            most_s = left_s()
            took_s = math.inf if self.hangs(number, size) else size * self.one_ms[rent.instance] / 1e3
            self.clock.t_s += min(took_s, most_s)
            if took_s > most_s:
                raise RentalOverdue("no answer")
            return took_s

        sampling = RoundsInTime(rent.batches, precision=0.02, seconds=rent.seconds)
        sample_in_time(sampling, ask, left_s)
        failed = dict(sampling.failed)
        return Measured("m", rent.instance, sizes_of(sampling), failed=failed, notes=sampling.notes())


def test_the_best_is_found_and_everything_is_ended() -> None:
    """c.xlarge costs at best as much as c.large, and is never launched."""
    world = Rented(LARGE, XLARGE, OTHER, one_ms={"c.large": 20.0, "d.large": 40.0})
    assert world.end().best == "c.large"
    assert world.launched() == ["c.large/on-demand", "d.large/on-demand"]
    assert set(world.rented.measured) == {"c.large", "d.large"}


def test_the_bill_is_from_launch_to_end() -> None:
    """70 s of boot, both lengths of 5 and 20 s, and a look after each."""
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.end()
    ((bill,),) = world.rented.bills.values()
    assert bill.seconds == BOOT_S + 5.0 + 20.0 + 2.0
    assert world.search.spent_usd == bill.usd == pytest.approx(97.0 * 0.1 / 3600.0)


def test_spot_is_taken_where_it_can_be_had() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0}, spot=(SPOT,))
    world.end()
    assert [bill.offer for bill in world.rented.bills["c.large"]] == ["c.large/spot/z"]


def test_spot_that_is_out_is_bought_on_demand() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0}, spot=(SPOT,))
    world.cloud.fail["c.large/spot/z"] = CapacityError("InsufficientInstanceCapacity")
    assert world.end().best == "c.large"
    assert world.launched() == ["c.large/spot/z", "c.large/on-demand"]


def test_an_interrupted_spot_is_measured_again_on_demand() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0}, spot=(SPOT,))
    taken: list[int] = []

    def take(number: int) -> None:
        if not taken:
            taken.append(number)
            del world.cloud.lives[number]

    world.meet = take
    assert world.end().best == "c.large"
    assert world.measured_of == ["c.large/spot/z", "c.large/on-demand", "c.large/on-demand"]
    assert [bill.offer for bill in world.rented.bills["c.large"]] == ["c.large/spot/z", "c.large/on-demand"]


def test_spot_that_refuses_is_measured_again_on_demand() -> None:
    """After its interruption notice it refuses requests, two minutes before its end."""
    world = Rented(LARGE, one_ms={"c.large": 20.0}, spot=(SPOT,))

    def refuse(number: int) -> None:
        if world.measured_of == ["c.large/spot/z"]:
            raise BadInput("no batch could be run: connection refused", "model")

    world.meet = refuse
    assert world.end().best == "c.large"
    assert world.launched() == ["c.large/spot/z", "c.large/on-demand"]


def test_a_refused_type_costs_no_other_its_measurement() -> None:
    """Its image may be for other processors, for example."""
    world = Rented(LARGE, OTHER, one_ms={"c.large": 20.0, "d.large": 40.0})
    world.cloud.fail["c.large/on-demand"] = CloudError("InvalidParameterValue: no")
    stop = world.end()
    assert stop.best == "d.large"
    assert stop.why["c.large"] == "not measured: InvalidParameterValue: no"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CloudError("ReadTimeoutError"), ThrottledError("later")])
def test_a_launch_without_an_answer_is_ended_when_seen(error: BaseException) -> None:
    """EC2 shows the instance some looks later."""
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    launch, calm = world.cloud.launch, world.look
    hidden: dict[int, InstanceLife] = {}

    def lose(offer: str, count: int, token: str, **more: Any) -> Launched:
        launch(offer, count, token, **more)
        hidden.update(world.cloud.lives)
        world.cloud.lives.clear()
        raise error

    def look() -> None:
        calm()
        if world.clock.t_s >= 10.0:
            world.cloud.lives.update(hidden)
            hidden.clear()

    world.cloud.launch = lose  # type: ignore[method-assign]
    world.rented.look = look
    if isinstance(error, CloudError) and not isinstance(error, ThrottledError):
        assert world.rented.execute().best is None
    else:
        with pytest.raises(type(error)):
            world.rented.execute()
    assert not hidden
    assert not world.cloud.instances


def test_an_instance_taken_while_it_boots_is_not_waited_for() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0}, spot=(SPOT,))
    calm = world.look

    def look() -> None:
        calm()
        if world.clock.t_s == 5.0:
            world.cloud.interrupt(1)

    world.rented.look = look
    assert world.end().best == "c.large"
    assert world.rented.bills["c.large"][0].seconds == 60.0, "EC2 bills a minute at least"


def test_a_refused_type_is_reported_and_the_next_is_taken() -> None:
    world = Rented(LARGE, OTHER, one_ms={"d.large": 20.0})
    world.cloud.fail["c.large/on-demand"] = CapacityError("InsufficientInstanceCapacity: none left")
    stop = world.end()
    assert stop.best == "d.large"
    assert stop.why["c.large"] == "not measured: InsufficientInstanceCapacity: none left"


def test_what_never_gets_ready_is_given_up_in_time() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.boots = False
    stop = world.end()
    assert stop.best is None
    assert stop.why["c.large"] == "not measured: not done within 220 s of its launch"
    ((bill,),) = world.rented.bills.values()
    assert bill.seconds <= 220.0


def test_a_measurement_that_hangs_is_cut_off() -> None:
    world = Rented(LARGE, OTHER, one_ms={"c.large": 20.0, "d.large": 20.0})

    def hang(number: int) -> None:
        if world.cloud.instances[number].offer == "c.large/on-demand":
            world.clock.t_s += 1000.0

    world.meet = hang
    assert world.end().best == "d.large"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeniedError("no"), RuntimeError("a fault")])
def test_whatever_happens_what_was_launched_is_ended(error: BaseException) -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})

    def fail(number: int) -> None:
        raise error

    world.meet = fail
    with pytest.raises(type(error)):
        world.rented.execute()
    assert not world.cloud.instances
    assert world.search.spent_usd > 0.0


def test_leftovers_of_a_killed_run_are_ended_first() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.cloud.launch("c.xlarge/on-demand", 2, "killed")
    world.end()
    assert [call for call in world.cloud.calls if call[0] == "terminate"][:2] == [("terminate", 1), ("terminate", 2)]


def test_leftovers_that_may_not_be_bought_any_more_are_ended_too() -> None:
    """Their type has left the catalogue since, or their zone the site."""
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.cloud.launch("c.old/on-demand", 1, "killed")
    world.cloud.unsold.add("c.old/on-demand")
    world.end()


def test_an_end_that_fails_is_tried_again() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    calm = world.look

    def look() -> None:
        calm()
        world.cloud.fail.pop("terminate", None)

    def break_down(number: int) -> None:
        world.cloud.fail["terminate"] = CloudError("500")
        world.rented.look = look

    world.meet = break_down
    assert world.end().best == "c.large"


def test_an_instance_that_cannot_be_ended_is_named() -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.cloud.fail["terminate"] = CloudError("500")
    with pytest.raises(CloudError, match="#1 may still run, and must be ended by hand: 500"):
        world.rented.execute()


GENEROUS = SearchGoal(Slo(60.0, 0.98), batches=(1, 4), seconds=10.0)


@pytest.mark.parametrize(("one_s", "batches"), [(0.6, [1, 4]), (8.0, [1, 4]), (20.0, [1]), (100.0, [1])])
def test_a_slow_type_is_measured_in_fewer_rounds(one_s: float, batches: list[int]) -> None:
    """145 s are left after the boot, and six rounds of 8 + 32 s would take 240."""
    world = Sampled(LARGE, one_ms={"c.large": one_s * 1e3}, wanted=GENEROUS)
    stop = world.end()
    sizes = world.rented.measured["c.large"].sizes
    assert [(size.batch, size.mean_s) for size in sizes] == [(b, pytest.approx(b * one_s)) for b in batches]
    assert all(size.count >= 2 for size in sizes) or one_s == 100.0, "of 100 s only one fits"
    assert "not measured" not in stop.why["c.large"]
    ((bill,),) = world.rented.bills.values()
    assert bill.seconds <= longest_s(LARGE, GENEROUS)


def test_a_slow_type_is_not_measured_again_in_less_time() -> None:
    world = Sampled(LARGE, one_ms={"c.large": 8e3}, wanted=GENEROUS)
    assert "its shorter measurement took" in world.end().why["c.large"]
    assert world.rented.measured["c.large"].sizes[0].count >= 2


def test_a_type_without_one_answer_is_given_up() -> None:
    world = Sampled(LARGE, one_ms={"c.large": 150e3}, wanted=GENEROUS)
    assert world.end().why["c.large"] == "not measured: no answer"


def test_a_size_that_hangs_costs_the_others_nothing() -> None:
    world = Sampled(LARGE, one_ms={"c.large": 20.0})
    world.hangs = lambda number, size: size == 4
    world.end()
    measured = world.rented.measured["c.large"]
    assert [size.batch for size in measured.sizes] == [1]
    assert measured.failed == {4: "no answer"}
    ((bill,),) = world.rented.bills.values()
    assert bill.seconds <= 220.0


def test_spot_that_hangs_and_is_taken_is_tried_on_demand() -> None:
    """Its times from before its end cannot be trusted."""
    world = Sampled(LARGE, one_ms={"c.large": 1000.0}, spot=(SPOT,))

    def hangs(number: int, size: int) -> bool:
        if number == 1 and world.clock.t_s > 80.0:
            world.cloud.lives.pop(1, None)
        return number not in world.cloud.instances

    world.hangs = hangs
    world.end()
    assert world.launched() == ["c.large/spot/z", "c.large/on-demand"]


@given(st.floats(0.001, 300.0), st.floats(0.001, 300.0), st.sampled_from([0, 1, 4]), st.floats(0.005, 0.02))
def test_however_slow_the_budget_is_kept(one_s: float, other_s: float, hangs: int, budget_usd: float) -> None:
    one_ms = {"c.large": one_s * 1e3, "d.large": other_s * 1e3}
    world = Sampled(LARGE, OTHER, one_ms=one_ms, budget_usd=budget_usd, wanted=GENEROUS)
    world.hangs = lambda number, size: size == hangs
    world.end()
    assert world.search.spent_usd <= budget_usd
    for bills in world.rented.bills.values():
        assert all(bill.seconds <= longest_s(LARGE, GENEROUS) for bill in bills)


def test_an_answer_is_waited_for_no_longer_than_said() -> None:
    never = threading.Event()
    with pytest.raises(RentalOverdue, match="no answer in the 0 s that were left of its rental"):
        within(never.wait, 0.01)
    never.set()
    assert within(lambda: 7, 600.0) == 7
    with pytest.raises(BadInput):
        within(lambda: save_profile(Measured("m", "i", ()), Path(__file__)), 600.0)


class Holding(BaseHTTPRequestHandler):
    """A server of Open Inference without declared tensors; it answers from the third request on when the test says."""

    protocol_version = "HTTP/1.1"
    asked = 0
    let = threading.Event()

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).asked += 1
        if self.asked > 2:
            self.let.wait()
        self._answer(b'{"outputs": [{"name": "y", "datatype": "FP64", "shape": [1], "data": [1]}]}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def holding() -> Iterator[str]:
    """Serve it by https, as bouncers on AWS do."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Holding) as made:
        made.socket = of_its_own().wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{made.server_port}/v2/models/m"
        Holding.let.set()
        made.shutdown()
        thread.join()


def test_a_server_that_hangs_leaves_what_it_answered(holding: str) -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}'
    calls = (Call("oip", "application/json", body),)
    what = Profiling(holding, named="m", instance="c.large", batches=(1,), calls=calls)
    found = measure_in_time(what, lambda: 1.0)
    assert [(size.batch, size.count) for size in found.sizes] == [(1, 2)]
    assert found.notes[-1] == "a batch of 1 counts 2 of its rounds only: the type is slow"


def test_what_was_measured_is_kept_when_the_search_dies(tmp_path: Path) -> None:
    """It dies at the second type: the file has the first type's rows, and one line says so."""
    out = tmp_path / "p.csv"
    file = ProfileFile(out)
    assert file.at_early_end() == f"ended early: nothing was measured, and {out} is as it was"
    world = Rented(LARGE, OTHER, one_ms={"c.large": 20.0, "d.large": 40.0})
    world.rented.keep = file.keep

    def die(number: int) -> None:
        if world.cloud.instances[number].offer == "d.large/on-demand":
            raise KeyboardInterrupt

    world.meet = die
    with pytest.raises(KeyboardInterrupt):
        world.rented.execute()
    assert load_profiles(str(out))["m"] == {"c.large": world.rented.measured["c.large"].profile()}
    assert file.at_early_end() == f"ended early: {out} has the measurements on c.large"
    assert list(tmp_path.iterdir()) == [out], "nothing unfinished stays"


def test_a_file_that_cannot_be_written_costs_no_search(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = Rented(LARGE, one_ms={"c.large": 20.0})
    world.rented.keep = ProfileFile(tmp_path / "gone" / "p.csv").keep
    assert world.end().best == "c.large"
    assert "c.large could not be written to" in caplog.text
    assert ProfileFile(None).at_early_end() is None


def test_a_profile_is_replaced_at_once(tmp_path: Path) -> None:
    """A reader that has the old file open reads it to its end; the mode stays, and so does a link to it."""
    file, link = tmp_path / "p.csv", tmp_path / "link.csv"
    save_profile(Measured("m", "c.large", (Size(1, 300, 0.1, 0.0, 0.1, None),)), file)
    file.chmod(0o640)
    link.symlink_to(file)
    before = file.read_text()
    with file.open() as reader:
        save_profile(Measured("m", "d.large", (Size(1, 300, 0.2, 0.0, 0.2, None),)), link)
        assert reader.read() == before
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert set(load_profiles(str(file))["m"]) == {"c.large", "d.large"}


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[Offer], dict[str, float], tuple[str, ...], float]:
    """Draw offers, times of one request, offers that cannot be launched, and a budget."""
    offers, one_ms = [], {}
    for family in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        for vcpu in draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, unique=True)):
            made = offer(f"{family}.{vcpu}", vcpu, 0.05 * vcpu * draw(st.floats(0.5, 2.0)))
            offers.append(made)
            one_ms[made.instance] = draw(st.floats(1.0, 500.0))
    refused = tuple(draw(st.lists(st.sampled_from(sorted(one_ms)), unique=True)))
    return offers, one_ms, refused, draw(st.floats(0.001, 0.2))


@given(markets())
def test_any_market_is_left_empty_and_within_the_budget(
    drawn: tuple[list[Offer], dict[str, float], tuple[str, ...], float],
) -> None:
    """The chosen type is no dearer than any other measured type."""
    offers, one_ms, refused, budget_usd = drawn
    world = Rented(*offers, one_ms=one_ms, budget_usd=budget_usd)
    world.cloud.fail |= {f"{name}/on-demand": CapacityError("none left") for name in refused}
    best = world.end().best
    assert world.search.spent_usd <= budget_usd
    costs = world.search.costs()
    assert (best is None) == (not costs)
    assert best is None or costs[best] == min(costs.values())


def test_offers_are_spot_by_price_then_on_demand() -> None:
    found = offers_of(load_catalog("aws-2026"), ["c7i.large"], (Market.SPOT,), ["us-east-1b"])
    assert [o.name for o in found["c7i.large"]] == ["c7i.large/spot/us-east-1b", "c7i.large/on-demand"]
    found = offers_of(load_catalog("aws-2026"), ["c7i.large"], (Market.ON_DEMAND,), ["us-east-1b"])
    assert [o.name for o in found["c7i.large"]] == ["c7i.large/on-demand"]


def test_a_type_that_is_not_sold_is_named() -> None:
    with pytest.raises(BadInput, match="--on: the catalogue aws-2026 has no such type, did you mean c7i"):
        offers_of(load_catalog("aws-2026"), ["c7i.lage"], (), [])


def test_without_a_site_one_line_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARK_SITE", raising=False)
    with pytest.raises(BadInput, match="say where to rent: --site FILE, or MARK_SITE"):
        profile_on(ProfileOnOptions(service="nasnet", types=["c5.large"], budget_usd=1.0))


def test_a_testbed_that_compresses_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        '[site]\nname = "mark"\nregion = "us-east-1"\nstore = "sqlite:state.db"\ntime_scale = 60.0\n'
    )
    with pytest.raises(BadInput, match="compresses time"):
        profile_on(ProfileOnOptions(service="nasnet", types=["c5.large"], budget_usd=1.0, site=tmp_path / "site.toml"))
