"""The services of a site: those of service files, the stages of pipelines, those bought together as one, and pipelines
that every instance serves as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from mark.config.pipeline_file import PipelineConfig, load_pipeline, names_pipeline
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.service import ServiceConfig


def site_services(names: Sequence[str]) -> list[ServiceConfig]:
    """Of service files, shipped services and pipeline files, whose stages are services: each, together or as a whole.

    Raises BadInput, also for two services, or a service and a pipeline, of one name.
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
    """The pipelines among them that have conductors; without, a pipeline is a service. Raises BadInput."""
    found = [load_pipeline(name) for name in names if names_pipeline(name)]
    return [pipeline for pipeline in found if not pipeline.whole]
