"""`mark advise --serve`: its errors, its price of a replica, and a whole process over an emulated Prometheus."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mark_infra.launch.launch_floor import FloorOptions, of_rate, of_service, too_busy
from mark_infra.telemetry.watched_workload import WorkloadNow

from mark.cli.main import main
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.slo import Slo
from mark.traffic.prometheus.workload import Asked
from tests.prometheus import EmulatedPrometheus, add_workload

SLO = Slo(0.5, 0.98)
WAIT_S = 120.0


@pytest.fixture
def prometheus() -> Iterator[EmulatedPrometheus]:
    with EmulatedPrometheus() as emulated:
        add_workload(emulated)
        yield emulated


def options(**more: Any) -> FloorOptions:
    return FloorOptions(url="http://127.0.0.1:9", asked=Asked(), **more)


@pytest.mark.parametrize(("rps", "per_instance"), [(4.0, 1), (37.5, 1), (4.0, 3)])
def test_replica_does_the_rate_that_the_user_says(rps: float, per_instance: int) -> None:
    resolved = of_rate("ranker", SLO, "c7i.large", per_instance, options(rps_per_replica=rps))
    assert resolved.candidates[0].capacity_rps / per_instance == pytest.approx(rps, rel=0.1)
    assert [offer.name for offer in resolved.offers] == ["c7i.large/on-demand"]


def test_boot_that_the_user_says_holds() -> None:
    resolved = of_rate("ranker", SLO, "c7i.large", 1, options(rps_per_replica=4.0, boot_s=420.0))
    assert resolved.offers[0].boot.mean_s == 420.0


def test_replica_of_unknown_rate_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        of_rate("ranker", SLO, "c7i.large", 1, options())
    assert str(refused.value) == (
        "--rps-per-replica: is needed with --serve, or --service: the report without --serve fits it to your latencies"
    )


def test_replicas_that_do_much_more_than_they_can_are_said() -> None:
    busy = WorkloadNow(0.0, 60.0, 3)
    assert too_busy(busy, 12.0) == ()
    assert too_busy(busy, 9.0) == ("a replica does 20 requests/s now, much more than 9: check --rps-per-replica",)
    assert too_busy(WorkloadNow(0.0, 60.0, 0), 9.0) == too_busy(WorkloadNow(0.0, None, 3), 9.0) == ()


def test_floor_of_a_workload_may_be_zero() -> None:
    """A floor of one would keep the other autoscaler from scaling to zero."""
    resolved = of_rate("ranker", SLO, "c7i.large", 1, options(rps_per_replica=4.0))
    assert resolved.service.min_instances == 0


def test_type_that_is_not_sold_is_refused(
    prometheus: EmulatedPrometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("advise", "--prometheus", prometheus.url, "--slo-ms", "500", "--serve", "--rps-per-replica", "4")
    assert main([*arguments, "--instance", "c99.large", "--listen", "127.0.0.1:0"]) == 2
    assert "--instance: aws-2026 does not sell it on demand" in capsys.readouterr().err


def test_service_of_several_types_needs_one() -> None:
    service = load_service("inception-v3-2026")
    with pytest.raises(BadInput, match="--instance: name the type that its replicas run on"):
        of_service(service, None, options())
    resolved = of_service(service, "g6.xlarge", options())
    assert [offer.name for offer in resolved.offers] == ["g6.xlarge/on-demand"]
    assert resolved.function is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--listen", "0.0.0.0:9464"), "other machines can reach this address"),
        (("--listen", "9464"), "must be HOST:PORT"),
        (("--act", "ecs:rank/all"), "must be sagemaker:ENDPOINT/VARIANT"),
        (("--json", "-"), "--json: is of the report, without --serve"),
        (("--state", "/proc/absent/state.db"), "cannot be opened"),
    ],
)
def test_wrong_option_is_one_line_and_exit_two(
    more: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("advise", "--prometheus", "http://127.0.0.1:9", "--slo-ms", "500", "--serve")
    assert main([*arguments, *more]) == 2
    assert said in capsys.readouterr().err


def test_several_services_and_one_workload_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("advise", "--prometheus", "http://127.0.0.1:9", "--serve", "--workload", "ranker")
    assert main([*arguments, "--service", "inception-v3-2026,nasnet-2026"]) == 2
    assert "start a process for each" in capsys.readouterr().err


def test_option_of_the_floor_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("advise", "--prometheus", "http://127.0.0.1:9", "--slo-ms", "500")
    assert main([*arguments, "--act", "sagemaker:rank/all"]) == 2
    assert "--act: needs --serve" in capsys.readouterr().err


def ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until(found: Any) -> None:
    end_s = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_process_publishes_the_floor_and_ends_in_order(prometheus: EmulatedPrometheus, tmp_path: Path) -> None:
    """Prometheus does not answer at first. A mean of 16 requests/s needs four replicas of 4 requests/s, or five."""
    prometheus.fault = "503"
    ready = tmp_path / "ready.json"
    command = [
        sys.executable, "-m", "mark.cli.main", "advise", "--serve", "--prometheus", prometheus.url, "--slo-ms", "500",
        "--rps-per-replica", "4", "--days", "0.25", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state.db"),
        "--ready-file", str(ready),
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: prometheus.asked)
            prometheus.fault = None
            until(ready.exists)
            url = json.loads(ready.read_text())["url"]
            until(lambda: ask(f"{url}/wanted")[0] == 200)
            found = json.loads(ask(f"{url}/wanted/ranker")[1])
            assert 3 <= found["value"] <= 7
            assert found["offer"] == "c7i.large/on-demand"
            page = ask(f"{url}/metrics")[1]
            assert f'mark_wanted_replicas{{offer="c7i.large/on-demand",service="ranker"}} {found["value"]}.0' in page
            assert json.loads(ask(f"{url}/api/v1/services/ranker")[1])["mode"] == "dry-run"
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    assert "it is asked again in 1 s" in said
    assert "Traceback" not in said
