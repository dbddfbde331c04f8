"""Tables in a JSON document: names of columns beside rows, or beside the values of each column.

Formats: Elasticsearch, SQL and ES|QL; InfluxDB, `/query`; Azure Monitor, "Query API"; ClickHouse, JSONCompact; Grafana,
data frames, as the panel inspector shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

_HEADS = ("columns", "cols", "meta", "fields", "labels", "header", "headers", "names", "columnNames")
_BODIES = ("rows", "values", "data")
_DEEPEST, _MOST_TABLES = 5, 200


@dataclass(frozen=True, slots=True)
class JsonTable:
    """Columns of equal length. `unit` is the one that the fields name, "" if there is none or several.

    `around` are the objects around the table, outer ones first.
    """

    columns: Mapping[str, Sequence[object]]
    unit: str
    around: tuple[Mapping[str, object], ...] = ()


def tables_in(document: object, depth: int = 0, around: tuple[Mapping[str, object], ...] = ()) -> Iterator[JsonTable]:
    """Yield the tables of a document, outer ones first, and none within a table."""
    if depth > _DEEPEST:
        return
    inner: Sequence[object] = document[:_MOST_TABLES] if isinstance(document, list) else ()
    if isinstance(document, dict):
        around = (*around, document)
        if (found := _table(document)) is not None:
            yield replace(found, around=around)
            return
        inner = list(document.values())
    for one in inner:
        yield from tables_in(one, depth + 1, around)


def _table(held: Mapping[str, object]) -> JsonTable | None:
    schema, data = held.get("schema"), held.get("data")
    if isinstance(schema, dict) and isinstance(data, dict):
        return _of_values(schema.get("fields"), data.get("values"))
    if held.keys() == {"columns", "index", "data"}:  # of pandas
        of_index = zip(_listed(held["index"]), map(_listed, _listed(data)), strict=False)
        whole = [[one, *row] for one, row in of_index]
        held = {"columns": ["column 1", *_listed(held["columns"])], "data": whole}
    for head in _HEADS:
        fields = held.get(head)
        names = _names(fields)
        for rows in map(held.get, _BODIES) if names else ():
            if isinstance(rows, list) and rows and all(isinstance(r, list) and len(r) == len(names) for r in rows):
                return JsonTable(dict(zip(names, zip(*rows, strict=True), strict=True)), _unit(fields))
        if isinstance(fields, list) and (found := _of_values(fields, [_field(one, "values") for one in fields])):
            return found
    return None


def _of_values(fields: object, values: object) -> JsonTable | None:
    names = _names(fields)
    if not names or not isinstance(values, list) or len(values) != len(names):
        return None
    columns = {name: column for name, column in zip(names, values, strict=True) if isinstance(column, list) and column}
    if len(columns) < len(names) or len({*map(len, columns.values())}) > 1:
        return None
    return JsonTable(columns, _unit(fields))


def _names(fields: object) -> list[str]:
    """Return the names of two columns or more, empty if two are equal or one has none."""
    shown = (("config", "displayName"), ("config", "displayNameFromDS"), ("name",))  # in Grafana's order
    found = [next(filter(None, (_field(one, *path) for path in shown)), one) for one in _listed(fields)]
    names = [name for name in found if isinstance(name, str)]
    return names if len(names) == len(found) == len(set(names)) > 1 else []


def _unit(fields: object) -> str:
    units = {str(_field(one, "config", "unit") or "") for one in _listed(fields)} - {""}
    return units.pop() if len(units) == 1 else ""


def _listed(fields: object) -> Sequence[object]:
    return fields if isinstance(fields, list) else ()


def _field(held: object, *path: str) -> object:
    for name in path:
        held = held.get(name) if isinstance(held, dict) else None
    return held
