"""The commands of `mark`. Installed packages register more by the entry point group `mark.commands`.

No module of a command is imported here. A package registers a `CliEntry`, in a module that imports nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from mark.domain.errors import BadInput

GROUP = "mark.commands"


class CliEntry(NamedTuple):
    """A command. Its `module` declares its arguments (`add_to`) and is imported only when the command is given.

    `extra` is the package extra that the module needs. A registered command stands `before` another one in the help, or
    last.
    """

    module: str
    help: str
    extra: str = ""
    before: str = ""


# In the order in which a new user meets them.
COMMANDS = {
    "simulate": CliEntry("mark.cli.simulate", "bill and latency of one policy on a trace"),
    "compare": CliEntry("mark.cli.compare", "several policies side by side: bill, SLO, regret"),
    "advise": CliEntry("mark.cli.advise", "your own autoscaler's month, read from a Prometheus, beside ours"),
    "frontier": CliEntry("mark.cli.frontier", "dollars against the promise: the cost of other SLOs"),
    "insure": CliEntry("mark.cli.insure", "which protection against slow instances pays: hedging, parity models"),
    "diff": CliEntry("mark.cli.diff", "the cost of a change, in dollars a month"),
    "reconcile": CliEntry("mark.cli.reconcile", "simulated against invoiced dollars of a past period, line by line"),
    "bound": CliEntry("mark.cli.bound", "the least that any policy could pay"),
    "plan": CliEntry("mark.cli.plan", "one decision, explained in dollars"),
    "forecast": CliEntry("mark.cli.forecast", "how good forecasts are; training predictors"),
    "trace": CliEntry("mark.cli.trace", "summarise a trace"),
    "catalog": CliEntry("mark.cli.catalog", "list the offers of a catalogue"),
    "init": CliEntry("mark.cli.init", "write a commented service file"),
    "check": CliEntry("mark.cli.check", "validate service, pipeline, catalogue, profile and trace files"),
    "models": CliEntry("mark.cli.models", "a registry of models: versions, aliases, roll-back"),
    "profile": CliEntry("mark.cli.profile", "measure a model's latency by batch size", "serve"),
    "pipeline": CliEntry("mark.cli.pipeline", "several models behind one promise: the graph of a driver"),
    "serve": CliEntry("mark.cli.serve", "a bouncer with its workers on this machine", "serve"),
    "gateway": CliEntry(
        "mark.cli.gateway", "one address before several bouncers, where there is no load balancer", "serve"
    ),
    "feedback": CliEntry("mark.cli.feedback", "join the feedback logs of several bouncers"),
    "selection": CliEntry(
        "mark.cli.selection", "several models for one query: replay policies, show a server", "serve"
    ),
    "personal": CliEntry("mark.cli.personal", "a small model of each user: learning on logged rewards"),
    "completion": CliEntry("mark.cli.completion", "a script by which bash, zsh or fish complete commands and names"),
}


def commands_for(given: str | None) -> dict[str, CliEntry]:
    """Return the commands by name, in help order. Registered ones are left out if `given` is in COMMANDS.

    The search for registered commands takes 25 ms, so mark's own commands skip it. A registered command cannot replace
    one of COMMANDS. Raises BadInput for a registered command that does not load.
    """
    if given in COMMANDS:
        return COMMANDS
    from mark.config import plugins  # imported here because mark's own commands need no search

    order, registered = list(COMMANDS), {}
    for name in plugins.found(GROUP):
        if name in COMMANDS:
            continue
        command = plugins.load(GROUP, name, "command")
        if not isinstance(command, CliEntry):
            raise BadInput("is no mark.cli.commands.CliEntry", f"command {name}", type(command).__name__)
        registered[name] = command
        order.insert(order.index(command.before) if command.before in order else len(order), name)
    known = COMMANDS | registered
    return {name: known[name] for name in order}
