"""The port `Learner`: state that feedback changes, such as a choice between models or the weights of a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mark.serving.feedback.port import Observation


class Learner(Protocol):
    """Learns from facts, which several processes exchange (`mark.serving.learned.learning`).

    A fact holds all data that the state needs from one piece of feedback. Only the learner reads its content.
    """

    def fact(self, observation: Observation) -> bytes | None:
        """Return the fact in this feedback; None: nothing can be learned from it, which is counted as `unlearned`.

        The thread of the feedback sink calls it, so it may take its time and must not change the state.
        """
        ...

    def apply(self, fact: bytes) -> None:
        """Add a fact to the state. The event loop calls it, once for each fact, in any order.

        It must be commutative: the same facts in another order give the same state.
        """
        ...

    def freeze(self) -> Callable[[], bytes]:
        """Return a function that encodes the state after all facts that were applied.

        The event loop calls `freeze`. Another thread may call the function, while the loop applies further facts.
        """
        ...

    def restore(self, state: bytes) -> None:
        """Replace the state with a snapshot. Raises ValueError, and keeps the state, unless the bytes are a snapshot.

        A snapshot of another format version is refused too. The kept facts are then read from the first one.
        """
        ...
