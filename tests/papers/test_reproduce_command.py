"""mark reproduce: an experiment's arguments and the place of its result; the experiments themselves take minutes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mark_papers.paper.optimal import Optimal

from mark.cli.main import main
from tests.papers import test_panels_page
from tests.papers.inferline_pages import test_planners_page, test_tuners_page
from tests.papers.paper_pages import test_fig6_page, test_fig7_page, test_fig8_page, test_fig9_page

FOUND: dict[str, Callable[[], Any]] = {
    "fig6": test_fig6_page.found,
    "fig7": test_fig7_page.found,
    "fig8": test_fig8_page.found,
    "fig9": test_fig9_page.found,
    **{f"inferline-{n}": partial(test_planners_page.found, f"inferline-{n}") for n in ("fig5", "fig9")},
    **{
        f"inferline-{n}": partial(test_tuners_page.found, f"inferline-{n}")
        for n in ("fig6", "fig10", "fig11", "fig12", "activation")
    },
    **{
        f"clipper-{n}": partial(test_panels_page.found, f"clipper-{n}")
        for n in ("fig3-7", "fig3-8", "fig3-9", "fig3-10")
    },
    **{f"velox-{n}": partial(test_panels_page.found, f"velox-{n}") for n in ("fig2-3", "fig2-4")},
    **{
        f"parm-{n}": partial(test_panels_page.found, f"parm-{n}")
        for n in ("fig10", "fig11", "fig12", "fig13", "fig14", "batches", "delays", "accuracy")
    },
}


class Experiment:
    """Stands in for `run_fig...`: accepts its arguments and answers immediately."""

    def __init__(self, figure: str) -> None:
        self.figure = figure
        self.given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.given = args, options
        return FOUND[self.figure]()


@pytest.fixture(params=list(FOUND))
def experiment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    fake = Experiment(request.param)
    monkeypatch.setattr(f"mark_papers.reproduce_command.run_{fake.figure.replace('-', '_')}", fake)
    return fake


def test_a_figure_is_a_table_and_a_page(
    experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "figure.html"
    assert main(["reproduce", experiment.figure, "--report", str(page)]) == 0
    captured = capsys.readouterr()
    assert "of the paper" in captured.out or "Fig. 3.9 of Clipper" in captured.out
    assert captured.err == f"report: {page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_figure_is_json_and_nothing_else_when_asked(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", experiment.figure, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["figure"] == experiment.figure
    assert captured.err == ""


def test_the_trace_is_replayed_where_there_is_one(experiment: Experiment, capsys: pytest.CaptureFixture[str]) -> None:
    if experiment.figure not in ("fig6", "fig7", "fig8"):
        assert main(["reproduce", experiment.figure, "--trace", "t.csv"]) == 2
        assert f"--trace: {experiment.figure} does not read it" in capsys.readouterr().err
        return
    spot = ["--spot-trace", "s.csv"] if experiment.figure == "fig7" else []
    assert main(["reproduce", experiment.figure, "--trace", "t.csv", *spot, "--json", "-"]) == 0
    args, options = experiment.given
    assert args == ("t.csv",)
    assert options.get("spot_trace") == ("s.csv" if spot else None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table2", "--trace", "t.csv"], "--trace: table2 does not read it: only table5, optimal, fig6, fig7, fig8 do"),
        (["fig9", "--trace", "t.csv"], "--trace: fig9 does not read it"),
        (["fig8", "--spot-trace", "s.csv"], "--spot-trace: fig8 does not read it: only table5, fig7 do: s.csv"),
    ],
)
def test_traffic_is_refused_by_an_experiment_that_does_not_replay_it(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("figure", ["fig6", "fig7", "fig8", "table5", "optimal"])
def test_a_trace_that_is_too_short_is_one_line(figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short.csv"
    short.write_text("t_seconds,count\n" + "".join(f"{60 * i},600\n" for i in range(600)))
    assert main(["reproduce", figure, "--trace", str(short)]) == 2
    assert "a day of history and 490 minutes" in capsys.readouterr().err


def test_the_models_of_the_program_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {}

    def fake(trace: str | None, **options: Any) -> Optimal:
        given.update(options, trace=trace)
        return Optimal("t", 0.0, 490, (), ())

    monkeypatch.setattr("mark_papers.reproduce_command.run_optimal", fake)
    asked = ["reproduce", "optimal", "--trace", "t.csv", "--model", "nasnet", "--model", "inception-v3", "--json", "-"]
    assert main(asked) == 0
    assert (given["trace"], given["models"]) == ("t.csv", ("inception-v3", "nasnet"))
    assert json.loads(capsys.readouterr().out)["table"] == "optimal"
    assert main(["reproduce", "table2", "--model", "nasnet"]) == 2
    assert "--model" in capsys.readouterr().err
