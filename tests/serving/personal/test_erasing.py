"""Which lines of the log a key is in, and that its facts lose their content and keep their numbers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from mark.launch.personal_scan import scan_key
from mark.personal.settings import PersonalSettings
from mark.serving.feedback.collector import FeedbackCollector
from mark.serving.feedback.joining import FeedbackJoin
from mark.serving.feedback.log import FeedbackLog, answer_json, observation_json
from mark.serving.feedback.port import Feedback, Observation
from mark.serving.learned.facts import Fact, facts_in, line_of
from mark.serving.learned.learning import Learning
from mark.serving.learned.peers import PeerAccess, Peers
from mark.serving.learned.sink import LearningSink
from mark.serving.personal import erasing as erasing_module
from mark.serving.personal.assembly import Personal
from mark.serving.personal.erasing import Erasing, keys_of_line
from mark.serving.personal.notes import HeadFact, fact_in, key_name
from mark.serving.personal.served import PersonalServing
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
        erasing = Erasing(learning, collector, learner)
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
        erasing = Erasing(learning, collector, learner)
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


class Server:
    """One process that learns heads from facts of peers and erases deleted keys."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self.personal = Personal(PersonalServing(PersonalSettings(), "v"), "m", 1e6, loop)
        self.folder, self.heads = folder, self.personal.heads
        join, self.log = FeedbackJoin(1e6, 1_000_000), FeedbackLog(folder, 16_000_000)
        peers = Peers(PeerAccess(), "m", "own", loop)
        self.learning = Learning("m", "own", self.heads, join, self.log.folder, peers, loop)
        self.collector = FeedbackCollector("m", join, LearningSink(self.log, self.learning), 4096, loop)
        self.personal.learn(self.learning, self.collector, self.collector)
        assert self.personal._erasing is not None
        self.erasing = self.personal._erasing

    async def start(self) -> None:
        await self.learning.catch_up()
        self.erasing.begin()
        await self.erasing.done()

    async def learn(self, number: int, writer: str = "w") -> None:
        """Log and learn an observation of the key `gone`."""
        seen = observation({"reward": 2.0, "key": "gone", "input": "x"}, key="gone", own="c-1")
        self.log.received([Observation(seen.answer, seen.feedback, 10.0)], [], 10.0)
        await self.take(number, self.heads.fact(seen) or b"", writer)

    async def delete(self, number: int) -> bool:
        """Take the deletion of the key, and return whether it is erased."""
        await self.take(number, HeadFact(key_name("gone"), 50.0).to_json())
        return await self.erasing.done()

    async def take(self, number: int, content: bytes, writer: str = "w") -> None:
        self.learning.have(line_of(Fact(writer, number, 10.0, f"{writer}{number}", content)))
        if self.learning._writing is not None:
            await self.learning._writing

    def traces(self) -> list[str]:
        """Return the files with data of the key."""
        return [str(path) for path in scan_key("gone", [self.folder]).found]

    async def close(self) -> None:
        await self.erasing.close()
        await self.collector.close()
        await self.learning.close()
        self.personal.end()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(main(), 60))


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "full")


def test_deletion_is_not_done_while_the_disk_refuses_the_snapshot(tmp_path: Path) -> None:
    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        await server.learn(1)
        await server.learning._write_snapshot()
        journal = server.learning._journal
        keep, journal.keep = journal.keep, full_disk  # type: ignore[method-assign, assignment]
        assert not await server.delete(2)
        journal.keep = keep  # type: ignore[method-assign]
        assert await server.delete(3)
        assert not server.traces()
        await server.close()

    run(talk)


def test_log_file_that_an_operator_removed_does_not_end_erasing(tmp_path: Path) -> None:
    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        await server.learn(1)
        await server.collector.rewrite(lambda line: line)  # the next lines go to a new file
        await server.learning._write_snapshot()
        for path in tmp_path.rglob("*-00000001.jsonl"):
            path.unlink()
        assert await server.delete(2)
        await server.close()

    run(talk)


def test_unfinished_files_of_a_killed_process_are_deleted_with_the_key(tmp_path: Path) -> None:
    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        await server.learn(1)
        left = tmp_path / "2"
        left.mkdir()
        (left / "lock").touch()
        for folder in (server.log.folder, left):
            for name in ("observations-00000000.new", "learned-00000000.new", "learned.new"):
                (folder / name).write_text("killed")
        assert await server.delete(2)
        assert not [*tmp_path.rglob("*.new")]
        await server.close()

    run(talk)


def test_erasing_is_tried_again_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing_module, "_AGAIN_S", 0.0)

    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        await server.learn(1)
        rewrite, failed = server.learning.rewrite, asyncio.Event()

        async def fails(change: Callable[[Fact], Fact]) -> None:
            server.learning.rewrite = rewrite  # type: ignore[method-assign]
            failed.set()
            raise RuntimeError("a bug")

        server.learning.rewrite = fails  # type: ignore[method-assign, assignment]
        await server.delete(2)
        await failed.wait()
        while not await server.erasing.done():
            await asyncio.sleep(0)
        assert not server.traces()
        await server.close()

    run(talk)


def test_deletion_whose_erasing_a_kill_ended_is_erased_at_the_next_start(tmp_path: Path) -> None:
    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        await server.learn(1)
        server.collector.rewrite = stopped  # type: ignore[method-assign]  # after the snapshot has the deletion
        assert not await server.delete(2)
        server.log.close()  # as a kill does
        again = Server(tmp_path)
        await again.start()
        assert not again.traces()
        await again.close()

        third = Server(tmp_path)
        third.learning.rewrite = stopped  # type: ignore[method-assign, assignment]
        await third.start()
        assert await third.erasing.done(), "nothing is rewritten at a start without new deletions"
        await third.close()

    async def stopped(change: object) -> None:
        raise OSError("killed")

    run(talk)


def test_deletion_in_the_state_of_a_peer_is_erased_here(tmp_path: Path) -> None:
    async def talk() -> None:
        one, two = Server(tmp_path / "1"), Server(tmp_path / "2")
        for server in (one, two):
            await server.start()
            await server.learn(1)
        emptied: list[str] = []
        one.heads.forgot = lambda: emptied.append("hot items")
        await two.delete(2)
        assert one.learning._adopt(two.learning.shared.snapshot(), "two")
        assert await one.erasing.done()
        assert not one.traces()
        assert emptied
        for server in (one, two):
            await server.close()

    run(talk)


def test_late_fact_of_a_deleted_key_leaves_no_trace(tmp_path: Path) -> None:
    async def talk() -> None:
        server = Server(tmp_path)
        await server.start()
        late = server.heads.fact(observation({"reward": 2.0}, key="gone"))
        await server.delete(1)
        await server.take(1, late or b"", "v")
        await server.take(2, server.heads.fact(observation({"reward": 2.0}, key="kept")) or b"", "v")
        assert server.heads.observations == 1
        assert not server.traces()
        assert server.learning.shared.vector.has("v", 1)
        await server.close()

    run(talk)
