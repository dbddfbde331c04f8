"""One service of the manager. It runs a round in every 5 s window of the terms in which this process leads."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cached_property

from mark.control.history import history_view
from mark.control.service_term import AGAIN, BACK, RequestedChanges, ServiceTerm, Start, configured_limits
from mark.control.views import DecisionSchema, HistorySchema, Limits, Mode, ServiceView, SloSchema
from mark.domain.backoff import START
from mark.domain.bill import Bill
from mark.domain.copying import replace
from mark.domain.errors import BadInput, CloudError, Infeasible, LostLease
from mark.domain.service import ResolvedService
from mark.domain.time import MINUTE_S
from mark.planning.promise_cost import PromiseCost

_log = logging.getLogger("mark.control")


class ServiceRuntime:
    """A service whose controller runs while this process leads.

    `start` builds the ports of a term from the state of store and cloud. All that ends with the term is in `term`; here
    is only the state of the process. Only one thread at a time may run `reconcile`; other threads
    may call all other methods.
    """

    def __init__(self, service: str, resolved: ResolvedService, start: Start, *, dry_run: bool = False) -> None:
        self.service, self._resolved, self._start, self._dry_run = service, resolved, start, dry_run
        self.term: ServiceTerm | None = None  # None: another process leads, or the service could not be started yet
        self._requested = RequestedChanges()
        self._again_unix_s = -math.inf  # when to try again to start
        self._conditions: tuple[str, ...] = ()  # of the last round
        self.late = ""  # set by the manager while a round takes too long
        self.shares = False  # set by the manager: this service shares limits with others
        self._empty = self._empty_view(0.0)

    # -- for other threads ---------------------------------------------------------------------------------------------

    def view(self, fence: int | None) -> ServiceView:
        """Return the view of the last round in the term `fence`; an empty one before its first round.

        The rounds' thread may not have ended the term before it yet.
        """
        term = self.term
        if term is not None and term.fence != fence:
            term = None
        view = self._empty if term is None or term.view is None else term.view
        mode: Mode = "standing by" if term is None else term.mode
        limits = self._requested.limits or configured_limits(self._resolved) if term is None else term.limits
        conditions = (self.late, *self._conditions) if self.late else self._conditions
        if (view.mode, view.limits, view.conditions) == (mode, limits, conditions):
            return view
        return replace(view, mode=mode, limits=limits, conditions=conditions)

    def decisions(self, before_id: int | None, count: int) -> list[DecisionSchema]:
        """Return decisions, newest first; none without a term. Raises StoreError if older ones cannot be read."""
        term = self.term
        return [] if term is None else term.decisions(before_id, count)

    def history(self, hours: float, points: int) -> HistorySchema:
        """Return the last minutes; unknown values without a term, because the clock is unknown then."""
        term = self.term
        if term is None:
            return history_view({}, hours, points, start_unix_s=0.0, minute_s=MINUTE_S)
        return term.history(hours, points)

    def promise_cost(self) -> PromiseCost:
        """Return the calculator of cost by load and RT_max, at today's prices; without a term at the catalogue's."""
        term = self.term
        return self._catalogue_cost if term is None else term.promise_cost()

    @cached_property
    def _catalogue_cost(self) -> PromiseCost:
        return PromiseCost(self._resolved)

    def pause(self, paused: bool) -> None:
        """Pause the service or let it act again, from the next round on."""
        self._requested.paused = paused

    def set_limits(self, limits: Limits) -> None:
        """Set the limits, from the next round on. Raises BadInput."""
        if limits.max_instances < 1:
            raise BadInput("must be one or more", "max_instances", limits.max_instances)
        if not (math.isfinite(limits.max_usd_per_hour) and limits.max_usd_per_hour > 0.0):
            raise BadInput("must be above zero", "max_usd_per_hour", limits.max_usd_per_hour)
        self._requested.limits = limits

    def roll_back(self) -> None:
        """Roll back to the previous release, from the next round on. Raises BadInput if that is not possible."""
        term = self.term
        if term is None:
            raise BadInput("there is no release to go back to", "service", self.service)
        term.check_roll_back()
        self._requested.rollout = BACK

    def roll_out_again(self) -> None:
        """Try the last deployed release again from the next round on, although it was stopped or taken back."""
        self._requested.rollout = AGAIN

    def drop_requests(self) -> None:
        """Drop the requests that are not stored, because a term began or ended: its leader may get other ones.

        A round cannot do it, because it may run so late that the requests are those of the next term.
        """
        self._requested.drop()

    def due(self, fence: int | None, now_unix_s: float) -> bool:
        """Return whether it is time for a round."""
        term = self.term
        if term is not None:
            return fence != term.fence or term.is_due()
        if fence is None:
            return False
        # The lower bound ends the wait if the wall clock was set back.
        return not self._again_unix_s - START.first_s <= now_unix_s < self._again_unix_s

    # -- reconciled ---------------------------------------------------------------------------------------------------

    def reconcile(self, fence: int | None, now_unix_s: float) -> None:
        """Run one round and raise nothing; `fence` is the lease's number, None while another process leads."""
        conditions: list[str] = []
        if self.term is not None and self.term.fence != fence:
            self.stop()
        if fence is not None and self.term is None:
            self._guard(conditions, lambda: self._begin(fence, now_unix_s))
        if (term := self.term) is not None:
            term.round(conditions)
        if (term := self.term) is not None:
            term.learn(conditions)
        if self.term is None:
            self._empty = self._empty_view(now_unix_s)
        self._tell(tuple(conditions))

    def stop(self) -> None:
        """End the term; the next round begins one."""
        term, self.term = self.term, None
        if term is not None:
            try:
                term.parts.close()
            except Exception:  # the other services and the lease must not wait for it
                _log.exception("the parts of a service cannot be closed", extra={"service": self.service})

    def _begin(self, fence: int, now_unix_s: float) -> None:
        self._again_unix_s = now_unix_s + START.first_s
        self.term = self._new_term(fence)
        self._again_unix_s = -math.inf

    def _new_term(self, fence: int) -> ServiceTerm:
        return ServiceTerm(
            self.service,
            self._resolved,
            self._start,
            self._requested,
            fence=fence,
            dry_run=self._dry_run,
            shares=self.shares,
            guard=self._guard,
        )

    def _guard(self, conditions: list[str], action: Callable[[], None]) -> bool:
        """Run the action and return whether it succeeded; an error becomes a condition, so other services continue."""
        try:
            action()
        except LostLease as error:
            conditions.append(f"another controller leads: {error}")
            self.stop()
        except (CloudError, Infeasible, BadInput) as error:
            conditions.append(" ".join(str(error).split()))
        except Exception as error:
            conditions.append(self._unforeseen(error))
        else:
            return True
        return False

    def _unforeseen(self, error: Exception) -> str:
        """Log an unexpected error, and return its text for the service's view."""
        _log.exception("a fault of ours", extra={"service": self.service})
        return f"a fault of ours: {type(error).__name__}: {' '.join(str(error).split())[:200]}"

    def _tell(self, conditions: tuple[str, ...]) -> None:
        """Show the conditions in the view, and log them when they change."""
        for condition in conditions:
            if condition not in self._conditions:
                _log.warning("trouble", extra={"service": self.service, "trouble": condition})
        if self._conditions and not conditions and self.term is not None:
            _log.info("all is well again", extra={"service": self.service})
        self._conditions = conditions

    def _empty_view(self, now_unix_s: float) -> ServiceView:
        slo = self._resolved.slo
        return ServiceView(
            service=self.service,
            mode="standing by",
            at_unix_s=now_unix_s,
            at_s=0.0,
            rps=None,
            capacity_rps=0.0,
            usd_per_hour=0.0,
            instances=(),
            prices={},
            plan=None,
            forecast=None,
            slo=SloSchema(slo.rt_max_s * 1e3, slo.attainment, None, None, None, None, None, None),
            bill=Bill(),
            requests=0,
            limits=configured_limits(self._resolved),
            conditions=(),
        )
