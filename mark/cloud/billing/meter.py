"""The meter: seconds of running instances into dollars by market, the same for simulated, local and real instances.

The rule is EC2's for Linux (docs/semantics.md, 9): whole seconds from running to shutting down, at least 60 of
them per start. The end of the run cuts every interval, and what it cuts pays no minimum.

Committed instances are paid all the time; in return as many running ones of their offer cost nothing at any moment.
(AWS counts by the clock hour, where two instances for half an hour each are covered by one: never dearer than this.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mark.domain.bill import Bill
from mark.domain.ec2_limits import MINIMUM_BILLED_S
from mark.domain.offer import Market, Offer
from mark.domain.time import HOUR_S

# One root volume per instance: gp3 in us-east-1, EBS list price since its launch in 2020-12.
DISK_GIB = 8.0
DISK_USD_PER_GIB_MONTH = 0.08
GPU_DISKS = 12.5  # a GPU image needs 100 GiB, in disks of DISK_GIB
_DISK_USD_PER_S = DISK_GIB * DISK_USD_PER_GIB_MONTH / (730.0 * 3600.0)


def disks_of(offer: Offer) -> float:
    """In units of DISK_GIB, what an instance of the offer boots from: only types with GPUs need the GPU image's disk.

    SageMaker's have images of its own.
    """
    return GPU_DISKS if offer.gpus and offer.market is not Market.SAGEMAKER else 1.0


def disk_usd_per_s(offer: Offer) -> float:
    """Dollars a second of the disk of an instance, from its launch until it is terminated."""
    return disks_of(offer) * _DISK_USD_PER_S


# Dollars that one instance of an offer costs from time 0 to t; never falls. The difference of two is a bill.
Cost = Callable[[float], float]


@dataclass(slots=True)
class _Account:
    """One offer: closed intervals as sums; open ones as a count, and sums of where they began.

    `covered_usd` is what running instances would have cost up to `covered_to_s` that a commitment covers.
    """

    cost: Cost
    committed: int = 0
    covered_usd: float = 0.0
    covered_to_s: float = 0.0
    paid_usd: float = 0.0
    billed_s: float = 0.0
    open: int = 0
    open_usd: float = 0.0
    open_s: float = 0.0
    boot_usd: float = 0.0

    def covered(self, now_s: float) -> float:
        """Dollars that commitments have saved up to `now_s`, which lies not before the last change."""
        if not self.committed:
            return 0.0
        return self.covered_usd + min(self.open, self.committed) * (self.cost(now_s) - self.cost(self.covered_to_s))

    def cover(self, at_s: float) -> None:
        """To be called before the number of running instances changes."""
        self.covered_usd, self.covered_to_s = self.covered(at_s), at_s


_SUMS = tuple(f.name for f in fields(_Account) if f.name not in ("cost", "committed"))


class Meter:
    """Adds up intervals of running instances. Asking is O(offers), however many instances run.

    `costs[i]` belongs to `offers[i]`. Times in seconds of the run, which ends at `end_s`; nothing is billed beyond.
    `committed` instances by offer name are covered, for `committed_usd_per_hour` all in all.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        costs: Sequence[Cost],
        *,
        end_s: float,
        first_hour_free: bool = False,
        bills_disks: bool = False,
        committed: Mapping[str, int] | None = None,
        committed_usd_per_hour: float = 0.0,
    ) -> None:
        self._offers = tuple(offers)
        covers = committed or {}
        self._accounts = [
            _Account(cost, covers.get(offer.name, 0)) for offer, cost in zip(self._offers, costs, strict=True)
        ]
        self._committed_usd_per_s = committed_usd_per_hour / 3600.0
        self._end_s = end_s
        self._first_hour_free = first_hour_free
        self._bills_disks = bills_disks
        self._disks = 0.0
        self._disks_since_s = 0.0
        self._disks_usd = 0.0

    def open(self, offer: int, at_s: float) -> None:
        """One more instance of the offer runs."""
        account, at_s = self._accounts[offer], min(at_s, self._end_s)
        account.cover(at_s)
        account.open += 1
        account.open_usd += account.cost(at_s)
        account.open_s += at_s

    def close(self, offer: int, began_s: float, at_s: float, *, minimum: bool = True, taken: bool = False) -> None:
        """The instance that was opened at `began_s` runs no more; `taken`: the cloud took it back."""
        account = self._accounts[offer]
        began_s = min(began_s, self._end_s)
        account.cover(min(at_s, self._end_s))
        account.open -= 1
        account.open_usd -= account.cost(began_s)
        account.open_s -= began_s
        seconds = at_s - began_s
        if taken and self._first_hour_free and seconds <= HOUR_S:
            return
        # 1e-6: a whole second must not become the next one through binary rounding of the two times.
        whole_s = max(math.ceil(seconds - 1e-6), MINIMUM_BILLED_S if minimum else 0.0)
        until_s = min(began_s + whole_s, self._end_s)
        account.paid_usd += account.cost(until_s) - account.cost(began_s)
        account.billed_s += until_s - began_s

    def repriced(self, offer: int, began_s: Sequence[float]) -> None:
        """Its cost has changed, perhaps for a little of the past: for what runs, opened at these times, it counts."""
        account = self._accounts[offer]
        account.open_usd = sum(account.cost(at_s) for at_s in began_s)

    def booted(self, offer: int, began_s: float, at_s: float) -> None:
        """An instance opened at `began_s` is ready, or ends unready: what was paid for it so far was for its boot."""
        account = self._accounts[offer]
        if account.open > account.committed:
            account.boot_usd += account.cost(at_s) - account.cost(began_s)

    def boot_usd(self) -> float:
        """Dollars paid for instances that were not ready yet, where no commitment covers them; part of the bill."""
        return sum(account.boot_usd for account in self._accounts)

    def surplus(self, offer: int, usd: float) -> None:
        """Surplus CPU credits owed (or, below zero, earned back before they were charged)."""
        self._accounts[offer].paid_usd += usd

    def disks(self, change: float, at_s: float) -> None:
        """`change` disks more or fewer exist; stopped instances keep theirs."""
        at_s = min(at_s, self._end_s)
        self._disks_usd += self._disks * (at_s - self._disks_since_s) * _DISK_USD_PER_S
        self._disks_since_s = at_s
        self._disks += change

    def spent_usd(self, now_s: float) -> dict[str, float]:
        """Dollars up to `now_s` by market, keyed by the fields of `Bill` (without functions)."""
        now_s = min(now_s, self._end_s)
        spent = dict.fromkeys(("on_demand", "spot", "burstable", "sagemaker", "other"), 0.0)
        for offer, account in zip(self._offers, self._accounts, strict=True):
            running_usd = account.open * account.cost(now_s) - account.open_usd if account.open else 0.0
            # max: the two sums may differ from zero by their rounding.
            spent[_FIELD[offer.market]] += account.paid_usd + max(0.0, running_usd) - account.covered(now_s)
        spent["on_demand"] += self._committed_usd_per_s * now_s
        if self._bills_disks:
            spent["other"] = self._disks_usd + self._disks * max(0.0, now_s - self._disks_since_s) * _DISK_USD_PER_S
        return spent

    def state(self) -> dict[str, Any]:
        """All of it in plain numbers, for `restore` into a meter of the same prices."""
        accounts = {
            offer.name: {name: getattr(account, name) for name in _SUMS}
            for offer, account in zip(self._offers, self._accounts, strict=True)
            if account.open or account.billed_s
        }
        return {"accounts": accounts, "disks": (self._disks, self._disks_since_s, self._disks_usd)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. What was paid for offers that are not there any more is dropped."""
        for offer, account in zip(self._offers, self._accounts, strict=True):
            for name, value in state["accounts"].get(offer.name, {}).items():
                setattr(account, name, value)
        self._disks, self._disks_since_s, self._disks_usd = state["disks"]

    def bill(self, end_s: float) -> Bill:
        """The bill of everything up to `end_s`; what still runs is cut there. Repeatable."""
        return Bill(**self.spent_usd(end_s))

    def instance_hours(self, now_s: float) -> dict[str, float]:
        """Billed hours by offer name, only offers that ran."""
        now_s = min(now_s, self._end_s)
        hours = {}
        for offer, account in zip(self._offers, self._accounts, strict=True):
            seconds = account.billed_s + (max(0.0, account.open * now_s - account.open_s) if account.open else 0.0)
            if seconds > 0.0:
                hours[offer.name] = seconds / 3600.0
        return hours


_FIELD = {
    Market.ON_DEMAND: "on_demand",
    Market.SPOT: "spot",
    Market.BURSTABLE: "burstable",
    Market.SAGEMAKER: "sagemaker",
}
