"""Run the program `terraform` in its own folder: plan, apply, and report progress.

Its output is read as JSON, line by line, so that progress can be shown and a failure reported in one line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mark.domain.errors import BadInput, MarkError
from mark_infra.deploy.interrupts import Interrupts

_LEAST = (1, 11)  # for write-only arguments, which keep keys out of the state file
_PLAN = "site.tfplan"
# Variables that choose the credentials of AWS programs.
_IDENTITY = frozenset((
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
))  # fmt: skip

# Called with the share of the changes done (0 to 1), and the last change.
Progress = Callable[[float, str], None]
_Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One resource that a plan creates, updates, replaces or deletes."""

    address: str
    kind: str  # Terraform's type, aws_lb
    action: str  # create, update, replace or delete


class Terraform:
    """Runs Terraform in `folder`, a root module.

    `credentials` returns, before every command, variables of AWS's SDKs that replace those in our environment. `say`
    gets the messages about interrupts. Raises BadInput if Terraform is missing or too old, MarkError (here and in every
    method) with Terraform's own first error.
    """

    def __init__(
        self,
        folder: Path,
        credentials: Callable[[], Mapping[str, str]] | None = None,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        program = shutil.which("terraform")
        if program is None:
            raise BadInput("is not installed: see https://developer.hashicorp.com/terraform/install", "terraform")
        self._program, self._folder, self._credentials, self._say = program, folder, credentials, say
        self._environment = {**os.environ, "TF_IN_AUTOMATION": "1"}
        if not os.access(self._environment.get("TF_CLI_CONFIG_FILE", ""), os.R_OK):
            # A missing or unreadable file would add a warning to the JSON of every command.
            self._environment.pop("TF_CLI_CONFIG_FILE", None)
        version = str(json.loads(self._run("version", "-json"))["terraform_version"])
        if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < _LEAST:
            raise BadInput(f"must be {_LEAST[0]}.{_LEAST[1]} or newer", "terraform", version)

    def give(self, name: str, value: str) -> None:
        """Set a variable without writing it to a command line or a file."""
        self._environment[f"TF_VAR_{name}"] = value

    def init(self) -> None:
        """Fetch the provider and open the state."""
        self._run("init", "-input=false", "-no-color", "-reconfigure")

    def plan(self, *, destroy: bool = False, targets: Sequence[str] = ()) -> list[ResourceChange]:
        """Return the changes that `apply` would make, in order of addresses.

        `targets` (addresses) limit the plan to these resources and their dependencies.
        """
        options = ["-destroy"] if destroy else [f"-target={one}" for one in targets]
        self._follow(lambda event: None, "plan", f"-out={_PLAN}", *options)
        found = json.loads(self._run("show", "-json", _PLAN)).get("resource_changes", [])
        changes = (ResourceChange(one["address"], one["type"], _action(one["change"]["actions"])) for one in found)
        return sorted((change for change in changes if change.action), key=lambda change: change.address)

    def text(self) -> str:
        """Return the last plan as Terraform prints it."""
        return self._run("show", "-no-color", _PLAN)

    def apply(self, count: int, progress: Progress | None) -> None:
        """Apply the last plan, of `count` changes (a replacement is two).

        An interrupt, SIGTERM or SIGHUP reaches the caller only after Terraform has finished the resources in progress
        and written its state.
        """
        done = 0

        def told(event: _Event) -> None:
            nonlocal done
            if event["type"] == "apply_complete":
                done += 1
                if progress is not None:
                    progress(min(1.0, done / max(1, count)), str(event["hook"]["resource"]["addr"]))

        # Terraform mostly waits, for example a minute for a load balancer.
        self._follow(told, "apply", "-parallelism=30", _PLAN)

    def outputs(self) -> dict[str, Any]:
        """Return the root module's outputs by name; empty before the first apply."""
        return {name: one["value"] for name, one in json.loads(self._run("output", "-json")).items()}

    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the resources' attributes by address; empty before the first apply."""
        root = json.loads(self._run("show", "-json")).get("values", {}).get("root_module", {})
        return dict(_resources(root))

    def _variables(self) -> dict[str, str]:
        if self._credentials is None:
            return self._environment
        others = {name: value for name, value in self._environment.items() if name not in _IDENTITY}
        return {**others, **self._credentials()}

    def _run(self, *arguments: str) -> str:
        process = subprocess.run(
            [self._program, *arguments], cwd=self._folder, env=self._variables(), capture_output=True, text=True
        )
        if process.returncode != 0:
            raise MarkError(f"terraform {arguments[0]}: {_first_error(process.stderr or process.stdout)}")
        return process.stdout

    def _follow(self, told: Callable[[_Event], None], command: str, *arguments: str) -> None:
        """Run a command to its end, and pass each of its events to `told`."""
        program = [self._program, command, "-json", "-input=false", *arguments]
        errors: list[str] = []
        with (
            Interrupts(self._say) as interrupts,
            subprocess.Popen(
                program,
                cwd=self._folder,
                env=self._variables(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # In its own session, a terminal does not interrupt it directly: a second interrupt would abandon
                # resources.
                start_new_session=True,
            ) as process,
        ):
            interrupts.pass_on_to(process)
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if (event := _event(line)) is not None:
                        errors += _error(event)
                        told(event)
            except BaseException:
                # `told` failed. Terraform must still end in order, and without a reader it would be killed.
                process.send_signal(signal.SIGINT)
                for _ in process.stdout:
                    pass
                raise
        if process.returncode != 0:
            more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
            raise MarkError(f"terraform {command}: {errors[0][:500] if errors else 'failed'}{more}")


def _resources(module: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in module.get("resources", ()):
        yield one["address"], one["values"]
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def _event(line: str) -> _Event | None:
    """Return a line of Terraform's JSON, or None for any other text."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "type" in event else None


def _error(event: _Event) -> list[str]:
    """Return an event's error as one line, or [] for other events."""
    if event["type"] != "diagnostic" or event.get("@level") != "error":
        return []
    said = event["diagnostic"]
    return [" ".join(f"{said['summary']}: {said.get('detail', '')}".split()).rstrip(": ")]


def _action(actions: list[str]) -> str:
    """Return Terraform's list of actions as one word; "" if nothing is done."""
    if set(actions) == {"create", "delete"}:
        return "replace"
    return actions[0] if actions in (["create"], ["update"], ["delete"]) else ""


def _first_error(text: str) -> str:
    lines = [line.strip(" ╷│╵\n") for line in text.splitlines()]
    lines = [line for line in lines if line]
    for i, line in enumerate(lines):
        if line.startswith("Error:"):
            return " ".join(lines[i : i + 3])[:500]
    return " ".join(lines)[:500] or "failed"
