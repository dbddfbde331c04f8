"""A site that was deployed: its files and its addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Deployed:
    """A site that is there."""

    site_file: Path
    address: str  # where clients send requests, as far as services are on the first load balancer
    keys_file: Path
    addresses: Mapping[str, str] = field(default_factory=dict)  # of each service and pipeline, by its name
    cnames: Mapping[str, str] = field(default_factory=dict)  # domain -> what its owner lets it point to
    balancers: Mapping[str, str] = field(default_factory=dict)  # own name of each one's load balancer
    services: tuple[str, ...] = ()  # that have releases: stages are, and pipelines are not, among them
