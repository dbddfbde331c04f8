"""A site's instances, by EC2's last answer and by our changes since."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import botocore.session  # type: ignore[import-untyped]
import pytest
from mark_infra.aws.inventory import (
    OLDEST_S,
    PERIOD_S,
    SETTLE_S,
    DescribedInstance,
    Inventory,
    InventoryChange,
    after,
    as_bought,
    machine_of,
    phase_of,
    takes_requests,
)
from mark_infra.aws.site import Site

from mark.domain.errors import CloudError, ThrottledError
from mark.domain.fleet import Phase
from tests.infra.aws.bench import Time

SEEN = DescribedInstance("i-1", "inception", "c5.large/on-demand", "t", "running", 100.0)
STOPPED, RUNNING = frozenset(("stopping", "stopped")), frozenset(("pending", "running"))

# EC2's model lists the possible StateReasons; these are the ones that mean a refused launch.
_SAID = (
    botocore.session.get_session().get_service_model("ec2").shape_for("StateReason").members["Message"].documentation
)
EVERY_REASON = sorted(set(re.findall(r"<code>([\w.]+)</code>", _SAID)))
REFUSALS = {
    *("Client.InternalError", "Client.InvalidSnapshot.NotFound", "Client.VolumeLimitExceeded"),
    *("Server.InsufficientInstanceCapacity", "Server.InternalError"),
}


def described(id: str, state: str = "running", launched_s: float = 100.0, **tags: str) -> dict[str, Any]:
    tags = {"site": "mark", "service": "inception", "offer": "c5.large/on-demand", **tags}
    return {
        "InstanceId": id,
        "State": {"Name": state},
        "LaunchTime": datetime.fromtimestamp(launched_s, UTC),
        "PrivateIpAddress": "10.0.0.1",
        "Tags": [{"Key": f"mark:{key}", "Value": value} for key, value in tags.items()],
    }


class Ec2:
    """A stand-in for the gate that answers or fails as the test says."""

    def __init__(self) -> None:
        self.instances: list[dict[str, Any]] = []
        self.error: CloudError | None = None
        self.asked = 0
        self.during = lambda: None  # runs while EC2 prepares its answer

    def client(self, service: str) -> Any:
        return self

    describe_instances = None

    def pages(self, method: Any, **arguments: Any) -> list[dict[str, Any]]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        answer = [{"Reservations": [{"Instances": [i]}]} for i in self.instances]
        self.during()
        return answer


@pytest.fixture
def ec2() -> Ec2:
    return Ec2()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def inventory(ec2: Ec2, time: Time) -> Inventory:
    return Inventory(ec2, Site("mark", "us-east-1", "sqlite:none"), monotonic=time.unix_s)  # type: ignore[arg-type]


def states(inventory: Inventory) -> dict[str, str]:
    return {m.id: m.state for m in inventory.snapshot().of("inception")}


def test_tags_are_read() -> None:
    """Values may be ones that mark did not write."""
    tags: dict[str, Any] = {"standby": "true", "launch": "t", "ready": "12.5", "draining": "13", "resumed": "11"}
    machine = machine_of(described("i-1", **tags))
    assert machine == replace(
        SEEN, address="10.0.0.1", standby=True, ready_unix_s=12.5, draining_unix_s=13.0, resumed_unix_s=11.0
    )
    odd = machine_of(described("i-1", launch="t", standby="yes", ready="", draining="soon", resumed=""))
    assert odd == replace(SEEN, address="10.0.0.1")
    assert machine_of({**described("i-1"), "Tags": []}).service == ""


@pytest.mark.parametrize(("subnet", "left"), [("subnet-a", False), ("subnet-z", True), ("", False)])
def test_a_zone_that_the_site_dropped_was_left(subnet: str, left: bool) -> None:
    """An instance whose subnet EC2 does not name stays where it was."""
    assert machine_of({**described("i-1"), "SubnetId": subnet}, {"subnet-a": "a"}).left_zone is left


def test_services_are_apart_and_the_oldest_comes_first(inventory: Inventory, ec2: Ec2) -> None:
    ec2.instances = [
        described("i-3"), described("i-1", launched_s=200.0), described("i-2"), described("i-9", service="other"),
    ]  # fmt: skip
    assert list(states(inventory)) == ["i-2", "i-3", "i-1"]
    assert [m.id for m in inventory.snapshot().of("other")] == ["i-9"]
    assert inventory.snapshot().of("absent") == ()


def test_ec2_is_asked_once_a_second_at_most(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """The number of threads does not matter."""
    threads = [threading.Thread(target=inventory.refresh) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    inventory.snapshot()
    assert ec2.asked == 1
    time.t_s += PERIOD_S
    inventory.refresh()
    inventory.refresh()
    assert ec2.asked == 2


def test_the_same_snapshot_until_something_changes(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    ec2.instances = [described("i-1")]
    first = inventory.snapshot()
    time.t_s += 5.0
    inventory.refresh()
    assert inventory.snapshot() is first
    inventory.changed(["i-1"], draining_unix_s=1.0)
    assert inventory.snapshot() is not first


def test_the_last_good_answer_is_kept_for_a_minute(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """After that it is too old to act on. Reading it never calls EC2."""
    ec2.instances = [described("i-1")]
    inventory.refresh()
    ec2.error = ThrottledError("RequestLimitExceeded")
    time.t_s += OLDEST_S
    with pytest.raises(ThrottledError):
        inventory.refresh()
    assert states(inventory) == {"i-1": "running"}
    time.t_s += 1.0
    with pytest.raises(CloudError, match="EC2 has not listed the instances for 61 s"):
        inventory.snapshot()
    assert ec2.asked == 2
    ec2.error = None
    inventory.refresh()
    assert states(inventory) == {"i-1": "running"}


def test_without_any_answer_there_is_no_snapshot(inventory: Inventory, ec2: Ec2) -> None:
    ec2.error = ThrottledError("RequestLimitExceeded")
    with pytest.raises(ThrottledError):
        inventory.snapshot()


def test_a_launch_shows_though_ec2_does_not_know_it_yet(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """This lasts for a while; an instance that never appears then counts as never launched."""
    inventory.refresh()
    inventory.born([replace(SEEN, state="pending")])
    time.t_s += 5.0
    inventory.refresh()
    assert states(inventory) == {"i-1": "pending"}
    ec2.instances = [described("i-1")]
    time.t_s += 5.0
    inventory.refresh()
    assert states(inventory) == {"i-1": "running"}
    ec2.instances = []
    time.t_s += SETTLE_S
    inventory.refresh()
    assert states(inventory) == {}


def test_what_ec2_says_has_ended_is_believed_at_once(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """This holds right after its launch, too. An instance that EC2 does not show at all may show later."""
    inventory.refresh()
    inventory.born([replace(SEEN, state="pending"), replace(SEEN, id="i-2", state="pending")])
    inventory.changed(["i-1"], ready_unix_s=1.0)
    ec2.instances = [described("i-1", "shutting-down")]
    time.t_s += PERIOD_S
    inventory.refresh()
    assert states(inventory) == {"i-2": "pending"}
    ec2.instances = [described("i-1", "terminated")]
    time.t_s += PERIOD_S
    inventory.refresh()
    assert states(inventory) == {"i-2": "pending"}


def test_what_is_done_while_ec2_answers_is_not_lost(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """EC2 prepared the answer before the change."""
    ec2.instances = [described("i-1"), described("i-2")]
    inventory.refresh()
    time.t_s += PERIOD_S

    def meanwhile() -> None:
        inventory.ended(["i-1"])
        inventory.changed(["i-2"], draining_unix_s=7.0)

    ec2.during = meanwhile
    inventory.refresh()
    (left,) = inventory.snapshot().of("inception")
    assert (left.id, left.draining_unix_s) == ("i-2", 7.0)


def test_a_change_holds_until_ec2_shows_it(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    ec2.instances = [described("i-1")]
    inventory.refresh()
    inventory.changed(["i-1"], state="stopping", stale=RUNNING)
    assert states(inventory) == {"i-1": "stopping"}
    ec2.instances = [described("i-1", "stopped")]
    time.t_s += PERIOD_S
    inventory.refresh()
    assert states(inventory) == {"i-1": "stopped"}
    # Another program started it: after a while EC2 is right.
    ec2.instances = [described("i-1")]
    time.t_s += SETTLE_S
    inventory.refresh()
    assert states(inventory) == {"i-1": "running"}


def test_changes_by_two_threads_add_up() -> None:
    """When one thread marks an instance ready, it keeps another thread's drain."""
    drained = InventoryChange(1.0, tags={"draining_unix_s": 1.0})
    ready = InventoryChange(2.0, tags={"ready_unix_s": 2.0})
    expected = replace(SEEN, draining_unix_s=1.0, ready_unix_s=2.0)
    assert after(SEEN, [drained, ready]) == after(SEEN, [ready, drained]) == expected


def test_changes_follow_each_other() -> None:
    """Launch, drain, stop, resume: each change overrides EC2's older answers but not its newer ones."""
    born = InventoryChange(1.0, born=replace(SEEN, state="pending"))
    stop = InventoryChange(2.0, state="stopping", stale=RUNNING)
    resume = InventoryChange(
        3.0, state="pending", stale=STOPPED, tags={"draining_unix_s": None, "resumed_unix_s": 11.0}
    )
    gone = InventoryChange(4.0, gone=True)
    assert after(None, [born]) == replace(SEEN, state="pending")
    assert after(SEEN, [born]) == SEEN
    assert after(None, [stop]) is None
    assert after(None, [born, stop]) == replace(SEEN, state="stopping")
    assert after(replace(SEEN, state="stopped"), [resume]) == replace(SEEN, state="pending", resumed_unix_s=11.0)
    assert after(SEEN, [resume]) == replace(SEEN, resumed_unix_s=11.0)
    assert after(SEEN, [born, gone]) is None
    assert after(None, [gone]) is None


@pytest.mark.parametrize(
    ("machine", "phase", "sent"),
    [
        (replace(SEEN, state="pending"), Phase.PENDING, False),
        (SEEN, Phase.PENDING, False),
        (replace(SEEN, ready_unix_s=1.0), Phase.READY, True),
        (replace(SEEN, ready_unix_s=1.0, draining_unix_s=2.0), Phase.DRAINING, False),
        (replace(SEEN, draining_unix_s=2.0), Phase.DRAINING, False),
        (replace(SEEN, state="stopping", draining_unix_s=2.0), Phase.STOPPED, False),
        (replace(SEEN, state="stopped", ready_unix_s=1.0), Phase.STOPPED, False),
        (replace(SEEN, standby=True), Phase.PENDING, False),
        (replace(SEEN, standby=True, resumed_unix_s=3.0), Phase.PENDING, False),
        (replace(SEEN, standby=True, resumed_unix_s=3.0, ready_unix_s=4.0), Phase.READY, True),
    ],
)
def test_states_and_tags_say_where_an_instance_is(machine: DescribedInstance, phase: Phase, sent: bool) -> None:
    """They give its phase of life, and whether a balancer may send it requests."""
    assert (phase_of(machine), takes_requests(machine)) == (phase, sent)


@pytest.mark.parametrize(
    ("asked", "instance", "zone", "bought"),
    [
        ("c5.large/on-demand", "m5.large", "a", "m5.large/on-demand"),
        ("c5.large/spot/a", "m5.large", "b", "m5.large/spot/b"),
        ("c5.large/spot/a", "m5.large", "", "m5.large/spot/a"),  # a subnet that the site does not know
        ("c5.large/spot/a", "", "b", "c5.large/spot/a"),
        ("", "c5.large", "a", ""),
    ],
)
def test_an_offer_is_named_as_it_was_bought(asked: str, instance: str, zone: str, bought: str) -> None:
    assert as_bought(asked, instance, zone) == bought


def ended(code: str, id: str = "i-1", state: str = "terminated", **tags: Any) -> dict[str, Any]:
    return {**described(id, state, **tags), "StateReason": {"Code": code, "Message": f"{code}: so it is"}}


def refused(inventory: Inventory) -> dict[str, str]:
    return {m.id: m.reason for m in inventory.snapshot().refused.get("inception", ())}


@pytest.mark.parametrize("code", EVERY_REASON)
def test_what_ec2_ended_before_it_ran_was_refused(code: str, inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """Exceptions: a user ended it, it ended itself, or it was interrupted. It shows as long as EC2 shows it."""
    ec2.instances = [described("i-1", "pending")]
    inventory.refresh()
    for state in ("shutting-down", "terminated"):
        ec2.instances = [ended(code, state=state)]
        time.t_s += PERIOD_S
        inventory.refresh()
        assert states(inventory) == {}
        assert refused(inventory) == ({"i-1": f"{code}: so it is"} if code in REFUSALS else {})
    ec2.instances = []
    time.t_s += PERIOD_S
    inventory.refresh()
    assert refused(inventory) == {}


@pytest.mark.parametrize("tags", [{"ready": "5"}, {"resumed": "5"}, {}])
def test_what_ran_was_not_refused(tags: dict[str, str], inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """Our tags or earlier looks tell: a failing host says nothing about launches."""
    ec2.instances = [described("i-1", "pending" if tags else "running")]
    inventory.refresh()
    ec2.instances = [ended("Server.InternalError", **tags)]
    for _ in range(3):
        time.t_s += PERIOD_S
        inventory.refresh()
        assert refused(inventory) == {}


def test_what_was_refused_before_it_was_ever_seen(inventory: Inventory, ec2: Ec2, time: Time) -> None:
    """It belongs to the offer that CreateFleet named, because EC2 does not say its subnet any more."""
    inventory.refresh()
    inventory.born([replace(SEEN, state="pending", offer="m5.large/spot/a")])
    ec2.instances = [ended("Server.InsufficientInstanceCapacity"), ended("Client.InternalError", "i-2")]
    time.t_s += PERIOD_S
    inventory.refresh()
    assert states(inventory) == {}
    assert [(m.id, m.offer) for m in inventory.snapshot().refused["inception"]] == [
        ("i-1", "m5.large/spot/a"), ("i-2", "c5.large/on-demand"),
    ]  # fmt: skip
