"""The sink of a service that learns: the log first, then the facts, and only then clients are told `applied`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mark.serving.feedback.port import Feedback, FeedbackSink, Observation, ServedAnswer
from mark.serving.feedback.rewriting import Change
from mark.serving.learned.facts import MOST_CONTENT
from mark.serving.learned.learning import Learning

_LOG = logging.getLogger("mark.serving")


class LearningSink:
    """Passes all calls on to `log`, and learns from observations.

    Feedback whose commit failed comes again. By then its fact has a number and its line is in the log, so neither is
    made twice.
    """

    def __init__(self, log: FeedbackSink, learning: Learning) -> None:
        self._log, self._learning = log, learning

    def answered(self, answers: Sequence[ServedAnswer]) -> None:
        self._log.answered(answers)

    def received(self, observed: Sequence[Observation], unknown: Sequence[Feedback], received_at_s: float) -> None:
        learning = self._learning
        learning.make_room({one.answer.id for one in observed})
        new = [one for one in observed if not learning.is_under_way(one.answer.id)]
        self._log.received(new, unknown, received_at_s)
        # After the log, because feedback that the log could not store comes again, and a learner may count it.
        contents = [(one.answer.id, self._content(one)) for one in new]
        for about, content in contents:
            if content is not None:
                learning.number(about, content, received_at_s)
        learning.commit()
        learning.unlearned += sum(content is None for _, content in contents)

    def rewrite(self, change: Change) -> None:
        self._log.rewrite(change)

    def close(self) -> None:
        self._log.close()

    def _content(self, observation: Observation) -> bytes | None:
        try:
            content = self._learning.learner.fact(observation)
        except Exception:  # the feedback stays in the log even if the learner fails
            _LOG.exception("nothing is learned from feedback", extra={"request_id": observation.answer.id})
            return None
        if content is not None and len(content) > MOST_CONTENT:
            _LOG.error("nothing is learned from feedback: its fact has %d bytes", len(content))
            return None
        return content


_: type[FeedbackSink] = LearningSink
