"""Routing: least expected completion; ties go to the open batch, then to the lowest id."""


def better(finish_s: float, joins_open: bool, number: int, than_s: float, than_open: bool, than_number: int) -> bool:
    """Return whether the first choice (completion, open batch, id) is better than the second, in a total order."""
    if finish_s != than_s:
        return finish_s < than_s
    if joins_open != than_open:
        return joins_open
    return number < than_number
