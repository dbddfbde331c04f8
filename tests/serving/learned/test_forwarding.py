"""Feedback that reached another process than the one that answered: it is applied there, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mark.serving.feedback.port import Feedback
from mark.serving.learned import forwarding
from tests.serving.learned.linked import Process, link
from tests.serving.learned.test_learning import run


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "GATHER_S", 0.01)


def asked(process: Process) -> list[bytes]:
    return [path for linked in process.links.linked for path in linked.asked if path == b"/feedback"]


async def close(*processes: Process) -> None:
    for one in processes:
        await one.close()


def test_an_id_that_a_server_made_goes_to_that_server(tmp_path: Path) -> None:
    """Results come back in the order of the pieces, whichever server judged them."""

    async def main() -> None:
        a, b, c = (Process(name, tmp_path / name) for name in "abc")
        link(a, b, c)
        a.answer("a-1", "own")
        b.answer("b-1", "b-2")
        results = await a.post(b_1=5, a_1=6, b_7=7, a_7=8, own=9)
        assert results == ["applied", "applied", "unknown", "unknown", "applied"]
        assert await a.post(b_1=5) == await b.post(b_1=5) == await c.post(b_1=5) == ["duplicate"]
        assert a.learner.counts == b.learner.counts == {5: 1, 6: 1, 9: 1}
        assert len(asked(a)) == 1  # the second time a peer's fact tells that there is feedback
        assert asked(b) == []
        await close(a, b, c)

    run(main)


def test_a_clients_own_id_goes_to_all_peers_together(tmp_path: Path) -> None:
    async def main() -> None:
        a, b, c = (Process(name, tmp_path / name) for name in "abc")
        link(a, b, c)
        c.answer("mine-1", "mine-2")
        b.answer("yours")
        first, second = await asyncio.gather(a.post(mine_1=5, nobodys=6), a.post(yours=7, mine_2=8))
        assert first == ["applied", "unknown"]
        assert second == ["applied", "applied"]
        assert len(asked(a)) == 2  # one of each peer
        for one in (a, b, c):
            await one.learning.tick()
            assert one.learner.counts == {5: 1, 7: 1, 8: 1}
        unknown = [list(one.log.folder.glob("feedback-*.jsonl")) for one in (a, b, c)]
        assert [len(files) for files in unknown] == [1, 0, 0]  # kept by the one that it came to
        await close(a, b, c)

    run(main)


def test_feedback_is_passed_on_once(tmp_path: Path) -> None:
    """Two processes that each believe that the other one answered do not send it back and forth."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        assert await a.post(b_9=5) == ["unknown"]
        assert (len(asked(a)), asked(b)) == (1, [])
        assert await b.forwarding.judged([Feedback("x", {"label": 1})], 1, known_only=True) == ["unknown"]
        assert asked(b) == []
        await close(a, b)

    run(main)


def test_feedback_that_a_peer_cannot_keep_is_to_be_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        a.answer("a-1")
        b.answer("b-1", "own")
        b.links.linked[0].cut = True  # so that no process takes its facts
        assert await a.post(b_1=5) is None
        assert await a.post(own=6) is None
        b.links.linked[0].cut = False
        assert await a.post(b_1=5, own=6) == ["applied", "duplicate"]  # one fact brought the other one along
        assert b.learner.counts == {5: 1, 6: 1}
        await close(a, b)

    run(main)


def test_the_client_repeats_where_a_peer_may_have_kept_it(tmp_path: Path) -> None:
    """Its answer was lost. While it stays silent, feedback on its answers is kept as unknown."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        b.answer("b-1", "b-2")
        (to_b,) = a.links.linked
        to_b.deaf = True
        assert await a.post(b_1=5) is None
        assert await a.post(b_2=6) == ["unknown"]
        to_b.deaf = False
        await a.learning.tick()
        assert await a.post(b_1=5) == ["duplicate"]
        assert a.learner.counts == b.learner.counts == {5: 1}
        await close(a, b)

    run(main)


def test_feedback_of_a_process_that_died_is_known_by_its_fact(tmp_path: Path) -> None:
    """A client that was not told repeats it at another process."""

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        b.answer("b-1", "b-2")
        assert await b.post(b_1=5) == ["applied"]
        b.die()
        a.links.linked[0].cut = True
        await a.learning.tick()
        assert await a.post(b_1=5, b_2=6) == ["duplicate", "unknown"]
        await a.close()

    run(main)


def test_too_much_feedback_on_its_way_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        assert a.forwarding.post([Feedback("b-1", {"label": 1})], 16 << 20, told.set_result)
        assert not a.forwarding.post([Feedback("b-1", {"label": 1})], 1, told.set_result)
        assert await told == ["unknown"]
        assert await a.post(b_1=1) == ["unknown"]
        await close(a, b)

    run(main)


def test_much_feedback_goes_in_parts_that_a_peer_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_PART_BYTES", 50)

    async def main() -> None:
        a, b = Process("a", tmp_path / "a"), Process("b", tmp_path / "b")
        link(a, b)
        b.answer(*(f"b-{n}" for n in range(8)))
        assert await a.post(**{f"b_{n}": n for n in range(10)}) == ["applied"] * 8 + ["unknown"] * 2
        assert 3 <= len(asked(a)) <= 9
        assert b.learner.counts == dict.fromkeys(range(8), 1)
        await close(a, b)

    run(main)
