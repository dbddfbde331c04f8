"""How many requests a gateway may ask a second replica for, when the first does not answer or takes long."""

SHARE = 0.2  # per request, in the long run
BURST = 500.0  # and at most at a time


def grown(budget: float, requests: int) -> float:
    """What may be spent after a number of further requests."""
    return min(BURST, budget + SHARE * requests)
