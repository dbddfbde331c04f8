"""Held releases: the cloud refuses their launches for every offer.

The launch template, the image, a role or a security group may be gone, for example. A launch of another offer would be
refused too, so no offer is put off and the plan stays as it is. The release is launched again only after a pause, which
doubles with each refusal. Launches of other releases, such as the serving one, go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.backoff import RELEASE
from mark.domain.command import Command, Launch


@dataclass(frozen=True, slots=True)
class HeldRelease:
    """A release refused `refusals` times in a row, last for `reason`, and not to be launched before `until_s`.

    `gone`: its template, image or another part is missing, so the cause is the release and not the account.
    """

    refusals: int
    until_s: float
    reason: str
    gone: bool = False


def refused(
    held: Mapping[str, HeldRelease], release: str, reason: str, now_s: float, *, gone: bool = False
) -> dict[str, HeldRelease]:
    """Note a refused launch of the release. A refusal during the pause does not prolong it: its launch is older."""
    known = held.get(release)
    if known is not None and now_s < known.until_s:
        return {**held, release: HeldRelease(known.refusals, known.until_s, reason, gone)}
    refusals = 1 if known is None else known.refusals + 1
    return {**held, release: HeldRelease(refusals, now_s + RELEASE.pause_s(refusals), reason, gone)}


def not_ahead(held: Mapping[str, HeldRelease], now_s: float) -> dict[str, HeldRelease]:
    """Return the held releases of another process with bounded pauses, because its clock may have been ahead."""
    return {name: replace(one, until_s=RELEASE.not_ahead(one.until_s, now_s)) for name, one in held.items()}


def launched(held: Mapping[str, HeldRelease], release: str) -> dict[str, HeldRelease]:
    """Release the hold, because an instance of the release was launched."""
    return {name: one for name, one in held.items() if name != release}


def allowed(held: Mapping[str, HeldRelease], commands: Sequence[Command], now_s: float) -> Sequence[Command]:
    """Return the commands without launches of held releases."""
    names = {name for name, one in held.items() if now_s < one.until_s}
    if not names:
        return commands
    return [command for command in commands if not (isinstance(command, Launch) and command.release in names)]


def trouble(held: Mapping[str, HeldRelease], now_s: float) -> str:
    """Return one line about the held releases; else ""."""
    told = [
        f"{f'of release {name}' if name else 'of the service'}: {one.reason}"
        for name, one in sorted(held.items())
        if now_s < one.until_s
    ]
    return f"every launch is refused {'; '.join(told)}" if told else ""
