"""Spans by OpenTelemetry's own exporter in memory, and of a real process that prints them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mark.domain.errors import BadInput
from mark.models.answer import Answer
from mark.models.call import Call
from mark.serving.backend.request import Request
from mark.serving.observe.tracing import Tracer, exporters, from_environment
from tests.serving.place import RT_MAX_S, Place
from tests.serving.test_server_process import INFER, address, body
from tests.serving.test_server_process import folder as folder  # a fixture

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = CLIENT[:-2] + "00"
GOOD = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}).encode()


class Seen:
    """Spans of a tracer."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = Tracer("twice", provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()


def spans_of(*asked: tuple[bytes, Mapping[bytes, bytes]], drained: bool = False) -> list[ReadableSpan]:
    """Return one span for each (body, headers), all offered in one turn of the loop."""
    seen = Seen()

    async def main() -> None:
        place = Place(tracer=seen.tracer)
        place.replica.worker_ready(0)
        if drained:
            place.replica.bouncer.drain(0.0, 0.0)
        answers: list[Answer] = []
        done = asyncio.Event()

        def answered(request: Request, answer: Answer) -> None:
            answers.append(answer)
            seen.tracer.answered(request, answer)
            if len(answers) == len(asked):
                done.set()

        for content, headers in asked:
            call = Call("oip", "application/json", content)
            place.server.infer(call, headers, time.monotonic() - 0.25, None, answered)
        await asyncio.wait_for(done.wait(), 10)

    asyncio.run(main())
    assert len(seen.spans) <= len(asked)
    return list(seen.spans)


def test_a_span_has_answerer_wait_and_batch() -> None:
    before_ns = time.time_ns()
    first, second = spans_of((GOOD, {b"x-request-id": b"a"}), (GOOD, {b"x-request-id": b"b"}))
    assert (first.name, first.kind, first.parent) == ("infer twice", SpanKind.SERVER, None)
    said = dict(first.attributes or {})
    wait_s = said.pop("mark.wait_s")
    assert isinstance(wait_s, float)
    assert 0.25 <= wait_s < 0.25 + RT_MAX_S
    assert said == {
        "mark.model": "twice",
        "mark.version": "1",
        "mark.answered_by": "instance",
        "mark.request_id": "a",
        "mark.items": 2,
        "mark.protocol": "oip",
        "http.response.status_code": 200,
        "mark.service_s": 0.001,
        "mark.batch.items": 4,
        "mark.batch.requests": 2,
    }
    assert second.attributes is not None
    assert second.attributes["mark.request_id"] == "b"
    # It began a quarter of a second before it was offered.
    assert first.start_time is not None
    assert first.end_time is not None
    assert before_ns - 0.3e9 < first.start_time
    assert before_ns < first.end_time <= time.time_ns()
    assert first.end_time - first.start_time >= 0.25e9
    assert first.status.status_code == StatusCode.UNSET


def test_the_clients_trace_goes_on() -> None:
    (span,) = spans_of((GOOD, {b"traceparent": CLIENT.encode(), b"tracestate": b"vendor=1"}))
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == CLIENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert span.parent.is_remote
    assert dict(span.context.trace_state) == {"vendor": "1"}


def test_a_trace_that_is_not_sampled_makes_no_span() -> None:
    assert spans_of((GOOD, {b"traceparent": UNSAMPLED.encode()})) == []


@pytest.mark.parametrize("parent", [b"", b"nonsense", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01", b"\xff\xfe"])
def test_a_malformed_parent_is_none(parent: bytes) -> None:
    (span,) = spans_of((GOOD, {b"traceparent": parent}))
    assert span.parent is None


def test_the_clients_mistake_is_no_error_of_the_server() -> None:
    (span,) = spans_of((b"{", {}))
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 400
    assert span.status.status_code == StatusCode.UNSET


def test_a_refusal_has_no_batch_and_is_an_error() -> None:
    (span,) = spans_of((GOOD, {}), drained=True)
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 503
    assert span.attributes["mark.answered_by"] == "nobody"
    assert not any(key.startswith(("mark.batch", "mark.wait", "mark.service")) for key in span.attributes)
    assert span.status.status_code == StatusCode.ERROR


def test_a_malformed_deadline_has_its_span() -> None:
    (span,) = spans_of((GOOD, {b"mark-deadline-ms": b"soon"}))
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 400


# --- exporters


def installed(*names: str) -> dict[str, EntryPoint]:
    return {name: EntryPoint(name, f"{name}:Exporter", "opentelemetry_traces_exporter") for name in names}


CONSOLE = ("console",)
BOTH = ("console", "otlp_proto_http", "otlp_proto_grpc")


@pytest.mark.parametrize(
    ("environment", "there", "chosen"),
    [
        ({}, CONSOLE, ["console"]),
        ({}, BOTH, ["otlp_proto_http"]),
        ({}, ("console", "otlp_proto_grpc"), ["otlp_proto_grpc"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, BOTH, []),
        ({"OTEL_TRACES_EXPORTER": "console"}, BOTH, ["console"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, BOTH, ["console", "otlp_proto_http"]),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, BOTH, ["otlp_proto_grpc"]),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, BOTH, ["otlp_proto_http"]),
    ],
)
def test_spans_go_where_the_environment_says(environment: dict[str, str], there: tuple[str, ...], chosen: Any) -> None:
    assert [each.name for each in exporters(environment, installed(*there))] == chosen


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("otlp", "needs opentelemetry-exporter-otlp-proto-http"),
        ("zipkin", "needs the package of that exporter"),
    ],
)
def test_an_exporter_that_is_not_installed_is_bad_input(named: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        exporters({"OTEL_TRACES_EXPORTER": named}, installed(*CONSOLE))


def test_without_the_packages_it_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(BadInput, match="pip install opentelemetry-sdk"):
        from_environment("any")


def test_tracing_is_imported_only_when_enabled() -> None:
    unwanted = ("opentelemetry", "grpc", "google.protobuf")
    code = f"import sys, mark.serving.server_process; print([name for name in {unwanted} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_process_prints_its_spans_before_it_ends(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mark.cli.main", "serve", "echo.toml", "--port", "0", "--trace-requests"],
        cwd=folder,
        env=os.environ | {"OTEL_TRACES_EXPORTER": "console", "OTEL_RESOURCE_ATTRIBUTES": "zone=a"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = address(process)
        for number in range(3):
            got = httpx.post(url + INFER, content=body(number), headers={"traceparent": CLIENT}, trust_env=False)
            assert got.status_code == 200
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    decoder, spans, at = json.JSONDecoder(), [], 0
    while at < len(out.rstrip()):
        span, end = decoder.raw_decode(out, at)
        spans.append(span)
        at = end + 1
    assert [span["name"] for span in spans] == ["infer echo"] * 3
    assert {span["context"]["trace_id"] for span in spans} == {"0x" + CLIENT.split("-")[1]}
    resource = spans[0]["resource"]["attributes"]
    assert (resource["service.name"], resource["zone"]) == ("echo", "a")
