"""The manifests that hand a floor to other autoscalers agree with mark's metrics and their projects' documents."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from mark.api.wanted import floor_metrics
from mark.control.floor import Floor

FOLDER = Path(__file__).parents[1] / "examples" / "advise"
(METRIC, *_) = (family.name for family in floor_metrics([Floor("ranker", "c7i.large/on-demand", 3, "", 0.1, 1.0)]))


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_keda_reads_the_floor_as_a_number_of_replicas() -> None:
    first, authentication, second = documents("keda.yaml")
    own, floor = first["spec"]["triggers"]
    assert (own["type"], floor["type"]) == ("prometheus", "prometheus")
    assert floor["metadata"]["query"] == f'max({METRIC}{{service="ranker"}})'
    assert (floor["metadata"]["threshold"], floor["metadata"]["ignoreNullValues"]) == ("1", "true")
    asked = second["spec"]["triggers"][1]
    assert asked["metadata"] == {
        "url": "https://mark-advise.shop:9464/wanted/search", "valueLocation": "value", "targetValue": "1",
        "authMode": "bearer",
    }  # fmt: skip
    assert asked["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert authentication["spec"]["secretTargetRef"][0]["parameter"] == "token"
    # KEDA takes strings only as metadata.
    for scaled in (first, second):
        for trigger in scaled["spec"]["triggers"]:
            assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_horizontal_pod_autoscaler_reads_the_floor_as_an_external_metric() -> None:
    (scaler,) = documents("hpa.yaml")
    external = scaler["spec"]["metrics"][1]["external"]
    assert external["metric"]["name"] == METRIC
    assert external["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert METRIC in (FOLDER / "hpa.yaml").read_text().split("apiVersion")[0]


def test_nodes_are_of_the_planned_type() -> None:
    pool, buffer = documents("karpenter.yaml")
    requirements = {one["key"]: one["values"] for one in pool["spec"]["template"]["spec"]["requirements"]}
    assert requirements == {
        "node.kubernetes.io/instance-type": ["c7i.large"], "karpenter.sh/capacity-type": ["on-demand"],
    }  # fmt: skip
    assert buffer["spec"]["scalableRef"] == {"apiGroup": "apps", "kind": "Deployment", "name": "ranker"}


@pytest.mark.parametrize(("floor", "least"), [(None, 2), (0, 2), (1, 2), (5, 5), (99, 10)])
def test_ray_keeps_its_own_minimum_and_maximum(floor: int | None, least: int) -> None:
    raised = runpy.run_path(str(FOLDER / "ray_min_replicas.py"))["raised"]
    scaling = {"min_replicas": 2, "max_replicas": 10}
    config = {"applications": [{"name": "app", "deployments": [{"name": "D", "autoscaling_config": scaling}]}]}
    found = raised(config, "app", "D", floor)
    assert found["applications"][0]["deployments"][0]["autoscaling_config"] == {
        "min_replicas": least,
        "max_replicas": 10,
    }
    assert scaling["min_replicas"] == 2


def test_ray_reads_no_floor_where_mark_does_not_answer() -> None:
    assert runpy.run_path(str(FOLDER / "ray_min_replicas.py"))["wanted"]("http://127.0.0.1:9/wanted") is None
