"""The budget of a gateway for sending requests to a second replica when the first fails or takes long."""

SHARE = 0.2  # second attempts per request, in the long run
BURST = 500.0  # second attempts at most at a time


def grown(budget: float, requests: int) -> float:
    """Return the budget after a number of further requests."""
    return min(BURST, budget + SHARE * requests)
