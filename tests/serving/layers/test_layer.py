"""Layers before the model: the service file gives their names and order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from mark.models.answer import Answer
from mark.models.call import Call
from mark.models.versions import Versions
from mark.serving.backend.port import Backend
from mark.serving.backend.request import Request
from mark.serving.backend.variants import Variants
from mark.serving.layers.layer import Layer, LayerSite, layered
from tests.serving.backend.test_variants import Fake
from tests.serving.layers.counting import Counting, install
from tests.serving.test_server_process import INFER, body, served, write_service
from tests.serving.test_server_process import folder as folder

LAYERS = '[counting]\nlabel = "outer"\n[again]\nlabel = "inner"\n'
VERSIONS = "[service.versions]\n" + "".join(f'"{v}" = {{ model = "model:Echo", weight = 0.5 }}\n' for v in (1, 2))
STAGES = (
    '[service]\nname = "echo"\nslo_ms = 2000\nslo_attainment = 0.98\n[stage.one]\nmodel = "model:Echo"\n'
    '[stage.two]\nmodel = "model:Echo"\nafter = ["one"]\n'
)


def environment(tmp_path: Path) -> dict[str, str]:
    """Return an import path that has the layer, for a process."""
    site = install(tmp_path / "site", "counting", "again")
    return {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_service_file_puts_registered_layers_before_all_versions(
    folder: Path, tmp_path: Path, pipeline: bool
) -> None:
    """Requests pass them in the file's order, and answers, feedback and the drain come back through them."""
    more = LAYERS + '[feedback]\nlog = "feedback"\n'
    if pipeline:
        (folder / "echo.toml").write_text(STAGES + more)
    else:
        write_service(folder, more=VERSIONS + more)
    with served(folder, **environment(tmp_path)) as (process, url):
        with httpx.Client(base_url=url, trust_env=False, timeout=30.0) as client:
            answers = [client.post(INFER, content=body(i), headers={"x-request-id": f"r{i}"}) for i in range(20)]
            versions = [answer.json()["model_version"] for answer in answers]
            assert set(versions) == ({"1"} if pipeline else {"1", "2"})
            assert [answer.headers["mark-selected"] for answer in answers] == [f"outer>inner>{v}" for v in versions]
            assert {answer.headers["mark-confidence"] for answer in answers} == {"0.75"}
            assert {"mark-stages" in answer.headers for answer in answers} == {pipeline}
            named = client.post("/v2/models/echo/versions/1/infer", content=body(0))
            assert (named.status_code, named.headers["mark-selected"]) == (200, "outer>inner>1")
            for label in ("outer", "inner"):
                assert client.get(f"/v2/models/echo/counted/{label}").text == "21"
            told = client.post("/v2/models/echo/feedback", json={"id": "r3", "label": 1})
            assert told.json() == {"results": [{"id": "r3", "result": "applied"}]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    (line,) = (folder / "feedback" / "1" / "observations-00000001.jsonl").read_text().splitlines()
    assert json.loads(line)["provenance"] == {
        "asked": [{"model": versions[3], "propensity": 0.5, "usd": 2e-6}],
        "selected": f"outer>inner>{versions[3]}",
        "confidence": 0.75,
        "degraded": "",
        "note": {"count": 4},
    }


def test_the_first_layer_is_the_outermost() -> None:
    order: list[str] = []

    def noting(label: str) -> Layer:
        def made(behind: Backend, site: LayerSite) -> Backend:
            order.append(label)
            return Counting(label, behind, site)

        return made

    async def main() -> None:
        versions = Versions({"1": ("m:M", 1.0), "2": ("m:M", 0.0)})
        fakes = {name: Fake(name) for name in versions.references}
        site = LayerSite("m", list(fakes), asyncio.get_running_loop())
        backend = layered(Variants(versions, fakes), [noting("outer"), noting("inner")], site)
        assert order == ["inner", "outer"]
        assert isinstance(backend, Counting)
        assert [route.path for route in site.routes] == [b"/counted/inner", b"/counted/outer"]
        answers: list[Answer] = []
        call = Call("oip", "application/json", b"{}")
        request = Request(call, 1, 0.0, 1.0, lambda _, answer: answers.append(answer), "r")
        request.version = "2"  # the one without weight
        backend.offer(request)
        (answer,) = answers
        assert answer.version == "2"
        assert answer.provenance is not None
        assert answer.provenance.selected == "outer>inner>2"
        await backend.drain(5.0)
        assert [fake.drained_s for fake in fakes.values()] == [[5.0], [5.0]]

    asyncio.run(main())
