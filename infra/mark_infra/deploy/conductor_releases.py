"""A pipeline's conductors, taken back with its stages: to the driver that stands in the folder of their release before.

Conductors have no releases of their own: a deployment replaces them at once. But each version of their launch template
says which folder they boot from, and so does each of a stage's: by that it is known which belong together.
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
# In the user data of both (terraform/modules/conductors and fleet): the folder by its SHA-256.
_FOLDER = re.compile(r"^fetch '\S+' '\S+' '([0-9a-f]+)' /opt/mark/service\.tar\.gz$", re.M)
_UNDER_WAY = frozenset(("Pending", "InProgress", "Cancelling", "Baking"))
# As terraform/modules/conductors has it: new ones first.
_NEW_FIRST = {"MinHealthyPercentage": 100, "MaxHealthyPercentage": 200, "InstanceWarmup": 180}


class ConductorReleases:
    """The conductors of a site. Raises CloudError."""

    def __init__(self, site: Site, gate: Gate, *, pause: Callable[[float], object] = time.sleep) -> None:
        self._site, self._gate, self._pause = site, gate, pause

    def take_back(self, pipeline: str, stage: TemplateVersion) -> str:
        """Have them replaced by conductors with the folder that a stage boots from by this template; what is done, for
        people. Nothing, where they have it or none of their versions had it."""
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
        """A group has one refresh at a time: that of a deployment a moment ago is given up."""
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
    """SHA-256 of the folder that instances boot from by a version of a launch template, as EC2 describes it."""
    said = _FOLDER.search(b64decode(version["LaunchTemplateData"].get("UserData", "")).decode(errors="replace"))
    return None if said is None else said[1]
