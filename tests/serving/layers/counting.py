"""A layer for tests: it counts requests, passes each on as an attempt, and puts its label on the answer.

[NAME]
label = "outer"
"""

from __future__ import annotations

from pathlib import Path

from mark.config.section import Section
from mark.models.answer import Answer, AskedModel, Provenance
from mark.serving.backend.port import Backend
from mark.serving.backend.request import Attempt, Request
from mark.serving.frontend.connection import Exchange
from mark.serving.frontend.routes import ModelRoute
from mark.serving.layers.layer import Layer, LayerSite


class Counting:
    """Counts requests; the count stands at `/v2/models/NAME/counted/LABEL`."""

    def __init__(self, label: str, behind: Backend, site: LayerSite) -> None:
        self._label, self._behind, self.versions = label, behind, site.versions
        self.count = 0
        site.routes.append(ModelRoute(b"GET", b"/counted/%b" % label.encode(), self._counted))

    @property
    def ready(self) -> bool:
        return self._behind.ready

    def offer(self, request: Request) -> None:
        self.count += 1
        self._behind.offer(request.attempt(self._answered))

    def retry_after_s(self) -> float:
        return self._behind.retry_after_s()

    async def drain(self, until_s: float) -> None:
        await self._behind.drain(until_s)

    def _answered(self, attempt: Request, answer: Answer) -> None:
        assert isinstance(attempt, Attempt)
        request = attempt.of
        assert request is not None
        before = answer.provenance
        how = Provenance(
            asked=(AskedModel(answer.version, 0.5, 2e-6),),
            selected=f"{self._label}>{answer.version if before is None else before.selected}",
            confidence=0.75,
            note=b'{"count": %d}' % self.count,
        )
        request.answer(request, Answer(answer.reply, answer.made_by, answer.version, answer.stages, how))

    def _counted(self, version: str | None, exchange: Exchange) -> None:
        exchange.answer(200, b"%d" % self.count)


def layer(section: Section) -> Layer:
    """Return the layer that the entry point registers."""
    section.only(("label",))
    label = section.text("label")
    return lambda behind, site: Counting(label, behind, site)


def install(folder: Path, *names: str, what: str = "tests.serving.layers.counting:layer") -> Path:
    """Install a package that registers the layer by these names, for an import path with `folder`."""
    info = folder / "counting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mark.layers]\n" + "".join(f"{name} = {what}\n" for name in names))
    return folder


_: type[Backend] = Counting
