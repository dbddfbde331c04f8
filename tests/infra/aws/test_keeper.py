"""The thread beside the controller, and the orphans that it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mark_infra.aws.inventory import DescribedInstance, InventorySnapshot
from mark_infra.aws.keeper import FORGET_ROUNDS, Keeper
from mark_infra.aws.orphans import GRACE_S, Reconciler, orphans
from mark_infra.aws.readiness import AskedBouncers

from mark.domain.errors import CloudError, StoreError, ThrottledError
from mark.domain.fleet import Phase
from tests.control.control_fakes import ON_DEMAND
from tests.infra.aws.bench import Bench, Place

OD = ON_DEMAND.name


@pytest.fixture
def bench(place: Place) -> Bench:
    place.market.left = {}
    return Bench(place)


@dataclass
class Term:
    clouds: Mapping[str, Any]
    reconciler: Reconciler


def keeper(bench: Bench, *, leads: bool = True, clouds: Sequence[Any] = ()) -> Keeper:
    reconciler = Reconciler(bench.gate, bench.inventory, bench.site, monotonic=bench.time.unix_s)
    term = Term({one.service: one for one in clouds or (bench.cloud,)}, reconciler)
    services = [bench.cloud.service]
    return Keeper(bench.inventory, AskedBouncers(bench.site), services, lambda: term if leads else None, bench.events)


def test_instances_of_unknown_services_are_orphans() -> None:
    """Instances of other services that the site names are no orphans, nor are instances launched by hand."""
    mine, other, gone = (
        DescribedInstance(f"i-{n}", service, "x", "t", "running", 0.0) for n, service in enumerate("abc")
    )
    snapshot = InventorySnapshot({"a": (mine,), "b": (other,), "c": (gone,)})
    assert orphans(snapshot, {"a", "b"}) == [gone]
    assert orphans(snapshot, {"a", "b", "c"}) == []
    by_hand = replace(gone, launch="")
    assert orphans(InventorySnapshot({"c": (by_hand,)}), {"a"}) == []


def test_orphans_end_after_a_grace(bench: Bench) -> None:
    """Their service is no longer in the site."""
    bench.cloud.launch(OD, 2, "t")
    without = replace(bench.site, services={"other": bench.site.service("inception")})
    reconciler = Reconciler(bench.gate, bench.inventory, without, monotonic=bench.time.unix_s)
    bench.pass_s()
    assert reconciler.sweep() == []
    bench.pass_s(GRACE_S - 1.0)
    assert reconciler.sweep() == []
    bench.pass_s(1.0)
    assert len(reconciler.sweep()) == 2
    assert bench.ids() == []
    assert reconciler.sweep() == []


def test_orphan_that_may_not_end_keeps_no_other_from_ending(bench: Bench, place: Place) -> None:
    bench.cloud.launch(OD, 2, "t")
    kept, *_ = bench.ids()
    place.server.client("ec2").modify_instance_attribute(InstanceId=kept, DisableApiTermination={"Value": True})
    without = replace(bench.site, services={"other": bench.site.service("inception")})
    reconciler = Reconciler(bench.gate, bench.inventory, without, monotonic=bench.time.unix_s)
    bench.pass_s()
    reconciler.sweep()
    bench.pass_s(GRACE_S)
    with pytest.raises(CloudError, match="disableApiTermination"):
        reconciler.sweep()
    assert bench.ids() == [kept]


def test_a_follower_only_looks(bench: Bench) -> None:
    bench.cloud.launch(OD, 1, "t")
    follower = keeper(bench, leads=False)
    bench.time.t_s += 2.0
    follower.step()
    bench.pass_s(GRACE_S)
    bench.bouncers.serving.update(bench.ids())
    follower.step()
    assert bench.phases() == {1: Phase.PENDING}
    leader = keeper(bench)
    leader.step()
    assert bench.phases() == {1: Phase.READY}


def test_trouble_in_one_place_stops_nothing_else(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The trouble may be the cloud's or a fault of ours."""
    bench.cloud.launch(OD, 1, "t")

    class Broken:
        service = "broken"

        def upkeep(self) -> None:
            raise ZeroDivisionError

    class Throttled:
        service = "throttled"

        def upkeep(self) -> None:
            raise ThrottledError("slow down")

    kept = keeper(bench, clouds=(Broken(), Throttled(), bench.cloud))
    kept._ask = lambda: None  # type: ignore[method-assign]
    bench.bouncers.serving.update(bench.ids())
    bench.time.t_s += 2.0
    with caplog.at_level(logging.WARNING):
        kept.step()
    assert bench.phases() == {1: Phase.READY}
    assert [record.getMessage() for record in caplog.records] == ["broken", "throttled: slow down"]


def test_ghosts_are_forgotten_every_hour(bench: Bench) -> None:
    kept = keeper(bench)
    kept.step()
    assert bench.numbers.forgot == []
    kept._rounds = FORGET_ROUNDS - 1
    bench.numbers.error = StoreError("locked")
    kept.step()
    assert bench.numbers.forgot == [set()]


def test_the_thread_begins_after_the_first_round_and_ends(bench: Bench) -> None:
    before = threading.active_count()
    kept = keeper(bench)
    kept.start()
    assert bench.inventory.snapshot() is bench.inventory.snapshot()
    kept.close()
    kept.close()
    assert threading.active_count() == before
    keeper(bench).close()
