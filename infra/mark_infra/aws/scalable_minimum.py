"""The least capacity of a SageMaker variant that Application Auto Scaling scales: its MinCapacity, and nothing else."""

from __future__ import annotations

import logging
import re
from typing import Any

from mark.control.ports import Store
from mark.domain.errors import BadInput, NotFoundError
from mark_infra.aws.gate import Gate

_TARGET = re.compile(r"sagemaker:([A-Za-z0-9][A-Za-z0-9-]{0,62})/([A-Za-z0-9][A-Za-z0-9-]{0,62})")
_DIMENSION = "sagemaker:variant:DesiredInstanceCount"
_KEY = "scalable_minimum"
_log = logging.getLogger("mark.control")


class ScalableMinimum:
    """Keeps MinCapacity at a floor, never above MaxCapacity and never below the minimum that its owner chose.

    The owner's minimum is what was there first, or what the owner has set since. It is in the store, so that a process
    that begins after a crash does not take the last floor for it.
    """

    def __init__(self, gate: Gate, endpoint: str, variant: str) -> None:
        self._gate, self._resource = gate, f"endpoint/{endpoint}/variant/{variant}"

    def keep(self, replicas: int | None, store: Store) -> None:
        """Set MinCapacity to `replicas`, or back to the owner's minimum. Repeatable. Raises CloudError."""
        target = self._target()
        now, most = int(target["MinCapacity"]), int(target["MaxCapacity"])
        kept = store.get(_KEY) or {}
        ours = kept.get("resource") == self._resource and now in kept["set"]
        own = int(kept["own"]) if ours else now
        wanted = own if replicas is None else max(own, min(replicas, most))
        # Before the change, and with both numbers: a crash between the two must not forget the owner's minimum.
        record = {"resource": self._resource, "own": own, "set": (now, wanted)}
        if record != kept:
            store.put(_KEY, record)
        if wanted != now:
            client = self._gate.client("application-autoscaling")
            self._gate.call(client.register_scalable_target, **self._name(), MinCapacity=wanted)
            _log.info("minimum set", extra={"resource": self._resource, "before": now, "minimum": wanted})
            # From now on `now` would be the owner's choice.
            store.put(_KEY, record | {"set": (wanted, wanted)})

    def _target(self) -> dict[str, Any]:
        client = self._gate.client("application-autoscaling")
        name = self._name()
        found = self._gate.call(
            client.describe_scalable_targets, ServiceNamespace=name["ServiceNamespace"],
            ResourceIds=[name["ResourceId"]], ScalableDimension=name["ScalableDimension"],
        )["ScalableTargets"]  # fmt: skip
        if not found:
            raise NotFoundError(f"{self._resource} has no scalable target: register one with its MaxCapacity first")
        return dict(found[0])

    def _name(self) -> dict[str, Any]:
        return {"ServiceNamespace": "sagemaker", "ResourceId": self._resource, "ScalableDimension": _DIMENSION}


def endpoint_and_variant(text: str) -> tuple[str, str]:
    """Of `sagemaker:ENDPOINT/VARIANT`. Raises BadInput."""
    found = _TARGET.fullmatch(text)
    if found is None:
        raise BadInput("must be sagemaker:ENDPOINT/VARIANT", "--act", text)
    return found[1], found[2]
