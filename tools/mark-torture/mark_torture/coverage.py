"""What of the world was met: pairs of a fault and the state of a fleet, and those that cannot be.

A fault meets a fleet where it does something: when a call fails, when an instance dies, when a launch gets less. The
state is that of the service, in which the first of these words that holds is meant.
"""

from __future__ import annotations

NO_LEADER, NONE_READY, BOOTING, DRAINING, STEADY = "no leader", "none ready", "booting", "draining", "steady"
STATES = (STEADY, BOOTING, DRAINING, NONE_READY, NO_LEADER)

# (fault, state) -> why one never meets the other.
IMPOSSIBLE = {
    ("silent", NONE_READY): "ready instances do not answer",
    ("fleet stale", STEADY): "instances not listed yet are booting",
    ("fleet stale", DRAINING): "instances not listed yet are booting",
    ("limits change", NO_LEADER): "only a controller that leads takes them",
}
