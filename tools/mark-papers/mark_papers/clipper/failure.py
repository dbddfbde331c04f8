"""Fig. 3.8: policies while the best model answers at random between query 5,000 and query 10,000 of 20,000."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply
from mark.selection.query import Selection
from mark.selection.replay import LoggedQuery, replay
from mark.selection.settings import EXP3, EXP4, EXP4_THESIS, THOMPSON, SelectionSettings
from mark.selection.state import Judge, SelectionState
from mark_papers.clipper.classifiers import Classified, classified, data_notes, usable
from mark_papers.panels import Curve, FigurePanel, PanelFigure, Row

QUERIES, BROKEN, MENDED = 20_000, 5_000, 10_000
POLICIES = (EXP4, EXP4_THESIS, THOMPSON, EXP3)
_WINDOW = 500  # queries from one point of a curve to the next
_Errors = tuple[str, npt.NDArray[np.float64]]


def broken_answers(data: Classified, seed: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return answers of all models, of shape (queries, models), and labels, for images drawn at random."""
    generator = np.random.default_rng(seed)
    best = int(data.errors.argmin())
    index = generator.integers(0, len(data.labels), QUERIES)
    answers = data.answers[index].copy()
    answers[BROKEN:MENDED, best] = generator.integers(0, 10, MENDED - BROKEN)
    return answers, data.labels[index]


def queries(data: Classified, seed: int) -> list[LoggedQuery]:
    """Return the scenario's queries, for a replay."""
    answers, labels = broken_answers(data, seed)
    usd = [0.0] * len(data.names)
    return [
        LoggedQuery(label, [CandidateReply(one, one) for one in row], usd)
        for label, row in zip(labels.tolist(), answers.tolist(), strict=True)
    ]


def window_errors(
    policy: str, names: tuple[str, ...], asked: list[LoggedQuery], seed: int, window: int
) -> npt.NDArray[np.float64]:
    """Return the error of a policy in each window of queries."""
    settings = SelectionSettings(policy)
    state = SelectionState(names, settings)
    generator = np.random.default_rng(seed + 1)
    selection = Selection(policy_of(settings, len(names), generator), state, settings, generator.random)
    found = replay(asked, selection, Judge(state, None), window)
    return np.array([one.loss / one.queries for one in found.windows])


def run_clipper_fig3_8(
    *, data: tuple[str, ...] | None = None, seed: int = 0, progress: Callable[[float], None] | None = None
) -> PanelFigure:
    """Compare cumulative errors of the five models and of four policies."""
    names = usable() if data is None else data
    panels, takeaways = [], []
    for place, name in enumerate(names):
        found = classified(name)
        answers, labels = broken_answers(found, seed)
        wrong = (answers != labels[:, None]).astype(float).reshape(-1, _WINDOW, len(found.names)).mean(1)
        rows: list[_Errors] = [(model, wrong[:, at]) for at, model in enumerate(found.names)]
        asked = queries(found, seed)
        for at, policy in enumerate(POLICIES):
            rows.append((policy, window_errors(policy, found.names, asked, seed, _WINDOW)))
            if progress is not None:
                progress((place + (at + 1) / len(POLICIES)) / len(names))
        panels.append(_panel(name, rows))
        takeaways.append(_verdict(name, rows))
    return PanelFigure(
        "clipper-fig3-8",
        "Crankshaw's thesis (Clipper)",
        "Fig. 3.8 of Clipper: the best model is broken for 5,000 of 20,000 queries",
        tuple(panels),
        tuple(takeaways),
        (
            "errors: before the fault, in it, after it, and over all queries; the label is told after each answer",
            "exp4, exp3 and thompson discount what they saw; exp4:thesis is the rule as the paper prints it",
            "the paper: five Caffe models on CIFAR; Exp3 and Exp4 stay below every single model",
            *data_notes(),
        ),
    )


def _panel(name: str, rows: list[_Errors]) -> FigurePanel:
    curves = []
    for model, errors in rows:
        cumulative = np.cumsum(errors) / np.arange(1, len(errors) + 1)
        x = tuple(float(_WINDOW * (at + 1)) for at in range(len(errors)))
        curves.append(Curve(model, x, tuple(cumulative.tolist())))
    table: list[Row] = [
        {
            "policy": model,
            "before": float(errors[: BROKEN // _WINDOW].mean()),
            "broken": float(errors[BROKEN // _WINDOW : MENDED // _WINDOW].mean()),
            "after": float(errors[MENDED // _WINDOW :].mean()),
            "all": float(errors.mean()),
        }
        for model, errors in rows
    ]
    return FigurePanel(name, tuple(table), tuple(curves), ("queries", "cumulative error"))


def _verdict(name: str, rows: list[_Errors]) -> str:
    alone = {model: float(errors.mean()) for model, errors in rows if model not in POLICIES}
    ours = {model: float(errors.mean()) for model, errors in rows if model in POLICIES}
    best = min(alone, key=lambda model: alone[model])
    better = [policy for policy, error in ours.items() if error < alone[best]]
    listed = ", ".join(f"{policy} {100 * ours[policy]:.2f} %" for policy in ours)
    return (
        f"{name}: best model over all queries is {best}, {100 * alone[best]:.2f} %; {listed}; {len(better)} below it."
    )
