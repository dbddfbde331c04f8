"""Whole controllers on the testbed's cloud, each behind its own faulty proxy, without any real waiting.

`Waits` counts the seconds that a thread would wait in production, for a missing answer or between two tries. So a run
takes only the time of its ticks, and the delay of a look does not depend on the computer.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import numpy as np
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session
from mark_infra.aws import gate, inventory, keeper, readiness
from mark_infra.controller import hosting
from mark_infra.controller.process import period_s
from mark_infra.controller.site_control import ServiceSpec, SiteControl
from mark_infra.controller.site_parts import site_parts
from mark_infra.store.codec import decode
from mark_infra.testbed.provision import Wish, provision

from mark.control import service_runtime as member
from mark.control.launcher import Intent
from mark.domain.backoff import Backoff
from mark.domain.errors import CloudError
from mark.domain.load import Load
from mark.domain.offer import Catalog, Delay, Market
from mark.domain.plan import Plan, Target
from mark.domain.service import ResolvedService
from mark.planning.planner import PlanningContext, Policy
from mark.traffic.forecast.predictor_registry import make_predictor
from tests.control.control_fakes import offer, resolved
from tests.infra.fault_proxy import SILENCE, FaultProxy, fault_proxy
from tests.infra.testbed.answering import Bouncers
from tests.infra.testbed.conftest import Aws, serving
from tests.infra.testbed.real_processes import held_port

SERVICE = "inception"
BOOT = Delay(30.0, 30.0)
OD = offer(boot=BOOT)
SPOT_A, SPOT_B = (offer(market=Market.SPOT, usd_per_hour=0.03, zone=f"us-east-1{z}", boot=BOOT) for z in "ab")
SOLD = (OD, SPOT_A, SPOT_B)
TICK_S = 60.0

Wanted = dict[str, int]


class Script:
    """A planner that wants the instances that the test sets."""

    name = "scripted"
    needs_forecast = monitors_slo = replans = False

    def __init__(self) -> None:
        self._wanted: tuple[Wanted, ...] = ({},)
        self.ticks = 0

    def want(self, wanted: Wanted) -> None:
        self._wanted = (self._wanted[-1], wanted)

    @property
    def wanted(self) -> Wanted:
        return self._wanted[-1]

    def most(self, offer: str) -> int:
        """Return the larger number of the current plan and the one before it."""
        return max(wanted.get(offer, 0) for wanted in self._wanted)

    def begin(self) -> int:
        return 0

    def plan(self, context: PlanningContext, memory: int) -> tuple[Plan, int]:
        self.ticks += 1
        return Plan(context.now_s, tuple(Target(o, n, "the script says so") for o, n in self.wanted.items())), 0


class Notebook:
    """A table that keeps intended launches by token."""

    def __init__(self, table: Any, intents: dict[str, Intent]) -> None:
        self._table, self._intents = table, intents

    def put(self, service: str, key: str, value: str, fence: Any) -> None:
        if key == "intents":
            for intent in decode(value):
                self._intents.setdefault(intent.token, intent)
        self._table.put(service, key, value, fence)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class Waits(threading.local):
    """The seconds that each thread would have waited."""

    total_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.total_s


WAITS = Waits()


class TimedPool(Executor):
    """A pool that notes the delay of each look."""

    def __init__(self, pool: Executor, looks_s: list[float]) -> None:
        self._pool, self._looks_s = pool, looks_s

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def look() -> Any:
            began_s = WAITS.total_s
            try:
                return fn(*args, **kwargs)
            finally:
                self._looks_s.append(WAITS.total_s - began_s)

        return self._pool.submit(look)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


class Running:
    """One controller, as `mark controller` runs it, and its proxy."""

    def __init__(self, world: World, proxy: FaultProxy) -> None:
        self.proxy, self._ends = proxy, threading.Event()
        options = {
            "endpoint_url": proxy.url, "region_name": "us-east-1",
            "aws_access_key_id": "test", "aws_secret_access_key": "test",
        }  # fmt: skip
        self.control = begun(world, options)
        self.control.start()
        self._thread = threading.Thread(
            target=hosting.look, args=(self.control, self._ends, period_s(world.site)), name="manager"
        )
        self._thread.start()

    def view(self) -> Any:
        return self.control.manager.view(SERVICE)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self.control.close()

    def kill(self) -> None:
        """Cut the controller off, as the cloud sees a death: no more calls arrive, and no answers of pending calls."""
        self.proxy.cut()
        self.close()


def begun(world: World, options: dict[str, Any]) -> SiteControl:
    """Start a controller, with as many tries as it takes."""
    for _ in range(20):
        with suppress(CloudError):
            parts = site_parts(world.site, options=options, ttl_s=1.5, monotonic=WAITS.monotonic)
            table, pool = Notebook(parts.table, world.intents), TimedPool(parts.pool, world.looks_s)
            return SiteControl(world.site, [world.charge], parts=replace(parts, table=table, pool=pool))
    pytest.fail("the controller cannot begin")


class World:
    """A site on a cloud that never fails; only the way there does. `intents` of all its controllers, by token."""

    def __init__(self, aws: Aws, machines: Bouncers, port: int, scale: float) -> None:
        self.aws, self.machines, self.script, self.scale = aws, machines, Script(), scale
        self.intents: dict[str, Intent] = {}
        self.looks_s: list[float] = []
        self._keepers: list[keeper.Keeper] = []
        self.site = provision(
            aws.client, [Wish(SERVICE)], region="us-east-1", zones=["us-east-1a", "us-east-1b"],
            store="dynamodb:mark-state", bouncer_port=port, time_scale=scale,
        )  # fmt: skip
        nothing = Load(0.0, 60.0, np.empty(0), np.empty(0))
        self.charge = ServiceSpec(
            resolved(*SOLD, min_instances=1), self._policy, lambda: make_predictor("seasonal-naive", 0, 60.0), nothing
        )

    def _policy(self, within: ResolvedService) -> Policy:
        return Policy(self.script, within, bouncers=True)

    @contextmanager
    def controller(self, seed: int, share: float) -> Iterator[Running]:
        """Start a controller through all faults, with as many tries as it takes; close it in order unless it was
        killed."""
        with fault_proxy(self.aws.url, seed=seed, share=share, hurries=True) as proxy:
            running = Running(self, proxy)
            self._keepers.append(running.control._keeper)
            try:
                yield running
            finally:
                running.close()

    def rounds(self) -> int:
        """Count the rounds of all keepers while they led: each round looks once for finished drains."""
        return sum(one._rounds for one in self._keepers)

    # -- the cloud's own view
    # ---------------------------------------------------------------------------------------------

    def lives(self) -> list[tuple[str, str, str, bool]]:
        """Return (id, offer, token, is it given up?) of instances that cost money now or soon, by the cloud's own
        books."""
        cloud = self.aws.cloud
        with cloud._lock:
            cloud.lifecycle.advance(cloud.now())
            found = []
            for life in cloud.lifecycle.instances.values():
                if life.state in ("pending", "running"):
                    tags = {tag["key"]: tag["value"] for tag in cloud._shown[life.instance_id].get_tags()}
                    given_up = bool(tags.get(inventory.DRAINING)) or life.interruption_at_s is not None
                    found.append((life.instance_id, tags[inventory.OFFER], tags[inventory.LAUNCH], given_up))
            return found

    def counts(self) -> Wanted:
        """Count the instances with capacity, by offer."""
        return dict(Counter(offer for _, offer, _, given_up in self.lives() if not given_up))

    def check(self) -> None:
        """Check that no offer has more instances than are wanted, or were wanted just before."""
        for name, count in self.counts().items():
            most = self.script.most(name)
            assert count <= most, f"{count} of {name}, and {most} at most are wanted"

    def numbered(self) -> set[str]:
        """Return the instances that the store knows."""
        answer = self.aws.client("dynamodb").query(
            TableName="mark-state", KeyConditionExpression="pk = :pk AND begins_with(sk, :number)",
            ExpressionAttributeValues={":pk": {"S": f"service#{SERVICE}"}, ":number": {"S": "number#"}},
        )  # fmt: skip
        return {item["sk"]["S"].partition("#")[2] for item in answer["Items"]}

    def launched(self) -> dict[str, list[str]]:
        """Return all instances ever launched, by launch token."""
        found: dict[str, list[str]] = {}
        cloud = self.aws.cloud
        with cloud._lock:
            for id, instance in cloud._shown.items():
                tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
                found.setdefault(tags[inventory.LAUNCH], []).append(id)
        return found


@contextmanager
def world(scale: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    _hurry(scale, monkeypatch)
    with ExitStack() as stack:
        port = stack.enter_context(held_port())
        machines = Bouncers(port)
        stack.callback(machines.close)
        aws = stack.enter_context(
            serving(catalog=Catalog("test", SOLD, ()), machines=machines, now=time.time, time_scale=scale)
        )
        yield World(aws, machines, port, scale)


def _hurry(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (inventory, "PERIOD_S", 0.2),
        (keeper, "PERIOD_S", 0.2),
        (gate, "_BUDGET_PER_S", gate._BUDGET_PER_S * scale),
        (readiness, "_LINGER_S", readiness._LINGER_S / scale),
        (member, "START", Backoff(member.START.first_s / scale, member.START.longest_s / scale)),
    ):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=_wait))
    send = URLLib3Session.send

    def answered(self: Any, request: Any) -> Any:
        answer = send(self, request)
        if SILENCE in answer.headers:
            _wait(self._timeout.read_timeout)
            raise ReadTimeoutError(endpoint_url=request.url)
        return answer

    monkeypatch.setattr(URLLib3Session, "send", answered)


def _wait(seconds: float) -> None:
    WAITS.total_s += seconds
