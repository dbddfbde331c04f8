"""Check how often the next day's bill lies in its 90 % interval, and whether the promise is as likely as stated.

    python benchmarks/planner/next_day.py [--bills out/next_day] [--simulate POLICY] [--out out/next_day.json]

The traffic is real, from MARK_DATA or ../shared/data. Every window is a day that begins half a day after the window
before; its prediction uses only earlier data. There are three measures:

1. `plans`: over 1,143 windows of all families. The bill of a day is the cost of a plan in whole instances, by half
   hours, for the actual load, in small fleets (4 requests/s on average) and in fleets ten times as large.
2. `bills`: the bills of simulated runs, by `reactive` and `mark` on OpenNMT-ende without functions. `--simulate POLICY`
   makes these runs first (10 s for a day of traffic; a run already in the folder is kept). `one day simulated` is the
   same with one simulated day known and plans before it. `promise` judges the probabilities of five promises, with 1 to
   10 % of the requests late.
3. `short`: one day of traffic is known, and the interval has the shipped width. Each trace has the number of windows,
   the coverage, and the coverage with the factor of all other families. `factor` is the UNREST_FACTOR of this data.

Exits with 1 if the coverage lies outside 87 to 93 %, the width exceeds 1.1 times that of conformal prediction on
yesterday's bill, or a probability has no skill.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from miss_price import DATA

from mark.domain.arrays import FloatArray
from mark.domain.service import ResolvedService
from mark.planning import next_day as law
from mark.planning.next_day import DAY, HALF_HOUR_S, LEAST_WINDOWS, SeenHalfHours, conformal_width, next_day
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.studies.next_day import plan_usd
from mark.traffic.traces.reader import open_trace

SERVICE = """
[service]
name = "next-day"
model = "opennmt-ende-2026"
slo_ms = 4000
slo_attainment = 0.98
[fleet]
catalog = "aws-2026"
markets = ["on-demand"]
instances = ["c8g.large", "c8g.xlarge", "c8g.2xlarge", "c8g.4xlarge"]
max_instances = 2000
[overflow]
function = "none"
"""
TRACES = {  # name: days that are simulated for reactive and for mark
    "elb_requests_d00_09_300s": (10, 10),
    "twitter_prod_d0_6_60s": (6, 6),
    "twitter_stream_2021_d00_14_60s": (15, 0),
    "nyc_taxi_d000_143_1800s": (70, 30),
    "nasa_1995_07_60s": (27, 0),
    "twitter_ticker_IBM_300s": (55, 24),
    "worldcup98_apr30_jun30_60s": (46, 0),
    "twitter_ticker_AAPL_300s": (55, 24),
    "twitter_ticker_AMZN_300s": (0, 0),
    "twitter_ticker_CRM_300s": (0, 0),
    "twitter_ticker_CVS_300s": (0, 0),
    "twitter_ticker_FB_300s": (0, 0),
    "twitter_ticker_UPS_300s": (0, 0),
    "alibaba_genai_nov15_dec02": (0, 0),
}
_MEAN_RPS = 4.0
_SIZES = (1.0, 10.0)
_EVERY = DAY // 2
_ALLOWED = (0.01, 0.02, 0.04, 0.06, 0.1)  # shares of late requests; the runs' purchases do not depend on them
_BINS = 10


def family(name: str) -> str:
    """Return the first word of a name; each of Twitter's three feeds is a separate family."""
    return "_".join(name.split("_")[:2]) if name.startswith("twitter") else name.split("_")[0]


@dataclass(frozen=True)
class Days:
    """A trace by half hours; dollars and late shares are NaN where no run was simulated."""

    name: str
    seen: SeenHalfHours
    resolved: ResolvedService

    def until(self, now: int, *, billed: int | None = None) -> SeenHalfHours:
        """Return the knowledge at a half hour; of the bills only the last `billed` half hours."""
        seen = SeenHalfHours(self.seen.rates_rps[:now], self.seen.usd[:now], self.seen.late[:now])
        if billed is None:
            return seen
        return replace(seen, usd=np.where(np.arange(now) < now - billed, np.nan, seen.usd))

    def nows(self, least_days: int = 1) -> Iterator[int]:
        """Yield the half hours at which a known day begins."""
        for now in range(least_days * DAY, len(self.seen.rates_rps) - DAY + 1, _EVERY):
            after = self.seen.rates_rps[now : now + DAY]
            if np.isfinite(after).mean() >= 0.5 and np.nansum(after) > 0.0:
                yield now


def planned_days(name: str, resolved: ResolvedService, mean_rps: float) -> Days:
    """Return the trace at a mean rate. Its bills are the plans of the load that came."""
    rates_rps = half_hours(name)
    rates_rps = rates_rps * (mean_rps / np.nanmean(rates_rps))
    known = np.isfinite(rates_rps)
    at = np.arange(len(rates_rps))
    usd = plan_usd(resolved, rates_rps)(np.interp(at, at[known], rates_rps[known]))
    return Days(name, SeenHalfHours(rates_rps, usd, np.full(len(at), np.nan)), resolved)


def half_hours(name: str) -> FloatArray:
    trace = open_trace(str(DATA / f"{name}.csv.gz"))
    halves = int(trace.duration_s / HALF_HOUR_S)
    return trace.series.load(0.0, halves * HALF_HOUR_S, HALF_HOUR_S, 1.0).mean_rps


def simulate_days(name: str, policy: str, days: int, service: str, into: Path) -> None:
    """Make one run from the trace's first row, and keep its minutes in a file."""
    path = DATA / f"{name}.csv.gz"
    trace = open_trace(str(path))
    scale = _MEAN_RPS * trace.duration_s / trace.total_counts(0.0, trace.duration_s)
    request = RunRequest(str(path), service, policy, scale=scale, duration_s=days * 86400.0, with_bound=False)
    result = simulate(request)
    line = result.timeline
    spent = np.sum(list(line.spent_usd.values()), axis=0)
    np.savez(into, arrival=line.arrival_rps, attain=line.attainment, spent=spent * result.bill.total / spent[-1])


def simulated_days(path: Path, resolved: ResolvedService) -> Days:
    """Return a run that `simulate_days` kept, by half hours; `spent` is the dollars up to the end of a minute."""
    with np.load(path) as kept:
        arrival, attain, spent = kept["arrival"], kept["attain"], kept["spent"]
    minutes = len(arrival) // 30 * 30
    rates = arrival[:minutes].reshape(-1, 30)
    late = np.nansum(rates * (1.0 - attain[:minutes].reshape(-1, 30)), axis=1)
    usd = np.diff(np.concatenate([[0.0], spent[29:minutes:30]]))
    came = rates.sum(axis=1)
    seen = SeenHalfHours(rates.mean(axis=1), usd, np.divide(late, came, out=np.zeros(len(came)), where=came > 0.0))
    return Days(path.stem, seen, resolved)


@dataclass(frozen=True)
class Window:
    """One day: was its bill in the interval, and how wide were it and the one of yesterday's bill (logarithms)?"""

    family: str
    trace: str
    hit: bool
    width: float
    peer_width: float


def windows(days: Days, *, billed: int | None = None) -> list[Window]:
    """Return the windows of the days that are calibrated."""
    plan = plan_usd(days.resolved, days.seen.rates_rps)
    found = []
    for now in days.nows(LEAST_WINDOWS // 2 + 2):
        stated = next_day(days.until(now, billed=billed), 0.02, plan)
        if stated is None or not stated.usd.calibrated:
            continue
        usd = float(days.seen.usd[now : now + DAY].sum())
        width = float(np.log(stated.usd.high / stated.usd.low))
        found.append(
            Window(family(days.name), days.name, stated.usd.low <= usd <= stated.usd.high, width, _yesterday(days, now))
        )
    return found


def _yesterday(days: Days, now: int) -> float:
    """Return the width of an interval around yesterday's bill, from the same past days by the same rule."""
    usd = days.seen.usd
    starts = range(now - DAY, DAY - 1, -_EVERY)[:60]
    errors = np.array([[np.log(usd[at : at + DAY].sum() / usd[at - DAY : at].sum())] for at in starts])[::-1]
    _, width = conformal_width(errors)
    return np.nan if width is None else 2.0 * width


def summary(of: list[Window]) -> dict[str, object]:
    families = sorted({one.family for one in of})
    return {
        "windows": len(of),
        "coverage": round(float(np.mean([one.hit for one in of])), 4),
        "median_width": round(float(np.median([one.width for one in of])), 4),
        "width_of_yesterday": round(float(np.nanmedian([one.peer_width for one in of])), 4),
        "families": {
            name: (len(hits), round(float(np.mean(hits)), 3))
            for name in families
            if (hits := [one.hit for one in of if one.family == name])
        },
    }


def short(all_days: list[Days]) -> dict[str, object]:
    """Return, with one day known, the coverage by trace with the shipped factor and with that of the other families."""
    ratios: dict[str, FloatArray] = {}
    for days in all_days:
        plan = plan_usd(days.resolved, days.seen.rates_rps)
        values = []
        for now in days.nows():
            last = SeenHalfHours(*(of[now - DAY : now] for of in (days.seen.rates_rps, days.seen.usd, days.seen.late)))
            if (stated := next_day(last, 0.02, plan)) is not None:
                usd = float(days.seen.usd[now : now + DAY].sum())
                unrest = np.log(stated.usd.high / stated.usd.expected) / law.UNREST_FACTOR
                values.append(abs(np.log(usd / stated.usd.expected)) / unrest)
        ratios[days.name] = np.array(values)
    shown = {}
    for name, values in ratios.items():
        others = {one: of for one, of in ratios.items() if family(one) != family(name)}
        shown[name] = [
            len(values),
            round(float((values <= law.UNREST_FACTOR).mean()), 3),
            round(float((values <= quantile(others)).mean()), 3),
        ]
    rows = np.array(list(shown.values()))
    return {
        "windows": int(rows[:, 0].sum()),
        "mean_of_traces": round(float(rows[:, 1].mean()), 3),
        "mean_of_traces_family_left_out": round(float(rows[:, 2].mean()), 3),
        "traces": shown,
        "factor": round(quantile(ratios), 3),
    }


def quantile(of: dict[str, FloatArray], level: float = 0.9) -> float:
    """Return the quantile over all values, each trace with one vote."""
    values = np.concatenate(list(of.values()))
    weights = np.concatenate([np.full(len(one), 1.0 / len(one)) for one in of.values()])
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, level)])


def kept_shares(runs: list[Days], *, calibrated: bool) -> dict[str, object]:
    """Return Brier scores and reliability of the stated probabilities, over days and promises."""
    stated, kept, base, names = [], [], [], []
    for days in runs:
        for allowed in _ALLOWED:
            past: list[bool] = []
            for now in days.nows():
                found = next_day(days.until(now), allowed, lambda rates_rps: rates_rps)
                ok = _late(days, now) <= allowed
                if found is not None and found.promise is not None and found.promise.calibrated is calibrated:
                    stated.append(found.promise.probability)
                    kept.append(ok)
                    # The share of past days that kept it, with one kept and one missed day added.
                    over = past[:-1]
                    base.append((sum(over) + 1.0) / (len(over) + 2.0))
                    names.append(family(days.name))
                past.append(ok)
    p, y, b = np.array(stated), np.array(kept, dtype=float), np.array(base)
    order = np.argsort(p, kind="stable")
    bins = [
        [round(float(p[part].mean()), 3), round(float(y[part].mean()), 3), len(part)]
        for part in np.array_split(order, _BINS)
    ]
    brier, of_share, of_past = (float(np.mean((q - y) ** 2)) for q in (p, np.full(len(p), y.mean()), b))
    return {
        "windows": len(p),
        "kept": round(float(y.mean()), 3),
        "brier": round(brier, 4),
        "skill_over_share": round(1.0 - brier / of_share, 3),
        "skill_over_past_share": round(1.0 - brier / of_past, 3),
        "bins_stated_kept_number": bins,
        "families": {name: names.count(name) for name in sorted(set(names))},
    }


def _late(days: Days, now: int) -> float:
    requests = days.seen.rates_rps[now : now + DAY]
    return float((days.seen.late[now : now + DAY] * requests).sum() / max(requests.sum(), 1e-9))


def bill_ratios(runs: list[Days]) -> dict[str, object]:
    """Return each run's bill over its plan."""
    found = {}
    for days in runs:
        planned = plan_usd(days.resolved, days.seen.rates_rps)(days.seen.rates_rps)
        found[days.name] = round(float(days.seen.usd.sum() / planned.sum()), 3)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bills", type=Path, default=Path("out/next_day"))
    parser.add_argument("--simulate", choices=("reactive", "mark"))
    parser.add_argument("--out", type=Path, default=Path("out/next_day.json"))
    args = parser.parse_args()
    args.bills.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        service = Path(folder) / "next-day.toml"
        service.write_text(SERVICE, encoding="utf-8")
        if args.simulate:
            for name, days in TRACES.items():
                into = args.bills / f"{name}_{args.simulate}.npz"
                if (number := days[args.simulate == "mark"]) and not into.exists():
                    simulate_days(name, args.simulate, number, str(service), into)
        resolved = open_service(RunRequest("", str(service)))
    found: dict[str, dict[str, object]] = {}
    good = True
    sizes = [[planned_days(name, resolved, _MEAN_RPS * size) for name in TRACES] for size in _SIZES]
    for size, all_days in zip(_SIZES, sizes, strict=True):
        found[f"plans x {size:g}"] = summary([one for days in all_days for one in windows(days)])
        found[f"short x {size:g}"] = short(all_days)
    runs = [simulated_days(path, resolved) for path in sorted(args.bills.glob("*.npz"))]
    if runs:
        found["bills"] = summary([one for days in runs for one in windows(days)])
        found["bills, one day simulated"] = summary([one for days in runs for one in windows(days, billed=DAY)])
        found["promise"] = kept_shares(runs, calibrated=True)
        found["promise, not calibrated"] = kept_shares(runs, calibrated=False)
        found["bill over plan"] = bill_ratios(runs)
    for name, of in found.items():
        print(name, json.dumps(of))
        if name.startswith(("plans", "bills")) and not (0.87 <= float(str(of["coverage"])) <= 0.93):
            good = False
        if name.startswith("plans") and float(str(of["median_width"])) > 1.1 * float(str(of["width_of_yesterday"])):
            good = False
    if runs and float(str(found["promise"]["skill_over_past_share"])) <= 0.0:
        good = False
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
