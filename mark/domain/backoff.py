"""Back-off after refusals: one rule, and its times for each kind of request."""

from __future__ import annotations

from dataclasses import dataclass

from mark.domain.time import HOUR_S

_MOST_DOUBLINGS = 16  # far beyond any `longest_s`; keeps the power finite


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause of `first_s` after the first refusal in a row, doubled after each further one, up to `longest_s`."""

    first_s: float
    longest_s: float

    def pause_s(self, refusals: int) -> float:
        """Return the pause after this many refusals in a row, at least one."""
        return min(self.first_s * 2.0 ** min(refusals - 1, _MOST_DOUBLINGS), self.longest_s)

    def doubled_s(self, pause_s: float) -> float:
        """Return the pause that follows one of `pause_s`."""
        return min(2.0 * pause_s, self.longest_s)

    def not_ahead(self, until_s: float, now_s: float) -> float:
        """Return the end of a pause that another process stored, limited in case its clock was ahead."""
        return min(until_s, now_s + self.longest_s)


# An offer without capacity. A refused launch is free, whereas an hour without spot costs more than half of the bill.
OFFER = Backoff(60.0, 120.0)
# An offer whose boots failed. Each try costs an instance.
BOOTS = Backoff(60.0, HOUR_S)
# A release that cannot be launched. A serving release and one on trial cause two refusals a minute at first, and a
# repair is noticed within five minutes.
RELEASE = Backoff(60.0, 300.0)
# A roll-out whose launch, or whose switch of the function, had no result.
ROLLOUT = Backoff(60.0, 60.0)
# A launch whose answer was lost (more calls do not help against a general failure), and a throttled launch.
LAUNCH = Backoff(5.0, 60.0)
THROTTLED = Backoff(30.0, 60.0)
# A stopped instance that EC2 did not start. Other instances of its offer are launched in the meantime, perhaps in
# another zone.
RESUME = Backoff(120.0, 120.0)
# A standby that EC2 did not start. Short, because an interruption notice leaves only two minutes.
STANDBY = Backoff(15.0, 15.0)
# A rescue by the SLO monitor that found no capacity in any market, or did not help.
RESCUE = Backoff(90.0, HOUR_S)
# The start of a service in the controller, after a failed one.
START = Backoff(10.0, 10.0)
# The function of an instance, after successive failed calls.
FUNCTION = Backoff(1.0, 30.0)
