"""The report of a torture run: which faults acted in which states, the violations, and the speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Marked, Prose, Report, formatted
from mark_torture.coverage import IMPOSSIBLE
from mark_torture.invariants import INVARIANTS
from mark_torture.trial import told

if TYPE_CHECKING:
    from mark_torture.trial import Tortured, Trial


def torture_report(found: Tortured, shortest: Trial | None) -> Report:
    """Return the run. `shortest` is the first failed seed, shrunk."""
    coverage = found.coverage()
    data = {
        "schema": 1,
        "seeds": len(found.trials),
        "fleet_days": found.fleet_days,
        "invariants": INVARIANTS,
        "coverage": coverage,
        "impossible": [{"fault": fault, "state": state, "why": why} for (fault, state), why in IMPOSSIBLE.items()],
        "failed": [_failed(trial) for trial in found.failed],
        "story": None if shortest is None else told(shortest),
    }
    states = list(next(iter(coverage.values())))
    rows = [(kind, *(_cell(kind, state, met[state]) for state in states)) for kind, met in coverage.items()]
    pairs = [(kind, state) for kind in coverage for state in states if (kind, state) not in IMPOSSIBLE]
    missed = sum(coverage[kind][state] == 0 for kind, state in pairs)
    lines = [
        f"seeds: {len(found.trials)}, fleet-days: {found.fleet_days:.1f}, {len(INVARIANTS)} invariants: "
        f"{len(found.failed) or 'none'} broken",
        f"{missed} of {len(pairs)} pairs of fault and state did not meet; {len(IMPOSSIBLE)} more (-) never can",
    ]
    for trial in found.failed:
        assert trial.broken is not None
        lines.append(f"seed {trial.schedule.seed}: {trial.broken.invariant}: {trial.broken.text}")
    story = [] if shortest is None else [Marked(f"\n{told(shortest)}")]
    table = DataTable(("fault met", *formatted(*states)), rows)
    return Report(data, parts=[table, Prose(lines), *story])


def _cell(kind: str, state: str, met: int) -> Marked:
    if (kind, state) in IMPOSSIBLE and not met:
        return Marked("-")
    return Marked(f"{met:,}", "" if met else "missed")


def _failed(trial: Trial) -> dict[str, Any]:
    assert trial.broken is not None
    return {
        "seed": trial.schedule.seed,
        "invariant": trial.broken.invariant,
        "at_s": trial.broken.at_s,
        "what": trial.broken.text,
        "faults": [str(fault) for fault in trial.schedule.faults],
        "schedule": trial.schedule.as_json(),
    }
