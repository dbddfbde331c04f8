"""Coverage: the states of a fleet in which each fault acted, and the pairs of fault and state that are impossible.

A fault is counted when it acts: a call fails, an instance dies, or a launch gets less than it asked for. The state is
that of the service: the first of the words below that applies.
"""

from __future__ import annotations

NO_LEADER, NONE_READY, BOOTING, DRAINING, STEADY = "no leader", "none ready", "booting", "draining", "steady"
STATES = (STEADY, BOOTING, DRAINING, NONE_READY, NO_LEADER)

# (fault, state) -> why the fault cannot act in the state.
IMPOSSIBLE = {
    ("silent", NONE_READY): "ready instances do not answer",
    ("fleet stale", STEADY): "instances not listed yet are booting",
    ("fleet stale", DRAINING): "instances not listed yet are booting",
    ("limits change", NO_LEADER): "only a controller that leads takes them",
}
