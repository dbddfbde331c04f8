"""`mark pipeline trace` end to end: its table, its files, and its errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.cli.main import main
from mark.planning.graphs.lineage_file import load_lineage

Captured = pytest.CaptureFixture[str]

CODE = """
import asyncio
import mark

@mark.pipeline(slo_ms=300)
async def respond(query, models):
    print("a word of the driver's")
    boxes = await models.detect(query["frame"])
    seen = await asyncio.gather(*(models.classify(box) for box in boxes))
    return await models.report(seen) if seen else None

@mark.model
def detect(batch):
    return [list(range(frame)) for frame in batch]

class Classify(mark.Model):
    inputs = (mark.TensorSpec("box", "FP32", ()),)

    def predict(self, batch):
        return [float(box) + 1.0 for box in batch]

@mark.model
def report(batch):
    return [sum(seen) for seen in batch]

class Fails(mark.Model):
    def load(self):
        raise OSError("no weights")
"""
FILE = """
[service]
name = "video"
slo_ms = 300
slo_attainment = 0.99
pipeline = "video_of_test:respond"
[stage.report]
model = "video_of_test:report"
[stage.detect]
model = "video_of_test:detect"
[stage.classify]
model = "video_of_test:Classify"
[stage.audio]
model = "video_of_test:detect"
"""
TABLE = """\
video: the graph of video_of_test:respond, traced on 4 queries

╭──── detect
│     audio
╰─┬─> classify
  ╰─> report

                               calls fan-out
stage    comes after queries a query    mean max
detect   -           100.0 %    1.00    1.00   1
audio    -             0.0 %    0.00       -   -
classify detect       75.0 %    1.75    2.33   3
report   classify     75.0 %    0.75    1.00   1

visited set              queries  share
detect, classify, report       3 75.0 %
detect                         1 25.0 %

note: no query calls audio
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a pipeline, and forget the imported modules afterwards."""
    before = list(sys.path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "video_of_test.py").write_text(CODE)
    (tmp_path / "video.toml").write_text(FILE)
    (tmp_path / "q.jsonl").write_text('{"frame": 2}\n{"frame": 0}\n\n{"frame": 3}\n{"frame": 2}\n')
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("video_of_test", None)


TRACE = ["pipeline", "trace", "video.toml", "--queries", "q.jsonl"]


def refused(argv: list[str], said: str, capsys: Captured) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "of the driver's" not in line]
    assert lines[0].startswith("mark: error: ")
    assert len(lines) == 1
    assert said in lines[0]
    assert captured.out == ""


def test_the_graph_is_drawn_and_the_stages_are_counted(place: Path, capsys: Captured) -> None:
    assert main([*TRACE, "--out", "lineage.csv"]) == 0
    captured = capsys.readouterr()
    assert captured.out == TABLE
    assert "out: lineage.csv" in captured.err
    lineage = load_lineage("lineage.csv")
    assert lineage.stages == ("detect", "audio", "classify", "report")
    assert (lineage.calls.tolist(), lineage.queries.tolist()) == (
        [[1, 0, 2, 1], [1, 0, 0, 0], [1, 0, 3, 1]],
        [2, 1, 1],
    )


def test_json_goes_to_stdout_and_nothing_else_does(place: Path, capsys: Captured) -> None:
    """The driver may print as well."""
    assert main([*TRACE, "--json", "-"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "a word of the driver's" in captured.err
    assert (found["schema"], found["pipeline"], found["queries"]) == (1, "video", 4)
    classify = found["stages"][2]
    assert (classify["stage"], classify["model"]) == ("classify", "video_of_test:Classify")
    assert (classify["after"], classify["share"], classify["repeated"]) == (["detect"], 0.75, False)
    assert classify["fan_out"] == {"mean": pytest.approx(7 / 3), "max": 3}
    assert found["stages"][1]["fan_out"] == {"mean": None, "max": None}
    assert found["patterns"][0] == {"queries": 2, "calls": {"detect": 1, "audio": 0, "classify": 2, "report": 1}}
    assert sum(one["queries"] for one in found["visited_sets"]) == 4
    assert main([*TRACE, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("q.jsonl", '{"frame": 0}', "{frame: 0}", "q.jsonl:2: is no JSON"),
        ("q.jsonl", '{"frame": 0}', "{}", "q.jsonl:2: the driver raised KeyError: 'frame'"),
        ("q.jsonl", '{"frame": 0}', '{"frame": "x"}', "q.jsonl:2: the model of detect raised TypeError"),
        ("video.toml", "[stage.report]", "[stage.reports]", "no stage, did you mean reports?: report"),
        ("video.toml", "slo_ms = 300", "slo_ms = 200", "video.toml [service] slo_ms: the driver video_of_test:respond"),
        ("video.toml", ":respond", ":detect", "video.toml [service] pipeline: detect is no pipeline"),
        ("video.toml", "video_of_test:respond", "no_such_module:respond", "no module no_such_module"),
        ("video.toml", ":Classify", ":Classfy", "[stage.classify] model: video_of_test:Classfy: video_of_test has no"),
        ("video.toml", ":Classify", ":Fails", "[stage.classify] model: does not load (OSError: no weights)"),
        ("video.toml", ":Classify", "", "[stage.classify] model: model: no such form of reference"),
        ("video.toml", 'pipeline = "video_of_test:respond"', "", "video.toml: has no driver to trace"),
        (
            "video_of_test.py",
            "models.classify(box)",
            'models.classify("wide")',
            "the model of classify raised ValueError",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(
    place: Path, capsys: Captured, file: str, old: str, new: str, said: str
) -> None:
    path = place / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    refused(TRACE, said, capsys)


def test_other_files_are_refused(place: Path, capsys: Captured) -> None:
    refused(["pipeline", "trace", "nasnet", "--queries", "q.jsonl"], "nasnet: no such file", capsys)
    refused([*TRACE[:-1], "none.jsonl"], "none.jsonl: cannot be read", capsys)
    refused([*TRACE, "--out", "no/such/l.csv"], "--out", capsys)
    refused(TRACE[:3], "--queries", capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["frontier", "synthetic:poisson?rate=1", "--service", "video.toml"],
        ["diff", "video.toml", "video.toml", "--trace", "synthetic:poisson?rate=1"],
    ],
)
def test_commands_that_take_no_pipeline_yet_say_so(place: Path, capsys: Captured, command: list[str]) -> None:
    refused(command, "video.toml: is a pipeline, which this command does not take yet", capsys)


def test_check_takes_a_pipeline(place: Path, capsys: Captured) -> None:
    assert main(["check", "video.toml"]) == 0
    assert "ok, a pipeline of 4 stages (report, detect, classify, audio)" in capsys.readouterr().out


def test_a_process_of_its_own_prints_the_same(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mark.cli.main", *TRACE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, TABLE)
