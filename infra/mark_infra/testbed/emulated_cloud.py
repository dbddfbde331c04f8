"""The testbed's cloud: AWS's APIs on loopback, over instances that boot, bill, run out, are interrupted and end.

`LocalCloud` joins moto (the APIs and their state), `InstanceLifecycle` (the instances' life cycle), the machines behind
them, and the meter with the true bill. A process has only one, because moto's state belongs to the process.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.elbv2.models import elbv2_backends
from moto.events.models import events_backends

from mark.cloud.billing.extras import extras_usd
from mark.cloud.ec2.lifecycle import State
from mark.domain.bill import Bill
from mark.domain.errors import BadInput
from mark.domain.offer import Catalog, Market
from mark.domain.service import ServiceConfig
from mark_infra.testbed.account import CloudAccount
from mark_infra.testbed.addresses import Addresses
from mark_infra.testbed.balancer import Gateways, GatewaySupervisor
from mark_infra.testbed.emulated_prices import get_products
from mark_infra.testbed.gatekeeper import Gatekeeper
from mark_infra.testbed.iam import IamPolicy
from mark_infra.testbed.instances import STATE_CHANGE, WARNING, InstanceLifecycle, Reason
from mark_infra.testbed.machines_port import Machines
from mark_infra.testbed.moto_app import ACCOUNT, Answer, MotoApp, Patches, WsgiServer, reset
from mark_infra.testbed.overlay import lay_over
from mark_infra.testbed.supply import Supply, once

log = logging.getLogger(__name__)

_POLL_S = 0.5  # wall seconds between two steps, at most
_GUARDED = ("ec2", "elasticloadbalancing")
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class EmulatedMarket:
    """The instances that the emulated cloud sells.

    `capacity`: instances of an offer at a time. `spot_shares` and `spot_prices`: steps (t_s, share) by zone, in control
    seconds from the start: the share of the spot capacity that can be held, and of the on-demand price.
    """

    capacity: Mapping[str, int] = field(default_factory=dict)
    spot_shares: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    spot_prices: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EmulatedServices:
    """The services of the emulated cloud, their gateways, and readings of their work.

    Without `gateways`, target groups are moto's. If the catalogue bills extras, each of `services` has a balancer from
    the start, with `requests` as its number of requests. Their instances crash as their faults say. `functions_usd` is
    the functions' cost so far. `busy_s` returns the computing seconds of the machine at an address, for CPU credits
    (OSError: unknown now); None: no credits are spent.
    """

    services: Sequence[ServiceConfig] = ()
    gateways: Gateways | None = None
    requests: Callable[[str], int] = lambda service: 0
    functions_usd: Callable[[], float] = lambda: 0.0
    busy_s: Callable[[str], float] | None = None


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The limits of the account, by default none, and the policies by access key id (see `Gatekeeper`)."""

    account: CloudAccount = field(default_factory=CloudAccount)
    policies: Mapping[str, Sequence[IamPolicy]] = field(default_factory=dict)


class LocalCloud:
    """The emulated cloud. Thread-safe.

    `now` returns Unix seconds. Delays are in control seconds, of which `time_scale` pass per second.
    """

    def __init__(
        self,
        catalog: Catalog,
        machines: Machines,
        *,
        seed: int = 0,
        time_scale: float = 1.0,
        now: Callable[[], float] = time.time,
        region: str = "us-east-1",
        port: int = 0,
        market: EmulatedMarket | None = None,
        served: EmulatedServices | None = None,
        rules: AccountRules | None = None,
    ) -> None:
        if not (math.isfinite(time_scale) and time_scale > 0.0):
            raise BadInput("must be above zero", "time_scale", time_scale)
        market, served, rules = market or EmulatedMarket(), served or EmulatedServices(), rules or AccountRules()
        self.supply = Supply(
            _sold_in(region, catalog).offers,
            seed=seed,
            services=[service.name for service in served.services],
            capacity=market.capacity,
            shares={zone: once(f"spot shares {zone}", steps) for zone, steps in market.spot_shares.items()},
            prices={zone: once(f"spot prices {zone}", steps) for zone, steps in market.spot_prices.items()},
        )
        self.now, self.region, self._port, self._served = now, region, port, served
        self._billed_services = tuple(served.services) if catalog.bills_extras else ()
        self.began_s = math.floor(now())
        self.lifecycle = InstanceLifecycle(
            self.supply, machines, self, began_s=self.began_s, scale=time_scale, bills_disks=catalog.bills_extras,
            crashes_per_hour={service.name: service.faults.crashes_per_hour for service in served.services},
        )  # fmt: skip
        self._busy: dict[str, float] = {}  # by instance id, as last read
        self.lifecycle.busy = lambda instance_id: self._busy.get(instance_id, 0.0)
        self.rules = Gatekeeper(
            rules.account,
            region,
            seed=seed,
            now_s=lambda: self.lifecycle.control_s(self.now()),
            policies=rules.policies,
        )
        self._lock, self._buckets = threading.RLock(), threading.Lock()
        self._shown: dict[str, Any] = {}  # moto's instances
        # mark:launch and zone -> reservations: a launch is spread over zones by a call for each.
        self._launch_calls: dict[tuple[str, str], set[str]] = {}
        self._patches = Patches()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._app: MotoApp | None = None
        self._server: WsgiServer | None = None
        self._addresses: Addresses | None = None
        gateways = served.gateways
        self.balancer = None if gateways is None else GatewaySupervisor(gateways, self._targets, self._shares)

    # Called by the daemon

    def start(self) -> str:
        """Start serving; return the endpoint of all of AWS. Raises OSError if the port is taken.

        Raises RuntimeError if another cloud runs in this process.
        """
        if not _one_at_a_time.acquire(blocking=False):
            raise RuntimeError("another local cloud runs in this process")
        self._addresses = Addresses()
        reset()
        lay_over(self, self._patches)
        targets: dict[str, Answer] = {
            "AWSPriceListService.GetProducts": lambda asked: get_products(self.supply, self.region, asked)
        }
        if self.rules.account.enforces:
            targets["ServiceQuotasV20190624.GetServiceQuota"] = lambda asked: self.rules.quotas(asked, one=True)
            targets["ServiceQuotasV20190624.ListServiceQuotas"] = lambda asked: self.rules.quotas(asked, one=False)
        app = self._app = MotoApp(
            self._guard,
            targets,
            self.rules if self.rules.account.enforces else None,
            self.lifecycle.scale,
        )
        try:
            self._server = WsgiServer(app, self._port)
        except OSError:
            self.stop()
            raise
        self._thread = threading.Thread(target=self._run, name="cloud", daemon=True)
        self._thread.start()
        if self.balancer is not None:
            self.balancer.start()
        return self._server.url

    def stop(self) -> None:
        """Stop answering, and end everything that runs here. The bill stays readable."""
        self._stopped.set()
        if self._app is not None:
            self._app.end()
        with ExitStack() as ends:  # in reverse order, each even if another fails
            ends.callback(self._forget)
            if self.balancer is not None:
                ends.callback(self.balancer.stop)
            if self._thread is not None:
                ends.callback(self._thread.join, 10.0)
            if self._server is not None:
                ends.callback(self._server.stop)
                self._server = None

    def _forget(self) -> None:
        """Restore moto, so that another cloud may start."""
        with self._lock, ExitStack() as ends:
            if self._addresses is not None:
                ends.callback(_one_at_a_time.release)
                ends.callback(self._addresses.close)
                self._addresses = None
            ends.callback(self._patches.undo)
            for instance in list(self.lifecycle.instances.values()):
                ends.callback(self.lifecycle.terminate, instance.instance_id, self.now())

    def step(self) -> None:
        """Carry out due events. This also happens within half a second, and at each request."""
        if self._served.busy_s is not None:
            with self._lock:
                asked = [
                    (x.instance_id, x.address) for x in self.lifecycle.instances.values() if x.credits and x.active
                ]
            for instance_id, address in asked:  # outside the lock, because it reads from machines
                with suppress(OSError):
                    self._busy[instance_id] = self._served.busy_s(address)
        with self._lock:
            self.lifecycle.advance(self.now())

    def interrupt(self, share: float, seed: int) -> tuple[str, ...]:
        """Announce an interruption to this share of the running spot instances, drawn with the seed; return their ids.

        Raises BadInput if the share is not in [0, 1].
        """
        if not 0.0 <= share <= 1.0:
            raise BadInput("must lie between 0 and 1", "share", share)
        with self._lock:
            self.lifecycle.advance(self.now())
            return self.lifecycle.interrupt_share(share, seed, self.now())

    def interrupt_these(self, instance_ids: Sequence[str]) -> None:
        """Announce an interruption to these spot instances; others are ignored."""
        with self._lock:
            self.lifecycle.advance(self.now())
            for instance_id in instance_ids:
                instance = self.lifecycle.instances.get(instance_id)
                if instance is not None and instance.offer.market is Market.SPOT:
                    self.lifecycle.interrupt(instance_id, self.now())

    def set_capacity(self, offer: str, count: int) -> None:
        """Limit the offer to `count` instances at a time from now on. Raises BadInput for an unknown offer."""
        with self._lock:
            self.supply.set_capacity(offer, count)

    def bill(self) -> Bill:
        """Return the dollars so far, by market."""
        with self._lock:
            now = self.now()
            self.lifecycle.advance(now)
            now_s = self.lifecycle.control_s(now)
            bill = self.lifecycle.meter.bill(now_s)
        other = bill.other
        for one in self._billed_services:
            other += extras_usd(now_s, self._served.requests(one.name), one.request_kb, one.response_kb)
        return replace(bill, functions=self._served.functions_usd(), other=other)

    def status(self) -> dict[str, Any]:
        """Return the running instances and the cost, for people and for `mark testbed status`."""
        with self._lock:
            now = self.now()
            self.lifecycle.advance(now)
            live = [instance for instance in self.lifecycle.instances.values() if instance.state != State.TERMINATED]
            status = {
                "endpoint": None if self._server is None else self._server.url,
                "control_s": round(self.lifecycle.control_s(now), 3),
                "instances": dict(self.lifecycle.states()),
                "offers": dict(Counter(instance.offer.name for instance in live)),
                "fleet": [
                    {
                        "id": instance.instance_id, "offer": instance.offer.name, "service": instance.service,
                        "state": instance.state, "address": instance.address,
                        "doomed": instance.interruption_at_s is not None,
                        "credits": None if instance.credits is None else round(instance.credits.balance, 3),
                    }
                    for instance in live
                ],
                "launched": self.lifecycle.launched,
                "terminated": len(self.lifecycle.ended_s),  # for any reason
                "interrupted": self.lifecycle.interrupted,
                "crashed": self.lifecycle.crashed,
                "peak_instances": self.lifecycle.peak,
                "instance_hours": self.lifecycle.meter.instance_hours(self.lifecycle.control_s(now)),
            }  # fmt: skip
        return {**status, "bill_usd": self.bill().as_json(), "problems": self.problems()}

    def problems(self) -> list[str]:
        """Return errors that must never happen: wrongly or doubly billed instances, and tokens used twice."""
        with self._lock:
            found = []
            until: dict[str, int] = {}
            for instance_id, from_s, to_s in self.lifecycle.billed:
                if to_s < from_s or from_s < until.get(instance_id, 0):
                    found.append(f"{instance_id} is billed twice for the same time, before {to_s}")
                until[instance_id] = to_s
                if to_s > self.lifecycle.ended_s.get(instance_id, to_s):
                    found.append(f"{instance_id} is billed after its end")
            found += [
                f"{instance.instance_id} is {instance.state}, and billed from {instance.billed_from_s}"
                for instance in self.lifecycle.instances.values()
                if (instance.billed_from_s is not None) != (instance.state is State.RUNNING)
            ]
            return found + [
                f"launched {len(calls)} times for one token, {token}"
                for (token, _), calls in self._launch_calls.items()
                if len(calls) > 1
            ]

    # Called by moto's overlay

    def room(self, index: int, count: int, planned: int = 0) -> int:
        return self.lifecycle.room(index, count, planned)

    def quota_room(self, index: int, count: int, taken: Mapping[int, int]) -> int:
        """Return how many of `count` more instances the account's quotas allow, besides the `taken` ones."""
        offers = self.supply.offers
        running = [one.offer for one in self.lifecycle.instances.values() if one.active]
        running += [offers[one] for one, number in taken.items() for _ in range(number)]
        return self.rules.account.room(offers[index], count, running)

    def usd_per_hour(self, index: int) -> float:
        return self.supply.usd_per_hour(index, self.lifecycle.control_s(self.now()))

    def launched(
        self, instance: Any, index: int, reservation: str, *, persistent: bool, unlimited: bool | None
    ) -> None:
        """Launch the instance that moto has created."""
        assert self._addresses is not None
        now, address = self.now(), self._addresses.next()
        self._shown[instance.id] = instance
        for nic in instance.nics.values():
            nic.private_ip_address = address
            nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": address}]
        tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
        if token := tags.get("mark:launch"):
            self._launch_calls.setdefault((token, instance.placement.zone), set()).add(reservation)
        self.lifecycle.launch(
            instance.id,
            index,
            now,
            zone=instance.placement.zone,
            address=address,
            service=tags.get("mark:service", ""),
            persistent=persistent,
            unlimited=unlimited,
            release=tags.get("mark:release", ""),
        )

    # The sink of events

    def show(self, instance_id: str, state: State, at_unix_s: int, reason: Reason | None) -> None:
        instance = self._shown[instance_id]
        at = datetime.fromtimestamp(at_unix_s, UTC).replace(tzinfo=None)  # moto's times are naive
        if state is State.SHUTTING_DOWN:
            elbv2_backends[ACCOUNT][self.region].notify_terminate_instances([instance_id])
        elif state is State.TERMINATED:
            said = instance._reason, instance.state_reason
            instance.terminate()  # frees its disks and addresses
            instance._reason, instance.state_reason = said
        elif state is State.PENDING:
            instance.launch_time = at
            instance._reason, instance.state_reason.code, instance.state_reason.message = "", "", ""
        instance._state.name, instance._state.code = state.value, state.code
        if reason is not None:
            code, message, initiator = reason
            instance._reason = f"{initiator} initiated ({at:%Y-%m-%d %H:%M:%S} GMT)"
            instance.state_reason.code, instance.state_reason.message = code, f"{code}: {message}"
        if self.balancer is not None:
            self.balancer.wake()

    def emit(self, detail_type: str, instance_id: str, zone: str, detail: dict[str, str], at_unix_s: int) -> None:
        # The interruption warning names an instance by its zone, without an account.
        place = f"{zone}:" if detail_type == WARNING else f"{self.region}:{ACCOUNT}:"
        event = {
            "Source": "aws.ec2", "DetailType": detail_type, "Detail": json.dumps(detail), "Time": at_unix_s,
            "Resources": [f"arn:aws:ec2:{place}instance/{instance_id}"],
        }  # fmt: skip
        try:
            events_backends[ACCOUNT][self.region].put_events([event])
        except Exception as error:  # the rule's queue is gone, and AWS drops the event too
            log.warning("event %s of %s is lost: %s: %s", detail_type, instance_id, type(error).__name__, error)
        if detail_type != STATE_CHANGE:
            log.info("%s: %s", detail_type, instance_id)

    def forget(self, instance_id: str) -> None:
        instance = self._shown.pop(instance_id)
        self._busy.pop(instance_id, None)
        reservations = instance.ec2_backend.reservations
        for reservation in list(reservations.values()):
            if instance in reservation.instances:
                reservation.instances.remove(instance)
                if not reservation.instances:
                    del reservations[reservation.id]

    # Internals

    @contextmanager
    def _guard(self, service: str) -> Iterator[None]:
        """Serialise requests of the guarded services, and bring the instances up to date first."""
        if service == "s3":
            with self._buckets:  # moto fails on an object that is removed while it lists them
                yield
            return
        if service not in _GUARDED:
            yield
            return
        with self._lock:
            self.lifecycle.advance(self.now())
            yield
        if service == "elasticloadbalancing" and self.balancer is not None:
            self.balancer.wake()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.step()
            except Exception:
                log.exception("a step of the cloud failed")
            with self._lock:
                wait_s = self.lifecycle.next_s() - self.now()
            self._stopped.wait(min(_POLL_S, max(0.01, wait_s)))

    def _targets(self) -> dict[str, dict[str, str | None]]:
        """Return the URL of each target by target group; None if its instance does not run."""
        with self._lock:
            groups = elbv2_backends[ACCOUNT][self.region].target_groups
            # Skip functions' groups, which have no protocol, and gRPC groups, which gateways cannot serve.
            http = {arn: one for arn, one in groups.items() if one.protocol and one.protocol_version != "GRPC"}
            return {arn: {t["Id"]: self._url(t) for t in group.targets.values()} for arn, group in http.items()}

    def _shares(self) -> dict[str, dict[str, float]]:
        """Return the weights of rules that forward to several groups of instances, by their first group."""
        found: dict[str, dict[str, float]] = {}
        with self._lock:
            stock = elbv2_backends[ACCOUNT][self.region]
            there = self._targets()
            listeners = [one for balancer in stock.load_balancers.values() for one in balancer.listeners.values()]
            for action in (action for one in listeners for rule in one.rules.values() for action in rule.actions):
                said = action.data.get("ForwardConfig", {}).get("TargetGroups", [])
                weights = {g["TargetGroupArn"]: float(g["Weight"]) for g in said if g["TargetGroupArn"] in there}
                if len(weights) > 1:
                    found[next(iter(weights))] = weights
        return found

    def _url(self, target: Mapping[str, Any]) -> str | None:
        instance = self.lifecycle.instances.get(target["Id"])
        if instance is None:
            return None if target["Id"].startswith("i-") else f"http://{target['Id']}:{target['Port']}"
        return f"http://{instance.address}:{target['Port']}" if instance.state is State.RUNNING else None


def _sold_in(region: str, catalog: Catalog) -> Catalog:
    """Return the catalogue for the region: spot of another region's catalogue is sold in this region's zones."""
    if catalog.region in ("", region):
        return catalog
    return catalog.in_zones(zone.name for zone in RegionsAndZonesBackend.zones.get(region, ()))
