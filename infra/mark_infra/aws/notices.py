"""EC2's events about instances, by EventBridge and SQS; a thread reads them so that no caller waits.

One queue holds the events of all services of a site, and of other instances of the account; readers pick theirs by
instance id. Events may come twice, late, and in any order. A message is deleted some seconds after it was received, so
that the message of a killed controller comes back to the next one. A message that is no event about an instance is
counted, logged and deleted; otherwise it would come back again and again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from mark.domain.ec2_limits import INTERRUPTION_NOTICE_S
from mark.domain.errors import CloudError
from mark_infra.aws import ec2_cloud
from mark_infra.aws.gate import Gate
from mark_infra.aws.inventory import INTERRUPTED_KEPT_S
from mark_infra.aws.site import Site
from mark_infra.background import Background

_LOG = logging.getLogger("mark.aws")

# Time of SQS's long polling: below the gate's read timeout, otherwise an empty queue would look like a silent one.
WAIT_S = 3
# SQS hides a received message for this long; readers have half of it to act and to record.
VISIBILITY_S = 30
_MOST_CHANGES = 100_000
_SLOWEST_S = 30.0
_STATES = frozenset(("pending", "running", "stopping", "stopped", "shutting-down", "terminated"))
_STATE_CHANGE = "EC2 Instance State-change Notification"
_STATE_OF = {
    "EC2 Spot Instance Interruption Warning": "interrupted",
    "EC2 Instance Rebalance Recommendation": "rebalance",
}


class NotOurs(ValueError):
    """A message that is no event about an instance; the text describes it."""


class Interruption(NamedTuple):
    """The cloud takes an instance back."""

    instance_id: str
    at_unix_s: float  # when it was announced
    gone_unix_s: float


@dataclass(frozen=True, slots=True)
class BridgeEvent:
    """One event. `state` is "interrupted" for a warning, "rebalance" for a recommendation, else the new state."""

    instance_id: str
    state: str
    at_unix_s: float
    at_once: bool = False  # hibernation begins together with its warning


@dataclass(frozen=True, slots=True)
class StateChange:
    """An instance's new state. `number` ascends in the order in which changes were received, not by time."""

    number: int
    instance_id: str
    state: str
    at_unix_s: float


def parse(body: str, region: str) -> BridgeEvent:
    """Parse an EventBridge event from the queue. Raises NotOurs for any other message."""
    try:
        event = json.loads(body)
        source, kind, detail = event["source"], str(event["detail-type"]), event["detail"]
        at, of, instance_id = datetime.fromisoformat(event["time"]), event["region"], detail["instance-id"]
        state = _STATE_OF.get(kind) or str(detail["state"])
        hibernates = detail.get("instance-action") == "hibernate"
    except KeyError as error:
        raise NotOurs(f"has no {error}") from None
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise NotOurs(f"malformed: {error}") from None
    if (source, of) != ("aws.ec2", region):
        raise NotOurs(f"of {source!s:.80} in {of!s:.80}")
    if kind != _STATE_CHANGE and kind not in _STATE_OF:
        raise NotOurs(f"of an unknown kind: {kind:.80}")
    if kind == _STATE_CHANGE and state not in _STATES:
        raise NotOurs(f"of an unknown state: {state:.80}")
    if not isinstance(instance_id, str) or not instance_id.startswith("i-"):
        raise NotOurs(f"no instance id: {instance_id!s:.80}")
    if at.tzinfo is None:
        raise NotOurs(f"a time without its zone: {at}")
    return BridgeEvent(instance_id, state, at.timestamp(), hibernates)


class NoticeListener(Background):
    """Reads the queue in a thread, from `start` to `close`. Thread-safe.

    It needs a `gate` that nothing else uses, because a gate has one budget of failing calls. A message goes to one
    listener only, so the thread reads only while `leads` returns True and takes no message from the leader.
    `counts` are messages by result: the states of `BridgeEvent`, "again" for known events, "not-ours", and "failed" for
    calls that SQS did not answer.
    """

    def __init__(
        self,
        gate: Gate,
        site: Site,
        *,
        leads: Callable[[], bool] = lambda: True,
        visibility_s: int = VISIBILITY_S,
        now_unix_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._listen, "notices")
        self._gate, self._site, self._leads, self._visibility_s = gate, site, leads, visibility_s
        self._now_unix_s, self._monotonic = now_unix_s, monotonic
        self._lock = threading.Lock()
        self._interruptions: dict[str, Interruption] = {}  # by instance
        self._changes: deque[StateChange] = deque()
        self._known: set[tuple[str, str, float]] = set()
        self._next = 1
        self._taken: deque[tuple[float, str]] = deque()  # time and receipt of messages to delete
        self._heard_unix_s: float | None = None
        self.counts: Counter[str] = Counter()

    def interruptions(self) -> list[Interruption]:
        """Return all interruptions of the last half hour, of every service, also those returned before."""
        with self._lock:
            self._forget()  # polls do it too, but stop while another controller leads
            return list(self._interruptions.values())

    def changes(self, after: int = 0) -> list[StateChange]:
        """Return the changes of state with a number above `after`, in order; the last 100,000 are kept."""
        with self._lock:
            if not self._changes:
                return []
            skip = max(0, after - self._changes[0].number + 1)
            return [self._changes[i] for i in range(skip, len(self._changes))]

    def silent_s(self) -> float | None:
        """Return the seconds since the queue last answered, or None if it never did."""
        with self._lock:
            return None if self._heard_unix_s is None else max(0.0, self._now_unix_s() - self._heard_unix_s)

    def poll(self, wait_s: int = WAIT_S) -> int:
        """Receive up to ten messages and return their number; wait up to `wait_s` for the first. Raises CloudError.

        The thread calls this repeatedly.
        """
        sqs, url = self._gate.client("sqs"), self._site.queue_url
        answer = self._gate.call(
            sqs.receive_message,
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=self._visibility_s,
        )
        messages = answer.get("Messages", [])
        now_s = self._monotonic()
        for message in messages:
            self._take(message["Body"])
            self._taken.append((now_s, message["ReceiptHandle"]))
        with self._lock:
            self._heard_unix_s = self._now_unix_s()
            self._forget()
        self._delete(now_s - self._visibility_s / 2.0)
        return len(messages)

    def _delete(self, taken_until_s: float) -> None:
        sqs, url = self._gate.client("sqs"), self._site.queue_url
        while batch := [receipt for at_s, receipt in islice(self._taken, 10) if at_s <= taken_until_s]:
            # A failed receipt is not retried, because its message comes back under another one and is known then.
            entries = [{"Id": str(i), "ReceiptHandle": receipt} for i, receipt in enumerate(batch)]
            self._gate.call(sqs.delete_message_batch, QueueUrl=url, Entries=entries)
            for _ in batch:
                self._taken.popleft()

    def _take(self, body: str) -> None:
        try:
            event = parse(body, self._site.region)
        except NotOurs as error:
            self.counts["not-ours"] += 1
            _LOG.warning("a message in the queue is no event about an instance: %s", error)
            return
        with self._lock:
            self.counts[event.state if self._is_new(event) else "again"] += 1

    def _is_new(self, event: BridgeEvent) -> bool:
        """Keep the event unless it is known; return whether it is new."""
        if event.state == "rebalance":
            return True  # only counted, because it often comes with the warning
        if event.state == "interrupted":
            if event.instance_id in self._interruptions:
                return False
            lead_s = 0.0 if event.at_once else INTERRUPTION_NOTICE_S / self._site.time_scale
            found = Interruption(event.instance_id, event.at_unix_s, event.at_unix_s + lead_s)
            self._interruptions[event.instance_id] = found
            return True
        key = (event.instance_id, event.state, event.at_unix_s)
        if key in self._known:
            return False
        self._known.add(key)
        self._changes.append(StateChange(self._next, *key))
        self._next += 1
        return True

    def _forget(self) -> None:
        old_unix_s = self._now_unix_s() - INTERRUPTED_KEPT_S
        for old in [i for i in self._interruptions.values() if i.gone_unix_s < old_unix_s]:
            del self._interruptions[old.instance_id]
        while len(self._changes) > _MOST_CHANGES:
            change = self._changes.popleft()
            self._known.discard((change.instance_id, change.state, change.at_unix_s))

    def _listen(self) -> None:
        pause_s = 0.0
        while not self._ends.wait(pause_s):
            if not self._leads():
                pause_s = 1.0
                continue
            try:
                self.poll()
                pause_s = 0.0
                continue
            except CloudError as error:
                _LOG.warning("notices cannot be read: %s", error)
            except Exception:  # without this thread no interruption is noticed
                _LOG.exception("notices cannot be read")
            self.counts["failed"] += 1
            pause_s = min(_SLOWEST_S, max(1.0, 2.0 * pause_s))


_: type[ec2_cloud.NoticeSource] = NoticeListener
