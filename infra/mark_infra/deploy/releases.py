"""Roll back a deployed site's release, or wait until a new release serves.

The controller rolls out by itself. Wishes reach it through its store, because a deployer may not reach its page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mark.control.controller import known_rollout
from mark.control.rollout import Rollout, RolloutStage
from mark.control.service_term import AGAIN, BACK, WISH
from mark.domain.errors import BadInput, CloudError, NotFoundError
from mark_infra.aws.pools import templates_of
from mark_infra.aws.site import Site, TemplateVersion
from mark_infra.controller.release_versions import PLATFORMS, TEMPLATES
from mark_infra.store.dynamo_table import Table
from mark_infra.store.store import ServiceStore

LOOK_S = 5.0
PATIENCE_S = 1800.0  # without progress


@dataclass(frozen=True, slots=True)
class RolloutNews:
    """The state of a service's roll-out, for people; `settled`: it has ended, `good`: as wished."""

    service: str
    text: str
    settled: bool = False
    good: bool = True


class SiteReleases:
    """The releases of a site's services, through the controller's store. Raises CloudError as the table."""

    def __init__(
        self,
        site: Site,
        table: Table,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._site, self._table, self._monotonic, self._pause = site, table, monotonic, pause

    def roll_back(self, services: Sequence[str]) -> None:
        """Ask the controller to serve the previous release.

        Services whose release is taken back already are left out, so that a call that failed midway can be repeated.
        Raises BadInput if that is so for all, or if a service has no previous release.
        """
        left: list[str] = []
        taken_back = ""
        for service in services:
            wanted, rollout = self._site.service(service).release, self._rollout(service)
            if not wanted or rollout is None:
                raise BadInput("has no releases yet", "SERVICE", service)
            if wanted not in (rollout.newest, *rollout.refused):
                raise BadInput(f"release {rollout.newest} was deployed from elsewhere: deploy from there", service)
            if wanted in rollout.refused:
                taken_back = f"release {wanted} is taken back already, and {rollout.release} serves"
            elif not (rollout.candidate or rollout.before):
                raise BadInput("there is no release before this one", "SERVICE", service)
            else:
                left.append(service)
        if taken_back and not left:
            raise BadInput(taken_back, service)
        for service in left:
            self._wish(service, BACK)

    def before(self, service: str) -> TemplateVersion | None:
        """Return the template of the release that a roll-back serves, also after it; None without such a release."""
        rollout, store, release = self._rollout(service), self._store(service), ""
        if rollout is not None:
            serves = rollout.candidate or self._site.service(service).release in rollout.refused
            release = rollout.release if serves else rollout.before
        if not release:
            return None
        versions, platforms = (store.get(key) or {} for key in (TEMPLATES, PLATFORMS))
        try:
            return next(iter(templates_of(self._site.service(service), release, versions, platforms).values()))
        except NotFoundError:
            return None

    def roll_out(self, services: Sequence[str]) -> None:
        """Ask the controller for the deployed release, even if it was stopped or rolled back before."""
        for service in services:
            if self._site.service(service).release:
                self._wish(service, AGAIN)

    def news(self, services: Sequence[str], *, back: bool = False) -> Iterator[RolloutNews]:
        """Yield the progress of the roll-outs (with `back`, of the roll-backs) until all are settled.

        Ends silently after half an hour without progress.
        """
        said: dict[str, str] = {}
        waiting = [service for service in services if self._site.service(service).release]
        changed_s = self._monotonic()
        while waiting:
            for service in list(waiting):
                try:
                    found = self._news(service, back=back)
                except CloudError:
                    continue  # retried in the next pass
                if found.text != said.get(service):
                    said[service], changed_s = found.text, self._monotonic()
                    yield found
                if found.settled:
                    waiting.remove(service)
            if self._monotonic() - changed_s > PATIENCE_S:
                return
            if waiting:
                self._pause(LOOK_S)

    def _news(self, service: str, *, back: bool) -> RolloutNews:
        wanted, rollout = self._site.service(service).release, self._rollout(service)
        found = self._progress(service, wanted, rollout, back=back)
        if not found.settled and self._store(service).get("paused"):
            return replace(found, text=f"{found.text}; the service is paused")
        return found

    def _progress(self, service: str, wanted: str, rollout: Rollout | None, *, back: bool) -> RolloutNews:
        if rollout is None:
            return RolloutNews(service, "the controller starts")
        if not back and self._store(service).get(WISH) is not None:
            return RolloutNews(service, f"release {wanted} waits for the controller to take it up")
        if wanted in rollout.refused:
            settled = rollout.stage is RolloutStage.DONE
            how = "serves" if settled else "takes its place again"
            return RolloutNews(service, f"release {wanted}: {rollout.reason}; {rollout.release} {how}", settled, back)
        if back:
            return RolloutNews(service, f"release {wanted} is to be taken back")
        if wanted not in (rollout.release, rollout.candidate):
            return RolloutNews(service, f"release {wanted} waits for the controller to take it up")
        if rollout.stage is RolloutStage.DONE:
            return RolloutNews(service, f"release {wanted} serves on all instances", settled=True)
        return RolloutNews(service, f"release {wanted}: {_stage(rollout)}")

    def templates(self, service: str) -> frozenset[TemplateVersion]:
        """Return the templates that the controller may still launch from, except of releases that it does not know yet.

        They belong to the serving release, the candidate, and the release of a roll-back.
        """
        rollout, there, store = self._rollout(service), self._site.service(service), self._store(service)
        versions, platforms = (store.get(key) or {} for key in (TEMPLATES, PLATFORMS))
        needed = set() if rollout is None else {rollout.release, rollout.before, rollout.candidate}
        known = needed & {*versions, *platforms}
        return frozenset(one for release in known for one in templates_of(there, release, versions, platforms).values())

    def _rollout(self, service: str) -> Rollout | None:
        return known_rollout(self._store(service))

    def _wish(self, service: str, wish: str) -> None:
        self._store(service).put(WISH, {"wish": wish, "release": self._site.service(service).release})

    def _store(self, service: str) -> ServiceStore:
        return ServiceStore(self._table, service)


def _stage(rollout: Rollout) -> str:
    """Return the stage of a roll-out in words. The text changes while there is progress."""
    text = str(rollout.stage)
    if rollout.minutes:
        text += f" for {rollout.minutes} more min"
    if rollout.ready:
        text += ", ready: " + ", ".join(f"{n} of {release or '?'}" for release, n in sorted(rollout.ready.items()))
    return f"{text}, waits: {rollout.waits}" if rollout.waits else text
