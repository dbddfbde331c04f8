"""The open loop: every request is sent when it is due, and its outcome is recorded."""

from __future__ import annotations

import asyncio
import csv
import math
import time
from pathlib import Path

import numpy as np
import pytest
from mark_infra.testbed.load_generator import replay

from mark.models.call import Call
from tests.serving.fake_replicas import CLOSE, HANG, Asked, FakeReplica, said

CALL = Call("oip", "application/octet-stream", b"{}%d", 2)


def test_each_request_is_sent_when_it_is_due_and_named() -> None:
    due_s = [0.0, 0.0, 0.05, 0.2]
    replica = FakeReplica()

    async def main() -> None:
        await replica.start()
        made = await replay(replica.url, "m", CALL, due_s, prefix="a%b-")
        await replica.stop()
        assert made.column("due_s").tolist() == due_s
        lag_s = made.column("sent_s") - made.column("due_s")
        assert (lag_s >= 0.0).all()
        assert np.median(lag_s) < 0.05
        assert made.column("status").tolist() == [200] * 4
        assert made.unasked == 0
        assert (made.column("answered_s") >= made.column("sent_s")).all()
        assert {one.answered_by for one in made.sent} == {"instance"}

    asyncio.run(main())
    assert sorted(asked.headers["x-request-id"] for asked in replica.asked) == [f"a%b-{n}" for n in range(4)]
    for asked in replica.asked:
        assert (asked.method, asked.target, asked.body) == ("POST", "/v2/models/m/infer", b"{}%d")
        assert asked.headers["inference-header-content-length"] == "2"
        assert asked.headers["content-type"] == "application/octet-stream"


def test_each_of_several_calls_is_sent_in_its_turn(tmp_path: Path) -> None:
    """A call is sent as it is, and a pipeline's report of its stages is kept."""
    one, other = (Call("sagemaker", "application/json", body) for body in (b"1%d", b"2"))
    replica = FakeReplica(then=lambda asked: said(200, b"", "mark-stages: small=4/function;large=0/late"))

    async def main() -> None:
        await replica.start()
        made = await replay(replica.url, "m", [one, other, one], [0.0, 0.01, 0.02], prefix="q-")
        await replica.stop()
        assert {sent.stages for sent in made.sent} == {"small=4/function;large=0/late"}
        made.write(tmp_path / "log.csv", "q-")

    asyncio.run(main())
    assert {asked.headers["x-request-id"]: (asked.target, asked.body) for asked in replica.asked} == {
        f"q-{n}": ("/invocations", body) for n, body in enumerate((b"1%d", b"2", b"1%d"))
    }
    with (tmp_path / "log.csv").open() as file:
        assert {row["stages"] for row in csv.DictReader(file)} == {"small=4/function;large=0/late"}


def test_a_slow_server_does_not_slow_the_load_down(tmp_path: Path) -> None:
    """The second request is sent although the first hangs, which is given up in the end."""

    def then(asked: Asked) -> bytes:
        number = int(asked.headers["x-request-id"].rpartition("-")[2])
        return (HANG, said(200, b"", "mark-answered-by: function"), CLOSE, said(503))[number]

    async def main() -> None:
        replica = await FakeReplica(then=then).start()
        # patience that is enough for the others
        made = await replay(replica.url, "m", CALL, [0.0, 0.01, 0.02, 0.03], patience_s=2.0)
        await replica.stop()
        assert made.column("status").tolist() == [0, 200, 0, 503]
        assert [one.answered_by for one in made.sent][1::2] == ["function", "nobody"]
        assert math.isnan(made.sent[0].answered_s)
        made.write(tmp_path / "log.csv", "load-")

    asyncio.run(main())
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["request_id"] for row in rows] == [f"load-{n}" for n in range(4)]
    assert [row["status"] for row in rows] == ["0", "200", "0", "503"]


@pytest.mark.parametrize("together", [True, False])
def test_a_replica_that_answers_twice_is_detected(together: bool) -> None:
    """The second answer comes in one piece with the first one, or later, when the request is over."""

    def then(asked: Asked) -> bytes:
        twice = together and asked.headers["x-request-id"] == "load-0"
        return said() * (2 if twice else 1)

    async def main() -> None:
        replica = await FakeReplica(then=then).start()
        running = asyncio.create_task(replay(replica.url, "m", CALL, [0.0, 0.3]))
        await asyncio.wait_for(replica.came.wait(), 5.0)
        if not together:
            replica.say(said())
        made = await running
        await replica.stop()
        assert made.column("status").tolist() == [200] * 2
        assert made.unasked == 1

    asyncio.run(main())


def test_loads_begin_together() -> None:
    """Second 0 is a time of the wall clock."""

    async def main() -> None:
        replica = await FakeReplica().start()
        begin_unix_s = time.time() + 0.2
        made = await replay(replica.url, "m", CALL, [0.0, 0.01], begin_unix_s=begin_unix_s)
        ended_unix_s = time.time()
        await replica.stop()
        assert made.began_unix_s == begin_unix_s
        assert ended_unix_s >= begin_unix_s + 0.01
        assert (made.column("sent_s") >= made.column("due_s")).all()
        assert made.column("answered_s")[-1] <= ended_unix_s - begin_unix_s

    asyncio.run(main())


def test_a_refused_connection_counts_as_failed() -> None:
    async def main() -> None:
        replica = await FakeReplica().start()
        await replica.stop()
        made = await replay(replica.url, "m", CALL, [0.0, 0.01])
        assert made.column("status").tolist() == [0, 0]
        assert made.unasked == 0

    asyncio.run(main())
