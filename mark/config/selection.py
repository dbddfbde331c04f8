"""`[selection]` of a pipeline file: its stages are candidates, and this section decides which one answers a query."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mark.config.section import Section
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.selection.labels import NoAnswer, label_of
from mark.selection.settings import (
    CASCADE,
    EXP4,
    EXP4_THESIS,
    LOSSES,
    MOST_CANDIDATES,
    POLICIES,
    SPLIT,
    SelectionSettings,
)

SELECTION_KEYS = frozenset(
    (
        *("policy", "weights", "correct_usd", "threshold", "deadline_ms", "min_confidence", "default", "context"),
        *("half_life", "explore", "champion", "answer", "score", "loss", "loss_scale"),
    )
)
_OWN_POLICY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_KEY = "key"  # the context of `context = "key"`
# A combination waits this part of RT_max for its answers; the remainder is for the way back.
_WAITS = 0.9


def selection_of(
    section: Section, candidates: Sequence[str], slo: Slo, *, driver: str | None, feedback: bool
) -> SelectionSettings:
    """Return the settings of a selection among `candidates`. `feedback`: whether a section `[feedback]` exists.

    Raises BadInput.
    """
    if driver is not None:
        raise BadInput(
            "is for files without a driver: a driver chooses by itself", f"{section.path} [selection]", driver
        )
    if not 2 <= len(candidates) <= MOST_CANDIDATES:
        what = f"chooses among 2 to {MOST_CANDIDATES} candidates, each a section [stage.NAME]"
        raise BadInput(what, f"{section.path} [selection]", len(candidates))
    policy = section.text("policy")
    own = _OWN_POLICY.fullmatch(policy) is not None and policy not in POLICIES
    if policy not in POLICIES and not own:
        raise BadInput(f"must be {', '.join(POLICIES)}, or module:Class", section.where("policy"), policy)
    found = SelectionSettings(
        policy=policy,
        weights=_weights(section, policy, candidates),
        correct_usd=_number(section, "correct_usd"),
        threshold=_signed(section, "threshold"),
        deadline_s=_deadline_s(section, slo),
        min_confidence=_share(section, "min_confidence"),
        default=section.table.get("default"),
        has_default="default" in section.table,
        by_key="context" in section.table and section.one_of("context", (_KEY,)) == _KEY,
        half_life=_number(section, "half_life"),
        explore=_share(section, "explore"),
        champion=section.text("champion") if "champion" in section.table else None,
        answer=section.text("answer") if "answer" in section.table else None,
        score=section.text("score") if "score" in section.table else None,
        loss=section.one_of("loss", LOSSES),
        loss_scale=section.number("loss_scale", 1.0, above_zero=True),
    )
    _check(section, found, candidates, own=own)
    if found.learns and not feedback:
        raise BadInput("learns from feedback: add a section [feedback]", section.where("policy"), policy)
    return found


def _check(section: Section, found: SelectionSettings, candidates: Sequence[str], *, own: bool) -> None:
    if found.correct_usd is not None and found.threshold is not None:
        what = "says when the next candidate is asked, and so does threshold: keep one of them"
        raise BadInput(what, section.where("correct_usd"), found.correct_usd)
    cascade = found.policy == CASCADE
    for key in ("correct_usd", "threshold"):
        if key in section.table and not cascade and not own:
            raise BadInput(f"is for policy {CASCADE!r}", section.where(key), section.table[key])
    if cascade and found.correct_usd is None and found.threshold is None:
        what = "a cascade needs correct_usd (dollars that a correct answer is worth) or threshold (a score)"
        raise BadInput(what, section.where("policy"), found.policy)
    if cascade and found.score is None:
        raise BadInput("a cascade needs score, the field of a result with it", section.where("policy"), found.policy)
    if found.has_default != (found.min_confidence is not None):
        key, other = ("default", "min_confidence") if found.has_default else ("min_confidence", "default")
        raise BadInput(f"needs {other} beside it", section.where(key), section.table[key])
    if found.has_default:
        try:
            label_of(found.default)
        except NoAnswer as error:
            raise BadInput(f"cannot be an answer ({error})", section.where("default"), found.default) from None
    votes = found.policy in (EXP4, EXP4_THESIS) or own
    if found.min_confidence is not None and not votes and found.score is None:
        what = f"needs score, because {found.policy} asks one candidate, with which no other can agree"
        raise BadInput(what, section.where("min_confidence"), found.min_confidence)
    if found.champion is not None and found.champion not in candidates:
        raise BadInput("is no candidate", section.where("champion"), found.champion, known=candidates)
    if found.champion is not None and cascade:
        what = (
            "is for other policies: a cascade asks its later candidates only when the first is unsure, so it errs more"
        )
        raise BadInput(what, section.where("champion"), found.champion)


def _weights(section: Section, policy: str, candidates: Sequence[str]) -> tuple[float, ...]:
    if "weights" not in section.table:
        return ()
    if policy != SPLIT:
        raise BadInput(f"is for policy {SPLIT!r}", section.where("weights"), section.table["weights"])
    weights = section.below("weights")
    weights.only(candidates)
    found = tuple(weights.number(name, 0.0) for name in candidates)
    if abs(math.fsum(found) - 1.0) > 1e-6:
        raise BadInput("shares must add up to 1", section.where("weights"), math.fsum(found))
    return found


def _deadline_s(section: Section, slo: Slo) -> float:
    if "deadline_ms" not in section.table:
        return _WAITS * slo.rt_max_s
    said_s = section.number("deadline_ms", above_zero=True) / 1e3
    if said_s >= slo.rt_max_s:
        what = f"must be below slo_ms, {slo.rt_max_s * 1e3:g}: answers that are there by then are combined"
        raise BadInput(what, section.where("deadline_ms"), section.table["deadline_ms"])
    return said_s


def _number(section: Section, key: str) -> float | None:
    return section.number(key, above_zero=True) if key in section.table else None


def _signed(section: Section, key: str) -> float | None:
    """Return a number of either sign, because scores may be negative, as logarithms of probabilities are."""
    value: Any = section.table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput("must be a number", section.where(key), value)
    return float(value)


def _share(section: Section, key: str) -> float | None:
    if key not in section.table:
        return None
    share = section.number(key)
    if share > 1.0:
        raise BadInput("must be 0 to 1", section.where(key), share)
    return share


def usd_per_call_of(section: Section) -> float:
    """Return the price of a call beside the instances, as for an API that is paid by the call."""
    return section.number("usd_per_call", 0.0)


def check_alone(section: Section, others: Mapping[str, Section]) -> None:
    """Raise BadInput if a candidate states a place in a graph."""
    for stage in others.values():
        for key in ("after", "join", "share"):
            if key in stage.table:
                what = "is of a graph: candidates of [selection] have no order but that of the file"
                raise BadInput(what, stage.where(key), stage.table[key])
