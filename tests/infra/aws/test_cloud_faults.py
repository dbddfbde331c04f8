"""Ec2Cloud while a share of all calls fails: throttled, refused, answered with nonsense, or done with a lost answer."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from mark.domain.errors import CloudError
from mark.domain.fleet import Phase
from tests.control.control_fakes import BURSTABLE, ON_DEMAND, SPOT_A
from tests.infra.aws.bench import Bench, Place
from tests.infra.fault_proxy import Fault, FaultProxy, fault_proxy

OD, SPOT, T2 = ON_DEMAND.name, SPOT_A.name, BURSTABLE.name
# Faults that answer at once. Silence only costs time (the SDK's, and the gate's budget: see its tests).
QUICK = (Fault.INTERNAL, Fault.UNAVAILABLE, Fault.LOST)


def check(bench: Bench) -> None:
    """Check that the fleet shows exactly the running instances: no leak, no double."""
    ids = [bench.id_of(i.number) for i in bench.cloud.fleet().instances]
    assert sorted(ids) == sorted(bench.ids())


def insist(bench: Bench, act: str, *arguments: object, **more: object) -> Any:
    """Repeat until it works, as a controller does."""
    for _ in range(20):
        with contextlib.suppress(CloudError):
            return getattr(bench.cloud, act)(*arguments, **more)
    pytest.fail(f"{act} never worked")


def look(bench: Bench) -> None:
    bench.time.t_s += 20.0
    for _ in range(20):
        with contextlib.suppress(CloudError):
            bench.inventory.refresh()
            return
    pytest.fail("EC2 never answered")


@pytest.mark.slow
def test_a_life_with_faults_leaves_no_leak_and_no_double(place: Place) -> None:
    """Launch, boot, stand by, resume, drain and end, while every third call fails and controllers die in between."""
    place.market.left = {}
    with fault_proxy(place.server.url, seed=1, share=0.3, faults=QUICK) as proxy:
        bench = Bench(place, groups=place.groups[:1], url=proxy.url)
        place.market.fleets.clear()
        launched = [insist(bench, "launch", offer, 2, f"{offer}/{n}").numbers for n in range(2) for offer in (OD, SPOT)]
        standbys = insist(bench, "launch", T2, 2, "t2", standby=True).numbers
        assert len(place.market.fleets) == 2 + 3 * 2  # one call per spot offer, one call per zone for others
        assert sorted(n for numbers in launched for n in numbers) == sorted(set(range(1, 11)) - set(standbys))
        check(bench)
        look(bench)
        check(bench)
        bench.bouncers.serving.update(bench.ids())
        for _ in range(2):
            insist(bench, "upkeep")
            look(bench)
        assert {bench.phases()[n] for n in standbys} == {Phase.STOPPED}
        insist(bench, "resume", standbys[0])
        bench.begin_again()
        for _ in range(2):  # it is registered first and then found healthy
            look(bench)
            insist(bench, "upkeep")
        assert bench.phases()[standbys[0]] is Phase.READY
        for number in launched[0]:
            insist(bench, "drain", number)
        insist(bench, "upkeep")
        look(bench)
        drained = {i.number for i in bench.cloud.fleet().instances if i.phase is Phase.DRAINING and i.idle}
        assert drained == set(launched[0])
        check(bench)
        for number in bench.phases():
            insist(bench, "terminate", number)
        assert bench.ids() == []
        look(bench)
        assert bench.cloud.fleet().instances == ()
        assert set(QUICK) < set(proxy.counts())


def quiet(place: Place, proxy: FaultProxy) -> Bench:
    place.market.left = {}
    bench = Bench(place, url=proxy.url)
    bench.inventory.refresh()
    place.market.fleets.clear()
    return bench


def test_a_launch_whose_every_answer_is_lost_happens_once(place: Place) -> None:
    """The controller sees a failure, the fleet shows the instance, and a repetition finds it."""
    with fault_proxy(place.server.url, share=0.0) as proxy:
        bench = quiet(place, proxy)
        proxy.script.extend([Fault.LOST] * 3)
        with pytest.raises(CloudError, match="ConnectionClosedError"):
            bench.cloud.launch(OD, 2, "t")
        assert len(place.market.fleets) == 1, "the first zone's part"
        numbers = bench.cloud.launch(OD, 2, "t").numbers
        assert len(place.market.fleets) == 2
        look(bench)
        assert tuple(i.number for i in bench.cloud.fleet().instances) == numbers
        check(bench)


def test_a_controller_that_dies_before_the_answer_finds_its_launch(place: Place) -> None:
    """Another controller counts it, whatever its own tokens are."""
    with fault_proxy(place.server.url, share=0.0) as proxy:
        bench = quiet(place, proxy)
        proxy.script.extend([Fault.LOST] * 3)
        with pytest.raises(CloudError):
            bench.cloud.launch(OD, 1, "t")
        bench.begin_again()
        assert len(bench.cloud.fleet().live()) == 1
        assert bench.cloud.fleet().live()[OD] == 1
        check(bench)


def test_a_launch_ec2_does_not_show_yet_is_not_repeated(place: Place) -> None:
    """EC2 shows nothing or only a part of it; a repetition under its token shows it and launches nothing new."""
    place.market.left = {}
    for hidden in (2, 1):
        bench = Bench(place)
        place.market.fleets.clear()
        numbers = bench.cloud.launch(OD, 2, f"{hidden} hidden").numbers
        lagging = bench.ids()[:hidden]
        place.server.client("ec2").delete_tags(Resources=lagging, Tags=[{"Key": "mark:site"}])
        bench.begin_again()
        assert len(bench.cloud.fleet().instances) == 2 - hidden
        assert bench.cloud.launch(OD, 2, f"{hidden} hidden").numbers == numbers
        assert tuple(i.number for i in bench.cloud.fleet().instances) == numbers
        assert len(place.market.fleets) == 2, "one for each zone"


def test_throttling_delays_and_nothing_else(place: Place) -> None:
    with fault_proxy(place.server.url, share=0.0) as proxy:
        bench = quiet(place, proxy)
        proxy.script.append(Fault.THROTTLED)
        assert len(bench.cloud.launch(OD, 1, "t").numbers) == 1
        assert len(place.market.fleets) == 1
        bench.time.t_s += 20.0
        proxy.script.extend([Fault.UNAVAILABLE] * 3)
        with pytest.raises(CloudError):
            bench.inventory.refresh()
        assert len(bench.cloud.fleet().instances) == 1
