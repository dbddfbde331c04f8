"""The worker's loop alone, over a real channel and real arenas: with one thread, and with a second one."""

from __future__ import annotations

import gc
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import mark.models.model as mark
from mark.models import answering
from mark.models.call import Call, Reply
from mark.serving.worker.shared_memory import BATCH, DONE, MESSAGE_BYTES, SLOTS, Arena
from mark.serving.worker.worker_loop import LONG_S, Loaded, Stages, serve

PATIENCE_S = 60.0
THREADS = pytest.mark.parametrize("ahead_after", [0, 10**9], ids=["ahead", "alone"])


class Model:
    """Three steps that echo, and name their thread; a test may hang something on each."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, bytes]] = []
        self.threads: dict[str, set[int]] = {"decode": set(), "predict": set(), "encode": set()}
        self.on: dict[str, Callable[[bytes], None]] = {}
        self.holds = True

    def step(self, name: str, first: bytes) -> None:
        self.steps.append((name, first))
        self.threads[name].add(threading.get_ident())
        self.on.get(name, lambda first: None)(first)

    def decode(self, calls: Sequence[Call]) -> list[bytes]:
        bodies = [bytes(call.body) for call in calls]
        self.step("decode", bodies[0])
        return bodies

    def predict(self, bodies: list[bytes]) -> None:
        self.step("predict", bodies[0])

    def encode(self, bodies: list[bytes]) -> list[Reply]:
        self.step("encode", bodies[0])
        return [Reply(200, "text/plain", body) for body in bodies]

    def answer(self, calls: Sequence[Call]) -> list[Reply]:
        bodies = self.decode(calls)
        self.predict(bodies)
        return self.encode(bodies)

    def loaded(self, ahead_after: int) -> Loaded:
        stages = Stages(self.decode, self.predict, lambda bodies: self.holds, self.encode)
        return Loaded(stages, ahead_after=ahead_after)


class Bouncer:
    """The other end: hands batches to a loop in a separate thread, and hears of each."""

    def __init__(self, loaded: Loaded) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.settimeout(PATIENCE_S)
        self.theirs = theirs
        self.slots = [(Arena.create("calls"), Arena.create("replies")) for _ in range(SLOTS)]
        self.sent = self.heard = 0
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._serve, args=(loaded,), daemon=True)
        self.thread.start()

    def _serve(self, loaded: Loaded) -> None:
        try:
            serve(self.theirs, self.slots, loaded)
        except BaseException as error:
            self.raised = error

    def send(self, *bodies: bytes) -> None:
        calls, _ = self.slots[self.sent % SLOTS]
        self.sent += 1
        size = calls.write_calls([Call("oip", "text/plain", body) for body in bodies])
        self.channel.send(BATCH.pack(size))

    def hear(self) -> tuple[list[tuple[int, bytes]], float]:
        """Return the replies to the next batch, and their reported time."""
        kind, size, service_s = DONE.unpack(self.channel.recv(MESSAGE_BYTES))
        assert kind == b"D"
        _, replies = self.slots[self.heard % SLOTS]
        self.heard += 1
        return [(reply.status, bytes(reply.body)) for reply in replies.read_replies(size)], service_s

    def end(self) -> None:
        self.channel.shutdown(socket.SHUT_WR)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@contextmanager
def bouncer(loaded: Loaded) -> Iterator[Bouncer]:
    one = Bouncer(loaded)
    try:
        yield one
        one.end()
    finally:
        one.channel.close()
        one.thread.join(PATIENCE_S)
        one.theirs.close()
        if one.raised is not None:
            one.raised = one.raised.with_traceback(None)  # its frames have views of the arenas
        gc.collect()
        for slot in one.slots:
            for arena in slot:
                arena.close()


class Gate:
    """Opens when a step comes to it; to wait for it for too long is a failure."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def open(self) -> None:
        self.event.set()

    def wait(self) -> None:
        assert self.event.wait(PATIENCE_S)


def test_decoding_and_encoding_overlap_with_the_model() -> None:
    """Only one thread at a time is in the model."""
    model = Model()
    decoded, encoded = Gate(), Gate()

    # The first batch is not over before the second is decoded, the second not before the first is encoded.
    def work(first: bytes) -> None:
        (decoded if first == b"1" else encoded).wait()
        threading.Event().wait(0.2 if first == b"1" else 0.0)  # for the other thread, from the gate to the queue

    model.on["predict"] = work
    model.on["decode"] = lambda first: decoded.open() if first == b"2" else None
    model.on["encode"] = lambda first: encoded.open() if first == b"1" else None
    with bouncer(model.loaded(0)) as one:
        one.send(b"1")
        one.send(b"2")
        assert one.hear()[0] == [(200, b"1")]
        assert one.hear()[0] == [(200, b"2")]
    assert model.threads["predict"] == {one.thread.ident}
    assert not model.threads["decode"] & model.threads["predict"]
    assert (
        model.steps.index(("predict", b"2")) < model.steps.index(("encode", b"1")) or len(model.threads["encode"]) == 2
    )


def test_results_not_held_are_encoded_before_the_next_batch() -> None:
    model, decoded = Model(), Gate()
    model.holds = False

    def work(first: bytes) -> None:
        decoded.wait()
        threading.Event().wait(0.1)

    model.on["predict"] = work
    model.on["decode"] = lambda first: decoded.open() if first == b"2" else None
    with bouncer(model.loaded(0)) as one:
        one.send(b"1")
        one.send(b"2")
        assert [one.hear()[0] for _ in range(2)] == [[(200, b"1")], [(200, b"2")]]
    assert model.steps[-3:] == [("encode", b"1"), ("predict", b"2"), ("encode", b"2")]
    assert model.threads["encode"] == {one.thread.ident}


def test_a_model_may_keep_a_buffer_for_its_results() -> None:
    """Each batch is answered with its own numbers, though the next one overwrites the buffer."""

    class Doubles(mark.Model):
        inputs = (mark.TensorSpec("x", "FP64"),)
        out = np.zeros(8)

        def predict(self, batch: list[Any]) -> Any:
            np.multiply(batch, 2.0, out=self.out[: len(batch)])
            threading.Event().wait(2.0 * LONG_S)
            return self.out[: len(batch)]

    one_model = Doubles()
    stages = Stages(
        partial(answering.decode, one_model), partial(answering.predict, one_model), answering.hold,
        partial(answering.encode, one_model),
    )  # fmt: skip
    with bouncer(Loaded(stages, ahead_after=0)) as one:
        for number in range(40):
            one.send(b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[%d]}]}' % number)
            if one.sent - one.heard == SLOTS:
                ((status, body),), _ = one.hear()
                assert (status, json.loads(body)["outputs"][0]["data"]) == (200, [2.0 * (one.heard - 1)])
        one.hear()


@THREADS
@pytest.mark.parametrize("seed", range(3))
def test_each_batch_is_answered_once_and_in_order(seed: int, ahead_after: int, capsys: Any) -> None:
    """This holds for failures in any step, with any number of batches under way."""
    random, model = Random(seed), Model()
    failing: dict[bytes, str] = {}

    def fails(name: str) -> Callable[[bytes], None]:
        def check(first: bytes) -> None:
            if failing.get(first) == name:
                raise ArithmeticError(name)

        return check

    model.on = {name: fails(name) for name in model.threads}
    with bouncer(model.loaded(ahead_after)) as one:
        expected: list[list[tuple[int, bytes]]] = []
        for number in range(300):
            bodies = [b"%d.%d" % (number, index) for index in range(random.randint(1, 5))]
            if random.random() < 0.1:
                failing[bodies[0]] = random.choice(["decode", "predict", "encode"])
                expected.append([(500, b'{"error": "the model failed: ArithmeticError"}')] * len(bodies))
            else:
                expected.append([(200, body) for body in bodies])
            one.send(*bodies)
            while expected and (one.sent - one.heard == SLOTS or random.random() < 0.5):
                replies, service_s = one.hear()
                assert replies == expected.pop(0)
                assert 0.0 < service_s < PATIENCE_S
        while expected:
            assert one.hear()[0] == expected.pop(0)
    assert len(failing) > 10
    assert capsys.readouterr().err.count("ArithmeticError:") == len(failing)
    predicted = [first for name, first in model.steps if name == "predict"]
    assert predicted == sorted(predicted, key=lambda first: int(first.split(b".")[0]))


def test_a_second_thread_begins_where_the_model_takes_long() -> None:
    """It begins after several long batches in a row: a single long batch, or slow decoding or encoding, is not enough.

    It never begins if the steps are unknown.
    """
    model = Model()

    def work(first: bytes) -> None:
        threading.Event().wait(2.0 * LONG_S if first == b"long" else 0.0)  # the test is about long batches

    def late(name: str) -> Callable[[bytes], None]:
        return lambda first: work(b"long" if first == name.encode() else b"")

    model.on = {"predict": work, "decode": late("decode"), "encode": late("encode")}
    with bouncer(model.loaded(3)) as one:
        for body in (b"long", b"long", b"decode", b"encode", b"decode", b"encode", b"short", b"long", b"long"):
            one.send(body)
            one.hear()
        assert model.threads["decode"] == {one.thread.ident}
        one.send(b"long")
        one.hear()
        one.send(b"short")  # the first one that another thread decodes
        one.hear()
        assert len(model.threads["decode"]) == 2
    whole = Model()
    whole.on["predict"] = work
    with bouncer(Loaded(whole.answer)) as one:
        for _ in range(5):
            one.send(b"long")
            one.hear()
    assert whole.threads["decode"] == {one.thread.ident}


@THREADS
def test_the_time_of_a_batch_is_that_of_its_steps(ahead_after: int) -> None:
    """It does not include waiting for the batch before."""
    model = Model()

    def work(first: bytes) -> None:
        if first == b"long":
            threading.Event().wait(0.4)

    model.on["predict"] = work
    with bouncer(model.loaded(ahead_after)) as one:
        one.send(b"long")
        one.send(b"short")
        assert one.hear()[1] >= 0.4
        assert one.hear()[1] < 0.2


def test_results_are_promised_before_the_next_batch_is_begun() -> None:
    """The bouncer thus knows by which batch a model crashed."""
    model, decoded, seen = Model(), Gate(), list[tuple[bytes, bool, bool]]()
    with bouncer(model.loaded(0)) as one:
        for _, replies in one.slots:
            replies.begin()

        def work(first: bytes) -> None:
            if first == b"1":
                decoded.wait()
                threading.Event().wait(0.2)  # for the other thread, from the gate to the queue
            seen.append((first, one.slots[0][1].promised, one.slots[1][1].promised))

        model.on["predict"] = work
        model.on["decode"] = lambda first: decoded.open() if first == b"2" else None
        one.send(b"1")
        one.send(b"2")
        one.hear()
        one.hear()
    assert seen == [(b"1", False, False), (b"2", True, False)]


@THREADS
def test_what_is_there_at_the_end_is_answered(ahead_after: int) -> None:
    model = Model()
    with bouncer(model.loaded(ahead_after)) as one:
        one.send(b"1")
        one.send(b"2")
        one.end()
        assert [one.hear()[0] for _ in range(2)] == [[(200, b"1")], [(200, b"2")]]
    assert one.raised is None


@THREADS
@pytest.mark.parametrize("step", ["decode", "predict", "encode"])
def test_a_model_that_exits_ends_the_loop(ahead_after: int, step: str) -> None:
    """A model may call sys.exit. The loop passes it on in the thread that began the loop."""
    model = Model()

    def leave(first: bytes) -> None:
        raise SystemExit(4)

    model.on[step] = leave
    with bouncer(model.loaded(ahead_after)) as one:
        one.send(b"1")
    assert isinstance(one.raised, SystemExit)


@THREADS
def test_nonsense_and_a_bouncer_that_is_gone_are_raised(ahead_after: int) -> None:
    model = Model()
    with bouncer(model.loaded(ahead_after)) as one:
        one.channel.send(b"?")
    assert isinstance(one.raised, struct.error)
    gone = Gate()
    model.on["predict"] = lambda first: gone.wait()
    with bouncer(model.loaded(ahead_after)) as one:
        one.send(b"1")
        one.channel.shutdown(socket.SHUT_RDWR)
        one.channel.close()
        gone.open()
        one.thread.join(PATIENCE_S)
        assert isinstance(one.raised, BrokenPipeError)
        one.channel, _unused = socket.socketpair()
        _unused.close()
