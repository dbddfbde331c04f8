"""The errors a caller can react to: one class per reaction.

MarkError
|-- BadInput      the input must change            exit 2
|-- Infeasible    no offer can keep the SLO        exit 3
|-- LostLease     stop acting, another one leads
`-- CloudError    the cloud said no                (never leaves the controller)
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
    """`, did you mean NAME?` where a known name is spelled almost so, else nothing."""
    close = get_close_matches(str(value), list(known), n=1, cutoff=0.7)
    return f", did you mean {close[0]}?" if close else ""


class MarkError(Exception):
    """Base of every error that mark raises on purpose."""


class BadInput(MarkError):
    """Something the user gave cannot be used; the message is one line.

    `what` says what is wrong, `where` the file, option or key, `value` the offending value. Of the names in `known` the
    one that is spelled almost as the value is proposed.
    """

    def __init__(self, what: str, where: str, value: object = None, *, known: Iterable[str] = ()) -> None:
        what += did_you_mean(value, known)
        self.what, self.where, self.value = what, where, value
        shown = "" if value is None else f": {_short(value)}"
        super().__init__(f"{where}: {what}{shown}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, str, object]]:
        return type(self), (self.what, self.where, self.value)  # survives the way back from a worker process


class Infeasible(MarkError):
    """No offer can keep the SLO at the level of types; says which came closest, and `helps` what would help."""

    def __init__(self, message: str, helps: tuple[PromiseHelp, ...] = ()) -> None:
        self.helps = helps
        super().__init__(message)

    def __reduce__(self) -> tuple[type[Infeasible], tuple[str, tuple[PromiseHelp, ...]]]:
        return type(self), (str(self), self.helps)  # survives the way back from a worker process


class LostLease(MarkError):
    """Another controller holds the lease: what this one decided must not be carried out nor kept."""


class CloudError(MarkError):
    """The cloud refused or lost a request."""


class RefusalScope(StrEnum):
    """How much of what is sold a refused launch says something about."""

    OFFER = "offer"  # a type in a zone and a market
    TYPE = "type"  # in all zones and markets
    QUOTA = "quota"  # all families that share a quota of vCPUs, in this market
    MARKET = "market"  # all of spot, or all on demand
    EVERYTHING = "everything"  # whatever is launched of the same release


class CapacityError(CloudError):
    """This is not to be had, and nothing was launched; another offer may do, outside of `scope`.

    `gone`: what the release boots from is not there, and another release may do.
    """

    def __init__(self, text: str, scope: RefusalScope = RefusalScope.OFFER, *, gone: bool = False) -> None:
        super().__init__(text)
        self.scope, self.gone = scope, gone


class LimitError(CloudError):
    """An account or service limit is reached."""


class NotFoundError(CloudError):
    """The named instance does not exist (any more)."""


class ThrottledError(CloudError):
    """Too many requests to the cloud for now; nothing was done."""


class DeniedError(CloudError):
    """Credentials are missing or lack the permission; trying again does not help."""


class StoreError(CloudError):
    """The state could not be read or written: full, locked, unreachable."""


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    # What is cut out is in the middle: of a path the end says most.
    return text if len(text) <= 160 else f"{text[:90]}...{text[-67:]}"
