"""Other projects' scanners pass rights and scripts: parliament every policy, shellcheck every script.

Both live in a separate environment, .venv-scanners, or on the PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from mark_infra.deploy.deployer import deployer_policies

from tests.terraform.conftest import MODULES, ROOT
from tests.terraform.mocked_site import ACCOUNT, REGION, resources

# Findings that we accept, by parliament's names, each with its reason.
LEFT = {
    # Read-only actions, most of which AWS does not narrow: patterns (`ec2:Describe*`) also match some that it does.
    "RESOURCE_STAR",
}
# Kinds of resources that an action may concern and that a site does not have.
NOT_OURS = tuple(
    f":{kind}/{balancer}/{rest}"  # network and gateway load balancers
    for balancer in ("net", "gwy")
    for kind, rest in (("loadbalancer", "*/*"), ("listener", "*/*/*"), ("listener-rule", "*/*/*/*"))
)
# Amazon's own parameters, which belong to no account and which parliament does not know
PUBLIC = "parameter/aws/service/*"


def program(name: str) -> str:
    beside = ROOT / ".venv-scanners" / "bin" / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: make .venv-scanners/.done")
    return found


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def findings(policy: dict[str, Any], *beside: dict[str, Any]) -> list[dict[str, Any]]:
    """Return parliament's findings; `beside` are other policies of the same role."""
    return list(_findings(policy, {"Statement": [one for held in (policy, *beside) for one in held["Statement"]]}))


def _findings(policy: dict[str, Any], held: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the findings without accepted ones, and without those of a statement whose action another statement allows
    on the other kinds."""
    done = subprocess.run(
        [program("parliament"), "--json"], input=json.dumps(policy), capture_output=True, text=True, timeout=120
    )
    assert not done.stderr, done.stderr
    for line in done.stdout.splitlines():
        found = json.loads(line)
        if found["issue"] == "RESOURCE_MISMATCH":
            found["detail"] = [one for one in found["detail"] if not elsewhere(held, **one)]
        if found["issue"] not in LEFT and found["detail"] != []:
            yield found


def elsewhere(policy: dict[str, Any], action: str, required_format: str) -> bool:
    if required_format.endswith(NOT_OURS):
        return True
    wanted = kind_of(required_format)
    return any(
        any(fnmatchcase(action, pattern) for pattern in several(one["Action"]))
        and any(fnmatchcase(wanted, kind_of(resource)) or PUBLIC in resource for resource in several(one["Resource"]))
        for one in policy["Statement"]
    )


def kind_of(arn: str) -> str:
    """Return a kind such as ec2:instance, or ec2:* for a whole service; a string that is no ARN is its own kind."""
    parts = arn.split(":", 5)
    return f"{parts[2]}:{re.split('[/:]', parts[5])[0]}" if len(parts) == 6 else arn


@pytest.mark.slow
def test_parliament_finds_nothing_in_the_deployers_rights() -> None:
    policies = deployer_policies(
        "mark", REGION, ACCOUNT, state_bucket="states", hosted_zone="Z1", domain="models.example.org"
    )
    assert {name: found for name, one in policies.items() if (found := findings(one, *policies.values()))} == {}


@pytest.mark.slow
def test_parliament_finds_nothing_in_the_sites_rights(applied: dict[str, Any]) -> None:
    """Rights of controller, bouncers and functions, as they are attached."""
    policies = {at: json.loads(one["policy"]) for at, one in resources(applied, "aws_iam_role_policy").items()}
    assert {at.split(".")[1].partition("[")[0] for at in policies} == {"controller", "fleet", "overflow"}
    for at in (at for at in policies if "[" not in at or '["echo"]' in at):
        policy = policies[at]
        assert findings(policy) == [], at


def scripts() -> list[Path]:
    shells = [ROOT / ".ci" / "run", *ROOT.glob("packaging/*.sh"), *MODULES.rglob("*.sh.tftpl")]
    return shells + [file for file in (ROOT / "scripts").iterdir() if file.is_file() and "sh" in first_line(file)]


def first_line(file: Path) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0].rpartition("/")[2].removeprefix("env ")


@pytest.mark.slow
@pytest.mark.parametrize("file", scripts(), ids=lambda file: file.name)
def test_shellcheck_finds_nothing(file: Path) -> None:
    """Boot scripts are checked after Terraform has put its values in."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".tftpl":
        text = re.sub(r"%\{ *(if|endif|else|for|endfor)[^}]*\}", "", text)
        text = re.sub(r"(?<!\$)\$\{[^}]*\}", "x", text).replace("$${", "${")
    done = subprocess.run([program("shellcheck"), "--shell=bash", "-"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
