"""The permissions that a deployer needs: IAM policies within the size limit of an account's own policies."""

from __future__ import annotations

import json
from string import Template
from typing import Any

from mark_infra.deploy.checkout import deployer_policy


def partition_of(region: str) -> str:
    """Return the partition in ARNs of the region."""
    return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region.rpartition("-")[0].rpartition("-")[0], "aws")


def deployer_policies(
    site: str,
    region: str,
    account: str,
    *,
    state_bucket: str | None = None,
    hosted_zone: str | None = None,
    domain: str | None = None,
) -> dict[str, Any]:
    """Return policies by name that together suffice for one site in one region, and no other.

    Statements about an unnamed bucket or zone are left out.
    """
    given = {"state_bucket": state_bucket, "hosted_zone": hosted_zone, "domain": domain}
    absent = {f"${{{name}}}" for name, value in given.items() if value is None}
    policies: dict[str, Any] = json.loads(deployer_policy().read_text(encoding="utf-8"))
    for policy in policies.values():
        policy["Statement"] = [
            one for one in policy["Statement"] if not any(name in json.dumps(one) for name in absent)
        ]
    text = Template(json.dumps(policies)).substitute(
        given | {"site": site, "region": region, "account": account, "partition": partition_of(region)}
    )
    filled: dict[str, Any] = json.loads(text)
    return filled
