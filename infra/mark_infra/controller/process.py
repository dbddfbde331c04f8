"""The process of a site's controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mark.api.app import app
from mark.config.pipeline_config import PipelineConfig
from mark.serving.frontend.auth import Auth
from mark.serving.frontend.tls import TlsFiles
from mark_infra.aws.site import Site
from mark_infra.controller.hosting import host
from mark_infra.controller.site_control import ServiceSpec, open_control

_LOG = logging.getLogger("mark.control")


def serve(
    site: Site,
    specs: Sequence[ServiceSpec],
    address: tuple[str, int],
    *,
    tls: TlsFiles | None,
    auth: Auth | None,
    dry_run: bool,
    started: Callable[[int], None],
    session: Any = None,
    pipelines: Sequence[PipelineConfig] = (),
) -> int:
    """Run until SIGTERM or SIGINT; return the exit code. `started` gets the port when the server listens.

    `pipelines` are the pipelines whose stages are among the services and share limits.

    `session` is boto3's; it provides credentials and configuration on AWS. Without it, AWS's SDKs find their own.

    If the cloud does not answer at first, the start is retried. Raises BadInput for an address that cannot be used.
    """
    return host(
        lambda wait: open_control(
            site, specs, dry_run=dry_run, wait=wait, tell=_LOG.warning, session=session, pipelines=pipelines
        ),
        lambda control, alive: app(control.manager, auth, alive, pipelines, control.conducted),
        address,
        period_s=period_s(site),
        tls=tls,
        started=started,
    )


def period_s(site: Site) -> float:
    """Return the time between two steps: a second of the services' clock."""
    return max(0.05, min(1.0, 1.0 / site.time_scale))
