"""Compare balancers of instances that are sometimes slow: the simulator's, mark's gateway, and one that knows all."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mark.domain.arrays import FloatArray
from mark.domain.faults import Faults
from mark.domain.rules.routing import TICK_S
from mark.insurance.insurance_settings import BEFORE_DEADLINE_S, DEGRADED, InsuranceSettings, ParitySettings
from mark.profiling.played_faults import FaultStream, PlayedFaults
from mark.serving.gateway.gateway import ALB, LEAST_COMPLETION, Gateway, GatewayPolicy, InFlightRequest
from mark.simulation.coded_flow import CodedFlow, coded_answers
from mark.simulation.fixed_run import fixed_run
from mark.simulation.request import RunRequest
from mark.studies.insure import _opened

SERVICE = Path(__file__).parents[1] / "examples" / "insurance" / "noisy.toml"
TRACE = "synthetic:poisson?rate=100"
REQUEST_S, SIGMA = 0.1, 0.05
# Option, RT_max in multiples of a request's time, SL_min, and fleets, the second fleet after the first: the fleets of
# this command, the design's fleets if they differ by more than one, and fleets without protection for a short RT_max.
COMPARED = (
    ("instances", 5.0, 0.999, ((17, 0), (13, 0))),
    ("parity", 3.0, 0.999, ((20, 5), (14, 4))),
    ("replicate", 3.0, 0.999, ((17, 17), (13, 13))),
    ("instances", 2.0, 0.99, ((16, 0),)),
)
KNOWS = "knows"


def answered_s(arrivals_s: FloatArray, instances: int, faults: Faults, seed: int, routing: str) -> FloatArray:
    """Return when each request is answered by instances with one worker each, behind a balancer of this routing.

    The balancer is the class that serves as mark's gateway, told of requests and answers in simulated time. With KNOWS
    a request goes to the instance where it ends first, which no balancer can know. Instances are slow at the same times
    as in the simulator.
    """
    takes_s = REQUEST_S * np.exp(np.random.default_rng(seed).normal(-0.5 * SIGMA**2, SIGMA, len(arrivals_s)))
    played = [PlayedFaults(faults, FaultStream(0.0, seed, one)) for one in range(instances)]
    free_s = [0.0] * instances
    gateway: Gateway[InFlightRequest] = Gateway(
        GatewayPolicy(routing=LEAST_COMPLETION if routing == KNOWS else routing)
    )
    gateway.put({str(one): 1.0 for one in range(instances)}, 0.0)
    ticked_s, found, running = -math.inf, np.empty(len(arrivals_s)), list[Any]()

    def end_s(one: int, now_s: float, each_s: float) -> float:
        return played[one].end_s(max(now_s, free_s[one]), each_s)

    for request, (now_s, each_s) in enumerate(zip(arrivals_s.tolist(), takes_s.tolist(), strict=True)):
        if routing == KNOWS:
            one = min(range(instances), key=lambda one: end_s(one, now_s, each_s))
            found[request] = free_s[one] = end_s(one, now_s, each_s)
            continue
        if now_s >= ticked_s + TICK_S:
            ticked_s = now_s
            for replica in gateway.tick(now_s):
                gateway.probed(replica, True, now_s)
        while running and running[0][0] <= now_s:
            ended_s, _, attempt = heapq.heappop(running)
            gateway.answered(attempt, 200, ended_s)
        begun = gateway.begin(InFlightRequest(math.inf, 0), now_s)
        assert not isinstance(begun, str), begun
        one = begun.replica.number
        found[request] = free_s[one] = end_s(one, now_s, each_s)
        heapq.heappush(running, (free_s[one], request, begun))
    return found


def balancer(hours: float, seed: int) -> bool:
    """Print the late share of some fleets by the simulator's balancers, by mark's gateway, and by one that knows all.

    True where the simulator is within 0.3 points of the gateway in both of its routings.
    """
    arrivals_s = np.cumsum(np.random.default_rng(seed).exponential(0.01, int(360_000 * hours)))
    inputs = _opened(RunRequest(TRACE, str(SERVICE), duration_s=float(arrivals_s[-1]) + 1.0, seed=seed), 1.0)

    def simulated_s(times_s: FloatArray, count: int, fleet: int, routing: str) -> FloatArray:
        service = replace(inputs.service, routing=routing)
        own = replace(inputs, service=service, resolved=replace(inputs.resolved, service=service))
        own = replace(own, request=replace(inputs.request, seed=seed + fleet))
        return fixed_run(own, "c7i.large/on-demand", count, times_s, np.full(len(times_s), np.inf)).answer_s

    def served_s(times_s: FloatArray, count: int, fleet: int, routing: str) -> FloatArray:
        return answered_s(times_s, count, inputs.service.faults, seed + fleet, routing)

    ways: dict[str, Callable[[FloatArray, int, int], FloatArray]] = {
        "knows": partial(served_s, routing=KNOWS),
        "simulated": partial(simulated_s, routing=LEAST_COMPLETION),
        "gateway": partial(served_s, routing=LEAST_COMPLETION),
        "alb, sim.": partial(simulated_s, routing=ALB),
        "alb": partial(served_s, routing=ALB),
    }
    right = True
    print(f"{'option':<11}{'RT_max':>7}{'SL_min':>8}{'fleet':>9}" + "".join(f"{name:>11}" for name in ways) + "   late")
    for option, times, share, fleets in COMPARED:
        rt_max_s = times * REQUEST_S
        for count, second in fleets:
            late = []
            for serve in ways.values():
                own_s = serve(arrivals_s, count, 0)
                took_s = own_s - arrivals_s
                if option == "parity":
                    settings = InsuranceSettings(
                        ParitySettings("sum", 4), after_s=rt_max_s - BEFORE_DEADLINE_S, accept=DEGRADED
                    )
                    flow = CodedFlow(settings, rt_max_s, arrivals_s, lambda _, second=second: second / REQUEST_S)
                    parity = partial(_without_limits, serve, second)
                    took_s = coded_answers(flow, lambda times_s, _, own_s=own_s: own_s, [parity]).latency_s
                elif second:
                    took_s = np.minimum(took_s, serve(arrivals_s, second, 1) - arrivals_s)
                late.append(float((took_s > rt_max_s + 1e-9).mean()))
            _, simulated, gateway, alb_simulated, alb = late
            right = right and abs(simulated - gateway) <= 0.003 and abs(alb_simulated - alb) <= 0.003
            cells = "".join(f"{one:>11.3%}" for one in late)
            shown_fleet = f"{count} + {second}" if second else str(count)
            print(f"{option:<11}{times:>5g} T{share:>8.1%}{shown_fleet:>9}{cells}", flush=True)
    return right


def _without_limits(
    serve: Callable[[FloatArray, int, int], FloatArray], count: int, times_s: FloatArray, limits_s: FloatArray
) -> FloatArray:
    return serve(times_s, count, 1)
