"""A deployed site: its files and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployed site."""

    site_file: Path
    address: str  # where clients send requests to services on the first load balancer
    keys_file: Path
    addresses: Mapping[str, str] = field(default_factory=dict)  # of each service and pipeline, by its name
    cnames: Mapping[str, str] = field(default_factory=dict)  # domain -> target of its owner's CNAME record
    balancers: Mapping[str, str] = field(default_factory=dict)  # load balancers' own names, by service and pipeline
    services: tuple[str, ...] = ()  # those with releases: includes stages but not pipelines
