"""How each stage of a fleet that follows its load counts on its function, by what the known load would cost so.

A function has one of three roles. It *stands by*: replicas are as many as without it, and it answers what these do not
begin in time. It *bridges*: replicas are for the mean rate only (`mark.pipelines.horizon_tuner`), and bursts, and what
comes until one more is active, are the function's. Or it is *alone*: the stage has no replica while so few queries come
that one would cost more than their calls. The first keeps promises when the load outgrows all forecasts and costs next
to nothing until then; the others save replicas and pay calls.

No role is right for every stage: a call may cost more than the replica that would have been idle, and where RT_max is
short against full batches calls leave for functions that replicas would have answered. So each is tried on the known
load, simulated query by query with functions that are cold at first: once as it is, for the bill, and once grown by
what the tuner's margin is for, with the replicas of before, since no more of them are active by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from mark.domain.arrays import IntArray
from mark.domain.pipeline import Pipeline
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.pipelines.estimate import Choices, QuerySample
from mark.pipelines.horizon_tuner import HorizonTuner
from mark.pipelines.lead_in import led_in
from mark.pipelines.tuned_run import run_tuned

# Of a bill: what functions that stand by may add, and what another role has to save
WORTH = 0.01
# A tuner has run for so long when it says what the known load needs; all that it goes by is younger.
_LEAD_S = 600.0
# Of the known load, from its beginning, are simulated each time: enough to see 0.1 % of them
_MOST_QUERIES = 50_000


class FunctionRole(IntEnum):
    """Of a stage's function; the later, the fewer replicas."""

    NONE = 0
    STANDBY = 1
    BRIDGE = 2
    ALONE = 3


Roles = tuple[FunctionRole, ...]


@dataclass(frozen=True, slots=True)
class Bridging:
    """What each stage uses its function for, and the fleet that follows so."""

    roles: Roles
    functions: tuple[FunctionUse | None, ...]  # None: no role
    choices: Choices  # with replicas for the known load, where functions are not alone
    tuner: HorizonTuner

    @property
    def alone(self) -> tuple[bool, ...]:
        """Of each stage: may it be without a replica?"""
        return tuple(role is FunctionRole.ALONE for role in self.roles)


def bridging(
    pipeline: Pipeline,
    known: QuerySample,
    choices: Choices,
    tuner: HorizonTuner,
    slo: Slo,
    functions: Sequence[FunctionUse | None],
    *,
    may_be_alone: bool = False,
    seed: int = 0,
) -> Bridging:
    """The roles of the functions; NONE of stages that are better off without.

    `tuner` follows with replicas alone, and `functions` are those in time. The bill of the known load is at most
    `WORTH` above that of replicas alone, and no more queries of it are late than the promise allows, or than are late
    by replicas alone. `may_be_alone`: may stages be without any replica? `known` has to span some time.
    """
    return _Search(pipeline, known, choices, tuner, slo, tuple(functions), may_be_alone, seed).run()


@dataclass(frozen=True, slots=True)
class _Tried:
    usd_per_hour: float
    late: tuple[float, float]  # shares of the known load, and of the grown one


class _Search:
    def __init__(
        self,
        pipeline: Pipeline,
        known: QuerySample,
        choices: Choices,
        tuner: HorizonTuner,
        slo: Slo,
        functions: tuple[FunctionUse | None, ...],
        may_be_alone: bool,
        seed: int,
    ) -> None:
        self._pipeline, self._choices, self._tuner, self._slo = pipeline, choices, tuner, slo
        self._functions, self._seed = functions, seed
        order = np.argsort(known.arrivals_s, kind="stable")
        arrivals_s, calls = known.arrivals_s[order], known.calls[order]
        growth = 1.0 + tuner.margin * math.sqrt(tuner.activation_s)
        tried = slice(_MOST_QUERIES)
        self._loads = tuple(QuerySample(arrivals_s[tried] / times, calls[tried]) for times in (1.0, growth))
        begin_s, end_s = float(arrivals_s[0]), float(arrivals_s[-1])

        def replicas(bridged: bool) -> IntArray:
            following = replace(tuner, bridged=(bridged,) * len(choices))
            begun, _ = led_in(choices, following, arrivals_s, max(begin_s, end_s - _LEAD_S), end_s)
            return np.array([choice.replicas for choice in begun])

        self._ample, self._lean = replicas(False), replicas(True)
        rate = len(arrivals_s) / (end_s - begin_s)
        self._alone_below = [
            _alone_below(choice.option.usd_per_hour, use, float(of.mean())) if may_be_alone else 0.0
            for choice, use, of in zip(choices, functions, calls.T, strict=True)
        ]
        self._roles = [
            [
                role
                for role in FunctionRole
                if role is FunctionRole.NONE
                or (use is not None and (role is not FunctionRole.ALONE or rate < alone_below))
            ]
            for use, alone_below in zip(functions, self._alone_below, strict=True)
        ]

    def run(self) -> Bridging:
        roles: Roles = (FunctionRole.NONE,) * len(self._choices)
        plain = best = self._tried(roles)

        def kept(tried: _Tried) -> bool:
            allowed = 1.0 - self._slo.attainment + 1e-12
            return all(late <= max(allowed, before) for late, before in zip(tried.late, plain.late, strict=True))

        for stage, possible in enumerate(self._roles):
            if FunctionRole.STANDBY in possible:
                other = _with_role(roles, stage, FunctionRole.STANDBY)
                tried = self._tried(other)
                if kept(tried) and tried.usd_per_hour <= plain.usd_per_hour * (1.0 + WORTH):
                    roles, best = other, tried
        while True:
            others = [
                _with_role(roles, stage, role)
                for stage, possible in enumerate(self._roles)
                for role in possible
                if role > max(roles[stage], FunctionRole.STANDBY)
            ]
            found = [(tried.usd_per_hour, other, tried) for other in others if kept(tried := self._tried(other))]
            if not found or min(found)[0] >= best.usd_per_hour * (1.0 - WORTH):
                break
            _, roles, best = min(found)
        return Bridging(roles, self._used(roles), self._fleet(roles), self._following(roles))

    def _used(self, roles: Roles) -> tuple[FunctionUse | None, ...]:
        return tuple(use if role else None for use, role in zip(self._functions, roles, strict=True))

    def _following(self, roles: Roles) -> HorizonTuner:
        return replace(
            self._tuner,
            bridged=tuple(role >= FunctionRole.BRIDGE for role in roles),
            alone_below=tuple(
                rate if role is FunctionRole.ALONE else 0.0 for rate, role in zip(self._alone_below, roles, strict=True)
            ),
        )

    def _fleet(self, roles: Roles) -> Choices:
        bridged = [role >= FunctionRole.BRIDGE for role in roles]
        replicas = np.where(bridged, self._lean, self._ample).tolist()
        return tuple(replace(choice, replicas=n) for choice, n in zip(self._choices, replicas, strict=True))

    def _tried(self, roles: Roles) -> _Tried:
        rt_max_s = self._slo.rt_max_s
        runs = []
        for load in self._loads:
            begin_s, end_s = float(load.arrivals_s[0]), float(np.nextafter(load.arrivals_s[-1], math.inf))
            run = run_tuned(
                self._pipeline, load, self._fleet(roles), None, begin_s=begin_s, end_s=end_s, slo_s=rt_max_s,
                activation_s=0.0, step_s=end_s - begin_s, seed=self._seed, functions=self._used(roles),
                alone=[role is FunctionRole.ALONE for role in roles],
            )  # fmt: skip
            runs.append(run)
        steady, grown = runs
        usd_per_hour = steady.total_usd / (steady.end_s - steady.begin_s) * HOUR_S
        return _Tried(usd_per_hour, (steady.miss_share(rt_max_s), grown.miss_share(rt_max_s)))


def _with_role(roles: Roles, stage: int, role: FunctionRole) -> Roles:
    return (*roles[:stage], role, *roles[stage + 1 :])


def _alone_below(replica_usd_per_hour: float, use: FunctionUse | None, calls_per_query: float) -> float:
    """The mean rate (queries/s) below which the calls of the function cost less than one replica."""
    if use is None:
        return 0.0
    usd = calls_per_query * use.usd_per_request * HOUR_S
    return replica_usd_per_hour / usd if usd > 0.0 else math.inf
