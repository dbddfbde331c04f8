"""Trained parity models, shown as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mark.studies.report.layout import columns, page, sentences, small_print, text
from mark.studies.report.words import number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mark.models.parity_training import ParityTraining


def training_json(found: ParityTraining, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stable object that `--json` writes; `written` is the content of parity.json."""
    return {
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


def training_table(found: ParityTraining, folder: str) -> RenderableType:
    table = columns("code", "k", "A_a", "A_d", "seconds")
    for one in found.codes:
        style = "bold" if one is found.chosen else ""
        accuracies = percent(found.available_accuracy), percent(one.degraded_accuracy)
        table.add_row(text(one.code.name, style), str(one.code.k), *accuracies, number(one.train_s, 1))
    best = found.chosen
    lines = [
        f"{folder} has the parity models of {best.code.name} with k = {best.code.k}: write [insurance] parity = "
        f'"{folder}" into the service file.'
    ]
    notes = ["A_a: accuracy of the model's own answers; A_d: of reconstructions of one missing answer of a group"]
    if not found.labelled:
        notes.append("the data has no labels (y): the model's own answers count as right")
    return page(table, *sentences(lines), *small_print(notes))
