"""The OpenAPI description of the data plane, served at `GET /openapi.json` and checked against the server by tests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from mark.domain.version import VERSION
from mark.models.model import DATATYPES
from mark.serving.feedback.port import RESULTS
from mark.serving.frontend.routes import ModelRoute

_JSON, _BYTES = "application/json", "application/octet-stream"
# The listener may answer any request with these, before or while it reads it.
_DOOR = {
    400: "malformed",
    401: "no key",
    403: "a key for something else",
    408: "too slow",
    413: "too large",
    414: "too long a target",
    417: "unknown expectation",
    431: "too large headers",
    501: "unknown method or coding",
    503: "not ready, draining, or too many connections",
    505: "not HTTP/1",
}
_INFER = {
    415: "unknown content-encoding",
    429: "overloaded: come back after `retry-after` seconds",
    500: "the model failed",
    504: "the deadline passed",
}
_NOT_FOUND = {404: "no such version"}


def openapi(
    name: str, versions: Sequence[str], inputs: Sequence[dict[str, Any]], more_routes: Sequence[ModelRoute] = ()
) -> dict[str, Any]:
    """Return the description, version 3.1, of the routes of a model `name` in these versions.

    `inputs` come from its metadata, for an example. The `more_routes` of the model describe themselves.
    """
    model, version = f"/v2/models/{name}", "/versions/{version}"
    paths: dict[str, Any] = {
        "/": {"get": _operation("index", "Index of the routes", {200: {_JSON: _ref("Index"), "text/html": {}}})},
        "/docs": {"get": _operation("docs", "This description as a page", {200: {"text/html": {}}})},
        "/v2": {"get": _get("serverMetadata", "Server metadata", _ref("Server"))},
        "/v2/health/live": {"get": _get("live", "Is the process there?", _flag("live"))},
        "/v2/health/ready": {"get": _get("ready", "Would a request be served?", _flag("ready"), _flag("ready"))},
        "/ping": {"get": _operation("ping", "Readiness, SageMaker's way", {200: {}, 503: {}})},
        "/metrics": {"get": _operation("metrics", "Prometheus' text format", {200: {"text/plain": {}}})},
        "/openapi.json": {"get": _get("openapi", "This description", {"type": "object"})},
        "/invocations": {"post": _invocations()},
        "/v2/repository/index": {"post": _repository_index()},
    }
    for prefix, more in ((model, ""), (model + version, "OfVersion")):
        ready = _object({"name": _TEXT, "ready": {"type": "boolean"}}, ["name", "ready"])
        routes: dict[str, dict[str, Any]] = {
            "": {"get": _get(f"modelMetadata{more}", "Inputs and outputs of the model", _ref("Model"))},
            "/ready": {"get": _get(f"modelReady{more}", "Would a request for it be served?", ready, ready)},
            "/infer": {"post": _infer(f"infer{more}", [] if more else inputs)},
        }
        for route in more_routes:
            if route.described is not None and (route.by_version or not more):
                path = route.path.decode().replace("*", "{id}")
                routes.setdefault(path, {})[route.method.decode().lower()] = route.described(more)
        for rest, methods in routes.items():
            paths[prefix + rest] = methods
            if more:
                for operation in methods.values():
                    operation["responses"] |= _errors(_NOT_FOUND)
                methods["parameters"] = [_parameter("path", "version", {"type": "string", "enum": list(versions)})]
    return {
        "openapi": "3.1.0",
        "info": {"title": f"mark: {name}", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS | {name: schema for route in more_routes for name, schema in route.schemas.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],  # an empty one for servers without keys
    }


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _flag(name: str) -> dict[str, Any]:
    return _object({name: {"type": "boolean"}}, [name])


_TEXT = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_TENSOR: dict[str, Any] = {
    "name": _TEXT,
    "datatype": {"type": "string", "enum": list(DATATYPES)},
    "shape": {"type": "array", "items": {"type": "integer"}},
}
_GIVEN = _TENSOR | {"shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}}
_DATA = {"type": "array", "description": "elements, flat or nested as the shape is"}
_SCHEMAS: dict[str, Any] = {
    "Error": _object({"error": _TEXT}, ["error"]),
    "Index": _object(
        {"name": _TEXT, "version": _TEXT, "title": _TEXT, "endpoints": {"type": "object"}},
        ["name", "version", "title", "endpoints"],
    ),
    "ModelState": _object(
        {"name": _TEXT, "version": _TEXT, "state": {"enum": ["READY", "UNAVAILABLE"]}, "reason": _TEXT},
        ["name", "version", "state", "reason"],
    ),
    "Server": _object(
        {"name": _TEXT, "version": _TEXT, "extensions": {"type": "array", "items": _TEXT}}, ["name", "version"]
    ),
    "Tensor": _object(_TENSOR, _TENSOR),
    "Model": _object(
        {
            "name": _TEXT,
            "versions": {"type": "array", "items": _TEXT},
            "platform": _TEXT,
            "inputs": {"type": "array", "items": _ref("Tensor")},
            "outputs": {"type": "array", "items": _ref("Tensor")},
        },
        ["name", "versions", "platform", "inputs", "outputs"],
    ),
    "InferRequest": _object(
        {
            "id": _TEXT,
            "inputs": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    _GIVEN
                    | {"data": _DATA, "parameters": _object({"binary_data_size": {"type": "integer", "minimum": 0}})},
                    _GIVEN,
                ),
            },
            "outputs": {
                "type": "array",
                "items": _object({"name": _TEXT, "parameters": _object({"binary_data": _BOOLEAN})}, ["name"]),
            },
            "parameters": _object({"binary_data_output": _BOOLEAN}),
        },
        ["inputs"],
    ),
    "InferResponse": _object(
        {
            "model_name": _TEXT,
            "model_version": _TEXT,
            "id": _TEXT,
            "outputs": {
                "type": "array",
                "items": _object(_TENSOR | {"data": _DATA, "parameters": {"type": "object"}}, _TENSOR),
            },
        },
        ["model_name", "outputs"],
    ),
}
FEEDBACK_SCHEMAS: dict[str, Any] = {
    "Feedback": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": 128, "description": "the answer's x-request-id"},
            "label": {"description": "the right answer"},
            "reward": {"type": "number", "description": "how good it was"},
            "key": {"type": "string", "description": "whose reward it is, where it is on no given answer"},
            "item": {"type": "string", "description": "the item that it is on"},
        },
        "required": ["id"],
        "anyOf": [{"required": ["label"]}, {"required": ["reward"]}],
    },
    "FeedbackResults": _object(
        {
            "results": {
                "type": "array",
                "items": _object({"id": _TEXT, "result": {"enum": list(RESULTS)}, "reason": _TEXT}, ["id", "result"]),
            }
        },
        ["results"],
    ),
}


def _parameter(where: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"in": where, "name": name, "schema": schema, "required": where == "path"}


_HEADERS = [
    _parameter("header", "x-request-id", _TEXT),
    _parameter("header", "mark-deadline-ms", {"type": "number", "minimum": 0}),
    _parameter("header", "mark-accept", {"enum": ["exact", "degraded"]}),
]
_LENGTH = _parameter("header", "inference-header-content-length", {"type": "integer", "minimum": 0})
_WHO = {
    "x-request-id": {"schema": _TEXT},
    "mark-answered-by": {"schema": {"enum": ["instance", "function", "cache", "reconstruction", "default"]}},
}


def _content(by_type: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in by_type.items()}


def _errors(statuses: dict[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, why in statuses.items():
        found[str(status)] = {"description": why, "content": _content({_JSON: _ref("Error")})}
        if status in (429, 503):
            found[str(status)]["headers"] = {"retry-after": {"schema": {"type": "integer", "minimum": 1}}}
    return found


def _operation(
    identity: str, what: str, answers: dict[int, dict[str, Any]], errors: dict[int, str] | None = None
) -> dict[str, Any]:
    responses = _errors(_DOOR | (errors or {}))
    for status, by_type in answers.items():
        responses[str(status)] = {"description": what} | ({"content": _content(by_type)} if by_type else {})
    return {"operationId": identity, "summary": what, "responses": responses}


def _get(identity: str, what: str, schema: dict[str, Any], unready: dict[str, Any] | None = None) -> dict[str, Any]:
    answers = {200: {_JSON: schema}}
    if unready is not None:
        answers[503] = {_JSON: {"anyOf": [unready, _ref("Error")]}}
    return _operation(identity, what, answers)


def _infer(identity: str, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    made = _operation(
        identity, "Infer, by the Open Inference Protocol", {200: {_JSON: _ref("InferResponse"), _BYTES: {}}}, _INFER
    )
    made["responses"]["200"]["headers"] = _WHO
    body = _content({_JSON: _ref("InferRequest"), _BYTES: {}})
    if inputs:
        body[_JSON]["example"] = {"inputs": [_zeros(each) for each in inputs]}
    return made | {"parameters": [*_HEADERS, _LENGTH], "requestBody": {"required": True, "content": body}}


def _zeros(tensor: dict[str, Any]) -> dict[str, Any]:
    """Return an example input of one item for this tensor of the metadata."""
    shape = [max(1, length) for length in tensor["shape"]]
    zero = {"BYTES": "", "BOOL": False}.get(tensor["datatype"], 0)
    return tensor | {"shape": shape, "data": [zero] * math.prod(shape)}


def _repository_index() -> dict[str, Any]:
    states = {"type": "array", "items": _ref("ModelState")}
    made = _operation("repositoryIndex", "The versions of the model, and which are ready", {200: {_JSON: states}})
    made["responses"] |= _errors({415: _INFER[415]})
    content = _content({_JSON: _object({"ready": _BOOLEAN})})
    return made | {"requestBody": {"required": False, "content": content}}


def feedback_operation(suffix: str) -> dict[str, Any]:
    """Describe `POST .../feedback`."""
    made = _operation(f"feedback{suffix}", "Say how good answers were", {200: {_JSON: _ref("FeedbackResults")}})
    made["responses"] |= _errors({415: _INFER[415]})
    several = {"type": "array", "items": _ref("Feedback"), "minItems": 1, "maxItems": 1000}
    content = _content({_JSON: {"anyOf": [_ref("Feedback"), several]}, "application/x-ndjson": {}})
    content[_JSON]["example"] = {"id": "r-17", "label": 7}
    return made | {"requestBody": {"required": True, "content": content}}


def selection_operation(suffix: str) -> dict[str, Any]:
    """Describe `GET .../selection`."""
    of = {200: {_JSON: {"type": "object"}, "text/html": {}}}
    return _operation(f"selection{suffix}", "Weights, errors and prices of the candidates", of)


def insurance_operation(suffix: str) -> dict[str, Any]:
    """Describe `GET .../insurance`."""
    of = {200: {_JSON: {"type": "object"}, "text/html": {}}}
    return _operation(f"insurance{suffix}", "Reconstructed answers, and what parity models cost", of)


TOP_SCHEMAS: dict[str, Any] = {
    "Top": _object(
        {
            "k": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10},
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": 10_000,
                "description": "names of the table; without a table, names with inputs of the features stage",
                "items": {"anyOf": [_TEXT, _object({"item": _TEXT, "input": {}}, ["item", "input"])]},
            },
            "exclude": {"type": "array", "items": _TEXT, "description": "items that are left out"},
        }
    ),
    "TopItems": _object(
        {
            "id": _TEXT,
            "items": {
                "type": "array",
                "items": _object(
                    {"item": _TEXT, "score": {"type": "number"}, "uncertainty": {"type": "number"}},
                    ["item", "score", "uncertainty"],
                ),
            },
            "prior": {**_BOOLEAN, "description": "the key is new, or there is none"},
        },
        ["id", "items", "prior"],
    ),
}
_KEY_HEADER = _parameter("header", "mark-key", {"type": "string", "maxLength": 128})


def top_operation(suffix: str) -> dict[str, Any]:
    """Describe `POST .../top`."""
    made = _operation(f"top{suffix}", "The best items for a key", {200: {_JSON: _ref("TopItems")}}, _INFER)
    made["responses"]["200"]["headers"] = _WHO
    content = _content({_JSON: _ref("Top")})
    content[_JSON]["example"] = {"k": 10}
    return made | {"parameters": [_KEY_HEADER, *_HEADERS[:2]], "requestBody": {"required": True, "content": content}}


def key_operation(action: str, suffix: str) -> dict[str, Any]:
    """Describe `GET` and `DELETE .../keys/KEY`."""
    what = {"show": "What is known of a key; needs the scope admin", "delete": "Delete a key; needs the scope admin"}
    made = _operation(f"{action}Key{suffix}", what[action], {200: {_JSON: {"type": "object"}}})
    made["responses"] |= _errors({404: "nothing is known of this key"})
    return made | {"parameters": [_parameter("path", "id", {"type": "string", "minLength": 1, "maxLength": 128})]}


def personal_operation(suffix: str) -> dict[str, Any]:
    """Describe `GET .../personal`."""
    of = {200: {_JSON: {"type": "object"}, "text/html": {}}}
    return _operation(f"personal{suffix}", "Errors, rates and memory of personal heads", of)


def _invocations() -> dict[str, Any]:
    kinds: dict[str, Any] = {_JSON: {}, "text/csv": {}, "application/x-npy": {}, "text/plain": {}, _BYTES: {}}
    errors = _INFER | {406: "nothing that `accept` names can hold the result"}
    made = _operation("invocations", "Infer, SageMaker's way", {200: kinds}, errors)
    made["responses"]["200"]["headers"] = _WHO
    accept = _parameter("header", "accept", _TEXT)
    return made | {
        "parameters": [*_HEADERS, accept],
        "requestBody": {"required": True, "content": _content(kinds)},
    }
