"""Which lines of the log a key is in, and that its facts lose their content and keep their numbers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
import uvloop

from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.log import FeedbackLog, answer_json, observation_json
from mark.serving.feedback.port import Feedback, Observation
from mark.serving.learned.facts import Fact, facts_in
from mark.serving.learned.learning import Learning
from mark.serving.learned.peers import PeerAccess, Peers
from mark.serving.learned.sink import LearningSink
from mark.serving.personal.erasing import Erasing, keys_of_line
from mark.serving.personal.notes import fact_in, key_name
from tests.serving.feedback.made import answer
from tests.serving.personal.made import heads, observation


def test_line_is_about_the_key_of_its_note_and_of_its_feedback() -> None:
    seen = observation({"reward": 1.0, "key": "u2"})
    assert keys_of_line(orjson.loads(orjson.dumps(observation_json(seen)))) == {key_name("u1"), key_name("u2")}
    assert keys_of_line(orjson.loads(orjson.dumps(answer_json(seen.answer)))) == {key_name("u1")}
    assert keys_of_line({"id": "a", "feedback": {"label": 1}}) == set()
    assert keys_of_line(7) == set()


@pytest.mark.parametrize("note", [b"7", b'{"candidates": []}'])
def test_note_of_another_layer_is_about_no_key(note: bytes) -> None:
    assert keys_of_line({"provenance": {"note": orjson.loads(note)}}) == set()


def test_facts_of_a_deleted_key_keep_their_numbers_and_lose_their_content(tmp_path: Path) -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        learner = heads()
        join, log = FeedbackJoin(1000.0, 1_000_000), FeedbackLog(tmp_path, 16_000_000)
        learning = Learning("m", "w", learner, join, log.folder, Peers(PeerAccess(), "m", "w", loop), loop)
        collector = FeedbackCollector("m", join, LearningSink(log, learning), 4096, loop)
        erasing = Erasing(learning, collector)
        for number, key in enumerate(("gone", "kept", "gone")):
            content = learner.fact(observation({"reward": 2.0}, key=key, at_s=float(number)))
            assert content is not None
            learning.shared.take([Fact("w", number + 1, float(number), f"a{number}", content)])
        join.answered(answer("waiting", provenance=observation({}, key="gone").answer.provenance))
        erasing.erase(key_name("gone"), 10.0)
        await asyncio.sleep(0)
        assert join.knows("waiting"), "nothing is erased while the process reads its files"
        erasing.begin()
        assert await erasing.done()
        lines = learning.lacking(orjson.dumps({"writer": "v", "vector": {"since_s": None, "writers": {}}}))
        found = facts_in(lines.partition(b"\n")[2])
        assert [one.number for one in found] == [1, 2, 3]
        assert [fact_in(one.content) is None for one in found] == [True, False, True]
        assert not join.knows("waiting")
        await collector.close()
        await learning.close()

    uvloop.run(talk())


def test_lines_from_after_the_deletion_stay(tmp_path: Path) -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        learner = heads()
        join, log = FeedbackJoin(1000.0, 1_000_000), FeedbackLog(tmp_path, 16_000_000)
        learning = Learning("m", "w", learner, join, log.folder, Peers(PeerAccess(), "m", "w", loop), loop)
        collector = FeedbackCollector("m", join, LearningSink(log, learning), 4096, loop)
        erasing = Erasing(learning, collector)
        for at_s in (1.0, 100.0):
            one = observation({"reward": at_s}, key="gone")
            log.received([Observation(one.answer, one.feedback, at_s)], [], at_s)
        log.received([], [Feedback("x", {"key": "gone", "item": "s", "reward": 1})], 2.0)
        erasing.begin()
        erasing.erase(key_name("gone"), 50.0)
        assert await erasing.done()
        left = [orjson.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_bytes().splitlines()]
        assert [one["feedback"]["reward"] for one in left if isinstance(one, dict)] == [100.0]
        await collector.close()
        await learning.close()

    uvloop.run(talk())
