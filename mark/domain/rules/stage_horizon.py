"""How long a stage of a pipeline may take with a call, by what its query has left."""


def stage_horizon_s(left_s: float, own_s: float, behind_s: float, least_behind_s: float) -> float:
    """Seconds within which a call is admitted; `left_s` is what its query has until the deadline.

    A stage leaves the ones behind it what they were planned with (`behind_s`), and has all else: its own part
    (`own_s`), and what the ones before it did not need. Where these took more than theirs it has its own part all the
    same, as long as the ones behind it have the least that they can do with (`least_behind_s`). Not above zero where
    the query cannot be in time any more.
    """
    return min(left_s - least_behind_s, max(left_s - behind_s, own_s))
