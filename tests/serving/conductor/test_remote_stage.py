"""A stage elsewhere, over connections that answer, fail and stay silent on command: no socket, no clock."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mark
from mark.domain.rules import second_attempts
from mark.models.answer import INSTANCE, NOBODY, Answer
from mark.models.answering import answer
from mark.models.call import RESULTS, Call, Reply
from mark.models.results import call_with, results_of
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.backend.request import Request
from mark.serving.conductor.remote_stage import RemoteStage, StageAddress
from mark.serving.overflow.http_client import Address, CallFailure, Failure, HttpAnswer

RT_MAX_S = 1.0
AT = StageAddress(Address.of("http://stages:8080"), RT_MAX_S)
JSON = b"application/json"
REFUSED = CallFailure(Failure.UNREACHED, "cannot be reached (Connection refused)")
CLOSED = CallFailure(Failure.CLOSED, "closed the connection")


class FakeLine:
    """Keeps requests until a test answers them or lets them fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, bytes]] = []
        self.cancelled: list[Any] = []
        self.swept = 0
        self.closed = False

    def ask(self, tag: Any, data: bytes, identity: bytes = b"") -> object:
        self.asked.append((tag, data))
        return tag

    def cancel(self, connection: Any, tag: Any) -> None:
        assert connection is tag
        self.cancelled.append(tag)

    def sweep(self) -> None:
        self.swept += 1

    def close(self) -> None:
        self.closed = True


class Setup:
    """A stage, the line to it, a clock, and the answers to calls by id."""

    def __init__(
        self, at: StageAddress = AT, loop: Any = None, described: Callable[[bytes], None] | None = None
    ) -> None:  # a loop is for timers and drains
        self.now_s = 100.0
        self.line = FakeLine()
        self.became_ready = 0
        self.stage = RemoteStage(
            "vision", at, ModelMetrics("p", "1", "vision"), loop,
            became_ready=self._became_ready, described=described, line=lambda asker: self.line, now=lambda: self.now_s,
        )  # fmt: skip
        self.answers: dict[str, tuple[Reply, str]] = {}

    def _became_ready(self) -> None:
        self.became_ready += 1

    def offer(self, identity: str, allowed_s: float = 0.5, key: str = "") -> None:
        until_s = self.now_s + allowed_s
        self.stage.offer(Request(call_with(7), 1, self.now_s, until_s, self._answered, identity, key=key))

    def _answered(self, request: Request, answer: Answer) -> None:
        assert request.id not in self.answers, f"{request.id} is answered twice"
        self.answers[request.id] = answer.reply, answer.made_by

    def calls(self) -> list[tuple[Any, bytes]]:
        return [(tag, data) for tag, data in self.line.asked if data.startswith(b"POST ")]

    def says(self, status: int, body: bytes = b"{}", content_type: bytes = JSON, headers: bytes = b"") -> None:
        """Answer the oldest request."""
        tag, _ = self.line.asked.pop(0)
        self.stage.answered(tag, HttpAnswer(status, content_type, headers, body))

    def predicts(self) -> None:
        """Answer the oldest request as the server of a model that echoes."""
        tag, data = self.line.asked.pop(0)
        reply = answer(mark.model(lambda batch: batch), [call_in(data)])[0]
        length = b"inference-header-content-length: %d\r\n" % (reply.json_bytes or 0)
        self.stage.answered(tag, HttpAnswer(reply.status, reply.content_type.encode(), length, bytes(reply.body)))

    def fails(self, why: CallFailure = REFUSED, began: bool = False) -> None:
        tag, _ = self.line.asked.pop(0)
        self.stage.failed(tag, began, why)

    def status(self, identity: str) -> int:
        return self.answers[identity][0].status

    def probed(self, status: int | None) -> None:
        """Answer a probe of readiness with this status; None gives no answer."""
        self.now_s += AT.probe_s
        self.stage.look()
        if status is None:
            self.fails()
        else:
            self.says(status)


def headers_in(data: bytes) -> dict[bytes, bytes]:
    return dict(line.split(b": ", 1) for line in data.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:])


def call_in(data: bytes) -> Call:
    headers, body = headers_in(data), data.partition(b"\r\n\r\n")[2]
    assert len(body) == int(headers[b"content-length"])
    return Call("results", RESULTS, body, int(headers[b"inference-header-content-length"]), RESULTS)


def test_a_call_is_one_request_with_its_time_and_answer() -> None:
    setup = Setup(replace(AT, key="a-key-of-the-stages"))
    setup.offer("q", 0.25, key="user")
    ((_, data),) = setup.line.asked
    assert data.startswith(b"POST /v2/models/vision/infer HTTP/1.1\r\n")
    headers = headers_in(data)
    body = data.partition(b"\r\n\r\n")[2]
    assert headers == {
        b"host": b"stages:8080",
        b"authorization": b"Bearer a-key-of-the-stages",
        b"content-type": RESULTS.encode(),
        b"content-length": b"%d" % len(body),
        b"inference-header-content-length": b"%d" % len(body),
        b"x-request-id": b"q",
        b"mark-key": b"user",
        b"mark-deadline-ms": b"250.000",
    }
    setup.predicts()
    reply, made_by = setup.answers["q"]
    assert (results_of(reply), made_by) == ([7], INSTANCE)
    assert setup.stage.metrics.requests == {(INSTANCE, 200): 1}


def test_an_answer_of_the_stages_function_is_known_as_one() -> None:
    setup = Setup()
    for identity, by in (("q", b"function"), ("r", b"instance")):
        setup.offer(identity)
        setup.says(200, headers=b"mark-answered-by: %b\r\nx-request-id: q\r\n" % by)
        assert setup.answers[identity][1] == by.decode()
    setup.offer("s")
    setup.says(429)
    assert setup.answers["s"][1] == NOBODY
    assert setup.stage.metrics.requests == {("function", 200): 1, ("instance", 200): 1, ("nobody", 429): 1}


def test_calls_and_questions_name_the_stage_among_all_services() -> None:
    """A load balancer before several stages routes by this header; a stage without a name sends none."""
    for service, lines in (("pipeline-vision", [b"mark-service: pipeline-vision"]), ("", [])):
        setup = Setup(replace(AT, service=service))
        setup.stage.look()
        setup.offer("a")
        asked = [data for _, data in setup.line.asked]
        assert [data.split()[0] for data in asked] == [b"GET", b"POST"]
        for data in asked:
            head = data.partition(b"\r\n\r\n")[0].split(b"\r\n")
            assert [line for line in head if line.startswith(b"mark-service")] == lines


def test_a_call_with_just_the_stages_own_time_says_none() -> None:
    """The stage's server then uses its own promise, and finds out whether its times are wrong (`Conductor.call`)."""
    setup = Setup()
    setup.offer("q", RT_MAX_S)
    assert b"mark-deadline-ms" not in headers_in(setup.line.asked[0][1])


def test_the_way_there_and_back_is_taken_off_the_time() -> None:
    setup = Setup()
    setup.stage.look()
    setup.now_s += 0.125  # the duration of the probe
    setup.says(200)
    setup.offer("q", 0.5)
    assert headers_in(setup.line.asked[0][1])[b"mark-deadline-ms"] == b"375.000"
    setup.offer("too late", 0.125)
    assert setup.status("too late") == 504


@pytest.mark.parametrize(
    ("status", "given", "made_by"),
    [
        (400, 400, INSTANCE), (413, 413, NOBODY), (429, 429, NOBODY), (500, 500, INSTANCE), (504, 504, NOBODY),
        (302, 502, NOBODY), (401, 502, NOBODY), (404, 502, NOBODY), (502, 502, NOBODY),
    ],
)  # fmt: skip
def test_errors_of_a_stage_are_those_of_the_call(status: int, given: int, made_by: str) -> None:
    setup = Setup()
    setup.offer("q")
    setup.says(status, b'{"error": "of the stage"}')
    reply, by = setup.answers["q"]
    error = "of the stage" if status == given != 502 else f"its server answers with status {status}"
    assert (reply.status, by, json.loads(bytes(reply.body))) == (given, made_by, {"error": error})


@pytest.mark.parametrize(("why", "began", "status"), [(REFUSED, False, 503), (CLOSED, False, 503), (CLOSED, True, 502)])
def test_a_call_that_brings_no_answer_is_made_once_more(why: CallFailure, began: bool, status: int) -> None:
    setup = Setup()
    setup.offer("lucky", 0.5)
    setup.now_s += 0.2
    setup.fails(why, began)
    assert headers_in(setup.line.asked[0][1])[b"mark-deadline-ms"] == b"300.000"  # the time that is left now
    setup.predicts()
    assert setup.status("lucky") == 200
    setup.offer("not")
    setup.fails(why, began)
    setup.fails(why, began)
    assert (setup.status("not"), setup.line.asked) == (status, [])
    assert setup.stage.metrics.retries == 2


def test_a_stage_that_takes_nothing_now_is_asked_once_more() -> None:
    setup = Setup()
    setup.offer("a")
    setup.says(503)
    setup.predicts()
    assert setup.status("a") == 200
    setup.offer("b")
    setup.says(503)
    setup.says(503, b'{"error": "no worker is ready"}')
    assert setup.status("b") == 503
    # A server with too much to do is not.
    setup.offer("c")
    setup.says(429)
    assert (setup.status("c"), setup.line.asked) == (429, [])


def test_second_calls_have_a_budget_and_need_time() -> None:
    setup = Setup(replace(AT, retry_burst=2.0, retry_share=0.25))
    for number in range(20):
        setup.offer(f"q{number}")
        while setup.line.asked:
            setup.fails()
    assert setup.stage.metrics.retries == 6  # two together, then every fourth
    setup = Setup()
    setup.offer("q", 0.5)
    setup.now_s += 0.5
    setup.fails()
    assert (setup.status("q"), setup.line.asked) == (503, [])


class FakeHandle:
    """A timer that a test fires itself, cancelled or not."""

    def cancel(self) -> None:
        """Do nothing: a call that ended must not mind that its timer fires."""


class Timers:
    """A loop that keeps delayed calls until the test runs them."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Any, tuple[Any, ...]]] = []

    def call_later(self, wait_s: float, call: Any, *args: Any) -> FakeHandle:
        self.later.append((wait_s, call, args))
        return FakeHandle()

    def time_comes(self) -> None:
        _, call, args = self.later.pop(0)
        call(*args)


def hedging(**changed: Any) -> tuple[Setup, Timers]:
    timers = Timers()
    setup = Setup(replace(AT, hedge_after_s=0.1, **changed), timers)
    setup.probed(200)
    return setup, timers


def test_call_that_takes_long_is_made_a_second_time_and_the_first_answer_wins() -> None:
    for first in (0, 1):
        setup, timers = hedging()
        setup.offer("a")
        assert timers.later[0][0] == pytest.approx(0.1)
        setup.now_s += 0.1
        timers.time_comes()
        attempts = [tag for tag, _ in setup.calls()]
        assert len(attempts) == 2
        assert not timers.later, "there is no third attempt"
        setup.line.asked = [setup.line.asked[first]]
        setup.predicts()
        assert setup.status("a") == 200
        assert setup.line.cancelled == [attempts[1 - first]]
        assert setup.stage.metrics.hedges == 1


def test_answer_before_the_delay_leaves_one_call() -> None:
    setup, timers = hedging()
    setup.offer("a")
    setup.predicts()
    timers.time_comes()
    assert not setup.calls()
    assert setup.stage.metrics.hedges == 0


def test_attempt_that_brings_no_answer_leaves_the_call_to_the_other() -> None:
    for refused in (True, False):
        setup, timers = hedging()
        setup.offer("a")
        timers.time_comes()
        setup.says(503) if refused else setup.fails()
        assert "a" not in setup.answers
        assert len(setup.calls()) == 1, "a call has two attempts at most"
        setup.says(503) if refused else setup.fails()
        assert setup.status("a") == 503


def test_second_attempts_of_all_kinds_have_one_budget() -> None:
    setup, timers = hedging(retry_burst=1.0, retry_share=0.0)
    for identity in ("a", "b"):
        setup.offer(identity)
    timers.time_comes()
    timers.time_comes()
    assert len(setup.calls()) == 3
    assert setup.stage.metrics.hedges == 1
    setup.line.asked = setup.line.asked[1:2]
    setup.fails()
    assert setup.status("b") == 503, "nothing is left to retry it"


def test_call_without_time_for_a_second_one_gets_none() -> None:
    setup, timers = hedging()
    setup.offer("a", allowed_s=0.5)
    setup.now_s += 0.6
    timers.time_comes()
    assert len(setup.calls()) == 1


def test_hanging_attempts_are_given_up_together() -> None:
    setup, timers = hedging()
    setup.offer("a")
    timers.time_comes()
    setup.now_s += 5.0
    setup.stage.look()
    assert setup.status("a") == 504
    assert len(setup.line.cancelled) == 2


def test_second_attempts_are_a_share_of_calls_as_everywhere() -> None:
    assert (AT.retry_share, AT.retry_burst) == (second_attempts.SHARE, second_attempts.BURST)


def test_the_least_time_of_calls_is_learned_from_answered_ones() -> None:
    setup = Setup()
    assert setup.stage.least_s == 0.0
    for took_s in (0.25, 0.125, 0.25):
        setup.offer(f"q{setup.now_s}")
        setup.now_s += took_s
        setup.predicts()
    assert setup.stage.least_s == 0.125
    setup.offer("refused")
    setup.says(429)
    assert setup.stage.least_s == 0.125


def test_readiness_is_what_the_stage_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    setup = Setup()
    setup.stage.look()
    assert setup.line.asked[0][1] == b"GET /v2/models/vision/ready HTTP/1.1\r\nhost: stages:8080\r\n\r\n"
    setup.says(200)
    assert (setup.stage.ready, setup.became_ready, setup.stage.metrics.workers_ready) == (True, 1, 1)
    setup.stage.look()
    assert setup.line.asked == []  # not yet
    setup.probed(200)
    assert setup.became_ready == 1
    # Calls still go to a stage that is not ready, because its server may know better.
    setup.probed(503)
    assert (setup.stage.ready, setup.stage.metrics.workers_ready) == (False, 0)
    setup.offer("asked")
    setup.predicts()
    assert setup.status("asked") == 200
    setup.probed(None)
    setup.offer("refused")
    assert (setup.status("refused"), setup.line.asked) == (503, [])
    setup.probed(404)
    assert not setup.stage.ready
    setup.probed(200)
    assert (setup.stage.ready, setup.became_ready) == (True, 2)
    said = [record.getMessage().removeprefix("stage vision: http://stages:8080 ") for record in caplog.records]
    assert said == [
        "is ready", "is not ready: status 503", f"is not ready: {REFUSED}", "is not ready: status 404", "is ready",
    ]  # fmt: skip


def test_a_function_that_answers_for_the_stage_is_asked_rarely() -> None:
    """The function is billed for each probe, and the start of its environment is not a round-trip time."""
    setup = Setup()
    setup.stage.look()
    setup.now_s += 0.5  # of a cold start
    setup.says(200, headers=b"mark-answered-by: function\r\n")
    assert (setup.stage.ready, setup.became_ready) == (True, 1)
    setup.offer("q", 0.25)
    assert headers_in(setup.line.asked.pop()[1])[b"mark-deadline-ms"] == b"250.000"
    setup.now_s += AT.function_probe_s - 0.125
    setup.stage.look()
    assert setup.line.asked == []
    setup.now_s += 0.125
    setup.stage.look()
    assert len(setup.line.asked) == 1
    setup.says(200)
    setup.probed(200)


def test_a_stage_that_is_not_ready_is_asked_less_often() -> None:
    """A load balancer counts each probe as a request; a silent address, whose calls are refused, is still probed."""

    def questions_in(seconds: float, status: int | None) -> list[float]:
        asked, until_s = [], setup.now_s + seconds
        while setup.now_s < until_s:
            setup.stage.look()
            if setup.line.asked:
                asked.append(setup.now_s)
                setup.fails() if status is None else setup.says(status)
            setup.now_s += 0.25
        return [later - one for one, later in itertools.pairwise(asked)]

    setup = Setup()
    assert questions_in(16.0, 503) == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert set(questions_in(8.0, None)) == {0.25}
    assert questions_in(4.0, 503) == [0.25, 0.5, 1.0, 2.0]
    assert set(questions_in(8.0, 200)) == {AT.probe_s}
    assert questions_in(3.0, 503) == [0.25, 0.5, 1.0]


def test_an_unanswered_question_is_a_silent_address() -> None:
    setup = Setup()
    setup.stage.look()
    ((probe, _),) = setup.line.asked
    setup.now_s += 0.875 * AT.probe_s
    setup.stage.look()
    setup.offer("q")
    assert (len(setup.calls()), setup.line.cancelled) == (1, [])
    setup.now_s += 0.125 * AT.probe_s
    setup.stage.look()
    assert setup.line.cancelled == [probe]
    setup.offer("refused")
    assert setup.status("refused") == 503


def test_a_stage_too_busy_to_answer_stays_ready() -> None:
    setup = Setup()
    setup.probed(200)
    setup.now_s += AT.probe_s
    setup.stage.look()
    question = setup.line.asked.pop()
    setup.offer("q", 0.75)
    setup.now_s += 0.5
    setup.predicts()
    setup.now_s += 0.5
    setup.stage.look()
    assert (setup.line.cancelled, setup.stage.ready) == ([question[0]], True)
    setup.stage.look()  # it is asked again
    setup.now_s += AT.probe_s
    setup.stage.look()
    assert not setup.stage.ready


def test_a_kept_connection_just_closed_says_nothing_of_readiness() -> None:
    setup = Setup()
    setup.stage.look()
    setup.fails(CLOSED)
    setup.says(200)
    assert setup.stage.ready


def test_a_hanging_call_is_given_up_after_its_query() -> None:
    setup = Setup()
    setup.offer("q", 0.5)
    ((tag, _),) = setup.line.asked
    setup.now_s += 0.5 + RT_MAX_S - 0.125
    setup.stage.look()
    assert setup.answers == {}
    setup.now_s += 0.125
    setup.stage.look()
    assert (setup.status("q"), setup.line.cancelled) == (504, [tag])


def test_calls_beyond_connections_wait_in_order_or_are_dropped() -> None:
    setup = Setup(replace(AT, most_calls=1, most_queued=2))
    for identity, allowed_s in (("a", 0.9), ("late", 0.1), ("b", 0.9), ("refused", 0.9)):
        setup.offer(identity, allowed_s)
    assert (len(setup.line.asked), setup.status("refused")) == (1, 429)
    setup.stage.metrics.refresh()
    assert (setup.stage.metrics.running, setup.stage.metrics.queued) == (1, 2)
    setup.now_s += 0.2
    setup.predicts()
    assert (setup.status("a"), setup.status("late")) == (200, 504)
    setup.predicts()
    assert setup.status("b") == 200


def test_a_drain_waits_and_leaves_nothing_without_an_answer() -> None:
    async def main() -> None:
        setup = Setup(replace(AT, most_calls=1), asyncio.get_running_loop())
        setup.offer("a", 0.9)
        setup.offer("b", 0.9)
        draining = asyncio.ensure_future(setup.stage.drain(setup.now_s + 30.0))
        await asyncio.sleep(0)
        setup.offer("new")
        assert setup.status("new") == 503
        setup.predicts()
        setup.predicts()
        await draining
        assert ([setup.status(each) for each in "ab"], setup.line.closed) == ([200, 200], True)
        setup = Setup(replace(AT, most_calls=1), asyncio.get_running_loop())
        setup.offer("a")
        setup.offer("b")
        await setup.stage.drain(setup.now_s)
        assert ([setup.status(each) for each in "ab"], len(setup.line.cancelled)) == ([503, 503], 1)

    asyncio.run(main())


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.floats(0.01, 2.0)),
        st.tuples(st.sampled_from(("answer", "refuse", "fail", "break")), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.floats(0.0, 1.0)),
    ),
    max_size=60,
)


@given(EVENTS, st.integers(1, 3), st.integers(1, 3))
def test_every_call_is_answered_once_and_made_twice_at_most(
    events: list[tuple[str, Any]], most_calls: int, most_queued: int
) -> None:
    setup = Setup(replace(AT, most_calls=most_calls, most_queued=most_queued, retry_burst=3.0))
    made: Counter[bytes] = Counter()
    offered: list[str] = []

    def pick(number: int) -> tuple[Any, bytes] | None:
        alive = [(tag, data) for tag, data in setup.line.asked if tag not in setup.line.cancelled]
        if not alive:
            return None
        chosen = alive[number % len(alive)]
        setup.line.asked.remove(chosen)
        return chosen

    def happens(what: str, number: int) -> None:
        if (chosen := pick(number)) is None:
            return
        tag, data = chosen
        made[headers_in(data).get(b"x-request-id", b"")] += 1
        if what in ("answer", "refuse"):
            setup.stage.answered(tag, HttpAnswer(200 if what == "answer" else 503, JSON, b"", b"{}"))
        else:
            setup.stage.failed(tag, what == "break", CLOSED)

    for what, value in events:
        if what == "offer":
            offered.append(f"q{len(offered)}")
            setup.offer(offered[-1], value)
        elif what == "wait":
            setup.now_s += value
            setup.stage.look()
        else:
            happens(what, value)
        assert len([1 for tag, _ in setup.calls() if tag not in setup.line.cancelled]) <= most_calls
    for _ in range(3):
        setup.now_s += 5.0
        setup.stage.look()
    assert sorted(setup.answers) == sorted(offered)
    made.pop(b"", None)  # questions for readiness
    assert all(count <= 2 for count in made.values())


def test_numbers_have_the_label_of_the_stage() -> None:
    setup = Setup()
    setup.offer("q")
    setup.predicts()
    setup.offer("answered late", 0.25)
    setup.now_s += 0.5
    setup.predicts()
    setup.offer("expired", 0.0)
    metrics = Metrics()
    metrics.models = [setup.stage.metrics]
    page = metrics.page().decode()
    of = 'model="p",stage="vision",version="1"'
    assert f'mark_requests_total{{answered_by="instance",code="200",{of}}} 2.0' in page
    assert 'mark_refused_total{model="p",reason="expired",stage="vision",version="1"} 1.0' in page
    assert f"mark_latency_seconds_count{{{of}}} 2.0" in page
    assert f"mark_deadline_misses_total{{{of}}} 2.0" in page


def asked_for(setup: Setup) -> str:
    """Let the next probe be sent, and return its path."""
    setup.now_s += AT.probe_s
    setup.stage.look()
    return setup.line.asked[-1][1].split()[1].decode()


@pytest.mark.parametrize("status", [200, 404])
def test_stage_that_is_ready_is_asked_for_its_metadata_once(status: int) -> None:
    found: list[bytes] = []
    setup = Setup(described=found.append)
    assert asked_for(setup) == "/v2/models/vision/ready"
    setup.says(200)
    assert asked_for(setup) == "/v2/models/vision"
    setup.says(status, b'{"outputs": []}')
    assert setup.stage.ready
    assert asked_for(setup) == "/v2/models/vision/ready"
    assert found == ([b'{"outputs": []}'] if status == 200 else [])


def test_connection_that_closes_on_the_question_for_metadata_is_asked_for_readiness() -> None:
    found: list[bytes] = []
    setup = Setup(described=found.append)
    asked_for(setup)
    setup.says(200)
    assert asked_for(setup) == "/v2/models/vision"
    setup.fails(CLOSED)
    assert setup.line.asked[-1][1].startswith(b"GET /v2/models/vision/ready ")
    setup.says(503)
    assert not setup.stage.ready
    assert not found
