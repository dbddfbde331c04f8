"""Personal heads on a log of rewards: the error that they would have had, and the items that policies would show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mark.domain.errors import BadInput
from mark.personal.rewards_replay import LoggedRewards, PersonalReplay, SplitLog, replay_learning
from mark.personal.settings import EXPLORING
from mark.studies.rating_file import RatingColumns, read_ratings

LEAST_REWARDS = 100  # with fewer the result says nothing: of 100 about 15 are held out
SPLIT = (0.5, 0.35, 0.15)
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class LearningRequest:
    """Names and numbers of the command line. `split` has the shares for vectors, learning, and judging."""

    ratings: str
    policies: tuple[str, ...]
    columns: RatingColumns = field(default_factory=RatingColumns)
    split: tuple[float, ...] = SPLIT
    seed: int = 0


def replay_ratings(request: LearningRequest, progress: Callable[[float], None] | None = None) -> PersonalReplay:
    """Replay the log. Raises BadInput."""
    _check_policies(request.policies)
    _check_split(request.split)
    log = read_ratings(request.ratings, request.columns)
    _check_log(log, request)
    split = SplitLog.drawn(log, request.split, request.seed)
    for part, rows in zip(("first", "second", "third"), (split.initial, split.online, split.held_out), strict=True):
        if not len(rows):
            what = f"leaves the {part} part without a row of {len(log):,}: give it a larger share"
            raise BadInput(what, "--split", ",".join(f"{share:g}" for share in request.split))
    return replay_learning(log, split, request.policies, request.seed, progress)


def _check_policies(names: Sequence[str]) -> None:
    for name in names:
        if name not in EXPLORING:
            raise BadInput(f"must be one of {', '.join(EXPLORING)}", "--policy", name, known=EXPLORING)
        if names.count(name) > 1:
            raise BadInput("names a policy twice", "--policy", ",".join(names))


def _check_split(shares: Sequence[float]) -> None:
    said = ",".join(f"{share:g}" for share in shares)
    if len(shares) != 3 or min(shares) <= 0.0 or abs(sum(shares) - 1.0) > 1e-6:
        what = "must be three shares above 0 that add up to 1: for item vectors, for learning, and held out"
        raise BadInput(what, "--split", said)


def _check_log(log: LoggedRewards, request: LearningRequest) -> None:
    if len(log) < LEAST_REWARDS:
        raise BadInput(f"has {len(log)} rewards: a replay needs {LEAST_REWARDS} at least", request.ratings)
    columns = request.columns
    for column, names in ((columns.key, log.key_names), (columns.item, log.item_names)):
        if len(names) < 2:
            raise BadInput("must have two different values at least", f"{request.ratings} {column}", names[0])
        for name in names:
            if len(name) > _LONGEST_NAME:
                what = f"must have {_LONGEST_NAME} characters at most"
                raise BadInput(what, f"{request.ratings} {column}", name)
    if float(log.rewards.min()) == float(log.rewards.max()):
        what = "is the same in all rows, so that there is nothing to learn"
        raise BadInput(what, f"{request.ratings} {columns.reward}", float(log.rewards[0]))
