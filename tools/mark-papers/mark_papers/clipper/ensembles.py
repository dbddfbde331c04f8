"""Fig. 3.7: does an ensemble of five models beat the best of them, and does its agreement indicate correctness?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mark.selection.settings import EXP4, SelectionSettings
from mark_papers.clipper.asking import AskedLearner
from mark_papers.clipper.classifiers import Classified, classified, data_notes, usable
from mark_papers.panels import FigurePanel, PanelFigure, Row

_LEAST_AGREEING = (4, 5)  # the groups in the paper


def run_clipper_fig3_7(
    *, data: tuple[str, ...] | None = None, progress: Callable[[float], None] | None = None
) -> PanelFigure:
    """Compare errors of the best model, of the ensemble, and of its answers by the number of agreeing models."""
    names = usable() if data is None else data
    panels, takeaways = [], []
    for place, name in enumerate(names):
        rows = ensemble_rows(classified(name))
        panels.append(FigurePanel(name, rows))
        best, ensemble, *_, five, others = (float(row["error"]) for row in rows)
        takeaways.append(
            f"{name}: the ensemble has {100 * ensemble:.2f} % errors, the best model {100 * best:.2f} %; where all "
            f"five agree {100 * five:.2f} %, elsewhere {100 * others:.2f} %."
        )
        if progress is not None:
            progress((place + 1) / len(names))
    return PanelFigure(
        "clipper-fig3-7",
        "Crankshaw's thesis (Clipper)",
        "Fig. 3.7 of Clipper: errors of an ensemble, and by how many models agree",
        tuple(panels),
        tuple(takeaways),
        (
            "exp4 learns the weights from each query's label, which is told after its answer; every held-out image is "
            "asked once",
            "the paper: five networks on CIFAR and ImageNet; the ensemble has 5.2 % fewer errors on ImageNet",
            *data_notes(),
        ),
    )


def ensemble_rows(data: Classified) -> tuple[Row, ...]:
    """Return the rows of the best model, the ensemble, and its answers by agreement: share and error."""
    learner = AskedLearner(data.names, SelectionSettings(EXP4))
    wrong, agreeing = [], []
    for answers, label in zip(data.answers.tolist(), data.labels.tolist(), strict=True):
        answer = learner.ask(answers, label).choice.label
        wrong.append(float(answer != label))
        agreeing.append(answers.count(answer))
    errors, counts = np.array(wrong), np.array(agreeing)
    best = int(data.errors.argmin())
    groups = [(f"exp4, {least} or more agree", counts >= least) for least in _LEAST_AGREEING[:-1]]
    last = _LEAST_AGREEING[-1]
    groups += [(f"exp4, all {last} agree", counts >= last), (f"exp4, fewer than {last} agree", counts < last)]
    rows: list[Row] = [
        {"answers": f"{data.names[best]} alone", "share": 1.0, "error": float(data.errors[best])},
        {"answers": "exp4", "share": 1.0, "error": float(errors.mean())},
    ]
    for title, of in groups:
        error = float(errors[of].mean()) if of.any() else 0.0
        rows.append({"answers": title, "share": float(of.mean()), "error": error})
    return tuple(rows)
