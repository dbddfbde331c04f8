"""Decide how each stage of a fleet that follows its load uses its function, by the cost of an hour of the known load.

A function has one of three roles. It *stands by*: the stage has as many replicas as without it, and the function
answers the calls that these do not begin in time. It *bridges*: the stage has replicas for the mean rate only
(`mark.planning.graphs.horizon_tuner`), and the function answers bursts and growth until another replica is active. Or
it is *alone*: the stage has 0 replicas while so few queries come that one would cost more than their calls. The first
role keeps promises when the load outgrows all forecasts and costs next to nothing until then; the others save replicas
and pay for calls.

No role is right for every stage: a call may cost more than the replica that would have been idle, and where RT_max is
short against full batches, functions get calls that replicas would have answered. So each role is judged by an hour of
the known load with one growth, which comes without notice, is as large as the tuner's margin is for, and lasts until
more replicas serve. Both are simulated query by query, with the replicas from before the growth. Functions are cold
when the load grows, and warm in the second half. How often loads grow is not known, so that half of a growth has to
keep the promise by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from mark.domain.arrays import BoolArray, IntArray
from mark.domain.pipeline import Pipeline
from mark.domain.service import FunctionUse
from mark.domain.slo import Slo
from mark.domain.time import HOUR_S
from mark.planning.graphs.estimate import Choices, QuerySample
from mark.planning.graphs.horizon_tuner import HorizonTuner
from mark.planning.graphs.tuned_run import Tuning, run_tuned
from mark.planning.graphs.warm_start import led_in

# Share of a bill: functions that stand by may add this much, and any other role has to save this much.
WORTH = 0.01
# The hour that is judged has one growth.
_WITHIN_S = HOUR_S
# Share of the misses that the promise allows. The growth is a guess, and the other half is for larger ones.
_LATE_SHARE = 0.5
# The tuner runs this long before its replicas for the known load are read; everything it remembers is younger.
_LEAD_S = 600.0
# Limit of the simulated queries of a growth, unless the known load has more
_MOST_QUERIES = 200_000


class FunctionRole(IntEnum):
    """Role of a stage's function. A later role has fewer replicas."""

    NONE = 0
    STANDBY = 1
    BRIDGE = 2
    ALONE = 3


Roles = tuple[FunctionRole, ...]


@dataclass(frozen=True, slots=True)
class Bridging:
    """The role of each stage's function, and the fleet with these roles."""

    roles: Roles
    functions: tuple[FunctionUse | None, ...]  # None: no role
    choices: Choices  # with replicas for the known load, where functions are not alone
    tuner: HorizonTuner

    @property
    def alone(self) -> tuple[bool, ...]:
        """For each stage, whether it may be without replicas."""
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
    """Return the roles of the functions; NONE for stages that are better off without one.

    `tuner` follows the load with replicas alone, and `functions` are the functions that answer in time. The bill of an
    hour is at most `WORTH` above the bill of replicas alone. At most half as many queries are late as the promise
    allows, and in the second half of the growth at most as many as it allows; or as many as with replicas alone, if
    that is more. `may_be_alone`: may a stage be without replicas? `known` has to span some time.
    """
    return _Search(pipeline, known, choices, tuner, slo, tuple(functions), may_be_alone, seed).run()


@dataclass(frozen=True, eq=False, slots=True)
class _Load:
    """Queries from 0 s to `end_s`, in the order of their arrival."""

    queries: QuerySample
    end_s: float

    def grown(self, times: float, lasting_s: float) -> _Load:
        """Return the queries `times` as fast, repeated from the beginning until they last `lasting_s`."""
        arrivals_s, calls = self.queries.arrivals_s, self.queries.calls
        most = max(1, _MOST_QUERIES // len(arrivals_s))
        rounds = min(most, math.ceil(lasting_s * times / self.end_s))
        grown_s = np.concatenate([arrivals_s + n * self.end_s for n in range(rounds)]) / times
        end_s = min(lasting_s, rounds * self.end_s / times)
        within = slice(int(np.searchsorted(grown_s, end_s)))
        return _Load(QuerySample(grown_s[within], np.tile(calls, (rounds, 1))[within]), end_s)


@dataclass(frozen=True, slots=True)
class _Tried:
    usd_per_hour: float
    late: float  # share of the queries
    late_grown: float  # share of the queries in the second half of a growth, when functions are warm


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
        begin_s, end_s = float(arrivals_s[0]), float(np.nextafter(arrivals_s[-1], math.inf))
        self._known = _Load(QuerySample(arrivals_s - begin_s, calls), end_s - begin_s)
        self._grown = self._known.grown(1.0 + tuner.margin * math.sqrt(tuner.activation_s), tuner.activation_s)

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
            return tried.late <= max(_LATE_SHARE * allowed, plain.late) and (
                tried.late_grown <= max(allowed, plain.late_grown)
            )

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
        of_growth = min(1.0, self._tuner.activation_s / _WITHIN_S)
        usd_per_s = queries_per_s = late_per_s = warm = 0.0
        for load, of_time in ((self._known, 1.0 - of_growth), (self._grown, of_growth)):
            run = run_tuned(
                self._pipeline,
                load.queries,
                self._fleet(roles),
                Tuning(None, 0.0, step_s=load.end_s),
                begin_s=0.0,
                end_s=load.end_s,
                slo_s=self._slo.rt_max_s,
                seed=self._seed,
                functions=self._used(roles),
                alone=[role is FunctionRole.ALONE for role in roles],
            )
            missed = run.missed(self._slo.rt_max_s)
            warm = _share(missed[run.arrivals_s >= 0.5 * load.end_s])
            late = warm if load is self._known else _share(missed)
            queries_per_s += of_time * len(missed) / load.end_s
            late_per_s += of_time * late * len(missed) / load.end_s
            usd_per_s += of_time * run.total_usd / load.end_s
        return _Tried(usd_per_s * HOUR_S, late_per_s / queries_per_s, warm)


def _share(missed: BoolArray) -> float:
    return float(np.count_nonzero(missed)) / max(1, len(missed))


def _with_role(roles: Roles, stage: int, role: FunctionRole) -> Roles:
    return (*roles[:stage], role, *roles[stage + 1 :])


def _alone_below(replica_usd_per_hour: float, use: FunctionUse | None, calls_per_query: float) -> float:
    """Return the mean rate (queries/s) below which calls of the function cost less than one replica."""
    if use is None:
        return 0.0
    usd = calls_per_query * use.usd_per_request * HOUR_S
    return replica_usd_per_hour / usd if usd > 0.0 else math.inf
