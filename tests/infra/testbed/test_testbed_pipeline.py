"""A pipeline on the testbed: a fleet for each stage, and a conductor before them that comes back when it is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.infra.testbed.real_processes import get, processes_of, wait_for
from tests.infra.testbed.test_daemon import CATALOG, here, status

PIPELINE = """
[service]
name = "two"
slo_ms = 1500
slo_attainment = 0.9
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*"]
max_instances = 6
max_usd_per_hour = 5.0
[stage.first]
model = "quick"
slo_ms = 600
[stage.second]
model = "quick"
after = ["first"]
slo_ms = 900
"""
PROFILES = """model,instance,batch,latency_ms,basis
quick,c7i.large,1,20,assumed
quick,c7i.large,4,30,assumed
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text(PIPELINE)
    (tmp_path / "profiles.csv").write_text(PROFILES)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    (tmp_path / "query.json").write_text('{"text": "how much"}')
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()
    psutil.wait_procs(processes_of(tmp_path), timeout=60)


def test_a_pipeline_without_parts_is_refused_in_one_line(folder: Path) -> None:
    (folder / "two.toml").write_text(PIPELINE.replace("slo_ms = 900\n", ""))
    done = here("up", "two.toml")
    assert done.returncode == 2
    assert "[stage.second] slo_ms: must be said of each stage" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_driver_that_promises_something_else_is_refused_at_once(folder: Path) -> None:
    """Otherwise the error would be in the log of a conductor that never starts."""
    (folder / "driving.py").write_text("import mark\n@mark.pipeline(slo_ms=7)\nasync def run(query, models): ...\n")
    text = PIPELINE.replace("slo_attainment", 'pipeline = "driving:run"\nslo_attainment')
    (folder / "two.toml").write_text(text.replace('after = ["first"]\n', ""))
    done = here("up", "two.toml")
    assert (done.returncode, "the driver driving:run promises 7 ms" in done.stderr) == (2, True)
    assert not (folder / ".mark-testbed").exists()


@pytest.mark.slow
def test_each_stage_has_a_fleet_and_the_conductor_comes_back(folder: Path) -> None:
    done = here("up", "two.toml", "--seed", "1", "--history", "synthetic:poisson?rate=10")
    assert done.returncode == 0, done.stderr
    refused = here("load", "synthetic:poisson?rate=10", "--duration", "5")
    assert (refused.returncode, "body: must be said for a pipeline" in refused.stderr) == (2, True)
    load = ["load", "synthetic:poisson?rate=10", "--duration", "20", "--body", "query.json", "--json", "-"]
    done = here(*load)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["service"], data["unanswered"], data["answered_twice"]) == ("two", 0, 0)
    assert data["requests"]["instances"] == data["requests"]["total"] > 100
    assert data["bill_usd"]["total"] > 0.0

    shown = status()
    fleets = {one["service"] for one in shown["fleet"] if one["state"] == "running"}
    assert fleets == {"two-first", "two-second"}
    assert shown["stages"] == {"two": ["two-first", "two-second"]}
    with urllib.request.urlopen(f"{shown['controllers'][0]['url']}/api/v1/pipelines/two", timeout=10.0) as answer:
        seen = json.load(answer)
    assert [(one["service"], one["after"]) for one in seen["stages"]] == [("two-first", []), ("two-second", ["first"])]
    assert seen["queries_per_s"] > 0.0
    # Two stages of 20 ms, one after the other.
    assert seen["queries"]["recent"] > 0.9
    assert 40.0 <= seen["queries"]["recent_p50_ms"] <= seen["queries"]["recent_p99_ms"] <= 1500.0
    assert [one["rt_max_ms"] for one in seen["promise"]["other_slos"]] == [1490.0, 1510.0]
    assert seen["usd_per_hour"] > 0.0
    assert seen["longest_path_ms"] == 1500.0
    assert all(one["running"] and one["capacity_rps"] > 0.0 for one in seen["stages"])
    # "quick" takes 20 ms, and a query may have to wait.
    assert all(20.0 <= one["slo"]["recent_ms"] < 600.0 for one in seen["stages"])
    assert seen["bottleneck"]["stage"] in ("first", "second")
    conductor = shown["conductors"]["two"]
    os.kill(conductor["pid"], signal.SIGKILL)
    again = wait_for(lambda: back(conductor["pid"]), "another conductor")
    assert again["url"] == conductor["url"]
    done = here(*load)
    assert json.loads(done.stdout)["unanswered"] == 0

    assert here("down").returncode == 0
    assert processes_of(folder) == []


@pytest.mark.acceptance
def test_answers_of_stages_come_through_a_slow_network(folder: Path) -> None:
    """Answers of two stages of 20 ms each take 150 ms longer, and their workers are free for that time."""
    (folder / "faults.toml").write_text(
        "[faults]\nslow_share = 0.999999\nslow_s = 1e9\nslow_answer_ms = 150\n", encoding="utf-8"
    )
    up = ["up", "two.toml", "--seed", "1", "--history", "synthetic:poisson?rate=10", "--faults", "faults.toml"]
    done = here(*up)
    assert done.returncode == 0, done.stderr
    load = ["load", "synthetic:poisson?rate=10", "--duration", "15", "--body", "query.json", "--json", "-"]
    data = json.loads(here(*load).stdout)
    assert data["unanswered"] == 0
    assert 340.0 <= data["latency_ms"]["p50"] <= 600.0
    assert here("down").returncode == 0
    assert processes_of(folder) == []


TOGETHER = """[packs]
together = [["first", "second"]]
"""


def test_what_shares_instances_takes_a_type_with_room_for_all(folder: Path) -> None:
    """A worker of each stage takes both of its two vCPUs."""
    (folder / "two.toml").write_text(PIPELINE + TOGETHER)
    done = here("up", "two.toml")
    assert done.returncode == 3
    assert "no instance type for all of first, second (c7i.large: no room for a worker of each stage" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.acceptance
def test_stages_together_have_one_fleet_with_workers_of_both(folder: Path) -> None:
    (folder / "two.toml").write_text(PIPELINE + TOGETHER)
    (folder / "profiles.csv").write_text(
        "model,instance,batch,latency_ms,workers,basis\nquick,c7i.large,1,20,2,assumed\nquick,c7i.large,4,30,2,assumed\n"
    )
    done = here("up", "two.toml", "--seed", "1", "--history", "synthetic:poisson?rate=10")
    assert done.returncode == 0, done.stderr
    load = ["load", "synthetic:poisson?rate=10", "--duration", "20", "--body", "query.json", "--json", "-"]
    done = here(*load)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["service"], data["unanswered"], data["answered_twice"]) == ("two", 0, 0)
    assert data["requests"]["instances"] == data["requests"]["total"] > 100
    assert {one["stage"]: one["queries"] for one in data["stages"]} == dict.fromkeys(
        ("first", "second"), data["requests"]["total"]
    )

    shown = status()
    assert {one["service"] for one in shown["fleet"] if one["state"] == "running"} == {"two-first-second"}
    assert shown["stages"] == {"two": ["two-first-second"]}
    with urllib.request.urlopen(f"{shown['controllers'][0]['url']}/api/v1/pipelines/two", timeout=10.0) as answer:
        seen = json.load(answer)
    assert [one["service"] for one in seen["stages"]] == ["two-first-second"] * 2
    # Every query calls both stages, and the gateway counts two requests.
    assert 5.0 < seen["queries_per_s"] < 15.0
    running = sum(kind["count"] for kind in seen["stages"][0]["running"])
    of_one = sum(one["usd_per_hour"] for one in seen["stages"]) / running
    assert seen["usd_per_hour"] == pytest.approx(of_one * running)
    # A worker of each on two vCPUs: 4 requests in 30 ms.
    assert [one["capacity_rps"] for one in seen["stages"]] == pytest.approx([running * 4 / 0.03] * 2, rel=0.01)
    assert all(one["dollar_share"] == pytest.approx(0.5) for one in seen["stages"])
    assert here("down").returncode == 0
    assert processes_of(folder) == []


SELECTS = """
[service]
name = "parity"
slo_ms = 1500
slo_attainment = 0.9
profile = "profiles.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*"]
min_instances = 2
max_instances = 3
max_usd_per_hour = 5.0
[stage.small]
model = "parity:Small"
[stage.large]
model = "parity:Large"
[feedback]
log = "feedback"
[selection]
policy = "exp4"
"""
CANDIDATES = """
import mark
class Small(mark.Model):
    def predict(self, batch):
        return [0 for _ in batch]
class Large(mark.Model):
    def predict(self, batch):
        return [one % 2 for one in batch]
"""


def test_candidates_without_room_on_one_instance_are_refused_with_the_way_out(folder: Path) -> None:
    (folder / "parity.py").write_text(CANDIDATES)
    (folder / "parity.toml").write_text(SELECTS)
    (folder / "profiles.csv").write_text(
        "model,instance,batch,latency_ms,basis\nparity:Small,c7i.large,1,20,assumed\nparity:Large,c7i.large,1,20,assumed\n"
    )
    done = here("up", "parity.toml")
    assert done.returncode == 3
    assert "no instance type for all of small, large (c7i.large: no room for a worker of each stage" in done.stderr
    assert "[conductors] count = 2 gives each stage a fleet of its own" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    (folder / "parity.toml").write_text(SELECTS + '[overflow]\nfunction = "lambda:1024"\n')
    done = here("up", "parity.toml")
    assert (done.returncode, "[stage.small] function: instances that serve the whole" in done.stderr) == (2, True)
    assert not (folder / ".mark-testbed").exists()


@pytest.mark.slow
def test_every_instance_of_a_selection_serves_the_whole_file(folder: Path) -> None:
    (folder / "parity.py").write_text(CANDIDATES)
    (folder / "parity.toml").write_text(SELECTS)
    (folder / "profiles.csv").write_text(
        "model,instance,batch,latency_ms,workers,basis\n"
        "parity:Small,c7i.large,1,20,2,assumed\nparity:Large,c7i.large,1,40,2,assumed\n"
    )
    (folder / "query.json").write_text('{"instances": [7]}')
    done = here("up", "parity.toml", "--seed", "1", "--history", "synthetic:poisson?rate=10")
    assert done.returncode == 0, done.stderr
    refused = here("load", "synthetic:poisson?rate=10", "--duration", "5")
    assert (refused.returncode, "body: must be said for a pipeline" in refused.stderr) == (2, True)
    done = here("load", "synthetic:poisson?rate=10", "--duration", "30", "--body", "query.json", "--json", "-")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["service"], data["unanswered"], data["answered_twice"]) == ("parity", 0, 0)
    assert data["requests"]["instances"] == data["requests"]["total"] > 200
    assert "stages" not in data

    shown = status()
    assert (shown["pipelines"], shown["conductors"], shown["stages"]) == ({}, {}, {}), "there is no conductor"
    assert list(shown["services"]) == ["parity"]
    assert {one["service"] for one in shown["fleet"]} == {"parity"}
    gateway = shown["services"]["parity"]
    replicas = wait_for(lambda: ready_replicas(gateway, 2), "two instances behind the gateway")
    for url in (*replicas, gateway):
        headers = asked(url)
        assert headers["mark-selected"] in ("exp4;small", "exp4;large")
        assert "small" in headers["mark-stages"]
        assert "large" in headers["mark-stages"], "both candidates are on this instance"
    # Every query asks both candidates, and the controller counts it once.
    api = shown["controllers"][0]["url"] + "/api/v1/services/parity"
    seen = get(api)[1]
    assert 5.0 < seen["rps"] < 15.0
    # A worker of each on two vCPUs: the large one answers 25/s.
    serving = round(seen["capacity_rps"] / 25.0)
    assert seen["capacity_rps"] == pytest.approx(25.0 * serving, rel=0.01)
    assert 2 <= serving <= 3
    assert seen["slo"]["recent"] > 0.9
    assert here("down").returncode == 0
    assert processes_of(folder) == []


def ready_replicas(gateway: str, least: int) -> list[str] | None:
    """Return the instances behind it that answer, or None if there are fewer."""
    found = [url for url, one in get(f"{gateway}/admin/replicas")[1]["replicas"].items() if one["ready"]]
    return found if len(found) >= least else None


def asked(url: str) -> dict[str, str]:
    """Return the headers of an answer to one query, which is odd."""
    request = urllib.request.Request(f"{url}/invocations", b'{"instances": [7]}', {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30.0) as answer:
        assert json.load(answer) in ({"predictions": [0]}, {"predictions": [1]})
        return {name.lower(): value for name, value in answer.headers.items()}


CASCADING = """
import mark
@mark.pipeline
async def classify(query, models):
    number = await models.deskew(query["number"])
    sure = await models.small(number)
    return number if sure else await models.large(number)
class Deskew(mark.Model):
    def predict(self, batch):
        return batch
class Digits(mark.Model):
    def __init__(self, kind="small"):
        self.small = kind == "small"
    def predict(self, batch):
        return [one % 9 > 0 if self.small else one for one in batch]
"""
CASCADE = """
[service]
name = "digits"
slo_ms = 3000
slo_attainment = 0.9
pipeline = "digits:classify"
profile = "digits.csv"
[fleet]
catalog = "catalog.csv"
markets = ["on-demand", "spot"]
instances = ["c7i.*"]
max_instances = 3
max_usd_per_hour = 5.0
[stage.deskew]
model = "digits:Deskew"
slo_ms = 500
[stage.small]
model = "digits:Digits?kind=small"
slo_ms = 1500
function = "lambda:1024"
[stage.large]
model = "digits:Digits?kind=large"
slo_ms = 1000
"""
SLOW_SMALL = """model,instance,batch,latency_ms,cold_ms,basis
digits:Deskew,c7i.large,1,5,,assumed
digits:Digits?kind=small,c7i.large,1,100,,assumed
digits:Digits?kind=small,lambda:1024,1,60,500,assumed
digits:Digits?kind=large,c7i.large,1,20,,assumed
"""


@pytest.mark.slow
def test_a_stage_without_enough_instances_answers_by_its_function(folder: Path) -> None:
    """The cascade of examples/pipeline without scikit-learn, with one instance a stage. The small model's can do ten of
    twenty queries a second.

    Each query has one answer; dollars of functions belong to that stage, and count once.
    """
    (folder / "queries.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(200)))
    (folder / "digits.py").write_text(CASCADING)
    (folder / "digits.toml").write_text(CASCADE)
    (folder / "digits.csv").write_text(SLOW_SMALL)
    (folder / "catalog.csv").write_text(CATALOG.replace(",1,4,4,600", ",1,50,50,600"))
    trace = "synthetic:poisson?rate=20"
    done = here("up", "digits.toml", "--seed", "1", "--log-requests", "--history", trace)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: warm(status()["functions"]["mark-digits-small-overflow"]), "functions", patience_s=240.0)
    load = ["load", trace, "--duration", "20", "--body", "queries.jsonl", "--log", "log.csv"]
    done = here(*load, "--json", "-")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    total = data["requests"]["total"]
    assert (total > 300, data["unanswered"], data["answered_twice"]) == (True, 0, 0)
    assert len((folder / "log.csv").read_text().splitlines()) == total + 1
    stages = {one["stage"]: one for one in data["stages"]}
    assert stages["deskew"]["queries"] == total
    assert 0 < stages["large"]["queries"] < stages["small"]["queries"] / 2  # the file's queries differ
    small = stages["small"]
    assert small["instances"] > 100
    assert small["functions"] > 50
    # A stage may have been called for a query that was answered without it, and the controller's pings are calls.
    without = small["queries"] - small["instances"] - small["functions"]
    assert small["functions"] <= small["function_calls"] <= small["functions"] + without + 40
    for other in ("deskew", "large"):
        assert (stages[other]["functions"], stages[other]["function_calls"], stages[other]["function_usd"]) == (0, 0, 0)

    bill, shown = data["bill_usd"], status()
    assert bill["functions"] == pytest.approx(small["function_usd"])
    assert bill["functions"] >= small["functions"] * (0.06 * 0.0000167 + 0.2e-6)
    assert bill["total"] == pytest.approx(sum(usd for name, usd in bill.items() if name != "total"))
    assert list(shown["functions"]) == ["mark-digits-small-overflow"]
    account = shown["functions"]["mark-digits-small-overflow"]
    assert account["usd"] == pytest.approx(shown["bill_usd"]["functions"])
    assert account["invocations"] - small["function_calls"] < 20  # pings before the load

    # The controller knows the bill of each stage.
    api = shown["controllers"][0]["url"] + "/api/v1/services/digits-"
    seen = wait_for(lambda: get(f"{api}small/bill")[1]["functions"], "the controller sees the overflow")
    assert seen <= account["usd"] * 1.1
    assert get(f"{api}large/bill")[1]["functions"] == 0.0
    logs = folder / ".mark-testbed" / "logs"
    assert '"request_id": "load-' in (logs / "conductor-digits.log").read_text()
    assert here("interrupt", "--share", "1").returncode == 0
    assert here("down").returncode == 0
    assert processes_of(folder) == []


@pytest.mark.acceptance
def test_functions_alone_answer_before_there_is_an_instance(folder: Path) -> None:
    """Gateways ask functions, because no bouncer is there. They make the conductor ready, which says so by stage."""
    text = PIPELINE.replace("max_instances = 6", "max_instances = 6\nmin_instances = 0")
    text = re.sub(r"(slo_ms = \d+)", r"\g<1>0", text)  # processes of functions start for seconds on a busy machine
    (folder / "two.toml").write_text(text + '[overflow]\nfunction = "lambda:1024"\n')
    (folder / "profiles.csv").write_text(PROFILES + "quick,lambda:1024,1,30,assumed\n")
    (folder / "catalog.csv").write_text(CATALOG.replace(",1,4,4,600", ",1,50,50,600"))
    done = here("up", "two.toml", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert wait_for(lambda: status()["pipelines"]["two"], "a conductor")
    assert status()["launched"] == 0
    load = ["load", "synthetic:poisson?rate=5", "--duration", "6", "--body", "query.json", "--json", "-"]
    done = here(*load)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["unanswered"], data["answered_twice"]) == (0, 0)
    first, second = data["stages"]
    assert first["queries"] == data["requests"]["total"] > 10
    assert first["functions"] > 0
    assert second["functions"] > 0
    assert data["bill_usd"]["functions"] == pytest.approx(first["function_usd"] + second["function_usd"])
    assert here("down").returncode == 0
    assert processes_of(folder) == []


def warm(function: dict[str, Any]) -> bool:
    """Are its environments loaded, both the controller's warm ones and those started ahead?"""
    return function["spare"] == 4 and not function["busy"] and function["environments"] > 4


def back(old: int) -> dict[str, Any] | None:
    conductor: dict[str, Any] = status()["conductors"]["two"]
    return conductor if conductor["pid"] not in (None, old) and conductor["url"] else None
