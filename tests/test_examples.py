"""The examples work as a reader would use them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from mark.config.pipeline_file import load_pipeline
from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Market
from mark.domain.profile import Basis
from mark.models.answering import answer, warm_up
from mark.models.loading import load
from mark.models.model import Model, predicted
from mark.models.sample import sample_call
from mark.planning.graphs.trace_file import open_driver, trace_file
from mark.planning.resolve import resolve
from mark.profiling.table import load_profiles
from mark.simulation.request import RunRequest
from mark.studies.compare import compare
from tests.serving.test_server_process import served
from tests.simulation.laws import check_laws

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_late_shares")
def test_the_own_autoscaler_example_runs_as_is_and_under_mark() -> None:
    """Profile, service and policy of the example fit together; ours is cheaper than the example's autoscaler."""
    results = compare(
        RunRequest(
            trace="synthetic:diurnal?rate=150",
            service=str(EXAMPLES / "own-autoscaler.toml"),
            start_s=8 * 3600.0,
            duration_s=2 * 3600.0,
        ),
        ("as-is", "mark"),
    )
    for result in results.values():
        check_laws(result)
        assert result.bill.other > 0.0  # aws-2026 bills balancer, addresses and data
    ours, theirs = results["mark"], results["as-is"]
    assert ours.slo_result.attainment is not None
    assert ours.slo_result.attainment >= 0.99
    assert ours.bill.total < theirs.bill.total


def installed(package: Path, into: Path) -> dict[str, str]:
    """Install the package of an example, without a network, into a separate folder; return the environment."""
    pytest.importorskip("hatchling", reason="needed to build the example: install mark with [dev]")
    build = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", *build, "--target", str(into), str(package)], check=True)
    return os.environ | {"PYTHONPATH": str(into)}


def simulated(environment: dict[str, str], *options: str) -> dict[str, Any]:
    command = ["simulate", "synthetic:poisson?rate=20", "--service", "inception-v3", "--duration", "600", "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "mark.cli.main", *command, *options],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def own_tests_pass(package: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package)]
    subprocess.run(command, env=environment, check=True)


@pytest.mark.acceptance
def test_an_own_predictor_is_found_and_used_once_installed(tmp_path: Path) -> None:
    package = EXAMPLES / "own-predictor"
    environment = installed(package, tmp_path)
    result = simulated(environment, "--start", "3600", "--predictor", "ewma")
    assert result["predictor"] == "ewma"
    assert result["predictors"] == {"ewma": 11}
    own_tests_pass(package, environment)


@pytest.mark.slow
def test_an_own_policy_is_found_and_used_once_installed(tmp_path: Path) -> None:
    package = EXAMPLES / "own-policy"
    environment = installed(package, tmp_path)
    result = simulated(environment, "--policy", "doubled")
    assert result["policy"] == "doubled"
    assert result["slo"]["attainment"] > 0.98
    own_tests_pass(package, environment)
    unknown = [sys.executable, "-m", "mark.cli.main", "controller", "inception-v3", "--policy", "nonsense"]
    said = subprocess.run(unknown, env=environment, check=False, capture_output=True, text=True).stderr
    assert "'mark-optimal', 'doubled'" in said


@pytest.mark.parametrize("name", ["words", "image"])
def test_the_testbeds_services_are_real_and_faster_than_claimed(name: str) -> None:
    """So a dozen of them fit on one computer, each at the pace of its profile; the catalogue sells all types."""
    service = load_service(str(EXAMPLES / "testbed" / f"{name}.toml"))
    if name == "image":
        pytest.importorskip("torch")
    of_models = load_profiles(service.profile_file)
    resolved, profiles = resolve(service, load_catalog(service.catalog), of_models), of_models[service.model]
    assert {offer.instance for offer in resolved.offers} == {i for i in profiles if not i.startswith("lambda:")}
    assert {offer.market for offer in resolved.offers} == {Market.ON_DEMAND, Market.SPOT}
    assert resolved.function is not None
    assert {row.basis for profile in profiles.values() for row in profile.rows} <= {Basis.ASSUMED, Basis.DERIVED}
    model = load(service.model, EXAMPLES / "testbed")
    warm_up(model)
    call = sample_call(model)
    assert call is not None
    answer(model, [call] * 4)
    began_s = time.process_time()
    replies = answer(model, [call] * 4)
    took_s = time.process_time() - began_s
    assert [reply.status for reply in replies] == [200] * 4
    assert took_s < 0.2 * min(profile.latency_s(4) for profile in profiles.values())


def test_the_pipeline_asks_its_large_model_only_when_unsure(tmp_path: Path) -> None:
    """The cascade is traced on its own queries: about one in nine goes on, and the script made the file of queries."""
    folder = EXAMPLES / "pipeline"
    subprocess.run([sys.executable, str(folder / "make_queries.py")], cwd=tmp_path, check=True)
    queries = tmp_path / "queries.jsonl"
    assert queries.read_text() == (folder / "queries.jsonl").read_text()
    queries.write_text("".join(queries.read_text().splitlines(keepends=True)[:60]))
    found = trace_file(load_pipeline(str(folder / "digits.toml")), str(queries))
    assert [(stage.name, stage.after) for stage in found.pipeline.stages] == [
        ("deskew", ()),
        ("small", ("deskew",)),
        ("large", ("small",)),
    ]
    deskew, small, large = found.lineage.shares
    assert deskew == small == 1.0
    assert 0.02 < large < 0.3


@pytest.mark.slow
def test_the_served_pipeline_answers_as_its_driver_does_here(tmp_path: Path) -> None:
    """The command line starts it with worker processes; some of the queries go on to the large model."""
    shutil.copytree(EXAMPLES / "pipeline", tmp_path, dirs_exist_ok=True)
    config = load_pipeline(str(EXAMPLES / "pipeline" / "digits.toml"))
    driver = open_driver(config)
    models = {stage.name: load(stage.model, EXAMPLES / "pipeline") for stage in config.stages}
    queries = [json.loads(line) for line in (tmp_path / "queries.jsonl").read_text().splitlines()[:40]]
    wanted = [asyncio.run(driver(query, InProcess(models))) for query in queries]
    assert {answer["by"] for answer in wanted} == {"small", "large"}
    text = (tmp_path / "digits.toml").read_text()
    (tmp_path / "digits.toml").write_text(text.replace("slo_ms = 100", "slo_ms = 30000"))
    code = (tmp_path / "digits.py").read_text()
    (tmp_path / "digits.py").write_text(code.replace("slo_ms=100", "slo_ms=30000"))
    with served(tmp_path, "--workers", "1", service="digits.toml") as (_, url):
        for query, answer in zip(queries, wanted, strict=True):
            got = httpx.post(f"{url}/invocations", json=query, trust_env=False, timeout=60.0)
            assert got.json() == answer
            visited = [part.split("=")[0] for part in got.headers["mark-stages"].split(";")]
            assert visited == ["deskew", "small", "large"][: 2 + (answer["by"] == "large")]


class InProcess:
    """Models called in this process."""

    def __init__(self, models: dict[str, Model]) -> None:
        self._models = models

    def __getattr__(self, name: str) -> Any:
        async def call(item: Any) -> Any:
            return predicted(self._models[name], [item])[0]

        return call
