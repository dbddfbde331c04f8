"""The time limit of a call in a stage of a pipeline, by the time that its query has left."""


def stage_horizon_s(left_s: float, own_s: float, behind_s: float, least_behind_s: float) -> float:
    """Return the seconds within which a call is admitted; `left_s` is the time until its query's deadline.

    A stage leaves later stages the time they were planned with (`behind_s`), and may use all else: its own part
    (`own_s`), and time saved by earlier stages. If these took more than their parts, it still has its own part, as long
    as later stages keep the least time that they need (`least_behind_s`). The result is not above zero if the query can
    no longer be in time.
    """
    return min(left_s - least_behind_s, max(left_s - behind_s, own_s))
