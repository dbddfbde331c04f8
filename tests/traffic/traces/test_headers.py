"""A table whose only information is its header is read as a careful engineer reads it, or asked about."""

from __future__ import annotations

import pytest

from mark.traffic.traces.table_files import TableColumns
from tests.traffic.traces.headers import Header, headers, outcome, read

MOST_ASKED = 0.06  # of the headers that have one reading


def test_no_header_is_read_wrong_and_few_are_asked_about() -> None:
    found = {header: outcome(header) for header in headers()}
    assert [header for header, one in found.items() if one == "wrong"] == []
    readable = [header for header in found if header.requests is not None]
    assert len(readable) >= 250
    assert sum(found[header] == "asked" for header in readable) <= MOST_ASKED * len(readable)


def test_refused_header_is_one_line() -> None:
    refused = [found for header in headers() if isinstance(found := read(header), str)]
    assert len(refused) >= 400
    assert not [line for line in refused if "\n" in line]


@pytest.mark.parametrize(
    "name",
    [
        "checkout requests",
        "requests (checkout)",
        "search queries",
        "mobile requests",
        "successful requests",
        "CacheHits",
    ],
)
def test_count_column_answers_whether_a_name_is_a_part(name: str) -> None:
    header = Header("", (name,), "row")
    assert f"name it by `count_column` if it is meant: {name}" in str(read(header))
    assert outcome(header, TableColumns(count=name)) == "right"


@pytest.mark.parametrize("name", ["requests", "checkout_requests_total", "mobile_requests_total"])
def test_counter_of_a_named_column_is_read_as_its_increases(name: str) -> None:
    assert outcome(Header("", (name,), "counter"), TableColumns(count=name)) == "right"


@pytest.mark.parametrize("parts", [("mobile requests", "desktop requests"), ("GET requests", "POST requests")])
def test_parts_of_the_requests_are_offered_as_a_sum(parts: tuple[str, str]) -> None:
    assert f"or add some: {parts[0]}+{parts[1]}" in str(read(Header("", parts, "ask")))


@pytest.mark.parametrize(
    ("columns", "offered"),
    [
        (("total requests", "requests model-a", "requests model-b"), "add some: requests model-a+requests model-b:"),
        (("requests", "checkout requests", "search requests"), "add some: checkout requests+search requests:"),
        (("count", "sum", "min", "max"), "`count_column`: count, sum"),
        (("Views", "Event count"), "`count_column`: Views, Event count"),
    ],
)
def test_total_is_not_offered_as_a_part_of_the_sum(columns: tuple[str, ...], offered: str) -> None:
    assert offered in str(read(Header("", columns, "ask")))


def test_requests_of_the_week_before_are_left_out() -> None:
    assert outcome(Header("", ("requests", "requests_prev_week"), "row")) == "right"
