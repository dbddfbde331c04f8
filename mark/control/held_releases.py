"""Releases of which nothing can be launched: what all their launches share was refused.

The launch template, the image, a role or a security group is gone, say. Whatever else is asked for would be refused
just the same. So no offer is put off and the plan stays as it is; and nothing of that release is launched until a pause
is over, which doubles with each refusal. What is launched of another release, the one that serves, goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mark.domain.backoff import RELEASE
from mark.domain.command import Command, Launch


@dataclass(frozen=True, slots=True)
class HeldRelease:
    """Refused so often in a row, the last time for `reason`; not to be launched before `until_s`.

    `gone`: what it boots from is not there, which is a matter of the release, and not of the account.
    """

    refusals: int
    until_s: float
    reason: str
    gone: bool = False


def refused(
    held: Mapping[str, HeldRelease], release: str, reason: str, now_s: float, *, gone: bool = False
) -> dict[str, HeldRelease]:
    """A launch of the release was refused, whatever it was of. What was under way already makes the pause no longer."""
    known = held.get(release)
    if known is not None and now_s < known.until_s:
        return {**held, release: HeldRelease(known.refusals, known.until_s, reason, gone)}
    refusals = 1 if known is None else known.refusals + 1
    return {**held, release: HeldRelease(refusals, now_s + RELEASE.pause_s(refusals), reason, gone)}


def not_ahead(held: Mapping[str, HeldRelease], now_s: float) -> dict[str, HeldRelease]:
    """As another process kept it: by a clock that was ahead, it would hold them for as much longer."""
    return {name: replace(one, until_s=RELEASE.not_ahead(one.until_s, now_s)) for name, one in held.items()}


def launched(held: Mapping[str, HeldRelease], release: str) -> dict[str, HeldRelease]:
    """Something of it was launched."""
    return {name: one for name, one in held.items() if name != release}


def allowed(held: Mapping[str, HeldRelease], commands: Sequence[Command], now_s: float) -> Sequence[Command]:
    """The commands without launches of what is held."""
    names = {name for name, one in held.items() if now_s < one.until_s}
    if not names:
        return commands
    return [command for command in commands if not (isinstance(command, Launch) and command.release in names)]


def trouble(held: Mapping[str, HeldRelease], now_s: float) -> str:
    """One line for people, where a release is held."""
    told = [
        f"{f'of release {name}' if name else 'of the service'}: {one.reason}"
        for name, one in sorted(held.items())
        if now_s < one.until_s
    ]
    return f"every launch is refused {'; '.join(told)}" if told else ""
