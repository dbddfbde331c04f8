"""The entry point of this package for `mark.commands`."""

from mark.cli.commands import CliEntry

TORTURE = CliEntry(
    "mark_torture.torture_command",
    "the control plane under simulated faults, by seeds, with invariants",
    before="deploy",
)
