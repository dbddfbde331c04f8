"""Events from EventBridge's queue: none lost, none reported twice, and other messages do no harm."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import INTERRUPTED_KEPT_S
from mark_infra.aws.notices import VISIBILITY_S, BridgeEvent, Interruption, NoticeListener, NotOurs, parse
from mark_infra.aws.site import Site

from mark.domain.errors import CloudError
from tests.infra.conftest import ACCOUNT, REGION, MotoServer
from tests.infra.fault_proxy import Fault, fault_proxy

NOW_UNIX_S = 1_800_000_000.0
WARNING, REBALANCE, CHANGE = (
    "EC2 Spot Instance Interruption Warning",
    "EC2 Instance Rebalance Recommendation",
    "EC2 Instance State-change Notification",
)


def event(kind: str, instance: str, at_unix_s: float = NOW_UNIX_S, **detail: object) -> dict[str, Any]:
    """Return an event as EventBridge writes it."""
    return {
        "version": "0",
        "id": f"{kind}-{instance}-{at_unix_s}",
        "detail-type": kind,
        "source": "aws.ec2",
        "account": ACCOUNT,
        "time": datetime.fromtimestamp(at_unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [f"arn:aws:ec2:us-east-1a:instance/{instance}"],
        "detail": {"instance-id": instance, **detail},
    }


TERMINATED: dict[str, Any] = {"instance-action": "terminate"}
HIBERNATED: dict[str, Any] = {"instance-action": "hibernate"}


def changed(instance: str, state: str, at_unix_s: float = NOW_UNIX_S) -> dict[str, Any]:
    return event(CHANGE, instance, at_unix_s, state=state)


@pytest.fixture
def site(moto: MotoServer) -> Site:
    moto.reset()
    url = moto.client("sqs").create_queue(QueueName="events")["QueueUrl"]
    return Site("mark", REGION, "sqlite:state", queue_url=url)


@pytest.fixture
def notices(moto: MotoServer, site: Site) -> NoticeListener:
    return listener(moto, site)


def listener(moto: MotoServer, site: Site, now_unix_s: Callable[[], float] = lambda: NOW_UNIX_S) -> NoticeListener:
    """Return a listener whose time passes with its polls: each poll deletes the messages taken by the one before."""
    ticks = count(step=VISIBILITY_S)
    return NoticeListener(
        Gate(site, options=moto.options), site, now_unix_s=now_unix_s, monotonic=lambda: float(next(ticks))
    )


def send(moto: MotoServer, site: Site, *bodies: object) -> None:
    sqs = moto.client("sqs")
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    for first in range(0, len(texts), 10):
        entries = [{"Id": str(i), "MessageBody": text} for i, text in enumerate(texts[first : first + 10])]
        assert not sqs.send_message_batch(QueueUrl=site.queue_url, Entries=entries).get("Failed")


def left(moto: MotoServer, site: Site) -> int:
    """Count the messages in the queue, with those that are received but not yet deleted."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = moto.client("sqs").get_queue_attributes(QueueUrl=site.queue_url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


def drained(notices: NoticeListener) -> None:
    while notices.poll(0):
        pass


def wait_for(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    look = threading.Event()
    while not condition():
        assert time.monotonic() < until_s, "not in time"
        look.wait(0.01)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (event(WARNING, "i-1", **TERMINATED), BridgeEvent("i-1", "interrupted", NOW_UNIX_S)),
        (event(WARNING, "i-1", **HIBERNATED), BridgeEvent("i-1", "interrupted", NOW_UNIX_S, True)),
        (event(REBALANCE, "i-2"), BridgeEvent("i-2", "rebalance", NOW_UNIX_S)),
        (changed("i-3", "shutting-down"), BridgeEvent("i-3", "shutting-down", NOW_UNIX_S)),
        (
            changed("i-3", "running") | {"time": "2027-01-15T08:00:00.250Z"},
            BridgeEvent("i-3", "running", NOW_UNIX_S + 0.25),
        ),
    ],
)
def test_events_are_read(told: dict[str, Any], expected: BridgeEvent) -> None:
    assert parse(json.dumps(told), REGION) == expected


GOOD = changed("i-1", "running")
BROKEN_DETAILS: tuple[Any, ...] = (None, [], "i-1", {}, {"instance-id": "i-1"}, {"state": "running"})
NO_IDS: tuple[Any, ...] = (7, None, "x", [])
NO_STATES: tuple[Any, ...] = (7, None, "on", [])
MALFORMED = [
    *("", "{", "null", "[]", "7", '"text"', "[" * 100_000, json.dumps(GOOD["detail"])),
    *({k: v for k, v in GOOD.items() if k != key} for key in ("source", "detail-type", "time", "region", "detail")),
    *(GOOD | {"detail": bad} for bad in BROKEN_DETAILS),
    *(GOOD | {"time": bad} for bad in (None, 7, "yesterday", "2027-01-15T08:00:00", "")),
    *(GOOD | {"source": bad} for bad in ("aws.autoscaling", None, ["aws.ec2"])),
    *(GOOD | {"region": bad} for bad in ("eu-west-1", None)),
    *(GOOD | {"detail-type": bad} for bad in ("EC2 Capacity Reservation Underutilized", None, ["x"])),
    *(changed("i-1", "running") | {"detail": {"instance-id": bad, "state": "running"}} for bad in NO_IDS),
    *(changed("i-1", "running") | {"detail": {"instance-id": "i-1", "state": bad}} for bad in NO_STATES),
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_a_foreign_event_is_refused_in_one_line(body: object) -> None:
    with pytest.raises(NotOurs) as caught:
        parse(body if isinstance(body, str) else json.dumps(body), REGION)
    assert len(str(caught.value)) < 300


def test_no_message_harms_and_none_comes_back(moto: MotoServer, site: Site, notices: NoticeListener) -> None:
    """Malformed messages are counted and deleted; the good ones between them are taken."""
    bodies = [body for body in MALFORMED if body != ""]  # SQS takes no empty message
    send(moto, site, *bodies, GOOD)
    drained(notices)
    assert notices.counts == {"not-ours": len(bodies), "running": 1}
    assert left(moto, site) == 0


def test_a_warning_reaches_every_service_with_its_end(moto: MotoServer, site: Site, notices: NoticeListener) -> None:
    """The queue belongs to all services: a service that reads changes takes none from the others."""
    send(
        moto,
        site,
        event(WARNING, "i-1", NOW_UNIX_S - 5.0, **TERMINATED),
        event(WARNING, "i-2", NOW_UNIX_S - 9.0, **HIBERNATED),
        event(REBALANCE, "i-3"),
    )
    drained(notices)
    for _ in range(2):
        assert sorted(notices.interruptions()) == [
            Interruption("i-1", NOW_UNIX_S - 5.0, NOW_UNIX_S + 115.0),
            Interruption("i-2", NOW_UNIX_S - 9.0, NOW_UNIX_S - 9.0),
        ]
    assert notices.changes() == []


def test_where_control_time_is_compressed_the_end_is_nearer(moto: MotoServer, site: Site) -> None:
    notices = listener(moto, replace(site, time_scale=12.0))
    send(moto, site, event(WARNING, "i-1", **TERMINATED))
    drained(notices)
    assert notices.interruptions() == [Interruption("i-1", NOW_UNIX_S, NOW_UNIX_S + 10.0)]


def test_a_warning_is_forgotten_long_after_its_end(moto: MotoServer, site: Site) -> None:
    """This includes an old message that comes late, so the list does not grow."""
    now_unix_s = NOW_UNIX_S
    notices = listener(moto, site, lambda: now_unix_s)
    warning = event(WARNING, "i-1", **TERMINATED)
    send(moto, site, warning)
    drained(notices)
    now_unix_s += 120.0 + INTERRUPTED_KEPT_S
    drained(notices)
    assert len(notices.interruptions()) == 1
    now_unix_s += 1.0
    for _ in range(2):
        drained(notices)
        assert notices.interruptions() == []
        send(moto, site, warning)


def test_a_warning_is_forgotten_while_another_controller_reads_the_queue(
    moto: MotoServer, site: Site, notices: NoticeListener
) -> None:
    send(moto, site, event(WARNING, "i-1", **TERMINATED))
    drained(notices)
    assert len(notices.interruptions()) == 1
    notices._now_unix_s = lambda: NOW_UNIX_S + 3.0 * 3600.0
    assert notices.interruptions() == []


def test_twice_and_out_of_order_is_the_same_as_once(moto: MotoServer, site: Site, notices: NoticeListener) -> None:
    """Changes keep their own times, known ones are not told again, and each reader goes on where it stopped."""
    ended, began = changed("i-1", "terminated", NOW_UNIX_S + 60.0), changed("i-1", "running", NOW_UNIX_S)
    warning = event(WARNING, "i-1", **TERMINATED)
    for message in (ended, warning, began, ended, warning, began):
        send(moto, site, message)
        drained(notices)
    changes = notices.changes()
    assert [(c.number, c.state, c.at_unix_s) for c in changes] == [
        (1, "terminated", NOW_UNIX_S + 60.0),
        (2, "running", NOW_UNIX_S),
    ]
    assert len(notices.interruptions()) == 1
    assert notices.counts["again"] == 3
    assert [c.number for c in notices.changes(after=1)] == [2]
    assert notices.changes(after=2) == notices.changes(after=7) == []
    send(moto, site, changed("i-1", "running", NOW_UNIX_S + 300.0))
    drained(notices)
    assert [c.number for c in notices.changes(after=2)] == [3], "started again later"


def test_from_a_rule_of_eventbridge(moto: MotoServer, site: Site, notices: NoticeListener) -> None:
    """This is the path that Terraform builds: rule, target, queue."""
    events = moto.client("events")
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:events"
    events.put_rule(Name="instances", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_targets(Rule="instances", Targets=[{"Id": "queue", "Arn": arn}])
    detail = json.dumps({"instance-id": "i-1", "state": "running"})
    events.put_events(Entries=[{"Source": "aws.ec2", "DetailType": CHANGE, "Detail": detail}])
    drained(notices)
    (change,) = notices.changes()
    assert (change.instance_id, change.state) == ("i-1", "running")


def test_what_a_killed_controller_took_comes_to_the_next_one(moto: MotoServer, site: Site) -> None:
    """Messages are deleted only after all readers may have acted on them."""
    send(moto, site, GOOD)
    killed = NoticeListener(Gate(site, options=moto.options), site, visibility_s=1)
    assert killed.poll(0) == 1
    assert left(moto, site) == 1
    following = NoticeListener(Gate(site, options=moto.options), site, visibility_s=1)
    wait_for(lambda: following.poll(1) == 1)
    assert len(following.changes()) == 1
    wait_for(lambda: following.poll(0) == 0 and left(moto, site) == 0)
    assert len(following.changes()) == 1


def test_a_deletion_that_fails_is_made_later(moto: MotoServer, site: Site) -> None:
    send(moto, site, GOOD)
    with fault_proxy(moto.url, share=0.0) as proxy:
        notices = NoticeListener(Gate(site, options=moto.options | {"endpoint_url": proxy.url}), site, visibility_s=0)
        proxy.script.extend([None, *[Fault.UNAVAILABLE] * 3])
        with pytest.raises(CloudError):
            notices.poll(0)
        assert left(moto, site) == 1
        wait_for(lambda: notices.poll(0) == 0 and left(moto, site) == 0)
    assert len(notices.changes()) == 1


@pytest.mark.slow
def test_a_follower_takes_no_messages_from_the_leader(moto: MotoServer, site: Site) -> None:
    leads = threading.Event()
    notices = NoticeListener(Gate(site, options=moto.options), site, leads=leads.is_set)
    notices.start()
    try:
        send(moto, site, GOOD)
        follower_s = time.monotonic() + 0.3
        wait_for(lambda: time.monotonic() > follower_s)
        assert notices.silent_s() is None
        leads.set()
        wait_for(lambda: len(notices.changes()) == 1)
    finally:
        notices.close()


@pytest.mark.slow
def test_throttling_timeouts_and_lost_answers_lose_no_event(moto: MotoServer, site: Site) -> None:
    """SQS holds back the message whose answer was lost for a while."""
    send(moto, site, GOOD)
    with fault_proxy(moto.url, share=0.0) as proxy:
        notices = NoticeListener(Gate(site, options=moto.options | {"endpoint_url": proxy.url}), site, visibility_s=1)
        proxy.script.extend([Fault.LOST, Fault.THROTTLED, Fault.SILENT])
        began_s = time.monotonic()
        with pytest.raises(CloudError):
            notices.poll(0)
        assert time.monotonic() - began_s < 40.0
        wait_for(lambda: notices.poll(1) == 1)
        wait_for(lambda: notices.poll(0) == 0 and left(moto, site) == 0)
    assert len(notices.changes()) == 1


def test_an_unreachable_queue_ends_nothing(moto: MotoServer, site: Site) -> None:
    """The thread goes on, says for how long it heard nothing, and ends at once when told."""
    gone = Gate(site, options=moto.options | {"endpoint_url": "http://127.0.0.1:1"})
    notices = NoticeListener(gone, site)
    notices.start()
    wait_for(lambda: notices.counts["failed"] > 0)
    assert notices.silent_s() is None
    assert notices.interruptions() == []
    notices.close()


@pytest.mark.slow
def test_the_thread_hears_within_a_moment_and_ends(moto: MotoServer, site: Site, notices: NoticeListener) -> None:
    notices.start()
    try:
        wait_for(lambda: notices.silent_s() is not None)
        began_s = time.monotonic()
        send(moto, site, event(WARNING, "i-1", **TERMINATED))
        wait_for(lambda: len(notices.interruptions()) == 1)
        assert time.monotonic() - began_s < 15.0  # a long poll would take 20 s
    finally:
        notices.close()


@pytest.mark.slow
def test_with_calls_failing_nothing_is_lost_and_nothing_told_twice(moto: MotoServer, site: Site) -> None:
    """Receiving and deleting meet errors and lost answers; readers never wait."""
    lots = 12
    quick = (Fault.INTERNAL, Fault.UNAVAILABLE, Fault.LOST)  # the SDK slows down for minutes when it is throttled
    with fault_proxy(moto.url, share=0.0) as proxy:
        proxy.script.extend(fault for failing in (*quick, *quick) for fault in (None, None, failing))
        gate = Gate(site, options=moto.options | {"endpoint_url": proxy.url})
        notices = NoticeListener(gate, site, visibility_s=2, now_unix_s=lambda: NOW_UNIX_S)
        longest_s = 0.0

        def told() -> int:
            nonlocal longest_s
            began_s = time.monotonic()
            count = len(notices.interruptions()) + len(notices.changes())
            longest_s = max(longest_s, time.monotonic() - began_s)
            return count

        notices.start()
        try:
            for lot in range(lots):
                warning = event(WARNING, f"i-{lot}", NOW_UNIX_S, **TERMINATED)
                send(moto, site, *(changed(f"i-{lot}", state, NOW_UNIX_S) for state in ("running", "pending")), warning)
                wait_for(lambda lot=lot: told() >= 3 * (lot + 1))  # type: ignore[misc]
        finally:
            notices.close()
        assert not proxy.script, "every lot took a call that went well"
        wait_for(lambda: notices.poll(1) == 0 and left(moto, site) == 0)  # duplicates are deleted, too
    changes = notices.changes()
    assert sorted(c.instance_id for c in changes) == sorted([f"i-{lot}" for lot in range(lots)] * 2)
    assert [c.number for c in changes] == list(range(1, 2 * lots + 1))
    assert len(notices.interruptions()) == lots
    assert longest_s < 2.0
