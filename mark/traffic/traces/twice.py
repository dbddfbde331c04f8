"""Requests that have two lines in one log: of a proxy and the server behind it, of a beginning and an end, or copies.

Two classes of lines are such pairs if they hold the same requests, equally many at each moment. Two servers that take
turns have equally many in all, but not in each second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from mark.domain.arrays import BoolArray, FloatArray
from mark.domain.errors import BadInput

_LEAST = 20  # requests that show pairs
_LEAST_TURNS = 4  # of the numbers of equal lines, up to down or back: a load test changes its rate more rarely
_LEAST_SECONDS = 10
_HALF, _SAME, _AT_ONCE = 0.04, 0.06, 0.8  # shares of the lines, of the requests, of the seconds
_STEPS = 0.6  # times the square root of the lines: independent lines go further apart
_WHOLE = 0.95
_DIGIT = re.compile(rb"\d")
_NO_ID = re.compile(rb"\d:\d\d|\d{4}-\d\d|^\W*\d{1,4}\W*$|^\W*\d{10}(?:\.\d+|\d{3})?\W*$|^\d+(?:\.\d+){3}(?::\d+)?$|/")
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|\[[^\]]*\]|[^\s"\[]+')
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_PIECES = re.compile(rb'[^\s,;()\[\]{}"]+')
_OF_REQUEST = re.compile(r"(?:request|req|trace|correlation|transaction|invocation)[_.\- ]?id$", re.IGNORECASE)
_STATUS, _CODE = re.compile("status|code", re.IGNORECASE), re.compile(r"[1-5]\d\d(?:\.0)?")
_OF_CALL = re.compile(r"/|(?:GET|POST|PUT|DELETE|HEAD|OPTIONS|PATCH)\b|[1-5]\d\d$")  # a path, a method, a status
_UNKNOWN = frozenset({b"", b"-"})
_SOON_S = 300.0  # the lines of one request come within
_MOST_LINES, _NEAR = 12, 4  # of one request; lines apart, for each of them
_OF_USER = re.compile(r"(?:user|client|customer|account|session|device)[_.\- ]?id$", re.IGNORECASE)
_REPLICA = re.compile(r"(?:(?<=[-._])[a-z0-9]*\d[a-z0-9]*|(?<=[a-z])\d+)(?::\d+)?\W*$", re.IGNORECASE)
_BACKEND = re.compile(r"\W*(?:\d+\.){3}\d+:(\d+)\W*$")
_WORKER = re.compile(r"(?:pid|(?:process|worker|thread|replica|instance)(?:[_.\- ]?id)?)$", re.IGNORECASE)
_ID = re.compile(r"(?:request|req|trace|correlation|transaction|call|span)[_.\- ]?id|^id$|uuid|rid$", re.IGNORECASE)

Row = Mapping[str, Any]
Request = tuple[bytes, bytes, bytes]  # method, path, status; empty if unknown


def refuse_two_lines(texts: Sequence[bytes], seconds: FloatArray, requests: Sequence[Request]) -> None:
    """Raise BadInput if each request has two lines or more. `requests` are those of each line."""
    if len(texts) < _LEAST:
        return
    if _stand_twice(texts):
        raise BadInput("every line stands twice: leave one of them out, or say `log_filter` line=* for both", "")
    if (several := _lines_of_ids(texts, requests)) is not None:
        word, many = several
        way = f"`log_filter` line=*{word}* counts one of them" if word else "leave all but one out"
        raise BadInput(f"each request seems to have {many} lines: {way}, `log_filter` line=* all", "")
    order = np.argsort(np.floor(seconds), kind="stable")  # one form may lack fractions of a second
    lines, ordered = [texts[i] for i in order], [requests[i] for i in order]
    ids = _ids_of_two(lines)
    for word, own, at_once in _classes(lines, steady=_is_steady(seconds)):
        of_servers = bool(ids) and bool(word) and not _OF_CALL.search(word) and _differ(ids, own)
        if not of_servers and not _are_pairs(seconds[order], _comparable(ordered, own), own, at_once=at_once):
            continue
        if [word.encode() in line for line in lines] != own.tolist():
            halves = (
                [line for line, one in zip(lines, own.tolist(), strict=True) if one is mark] for mark in (True, False)
            )
            word = next(filter(None, (_word_of(half, lines) for half in halves)), "")
        way = f"`log_filter` line=*{word}* counts one of them" if word else "leave one of them out"
        raise BadInput(f"each request seems to have two lines: {way}, `log_filter` line=* both", "")


def _stand_twice(texts: Sequence[bytes]) -> bool:
    """Return whether equal lines come in pairs.

    A load test writes equal lines, too: as many in each second, or more and more.
    """
    runs = [len(list(equal)) for _, equal in groupby(texts)]
    even = sum(length % 2 == 0 for length in runs)
    steps = [step for step in np.sign(np.diff(runs)).tolist() if step]
    turns = sum(before != after for before, after in pairwise(steps))
    varied = turns >= _LEAST_TURNS or runs.count(2) > 0.5 * len(runs)
    return len(runs) >= _LEAST / 2 and even >= _WHOLE * len(runs) and varied


def refuse_two_objects(rows: Sequence[Row], seconds: FloatArray) -> None:
    """Raise BadInput if each request has two of these JSON objects."""
    if len(rows) < _LEAST:
        return
    order = np.argsort(np.floor(seconds), kind="stable").tolist()
    rows = [rows[i] for i in order]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [str(row.get(name, "")) for row in rows] for name in names}
    two = {name: values for name, values in columns.items() if len(set(values)) == 2}
    for name in names:
        if (
            _OF_REQUEST.search(name)
            and _come_often(columns[name], np.asarray(seconds)[order])
            and not _is_of_user(columns, name)
            and not are_calls(columns[name], rows)
        ):
            raise _several_objects(columns, name)
    ids = [
        name
        for name in names
        if _ID.search(name)
        and _come_twice(columns[name])
        and not _is_of_user(columns, name)
        and not are_calls(columns[name], rows)
    ]
    steady = _is_steady(seconds)
    requests = list(map(_request, rows))
    keys = [str(sorted(row)) for row in rows]
    forms = {"": keys} if len(set(keys)) > 1 else {}
    for name, values in [*two.items(), *forms.items()]:
        own = np.array(values) == Counter(values).most_common(1)[0][0]
        replicas = name and (_WORKER.match(name) or _are_replicas(*dict.fromkeys(values)))
        if steady and not ids and replicas:
            continue
        if ids:
            pairs = bool(abs(2.0 * own.mean() - 1.0) <= _HALF) and _differ(columns[ids[0]], own)
        else:
            pairs = _are_pairs(np.asarray(seconds)[order], _comparable(requests, own), own, at_once=name != "")
        if pairs:
            one = next(value for value in reversed(values) if value)
            raise _two_objects(f"`log_filter` {name}={one}" if name else "", name or names[0])
    if ids:
        raise _two_objects("", ids[0])


def _two_objects(way: str, name: str) -> BadInput:
    one = f"{way} counts one of them" if way else "leave one of them out"
    return BadInput(f"each request seems to have two lines: {one}, `log_filter` {name}=* both", "")


def _several_objects(columns: Mapping[str, Sequence[str]], name: str) -> BadInput:
    ids = columns[name]
    many = f"{len(ids) / len(set(ids)):.2g}"
    way = "leave all but one out"
    for field, values in columns.items():
        if field != name and 1 < len(set(values)) <= _MOST_LINES:
            for value in dict.fromkeys(reversed(values)):
                if value and _once_each(ids, [one == value for one in values]):
                    way = f"`log_filter` {field}={value} counts one of them"
    return BadInput(f"each request seems to have {many} lines: {way}, `log_filter` {name}=* all", "")


def _is_of_user(columns: Mapping[str, Sequence[str]], name: str) -> bool:
    """Return whether an id is that of a user or a session, whose column holds the same."""
    return any(
        other != name and _OF_USER.search(other) and values == columns[name] for other, values in columns.items()
    )


def are_calls(ids: Sequence[str], rows: Sequence[Row]) -> bool:
    """Return whether the lines of most ids are different requests, as the calls of one page are that share its id.

    Not if each id has one line of a server, because the others may be those to which it passes the request on.
    """
    columns = {name: [str(row.get(name, "")) for row in rows] for name in dict.fromkeys(n for row in rows for n in row)}
    if not _ask_differently(ids, list(map(_request, rows))):
        return False
    for values in columns.values():
        known = set(values)
        of_servers = 1 < len(known) <= _MOST_LINES and not any(map(_OF_CALL.match, known))
        if of_servers and any(_once_each(ids, [one == value for one in values]) for value in known):
            return False
    return True


def _ask_differently(ids: Sequence[str], requests: Sequence[Request]) -> bool:
    """Return whether the lines of at least half of the ids have several methods or last parts of a path."""
    methods: dict[str, set[bytes]] = {}
    names: dict[str, set[bytes]] = {}
    for one, (method, path, _) in zip(ids, requests, strict=True):
        methods.setdefault(one, set()).update({method} - _UNKNOWN)
        names.setdefault(one, set()).update({path.rstrip(b"/").rpartition(b"/")[2] or path} - _UNKNOWN)
    several = [one for one, times in Counter(ids).items() if one and times > 1]
    differ = sum(len(methods[one]) > 1 or len(names[one]) > 1 for one in several)
    return bool(several) and differ >= 0.5 * len(several)


def _is_steady(seconds: FloatArray) -> bool:
    """Return whether most seconds have equally many lines, so that any halves of them have, too."""
    _, times = np.unique(np.floor(seconds), return_counts=True)
    return float(np.mean(times == np.median(times))) >= _AT_ONCE


def _are_replicas(first: str, second: str) -> bool:
    """Return whether two names differ only in the number or the id of a replica, as `web-1` and `web-2` do.

    Also two addresses with one port.
    """
    if (one := _BACKEND.match(first)) and (other := _BACKEND.match(second)):
        return one[1] == other[1]
    names = [text.rpartition("=")[2] for text in (first, second)]
    bare = [_REPLICA.sub("", name) for name in names]
    return bare[0] == bare[1] and bare[0] != names[0] and bare[1] != names[1]


def _once_each(ids: Sequence[str], chosen: Sequence[bool]) -> bool:
    """Return whether nearly each id has exactly one of the chosen lines."""
    own = [one for one, mark in zip(ids, chosen, strict=True) if mark]
    return len(own) == len(set(own)) >= 0.9 * len(set(ids))


def _come_often(ids: Sequence[str], seconds: FloatArray) -> bool:
    """Return whether most requests have more than two lines, which come soon after one another."""
    times: dict[str, list[float]] = {}
    for one, at_s in zip(ids, seconds.tolist(), strict=True):
        if one:
            times.setdefault(one, []).append(at_s)
    if len(times) < _LEAST / 2 or not 2.0 < len(ids) / len(times) <= _MOST_LINES:
        return False
    several = [at for at in times.values() if len(at) > 1]
    return len(several) >= 0.8 * len(times) and float(np.median([max(at) - min(at) for at in several])) <= _SOON_S


def _lines_of_ids(texts: Sequence[bytes], requests: Sequence[Request]) -> tuple[str, int] | None:
    """Return how many lines each request has, three or more, by a word with a digit that only they share.

    Also a word that one of them has, "" without one. Times, addresses and numbers of ten digits or more are no ids,
    and the requests of an id are alike.
    """
    words = [dict.fromkeys(text.split()) for text in texts]
    times = Counter(word for some in words for word in some)
    for many in range(3, _MOST_LINES + 1):
        ids = {word for word, n in times.items() if n == many and _DIGIT.search(word) and not _NO_ID.search(word)}
        if not 0.9 <= len(ids) * many / len(texts) <= 1.1 or len(ids) < _LEAST / 2:
            continue
        of_lines = [next((word for word in some if word in ids), b"").decode("utf-8", "replace") for some in words]
        if of_lines.count("") > 0.05 * len(texts) or not _are_near(of_lines, many):
            continue
        if _ask_differently(of_lines, requests):
            continue
        usual = [word for word, n in times.items() if abs(n * many / len(texts) - 1.0) <= _HALF and _plain(word)]
        once = (word for word in reversed(usual) if _once_each(of_lines, [word in text for text in texts]))
        return next(once, b"").decode("utf-8", "replace"), many
    return None


def _ids_of_two(lines: Sequence[bytes]) -> list[str]:
    """Return the id of each line, which one other line shares; none if lines lack one."""
    words = [dict.fromkeys(_PIECES.findall(line)) for line in lines]
    times = Counter(word for some in words for word in some)
    ids = {word for word, n in times.items() if n == 2 and _DIGIT.search(word) and not _NO_ID.search(word)}
    found = [next((word for word in some if word in ids), b"").decode("utf-8", "replace") for some in words]
    return found if found.count("") <= 0.05 * len(lines) else []


def _are_near(ids: Sequence[str], many: int) -> bool:
    """Return whether the lines of an id stand near one another; those of a client that comes again do not."""
    first = {one: i for i, one in reversed(list(enumerate(ids)))}
    last = {one: i for i, one in enumerate(ids)}
    return float(np.median([last[one] - first[one] for one in first if one])) <= _NEAR * many


def _comparable(requests: Sequence[Request], own: BoolArray) -> Sequence[Request]:
    """Return the requests without the methods or the statuses that one class of lines lacks."""
    marks = own.tolist()
    known = [
        {mark for request, mark in zip(requests, marks, strict=True) if request[part]} == {True, False}
        for part in (0, 2)
    ]
    return [(method if known[0] else b"", path, status if known[1] else b"") for method, path, status in requests]


def _differ(ids: Sequence[str], own: BoolArray) -> bool:
    """Return whether most ids have a line of each class."""
    classes: dict[str, set[bool]] = {}
    for one, mark in zip(ids, own.tolist(), strict=True):
        classes.setdefault(one, set()).add(mark)
    return sum(len(marks) == 2 for marks in classes.values()) >= 0.9 * len(classes)


def _come_twice(values: Sequence[str]) -> bool:
    times = Counter(values)
    twice = sum(n for n in times.values() if n == 2)
    return len(times) >= _LEAST / 2 and twice >= _WHOLE * len(values)


def _request(row: Row) -> Request:
    method = path = status = ""
    inner = [item for value in row.values() if isinstance(value, dict) for item in value.items()]
    for name, value in [*row.items(), *inner]:
        status = str(value) if not status and _STATUS.search(name) and _CODE.fullmatch(str(value)) else status
        for word in value.split(" ") if isinstance(value, str) else ():
            method = word if not method and word in _METHODS else method
            path = word.partition("?")[0] if not path and word.startswith("/") else path
    return method.encode(), path.encode("utf-8", "replace"), status.encode()


def _classes(lines: Sequence[bytes], *, steady: bool) -> Iterator[tuple[str, BoolArray, bool]]:
    """Yield classes of about half of the lines: those of one form (named ""), and those with a word.

    The last value says whether servers that take turns may have such classes: not if one has a single client and the
    other has many, or if the protocols differ. With `steady` lines, of which each second has equally many, any replicas
    that take turns have such classes, and are left out.
    """
    forms = [bytes({34: 81, 91: 66}.get(token[0], 87) for token in _TOKENS.findall(line)) for line in lines]
    for form, _ in Counter(forms).most_common(2):
        yield "", np.array([one == form for one in forms]), False
    words = [dict.fromkeys(line.split()) for line in lines]
    times = Counter(word for some in words for word in some)
    half = [word for word, n in times.items() if abs(2.0 * n / len(lines) - 1.0) <= _HALF]
    for word in half:
        if _plain(word):
            own = np.array([word in some for some in words])
            clients = {next(iter(some), b"") for some, one in zip(words, own.tolist(), strict=True) if not one}
            proxy = word.startswith(b"HTTP/") or (
                all(next(iter(w), b"") == word for w in words if word in w) and len(clients) > 4
            )
            text = word.decode("utf-8", "replace")
            others = (other.decode("utf-8", "replace") for other in half if other != word)
            if proxy or not steady or not any(_are_replicas(text, other) for other in others):
                yield text, own, not proxy


def _are_pairs(seconds: FloatArray, requests: Sequence[object], own: BoolArray, *, at_once: bool) -> bool:
    """Return whether the lines of two classes, ordered by time, are two lines of each request."""
    count = len(own)
    signs = np.where(own, 1.0, -1.0)
    if abs(float(signs.sum())) > max(2.0, _HALF * count):
        return False
    of_request: Counter[object] = Counter()
    for request, sign in zip(requests, signs.tolist(), strict=True):
        of_request[request] += int(sign)
    if sum(map(abs, of_request.values())) > max(2.0, _SAME * count):
        return False
    if np.ptp(np.cumsum(signs)) > max(3.0, _STEPS * count**0.5):
        return False
    if not at_once:
        return True
    moments, place = np.unique(np.floor(seconds), return_inverse=True)
    more = np.bincount(place, weights=signs)
    return len(moments) >= _LEAST_SECONDS and bool(np.mean(more == 0.0) >= _AT_ONCE)


def _plain(word: bytes) -> bool:
    return not {ord("*"), ord("?")} & set(word)  # which a filter takes as patterns


def _word_of(own: Sequence[bytes], lines: Sequence[bytes]) -> str:
    """Return the longest word that only these lines have, and each of them; "" without one."""
    common = set(own[0].split())
    for line in own:
        common &= set(line.split())
    others = set(lines) - set(own)
    words = [word for word in common if _plain(word) and not any(word in line for line in others)]
    return max(words, key=lambda word: (len(word), word), default=b"").decode("utf-8", "replace")
