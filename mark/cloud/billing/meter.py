"""The meter: seconds of running instances into dollars by market, for simulated, local and real instances.

The rule is EC2's for Linux (docs/semantics.md, 9): whole seconds from running to shutting down, at least 60 of them per
start. The end of the run cuts every interval, and a cut interval pays no minimum.

Committed instances are paid all the time; in return, the same number of running instances of their offer costs
nothing. (AWS counts by the clock hour, in which one commitment covers two instances for half an hour each, so AWS is
never dearer.)
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
    """Return the size of an instance's boot disk, in units of DISK_GIB. The GPU image needs a larger disk.

    SageMaker's GPU types use SageMaker's own images.
    """
    return GPU_DISKS if offer.gpus and offer.market is not Market.SAGEMAKER else 1.0


def disk_usd_per_s(offer: Offer) -> float:
    """Return dollars a second of the disk of an instance, from its launch until it is terminated."""
    return disks_of(offer) * _DISK_USD_PER_S


# Dollars of one instance of an offer from time 0 to t; never falls. The difference of two values is a bill.
Cost = Callable[[float], float]


@dataclass(slots=True)
class _Account:
    """One offer: closed intervals as sums; open ones as a count and sums of their beginnings.

    `covered_usd` is the cost up to `covered_to_s` of running instances that a commitment covers.
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
        """Return the dollars that commitments have saved up to `now_s`, which is not before the last change."""
        if not self.committed:
            return 0.0
        return self.covered_usd + min(self.open, self.committed) * (self.cost(now_s) - self.cost(self.covered_to_s))

    def cover(self, at_s: float) -> None:
        """Update the covered dollars; called before the number of running instances changes."""
        self.covered_usd, self.covered_to_s = self.covered(at_s), at_s


_SUMS = tuple(f.name for f in fields(_Account) if f.name not in ("cost", "committed"))


class Meter:
    """Adds up intervals of running instances. A query is O(offers), for any number of running instances.

    `costs[i]` belongs to `offers[i]`. Times are in seconds of the run, which ends at `end_s`; later times are not
    billed. `committed` instances by offer name are covered, for `committed_usd_per_hour` in total.
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
        """Count one more running instance of the offer."""
        account, at_s = self._accounts[offer], min(at_s, self._end_s)
        account.cover(at_s)
        account.open += 1
        account.open_usd += account.cost(at_s)
        account.open_s += at_s

    def close(self, offer: int, began_s: float, at_s: float, *, minimum: bool = True, taken: bool = False) -> None:
        """End the interval of the instance that was opened at `began_s`; `taken`: the cloud took it back."""
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
        """Apply a change of the cost, perhaps in the past, to the running instances, which were opened at `began_s`."""
        account = self._accounts[offer]
        account.open_usd = sum(account.cost(at_s) for at_s in began_s)

    def booted(self, offer: int, began_s: float, at_s: float) -> None:
        """Count the cost since `began_s` as boot cost, because the instance is ready, or ends before it was."""
        account = self._accounts[offer]
        if account.open > account.committed:
            account.boot_usd += account.cost(at_s) - account.cost(began_s)

    def boot_usd(self) -> float:
        """Return dollars paid for instances that were not ready yet and no commitment covers; part of the bill."""
        return sum(account.boot_usd for account in self._accounts)

    def surplus(self, offer: int, usd: float) -> None:
        """Add surplus CPU credits owed (or, below zero, earned back before they were charged)."""
        self._accounts[offer].paid_usd += usd

    def disks(self, change: float, at_s: float) -> None:
        """Change the number of existing disks; stopped instances keep theirs."""
        at_s = min(at_s, self._end_s)
        self._disks_usd += self._disks * (at_s - self._disks_since_s) * _DISK_USD_PER_S
        self._disks_since_s = at_s
        self._disks += change

    def spent_usd(self, now_s: float) -> dict[str, float]:
        """Return dollars up to `now_s` by market, keyed by the fields of `Bill` (without functions)."""
        now_s = min(now_s, self._end_s)
        spent = dict.fromkeys(("on_demand", "spot", "burstable", "sagemaker", "other"), 0.0)
        for offer, account in zip(self._offers, self._accounts, strict=True):
            running_usd = account.open * account.cost(now_s) - account.open_usd if account.open else 0.0
            # max: the difference of the two sums may be slightly below zero by rounding.
            spent[_FIELD[offer.market]] += account.paid_usd + max(0.0, running_usd) - account.covered(now_s)
        spent["on_demand"] += self._committed_usd_per_s * now_s
        if self._bills_disks:
            spent["other"] = self._disks_usd + self._disks * max(0.0, now_s - self._disks_since_s) * _DISK_USD_PER_S
        return spent

    def state(self) -> dict[str, Any]:
        """Return the state in plain numbers, for `restore` into a meter of the same prices."""
        accounts = {
            offer.name: {name: getattr(account, name) for name in _SUMS}
            for offer, account in zip(self._offers, self._accounts, strict=True)
            if account.open or account.billed_s
        }
        return {"accounts": accounts, "disks": (self._disks, self._disks_since_s, self._disks_usd)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Amounts of offers that no longer exist are dropped."""
        for offer, account in zip(self._offers, self._accounts, strict=True):
            for name, value in state["accounts"].get(offer.name, {}).items():
                setattr(account, name, value)
        self._disks, self._disks_since_s, self._disks_usd = state["disks"]

    def bill(self, end_s: float) -> Bill:
        """Return the bill of everything up to `end_s`, where running instances are cut. Repeatable."""
        return Bill(**self.spent_usd(end_s))

    def instance_hours(self, now_s: float) -> dict[str, float]:
        """Return billed hours by offer name, only for offers that ran."""
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
