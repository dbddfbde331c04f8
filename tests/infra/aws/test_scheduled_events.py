"""Events that EC2 has scheduled for instances, from DescribeInstanceStatus."""

from __future__ import annotations

import pytest
from mark_infra.aws.scheduled_events import ENDS, MAINTENANCE, PERIOD_S, ends_it

from mark.domain.errors import DeniedError
from mark.domain.fleet import Phase, ScheduledEvent
from tests.control.control_fakes import BURSTABLE, ON_DEMAND
from tests.infra.aws.bench import Bench, Place

OD = ON_DEMAND.name
AT_S = 1.8e9 + 86_400.0


@pytest.fixture
def bench(place: Place) -> Bench:
    market = place.market
    market.left, market.events, market.statuses, market.status_page = {}, {}, [], 1000
    return Bench(place)


@pytest.mark.parametrize(
    ("code", "description", "ends"),
    [
        *((code, "The instance is running on degraded hardware", True) for code in ENDS),
        ("instance-stop", "[Completed] The instance is running on degraded hardware", False),
        ("system-reboot", "[Canceled] Your instance will be rebooted", False),
        (MAINTENANCE, "scheduled power maintenance", True),
        (MAINTENANCE, "scheduled network maintenance", False),
        (MAINTENANCE, "[Completed] Power maintenance", False),
        ("something-new", "power", False),
    ],
)
def test_what_ends_or_restarts_an_instance(code: str, description: str, ends: bool) -> None:
    assert ends_it({"Code": code, "Description": description, "NotBefore": AT_S}) is ends


def test_an_event_without_a_time_is_none() -> None:
    assert not ends_it({"Code": "instance-stop"})


def test_all_pages_are_read_and_only_instances_with_events_requested(bench: Bench) -> None:
    bench.place.market.status_page = 2
    for n in range(5):
        bench.place.market.schedule(f"i-{n}", "system-reboot", AT_S + n)
    bench.events.refresh()
    assert [bench.events.of(f"i-{n}") for n in range(6)] == [
        *(("system-reboot", AT_S + n) for n in range(5)),
        None,
    ]
    first, *_ = asked = bench.place.market.statuses
    assert len(asked) == 3
    assert {value for key, value in first.items() if key.startswith("Filter.1.Value.")} == {*ENDS, MAINTENANCE}
    assert first["Filter.1.Name"] == "event.code"


def test_the_first_one_to_come_counts(bench: Bench) -> None:
    market = bench.place.market
    market.schedule("i-1", "instance-retirement", AT_S)
    market.schedule("i-1", "system-reboot", AT_S - 60.0)
    market.schedule("i-1", "instance-stop", AT_S - 3600.0, "[Canceled] The instance is running on degraded hardware")
    bench.events.refresh()
    assert bench.events.of("i-1") == ("system-reboot", AT_S - 60.0)


def test_ec2_is_asked_once_a_minute_and_refusals_change_nothing(bench: Bench) -> None:
    """A site whose rights are older than its controller refuses the call."""
    market = bench.place.market
    market.schedule("i-1", "instance-stop", AT_S)
    bench.events.refresh()
    market.events.clear()
    bench.time.t_s += PERIOD_S - 1.0
    bench.events.refresh()
    assert len(market.statuses) == 1
    market.tells_statuses = False
    bench.time.t_s += 1.0
    with pytest.raises(DeniedError):
        bench.events.refresh()
    assert bench.events.of("i-1") == ("instance-stop", AT_S)
    bench.events.refresh()  # no second call within the minute
    assert len(market.statuses) == 2
    market.tells_statuses = True
    bench.time.t_s += PERIOD_S
    bench.events.refresh()
    assert bench.events.of("i-1") is None


def test_a_stopped_standby_has_none(bench: Bench) -> None:
    """It will start on other hardware."""
    (number,) = bench.cloud.launch(BURSTABLE.name, 1, "t", standby=True).numbers
    bench.schedule(number, "instance-stop", 5000.0)
    bench.pass_s()
    assert bench.cloud.fleet().instances[0].event == ScheduledEvent("instance-stop", 5000.0)
    bench.boot()
    (instance,) = bench.cloud.fleet().instances
    assert (instance.phase, instance.event) == (Phase.STOPPED, None)
