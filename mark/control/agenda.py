"""The agenda of a round: the steps to decide, in order."""

from __future__ import annotations

from enum import StrEnum


class AgendaItem(StrEnum):
    """A step of a round. A round begins with `FIRST`, `TICK` or `FAST`; a step may insert others in front."""

    PLAN_FIRST = "plan the first fleet"
    PLAN = "plan, and follow the plan"
    REPLAN = "plan again, and follow the plan"
    SETTLE = "see whether the market sold the requested instances"
    NOTICES = "answer interruption notices"
    NOTICES_ANSWERED = "forget the answered notices"
    MONITOR = "check the SLO monitor"
    RESCUE_ELSEWHERE = "launch the missing part of a refused launch as another offer"
    SURGE = "compare arrivals with the plan"
    UPKEEP = "end instances that are overdue, spare, leaving or drained"
    REPLACE_SILENT = "launch replacements of silent instances"
    GIVE_UP_SILENT = "drain silent instances"
    COUNT_GIVEN_UP = "count the drained silent instances"
    ROLL_OUT = "replace instances of an old release"
    SWITCH = "have functions answer with the release that serves"
    LET_GO = "drain instances that may not be bought any more"


FIRST = (AgendaItem.PLAN_FIRST,)
TICK = (AgendaItem.PLAN,)
FAST = (AgendaItem.NOTICES, AgendaItem.MONITOR, AgendaItem.SURGE, AgendaItem.UPKEEP)  # upkeep last
