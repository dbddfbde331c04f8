"""`mark selection`: options, outputs and exit codes. Replays are tested in tests/studies/test_selection_replay.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mark.cli.main import main
from tests.studies.logged import write_log, write_service

Captured = pytest.CaptureFixture[str]


def test_replay_prints_policies_and_candidates(tmp_path: Path, capsys: Captured) -> None:
    assert main(["selection", "replay", write_log(tmp_path), "--policy", "exp4,split", "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    words = [line.split() for line in out.splitlines() if line]
    assert ["policy", "error", "95", "%", "interval", "asks", "$", "a", "million", "regret"] in words
    rows = [line[0] for line in words if len(line) > 8 and line[2] == "%"]
    assert rows == ["exp4", "split", "small", "large"]
    assert max(len(line) for line in out.splitlines()) <= 80


def test_replay_writes_the_json_of_the_interface_and_repeats_itself(tmp_path: Path, capsys: Captured) -> None:
    command = ["selection", "replay", write_log(tmp_path), "--policy", "thompson,split", "--window", "60"]
    assert main([*command, "--json", "-"]) == 0
    out, _ = capsys.readouterr()
    assert main([*command, "--json", "-"]) == 0
    assert capsys.readouterr().out == out
    data = json.loads(out)
    assert (data["schema"], data["queries"], list(data["policies"])) == (1, 100, ["thompson", "split"])
    assert {"error", "usd_per_million"} <= set(data["candidates"]["small"])
    one = data["policies"]["split"]
    wanted = {"error", "error_interval_95", "asks_per_query", "usd_per_million", "regret_per_query", "by_window"}
    assert wanted <= set(one)
    assert [(window["first"], window["queries"]) for window in one["by_window"]] == [(0, 60), (60, 40)]
    assert sum(one["by_window"][0]["shares"].values()) == pytest.approx(1.0)


def test_lineage_goes_where_plan_takes_it(tmp_path: Path, capsys: Captured) -> None:
    service, out = write_service(tmp_path), tmp_path / "lineage.csv"
    assert main(["selection", "replay", write_log(tmp_path), "--service", service, "--out", str(out)]) == 0
    assert capsys.readouterr().err == f"out: {out}\n"
    header, *rows = out.read_text().splitlines()
    assert header == "queries,small,large"
    assert sum(int(row.split(",")[0]) for row in rows) == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--policy", "exp4,split", "--out", "lineage.csv"],
            "--out: is the lineage of one policy: give one: exp4,split",
        ),
        (["--policy", "exp4,exp4"], "--policy: names a policy twice: exp4,exp4"),
        (["--policy", "cascde"], "did you mean cascade?: cascde"),
        (["--policy", "cascade", "--threshold", "nan"], "--threshold: must be finite"),
        (["--policy", "exp4", "--half-life", "0"], "--half-life: must be above zero"),
        (["--policy", "exp4", "--window", "0"], "--window: must be a whole number from 1"),
        (["--policy", "exp4", "--service", "none.toml"], "none.toml: no such file"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    tmp_path: Path, capsys: Captured, options: list[str], message: str
) -> None:
    assert main(["selection", "replay", write_log(tmp_path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


class Selection(BaseHTTPRequestHandler):
    """A server with one model."""

    def do_POST(self) -> None:
        self._say([{"name": "digits", "version": "1", "state": "READY"}])

    def do_GET(self) -> None:
        assert self.path == "/v2/models/digits/selection"
        small = {"share": 0.75, "error": 0.0625, "answers": 300, "off": False}
        large = {"share": 0.25, "error": None, "answers": 100, "usd_per_call": 0.002, "off": True}
        said = {"policy": "thompson", "feedback": 400, "contexts": 12}
        self._say(said | {"candidates": {"small": small, "large": large}})

    def _say(self, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Print no log."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Selection) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_show_prints_the_candidates_of_a_running_server(address: str, capsys: Captured) -> None:
    assert main(["selection", "show", address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "policy thompson, 400 feedbacks, 12 contexts"
    assert [line.split() for line in lines[2:5]] == [
        ["candidate", "share", "error", "labels", "$", "a", "call"],
        ["small", "75.0", "%", "6.25", "%", "300", "-"],
        ["large", "25.0", "%", "-", "100", "$0.0020", "switched", "off"],
    ]
    assert main(["selection", "show", address, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"]["large"]["off"] is True


def test_show_without_a_server_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    assert main(["selection", "show", "127.0.0.1:1", "--key-file", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
