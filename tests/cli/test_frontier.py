"""`mark frontier`, on a few minutes of generated traffic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mark.cli.main import main

TRACE = "synthetic:poisson?rate=20"
RUN = ("--service", "inception-v3", "--duration", "600", "--predictor", "seasonal-naive", "--jobs", "1")
ROOT = Path(__file__).parents[2]


def too_quick(folder: Path) -> str:
    """Write a service whose promise no fleet can keep."""
    path = folder / "quick.toml"
    assert main(["init", "quick", "--out", str(path)]) == 0
    path.write_text(path.read_text().replace("slo_ms = 600", "slo_ms = 1"))
    return str(path)


def test_ten_minutes_of_traffic_give_table_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--json", str(tmp_path / "f.json"), "--report", str(tmp_path / "f.html"))
    assert main(["frontier", TRACE, *RUN, *files]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "* 98 % in 600 ms" in shown
    assert "The next 10 ms: " in shown
    assert "The next nine: " in shown
    points = json.loads((tmp_path / "f.json").read_text())["points"]
    assert [(p["target"], p["rt_max_ms"]) for p in points] == [
        (share, limit_ms) for share in (0.8, 0.98, 0.998) for limit_ms in (300.0, 450.0, 600.0, 900.0, 1200.0)
    ]
    assert [p["own"] for p in points].index(True) == 7
    bounds = {(p["target"], p["rt_max_ms"]): p["bound_usd"] for p in points}
    for share, limit_ms in bounds:
        looser = [usd for (other, other_ms), usd in bounds.items() if other <= share and other_ms >= limit_ms]
        assert 0.0 < max(looser) == bounds[share, limit_ms]
    assert "Dollars over RT_max" in (tmp_path / "f.html").read_text()


@pytest.mark.acceptance
def test_two_processes_write_what_one_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files are equal byte for byte."""
    written = []
    for jobs in ("1", "2"):
        asked = ["frontier", TRACE, *RUN, "--jobs", jobs, "--slo-ms", "450,600", "--attainment", "0.9,0.98"]
        assert main([*asked, "--json", "-"]) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]


def test_a_promise_that_nothing_can_keep_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    service = ("--service", "lstm-ptb", *RUN[2:])
    assert main(["frontier", TRACE, *service, "--slo-ms", "1,100", "--attainment", "0.98"]) == 0
    shown = capsys.readouterr().out
    assert "infeasible" in shown
    assert "closest is" in shown


def test_only_where_nothing_can_be_kept_it_is_exit_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = too_quick(tmp_path)
    capsys.readouterr()
    assert main(["frontier", TRACE, "--service", service, *RUN[2:], "--json", "-"]) == 3
    captured = capsys.readouterr()
    assert all(point["infeasible"] for point in json.loads(captured.out)["points"])
    assert captured.err.startswith("mark: error: none of 15 promises can be kept: no offer meets the SLO")
    assert captured.err.count("\n") == 1
    within_reach = ["frontier", TRACE, "--service", service, *RUN[2:], "--slo-ms", "600", "--attainment", "0.9"]
    assert main(within_reach) == 0


def test_the_services_own_promise_decides_about_exit_4() -> None:
    asked = ["frontier", TRACE, *RUN, "--slo-ms", "600", "--attainment", "0.9", "--fail-below-slo"]
    assert main(asked) == 0
    assert main([*asked, "--policy", "fixed:c5.large=1"]) == 4


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--slo-ms", "0"), "--slo-ms: must be above zero, not '0'"),
        (("--slo-ms", "100,,200"), "--slo-ms: must be a number, not ''"),
        (("--slo-ms", "100,100.0"), "--slo-ms: names one twice"),
        (("--slo-ms", "3600000"), "--slo-ms: must lie below 3,600,000 ms"),
        (("--attainment", "1"), "--attainment: must lie between 0 and 1, both excluded, not '1'"),
        (("--attainment", "0.9,99"), "not '99' (a share: 99 % is 0.99)"),
        (("--jobs", "0"), "--jobs: must be a whole number from 1"),
        (("--report", "no/such/folder.html"), "no such folder"),
        (("--policy", "nonsense"), "nonsense"),
        (("--service", str(ROOT / "examples/pipeline/social.toml")), "is a pipeline, which this command does not take"),
    ],
)
def test_bad_input_is_one_line(argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", TRACE, *RUN, *argv]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.slow
def test_interrupted_it_ends_at_once_and_leaves_no_process() -> None:
    """Only this process gets the signal, as from another program; a terminal's signal reaches all of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    command = [sys.executable, "-m", "mark.cli.main", "frontier", "synthetic:diurnal?rate=200", *RUN[:2], "--jobs", "2"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        own, deadline_s = psutil.Process(process.pid), time.monotonic() + 60.0
        while len(working := [c for c in own.children() if "spawn_main" in " ".join(c.cmdline())]) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, "", "mark: interrupted\n")
        assert psutil.wait_procs(working, timeout=10)[1] == []
    finally:
        process.kill()
        process.communicate()
