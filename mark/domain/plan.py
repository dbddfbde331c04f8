"""A plan: the wanted number of instances of each offer, with reasons."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """`count` wanted instances of `offer`; `reason` is one clause in money and load.

    `spare` of them are only wanted until the rest of the plan is ready.
    """

    offer: str
    count: int
    reason: str
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The fleet that a policy wants from now on. Offers without a target are not wanted.

    `standbys` are stopped burstables to keep, by offer; `warm` is the number of function environments to keep warm.
    `leaving` instances, by number, are ended in any case: burstables without credits. `usd_per_miss` is the price of a
    late request in the plan; None if functions answer all overflow in time, and for policies without such a price.
    `confidence` is the probability of keeping the promise's window with that price; None if unknown. `predictor` names
    the forecast's predictor ("" for policies that need none).
    """

    at_s: float
    targets: tuple[Target, ...]
    predictor: str = ""
    standbys: tuple[Target, ...] = ()
    warm: int = 0
    notes: tuple[str, ...] = ()
    # the capacity that the policy expects when everything is ready, for plots and explanations
    capacity_rps: float = 0.0
    solver: str = ""  # how the planner's program was solved, and whether the plan is proven best
    leaving: tuple[int, ...] = ()
    usd_per_miss: float | None = None
    confidence: float | None = None
    counts: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", {t.offer: t.count for t in self.targets if t.count > 0})
