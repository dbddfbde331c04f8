"""The port Machines over its fake and over real processes, and the behaviour that only real processes show."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from mark_infra.testbed.addresses import Addresses
from mark_infra.testbed.local_functions import overflow_function
from mark_infra.testbed.machines import Processes, ServedProgram
from mark_infra.testbed.machines_port import Machine, Machines

from mark.config.service_file import load_service
from mark.domain.faults import Faults
from mark.profiling.played_faults import FaultStream, PlayedFaults
from tests.infra.testbed.cloud_fakes import FakeMachines
from tests.infra.testbed.local_lambda import local_lambda
from tests.infra.testbed.real_processes import PATIENCE_S, get, held_port, processes_of, wait_for

SERVICE_S = 0.2
MODEL = """
import mark

class Half(mark.Model):
    inputs = [mark.TensorSpec("x", "FP64")]

    def predict(self, batch):
        return [x / 2.0 for x in batch]
"""
SERVICE = """
[service]
name = "half"
model = "half:Half"
slo_ms = {slo_ms}
slo_attainment = 0.98
profile = "profile.csv"
"""
PROFILE = "model,instance,batch,latency_ms\nhalf:Half,c7i.large,1,{one_ms}\nhalf:Half,lambda:1024,1,10\n"
INFER = "/v2/models/half/infer"
BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [3.0]}]}

numbers = count(1)


def write_service(folder: Path, one_ms: float = 1e3 * SERVICE_S, slo_ms: float = 5000.0) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "half.py").write_text(MODEL)
    (folder / "profile.csv").write_text(PROFILE.format(one_ms=one_ms))
    (folder / "half.toml").write_text(SERVICE.format(slo_ms=slo_ms))
    return folder / "half.toml"


def machine(boot_s: float = 0.0, faults: FaultStream | None = None) -> Machine:
    """Return the next machine, on an address that no other process uses."""
    return Machine(f"i-{next(numbers):04}", "c7i.large", network().next(), "half", boot_s, spot=True, faults=faults)


@cache
def network() -> Addresses:
    """Reserve one network for this process, until it ends."""
    return Addresses()


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    yield
    network().close()
    network.cache_clear()


class Place:
    """Machines that run a service, and the way to reach them."""

    def __init__(
        self,
        folder: Path,
        service_file: Path,
        ports: tuple[int, int],
        grace_s: float = 40.0,
        options: Sequence[str] = (),
        **variables: str,
    ) -> None:
        self.folder, (self.port, self.metadata_port) = folder, ports
        self.machines = Processes(
            {"half": ServedProgram(service_file, options)},
            folder,
            variables=variables,
            port=self.port,
            metadata_port=self.metadata_port,
            grace_s=grace_s,
        )

    def url(self, one: Machine, path: str = INFER) -> str:
        return f"http://{one.address}:{self.port}{path}"

    def ready(self, one: Machine) -> bool:
        running = self.machines.running().get(one.instance_id)
        return running is not None and running.late_s is not None

    def wait_ready(self, one: Machine) -> None:
        wait_for(lambda: self.ready(one), f"{one} is ready\n{self.log(one)}")

    def log(self, one: Machine) -> str:
        file = self.folder / f"{one.instance_id}.log"
        return file.read_text() if file.exists() else ""

    def bouncers(self, one: Machine) -> list[psutil.Process]:
        return processes_of(self.folder, "mark.cli.main", one.address)

    def works(self, one: Machine) -> bool:
        with urllib.request.urlopen(self.url(one, "/metrics"), timeout=PATIENCE_S) as answer:
            return re.search(r"^mark_running_requests{.*} 1\.0$", answer.read().decode(), re.M) is not None

    def infer_s(self, one: Machine) -> float:
        began_s = time.perf_counter()
        assert get(self.url(one), BODY)[1]["outputs"][0]["data"] == [1.5]
        return time.perf_counter() - began_s


@contextmanager
def place(tmp_path: Path, **options: Any) -> Iterator[Place]:
    """Yield a place; end it after the block and check that no process is left on its addresses."""
    service = {key: options.pop(key) for key in ("one_ms", "slo_ms") if key in options}
    service_file = tmp_path / "service" / "half.toml"
    if not service_file.exists():
        write_service(service_file.parent, **service)
    with held_port() as port, held_port() as metadata_port:
        made = Place(tmp_path / "machines", service_file, (port, metadata_port), **options)
        with made.machines:
            yield made
    assert processes_of(made.folder) == []
    assert list(made.folder.glob("*.speed")) == []


@pytest.fixture(params=["fake", "real"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    if request.param == "fake":
        yield FakeMachines()
    else:
        with place(tmp_path) as there:
            yield there.machines


def test_a_machine_is_there_from_its_boot_to_its_end(machines: Machines) -> None:
    """Its id and address are its own until its end. A missing machine can be told nothing, but it may be ended."""
    one, other = machine(), machine()
    machines.boot(one)
    for taken in (one, Machine("i-other", "c7i.large", one.address, "half", 0.0)):
        with pytest.raises(ValueError, match=r"taken|still there"):
            machines.boot(taken)
    machines.boot(other)
    assert {of: running.machine for of, running in machines.running().items()} == {
        one.instance_id: one,
        other.instance_id: other,
    }
    machines.announce(one.instance_id, "rebalance", 1.8e9)
    machines.set_speed(one.instance_id, 0.2)
    machines.crash(other.instance_id)
    assert set(machines.running()) == {one.instance_id, other.instance_id}  # gone only when it is ended
    machines.end(one.instance_id)
    wait_for(lambda: one.instance_id not in machines.running(), "it ends")
    for told in (
        lambda: machines.announce(one.instance_id, "terminate", 1.8e9),
        lambda: machines.set_speed(one.instance_id, 1.0),
        lambda: machines.crash(one.instance_id),
    ):
        with pytest.raises(KeyError):
            told()
    machines.end(one.instance_id)
    machines.boot(one)  # a standby starts again
    assert set(machines.running()) == {one.instance_id, other.instance_id}


def test_a_machine_is_ready_only_after_its_boot(tmp_path: Path) -> None:
    """Until then it is not ready or does not answer. Then it answers as slowly as its type, not as fast as this
    computer."""
    with place(tmp_path) as there:
        one = machine(boot_s=2.0)
        booted_s = time.time()
        there.machines.boot(one)
        assert not there.ready(one)
        wait_for(lambda: get(there.url(one, "/v2/health/ready"))[0] == 200, "it is ready")
        assert time.time() - booted_s >= 2.0
        there.wait_ready(one)
        late_s = there.machines.running()[one.instance_id].late_s
        assert late_s is not None
        assert 0.0 <= late_s < time.time() - booted_s - 2.0
        # A client that asks again at once may get its answer a fortieth sooner: the batch counts as one that waited
        # (`due_s`).
        assert there.infer_s(one) >= SERVICE_S * 39.0 / 40.0
        there.machines.set_speed(one.instance_id, 0.5)
        assert there.infer_s(one) >= 2.0 * SERVICE_S * 39.0 / 40.0


def test_its_environment_is_an_instance_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no AWS of this computer reach it; its own metadata service knows it."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with place(tmp_path, AWS_ENDPOINT_URL_LAMBDA="http://127.0.0.1:7") as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        (bouncer,) = there.bouncers(one)
        variables = bouncer.environ()
        assert {"https_proxy", "AWS_PROFILE", "AWS_EC2_METADATA_DISABLED"}.isdisjoint(variables)
        assert variables["AWS_ENDPOINT_URL_LAMBDA"] == "http://127.0.0.1:7"
        url = variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
        assert url == f"http://{one.address}:{there.metadata_port}"
        assert get(f"{url}/latest/meta-data/instance-id")[0] == 401


@pytest.mark.slow
def test_the_local_lambda_answers_a_machines_overflow(tmp_path: Path) -> None:
    """All parts are real: the bouncer, AWS's client in it, the functions' processes with the same model."""
    pytest.importorskip("awslambdaric")
    service_file = write_service(tmp_path / "service", slo_ms=450.0)
    service_file.write_text(service_file.read_text() + '[overflow]\nfunction = "lambda:1024"\n')
    functions = [overflow_function(load_service(str(service_file)), "overflow")]
    with local_lambda(tmp_path, functions) as lambda_:
        for _ in range(2):  # loads the function
            get(f"{lambda_.url}/2015-03-31/functions/overflow/invocations", {"warm": True})
        options = ("--function", "overflow", "--function-ms", "10")
        with (
            place(tmp_path, options=options, AWS_ENDPOINT_URL_LAMBDA=lambda_.url) as there,
            ThreadPoolExecutor(6) as pool,
        ):
            one = machine()
            there.machines.boot(one)
            there.wait_ready(one)
            answers = list(pool.map(lambda _: get(there.url(one), BODY), range(6)))
        assert [status for status, _ in answers] == [200] * 6
        assert [said["outputs"][0]["data"] for _, said in answers] == [[1.5]] * 6
        status = lambda_.status("overflow")
        assert status["invocations"] - 2 in range(2, 6)  # it answered the others itself
        assert status["failed"] == 0
        assert status["usd"] > 0.0


def test_a_bouncer_sees_its_machine_s_interruption_and_drains(tmp_path: Path) -> None:
    """It ends in order and is not started again; the machine stays until it is taken away."""
    with place(tmp_path, slo_ms=1000.0, MARK_NOTICE_POLL_S="0.05") as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        there.machines.announce(one.instance_id, "terminate", time.time() + 5.0)
        wait_for(lambda: not there.bouncers(one), "it has drained")
        assert "taken away in" in there.log(one)
        running = there.machines.running()[one.instance_id]
        assert (running.ends, running.crashes) == (False, 0)


def test_a_bouncer_that_crashes_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark_infra.testbed.machines.RESTART_S", 0.01)
    with place(tmp_path) as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        (bouncer,) = there.bouncers(one)
        bouncer.send_signal(signal.SIGKILL)
        wait_for(lambda: there.machines.running()[one.instance_id].crashes == 1, "the crash is noticed")
        wait_for(lambda: get(there.url(one), BODY)[0] == 200, "it answers again")
        assert there.bouncers(one)[0].pid != bouncer.pid


@pytest.mark.slow
def test_a_machine_that_crashes_answers_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed in the middle of a batch, with its workers, and not started again. It can be ended and rebooted."""
    monkeypatch.setattr("mark_infra.testbed.machines.RESTART_S", 0.01)
    with place(tmp_path, one_ms=1000.0) as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        statuses: list[int] = []
        client = threading.Thread(target=lambda: statuses.append(get(there.url(one), BODY)[0]))
        client.start()
        wait_for(lambda: there.works(one), "a worker has it")
        there.machines.crash(one.instance_id)
        client.join()
        assert statuses == [0]
        wait_for(lambda: not processes_of(there.folder, one.address), "its processes are gone")
        assert get(there.url(one), BODY)[0] == 0
        assert there.machines.running()[one.instance_id].crashes == 0
        there.machines.end(one.instance_id)
        wait_for(lambda: not there.machines.running(), "it ends")


@pytest.mark.slow
def test_a_machine_is_slow_and_hangs_as_the_simulators_instance(tmp_path: Path) -> None:
    """Its bouncer answers each request when the draws of its stream say, by [faults] of the service file.

    Answers never come earlier, and most come as soon as this computer can. The test asks in calm and slow periods and
    in hangs.
    """
    faults = Faults(slow_share=0.5, slow_s=2.0, slow_factor=3.0, slow_add_s=0.1, hangs_per_hour=1200.0, hang_s=1.0)
    service_file = write_service(tmp_path / "service")
    said = "slow_share = 0.5\nslow_s = 2\nslow_factor = 3\nslow_add_ms = 100\nhangs_per_hour = 1200\nhang_s = 1\n"
    service_file.write_text(f"{service_file.read_text()}[faults]\n{said}")
    with place(tmp_path) as there:
        stream = FaultStream(time.time(), seed=5, number=3)
        one = machine(faults=stream)
        there.machines.boot(one)
        there.wait_ready(one)
        expected = PlayedFaults(faults, stream)
        kinds: set[str] = set()
        late_s: list[float] = []
        while (len(kinds) < 3 or len(late_s) < 10) and len(late_s) < 200:
            began_s = time.time()
            there.infer_s(one)
            since_s = began_s - stream.began_unix_s
            due_s = expected.end_s(since_s, SERVICE_S)
            hung = due_s - since_s > faults.hang_s
            kinds.add("hangs" if hung else "slow" if expected.is_slow(since_s) else "calm")
            late_s.append(time.time() - stream.began_unix_s - due_s)
        assert kinds == {"calm", "slow", "hangs"}
        # A request at the start of a period may see the next period.
        assert sorted(late_s)[len(late_s) // 10] >= -SERVICE_S / 40.0
        assert sorted(late_s)[len(late_s) // 2] < SERVICE_S


def test_a_bouncer_that_cannot_serve_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine stays, is never ready, and can be ended."""
    monkeypatch.setattr("mark_infra.testbed.machines.RESTART_S", 0.01)
    with place(tmp_path) as there:
        one = Machine("i-abacus", "abacus", machine().address, "half", 0.0)
        there.machines.boot(one)
        wait_for(lambda: "is not started again" in caplog.text, "it is given up")
        assert there.machines.running()[one.instance_id].crashes == 1
        assert there.log(one).count("no profile of half:Half on it") == 1
        assert not there.bouncers(one)
        assert not there.ready(one)


def test_an_end_waits_for_the_answers_that_are_owed(tmp_path: Path) -> None:
    with place(tmp_path, one_ms=500.0) as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        statuses: list[int] = []
        client = threading.Thread(target=lambda: statuses.append(get(there.url(one), BODY)[0]))
        client.start()
        wait_for(lambda: there.works(one), "a worker has it")
        there.machines.end(one.instance_id)
        assert there.machines.running()[one.instance_id].ends
        client.join()
        assert statuses == [200]
        wait_for(lambda: not there.machines.running(), "it ends")


@pytest.mark.slow
def test_a_machine_that_outlasts_its_grace_is_killed(tmp_path: Path) -> None:
    with place(tmp_path, one_ms=1000.0, slo_ms=20_000.0, grace_s=0.1) as there:
        one = machine()
        there.machines.boot(one)
        there.wait_ready(one)
        statuses: list[int] = []
        client = threading.Thread(target=lambda: statuses.append(get(there.url(one), BODY)[0]))
        client.start()
        wait_for(lambda: there.works(one), "a worker has it")
        there.machines.end(one.instance_id)
        client.join()
        assert statuses == [0]
        wait_for(lambda: not there.machines.running(), "it is killed")


def test_a_machine_whose_address_is_taken_is_never_ready(tmp_path: Path) -> None:
    with place(tmp_path) as there, socket.socket() as holder:
        one = machine()
        holder.bind((one.address, there.metadata_port))
        holder.listen()
        there.machines.boot(one)
        assert not there.ready(one)
        there.machines.end(one.instance_id)
        wait_for(lambda: not there.machines.running(), "it ends")
        assert there.log(one) == ""


@pytest.mark.slow
def test_no_machine_survives_the_process_that_started_it(tmp_path: Path) -> None:
    """A process killed by SIGKILL cannot end them: they end by themselves, with their workers."""
    service, one = write_service(tmp_path / "service"), machine()
    with held_port() as port:
        script = f"""
            import sys, time
            from pathlib import Path
            from mark_infra.testbed.machines import Processes, ServedProgram
            from mark_infra.testbed.machines_port import Machine
            program = ServedProgram(Path({str(service)!r}))
            with Processes({{"half": program}}, Path({str(tmp_path)!r}), port={port}, metadata_port=0) as machines:
                machines.boot(Machine("i-1", "c7i.large", {one.address!r}, "half", 0.0))
                while machines.running()["i-1"].late_s is None:
                    time.sleep(0.02)
                print("ready", flush=True)
                sys.stdin.read()
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "ready\n", (tmp_path / "i-1.log").read_text()
            children = psutil.Process(parent.pid).children(recursive=True)
            assert len(children) >= 2  # a bouncer and its worker
            parent.kill()
        wait_for(lambda: not any(child.is_running() for child in children), f"they end: {children}")
