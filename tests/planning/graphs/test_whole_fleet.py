"""Instances that serve a whole pipeline file, as their controller plans with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.domain.service import ResolvedService
from mark.launch.pipeline_server import pipeline_serving_of
from mark.launch.server import ServerOptions
from mark.planning.demand.served_load import longest_wait_s
from mark.planning.graphs.stage_group import StageGroup
from mark.planning.graphs.whole_fleet import whole_fleet

HEAD = """
[service]
name = "p"
slo_ms = 300
slo_attainment = 0.99
profile = "p.csv"
[fleet]
instances = ["c7i.*"]
[stage.quick]
model = "quick"
[stage.slow]
model = "slow"
"""
FEEDBACK = '[feedback]\nlog = "said"\n'
ALL = FEEDBACK + '[selection]\npolicy = "exp4"\n'
CASCADE = FEEDBACK + '[selection]\npolicy = "cascade"\nthreshold = 0.9\nscore = "p"\n'
PROFILE = """model,instance,batch,latency_ms,workers
quick,c7i.xlarge,1,10,4
slow,c7i.xlarge,1,40,4
slow,c7i.2xlarge,1,40,8
"""


def config_of(folder: Path, text: str, profile: str = PROFILE) -> PipelineConfig:
    (folder / "p.toml").write_text(text)
    (folder / "p.csv").write_text(profile)
    return load_pipeline(str(folder / "p.toml"))


def found_of(config: PipelineConfig) -> StageGroup:
    return whole_fleet(config, config.whole_service(), load_catalog(config.fleet.catalog))


def parts_ms(found: StageGroup) -> list[float]:
    return [round(1e3 * stage.slo.rt_max_s, 6) for stage in found.stages]


def capacity_rps(found: ResolvedService) -> float:
    return found.candidates[0].capacity_rps


def test_every_candidate_has_all_of_the_time_where_all_are_asked_at_once(tmp_path: Path) -> None:
    """A worker of the quick one and three of the slow one on four vCPUs: 75 queries/s, which may wait for 260 ms."""
    found = found_of(config_of(tmp_path, HEAD + ALL))
    assert parts_ms(found) == [300.0, 300.0]
    assert [offer.instance for offer in found.resolved.offers] == ["c7i.xlarge"]
    assert [stage.candidates[0].workers for stage in found.stages] == [1, 3]
    assert capacity_rps(found.resolved) == pytest.approx(75.0)
    assert longest_wait_s(found.resolved, [0]) == pytest.approx(0.26)
    assert dict(found.resolved.skipped)["c7i.2xlarge"] == "no profile of quick"


def test_cascade_parts_the_time_and_its_lineage_says_the_calls(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("queries,quick,slow\n3,1,0\n1,1,1\n")
    safe = found_of(config_of(tmp_path, HEAD + CASCADE))
    assert parts_ms(safe) == [60.0, 240.0], "by what one item takes in each"
    assert [stage.candidates[0].workers for stage in safe.stages] == [1, 3]
    said = found_of(config_of(tmp_path, HEAD.replace("[fleet]", 'lineage = "l.csv"\n[fleet]') + CASCADE))
    assert [stage.candidates[0].workers for stage in said.stages] == [2, 2]
    assert capacity_rps(said.resolved) > 2.5 * capacity_rps(safe.resolved), "a quarter of the queries ask the slow one"


def test_committed_instances_are_those_of_a_plain_service(tmp_path: Path) -> None:
    text = HEAD.replace(
        "[stage.quick]", '[fleet.committed]\n"c7i.xlarge" = { count = 3, usd_per_hour = 0.1 }\n[stage.quick]'
    )
    found = found_of(config_of(tmp_path, text + ALL)).resolved
    assert found.committed == {"c7i.xlarge/on-demand": 3}
    assert found.committed_usd_per_hour == pytest.approx(0.3)


def test_parts_that_the_file_states_are_kept(tmp_path: Path) -> None:
    stated = HEAD.replace('model = "quick"', 'model = "quick"\nslo_ms = 100')
    assert parts_ms(found_of(config_of(tmp_path, stated + CASCADE))) == [100.0, 240.0]


@pytest.mark.parametrize("selection", [ALL, CASCADE, '[selection]\npolicy = "split"\n'])
def test_instance_has_the_workers_that_its_server_starts(tmp_path: Path, selection: str) -> None:
    config = config_of(tmp_path, HEAD + selection)
    planned = {stage.service.stage: stage.candidates[0].workers for stage in found_of(config).stages}
    served = pipeline_serving_of(ServerOptions(service=config.source, instance="c7i.xlarge", pace=True), config)
    assert served.pipeline is not None
    assert {name: stage.workers for name, stage in served.pipeline.stages.items()} == planned


def test_type_without_room_for_all_is_refused_with_the_way_out(tmp_path: Path) -> None:
    large = "model,instance,batch,latency_ms,workers\nquick,c7i.large,1,10,1\nslow,c7i.large,1,40,1\n"
    config = config_of(tmp_path, HEAD + ALL, large)
    with pytest.raises(Infeasible, match=r"no instance type for all of quick, slow .*\[conductors\] count = 2 gives"):
        found_of(config)


def test_driver_takes_a_lineage(tmp_path: Path) -> None:
    driven = HEAD.replace("profile =", 'pipeline = "a:b"\nprofile =') + "[conductors]\ncount = 0\n"
    with pytest.raises(BadInput, match=r"how often a query calls each stage: \[service\] lineage"):
        found_of(config_of(tmp_path, driven))
    (tmp_path / "l.csv").write_text("queries,quick,slow\n1,1,1\n")
    found = found_of(config_of(tmp_path, driven.replace("profile =", 'lineage = "l.csv"\nprofile =')))
    assert parts_ms(found) == [60.0, 240.0], "stages of a driver may follow each other"
