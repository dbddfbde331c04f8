"""What the control API needs of the controller: `mark.control.manager.ControllerManager` is its manager.

The API makes the Prometheus page itself, from the views (mark.api.controller_metrics), and learns from its builder
whether the manager's loop still runs (`app(..., alive=...)`): the manager has neither to say.
"""

from __future__ import annotations

from typing import Protocol

from mark.control.views import DecisionView, HistoryView, Limits, QueriesHistory, QueriesView, ServiceView
from mark.planning.promise_cost import PromiseCost


class Manager(Protocol):
    """All services that one controller runs. Every method may be called from any thread, is quick, and raises KeyError
    for a service that is not there."""

    def services(self) -> list[str]:
        """Names, in a fixed order; they do not change while the manager lives."""

    def view(self, service: str) -> ServiceView:
        """The service now. The same snapshot until something changed, so that readers may ask often."""

    def decisions(self, service: str, before_id: int | None, count: int) -> list[DecisionView]:
        """At most `count`, newest first, all with an id below `before_id`; None: from the newest on."""

    def history(self, service: str, hours: float, points: int) -> HistoryView:
        """The last `hours`, at most 24, in at most `points` equal steps."""

    def promise_cost(self, service: str) -> PromiseCost:
        """What any load of the service costs by RT_max, at today's prices."""

    def pause(self, service: str, paused: bool) -> None:
        """Paused, nothing is bought or ended until it is resumed. Repeatable. Only while it leads."""

    def set_limits(self, service: str, limits: Limits) -> None:
        """From the next step on. Repeatable. Only while it leads. Raises BadInput where they cannot be kept."""

    def roll_back(self, service: str) -> None:
        """The release before serves again. Only while it leads. Raises BadInput where none is known."""

    def roll_out_again(self, service: str) -> None:
        """What was deployed last is tried again, though it was stopped or taken back. Only while it leads."""

    def leads(self) -> bool:
        """Whether this controller acts; else it stands by."""


class Conducted(Protocol):
    """Whole queries of one pipeline, as its conductors count them. Every method may be called from any thread."""

    def view(self) -> QueriesView:
        """They now."""

    def history(self, hours: float, points: int) -> QueriesHistory:
        """The last `hours`, at most 24, in at most `points` equal steps."""
