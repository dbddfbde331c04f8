"""The dashboard queries only metrics and labels that stand on a page of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from mark.api.controller_metrics import ControllerMetrics
from mark.serving.backend.metrics import Metrics, ModelMetrics
from mark.serving.gateway.gateway import Gateway
from mark.serving.gateway.metrics import GatewayMetrics
from tests.api.fake_manager import FakeManager

DASHBOARD = Path(__file__).parents[2] / "terraform" / "grafana" / "mark.json"
OF_PROMETHEUS = {"instance", "job"}  # labels that Prometheus adds itself


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Return the queries of all panels and of the variable."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*asked, *(v["definition"] for v in dashboard()["templating"]["list"] if v["type"] == "query")]


def pages() -> dict[str, set[str]]:
    """Return labels by sample name, of a controller, a bouncer and a gateway that have met every event once."""
    bouncer, model = Metrics(), ModelMetrics("echo", "1")
    bouncer.models.append(model)
    model.requests["instance", 200] = model.overflow["capacity"] = model.refused["overload"] = 1
    gateway: Gateway[Any] = Gateway()
    gateway.put({"http://127.0.0.1:1": 1.0}, 0.0)
    forwarded = GatewayMetrics(gateway)
    forwarded.requests[200] = forwarded.refused["draining"] = 1
    found: dict[str, set[str]] = {}
    for page in (ControllerMetrics(FakeManager(3)).page(), bouncer.page(), forwarded.page()):
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_and_label_exists() -> None:
    there = pages()
    assert len(expressions()) > 40
    for expression in expressions():
        names = re.findall(r"\bmark_[a-z0-9_]+", expression)
        assert names, expression
        assert not set(names) - set(there), expression
        labels = set().union(*(there[name] for name in names)) | OF_PROMETHEUS
        asked = re.findall(r'(\w+)=~?"', expression)
        for group in re.findall(r"by \(([^)]*)\)", expression):
            asked += [label.strip() for label in group.split(",")]
        assert not set(asked) - labels, expression


def test_every_legend_names_a_label_that_is_left() -> None:
    for panel in panels():
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert label in OF_PROMETHEUS or f"by ({label})" in target["expr"], target


def test_every_value_of_the_controller_is_asked_for_somewhere() -> None:
    """A value that no panel shows need not exist; the SLO since the start and the mode are on the page."""
    asked = set(re.findall(r"\bmark_controller_[a-z0-9_]+", " ".join(expressions())))
    there = {name for name in pages() if name.startswith("mark_controller_")}
    assert there - asked == {"mark_controller_mode", "mark_controller_slo_attainment"}


def test_panels_do_not_overlap_and_stay_within_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    everything = dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for panel in everything:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_it_can_be_given_any_prometheus() -> None:
    """No panel names a data source of one installation."""
    sources = re.findall(r'"uid": "([^"]*)"', DASHBOARD.read_text())
    assert set(sources) == {"mark", "${datasource}"}
