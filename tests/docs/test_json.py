"""The objects on the page of JSON results have the keys that the commands write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mark.cli.main import main
from tests.docs.pages import DOCS, ROOT
from tests.prometheus import EmulatedPrometheus, add_workload

_OPEN = {
    "predictors",
    "instance_hours",
    "made_by",
    "calls",
    "counts",
    "running",
    "batches",
    "settings",
}  # keyed by names that depend on the run


def _examples() -> list[dict[str, Any]]:
    text = (DOCS / "json.md").read_text()
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]


def _keys(found: Any, where: str = "") -> set[str]:
    """Return the paths of all keys; entries of an open object or a list share one path."""
    if isinstance(found, list):
        return {key for one in found for key in _keys(one, f"{where}[]")}
    if not isinstance(found, dict):
        return set()
    is_open = where.rpartition(".")[2] in _OPEN
    keys = set() if is_open else {f"{where}.{key}" for key in found}
    return keys.union(*(_keys(one, f"{where}.*" if is_open else f"{where}.{key}") for key, one in found.items()))


def _written(folder: Path, *arguments: str) -> dict[str, Any]:
    file = folder / "result.json"
    assert main([*arguments, "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_a_run_has_the_keys_of_its_example(tmp_path: Path) -> None:
    run = ("simulate", "synthetic:poisson?rate=5", "--duration", "60", "--service", "inception-v3")
    written = _written(tmp_path, *run, "--policy", "reactive")
    assert _keys(written) == _keys(_examples()[0])
    assert written["requests"]["total"] == sum(n for key, n in written["requests"].items() if key != "total")


def test_a_backtest_has_the_keys_of_its_example(tmp_path: Path) -> None:
    part = ("--start", "7200", "--duration", "1200", "--predictor", "seasonal-naive")
    written = _written(tmp_path, "forecast", "backtest", "synthetic:poisson?rate=5", *part)
    assert _keys(written) == _keys(_examples()[1])


def test_a_traced_pipeline_has_the_keys_of_its_example(tmp_path: Path) -> None:
    example = ROOT / "examples" / "pipeline"
    queries = tmp_path / "q.jsonl"
    queries.write_text("".join((example / "queries.jsonl").read_text().splitlines(keepends=True)[:3]))
    written = _written(tmp_path, "pipeline", "trace", str(example / "digits.toml"), "--queries", str(queries))
    assert _keys(written) == _keys(_examples()[2])


def test_a_planned_pipeline_has_the_keys_of_its_example(tmp_path: Path) -> None:
    service = ROOT / "examples" / "pipeline" / "social.toml"
    part = ("--trace", "synthetic:poisson?rate=40", "--duration", "60")
    written = _written(tmp_path, "plan", "--service", str(service), *part)
    assert _keys(written) == _keys(_examples()[3])
    assert written["usd_per_hour"] == pytest.approx(sum(stage["usd_per_hour"] for stage in written["stages"]))


def test_a_pipelines_bound_has_the_keys_of_its_example(tmp_path: Path) -> None:
    service = ROOT / "examples" / "pipeline" / "social.toml"
    written = _written(tmp_path, "bound", "synthetic:poisson?rate=40", "--duration", "60", "--service", str(service))
    assert _keys(written) == _keys(_examples()[4])
    assert written["bound_usd"] == written["bounds"][0]["usd"]


def test_a_frontier_has_the_keys_of_its_example(tmp_path: Path) -> None:
    part = ("--duration", "60", "--policy", "reactive", "--jobs", "1")
    grid = ("--slo-ms", "450,600", "--attainment", "0.98,0.998")
    asked = ("frontier", "synthetic:poisson?rate=5", "--service", "inception-v3", *part, *grid)
    written, example, run = _written(tmp_path, *asked), _examples()[5], _examples()[0]
    del run["speed"], run["next_day"], example["points"][0]["run"]
    assert _keys([point.pop("run") for point in written["points"]]) == _keys([run])
    assert _keys(written) == _keys(example)
    (own,) = (point for point in written["points"] if point["own"])
    assert (own["next_10_ms"], own["next_nine"]) == (written["next_10_ms"], written["next_nine"])


def test_a_plan_has_the_keys_of_its_example(tmp_path: Path) -> None:
    part = ("synthetic:poisson?rate=400", "--duration", "7200", "--at", "3600", "--predictor", "seasonal-naive")
    written = _written(tmp_path, "plan", *part, "--service", "inception-v3", "--running", "c5.large=2")
    assert _keys(written) == _keys(_examples()[6])
    own_usd = written["chosen"]["usd_per_hour"]
    short, long = written["prices"]["other_slos"]
    assert short["usd_per_hour"] >= own_usd >= long["usd_per_hour"]
    assert 0.0 < written["prices"]["usd_per_request"] <= written["prices"]["usd_per_miss"]


def test_a_simulated_pipeline_has_the_keys_of_its_example(tmp_path: Path) -> None:
    service = ROOT / "examples" / "pipeline" / "social.toml"
    part = ("--duration", "60", "--policy", "coarse-mean")
    written = _written(tmp_path, "simulate", "synthetic:poisson?rate=40", "--service", str(service), *part)
    assert _keys(written) == _keys(_examples()[7])
    assert written["usd"] == pytest.approx(sum(stage["usd"] for stage in written["stages"]))


def test_advice_has_the_keys_of_its_example(tmp_path: Path) -> None:
    quick = ("--days", "0.25", "--simulate", "10m", "--policies", "best-fixed", "--rps-per-replica", "4")
    with EmulatedPrometheus() as prometheus:
        add_workload(prometheus)
        written = _written(tmp_path, "advise", "--prometheus", prometheus.url, "--slo-ms", "500", *quick)
    simulated = _examples()[0]
    del simulated["next_day"]  # advise has none
    assert _keys(written.pop("policies")["best-fixed"]) == _keys(simulated)
    example = _examples()[-2]
    del example["policies"]
    assert _keys(written) == _keys(example)


def test_protections_have_the_keys_of_their_example(tmp_path: Path) -> None:
    service = ROOT / "examples" / "insurance" / "noisy.toml"
    part = ("--duration", "120", "--jobs", "1")
    written = _written(tmp_path, "insure", "synthetic:poisson?rate=100", "--service", str(service), *part)
    assert _keys(written) == _keys(_examples()[-1])
