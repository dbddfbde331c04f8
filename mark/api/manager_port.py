"""The port of the control API to the controller, which `mark.control.manager.ControllerManager` implements.

The port has neither metrics nor a liveness check: the API makes the Prometheus page from the views
(mark.api.controller_metrics), and `alive`, an argument of `app`, tells whether the manager's loop still runs.
"""

from __future__ import annotations

from typing import Protocol

from mark.control.views import DecisionSchema, HistorySchema, Limits, QueriesHistorySchema, QueriesSchema, ServiceView
from mark.planning.promise_cost import PromiseCost


class Manager(Protocol):
    """All services that one controller runs.

    Every method may be called from any thread, is quick, and raises KeyError for an unknown service.
    """

    def services(self) -> list[str]:
        """Return the names in a fixed order; they do not change while the manager runs."""

    def view(self, service: str) -> ServiceView:
        """Return the service now. The object stays the same until something changes, so readers may ask often."""

    def decisions(self, service: str, before_id: int | None, count: int) -> list[DecisionSchema]:
        """Return at most `count` decisions, newest first, with ids below `before_id`; None: from the newest on."""

    def history(self, service: str, hours: float, points: int) -> HistorySchema:
        """Return the last `hours`, at most 24, in at most `points` equal steps."""

    def promise_cost(self, service: str) -> PromiseCost:
        """Return the cost of any load of the service for each RT_max, at today's prices."""

    def pause(self, service: str, paused: bool) -> None:
        """Pause the service, so that instances are neither bought nor ended, or resume it.

        Repeatable. Only while this controller leads.
        """

    def set_limits(self, service: str, limits: Limits) -> None:
        """Set the limits from the next step on. Repeatable. Only while this controller leads.

        Raises BadInput for limits that cannot be kept.
        """

    def roll_back(self, service: str) -> None:
        """Return to the previous release. Only while this controller leads. Raises BadInput if it is unknown."""

    def roll_out_again(self, service: str) -> None:
        """Try the last deployed release again, after it was stopped or taken back. Only while this controller leads."""

    def leads(self) -> bool:
        """Return whether this controller acts; otherwise it stands by."""


class Conducted(Protocol):
    """Whole queries of one pipeline, as its conductors count them. Every method may be called from any thread."""

    def view(self) -> QueriesSchema:
        """Return the queries now."""

    def history(self, hours: float, points: int) -> QueriesHistorySchema:
        """Return the last `hours`, at most 24, in at most `points` equal steps."""
