"""The command of this package, as the entry point `mark.commands` names it."""

from mark.cli.commands import CliEntry

REPRODUCE = CliEntry("mark_papers.reproduce_command", "the paper's experiments beside ours", before="completion")
