"""The assembly of the parts of personal heads for a server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from threading import Thread

from mark.personal.settings import STAGE
from mark.personal.top import UsearchItems
from mark.serving.backend.cache import Cache
from mark.serving.backend.hot_calls import HotCalls, calls_in, packed
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.conductor.conductor import ConductedStage, Conductor
from mark.serving.conductor.graph import StageGraph
from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.port import Feedback
from mark.serving.frontend.auth import Auth
from mark.serving.frontend.feedback_door import TakesFeedback
from mark.serving.frontend.routes import ModelRoute
from mark.serving.frontend.server import Server
from mark.serving.learned.learning import Learning
from mark.serving.personal.doors import PersonalDoors
from mark.serving.personal.erasing import Erasing
from mark.serving.personal.features import Features
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.keyed_feedback import PersonalFeedback, check_personal
from mark.serving.personal.rows import SqliteRows
from mark.serving.personal.served import PersonalServing
from mark.serving.personal.stage import PersonalStage

_EXPIRE_EVERY_S = _KEEP_HOT_EVERY_S = 600.0
_LOG = logging.getLogger("mark.serving")
_ROWS = "personal-rows.sqlite"  # in the process's own folder of the feedback log


class Personal:
    """The heads of a server with their store, table and doors. `horizon_s` is the horizon of feedback.

    With a cache before the features stage, the head becomes ready only after the cache was filled with the items that
    an earlier process used most, or the time for that is over. Then it calls `became_ready`.
    """

    def __init__(
        self,
        serving: PersonalServing,
        name: str,
        horizon_s: float,
        loop: asyncio.AbstractEventLoop,
        became_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.heads = PersonalHeads(
            serving.settings, serving.version, now=time.monotonic, table=serving.table, horizon_s=horizon_s
        )
        self._serving, self._name, self._loop = serving, name, loop
        self._became_ready = became_ready
        self._features: Features | None = None
        self._before: Conductor | None = None  # the features stage and the stages before it
        self._hot: HotCalls | None = None
        self._stage: PersonalStage | None = None
        self._warming: asyncio.Task[None] | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._feedback: PersonalFeedback | None = None
        self._join: FeedbackJoin | None = None
        self._doors: PersonalDoors | None = None
        self._rows: SqliteRows | None = None
        self._learning: Learning | None = None
        self._erasing: Erasing | None = None

    def stage(self, version: str, metrics: Metrics, *, first: bool) -> ConductedStage:
        """Return the head as a stage; `first` if no other stage is before it."""
        own = ModelMetrics(self._name, version, STAGE)
        metrics.models.append(own)
        self._stage = PersonalStage(self.heads, own, time.monotonic, first=first)
        self._stage.ready = self._hot is None
        return ConductedStage(STAGE, self._stage, 0.0, has_workers=False)

    def ask(self, stages: Mapping[str, ConductedStage], rt_max_s: float) -> None:
        """Use the features stage among `stages` for items in feedback and in requests to `/top`."""
        graph = self._serving.features
        if graph is None:
            return
        whole = ModelMetrics(self._name, "", STAGE)  # not shown, because clients did not send these queries
        conductor = Conductor(
            [stages[name] for name in graph.names], whole, self._loop, name=self._name, router=StageGraph(graph)
        )
        self._before, self._features = conductor, Features(conductor, rt_max_s, self._loop)
        first = conductor.backends[0]
        if isinstance(first, Cache) and self._serving.settings.warm_s > 0.0:
            self._hot = first.hot = HotCalls()

    def learn(self, learning: Learning, collector: FeedbackCollector, behind: TakesFeedback) -> TakesFeedback:
        """Learn from feedback. Return the collector that takes it and passes it on to `behind`."""
        self._join = collector.join
        self._rows = SqliteRows(learning.folder / _ROWS)
        self.heads.keep_rows_in(self._rows)
        self._learning, self._erasing = learning, Erasing(learning, collector, self.heads)
        self.heads.erase, learning.shared.cleaned = self._erasing.erase, self._erasing.cleaned
        self.heads.forgot = self._forget_hot
        learning.refuses = lambda: self.heads.unusable > 0
        learning.aside.own = self._hot_now
        self._loop.call_later(_EXPIRE_EVERY_S, self._expire)
        self._feedback = PersonalFeedback(behind, collector, self.heads, self._features, self._loop, learning.writer)
        return self._feedback

    def check(self, feedback: Sequence[Feedback]) -> None:
        """Raise Refused for feedback with an impossible key, item or reward."""
        check_personal(feedback, self._serving.settings.loss, self._join)

    def routes(self, metrics: Metrics) -> list[ModelRoute]:
        """Return the routes of the model."""
        metrics.more.append(partial(self.heads.metrics, self._name))
        self._doors = PersonalDoors(
            self._name,
            self.heads,
            self._features,
            self._feedback,
            self._loop,
            lag=lambda: self._lag,
            erased=self.erased,
        )
        return self._doors.routes()

    def serve(self, server: Server, auth: Auth | None) -> None:
        """Use the request ids, observers and keys of this server."""
        assert self._doors is not None, "the server has its routes"
        doors = self._doors
        doors.identity, doors.answered, doors.rt_max_s = server.identity, server.answered, server.rt_max_s
        doors.version = server.versions[0]
        if auth is not None:
            doors.may_manage = auth.may_manage

    def _expire(self) -> None:
        self.heads.expire(time.time())
        self._index()
        self._loop.call_later(_EXPIRE_EVERY_S, self._expire)

    def begin(self) -> None:
        """Begin to erase and to index, because the process has read its files."""
        if self._erasing is not None:
            self._erasing.begin()
        self._index()

    def see_ready(self) -> None:
        """Begin to fill the cache once the features stage is ready."""
        if self._hot is not None and self._warming is None and self._before is not None and self._before.ready:
            self._warming = self._loop.create_task(self._warm_up())

    async def _warm_up(self) -> None:
        assert self._features is not None, "the cache is before a features stage"
        assert self._stage is not None, "the head comes after it"
        began_s = time.monotonic()
        try:
            data = None if self._learning is None else await self._learning.aside.latest()
            calls = calls_in(data) if data else []
            answered = await self._features.ask(calls, began_s + self._serving.settings.warm_s)
            if calls:
                took_s = time.monotonic() - began_s
                _LOG.info("the cache has %d of %d items used most, after %.1f s", answered, len(calls), took_s)
        except Exception:  # a service with an empty cache is better than none
            _LOG.exception("the cache stays empty")
        self._stage.ready = True
        self._became_ready()
        self._keep_hot_later()

    def _keep_hot_later(self) -> None:
        self._keeping = self._loop.call_later(_KEEP_HOT_EVERY_S, self._keep_hot_now)

    def _keep_hot_now(self) -> None:
        task = self._loop.create_task(self._keep_hot())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._keep_hot_later()

    async def _keep_hot(self) -> None:
        if self._hot is not None and self._learning is not None:
            data = self._hot_now()
            self._hot.age()
            await self._learning.aside.put(data)

    def _hot_now(self) -> bytes | None:
        """Return the items used most, None without any."""
        calls = [] if self._hot is None else self._hot.most_used(time.monotonic())
        return packed(calls) if calls else None

    def _forget_hot(self) -> None:
        if self._hot is not None:
            self._hot.forget()

    def _index(self) -> None:
        """Build an index of a large table if the extra `ann` is installed. Until then `/top` scores all items."""
        rows = self.heads.to_index() if find_spec("usearch") is not None else None
        if rows is None:
            return

        def build() -> None:
            index = UsearchItems(rows)
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self.heads.use_index, index)

        # A daemon, because the end of the server must not wait for minutes of building.
        Thread(target=build, name="personal-index", daemon=True).start()

    async def erased(self) -> bool:
        """Wait until no file has data of deleted keys. Return False if the disk refused."""
        return self._erasing is None or await self._erasing.done()

    async def close(self) -> None:
        """Wait for feedback in progress, and for deletions; keep the items used most for the next process."""
        if self._warming is not None:
            self._warming.cancel()
        if self._keeping is not None:
            self._keeping.cancel()
        await asyncio.gather(*self._tasks)
        await self._keep_hot()
        if self._feedback is not None:
            await self._feedback.close()
        if self._erasing is not None:
            await self._erasing.close()

    def end(self) -> None:
        """Close the file of rows; call nothing afterwards."""
        if self._rows is not None:
            self._rows.close()

    @property
    def _lag(self) -> int:
        return 0 if self._learning is None else self._learning.missing
