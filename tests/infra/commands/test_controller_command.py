"""mark controller: the errors in its options, and how it begins and ends as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from mark_infra.aws.price_list_api import Refreshed
from mark_infra.aws.site import load_site
from mark_infra.controller.site_control import ServiceSpec
from mark_infra.controller.site_parts import site_parts

from mark.cli.main import main
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import CloudError

SITE = """\
[site]
name = "mark"
region = "us-east-1"
store = "{store}"
[services.inception-v3]
launch_template = "lt-1"
subnets = {{ us-east-1a = "subnet-1" }}
"""
DEAD = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "mark-site.toml"
    path.write_text(SITE.format(store="sqlite:state.db"))
    return path


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["inception-v3"], "--site: say where to run"),
        (["nasnet", "--site", "SITE"], "[services.nasnet]: site mark has nothing for this service"),
        (["inception-v3", "inception-v3", "--site", "SITE"], "names a service twice"),
        (["inception-v3", "--site", "SITE", "--predictor", "absent"], "absent"),
        (["inception-v3", "--site", "SITE", "--policy", "oracle"], "oracle"),
        (["inception-v3", "--site", "SITE", "--host", "0.0.0.0"], "give keys or token secrets"),
        (["inception-v3", "--site", "nowhere.toml"], "nowhere.toml"),
        (
            ["inception-v3", "--site", "SITE", "--profile", "absent"],
            "AWS profile: is not in AWS's configuration: absent",
        ),
    ],
)
def test_what_cannot_run_ends_with_one_line(
    argv: list[str], said: str, site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2, before any call to the cloud."""
    monkeypatch.delenv("MARK_SITE", raising=False)
    assert main(["controller", *(str(site) if word == "SITE" else word for word in argv)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_unavailable_live_prices_fall_back_to_the_catalogue(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller begins all the same."""
    for name, value in {**DEAD, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("mark_infra.aws.gate._ATTEMPTS", 1)
    begun: list[ServiceSpec] = []

    def serve(site: object, charges: list[ServiceSpec], *_: object, **__: object) -> int:
        begun.extend(charges)
        return 0

    monkeypatch.setattr("mark_infra.controller.process.serve", serve)
    argv = ["controller", "inception-v3", "--site", str(site)]
    assert main(argv) == main([*argv, "--live-prices"]) == 0
    assert "prices cannot be refreshed" in capsys.readouterr().err
    assert begun[0].resolved.offers == begun[1].resolved.offers


def test_stages_of_a_pipeline_know_their_share_of_its_load(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in DEAD.items():
        monkeypatch.setenv(name, value)
    fleet = '[fleet]\ninstances = ["c7i.large"]\n'
    stages = '[stage.a]\nmodel = "m"\nslo_ms = 100\n[stage.b]\nmodel = "m"\nslo_ms = 200\nshare = 0.25\nafter = ["a"]\n'
    head = '[service]\nname = "p"\nslo_ms = 300\nslo_attainment = 0.99\nprofile = "p.csv"\n'
    (tmp_path / "p.toml").write_text(head + fleet + stages)
    (tmp_path / "p.csv").write_text("model,instance,batch,latency_ms,basis\nm,c7i.large,1,20,measured\n")
    there = site.read_text()
    part = there[there.index("[services.") :]
    site.write_text(there + "".join(part.replace("inception-v3", f"p-{stage}") for stage in "ab"))
    begun: list[ServiceSpec] = []

    def serve(site: object, charges: list[ServiceSpec], *_: object, **__: object) -> int:
        begun.extend(charges)
        return 0

    monkeypatch.setattr("mark_infra.controller.process.serve", serve)
    argv = ["controller", str(tmp_path / "p.toml"), "--site", str(site), "--history", "synthetic:poisson?rate=40"]
    assert main(argv) == 0
    first, second = begun
    assert [spec.resolved.service.name for spec in begun] == ["p-a", "p-b"]
    assert [spec.resolved.slo.rt_max_s for spec in begun] == [0.1, 0.2]
    assert second.history.mean_rps == pytest.approx(0.25 * first.history.mean_rps)


def test_everything_is_asked_with_the_profile(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session serves the cloud, the store, functions and prices."""
    (tmp_path / "config").write_text("[profile work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = x\n")
    for name, value in {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("mark_infra.aws.gate._ATTEMPTS", 1)
    sessions = []
    monkeypatch.setattr(
        "mark_infra.launch.launch_controller.Prices", lambda *_, session: sessions.append(session) or FakePrices()
    )
    monkeypatch.setattr("mark_infra.controller.process.serve", lambda *_, session, **__: sessions.append(session) or 0)
    argv = ["controller", "inception-v3", "--site", str(site), "--profile", "work", "--live-prices"]
    assert main(argv) == 0
    prices, served = sessions
    assert prices is served
    assert served.get_credentials().access_key == "AKIAWORK"
    parts = site_parts(load_site(site), session=served)
    gates = [parts.gate(seconds) for seconds in (None, 1.0)]
    assert {gate.client("ec2")._get_credentials().access_key for gate in gates} == {"AKIAWORK"}
    assert parts.session is served
    parts.close()
    parts.pool.shutdown()


def test_opened_table_is_closed_if_the_second_cannot_be_opened(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class OpenedTable:
        def close(self) -> None:
            closed.append(True)

    tables = iter([OpenedTable()])

    def open_table(*_: object) -> OpenedTable:
        try:
            return next(tables)
        except StopIteration:
            raise CloudError("the table cannot be reached") from None

    monkeypatch.setattr("mark_infra.controller.site_parts.open_table", open_table)
    with pytest.raises(CloudError, match="cannot be reached"):
        site_parts(load_site(site))
    assert closed == [True]


class FakePrices:
    """`Prices` without an answer of AWS."""

    def last(self) -> Refreshed:
        return Refreshed(load_catalog("aws-2019"), {}, ())

    def refresh(self, *, spot_only: bool) -> Refreshed:
        return self.last()


def process(site: Path, *options: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mark.cli.main", "controller", "inception-v3", "--site", str(site), "--port", "0"]
    return subprocess.Popen(
        [*command, *options], stderr=subprocess.PIPE, text=True, env={**os.environ, **DEAD}, pass_fds=pass_fds
    )


@pytest.mark.slow
def test_it_serves_its_page_without_a_cloud_until_sigterm(site: Path) -> None:
    """It reports its address, the page shows the trouble, and the exit code is 0."""
    read, write = os.pipe()
    with process(site, "--ready-fd", str(write), pass_fds=(write,)) as running, open(read) as ready:
        os.close(write)
        url = json.loads(ready.readline())["url"]
        with urllib.request.urlopen(f"{url}/api/v1/services", timeout=20) as answer:
            assert [service["service"] for service in json.load(answer)["services"]] == ["inception-v3"]
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0


def test_a_silent_store_is_told_and_asked_again_until_sigterm(site: Path) -> None:
    """Each try logs one line of JSON."""
    site.write_text(SITE.format(store="dynamodb:mark-state"))
    with process(site) as running:
        assert running.stderr is not None
        line = next(line for line in running.stderr if "cannot begin, and tries again" in line)
        assert json.loads(line)["level"] == "warning"
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
