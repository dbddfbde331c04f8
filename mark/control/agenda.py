"""What is to be decided in a round, in order."""

from __future__ import annotations

from enum import StrEnum


class AgendaItem(StrEnum):
    """A step of a round. A round begins with the stages of `FIRST`, `TICK` or `FAST`; a stage may put more in front."""

    PLAN_FIRST = "plan the first fleet"
    PLAN = "plan, and follow the plan"
    REPLAN = "plan again, and follow the plan"
    SETTLE = "see whether the market sold what was asked for"
    NOTICES = "answer interruption notices"
    NOTICES_ANSWERED = "forget the answered notices"
    MONITOR = "check the SLO monitor"
    RESCUE_ELSEWHERE = "launch what the market lacked of a rescue as another offer"
    SURGE = "compare arrivals with the plan"
    UPKEEP = "end what is overdue, spare, leaving or drained"
    REPLACE_SILENT = "launch what replaces silent instances"
    GIVE_UP_SILENT = "drain silent instances"
    COUNT_GIVEN_UP = "count the drained silent instances"
    ROLL_OUT = "replace what has an old release"
    SWITCH = "have functions answer with the release that serves"
    LET_GO = "drain what may not be bought any more"


FIRST = (AgendaItem.PLAN_FIRST,)
TICK = (AgendaItem.PLAN,)
FAST = (AgendaItem.NOTICES, AgendaItem.MONITOR, AgendaItem.SURGE, AgendaItem.UPKEEP)  # upkeep last
