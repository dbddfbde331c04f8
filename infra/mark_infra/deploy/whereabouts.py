"""The region and the account that hold a site.

A site is in one region and one account for as long as it exists. A command that reaches another one would end the
controller of the first and never see its fleet, so such a command is refused before it changes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from mark.domain.errors import BadInput, CloudError, DeniedError
from mark_infra.aws.gate import Gate
from mark_infra.deploy.remembered import VARIABLES

_ARN = re.compile(r"arn:[a-z-]+:[a-z0-9-]+:([a-z0-9-]*):(\d{12}|):")
_SITE_FILE = "site.toml"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The regions and accounts that a site's resources name; empty if unknown."""

    regions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    def check(self, site: str, region: str, account: str | None = None) -> None:
        """Raise BadInput for another region, or another account, than the site's."""
        there = ", ".join(sorted(self.regions)) or region
        if self.accounts:
            there += f", account {', '.join(sorted(self.accounts))}"
        if self.regions and region not in self.regions:
            what = f"site {site} is in {there}: say that region, or choose another name for a site in this one"
            raise BadInput(what, "region", region)
        if account is not None and self.accounts and account not in self.accounts:
            what = f"site {site} is in {there}: use credentials of that account, or choose another name for a site here"
            raise BadInput(what, "account", account)


def of_arns(texts: Iterable[str]) -> Whereabouts:
    """Return the regions and accounts that ARNs in the texts name."""
    found = [match for text in texts for match in _ARN.findall(text)]
    return Whereabouts(*(frozenset(part for part in parts if part) for parts in (zip(*found, strict=True) or ((), ()))))


def of_resources(resources: Mapping[str, Mapping[str, Any]]) -> Whereabouts:
    """Return the regions and accounts of the resources in Terraform's state.

    Data sources name images of other accounts and do not count.
    """
    own = [values for address, values in resources.items() if not re.search(r"(^|\.)data\.", address)]
    found = of_arns(str(values.get("arn") or "") for values in own)
    # The ARN of a bucket names no region, and a bucket may be all that a deployment has made before it broke off.
    buckets = {str(values["region"]) for values in own if values.get("region") and values.get("bucket")}
    return replace(found, regions=found.regions | buckets)


def remembered(folder: Path) -> Whereabouts:
    """Return the region in a state folder's Terraform variables, and the account in its site file's ARNs.

    Unreadable files count as empty.
    """
    try:
        region = json.loads((folder / VARIABLES).read_text(encoding="utf-8")).get("region")
    except (OSError, ValueError, AttributeError):
        region = None
    try:
        site = of_arns([(folder / _SITE_FILE).read_text(encoding="utf-8")])
    except (OSError, ValueError):
        site = Whereabouts()
    return Whereabouts(frozenset([region]) if isinstance(region, str) and region else site.regions, site.accounts)


def check_name_is_free(site: str, resources: Mapping[str, Mapping[str, Any]], gate: Gate) -> None:
    """Raise BadInput where the account has a site of this name that Terraform's state does not know.

    Roles belong to the account and not to a region, so the role of the other site's controller shows in every region.
    Raises CloudError. Without the right to read roles, the name is not checked.
    """
    role = f"{site}-controller"
    if any("aws_iam_role." in address and values.get("name") == role for address, values in resources.items()):
        return
    try:
        found = gate.call(gate.client("iam").get_role, RoleName=role)
    except DeniedError:
        return
    except CloudError as error:
        cause = error.__cause__
        if isinstance(cause, ClientError) and cause.response.get("Error", {}).get("Code") == "NoSuchEntity":
            return
        raise
    what = (
        f"the account has a site of this name already, in another region or deployed from elsewhere: role "
        f"{found['Role']['Arn']} is not in this state. Choose another name, or deploy with that site's state"
    )
    raise BadInput(what, "name", site)
