"""`mark.Service` does from Python the same as the command line."""

from __future__ import annotations

import asyncio
import gc
import io
import re
import runpy
import shutil
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import mark
from mark.config.service_file import load_service
from mark.domain.errors import BadInput, Infeasible, MarkError
from mark.profiling.table import load_profiles
from mark.simulation.request import RunRequest
from mark.simulation.run import simulate
from mark.traffic.traces.table_files import TableColumns
from tests.children import new_children
from tests.sdk import models
from tests.simulation.laws import check_laws

DOCS = Path(__file__).parents[2] / "docs" / "sdk.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "from-python"
SAMPLE = str(Path(__file__).parents[2] / "traces" / "diurnal_day_5s.csv.gz")
POISSON = "synthetic:poisson?rate=20"
ECHO: dict[str, Any] = {"name": "echo", "model": models.Echo, "slo_ms": 500, "slo_attainment": 0.98}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_simulation_is_that_of_the_command_line() -> None:
    service = mark.Service("inception-v3")
    ours = service.simulate(SAMPLE, "mark-paper:seasonal-naive", start_s=36000.0, duration_s=900.0, seed=3)
    theirs = simulate(
        RunRequest(SAMPLE, "inception-v3", "mark-paper", "seasonal-naive", start_s=36000.0, duration_s=900.0, seed=3)
    )
    check_laws(ours)
    assert ours.as_json() | {"speed": None} == theirs.as_json() | {"speed": None}


def test_options_have_the_names_of_the_command_line(folder: Path) -> None:
    Path("t.csv").write_text("when,hits\n2026-05-01T00:00Z,600\n2026-05-01T00:01Z,660\n2026-05-01T00:02Z,640\n")
    Path("spot.csv").write_text("t_seconds,usd_per_hour\n0,0.05\n")
    service = mark.Service("inception-v3")
    shares: list[float] = []
    given = {"time_column": "when", "count_column": "hits", "progress": shares.append, "predictor": "seasonal-naive"}
    run = service.simulate("t.csv", "reactive", no_bound=True, **given)  # type: ignore[arg-type]
    assert run.bound_usd is None
    assert run.trace.requests == pytest.approx(1900, abs=200)
    assert shares == sorted(shares)
    assert 0.0 < shares[-1] <= 1.0
    older = service.simulate("t.csv", "reactive", with_bound=False, columns=TableColumns("when", "hits", None))
    assert older.bill == run.bill
    shares.clear()
    service.compare("t.csv", ["reactive", "static-mean"], no_bound=True, **given)  # type: ignore[arg-type]
    assert 0.0 < shares[-1] <= 1.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: mark.Service(model="x:Y", slo_ms=5, slo_atainment=0.9), "did you mean slo_attainment?"),
        (
            lambda: mark.Service("inception-v3").simulate(POISSON, duraton_s=5),  # type: ignore[call-arg]
            "did you mean duration_s?",
        ),
    ],
)
def test_a_slip_in_a_name_is_told(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        wrong()


def test_results_at_hand_become_a_page(folder: Path) -> None:
    service = mark.Service("inception-v3")
    results = service.compare(POISSON, ["reactive", "static-mean"], duration_s=300.0, no_bound=True)
    mark.report(results, "two.html")
    mark.report(results["reactive"], folder / "one.html")
    assert "static-mean" in Path("two.html").read_text()
    assert Path("one.html").read_text().startswith("<!doctype html>")
    with pytest.raises(BadInput, match="cannot be written"):
        mark.report(results, "no/such/folder.html")


def test_policies_are_compared_by_the_names_given() -> None:
    names = ["reactive", "static-mean"]
    results = mark.Service("inception-v3").compare(POISSON, names, duration_s=300.0, markets=["on-demand"])
    assert list(results) == names
    for result in results.values():
        check_laws(result)


@pytest.mark.usefixtures("coarse_late_shares")
def test_protection_against_slow_instances_is_advised() -> None:
    service = mark.Service(Path(__file__).parents[2] / "examples" / "insurance" / "noisy.toml")
    found = service.insure("synthetic:poisson?rate=20", duration_s=300.0)
    assert [one.option for one in found.options] == ["none", "instances", "hedge", "parity", "replicate"]
    assert found.advised is not None
    assert found.advised.attainment >= 0.99


def test_one_decision_is_explained() -> None:
    service = mark.Service("inception-v3")
    first = service.plan(POISSON, at_s=300.0, predictor="seasonal-naive")
    assert (first.at_s, first.service, first.running) == (300.0, "inception-v3", {})
    assert first.plan.targets
    assert first.next_day is None  # five minutes are known
    then = service.plan(POISSON, running={"c5.large": 3}, duration_s=600.0, predictor="seasonal-naive")
    assert then.at_s == 540.0
    assert then.running == {"c5.large/on-demand": 3} or sum(then.running.values()) == 3
    late = service.plan("synthetic:diurnal", at_s=86_400.0, predictor="seasonal-naive", duration_s=90_000.0)
    assert late.next_day is not None
    assert late.as_json()["next_day"]["usd"]["interval_90"][0] > 0.0


def test_settings_say_what_a_service_file_says(folder: Path) -> None:
    """Written and read again they are equal; every key finds its section."""
    (folder / "p.csv").write_text("model,instance,batch,latency_ms\nbig,c5.large,1,10\n")
    service = mark.Service(
        name="all",
        model='odd "name" \\ é',
        slo_ms=100.5,
        slo_attainment=0.9,
        batching="paper",
        routing="power-of-two-choices",
        hedge_after_ms=40,
        request_kb=1,
        response_kb=2.5,
        profile="p.csv",
        tail=1.5,
        versions={"1": {"model": models.Echo, "weight": 0.25}, "2": {"model": "m:B", "weight": 0.75}},
        catalog="aws-2019",
        markets=["on-demand", "spot"],
        instances=("c5.*",),
        max_instances=7,
        max_usd_per_hour=9.5,
        committed={"c5.large": 2, "c5.xlarge": {"count": 1, "usd_per_hour": 0.1}},
        function="lambda:3008",
        max_function_usd_per_hour=1.5,
        policy={"kind": "fixed", "instance": "c5.large", "min": 3},
    )
    assert service.name == "all"
    service.write("all.toml")
    found = load_service("all.toml")
    assert found.model == 'odd "name" \\ é'
    assert (found.slo.rt_max_s, found.slo.attainment) == (0.1005, 0.9)
    assert found.hedge_after_s == 0.04
    assert (found.batching, found.routing, found.request_kb, found.response_kb) == (
        "paper",
        "power-of-two-choices",
        1,
        2.5,
    )
    assert (found.profile_file, found.tail) == (str(folder / "p.csv"), 1.5)
    assert [(v.name, v.model, v.weight) for v in found.versions] == [
        ("1", "tests.sdk.models:Echo", 0.25),
        ("2", "m:B", 0.75),
    ]
    assert (found.catalog, found.markets, found.instances) == ("aws-2019", ("on-demand", "spot"), ("c5.*",))
    assert (found.max_instances, found.max_usd_per_hour, found.functions) == (7, 9.5, ("lambda:3008",))
    assert found.max_function_usd_per_hour == 1.5
    assert [(c.instance, c.count, c.usd_per_hour) for c in found.committed] == [
        ("c5.large", 2, None),
        ("c5.xlarge", 1, 0.1),
    ]
    assert found.as_is is not None
    assert found.as_is.min_instances == 3
    with pytest.raises(BadInput, match="cannot be written"):
        service.write("all.toml")
    with pytest.raises(BadInput, match="is a file already"):
        mark.Service("all.toml").write("other.toml")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"slo_ms": -1}, "mark.Service [service] slo_ms: must be zero or more: -1"),
        ({"nonsense": 1}, "mark.Service: unknown setting, known are name, model, "),
        ({"slo_atainment": 0.98}, ", did you mean slo_attainment?: slo_atainment"),
        ({"instance": ["c7i.large"]}, ", did you mean instances?: instance"),
        ({"max_instanses": 3}, ", did you mean max_instances?: max_instanses"),
        ({"markets": ["moon"]}, "mark.Service [fleet] markets: must be one of on-demand, spot, burstable: moon"),
        ({"instances": {1, 2}}, "mark.Service: no such thing can be said in a service file"),
        ({"name": "-"}, "mark.Service [service] name: must be 1 to 63 letters"),
    ],
)
def test_settings_are_refused_early(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        mark.Service(**(ECHO | settings))
    told = str(refused.value)
    assert told.endswith(said) if said.startswith(",") else told.startswith(said)


def test_a_file_and_settings_do_not_mix() -> None:
    with pytest.raises(BadInput, match="a file says everything"):
        mark.Service("inception-v3", slo_ms=100)
    with pytest.raises(BadInput, match="missing"):
        mark.Service(name="a", slo_ms=1.0, slo_attainment=0.9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 0.0}, "scale: must be above zero"),
        ({"duration_s": -1.0}, "duration_s: must be above zero"),
        ({"start_s": float("nan")}, "start_s: must be zero or more"),
        ({"speed": 2}, "options: unknown option, known are predictor, catalog"),
    ],
)
def test_options_are_refused_early(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        mark.Service("inception-v3").simulate(POISSON, **options)
    assert str(refused.value).startswith(said)


@pytest.mark.slow
def test_a_model_is_measured_also_where_a_loop_runs_already(folder: Path) -> None:
    """A notebook runs one."""

    async def cell() -> Any:
        return mark.Service(**ECHO).profile("p.csv", batches=(1,), seconds=0.1, instance="c5.large")

    measured = asyncio.run(cell())
    assert measured.model == "tests.sdk.models:Echo"
    assert load_profiles("p.csv")["tests.sdk.models:Echo"]["c5.large"] == measured.profile()
    (folder / "item.txt").write_text("word")
    again = mark.Service(**(ECHO | {"model": models.shout})).profile(input="item.txt", batches=(2,), seconds=0.1)
    assert [size.batch for size in again.sizes] == [2]


def test_a_service_runs_while_a_with_lasts() -> None:
    service = mark.Service(**(ECHO | {"model": models.shout}))
    with new_children() as children, service.running(max_batch=4) as server:
        got = httpx.post(server.url + "/invocations", json="hello", trust_env=False)
        assert (got.status_code, got.json()) == (200, "HELLO")
        (process,) = children()
    assert not process.is_running()


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    service = mark.Service(**(ECHO | {"model": "nowhere:Model"}))
    with pytest.raises(MarkError, match="no module nowhere"), service.running():
        raise AssertionError
    with pytest.raises(MarkError, match="unrecognized arguments: --nonsense"), service.running(nonsense=1):
        raise AssertionError
    with pytest.raises(MarkError, match="no module nowhere"):
        service.serve(port=0)


class Ending(io.StringIO):
    """A standard error that ends the server once it is ready."""

    def __init__(self, how: str, children: Callable[[], list[psutil.Process]]) -> None:
        super().__init__()
        self.how, self.children = how, children

    def write(self, text: str) -> int:
        if "is ready on http://127.0.0.1:" in text:
            (process,) = self.children()
            getattr(process, self.how)()
        return super().write(text)


def test_serving_lasts_until_the_server_ends() -> None:
    with new_children() as children, redirect_stderr(Ending("terminate", children)) as out:
        mark.Service(**ECHO).serve(port=0)
    assert "mark: echo is ready on http://127.0.0.1:" in out.getvalue()
    with (
        new_children() as children,
        redirect_stderr(Ending("kill", children)),
        pytest.raises(MarkError, match="echo is served no more"),
    ):
        mark.Service(**ECHO).serve(port=0)


def test_there_is_only_one_cloud_to_deploy_to() -> None:
    with pytest.raises(BadInput, match="aws only"):
        mark.Service("inception-v3").deploy("azure")


def test_a_promise_that_nothing_keeps() -> None:
    service = mark.Service(name="quick", model="inception-v3", slo_ms=1, slo_attainment=0.9, catalog="aws-2019")
    with pytest.raises(Infeasible, match="closest"):
        service.simulate(POISSON)


def test_nothing_stays_behind_of_a_service() -> None:
    service = mark.Service(**ECHO)
    file = Path(service._file)
    assert file.exists()
    del service
    gc.collect()
    assert not file.parent.exists()


def test_importing_mark_loads_neither_numpy_nor_numba() -> None:
    code = (
        "import sys, mark; assert not {'numpy', 'mark.sdk'} & set(sys.modules); mark.Service('inception-v3');"
        "sys.exit('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("coarse_late_shares")
def test_the_example_runs_and_is_what_the_documentation_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = ("ranker.py", "try_it.py")
    assert [(EXAMPLE / name).read_text() for name in names] == blocks
    for name in names:
        shutil.copy(EXAMPLE / name, folder)
    monkeypatch.syspath_prepend(folder)
    runpy.run_path("try_it.py", run_name="__main__")
    del sys.modules["ranker"]
    knee, bill, regrets, targets, url = capsys.readouterr().out.splitlines()
    assert knee.startswith("16 ")
    total, attainment = map(float, bill.split())
    assert total > 0.0
    assert attainment >= 0.98
    assert set(literal_eval(regrets)) == {"mark", "reactive"}
    assert any(offer.startswith("c7i.large") for offer in literal_eval(targets))
    assert url.startswith("http://127.0.0.1:")
