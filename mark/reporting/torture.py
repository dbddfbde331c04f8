"""What was tortured, shown: which fault met which state how often, what broke, and how fast it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mark.reporting.layout import columns, page, sentences, text
from mark.torture.invariants import INVARIANTS
from mark.torture.trial import told

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.torture.trial import Tortured, Trial


def torture_json(found: Tortured, shortest: Trial | None) -> dict[str, Any]:
    """The stable object that `--json` writes. `shortest`: the first seed that failed, shrunk."""
    return {
        "schema": 1,
        "seeds": len(found.trials),
        "fleet_days": found.fleet_days,
        "invariants": INVARIANTS,
        "coverage": found.coverage(),
        "failed": [_failed(trial) for trial in found.failed],
        "story": None if shortest is None else told(shortest),
    }


def torture_table(found: Tortured, shortest: Trial | None) -> RenderableType:
    coverage = found.coverage()
    states = list(next(iter(coverage.values())))
    table = columns("fault met", *states)
    for kind, met in coverage.items():
        table.add_row(text(kind), *(text(f"{met[state]:,}", "" if met[state] else "bold red") for state in states))
    missed = sum(count == 0 for met in coverage.values() for count in met.values())
    lines = [
        f"seeds: {len(found.trials)}, fleet-days: {found.fleet_days:.1f}, {len(INVARIANTS)} invariants: "
        f"{len(found.failed) or 'none'} broken",
        f"{missed} of {len(coverage) * len(states)} pairs of fault and state did not meet",
    ]
    for trial in found.failed:
        assert trial.broken is not None
        lines.append(f"seed {trial.schedule.seed}: {trial.broken.invariant}: {trial.broken.text}")
    story = [] if shortest is None else [text(f"\n{told(shortest)}")]
    return page(table, *sentences(lines), *story)


def _failed(trial: Trial) -> dict[str, Any]:
    assert trial.broken is not None
    return {
        "seed": trial.schedule.seed,
        "invariant": trial.broken.invariant,
        "at_s": trial.broken.at_s,
        "what": trial.broken.text,
        "faults": [str(fault) for fault in trial.schedule.faults],
    }
