"""Undecoded calls and replies: a bouncer passes their bytes on, and the model's process decodes them.

Treat them as frozen. They are not declared frozen because that triples the time to make one, twice for every request.
"""

from __future__ import annotations

from dataclasses import dataclass

# A call that accepts this type is answered with decoded results (`mark.models.results`). Clients may not ask for it.
RESULTS = "application/vnd.mark.results"
# The protocol of calls with decoded items, from a conductor to a stage. Clients may not send one.
BY_VALUE = "results"


@dataclass(slots=True)
class Call:
    """One inference request as received.

    `protocol` is "oip" (Open Inference Protocol v2) or "sagemaker" (`POST /invocations`). The first `json_bytes` of the
    body are JSON and the rest binary tensors (OIP's binary extension); None if the body is not divided.
    """

    protocol: str
    content_type: str
    body: bytes | memoryview
    json_bytes: int | None = None
    accept: str = ""


@dataclass(slots=True)
class Reply:
    """The reply to a call: an HTTP status and a body; for an error `{"error": "..."}` as JSON."""

    status: int
    content_type: str
    body: bytes | memoryview
    json_bytes: int | None = None
