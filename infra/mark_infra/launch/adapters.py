"""AWS and Prometheus for the commands and the SDK of `mark`, found by the entry points `mark.adapters`.

Each function imports its clients when it is called, because a plain installation lacks AWS's clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mark.domain.deployed import Deployed
from mark.serving.frontend.key_poll import KeySource
from mark.serving.overflow.functions import FunctionClient

if TYPE_CHECKING:
    from mark.traffic.prometheus.workload import TimedReader
    from mark_infra.launch.profile_on import ProfiledOn


def deploy(file: Path, folder: Path | None, options: dict[str, Any]) -> Deployed:
    """Deploy one service alone on its site, with the `options` of `DeployTarget`. Raises BadInput, MarkError."""
    from mark_infra.deploy.deploy import plan
    from mark_infra.deploy.shipments import shipment
    from mark_infra.deploy.target import DeployTarget

    where = DeployTarget(**options)
    return plan([shipment(str(file), folder)], where, lambda text: print(f"mark: {text}", file=sys.stderr)).apply()


def floor(**options: Any) -> int:
    """Serve floors until a signal, with the `options` of `FloorOptions`; return the exit code. Raises BadInput."""
    from mark_infra.launch.launch_floor import FloorOptions, run_floor

    return run_floor(FloorOptions(**options))


def key_parameter(name: str) -> KeySource:
    """Return a source of client keys: a parameter of AWS Systems Manager."""
    from mark_infra.aws.key_parameter import KeyParameter, gate_here

    return KeyParameter(name, gate_here)


def lambda_functions(name: str, profile: str | None) -> FunctionClient:
    """Return a client of the named Lambda function; `profile` is one of AWS's configuration."""
    import aioboto3  # noqa: F401  # the client opens later; a missing library is told now

    from mark_infra.aws.lambda_functions import LambdaFunctions

    if profile is None:
        return LambdaFunctions(name)
    from mark_infra.aws.session import open_session

    return LambdaFunctions(name, session=open_session(profile))


def profile_on_rented(say: Callable[[str], None], **options: Any) -> ProfiledOn:
    """Run `mark profile --on` with the `options` of `ProfileOnOptions`."""
    from mark_infra.launch.profile_on import ProfileOnOptions, profile_on

    return profile_on(ProfileOnOptions(**options), say)


def prometheus(url: str, **access: Any) -> TimedReader:
    """Return a reader of a Prometheus' HTTP API; `access` has the other fields of `PrometheusAccess`.

    Raises BadInput.
    """
    from mark_infra.telemetry.prometheus import Prometheus, PrometheusAccess

    return Prometheus(PrometheusAccess(url, **access))


def refresh_prices(catalog: str, region: str, profile: str | None) -> tuple[str | None, Sequence[str]]:
    """Return the catalogue's file with today's prices, or None if AWS returned none, and notes of missing prices."""
    from mark.domain.catalog.tables import load_catalog
    from mark_infra.aws.price_list_api import Prices, repriced
    from mark_infra.aws.session import open_session

    refreshed = Prices(load_catalog(catalog), region, session=open_session(profile, region)).refresh()
    return repriced(catalog, refreshed.prices) if refreshed.prices else None, refreshed.notes
