"""Moves from one configuration to similar ones: fewer replicas, another option, or room that is paid for already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mark.planning.graphs.estimate import Choices, StageChoice, StageOption, usd_per_hour, with_choice, with_more


def neighbours(
    best: Choices, needs: Sequence[Sequence[StageChoice]], options: Sequence[Sequence[StageOption]]
) -> Iterator[Choices]:
    """Yield moves of one and of two stages: to other choices (`needs`), and into free room."""
    for stage in range(len(best)):  # one less here, if other stages pay less for it
        if (less := with_less(best, stage)) is not None:
            yield less
    for stage, choice in enumerate(best):  # another option or batch
        for other in needs[stage]:
            if (other.option, other.batch) != (choice.option, choice.batch):
                yield with_choice(best, stage, other)
    for stage, choice in enumerate(best):  # another option here, one less there
        for other in needs[stage]:
            if other.option is choice.option:
                continue
            for second in range(len(best)):
                if second != stage and (less := with_less(with_choice(best, stage, other), second)) is not None:
                    yield less
    for stage, choice in enumerate(best):  # into the free room of other stages' instances
        for option in options[stage]:
            known = {one.placement.host for one, _ in choice.parts if one.placement is not None}
            if option.placement is None or option.placement.host in known:
                continue
            spread = with_free_beside(best, stage, option)
            if spread is not None and (less := with_less(spread, stage)) is not None:
                yield less


def with_free(choices: Choices, stage: int) -> Choices:
    """Add the replicas that cost nothing, because instances that are bought anyway have room for them."""
    if choices[stage].option.placement is None:
        return choices
    usd = usd_per_hour(choices)
    while usd_per_hour(more := with_more(choices, stage, 1)) <= usd:
        choices = more
    return choices


def with_free_beside(choices: Choices, stage: int, option: StageOption) -> Choices | None:
    """Add the replicas of another option that cost nothing beside the present ones; None without room."""
    usd, found, count = usd_per_hour(choices), None, 1
    choice = choices[stage]
    while True:
        more = with_choice(choices, stage, replace(choice, beside=(*choice.beside, (option, count))))
        if usd_per_hour(more) > usd:
            return found
        found, count = more, count + 1


def with_less(choices: Choices, stage: int) -> Choices | None:
    """Remove the fewest replicas with which the choices cost less; None if no number does."""
    usd = usd_per_hour(choices)
    placed = choices[stage].option.placement is not None
    for less in range(1, choices[stage].replicas if placed else min(2, choices[stage].replicas)):
        if usd_per_hour(fewer := with_more(choices, stage, -less)) < usd or not placed:
            return fewer
    return None
