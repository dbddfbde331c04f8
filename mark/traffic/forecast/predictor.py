"""The port that every predictor implements. Adapters live in `mark_predictors` or a user's own package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from mark.domain.load import Forecast, Load

State = Mapping[str, NDArray[Any]]  # named arrays of numbers or text, no objects


class Predictor(Protocol):
    """Learns from observed load and forecasts the next steps.

    The order of calls is: `fit` once on a history (which may be empty or hold NaN for missing steps), then any number
    of `update` (the following steps, in order, without refitting) and `predict`. Equal data and seed give equal
    answers.
    """

    @property
    def name(self) -> str:
        """The registered name."""

    def fit(self, history: Load) -> None:
        """Learn from `history`. Never raises on a constant, short or empty history."""

    def update(self, observed: Load) -> None:
        """Take in the steps that directly follow all steps seen so far."""

    def predict(self, steps: int) -> Forecast:
        """Return quantiles for the next `steps` steps; step 0 begins at the end of the observed load.

        `Forecast.paths_rps` are equally likely futures with these quantiles as marginals, or None.
        """


@runtime_checkable
class Savable(Protocol):
    """A predictor whose learning is worth keeping: the estimates of `fit` can be put into a fresh one.

    After `restore`, `fit` takes in its history without a new estimation: the state holds the learned shape (weights,
    orders, periods), not the load seen.
    """

    version: int  # of the state's layout; a file of another version is refused

    def state(self) -> State:
        """Return the learned state, as arrays. Raises ValueError before any learning."""

    def restore(self, state: State) -> None:
        """Take over the state of another predictor of the same version. Raises ValueError for an invalid state."""


@runtime_checkable
class Deferrable(Predictor, Protocol):
    """A predictor with long learning that can wait, so that many in one process learn one after the other."""

    def fitting(self, history: Load) -> Iterator[None]:
        """Do `fit` piece by piece, each about a second of work if the work can be split.

        Afterwards `update` only follows the load; learning from it waits for `learn`.
        """

    def learn(self) -> None:
        """Do the learning that is due, if any."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The progress of a training: epoch `number` of at most `of`, and the losses after it."""

    number: int
    of: int
    loss: float
    validation_loss: float


@runtime_checkable
class Trainable(Savable, Protocol):
    """A predictor that learns in epochs, so that a user can watch, stop and resume."""

    def training(self, history: Load, checkpoint: State | None = None) -> Iterator[Epoch]:
        """Train on `history` epoch by epoch, from `checkpoint` if there is one.

        Stops by itself when the validation loss no longer falls. A resumed training ends as an uninterrupted one would.
        """

    def checkpoint(self) -> State:
        """Return the state that a resumed training needs, after the last completed epoch."""
