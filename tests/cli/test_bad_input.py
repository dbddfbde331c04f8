"""Input of a careless or hostile user: each mistake ends with its exit code and one line that names the place."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from mark.cli.main import main
from mark.config.pipeline_file import load_pipeline
from mark.simulation.inputs import looked_up
from mark.simulation.request import RunRequest
from tests.cli.two_stages import FILE as TWO
from tests.cli.two_stages import PROFILE as PROFILE_OF_TWO

Captured = pytest.CaptureFixture[str]

TRAFFIC = "synthetic:poisson?rate=20"
SHORT = (TRAFFIC, "--duration", "60")
SERVE = ("--service", "inception-v3")
COUNTS = "t_seconds,count\n"
PROFILE = "model,instance,batch,latency_ms,p99_ms,w_batch_ms,overhead_ms,cold_ms,workers,basis\n"
CATALOG = "instance,market,zone,usd_per_hour,vcpu,memory_gib,gpus,boot_mean_s,boot_p95_s,interruptions_per_hour,retired"
FUNCTION = ",usd_per_gb_second,usd_per_million_requests,billing_step_ms,concurrency,ramp_per_10s,keep_alive_s"


def refused(argv: list[str], said: str, capsys: Captured, code: int = 2) -> None:
    assert main(argv) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("mark: error: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""


def sound(argv: list[str], capsys: Captured) -> dict[str, Any]:
    """Run a command that must succeed, check every sum in its result, and return the result."""
    assert main([*argv, "--json", "-"]) == 0
    captured = capsys.readouterr()
    # A run of more than ten seconds prints its progress.
    assert [line for line in captured.err.splitlines() if not re.fullmatch(r"\w+: \d+%", line)] == []

    def never(constant: str) -> float:
        raise AssertionError(f"{constant} is no JSON")

    result: dict[str, Any] = json.loads(captured.out, parse_constant=never)
    parts = result["requests"]
    assert parts["total"] == parts["instances"] + parts["functions"] + parts["rejected"] == result["trace"]["requests"]
    bill = result["bill_usd"]
    assert bill["total"] == pytest.approx(sum(usd for market, usd in bill.items() if market != "total"), abs=1e-9)
    assert min(bill.values()) >= 0.0
    assert result["regret"] is None or result["regret"] >= 1.0 - 1e-9
    assert result["slo"]["attainment"] is None or 0.0 <= result["slo"]["attainment"] <= 1.0
    return result


@pytest.mark.parametrize("command", ["check", "plan", "simulate", "compare", "bound", "deploy"])
def test_budget_below_the_least_fleet_is_refused(command: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "low.toml"
    fleet = '[fleet]\ninstances = ["c5.large"]\nmin_instances = 3\nmax_instances = 9\nmax_usd_per_hour = 0.1\n'
    path.write_text('[service]\nname = "low"\nmodel = "inception-v3"\nslo_ms = 500\nslo_attainment = 0.98\n' + fleet)
    service = [str(path)] if command in ("check", "deploy") else ["--service", str(path)]
    traffic = {"check": [], "deploy": ["--dry-run"], "plan": ["--trace", TRAFFIC]}.get(command, list(SHORT))
    refused([command, *service, *traffic], f"{path} [fleet] max_usd_per_hour: pays for less than min_inst", capsys)


def test_budget_below_one_stage_of_a_pipeline_is_refused(tmp_path: Path, capsys: Captured) -> None:
    """The part of one stage may be below, because it is raised when the other stage needs less."""
    (tmp_path / "two.csv").write_text(PROFILE_OF_TWO)
    path = tmp_path / "two.toml"
    path.write_text(TWO.replace("[fleet]\n", "[fleet]\nmax_usd_per_hour = 0.1\n"))
    config = load_pipeline(str(path))
    part = config.stage_service(config.stages[0], 0.05)
    found = looked_up(part, RunRequest(trace="", service=str(path)))
    assert part.max_usd_per_hour < min(offer.usd_per_hour for offer in found.offers) < 0.1
    path.write_text(TWO.replace("[fleet]\n", "[fleet]\nmax_usd_per_hour = 0.05\n"))
    refused(["check", str(path)], "pays for less than min_instances = 1 (c7i.large/on-demand", capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"t_seconds,count\n", "no rows"),
        (b"t_seconds,count\n0,1\n120,1\n60,1\n", "line 4: t_seconds must increase"),
        (b"t_seconds,count\n0,-1\n", "line 2: count must not be negative: -1"),
        (b"t_seconds,count\n0,nan\n", "line 2: count must be finite: nan"),
        (b"t_seconds,count\n0,1e400\n", "line 2: count must be finite"),
        (b"t_seconds,count\n0,0\n60,0\n", "no requests"),
        (b"t_seconds,count\n0,1e12\n60,1e12\n", "more than 1e11 requests"),
        (b"t_seconds,count\n0,1\n1e-300,1\n60,1\n", "line 3: bins narrower than 1 ms"),
        (b"t_seconds,count\n0,5\n60,5\n300000000,5\n", "more than 366 days"),
        (b"t_seconds,count\n0,5\n60,5\n1e12,5\n", "more than ten years"),
        (b"t_seconds,count,size\n0,1,2\n", "exactly the columns"),
        (b"when;count\n0;1\n", "no column holds times that are known, name it by --time-column"),
        (b"t_seconds\n5\n3\n", "line 3: t_seconds must not go back"),
        (bytes(range(256)), "binary"),
        ("t_seconds,count\n0,5\n".encode("utf-16-le"), "binary"),
        (gzip.compress(b"t_seconds\n" + b"5\n" * 99, mtime=0)[:-9], "truncated"),
    ],
)
def test_an_unusable_trace_is_reported_with_its_line(
    content: bytes, said: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    refused(["simulate", str(path), *SERVE], said, capsys)


@pytest.mark.parametrize("option", ["TRACE", "--service", "--catalog", "--profile", "--spot-trace"])
@pytest.mark.parametrize("name", ["", "no-such-file", "x" * 5000, "FOLDER", "PIPE"])
def test_paths_that_are_no_regular_file_are_refused_at_once(
    option: str, name: str, tmp_path: Path, capsys: Captured
) -> None:
    os.mkfifo(tmp_path / "pipe")
    given = {"FOLDER": str(tmp_path), "PIPE": str(tmp_path / "pipe")}.get(name, name)
    if option == "TRACE":
        # A trace may come through a pipe, and a silent pipe is refused only after a minute. This one has binary data.
        with (tmp_path / "pipe").open("r+b", buffering=0) as pipe:
            pipe.write(b"\x7fELF\0\xff")
            refused(["simulate", given, *SERVE], "binary data" if name == "PIPE" else "", capsys)
    else:
        said = "profile: is a folder" if (option, name) == ("--profile", "FOLDER") else ""
        refused(["simulate", *SHORT, *(() if option == "--service" else SERVE), option, given], said, capsys)


@pytest.mark.parametrize(
    "content",
    [
        COUNTS + "0,1\n",
        COUNTS + "0,0.0001\n",
        COUNTS + "0,50\r\n60,50\r\n",
        "\ufeff" + COUNTS + "0,50\n60,50\n\n\n",
        COUNTS + "".join(f"{i / 10:.1f},3\n" for i in range(600)),
        COUNTS + "".join(f"{i * 1800},900\n" for i in range(4)),
        COUNTS + "".join(f"{i * 5},{100_000 if i == 20 else 50}\n" for i in range(40)),
        "t_seconds\n5\n",
        "t_seconds,size\n" + "10,big\n" * 20_000,
    ],
    ids=["one", "fraction", "crlf", "bom", "100ms", "1800s", "spike", "one-request", "ties"],
)
def test_odd_traces_that_are_fine_give_a_sound_result(content: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content, encoding="utf-8", newline="")
    sound(["simulate", str(path), *SERVE], capsys)


@pytest.mark.parametrize("duration_s", ["0.5", "1", "4", "61"])
@pytest.mark.parametrize("policy", ["mark", "mark-paper", "target-tracking", "reactive", "static-peak", "oracle"])
def test_tiny_parts_give_a_sound_result(policy: str, duration_s: str, capsys: Captured) -> None:
    sound(["simulate", TRAFFIC, *SERVE, "--duration", duration_s, "--policy", policy], capsys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("slo_ms = 0", "[service] slo_ms: RT_max must lie between"),
        ("slo_ms = nan", "[service] slo_ms"),
        ("slo_ms = -1", "[service] slo_ms"),
        ("slo_ms = 1e12", "[service] slo_ms"),
        ('slo_ms = "600"', "[service] slo_ms: must be a number"),
        ("slo_attainment = 0", "[service] slo_attainment"),
        ("slo_attainment = 1", "[service] slo_attainment"),
        ("slo_attainment = 98", "[service] slo_attainment"),
        ('model = "nope"', "[service] model: no profile of this model"),
        ("colour = 1", "[service] colour: unknown key"),
        ('profile = "a\\u0000b"', "cannot be read"),
        ("[fleet]\nmarkets = []", "[fleet] markets"),
        ("[fleet]\nmax_instances = 0", "[fleet] max_instances"),
        ('[overflow]\nfunction = "lambda:0"', "[overflow] function"),
        ('[policy]\nkind = "asg"\ninstance = "c5.large"\nmin = 5\nmax = 2', "[policy] max: must not be below min"),
    ],
)
def test_a_contradictory_service_file_is_named_with_its_key(
    line: str, said: str, tmp_path: Path, capsys: Captured
) -> None:
    keys = {"name": '"x"', "model": '"inception-v3"', "slo_ms": "600", "slo_attainment": "0.98"}
    keys.pop(line.split(" ")[0], None)
    path = tmp_path / "s.toml"
    path.write_text("[service]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()) + line + "\n")
    refused(["simulate", *SHORT, "--service", str(path)], said, capsys)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ("0,90,,,,,,", "batch: must be at least 1"),
        ("1e9,90,,,,,,", "batch: a batch holds 1 to 10,000 requests"),
        ("1,0,,,,,,", "latency_ms: a latency must be above zero"),
        ("1,1e-300,,,,,,", "latency_ms: a latency lies between"),
        ("1,nan,,,,,,", "latency_ms: must be a finite number"),
        ("1,90,80,,,,,", "p99_ms: p99 must not be below the mean"),
        ("1,90,1e6,,,,,", "p99_ms: no lognormal"),
        ("1,90,,,,,1e15,", "workers: an instance has 1 to 1,024 workers"),
        ("1,90,,,,,,guessed", "basis: must be one of"),
    ],
)
def test_a_bad_profile_is_named_with_its_column(cells: str, said: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "p.csv"
    path.write_text(PROFILE + f"inception-v3,c5.large,{cells}\n")
    refused(["simulate", *SHORT, *SERVE, "--profile", str(path)], f"p.csv:2 {said}", capsys)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("c5.large,on-demand,,0,2,4,0,180,300,,,,,,,,", "usd_per_hour: a price must be above zero"),
        ("c5.large,on-demand,,1,2,4,0,180,100,,,,,,,,", "boot_p95_s"),
        ("c5.large,moon,,1,2,4,0,180,300,,,,,,,,", "market: must be one of"),
        ("lambda:3008,function,,,,,,,,,,0,0.2,100,1000,500,600", "usd_per_gb_second: must be between"),
        ("lambda:3008,function,,,,,,,,,,1e-5,0.2,100,1e12,500,600", "concurrency: must be at most 1,000,000"),
    ],
)
def test_a_bad_catalogue_is_named_with_its_column(row: str, said: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "c.csv"
    path.write_text(f"{CATALOG}{FUNCTION}\n{row}\n")
    refused(["catalog", "show", str(path)], f"c.csv:2 {said}", capsys)
    refused(["simulate", *SHORT, *SERVE, "--catalog", str(path)], f"c.csv:2 {said}", capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("t_seconds,nodes\n", "no rows"),
        ("t_seconds,nodes\n0,0\n60,0\n", "no capacity"),
        ("t_seconds,nodes\n60,5\n0,5\n", "must ascend"),
        ("t_seconds,nodes\n0,nan\n", "finite"),
        ("t_seconds,nodes\n0,1\n1e-9,2\n", "changes more than once a second"),
        ("t_seconds,usd_per_hour\n0,0.01\n", "needs its on-demand price"),
        ("t_seconds,usd_per_hour,on_demand_usd_per_hour\n0,1e300,1e-300\n", "x the on-demand price"),
        ("t_seconds,count\n0,1\n", "header"),
    ],
)
def test_a_bad_spot_series_is_bad_input(content: str, said: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(content)
    refused(["simulate", *SHORT, *SERVE, "--markets", "spot", "--spot-trace", str(path)], said, capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--policy", "nope"), "unknown"),
        (("--policy", "as-is"), "[policy]"),
        (("--policy", "fixed:nope=1"), "no such instance"),
        (("--policy", "fixed:c5.large=0"), "whole number"),
        (("--predictor", "nope"), "unknown"),
        (("--scale", "1e9"), "more than 1e11"),
        (("--service", os.devnull), f"{os.devnull}: is no regular file, and the shipped services are"),
        (("--catalog", os.devnull), f"{os.devnull}: is no regular file, and the shipped catalogues are"),
        (("--spot-trace", ","), "names nothing between two commas"),
        (("--log-filter", "a=b"), "only access logs"),
        (("--json", "x" * 300), "cannot be written"),
        (("--report", "x" * 300), "cannot be written"),
    ],
)
def test_absurd_options_are_bad_input(options: tuple[str, ...], said: str, capsys: Captured) -> None:
    refused(["simulate", *SHORT, *SERVE, *options], said, capsys)


@pytest.mark.parametrize("policy", ["nope", "as-is", "fixed:c5.large=2"])
def test_a_testbed_begins_with_no_policy_that_cannot_run(policy: str, tmp_path: Path, capsys: Captured) -> None:
    """Its controllers would refuse the policy, out of the user's sight."""
    refused(["testbed", "up", "words", "--policy", policy, "--state", str(tmp_path)], "--policy", capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--predictor", "nope"), "predictor: unknown"),
        (("--history", "nope.csv"), "nope.csv: cannot be opened"),
        (("--history", "empty.csv"), "empty.csv: the file is empty"),
        (("--faults", "empty.toml"), "empty.toml: has no section [faults]"),
    ],
)
def test_a_refused_testbed_leaves_no_folder(
    options: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty.csv", "empty.toml"):
        Path(name).touch()
    refused(["testbed", "up", "inception-v3", *options, "--state", "there"], said, capsys)
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--begin-at", "5"), "--begin-at: lies in the past"),
        (("--log", "no/such/folder.csv"), "--log: no such folder"),
    ],
)
def test_an_impossible_load_is_bad_input(options: tuple[str, ...], said: str, tmp_path: Path, capsys: Captured) -> None:
    refused(["testbed", "load", *SHORT, *options, "--state", str(tmp_path)], said, capsys)


def test_an_unreachable_slo_exits_3_and_names_the_closest(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[service]\nname = "x"\nmodel = "inception-v3"\nslo_ms = 1\nslo_attainment = 0.98\n')
    refused(["simulate", *SHORT, "--service", str(path)], "closest is", capsys, code=3)


@pytest.mark.usefixtures("coarse_late_shares")
@pytest.mark.parametrize("policy", ["mark", "static-peak", "fixed:c5.large=3,t2.medium=2"])
def test_stochastic_service_on_several_workers_gives_a_sound_result(
    policy: str, tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "p.csv"
    rows = ("c5.large,1,90,150,,,,2,", "c5.large,8,200,300,100,,,2,", "t2.medium,1,120,,,,,2,")
    every = (*rows, "lambda:3008,1,380,500,,,2000,,")
    path.write_text(PROFILE + "".join(f"inception-v3,{row}\n" for row in every))
    markets = ("--markets", "on-demand,spot,burstable")
    sound(
        ["simulate", TRAFFIC, "--duration", "600", *SERVE, "--profile", str(path), *markets, "--policy", policy], capsys
    )


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("content", ["", "no JSON", "{}", '{"pid": null}', "[1]"])
def test_a_testbeds_file_that_is_none_is_bad_input(verb: str, content: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "daemon.json").write_text(content)
    services = ["inception-v3"] if verb == "up" else []
    refused(["testbed", verb, *services, "--state", str(tmp_path)], "daemon.json", capsys)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stage", "a"), "--stage: is of a pipeline, and this is a model by itself: inception-v3"),
        (("--stage-at", "a=http://127.0.0.1:1"), "--stage-at: is of a pipeline"),
    ],
)
def test_a_model_by_itself_has_no_stages(options: tuple[str, ...], said: str, capsys: Captured) -> None:
    refused(["serve", "inception-v3", *options], said, capsys)


def test_a_stage_elsewhere_has_a_name_and_an_address(capsys: Captured) -> None:
    said = "argument --stage-at: must be NAME=URL, not 'http://127.0.0.1:1'"
    refused(["serve", "inception-v3", "--stage-at", "http://127.0.0.1:1"], said, capsys)
