"""A server of a new version of the features stage, beside servers of the old version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import uvloop

from mark.personal.settings import PersonalSettings
from mark.serving.learned.facts import Fact, line_of
from mark.serving.learned.shared import LearnedSnapshot
from mark.serving.learned.stored import LearnedStore
from mark.serving.personal.assembly import Personal
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.notes import HeadFact, key_name
from mark.serving.personal.served import PersonalServing
from mark.testing.fakes import FakeObjects
from tests.serving.learned.linked import NOW_S, Process, link


def reward(version: str) -> bytes:
    vector = np.array([1.0, 2.0, 4.0], dtype=np.float32)
    return HeadFact(key_name("u"), NOW_S, version, 2.0, "s", vector).to_json()


def test_retrained_heads_in_the_store_are_used_beside_servers_of_the_old_version(tmp_path: Path) -> None:
    async def talk() -> None:
        objects = FakeObjects()

        def process(name: str, version: str) -> tuple[Process, Personal]:
            one = Process(name, tmp_path / name, store=LearnedStore(objects, "m"))
            loop = asyncio.get_running_loop()
            personal = Personal(PersonalServing(PersonalSettings(), version), "m", 1e6, loop)
            one.learning.learner = one.learning.shared._learner = personal.heads
            personal.learn(one.learning, one.collector, one.collector)
            return one, personal

        (old, old_personal), retrained = process("old", "v1"), PersonalHeads(PersonalSettings(), "v2", now=lambda: 0.0)
        await old.learning.catch_up()
        old.learning.have(line_of(Fact("w", 1, NOW_S, "w-1", reward("v1"))))
        retrained.apply(reward("v2"))
        snapshot = LearnedSnapshot(old.learning.shared.vector.copy(), retrained.freeze()())
        LearnedStore(objects, "m").put_snapshot(snapshot.to_bytes(), "retrain", NOW_S)
        new, new_personal = process("new", "v2")
        link(old, new)
        await new.learning.catch_up()
        assert new_personal.heads.observations == 1
        await old.close()
        await new.close()
        old_personal.end()
        new_personal.end()

    uvloop.run(asyncio.wait_for(talk(), 60))
