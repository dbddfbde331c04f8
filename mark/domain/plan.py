"""A plan: how many of which offer, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """`count` instances of `offer` wanted; `reason` is one clause in money and load.

    `spare` of them only until the rest of the plan is ready.
    """

    offer: str
    count: int
    reason: str
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants, from now on. Offers that are not named are wanted zero times.

    `standbys` are stopped burstables to keep, by offer; `warm` function environments to hold warm now.
    `leaving` instances, by number, are ended whatever else is wanted: burstables without credits.
    `usd_per_miss` is what a late request was priced at; None where functions answer all overflow in time, and for
    policies that price none.
    `confidence` is the probability with which that price keeps the window of the promise; None where there is none.
    `predictor` names the predictor of the forecast it rests on ("" for policies that need none).
    """

    at_s: float
    targets: tuple[Target, ...]
    predictor: str = ""
    standbys: tuple[Target, ...] = ()
    warm: int = 0
    notes: tuple[str, ...] = ()
    # capacity_rps the policy believes it holds once everything is ready, for plots and explanations
    capacity_rps: float = 0.0
    solver: str = ""  # how the planner's program was solved, and whether the plan is proven best
    leaving: tuple[int, ...] = ()
    usd_per_miss: float | None = None
    confidence: float | None = None
    counts: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", {t.offer: t.count for t in self.targets if t.count > 0})
