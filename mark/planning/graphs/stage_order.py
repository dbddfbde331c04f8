"""The order of a pipeline's stages: which wait for which, as single queries showed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from mark.domain.errors import BadInput

Edges = Mapping[tuple[str, str], int]  # (stage, a stage that waits for it): the line of the first query that shows it
_NONE = "no order of the stages suits all queries: "


def check_order(edges: Edges, file: str) -> None:
    """Raise BadInput if no order of the stages suits all queries, with two of them and the lines that say so."""
    for (before, after), line in edges.items():
        if (other := edges.get((after, before))) is None:
            continue
        if other == line:
            what = (
                f"{before} is called before {after} and again behind it: begin the calls of a loop together "
                "(asyncio.gather), or give the later one a stage of its own"
            )
            raise BadInput(what, f"{file}:{line}")
        raise BadInput(f"{_NONE}{_waits(before, after, line)}, and {_waits(after, before, other)}", file)
    try:
        TopologicalSorter(_predecessors(edges)).prepare()
    except CycleError as error:
        circle = error.args[1]  # each stage comes before the next
        said = [_waits(before, after, edges[before, after]) for before, after in pairwise(circle)]
        raise BadInput(_NONE + ", ".join(said), file) from None


def _waits(before: str, after: str, line: int) -> str:
    return f"{after} waits for {before} in line {line}"


def reduced(edges: Iterable[tuple[str, str]], visited: Iterable[frozenset[str]]) -> set[tuple[str, str]]:
    """Return the fewest edges that give the order within each visited set: the union of their transitive reductions.

    The reduction of the whole graph would be too small: where some queries skip the middle of a -> b -> c, only a -> c
    shows that c waits for a. `edges` are acyclic.
    """
    found = set(edges)
    kept: set[tuple[str, str]] = set()
    for stages in set(visited):
        within = {(a, b) for a, b in found if a in stages and b in stages}
        above = ancestors(within)
        kept |= {(a, b) for a, b in within if not any(a in above[c] for c, d in within if d == b)}
    return kept


def ancestors(edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return by stage all stages that it waits for, directly or through others. `edges` are acyclic."""
    before = _predecessors(edges)
    found: dict[str, set[str]] = {}
    for stage in TopologicalSorter(before).static_order():
        direct = before.get(stage, set())
        found[stage] = direct.union(*(found[one] for one in direct))
    return found


def _predecessors(edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    before: dict[str, set[str]] = {}
    for first, second in edges:
        before.setdefault(second, set()).add(first)
    return before
