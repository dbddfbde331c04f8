"""The HTML of `GET /` and `GET /docs`: two pages made from the OpenAPI description, which load nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from shlex import quote
from typing import Any

from mark.domain.version import VERSION

# The pages load and run nothing, so a model's name cannot act as a script.
HEADERS = b"content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
VARY = b"vary: accept\r\n"

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-top: 1px solid #8886; padding-top: 1rem; font-size: 1.1rem }
code, pre { font: 0.9em/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
pre { overflow-x: auto; padding: 0.7rem; background: #8882; border-radius: 4px }
h3 { margin: 1rem 0 0.2rem; font-size: 0.9rem } p { margin: 0.4rem 0 }
table { border-collapse: collapse } td, th { padding: 0.15rem 1rem 0.15rem 0; vertical-align: top; text-align: left }
"""


def index(said: dict[str, Any]) -> dict[str, Any]:
    """Return the endpoints by a description's paths: `GET /` for programs."""
    return {
        "name": "mark",
        "version": VERSION,
        "title": said["info"]["title"],
        "endpoints": {f"{method} {path}": operation["summary"] for method, path, operation in _operations(said)},
    }


def index_page(said: dict[str, Any]) -> str:
    """Return `GET /` for a browser."""
    rows = [
        f"<tr><td><code>{method} {_linked(method, path)}</code><td>{escape(operation['summary'])}"
        for method, path, operation in _operations(said)
    ]
    lead = "<p>A model behind a latency promise, served by mark: <a href='/docs'>how to ask it</a>."
    return page(said["info"]["title"], [lead, "<table>", *rows, "</table>"])


def docs_page(said: dict[str, Any]) -> str:
    """Return `GET /docs`: each operation with its parameters, bodies, answers and an example, then the schemas."""
    parts = [
        "<p>Made from <a href='/openapi.json'>openapi.json</a>. Where the server asks for a key, send"
        " <code>authorization: Bearer KEY</code> or <code>x-api-key: KEY</code>."
    ]
    common = _common([operation["responses"] for _, _, operation in _operations(said)])
    parts += _table("Any request may be answered", _answers(common))
    for method, path, operation in _operations(said):
        parts.append(f"<h2 id='{escape(operation['operationId'])}'><code>{method} {escape(path)}</code></h2>")
        parts.append(f"<p>{escape(operation['summary'])}")
        asked = [*said["paths"][path].get("parameters", ()), *operation.get("parameters", ())]
        parts += _table("Parameters", [(each["name"], f"{each['in']}, {_kind(each['schema'])}") for each in asked])
        content = operation.get("requestBody", {}).get("content", {})
        parts += _table("Body", [(kind, _kind(body.get("schema", {}))) for kind, body in content.items()])
        for body in content.values():
            if "example" in body:
                example = quote(json.dumps(body["example"], ensure_ascii=False))
                parts.append(f"<pre>curl -s $URL{escape(path)} -d {escape(example)}</pre>")
        own = {status: each for status, each in operation["responses"].items() if status not in common}
        parts += _table("Answers", _answers(own))
    for name, schema in said["components"]["schemas"].items():
        parts.append(f"<h2 id='{escape(name)}'>{escape(name)}</h2><pre>{escape(json.dumps(schema, indent=2))}</pre>")
    return page(said["info"]["title"], parts)


def _operations(said: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in said["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield method.upper(), path, operation


def _common(responses: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the responses that all of them share."""
    return {k: each for k, each in responses[0].items() if all(other.get(k) == each for other in responses)}


def _answers(responses: dict[str, Any]) -> list[tuple[str, str]]:
    return [(status, _answer(each)) for status, each in sorted(responses.items())]


def page(title: str, parts: list[str]) -> str:
    """Return a page with these parts of HTML."""
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    return "\n".join(
        [f"{head}<title>{escape(title)}</title><style>{_STYLE}</style>", f"<h1>{escape(title)}</h1>", *parts]
    )


def _linked(method: str, path: str) -> str:
    text = escape(path)
    return f"<a href='{text}'>{text}</a>" if method == "GET" and "{" not in path else text


def _table(title: str, rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    return [f"<h3>{title}</h3><table>", *(f"<tr><td><code>{escape(a)}</code><td>{b}" for a, b in rows), "</table>"]


def _answer(answer: dict[str, Any]) -> str:
    kinds = ", ".join(f"{escape(kind)} {_kind(each['schema'])}" for kind, each in answer.get("content", {}).items())
    return f"{escape(answer['description'])} <small>{kinds}</small>"


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema's type in one word."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f"<a href='#{name}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(str(each))}</code>" for each in schema["enum"])
    if "items" in schema:
        return f"list of {_kind(schema['items'])}"
    return escape(str(schema.get("type", "")))
