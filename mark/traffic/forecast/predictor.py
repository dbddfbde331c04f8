"""The port every predictor implements. Adapters live in `mark_predictors` or a user's own package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from mark.domain.load import Forecast, Load

State = Mapping[str, NDArray[Any]]  # named arrays of numbers or text, no objects


class Predictor(Protocol):
    """Learns from observed load and says what comes next.

    The life is: `fit` once on a history (which may be empty or hold NaN for missing steps), then any number of
    `update` (the steps that follow, in order, without refitting) and `predict`. Same data and seed, same answer.
    """

    @property
    def name(self) -> str:
        """As it is registered."""

    def fit(self, history: Load) -> None:
        """Learn from `history`. Never raises on a constant, short or empty history."""

    def update(self, observed: Load) -> None:
        """Take in steps that follow directly on everything seen so far."""

    def predict(self, steps: int) -> Forecast:
        """Quantiles for the next `steps` steps; step 0 begins where the observed load ends.

        `Forecast.paths_rps` are equally likely futures whose marginals the quantiles are; None where there are none.
        """


@runtime_checkable
class Savable(Protocol):
    """A predictor whose learning is worth keeping: what `fit` estimated can be put into a fresh one.

    After `restore`, `fit` takes in its history without estimating anything again: the state holds what was learned of
    the shape (weights, orders, periods), not the load that was seen.
    """

    version: int  # of the state's layout; a file of another version is refused

    def state(self) -> State:
        """What was learned, as arrays. Raises ValueError before anything was."""

    def restore(self, state: State) -> None:
        """Take over what another of the same version learned. Raises ValueError for a state that is none."""


@runtime_checkable
class Deferrable(Predictor, Protocol):
    """A predictor whose learning takes long and can wait, so that many in one process learn one after the other."""

    def fitting(self, history: Load) -> Iterator[None]:
        """As `fit`, a piece at a time: pieces are cut by work, into about a second each where the work can be cut.

        Afterwards `update` only follows the load; what is learned from it waits for `learn`.
        """

    def learn(self) -> None:
        """Do the learning that is due, if any is."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """How far a training is: epoch `number` of at most `of`, and the losses after it."""

    number: int
    of: int
    loss: float
    validation_loss: float


@runtime_checkable
class Trainable(Savable, Protocol):
    """A predictor that learns in epochs, so that a user can watch, stop and resume."""

    def training(self, history: Load, checkpoint: State | None = None) -> Iterator[Epoch]:
        """Train on `history` epoch by epoch, from `checkpoint` on where there is one.

        Stops by itself when the validation loss no longer falls. Resumed training ends as if it had not been stopped.
        """

    def checkpoint(self) -> State:
        """All that a resumed training needs, after the epoch just done."""
