"""A pipeline's view, composed of its stages' services, and its bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.api.pipeline_view import BottleneckSchema, InstancesByMarket, PipelineSchema, pipeline_view
from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.control.views import Limits, ServiceView, SloSchema
from mark.domain.bill import Bill
from mark.domain.fleet import Instance, Phase
from mark.domain.price_list import PriceList
from mark.planning.graphs.lineage_file import calls_per_query
from tests.config.test_pipeline_file import DRIVEN, GRAPH, HEAD, PARTS, with_parts

RATES = {"language": 150.0, "vision": 90.0, "translate": 60.0, "categorise": 150.0}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    path = tmp_path_factory.mktemp("pipeline") / "social.toml"
    path.write_text(with_parts(HEAD + GRAPH, PARTS))
    return load_pipeline(str(path))


def views(config: PipelineConfig, rates: Mapping[str, float | None] = RATES) -> dict[str, ServiceView]:
    """Return the view of each stage by name: 200 calls/s of capacity, all in time, a dollar an hour."""
    return {
        service.stage: ServiceView(
            service.name, "acting", 0.0, 0.0, rates[service.stage], 200.0, 1.0, (), {}, None, None,
            SloSchema(service.slo.rt_max_s * 1e3, service.slo.attainment, 1.0, 1.0, 1.0, None, None, None),
            Bill(on_demand=3.0), 10, Limits(9, 9.0), (), price_list=PriceList(2e-6, None),
        )
        for service in config.stage_services()
    }  # fmt: skip


def put_together(config: PipelineConfig, of_stages: Mapping[str, ServiceView]) -> PipelineSchema:
    return pipeline_view(
        config, {view.service: view for view in of_stages.values()}, {"social-vision": 0.25}, calls_per_query(config)
    )


def limiting(stage: str, why: Literal["misses", "load"], headroom: float) -> BottleneckSchema:
    return BottleneckSchema(stage=stage, why=why, headroom=headroom)


def with_recent(view: ServiceView, recent: float) -> ServiceView:
    return replace(view, slo=replace(view.slo, recent=recent))


def test_rates_dollars_and_prices_are_those_of_a_query(config: PipelineConfig) -> None:
    found = put_together(config, views(config))
    assert (found.usd_per_hour, found.usd_so_far) == (4.0, 12.0)
    assert found.queries_per_s == 150.0
    # Language, 0.4 of translate, 0.6 of vision, categorise.
    assert found.usd_per_query == pytest.approx(3.0 * 2e-6)
    assert found.longest_path_ms == 300.0
    assert [(s.stage, s.after, s.calls_per_query) for s in found.stages] == [
        ("language", [], 1.0), ("vision", [], 0.6), ("translate", ["language"], 0.4),
        ("categorise", ["translate", "vision"], 1.0),
    ]  # fmt: skip
    assert [s.used for s in found.stages] == [0.75, 0.45, 0.3, 0.75]
    assert [s.overflow_share for s in found.stages] == [None, 0.25, None, None]
    assert {s.dollar_share for s in found.stages} == {0.25}


def test_calls_refused_early_do_not_lower_the_queries(config: PipelineConfig) -> None:
    found = put_together(config, views(config, RATES | {"vision": 60.0, "categorise": None}))
    assert found.queries_per_s == 150.0


def test_what_no_stage_knows_is_not_made_up(config: PipelineConfig) -> None:
    of_stages = views(config, dict.fromkeys(RATES))
    of_stages = {
        name: replace(view, usd_per_hour=0.0, slo=replace(view.slo, recent=None), price_list=PriceList())
        for name, view in of_stages.items()
    }
    found = put_together(config, of_stages)
    assert (found.queries_per_s, found.usd_per_query, found.bottleneck) == (None, None, None)
    assert {s.dollar_share for s in found.stages} == {s.used for s in found.stages} == {None}


def test_with_a_driver_graph_and_shares_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "driven.toml"
    path.write_text(DRIVEN.replace("[stage.vision]\n", "[stage.vision]\nslo_ms = 100\n"))
    driven = load_pipeline(str(path))
    found = put_together(driven, views(driven))
    assert (found.queries_per_s, found.usd_per_query, found.longest_path_ms) == (None, None, None)
    (stage,) = found.stages
    assert (stage.after, stage.join, stage.calls_per_query) == (None, None, None)
    assert found.bottleneck == limiting("vision", "load", 1.0 / (90.0 / 200.0))


def test_a_lineage_says_how_often_a_driver_calls(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("queries,vision\n1,0\n1,3\n")
    path = tmp_path / "driven.toml"
    text = DRIVEN.replace("[stage.vision]\n", "[stage.vision]\nslo_ms = 100\n")
    path.write_text(text.replace("[service]\n", '[service]\nlineage = "l.csv"\n', 1))
    driven = load_pipeline(str(path))
    found = put_together(driven, views(driven))
    assert found.queries_per_s == pytest.approx(90.0 / 1.5)
    assert found.usd_per_query == pytest.approx(1.5 * 2e-6)


def test_the_bottleneck_is_the_stage_that_fills_first(config: PipelineConfig) -> None:
    of_stages = views(config)
    of_stages["translate"] = replace(of_stages["translate"], capacity_rps=75.0)
    assert put_together(config, of_stages).bottleneck == limiting("translate", "load", 1.25)


def test_the_stage_missing_most_calls_comes_before_the_fullest(config: PipelineConfig) -> None:
    of_stages = views(config)
    of_stages["translate"] = replace(of_stages["translate"], capacity_rps=75.0)
    of_stages["language"] = with_recent(of_stages["language"], 0.99)  # 1.5 calls/s
    of_stages["vision"] = with_recent(of_stages["vision"], 0.98)  # 1.8
    assert put_together(config, of_stages).bottleneck == BottleneckSchema(
        stage="vision", why="misses", headroom=1.0 / (90.0 / 200.0)
    )
    # It misses only its allowed share, so it is not named.
    kept = {name: with_recent(view, view.slo.target) for name, view in of_stages.items()}
    assert put_together(config, kept).bottleneck == limiting("translate", "load", 1.25)


@settings(max_examples=30)
@given(st.lists(st.floats(0.1, 1e4), min_size=4, max_size=4), st.floats(0.2, 5.0))
def test_the_bottleneck_is_full_first_under_any_growth(
    config: PipelineConfig, capacities: list[float], growth: float
) -> None:
    """When all loads grow alike, no stage is beyond its capacity before it; and growing changes which it is in none."""
    rates = {name: growth * rate for name, rate in RATES.items()}
    names = [service.stage for service in config.stage_services()]
    of_stages = {
        name: replace(view, capacity_rps=capacities[names.index(name)]) for name, view in views(config, rates).items()
    }
    found = put_together(config, of_stages).bottleneck
    assert found is not None
    assert found.headroom is not None
    for view in of_stages.values():
        assert view.rps is not None
        assert view.rps * found.headroom <= view.capacity_rps * (1.0 + 1e-9)
    limiting = of_stages[found.stage]
    assert limiting.rps is not None
    assert limiting.rps * found.headroom == pytest.approx(limiting.capacity_rps)


def test_instances_count_by_type_and_market(config: PipelineConfig) -> None:
    of_stages = views(config)
    offers = ("g6.xlarge/spot/us-east-1b", "g6.xlarge/spot/us-east-1a", "c7i.large/on-demand")
    instances = [Instance(n, offer, Phase.READY, 0.0, 1.0) for n, offer in enumerate(offers)]
    instances.append(Instance(9, "c7i.large/on-demand", Phase.STOPPED, 0.0, 1.0))
    of_stages["vision"] = replace(of_stages["vision"], instances=tuple(instances))
    found = put_together(config, of_stages).stages[1]
    assert found.running == [
        InstancesByMarket(instance="c7i.large", market="on-demand", count=1),
        InstancesByMarket(instance="g6.xlarge", market="spot", count=2),
    ]
