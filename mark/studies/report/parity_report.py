"""Trained parity models, shown as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.words import number_1, percent

if TYPE_CHECKING:
    from mark.models.parity_training import ParityTraining


def training_report(found: ParityTraining, written: Mapping[str, Any], folder: str) -> Report:
    """Return the trained models; `written` is the content of parity.json."""
    data = {
        "schema": 1,
        "available_accuracy": found.available_accuracy,
        "codes": [
            {
                "code": one.code.name,
                "k": one.code.k,
                "degraded_accuracy": one.degraded_accuracy,
                "train_s": one.train_s,
            }
            for one in found.codes
        ],
        "chosen": dict(written),
    }
    best = found.chosen
    rows = [
        (
            Marked(one.code.name, "strong" if one is best else ""),
            *(one.code.k, found.available_accuracy, one.degraded_accuracy, one.train_s),
        )
        for one in found.codes
    ]
    said = (
        f"{folder} has the parity models of {best.code.name} with k = {best.code.k}: write [insurance] parity = "
        f'"{folder}" into the service file.'
    )
    notes = ["A_a: accuracy of the model's own answers; A_d: of reconstructions of one missing answer of a group"]
    if not found.labelled:
        notes.append("the data has no labels (y): the model's own answers count as right")
    heads = ("code", ("k", str), ("A_a", percent), ("A_d", percent), ("seconds", number_1))
    return Report(data, parts=[DataTable(heads, rows)], sentences=[said], notes=notes)
