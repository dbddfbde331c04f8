"""Laws that hold in every run, for any policy, trace, seed and world."""

from __future__ import annotations

import numpy as np
import pytest

from mark.simulation.result import SimulationResult


def check_laws(result: SimulationResult, *, refunds: bool = False) -> None:
    """Check the laws of every run.

    `refunds` allows a bill to fall, because spot that AWS reclaims in its first hour is free.
    """
    out = result.as_json()
    requests, bill, fleet = out["requests"], out["bill_usd"], out["fleet"]
    duration_s = out["trace"]["duration_s"]
    assert requests["total"] == requests["instances"] + requests["functions"] + requests["rejected"]
    assert requests["total"] == out["trace"]["requests"]
    calls = out["functions"]["calls"]
    # A call may be for a copy whose request has its answer from another.
    assert requests["functions"] == calls or (result.hedged is not None and requests["functions"] < calls)
    assert calls >= out["functions"]["cold"]
    assert (out["functions"]["billed_gb_s"] > 0.0) == (bill["functions"] > 0.0)
    assert bill["total"] == pytest.approx(sum(v for k, v in bill.items() if k != "total"))
    assert all(v >= 0.0 for v in bill.values())
    assert out["regret"] is None or out["regret"] >= 1.0
    if out["regret"] is not None:
        # A policy may be late as often as the promise allows; this run was late as often as it was.
        assert out["regret"] == pytest.approx(out["bill_usd"]["total"] / out["bound_usd"])
        assert out["bound_usd"] <= out["bound_own_usd"] * (1.0 + 1e-9)
    assert out["regret"] is not None or out["regret_reason"]
    if requests["rejected"]:
        assert out["regret"] is None

    timeline = result.timeline
    width_s = np.minimum(60.0, duration_s - timeline.t_s)
    assert (timeline.arrival_rps * width_s).sum() == pytest.approx(requests["total"], rel=1e-9)
    spent = sum(float(usd[-1]) for usd in timeline.spent_usd.values())
    assert spent == pytest.approx(bill["total"], rel=1e-6)
    for usd in timeline.spent_usd.values():
        assert refunds or np.all(np.diff(usd) >= -1e-9)

    in_time = requests["instances"] + requests["functions"] - result.requests.late
    share = in_time / requests["total"] if requests["total"] else None
    assert out["slo"]["attainment"] == (None if share is None else pytest.approx(share))
    quantiles = [out["latency_ms"][k] for k in ("p50", "p95", "p98", "p99", "p999", "max")]
    if requests["total"] > requests["rejected"]:
        assert quantiles == sorted(quantiles)
    else:
        assert quantiles == [None] * len(quantiles)

    # Nothing is billed outside the part, and instances that ended existed.
    assert sum(fleet["instance_hours"].values()) * 3600.0 <= fleet["peak_instances"] * duration_s + 1e-6
    first = fleet["terminated"] + fleet["interrupted"] - fleet["launched"]
    assert first <= fleet["peak_instances"]
