"""The command of this package, as the entry point `mark.commands` names it."""

from mark.cli.commands import CliEntry

TORTURE = CliEntry(
    "mark_torture.torture_command",
    "the control plane under simulated faults, by seeds, with invariants",
    before="deploy",
)
