"""Roll back a pipeline's conductors together with its stages, to the folder with the earlier driver.

A deployment replaces conductors immediately, without releases. But each version of their launch template names the
folder it boots from, as each version of a stage's template does. Equal folders belong together.
"""

from __future__ import annotations

import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from mark.domain.errors import CloudError
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site, TemplateVersion

LOOK_S = 5.0
PATIENCE_S = 600.0
# The line in the user data (terraform/modules/conductors and fleet) that names the folder by its SHA-256.
_FOLDER = re.compile(r"^fetch '\S+' '\S+' '([0-9a-f]+)' /opt/mark/service\.tar\.gz$", re.M)
_UNDER_WAY = frozenset(("Pending", "InProgress", "Cancelling", "Baking"))
# New conductors are launched before old ones end, as in terraform/modules/conductors.
_NEW_FIRST = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200, "InstanceWarmup": 180}


class ConductorReleases:
    """The conductors of a site. Raises CloudError."""

    def __init__(self, site: Site, gate: Gate, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._site, self._gate, self._pause = site, gate, pause

    def take_back(self, pipeline: str, stage: TemplateVersion) -> str:
        """Replace the conductors by ones with the folder of this template of a stage; return a message for people.

        Nothing changes if they have this folder already, or if no version of their template has it.
        """
        if pipeline not in self._site.pipelines:
            return "its conductors stay: the site was deployed before they could be taken back"
        gate, group = self._gate, self._site.pipelines[pipeline].conductors
        groups = gate.call(gate.client("autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[group])
        (there,) = groups["AutoScalingGroups"]
        template, now = there["LaunchTemplate"]["LaunchTemplateId"], there["LaunchTemplate"]["Version"]
        (of_stage,) = self._versions(stage.launch_template, [stage.version])
        wanted = folder_of(of_stage)
        same = [one["VersionNumber"] for one in self._versions(template) if wanted and folder_of(one) == wanted]
        if not same:
            return "its conductors stay: that release's folder is none of theirs"
        if str(max(same)) == now:
            return "its conductors stay: they have that release's folder"
        self._end_refresh(group)
        gate.call(
            gate.client("autoscaling").start_instance_refresh,
            AutoScalingGroupName=group,
            Strategy="Rolling",
            DesiredConfiguration={"LaunchTemplate": {"LaunchTemplateId": template, "Version": str(max(same))}},
            Preferences=_NEW_FIRST,
        )
        return "its conductors are replaced, new ones first, by such with that release's folder"

    def _versions(self, template: str, numbers: list[str] | None = None) -> list[dict[str, Any]]:
        ec2 = self._gate.client("ec2")
        which: dict[str, Any] = {} if numbers is None else {"Versions": numbers}
        pages = self._gate.pages(ec2.describe_launch_template_versions, LaunchTemplateId=template, **which)
        return [version for page in pages for version in page["LaunchTemplateVersions"]]

    def _end_refresh(self, group: str) -> None:
        """Cancel the group's refresh, for example of a recent deployment, because a group has only one at a time."""
        gate = self._gate

        def under_way() -> bool:
            said = gate.call(gate.client("autoscaling").describe_instance_refreshes, AutoScalingGroupName=group)
            return any(one["Status"] in _UNDER_WAY for one in said["InstanceRefreshes"])

        if not under_way():
            return
        gate.call(gate.client("autoscaling").cancel_instance_refresh, AutoScalingGroupName=group)
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if not under_way():
                return
            self._pause(LOOK_S)
        raise CloudError(f"{group}: the instances that replace it do not end")


def folder_of(version: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of the folder from which a version of a launch template boots, as EC2 describes it."""
    said = _FOLDER.search(b64decode(version["LaunchTemplateData"].get("UserData", "")).decode(errors="replace"))
    return None if said is None else said[1]
