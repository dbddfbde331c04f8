"""What goes into a model server and comes out of it, undecoded: a bouncer passes bytes on, the model's process reads.

Treat them as frozen; they are not declared so because that triples what making one costs, twice for every request.
"""

from __future__ import annotations

from dataclasses import dataclass

# A call that accepts this is answered with decoded results (`mark.models.results`); no client may ask for it.
RESULTS = "application/vnd.mark.results"
# The protocol of calls whose items are such values: from a conductor to a stage, and no client may send one.
BY_VALUE = "results"


@dataclass(slots=True)
class Call:
    """One inference request as it came over the wire.

    `protocol` is "oip" (Open Inference Protocol v2) or "sagemaker" (`POST /invocations`). `json_bytes` is how much of
    the body is JSON, what follows are binary tensors (OIP's binary extension); None: there is no such part.
    """

    protocol: str
    content_type: str
    body: bytes | memoryview
    json_bytes: int | None = None
    accept: str = ""


@dataclass(slots=True)
class Reply:
    """What answers a call: an HTTP status, and a body; for an error `{"error": "..."}` as JSON."""

    status: int
    content_type: str
    body: bytes | memoryview
    json_bytes: int | None = None
