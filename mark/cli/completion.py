"""mark completion: a shell script that completes commands, flags and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

from mark.cli.main import every_command
from mark.config.service_file import SERVICE_NAMES
from mark.domain.catalog.tables import CATALOG_NAMES
from mark.planning.policies.policy_registry import policy_names
from mark.traffic.forecast.predictor_registry import predictor_names

SHELLS = ("bash", "zsh", "fish")
_SERVICES = shtab.cmd(f"printf '%s\\n' {' '.join(SERVICE_NAMES)}; find . -maxdepth 1 -name '*.toml' | cut -c3-")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a script by which the shell completes mark's commands, flags and names. bash: eval \"$(mark completion "
        'bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: mark completion fish | source.'
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """Return the script for one of SHELLS. It does not run mark, so completion is immediate."""
    top = every_command()
    names = {
        "policy": policy_names(),
        "policies": policy_names(),
        "attribute": policy_names(),
        "predictor": predictor_names(),
        "catalog": CATALOG_NAMES,
    }
    for action in _actions(top):
        if action.dest in ("service", "services", "after"):
            action.complete = _SERVICES  # type: ignore[attr-defined]
        elif action.dest in names and not action.choices:
            action.complete = shtab.cmd(f"printf '%s\\n' {' '.join(names[action.dest])}")  # type: ignore[attr-defined]
        elif "FILE" in str(action.metavar) or action.dest == "trace":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(top, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
