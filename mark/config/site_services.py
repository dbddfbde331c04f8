"""The services of a site: from service files, stages of pipelines, joint purchases and whole pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.service import ServiceConfig


def site_services(names: Sequence[str]) -> list[ServiceConfig]:
    """Return the services of service files, shipped services and pipeline files, whose stages are separate or joined.

    A pipeline without conductors is one service. Raises BadInput, also for two services, or a service and a pipeline,
    of one name.
    """
    services: list[ServiceConfig] = []
    pipelines = site_pipelines(names)
    for name in names:
        services += load_pipeline(name).bought_services() if names_pipeline(name) else [load_service(name)]
    found = [*(service.name for service in services), *(pipeline.name for pipeline in pipelines)]
    if len(set(found)) < len(found):
        raise BadInput("names a service twice", "services", ", ".join(found))
    return services


def site_pipelines(names: Sequence[str]) -> list[PipelineConfig]:
    """Return the pipelines with conductors; without conductors a pipeline is a service. Raises BadInput."""
    found = [load_pipeline(name) for name in names if names_pipeline(name)]
    return [pipeline for pipeline in found if not pipeline.whole]
