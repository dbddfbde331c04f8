"""How long a refusal keeps the same thing from being asked for again: one law, and its numbers by what is held back."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.time import HOUR_S

_MOST_DOUBLINGS = 16  # far beyond any `longest_s`; keeps the power finite


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_s` after the first refusal in a row, twice as long after each one more, `longest_s` at most."""

    first_s: float
    longest_s: float

    def pause_s(self, refusals: int) -> float:
        """The pause after so many refusals in a row, at least one."""
        return min(self.first_s * 2.0 ** min(refusals - 1, _MOST_DOUBLINGS), self.longest_s)

    def doubled_s(self, pause_s: float) -> float:
        """The pause after one of `pause_s`."""
        return min(2.0 * pause_s, self.longest_s)

    def not_ahead(self, until_s: float, now_s: float) -> float:
        """The end of a pause as another process kept it: its clock may have been ahead, and no pause is longer."""
        return min(until_s, now_s + self.longest_s)


# An offer that the market was short of. A refused launch costs nothing, an hour without spot more than half the bill.
OFFER = Backoff(60.0, 120.0)
# An offer whose boots failed: each try costs an instance.
BOOTS = Backoff(60.0, HOUR_S)
# A release of which no launch is possible. One that serves and one on trial are refused twice a minute together; and
# what was mended is soon seen.
RELEASE = Backoff(60.0, 300.0)
# A roll-out whose launch, or whose switch of the function, came to nothing.
ROLLOUT = Backoff(60.0, 60.0)
# A launch whose answer was lost: what fails for everyone is not helped by more calls. And one that was throttled.
LAUNCH = Backoff(5.0, 60.0)
THROTTLED = Backoff(30.0, 60.0)
# A stopped instance that EC2 did not start: others of its offer are launched meanwhile, perhaps in another zone.
RESUME = Backoff(120.0, 120.0)
# A standby, while an interruption notice leaves two minutes.
STANDBY = Backoff(15.0, 15.0)
# A rescue of the SLO monitor that no market had anything for, or that was no help.
RESCUE = Backoff(90.0, HOUR_S)
# The start of a service in the controller, after one that failed.
START = Backoff(10.0, 10.0)
# The function of an instance, after calls that failed one after the other.
FUNCTION = Backoff(1.0, 30.0)
