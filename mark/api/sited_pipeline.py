"""A pipeline whose stages a controller runs: what the API shows of it, made of the views of its manager."""

from __future__ import annotations

from typing import Literal

from mark.api import schema
from mark.api.manager_port import Manager
from mark.config.pipeline_file import PipelineConfig
from mark.control.pipeline_view import PipelineView, pipeline_view
from mark.pipelines.graph_layout import graph_layout
from mark.pipelines.lineage_file import calls_per_query

# Pixels: five lines below a name; downwards two boxes fit beside each other on a telephone, each with room for a mark
# above its name.
_BOXES: dict[Literal["across", "down"], tuple[float, float]] = {"across": (196.0, 124.0), "down": (136.0, 132.0)}
_OVERFLOW_H = 5.0 / 60.0


class SitedPipeline:
    """Its drawing is made once: a graph does not change while a controller runs.

    Raises BadInput for a lineage that cannot be used.
    """

    def __init__(self, config: PipelineConfig) -> None:
        self._config = config
        self._calls_per_query = calls_per_query(config)
        self._services = [service.name for service in config.stage_services()]
        self.drawing: dict[Literal["across", "down"], schema.LayoutSchema] | None = None
        if (graph := config.pipeline) is not None:
            self.drawing = {
                way: schema.layout(graph_layout(graph, *size, down=way == "down"), *size)
                for way, size in _BOXES.items()
            }

    def view(self, manager: Manager) -> PipelineView:
        """It now."""
        views = {service: manager.view(service) for service in self._services}
        overflow = {service: _overflow(manager, service) for service in views}
        return pipeline_view(self._config, views, overflow, self._calls_per_query)


def _overflow(manager: Manager, service: str) -> float | None:
    shares = manager.history(service, _OVERFLOW_H, 1).overflow_share
    return shares[-1] if shares else None
