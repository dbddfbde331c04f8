"""Errors and prices of cascades, ensembles and single models: the picture of docs/selection.md.

    python benchmarks/selection/frontier.py [--data mnist|digits] [--out docs/cascade.svg]

A small model (logistic regression) and a large model (SVM) answer held-out images, 20,000 queries drawn at random. A
million calls cost $10 of the small model and $100 of the large model. A cascade with `correct_usd` learns from the
label after each query; a cascade with `threshold` asks the large model below a fixed score.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from models import classified

from mark.selection.policies import policy_of
from mark.selection.policy import CandidateReply
from mark.selection.query import Selection
from mark.selection.replay import LoggedQuery, replay
from mark.selection.settings import SelectionSettings
from mark.selection.state import Judge, SelectionState

USD = [10e-6, 100e-6]
QUERIES = 20_000
POINTS = (
    *((f"threshold {at:g}", SelectionSettings("cascade", threshold=at)) for at in (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)),
    *((f"correct_usd {at:g}", SelectionSettings("cascade", correct_usd=at)) for at in (2e-4, 5e-4, 1e-3, 2e-3, 1e-2)),
    ("thompson", SelectionSettings("thompson")),
    ("exp4", SelectionSettings("exp4")),
    ("small alone", SelectionSettings("split", weights=(1.0, 0.0))),
    ("large alone", SelectionSettings("split", weights=(0.0, 1.0))),
)
Point = tuple[str, float, float]


def points(data: str) -> list[Point]:
    """Return each policy's name, dollars for a million queries, and error in percent."""
    found = classified(data)
    small, large = found.names.index("logreg"), found.names.index("svm")
    drawn = np.random.default_rng(0).integers(0, len(found.labels), QUERIES)
    models = (small, large)
    queries = [
        LoggedQuery(
            int(found.labels[at]),
            [_reply(int(found.answers[at, one]), float(found.margins[at, one])) for one in models],
            USD,
        )
        for at in drawn
    ]
    return [_point(name, settings, queries) for name, settings in POINTS]


def _reply(answer: int, margin: float) -> CandidateReply:
    return CandidateReply(answer, answer, margin)


def _point(name: str, settings: SelectionSettings, queries: list[LoggedQuery]) -> Point:
    state, generator = SelectionState(("small", "large"), settings), np.random.default_rng(1)
    selection = Selection(policy_of(settings, 2, generator), state, settings, generator.random)
    ran = replay(queries, selection, Judge(state, None))
    return name, 1e6 * ran.usd / ran.queries, 100.0 * ran.error


def picture(found: list[Point]) -> str:
    """Return the points as SVG: dollars to the right, errors upwards."""
    width, height, left, bottom = 640, 380, 60, 50
    most_usd, most_error = 120.0, 1.15 * max(error for _, _, error in found)

    def place(usd: float, error: float) -> tuple[float, float]:
        x = left + (width - left - 20) * usd / most_usd
        return round(x, 1), round((height - bottom) * (1.0 - error / most_error) + 10, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 10}"'
        ' font-family="system-ui, sans-serif" font-size="13" fill="#777">',
        "<title>Error and price of cascades, ensembles and single models</title>",
    ]
    for tick in range(0, 121, 20):
        x, y = place(tick, 0.0)
        parts.append(f'<line x1="{x}" y1="10" x2="{x}" y2="{y}" stroke="#8883"/>')
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{tick}</text>')
    for tick in range(0, int(most_error) + 1, 2):
        x, y = place(0.0, tick)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#8883"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{tick} %</text>')
    parts.append(f'<text x="{width / 2}" y="{height + 2}" text-anchor="middle">dollars for a million queries</text>')
    for word, colour in (("threshold", "#888"), ("correct_usd", "#0a7")):
        line = [place(usd, error) for name, usd, error in found if name.startswith(word)]
        path = " ".join(f"{x},{y}" for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in line]
    for name, usd, error in found:
        x, y = place(usd, error)
        if not name.startswith(("threshold", "correct_usd")):
            below = 20 if name == "large alone" else -9  # it lies between two others
            parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="#c50"/>')
            parts.append(f'<text x="{x - 4}" y="{y + below}" text-anchor="middle">{name}</text>')
    parts.append('<text x="330" y="40" fill="#888">cascade, fixed thresholds</text>')
    parts.append('<text x="330" y="60" fill="#0a7">cascade, correct_usd from 2e-4 to 1e-2</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist", choices=("mnist", "digits"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = points(args.data)
    for name, usd, error in found:
        print(f"{name:18} ${usd:6.1f} a million  {error:5.2f} % errors")
    if args.out is not None:
        args.out.write_text(picture(found))


if __name__ == "__main__":
    main()
