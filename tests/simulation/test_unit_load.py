"""A load in tokens: its requests beside an independent SimPy model whose requests have sizes of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.planner.sized_requests import SizedFleet
from mark.cli.main import main
from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.domain.load_unit import UnitSizes
from mark.simulation.inputs import open_service
from mark.simulation.request import RunRequest
from mark.simulation.result import SimulationResult
from mark.studies.compare import run_one
from mark.traffic.traces.table_files import TableColumns

pytestmark = pytest.mark.usefixtures("coarse_late_shares")

FLEET = SizedFleet(instances=3, workers=4, units_per_s=2000.0, rt_max_s=2.75)
OVERHEAD_S, MEAN, HOURS = 0.25, 400.0, 0.5
RT_MAX_MS = (FLEET.rt_max_s + OVERHEAD_S) * 1e3
POLICY = f"fixed:g6.2xlarge={FLEET.instances}"


def sizes_of(count: int, random: np.random.Generator) -> FloatArray:
    """Draw sizes of requests: most are small, some are long, which is no lognormal."""
    long = random.random(count) < 0.2
    return np.where(long, random.gamma(9.0, 100.0, count), random.gamma(2.0, 137.5, count))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with requests of drawn sizes, their service and its profile."""
    folder = tmp_path_factory.mktemp("tokens")
    random = np.random.default_rng(7)
    count = round(HOURS * 3600.0 * 0.8 * FLEET.instances * FLEET.units_per_s / MEAN)
    times, sizes = np.sort(random.uniform(0.0, HOURS * 3600.0, count)), sizes_of(count, random)
    rows = "".join(f"{at:.4f},{size:.2f}\n" for at, size in zip(times.tolist(), sizes.tolist(), strict=True))
    (folder / "sized.csv").write_text(f"t_seconds,tokens\n{rows}")
    (folder / "own.csv").write_text(
        "model,instance,unit,units_per_s,workers,overhead_ms\n"
        f"llama,g6.2xlarge,tokens,{FLEET.units_per_s},{FLEET.workers},{OVERHEAD_S * 1e3}\n"
    )
    counted = UnitSizes(sizes)
    text = (
        f'[service]\nname = "chat"\nmodel = "llama"\nslo_ms = {RT_MAX_MS}\nslo_attainment = 0.9\n'
        f'unit = "tokens"\nunit_size = {counted.mean}\nprofile = "own.csv"\n'
        '[fleet]\ninstances = ["g6.2xlarge"]\n[overflow]\nlate = "refuse"\n'
    )
    (folder / "equal.toml").write_text(text)  # its plans need no late shares, which take a while to count
    (folder / "chat.toml").write_text(text.replace("[fleet]", f"tail = {counted.tail}\n[fleet]"))
    return folder


def of_mark(place: Path, policy: str = POLICY) -> SimulationResult:
    return run_one(
        RunRequest(
            trace=str(place / "sized.csv"),
            service=str(place / "chat.toml"),
            policy=policy,
            columns=TableColumns(size="tokens"),
            with_bound=False,
        )
    )


def test_requests_of_drawn_sizes_are_late_as_often_as_in_simpy(place: Path) -> None:
    times, sizes = np.loadtxt(place / "sized.csv", delimiter=",", skiprows=1, unpack=True)
    real = FLEET.served(times, sizes)
    ours = of_mark(place)
    assert ours.requests.total == pytest.approx(len(times), rel=0.02)
    assert ours.latency_ms.mean == pytest.approx((real.mean() + OVERHEAD_S) * 1e3, rel=0.06)
    late, really = 1.0 - (ours.slo_result.attainment or 0.0), float((real > FLEET.rt_max_s).mean())
    assert late == pytest.approx(really, abs=0.01)
    # Requests of one size, which a load without its scatter would mean, miss by more.
    assert abs(FLEET.late(times, np.full(len(sizes), sizes.mean())) - really) > 0.01


def test_results_are_told_in_tokens(place: Path) -> None:
    found = of_mark(place).as_json()
    total = found["requests"]["total"] * found["unit"]["size"]
    assert (found["unit"]["name"], found["unit"]["total"]) == ("tokens", total)
    assert found["unit"]["usd_per_million"] == pytest.approx(1e6 * found["bill_usd"]["total"] / total)
    assert found["trace"]["read"].startswith("read 8,")
    assert " tokens in 30 minutes, 4,7" in found["trace"]["read"]


def test_results_of_requests_have_no_unit() -> None:
    request = RunRequest("synthetic:poisson?rate=5", "inception-v3", "static-peak", duration_s=60.0, with_bound=False)
    assert "unit" not in run_one(request).as_json()


def test_commands_answer_in_tokens(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = (str(place / "sized.csv"), "--service", str(place / "equal.toml"), "--size-column", "tokens")
    assert main(["plan", *given, "--predictor", "seasonal-naive", "--json", str(place / "plan.json")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " tokens/s, nine times out of ten between" in out
    assert "tokens/s instances launches as priced" in out
    assert "requests/s" not in out
    plan = json.loads((place / "plan.json").read_text())
    median = plan["forecast"]["mean_rps"]["0.5"]
    assert plan["unit"]["forecast"]["mean_per_s"]["0.5"] == pytest.approx(median * plan["unit"]["size"])
    assert plan["unit"]["capacity_per_s"] == pytest.approx(plan["chosen"]["capacity_rps"] * plan["unit"]["size"])
    assert main(["compare", *given, "--policies", f"{POLICY},static-peak", "--no-bound", "--duration", "10m"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "per million tokens." in out
    assert " requests of 39" in out
    assert main(["check", str(place / "chat.toml")]) == 0
    assert " tokens/s; even if no request waits" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "chat.toml"],
        ["profile", "chat.toml"],
        ["insure", "sized.csv", "--service", "chat.toml"],
    ],
)
def test_commands_that_know_requests_only_refuse_a_unit(
    place: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("mark: error: chat.toml [service] unit: this command counts, serves or measures requests")
    assert said.count("\n") == 1


def test_deployed_service_counts_requests(place: Path) -> None:
    request = RunRequest(trace="", service=str(place / "chat.toml"))
    assert open_service(request).service.unit.name == "tokens"
    with pytest.raises(BadInput, match=r"chat.toml \[service\] unit: this command counts, serves or measures requests"):
        open_service(request, model_files=True)


def test_forecasts_are_not_scored_in_dollars_of_another_unit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = "synthetic:poisson?rate=4000"
    given = ("forecast", "backtest", trace, "--duration", "3h", "--service", str(place / "equal.toml"))
    assert main([*given, "--predictor", "seasonal-naive"]) == 2
    assert "--service: forecasts of requests are scored: leave the service out" in capsys.readouterr().err
