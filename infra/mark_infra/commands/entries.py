"""The commands of this package, as the entry points `mark.commands` name them."""

from mark.cli.commands import CliEntry

CONTROLLER = CliEntry(
    "mark_infra.commands.controller_command",
    "the service that decides, with its API and live page",
    "aws,serve",
    before="completion",
)
DEPLOY = CliEntry("mark_infra.commands.deploy_command", "services on AWS, by Terraform", "aws", before="completion")
KEYS = CliEntry(
    "mark_infra.commands.keys_command",
    "the keys that a site on AWS accepts: add, rotate, revoke",
    "aws",
    before="completion",
)
TESTBED = CliEntry(
    "mark_infra.commands.testbed_command", "the local cloud: real processes, no account", "testbed", before="deploy"
)
