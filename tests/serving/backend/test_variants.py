"""Versions behind one backend: a request without a version gets one by weight, the others get theirs."""

from __future__ import annotations

import asyncio
from collections import Counter

from mark.models.answer import INSTANCE, Answer
from mark.models.call import Call, Reply
from mark.models.versions import Versions
from mark.serving.backend.port import Backend
from mark.serving.backend.request import Request
from mark.serving.backend.variants import Variants

VERSIONS = Versions({"old": ("a:A", 0.75), "new": ("a:B", 0.25), "shadow": ("a:C", 0.0)})


class Fake:
    """Answers by its name."""

    def __init__(self, name: str, ready: bool = True, again_s: float = 1.0) -> None:
        self.name, self.ready, self.again_s = name, ready, again_s
        self.drained_s: list[float] = []

    def offer(self, request: Request) -> None:
        request.answer(request, Answer(Reply(200, "text/plain", self.name.encode()), INSTANCE, request.version))

    def retry_after_s(self) -> float:
        return self.again_s

    async def drain(self, until_s: float) -> None:
        self.drained_s.append(until_s)


def variants(**fakes: Fake) -> Variants:
    return Variants(VERSIONS, {name: fakes.get(name, Fake(name)) for name in VERSIONS.references})


def asked(backend: Backend, identity: str, version: str = "") -> str:
    """Return the version in the answer, after checking that its backend gave it."""
    answers: list[Answer] = []
    call = Call("oip", "application/json", b"{}")
    request = Request(call, 1, 0.0, 1.0, lambda _, answer: answers.append(answer), identity)
    request.version = version
    backend.offer(request)
    (answer,) = answers
    assert bytes(answer.reply.body).decode() == answer.version == request.version
    return answer.version


def test_weights_choose_the_version_by_the_id() -> None:
    backend = variants()
    ids = [f"request-{i}" for i in range(2_000)]
    chosen = [asked(backend, identity) for identity in ids]
    assert chosen == [VERSIONS.choose(identity) for identity in ids]
    assert Counter(chosen).keys() == {"old", "new"}


def test_a_named_version_answers_whatever_its_weight() -> None:
    backend = variants()
    assert {asked(backend, f"request-{i}", "shadow") for i in range(20)} == {"shadow"}


def test_an_attempt_asks_for_the_requests_version_or_its_own() -> None:
    request = Request(Call("oip", "application/json", b"{}"), 1, 0.0, 1.0, lambda *_: None, "r")
    request.version = "new"
    assert request.attempt(lambda *_: None).version == "new"
    assert request.attempt(lambda *_: None, version="old").version == "old"


def test_variants_are_ready_when_every_version_is() -> None:
    assert variants().ready
    assert not variants(shadow=Fake("shadow", ready=False)).ready


def test_the_soonest_version_says_when_to_come_again() -> None:
    assert variants(new=Fake("new", again_s=0.25)).retry_after_s() == 0.25


def test_a_drain_reaches_every_version() -> None:
    fakes = {name: Fake(name) for name in VERSIONS.references}
    asyncio.run(variants(**fakes).drain(12.0))
    assert [fake.drained_s for fake in fakes.values()] == [[12.0]] * 3
