"""The calls of a pipeline file with `[selection]`, by its policy and a file of answers, or by a lineage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage, Pipeline
from mark.domain.service import ResolvedService
from mark.planning.graphs.answers_file import load_answers
from mark.planning.graphs.lineage_file import load_lineage
from mark.planning.marginal_prices import planned_usd
from mark.selection.settings import (
    CASCADE,
    EXP3,
    EXP4,
    EXP4_THESIS,
    POLICIES,
    SPLIT,
    THOMPSON,
    SelectionSettings,
)
from mark.simulation.selected_calls import SelectedCalls, split_shares

_FEW = 500  # answers: with fewer the error is known to one or two points only
_SPLIT_OF = 10**9
NO_BOUND = "no bound, because a selection can answer a query without a call that it asked for"


def selection_law(
    config: PipelineConfig,
    resolved: Mapping[str, ResolvedService],
    lineage: str | None,
    answers: str | None,
    seed: int,
) -> tuple[Pipeline, Lineage, list[str], SelectedCalls | None]:
    """Return the graph, the law of calls at planned prices, notes, and the policy if there are answers.

    Raises BadInput if neither answers nor a lineage tell a policy's calls, and for unusable files.
    """
    settings, pipeline = config.selection, config.pipeline
    assert settings is not None
    assert pipeline is not None
    if answers is not None:
        if lineage is not None:
            raise BadInput("says which candidates are asked, and so do answers: give one of them", "lineage", lineage)
        if settings.policy not in POLICIES:
            what = "is simulated with a lineage (`mark selection replay --out` writes one), not with answers"
            raise BadInput(what, f"{config.source} [selection] policy", settings.policy)
        selected = SelectedCalls(settings, load_answers(answers, config.names, settings), seed)
        law = selected.law(planned_call_usd(config, resolved))
        return pipeline, law, _notes(settings, len(selected.answers)), selected
    lineage = lineage or config.lineage_file
    if lineage is not None:
        return pipeline, load_lineage(lineage, config.names), [], None
    count = len(config.names)
    if settings.policy in (EXP4, EXP4_THESIS):
        return pipeline, Lineage.independent(config.names, [1.0] * count), [], None
    if settings.policy == SPLIT:
        counts = np.rint(_SPLIT_OF * split_shares(settings, count)).astype(np.int64)
        asked = np.flatnonzero(counts)
        return pipeline, Lineage(config.names, np.eye(count, dtype=np.int64)[asked], counts[asked]), [], None
    what = "asks by what candidates answer: give --answers FILE, or --lineage FILE of `mark selection replay --out`"
    raise BadInput(what, f"{config.source} [selection] policy", settings.policy)


def planned_call_usd(config: PipelineConfig, resolved: Mapping[str, ResolvedService]) -> list[float]:
    """Return the planned price of a call of each candidate."""
    return [planned_usd(resolved[stage.name], {}) + stage.usd_per_call for stage in config.stages]


def _notes(settings: SelectionSettings, answers: int) -> list[str]:
    notes = []
    if settings.policy == CASCADE and settings.correct_usd is not None:
        notes.append("what the policy learns is taken as settled: its tables of scores are fitted to the answers file")
    elif settings.policy in (EXP3, EXP4, EXP4_THESIS, THOMPSON):
        notes.append("what the policy learns is taken as settled: it knows the errors in the answers file")
    if answers < _FEW:
        notes.append(f"{answers} answers are few to tell an error by")
    if settings.policy in (EXP4, EXP4_THESIS):
        notes.append("wrong answers are counted as equal in votes, so that the error is an upper limit")
    left_out = {
        "champion": settings.champion is not None,
        "min_confidence": settings.min_confidence is not None,
        "context": settings.by_key,
    }
    if any(left_out.values()):
        notes.append(f"[selection] {', '.join(name for name, said in left_out.items() if said)}: not simulated")
    return notes
