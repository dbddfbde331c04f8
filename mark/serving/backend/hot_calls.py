"""The calls that a cache answers most often, which a new version of the model is asked before clients ask it."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from mark.models.call import BY_VALUE, RESULTS, Call
from mark.serving.backend.sieve import ENTRY_BYTES, Owner, Sieve

_MOST_BYTES, _LARGEST_PART = 4 << 20, 64
_RECENT_S = 86_400.0
_FORMAT = 1


class _Used:
    """A call with the number of times that the cache answered it, and the last of these times."""

    __slots__ = ("call", "used_s", "uses")

    def __init__(self, call: Call, now_s: float) -> None:
        self.call, self.uses, self.used_s = call, 1, now_s


class HotCalls:
    """Counts of calls of a stage that were answered from memory. Calls that are not used again leave first."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget all calls, because one of them may be about a deleted key. Hot ones are soon used again."""
        self._calls = Sieve[_Used](self._most_bytes)
        self._owner = Owner()

    def used(self, key: bytes, call: Call, now_s: float) -> None:
        """Count a use of the call with this key."""
        found = self._calls.get(key, now_s)
        if found is not None:
            found.uses += 1
            found.used_s = now_s
            return
        size = len(call.body) + ENTRY_BYTES
        if call.protocol == BY_VALUE and size <= self._calls.budget // _LARGEST_PART:
            self._calls.put(key, _Used(call, now_s), self._owner, size, now_s)

    def most_used(self, now_s: float) -> list[Call]:
        """Return the calls of the last day in the order of their uses, most used first."""
        found = [one for one in self._calls.values() if now_s - one.used_s < _RECENT_S]
        return [one.call for one in sorted(found, key=lambda one: -one.uses)]

    def age(self) -> None:
        """Halve the counts, so that recent uses count more."""
        for one in self._calls.values():
            one.uses -= one.uses // 2


def packed(calls: Sequence[Call]) -> bytes:
    """Return a line of JSON and the bodies of the calls."""
    sizes = [[len(call.body), call.json_bytes] for call in calls]
    head = orjson.dumps({"format": _FORMAT, "calls": sizes}, option=orjson.OPT_APPEND_NEWLINE)
    return b"".join((head, *(call.body for call in calls)))


def calls_in(data: bytes) -> list[Call]:
    """Return the calls that `packed` got. Raises ValueError for other data."""
    head, _, bodies = data.partition(b"\n")
    try:
        said = orjson.loads(head)
        if said["format"] != _FORMAT:
            raise ValueError("another format")
        calls, at = [], 0
        for size, json_bytes in said["calls"]:
            calls.append(Call(BY_VALUE, RESULTS, bodies[at : at + size], json_bytes, RESULTS))
            at += size
    except (KeyError, TypeError) as error:
        raise ValueError(f"no calls ({error!r})") from None
    if at != len(bodies):
        raise ValueError("the bodies are incomplete")
    return calls
