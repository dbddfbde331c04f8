"""The entry point of this package for `mark.commands`."""

from mark.cli.commands import CliEntry

REPRODUCE = CliEntry("mark_papers.reproduce_command", "the paper's experiments beside ours", before="completion")
