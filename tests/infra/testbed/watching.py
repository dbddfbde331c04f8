"""A watch of the serving capacity, once per second of the controller's time, while a site is changed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.infra.testbed.real_processes import get

_PLANS_S = 0.5  # seconds between two looks at the plans


@dataclass
class Watch:
    """Compares each service's ready instances that get requests with its plan's need, in instances.

    A service is owed its plan's need only once that many have served, because a plan that grows has to wait for a boot.
    (The watch knows a plan that falls a moment late, so the plan should be steady.) `old` are ids of instances that
    could still answer although the roll-out of another release was reported as done; `page` is the controller's.
    """

    serving: Callable[[str], int]
    old: Callable[[str], set[str]]
    page: Callable[[], str]
    scale: float  # the controller's seconds in a real second
    services: tuple[str, ...] = ()
    needed: dict[str, int] = field(default_factory=dict)
    looks: Counter[str] = field(default_factory=Counter)
    least: dict[str, float] = field(default_factory=dict)  # serving / owed
    short: list[str] = field(default_factory=list)  # when fewer served than are owed
    late: set[str] = field(default_factory=set)
    longest_s: float = 0.0  # the longest time of the controller between two looks
    error: Exception | None = None
    _owed: Counter[str] = field(default_factory=Counter)
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        # A page takes longer than a second of a fast clock.
        self._threads = [threading.Thread(target=one) for one in (self._watch, self._read_plans)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def __str__(self) -> str:
        looks = ", ".join(f"{name} {count} times" for name, count in sorted(self.looks.items()))
        least = ", ".join(f"{name} {share:g}" for name, share in sorted(self.least.items()))
        return f"looked at {looks}, {self.longest_s:.1f} s apart at most; least serving / needed: {least}"

    def check(self) -> None:
        """Check that no shortage was seen, and that the watch did look."""
        assert self.error is None, self.error
        assert not self.short, self.short
        assert self.late == set()
        assert set(self.least) == set(self.services)

    def _watch(self) -> None:
        at_s = time.monotonic()
        while not self._ends.wait(max(0.0, at_s + 1.0 / self.scale - time.monotonic())):
            before_s, at_s = at_s, time.monotonic()
            self.longest_s = max(self.longest_s, (at_s - before_s) * self.scale)
            try:
                for name in self.services:
                    self._look(name)
            except Exception as error:  # a thread's error would not be heard
                self.error = error
                return

    def _look(self, name: str) -> None:
        self.late |= self.old(name)
        serving = self.serving(name)
        owed = self._owed[name] = min(self.needed.get(name, 0), max(self._owed[name], serving))
        self.looks[name] += 1
        if owed:
            self.least[name] = min(self.least.get(name, serving / owed), serving / owed)
        if serving < owed:
            self.short.append(f"{datetime.now(UTC):%H:%M:%S.%f} {name}: {serving} of {owed}")

    def _read_plans(self) -> None:
        while not self._ends.wait(_PLANS_S):
            page = self.page()
            for name in self.services if page else ():
                _, told = get(f"{page}/api/v1/services/{name}/plan")
                if told is not None:
                    self.needed[name] = sum(one["count"] - one["spare"] for one in told["targets"])
