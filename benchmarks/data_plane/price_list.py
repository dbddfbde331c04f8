"""Processor time of the price list: of the price of one more request and miss, and of a millisecond of RT_max.

The latter is measured twice: by planning again, and by the estimate that a controller makes.

    python benchmarks/data_plane/price_list.py [--service NAME|FILE ...]

The benchmark repeats one decision at noon of the diurnal day. It measures processor time, because other work on the
machine affects it little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from mark.domain.price_list import usd_per_hour_per_ms
from mark.planning.marginal_prices import prices_of
from mark.planning.promise_cost import PromiseCost
from mark.simulation.request import RunRequest
from mark.studies.decision import plan_service_once, slo_prices

SERVICES = ["inception-v3", "nasnet", "opennmt-ende", "inception-v3-2026"]
NOON_S = 43_200.0


def milliseconds(action: Callable[[], object], times: int) -> float:
    """Return the milliseconds of processor time, once compiled."""
    action()
    began_s = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began_s) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", nargs="+", default=SERVICES)
    for service in parser.parse_args().service:
        request = RunRequest(trace="synthetic:diurnal", service=service, predictor="seasonal-naive")
        planned = plan_service_once(request, NOON_S)
        request_ms = milliseconds(lambda planned=planned: prices_of(planned.plan, planned.context), 500)  # type: ignore[misc]
        slo_ms = milliseconds(lambda planned=planned: slo_prices(planned), 5)  # type: ignore[misc]
        resolved, forecast = planned.context.resolved, planned.context.forecast
        assert forecast is not None
        load_rps, cost = float(forecast.mean_at(0.5)[0]), PromiseCost(resolved)
        once_ms = milliseconds(partial(PromiseCost, resolved), 5)
        rt_max_s = resolved.slo.rt_max_s
        estimated = partial(cost.estimate, rt_max_s, load_rps)
        estimate_ms = milliseconds(estimated, 200)
        plan_usd = usd_per_hour_per_ms(slo_prices(planned))
        estimate_usd = usd_per_hour_per_ms(estimated().other_slos)
        print(
            f"{service}: a request and a miss {request_ms:.2f} ms, a millisecond of RT_max {slo_ms:.0f} ms ({plan_usd} "
            f"$/h); estimated {estimate_ms:.2f} ms ({estimate_usd} $/h), once before {once_ms:.1f} ms"
        )


if __name__ == "__main__":
    main()
