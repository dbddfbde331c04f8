"""Errors that a caller can react to, one class for each reaction.

MarkError
|-- BadInput      the input must change            exit 2
|-- Infeasible    no offer can keep the SLO        exit 3
|-- LostLease     stop acting, another controller leads
`-- CloudError    the cloud refused or failed      (never leaves the controller)
    |-- CapacityError   try another offer, outside of the refusal's scope
    |-- LimitError      stop asking for more
    |-- NotFoundError   forget the object
    |-- ThrottledError  ask again later
    |-- DeniedError     a person must act: credentials or permissions
    `-- StoreError      the state is out of reach: try again later
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mark.domain.promise_help import PromiseHelp


def did_you_mean(value: object, known: Iterable[str]) -> str:
    """Return `, did you mean NAME?` if a known name is spelled almost like the value, else ""."""
    written, names = str(value), list(known)
    close = [name for name in names if name.lower() == written.lower()] or get_close_matches(written, names, 1, 0.7)
    return f", did you mean {close[0]}?" if close else ""


class MarkError(Exception):
    """Base of every error that mark raises on purpose."""


class BadInput(MarkError):
    """A user's input cannot be used; the message is one line.

    `what` is the problem, `where` the file, option or key, `value` the offending value. The name in `known` that is
    spelled most like the value is suggested.
    """

    def __init__(self, what: str, where: str, value: object = None, *, known: Iterable[str] = ()) -> None:
        what += did_you_mean(value, known)
        self.what, self.where, self.value = what, where, value
        shown = "" if value is None else f": {_short(value)}"
        super().__init__(f"{where}: {what}{shown}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, str, object]]:
        return type(self), (self.what, self.where, self.value)  # can be pickled, to return from a worker process


class Infeasible(MarkError):
    """No offer can keep the SLO. The message names the closest one, and `helps` has changes that would help."""

    def __init__(self, message: str, helps: tuple[PromiseHelp, ...] = ()) -> None:
        self.helps = helps
        super().__init__(message)

    def __reduce__(self) -> tuple[type[Infeasible], tuple[str, tuple[PromiseHelp, ...]]]:
        return type(self), (str(self), self.helps)  # can be pickled, to return from a worker process


class LostLease(MarkError):
    """Another controller holds the lease: this one's decision must be neither carried out nor stored."""


class CloudError(MarkError):
    """The cloud refused a request, or its answer was lost."""


class RefusalScope(StrEnum):
    """The extent of a refusal: which other launches it would apply to."""

    OFFER = "offer"  # a type in a zone and a market
    TYPE = "type"  # in all zones and markets
    QUOTA = "quota"  # all families that share a quota of vCPUs, in this market
    MARKET = "market"  # all of spot, or all on demand
    EVERYTHING = "everything"  # all launches of the same release


class CapacityError(CloudError):
    """The offer lacks capacity, and no instance was launched; an offer outside of `scope` may have some.

    `gone`: the release's image or template no longer exists; another release may be launched.
    """

    def __init__(self, text: str, scope: RefusalScope = RefusalScope.OFFER, *, gone: bool = False) -> None:
        super().__init__(text)
        self.scope, self.gone = scope, gone


class LimitError(CloudError):
    """An account or service limit is reached."""


class NotFoundError(CloudError):
    """The named instance does not exist (any more)."""


class ThrottledError(CloudError):
    """There are too many requests to the cloud; this one was not carried out."""


class DeniedError(CloudError):
    """Credentials are missing or lack the permission; retrying does not help."""


class StoreError(CloudError):
    """The state could not be read or written: full, locked, unreachable."""


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    # Cut the middle, because the end of a path says most.
    return text if len(text) <= 160 else f"{text[:90]}...{text[-67:]}"
