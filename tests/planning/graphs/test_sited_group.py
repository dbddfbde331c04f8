"""Stages that a site's controller buys together, by the pipeline's file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.catalog.tables import load_catalog
from mark.planning.demand.served_load import longest_wait_s
from mark.planning.graphs.sited_group import GroupCalls, sited_group

FILE = """
[service]
name = "p"
slo_ms = 300
slo_attainment = 0.99
profile = "p.csv"
[fleet]
instances = ["c7i.*"]
[stage.a]
model = "quick"
share = 0.5
slo_ms = 100
[stage.b]
model = "slow"
after = ["a"]
slo_ms = 200
[packs]
together = [["a", "b"]]
"""
PROFILE = """model,instance,batch,latency_ms,workers
quick,c7i.large,1,10,2
slow,c7i.large,1,40,2
slow,c7i.xlarge,1,40,4
"""


def pair(folder: Path) -> PipelineConfig:
    (folder / "p.toml").write_text(FILE)
    (folder / "p.csv").write_text(PROFILE)
    return load_pipeline(str(folder / "p.toml"))


def test_the_lead_is_the_stage_that_every_query_calls(tmp_path: Path) -> None:
    config = pair(tmp_path)
    (service,) = config.bought_services()
    known = GroupCalls.of(config, service)
    assert (known.places, known.lead, known.calls, known.per_lead) == ((0, 1), 1, (0.5, 1.0), (0.5, 1.0))


def test_it_is_planned_with_as_in_a_simulation(tmp_path: Path) -> None:
    """A worker of each on two vCPUs: 25/s of the second stage, which may wait for 160 ms."""
    config = pair(tmp_path)
    (service,) = config.bought_services()
    found = sited_group(config, service, load_catalog(service.catalog))
    assert [offer.instance for offer in found.resolved.offers] == ["c7i.large"]
    assert found.resolved.candidates[0].capacity_rps == pytest.approx(25.0)
    assert longest_wait_s(found.resolved, [0]) == pytest.approx(0.16)
    assert dict(found.resolved.skipped)["c7i.xlarge"] == "no profile of quick"
    assert found.dollar_shares == ((0.5, 0.5),)
