"""`mark profile` end to end: measure, write, and use the file."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from mark_infra.launch.profile_on import ProfiledOn, ProfileOnOptions
from mark_infra.launch.rented_search import RentalBill

from mark.cli.main import main
from mark.profiling.measure import Measured, Size
from mark.profiling.table import load_profiles
from tests.serving.test_server_process import address

SERVICE = """
[service]
name = "shown"
model = "{model}"
slo_ms = 400
slo_attainment = 0.9
[fleet]
catalog = "aws-2019"
instances = ["c5.large"]
"""
# As slow as Inception-v3 on p2.xlarge: 43.1 ms, and 14.5 ms for each further item.
REPLAY = "mark.profiling.replay:Replay?model=inception-v3&instance=p2.xlarge"
QUICK = ("--batch", "4,1", "--seconds", "0.5", "--instance", "c5.large")


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_late_shares")
def test_a_profile_is_measured_written_and_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has known times; simulate and serve take the file."""
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SERVICE.format(model=REPLAY))
    Path("item.json").write_text('"an item"')
    files = ("--out", "p.csv", "--json", "p.json", "--report", "p.html")
    true = load_profiles()["inception-v3"]["p2.xlarge"]
    for _ in range(5):  # sleeps end late on a busy machine, by ten milliseconds: one undisturbed measurement is enough
        assert main(["profile", "s.toml", *QUICK, "--input", "item.json", *files]) == 0
        out = capfd.readouterr().out
        assert "RT_max of 400 ms gives N_batch = 4" in out
        profile = load_profiles("p.csv")[REPLAY]["c5.large"]
        above_ms = [row.latency_ms - true.latency_s(row.batch) * 1e3 for row in profile.rows]
        assert min(above_ms) >= 0.0
        in_peace = all(above <= 0.1 * row.latency_ms + 20.0 for above, row in zip(above_ms, profile.rows, strict=True))
        if in_peace:
            break
    assert in_peace, above_ms
    said = json.loads(Path("p.json").read_text())
    assert [size["batch"] for size in said["sizes"]] == [1, 4]
    assert said["promise"]["n_batch"] == 4
    assert "Latency by batch size" in Path("p.html").read_text()

    assert main(["check", "p.csv"]) == 0
    run = ("simulate", "synthetic:poisson?rate=20", "--service", "s.toml", "--profile", "p.csv", "--duration", "600")
    assert main([*run, "--json", "-"]) == 0
    simulated = json.loads(capfd.readouterr().out.split("\n", 1)[1])
    assert simulated["latency_ms"]["p50"] >= profile.rows[0].latency_ms
    command = [sys.executable, "-m", "mark.cli.main", "serve", "s.toml", "--profile", "p.csv", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert address(process).startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("model", ["s.toml", REPLAY])
def test_misspelt_instance_is_refused_before_the_measurement(
    model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(SERVICE.format(model="not_there:Model"))
    assert main(["profile", model, "--instance", "c7i.lrge"]) == 2
    assert "--instance: is no instance type" in (said := capfd.readouterr().err)
    assert "did you mean c7i.large?: c7i.lrge" in said


def test_json_alone_on_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fast.py").write_text("import mark\n@mark.model(warmup=['x'])\ndef fast(batch):\n    return batch\n")
    assert main(["profile", "fast:fast", "--batch", "1", "--seconds", "0.1", "--slo-ms", "100", "--json", "-"]) == 0
    captured = capfd.readouterr()
    said = json.loads(captured.out)
    assert (said["model"], said["instance"], said["promise"]["rt_max_ms"]) == ("fast:fast", "local", 100.0)
    assert captured.err == ""


def test_interrupted_it_ends_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    """It leaves neither the worker in the middle of a batch nor the busy process, and prints no traceback of theirs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    (tmp_path / "told.py").write_text(
        "import mark\n@mark.model(warmup=['x'])\n"
        "def told(batch):\n    print('batch of', len(batch))\n    return batch\n"
    )
    command = [sys.executable, "-m", "mark.cli.main", "profile", "told:told", "--seconds", "600", "--precision", "1e-9"]
    process = subprocess.Popen([*command, "--background", "1"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while process.stderr.readline() != "batch of 32\n":
            assert process.poll() is None
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        said = [line for line in process.stderr if not line.startswith("batch of")]
        assert (process.wait(20), said) == (130, ["mark: interrupted\n"])
        assert psutil.wait_procs(children, timeout=60)[1] == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("inception-v3",), "has no code that could be measured"),
        (("no-such-form",), "no such form of reference"),
        (("nowhere:Model",), "nowhere"),
        (("missing.toml",), "no such file"),
        (("m:A", "--batch", "1,two"), "--batch: must be whole numbers"),
        (("m:A", "--batch", "1,1"), "--batch: must be batch sizes, each once"),
        (("m:A", "--batch", "99999"), "--batch: a batch holds 1 to 10,000 items"),
        (("m:A", "--precision", "1"), "--precision: must be below 1"),
        (("m:A", "--seconds", "0"), "--seconds: must be above zero"),
        (("m:A", "--workers", "0"), "--workers: must be a whole number from 1 to 1024"),
        (("m:A", "--input", "missing.json"), "missing.json: cannot be read"),
        (("m:A", "--out", "no/such/folder.csv"), "no such folder"),
        (("m:A", "--out", "notes.csv"), "notes.csv:1: unknown column: dear diary"),
    ],
)
def test_what_cannot_be_profiled_is_one_line_and_exit_2(
    argv: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.csv").write_text("dear diary\n")
    assert main(["profile", *argv]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("mark: error: ")
    assert said in line
    assert Path("notes.csv").read_text() == "dear diary\n"


def test_every_option_stands_in_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--help"]) == 0
    usage = capsys.readouterr().out
    for option in (
        "batch",
        "out",
        "input",
        "precision",
        "seconds",
        "background",
        "instance",
        "slo-ms",
        "json",
        "report",
    ):
        assert f"--{option} " in usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nasnet", "--on", "c5.large"), "--on: say how much may be spent: --budget-usd USD"),
        (("m:M", "--on", "c5.large", "--budget-usd", "1"), "--on: must be a service file"),
        (("nasnet", "--on", "c5.large", "--budget-usd", "1", "--workers", "2"), "--workers: does not go with --on"),
        (("nasnet", "--on", "c5.large", "--budget-usd", "1"), "--on: say where to rent: --site FILE, or MARK_SITE"),
        (("nasnet", "--budget-usd", "1"), "--budget-usd: goes with --on only"),
        (("nasnet", "--site", "mark-site.toml"), "--site: goes with --on only"),
    ],
)
def test_renting_with_the_wrong_options_is_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARK_SITE", raising=False)
    assert main(["profile", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_was_rented_is_shown_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prints the table and writes the profile. SIGTERM ends the run as an interrupt does, and has its old handler
    again afterwards."""
    size = Size(1, 300, 0.1, 0.0, 0.1, None)
    measured = Measured("nasnet", "c5.large", (size,))
    why = {"c5.large": "$2.36 per million", "c5.xlarge": "never rented: even at linear scaling $2.40 per million"}
    bill = RentalBill("c5.large/spot/us-east-1a", 97.0, 0.0023)

    def rented(options: ProfileOnOptions, tell: object) -> ProfiledOn:
        assert options.types == ("c5.large", "c5.xlarge")
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        costs = {"c5.large": 2.36}
        return ProfiledOn("nasnet", 1.0, 2.0, "c5.large", why, costs, {"c5.large": measured}, {"c5.large": [bill]})

    monkeypatch.setattr("mark_infra.launch.profile_on.profile_on", rented)
    before = signal.getsignal(signal.SIGTERM)
    out = tmp_path / "p.csv"
    assert main(["profile", "nasnet", "--on", "c5.large,c5.xlarge", "--budget-usd", "2", "--out", str(out)]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    shown = " ".join(capsys.readouterr().out.split())
    assert "c5.large is the cheapest: $2.36 per million requests at RT_max of 1000 ms" in shown
    assert "The bill: $0.0023 of at most $2." in shown
    assert "never rented" in shown
    assert load_profiles(str(out))["nasnet"]["c5.large"].latency_s(1) == 0.1


PIPELINE = """
[service]
name = "two"
slo_ms = 100
slo_attainment = 0.95
profile = "p.csv"
pipeline = "profiled_of_test:respond"
[fleet]
instances = ["c5.large"]
catalog = "aws-2019"
[stage.first]
model = "profiled_of_test:first"
[stage.second]
model = "profiled_of_test:second"
"""
# The second stage is slow on the driver's input, and refuses any other input.
PIPELINE_CODE = """
import time
import mark

@mark.pipeline
async def respond(query, models):
    return await models.second({"of": await models.first(query)})

@mark.model
def first(batch):
    return batch

@mark.model
def second(batch):
    time.sleep(0.02 * len(batch))
    return [one["of"] for one in batch]
"""


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_late_shares")
def test_a_pipelines_stages_are_measured_on_what_they_get(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan takes the measured profile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("two.toml").write_text(PIPELINE)
    Path("profiled_of_test.py").write_text(PIPELINE_CODE)
    Path("q.jsonl").write_text("1\n2\n")
    asked = ["profile", "two.toml", "--queries", "q.jsonl", *QUICK, "--out", "p.csv"]
    assert main([*asked, "--json", "p.json"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("two on c5.large\n")
    assert captured.err.count("out: p.csv") == 1
    said = json.loads(Path("p.json").read_text())
    assert [(one["stages"], one["failed"]) for one in said["models"]] == [(["first"], {}), (["second"], {})]
    assert said["models"][1]["sizes"][1]["mean_ms"] >= 80.0
    assert set(load_profiles("p.csv")) == {"profiled_of_test:first", "profiled_of_test:second"}
    assert main(["plan", "--service", "two.toml", "--trace", "synthetic:poisson?rate=5", "--duration", "300",
                 "--queries", "q.jsonl", "--json", "-"]) == 0  # fmt: skip
    sys.modules.pop("profiled_of_test", None)
    for wrong, what in (
        (["--input", "q.jsonl"], "--input: is for one model, and a pipeline has several"),
        (["--slo-ms", "5"], "--slo-ms: is for one model, and a pipeline has several"),
        (["--instance", "c7i.lrge"], "did you mean c7i.large?: c7i.lrge"),
    ):
        assert main([*asked, *wrong]) == 2
        assert what in capfd.readouterr().err
    assert main(["profile", "profiled_of_test:first", "--queries", "q.jsonl"]) == 2
    assert "--queries: profiled_of_test:first is no pipeline" in capfd.readouterr().err
