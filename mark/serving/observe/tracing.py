"""OpenTelemetry traces, if configured: a span for each request, made when it is answered.

While a request is served only a `RequestTrace` is made, which holds the span's data. The exporter, the sampling and the
service's name come from OpenTelemetry's own environment variables (OTEL_*). The packages are imported only here, and
only when a `Tracer` is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from mark.domain.errors import BadInput
from mark.models.answer import Answer
from mark.serving.observe.observed import ObservedRequest, RequestTrace, ServedBatch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

WHERE = "trace_requests"
_PARENT = (b"traceparent", b"tracestate")  # W3C Trace Context


class Tracer:
    """Makes the spans of the model `name`. Call `begin`, then `served` if a worker answers, then `answered`."""

    def __init__(self, name: str, provider: TracerProvider) -> None:
        # Imported here and below, because the packages are not in a plain installation.
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._name = name
        self._tracer = provider.get_tracer("mark.serving")
        self._extract = TraceContextTextMapPropagator().extract
        self._kind, self._error, self._Status = SpanKind.SERVER, StatusCode.ERROR, Status

    def begin(self, headers: Mapping[bytes, bytes]) -> RequestTrace:
        """Begin the trace of a request with these headers."""
        parent = {name.decode(): headers[name].decode("latin-1") for name in _PARENT if name in headers}
        return RequestTrace(parent)

    def served(self, batch: ServedBatch, service_s: float) -> None:
        """Note that a worker took `service_s` for this batch; its requests are answered next."""
        requests = batch.requests
        for request in requests:
            if request.trace is not None:
                # Numbers and not the batch: it refers to its requests, and cycles wait for the garbage collector.
                request.trace.served = {
                    "mark.wait_s": batch.started_s - request.arrived_s,
                    "mark.service_s": service_s,
                    "mark.batch.items": batch.items,
                    "mark.batch.requests": len(requests),
                }

    def answered(self, request: ObservedRequest, answer: Answer) -> None:
        """Make the span, from the arrival until now."""
        trace = request.trace
        if trace is None:
            return
        end_ns, end_s = time.time_ns(), time.monotonic()
        attributes: dict[str, str | int | float] = {
            "mark.model": self._name,
            "mark.version": answer.version,
            "mark.answered_by": answer.made_by,
            "mark.request_id": request.id,
            "mark.items": request.items,
            "mark.protocol": request.call.protocol,
            "http.response.status_code": answer.reply.status,
        }
        attributes |= trace.served
        span = self._tracer.start_span(
            f"infer {self._name}",
            self._extract(trace.parent) if trace.parent else None,
            self._kind,
            attributes,
            start_time=end_ns - int((end_s - request.arrived_s) * 1e9),
        )
        if answer.reply.status >= 500:
            span.set_status(self._Status(self._error))
        span.end(end_ns)


def from_environment(name: str) -> Tracer:
    """Return a tracer that exports as OTEL_* says: by OTLP if its exporter is installed, otherwise to standard output.

    A thread sends spans in batches, and the last ones when the process ends. Raises BadInput if packages are missing.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise BadInput("needs opentelemetry-sdk: pip install opentelemetry-sdk", WHERE) from None
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence; without them the name would be "unknown_service".
    resource = Resource.create()
    if resource.attributes.get("service.name", "").startswith("unknown_service"):  # type: ignore[union-attr]
        resource = resource.merge(Resource({"service.name": name}))
    provider = TracerProvider(resource=resource)
    installed = {each.name: each for each in entry_points(group="opentelemetry_traces_exporter")}
    for exporter in exporters(os.environ, installed):
        provider.add_span_processor(BatchSpanProcessor(exporter.load()()))
    return Tracer(name, provider)


def exporters(environment: Mapping[str, str], installed: Mapping[str, EntryPoint]) -> list[EntryPoint]:
    """Return the installed exporters that OTEL_TRACES_EXPORTER names. Raises BadInput if one is not installed."""
    named = environment.get("OTEL_TRACES_EXPORTER", "")
    if not named:
        return [_otlp(installed, environment) or installed["console"]]
    found = []
    for one in (each.strip() for each in named.split(",") if each.strip() != "none"):
        exporter = _otlp(installed, environment) if one == "otlp" else installed.get(one)
        if exporter is None:
            package = "opentelemetry-exporter-otlp-proto-http" if one == "otlp" else "the package of that exporter"
            raise BadInput(f"needs {package}", "OTEL_TRACES_EXPORTER", one)
        found.append(exporter)
    return found


def _otlp(installed: Mapping[str, EntryPoint], environment: Mapping[str, str]) -> EntryPoint | None:
    """Return the exporter of the protocol that is asked for, or of one that is installed."""
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environment.get(variable):
            return installed.get("otlp_proto_grpc" if environment[variable] == "grpc" else "otlp_proto_http")
    return installed.get("otlp_proto_http") or installed.get("otlp_proto_grpc")
