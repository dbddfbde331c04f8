"""Late refusals: accepted launches whose instances the cloud ended before they ever ran.

AWS reports an exceeded volume quota or a host without room only after it accepted the launch. A late refusal is treated
like an immediate one, so the next plan buys another offer, and it does not count as a failed boot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mark.cloud.ec2.refusal import refused_with
from mark.control.ports import Result
from mark.control.snapshot import Outcome
from mark.domain.command import Launch
from mark.domain.errors import RefusalScope
from mark.domain.fleet import EndedAtLaunch, Fleet
from mark.domain.offer import Offer

# Older launches, which a cloud shows for an hour, say nothing about the present market.
NEWS_S = 300.0


def late_refusals(
    known: Collection[int], fleet: Fleet, now_s: float, offers: Iterable[Offer]
) -> tuple[tuple[Outcome, ...], tuple[int, ...]]:
    """Return the outcomes of new late refusals, and the numbers to pass as `known` the next time.

    Instances of one launch make one outcome: ten instances over a quota are one refusal, not ten.
    """
    if not fleet.refused:
        return (), ()
    alike: dict[tuple[str, str, str], list[EndedAtLaunch]] = {}
    sold = {offer.name: offer for offer in offers}
    for one in fleet.refused:
        if one.number not in known and one.offer in sold and now_s - one.launched_s < NEWS_S:
            alike.setdefault((one.offer, one.release, one.reason), []).append(one)
    outcomes = tuple(_outcome(those, sold) for those in alike.values())
    return outcomes, tuple(sorted(one.number for one in fleet.refused))


def _outcome(those: list[EndedAtLaunch], sold: dict[str, Offer]) -> Outcome:
    first, count = those[0], len(those)
    offer = sold[first.offer]
    command = Launch("accepted before", count * offer.usd_per_hour, offer.name, count, release=first.release)
    numbers = ", ".join(f"#{one.number}" for one in those)
    text = f"the cloud ended {numbers} before {'it' if count == 1 else 'they'} ran: {first.reason}"
    if first.scope is RefusalScope.EVERYTHING:
        return Outcome(command, text, Result.FAILED, planned=offer.name, whole_release=True)
    put_off = refused_with(offer, first.scope, sold.values())
    return Outcome(command, text, Result.FAILED, True, planned=offer.name, put_off=put_off)
