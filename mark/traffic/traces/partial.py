"""Answers in JSON that say that they are not whole: one page of several, cut by a limit, a sample, not finished.

A part of an answer holds too few requests, so that it is refused with the way out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mark.domain.errors import BadInput
from mark.traffic.traces.blocks import shown
from mark.traffic.traces.cells import plain_numbers

# Names of fields, of which only the small letters count.
_NEXT = re.compile(
    r"(odata)?next(page|offset|records?)?(token|cursor|url|link|marker|href|key)?"
    r"|has(more|next)(page|results|data|rows)?|scrollid|istruncated|more(results|data|rows|items)?(available)?"
    r"|(last)?evaluatedkey|cursor|marker|continuation(token)?|pagetoken|pagingstate|resumetoken"
)
_NOT_BLANK = re.compile(r"\S")
_NO_MORE = re.compile(r"has(more|next)(page|results|data|rows)?")
_TRUE = re.compile(
    r".*(truncated|incomplete|exceeded(transferlimit)?|terminatedearly|timedout|limitreached|limithit)"
    r"|(is|has)?partial(data|response|results?|success)?|(is)?preview|(is)?sampled"
)
_FALSE = re.compile(r"(is|job|query|all)?(complete|completed|finished|done|final)")
_SHARE = re.compile(r"sampl(e|ing)(rate|ratio|fraction|probability)")
_TOTAL = re.compile(
    r"count|total(?:count|results|items|hits|rows|size)?|num(?:results|items)|rowsbeforelimit(?:atleast)?"
)
_PAGES = re.compile(r"(?:total|num|page)?(?:pages|countofpages)|pagecount|lastpage")
_LIMIT = re.compile(
    r"limit|(?:max|page)(?:results|items|rows|size|count|keys|records)|(?:results|items|rows|hits)?perpage|top|first"
)
_EXCEL = frozenset({65_535, 65_536, 1_048_575, 1_048_576})  # rows of a sheet, with a header and without
_LEAST_LIMIT = 500  # rows: fewer are a whole number of hundreds by accident
_WARNINGS = ("warnings", "message", "Messages")  # of Prometheus, Datadog, CloudWatch
_PARTIAL = re.compile(r"truncat|limit|partial|incomplete|timed? ?out|exceeded", re.IGNORECASE)
_RUNNING = frozenset({"scheduled", "running", "queued", "pending", "started", "in_progress"})
_PAGE = "is one page of several: fetch the other pages, too, and join their rows"
_PAGE_OF_ROWS = "is one page of several: fetch the other pages, too, and write them one behind the other into one file"


def incomplete(whole: Mapping[str, object], warnings: Sequence[str]) -> list[str]:
    """Return the fields and the warnings by which an answer says that it is not whole."""
    fields = [key for key, value in whole.items() if value is True and _TRUE.fullmatch(_plain(key))]
    fields += [key for key, value in whole.items() if value is False and _FALSE.fullmatch(_plain(key))]
    return fields + [shown(one.encode()[:80]) for one in warnings if _PARTIAL.search(one)]


def refuse_part(whole: Mapping[str, object], path: Path) -> None:
    """Raise BadInput for a page of an answer that has more pages, and for one that is cut, sampled or not finished."""
    for answer in (whole, *(value for value in whole.values() if isinstance(value, dict))):
        if (key := _next_key(answer)) is not None:
            what = _PAGE_OF_ROWS if _goes_on(whole) else _PAGE
            raise BadInput(what, f"{path} {key}", shown(str(answer[key]).encode()[:60]))
        for key, value in answer.items():
            if _SHARE.fullmatch(_plain(key)) and isinstance(value, int | float) and 0.0 < value < 1.0:
                raise BadInput("counts a sample of the requests: ask for all of them", f"{path} {key}", value)
        if found := incomplete(answer, ()):
            what = "the answer is not complete: ask again, or for a shorter time"
            raise BadInput(what, f"{path} {found[0]}", str(answer[found[0]]).lower())
    errors = whole.get("errors") if "data" in whole else None
    if isinstance(errors, list) and (one := next((one for one in errors if isinstance(one, dict)), {})).get("message"):
        what = "GraphQL answered with an error, so that data may be missing"
        raise BadInput(what, f"{path} errors", shown(str(one["message"]).encode()[:80]))
    shards = whole.get("_shards")
    if isinstance(shards, dict) and shards.get("failed"):
        raise BadInput("not all shards of Elasticsearch answered", f"{path} _shards.failed", shards["failed"])
    for key in _WARNINGS:
        said = whole.get(key) or ()
        for warning in incomplete({}, [str(one) for one in (said if isinstance(said, list) else [said])]):
            raise BadInput("the answer is not complete", f"{path} {key}", warning)
    if str(whole.get("status", "")).lower() in _RUNNING:
        raise BadInput("the query still ran: ask again", f"{path} status", str(whole["status"]))
    results = whole.get("MetricDataResults")
    known = [result for result in results if isinstance(result, dict)] if isinstance(results, list) else []
    # The command line joins pages: each repeats the metric, and only the last one is complete.
    for result in {result.get("Id"): result for result in known}.values():
        if (status := str(result.get("StatusCode", "Complete"))) != "Complete":
            what = "CloudWatch has more data points than it gave: ask for the other pages, or for a shorter time"
            raise BadInput(what, f"{path} StatusCode", status)


def joined(pages: Sequence[object]) -> Mapping[str, object] | None:
    """Return the last page of an answer with the rows of all; None unless each of the others has rows and a token."""
    answers = [page for page in pages if isinstance(page, dict)]
    if len(answers) < max(2, len(pages)) or not all(map(_goes_on, answers[:-1])):
        return None
    lists = [key for key in answers[0] if all(isinstance(answer.get(key), list) for answer in answers)]
    return answers[-1] | {key: [row for answer in answers for row in answer[key]] for key in lists} if lists else None


def pages_in(text: str) -> list[object]:
    """Return the JSON documents one behind the other in a text; none if the first is no page of several."""
    found: list[object] = []
    try:
        for page in documents_in(text):
            if found and not _goes_on(found[-1]):
                return []
            found.append(page)
    except (ValueError, RecursionError):
        return []
    return found


def documents_in(text: str) -> Iterator[object]:
    """Yield the JSON documents one behind the other in a text. Raises ValueError for anything else."""
    decoder, end = json.JSONDecoder(), 0
    while (found := _NOT_BLANK.search(text, end)) is not None:
        one, end = decoder.raw_decode(text, found.start())
        yield one


def _goes_on(page: object) -> bool:
    """Return whether it is a page of several, with rows. A row may have a token, too, such as a cursor."""
    return isinstance(page, dict) and _next_key(page) is not None and any(isinstance(v, list) for v in page.values())


def _next_key(answer: Mapping[str, object]) -> str | None:
    """Return the field with a token for the next page."""
    for key, value in answer.items():
        drawn = key == "marker" and isinstance(value, dict)  # of a chart's points
        if _NEXT.fullmatch(_plain(key)) and value not in (None, "", False, [], {}) and not drawn and not _ended(answer):
            return key
    return None


def _ended(answer: Mapping[str, object]) -> bool:
    return any(_NO_MORE.fullmatch(_plain(key)) and value is False for key, value in answer.items())


def refuse_fewer(whole: Mapping[str, object], rows: int, columns: Mapping[str, Sequence[object]], path: Path) -> None:
    """Raise BadInput for an answer that states more rows or pages than it has.

    The sum of a column may be called a total too.
    """
    sums = [plain_numbers(values) for values in columns.values()]
    whole_of = any(_TOTAL.fullmatch(_plain(key)) and value == rows for key, value in _whole_numbers(whole))
    for key, value in _whole_numbers(whole):
        if value == rows > 1 and _LIMIT.fullmatch(_plain(key)) and not whole_of and not _ended(whole):
            what = "is the number of rows here, so that there may be more: fetch them, too, and join their rows"
            raise BadInput(what, f"{path} {key}", value)
    for key, value in _whole_numbers(whole):
        if _PAGES.fullmatch(_plain(key)) and value > 1:
            raise BadInput(_PAGE, f"{path} {key}", value)
        if not _TOTAL.fullmatch(_plain(key)) or value <= rows:
            continue
        if not any(numbers is not None and abs(numbers.sum() - value) <= 1e-6 * value for numbers in sums):
            what = f"is more than the {rows:,} rows here: fetch the other pages, too, and join their rows"
            raise BadInput(what, f"{path} {key}", value)


def is_limit(rows: int) -> bool:
    """Return whether a query's limit is often this number of rows: 1, 2, 2.5 or 5 and zeros, or a sheet of Excel."""
    digits = str(rows).rstrip("0")
    return rows >= _LEAST_LIMIT and (digits in ("1", "2", "25", "5") or rows in _EXCEL)


def _whole_numbers(whole: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Yield the fields that hold whole numbers, also as text, of an answer and of the objects in it."""
    inner = [item for value in whole.values() if isinstance(value, dict) for item in value.items()]
    for key, value in [*whole.items(), *inner]:
        if isinstance(value, str) and value.isdecimal() and len(value) <= 15:
            yield key, int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            yield key, value


def _plain(key: str) -> str:
    return re.sub(r"[^a-z]", "", key.lower())
