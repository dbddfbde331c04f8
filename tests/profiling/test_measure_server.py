"""Profiling in real worker processes finds the times that the model itself notes."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from mark.domain.errors import BadInput
from mark.domain.profile import Basis
from mark.domain.service import ServiceConfig, Version
from mark.models.call import Call
from mark.profiling.machine import Room
from mark.profiling.measure import WARM_UPS
from mark.profiling.measure_server import Profiling, of_service, profile
from mark.profiling.serial_client import latencies_s
from tests.children import new_children

MODEL = '''
import atexit, os, time
import mark
from mark.profiling.measure import WARM_UPS

class Timed(mark.Model):
    """Takes 4 ms and 0.5 ms an item, the first times of each size 100 ms, and writes down how long that really was."""

    inputs = [mark.TensorSpec("x", "FP32", (2,))]

    def load(self):
        self.took = []
        atexit.register(self.write)

    def write(self):
        with open("took", "a") as file:
            for batch, seconds in self.took:
                print(batch, seconds, file=file)

    def predict(self, batch):
        began = time.perf_counter()
        first = sum(size == len(batch) for size, _ in self.took) < WARM_UPS + (len(batch) == 1)
        time.sleep(0.1 if first else 0.004 + 0.0005 * len(batch))
        self.took.append((len(batch), time.perf_counter() - began))
        return batch

class Computes(mark.Model):
    """10 ms of a processor."""

    inputs = [mark.TensorSpec("x", "FP32", (2,))]

    def predict(self, batch):
        ends = time.process_time() + 0.01
        while time.process_time() < ends:
            pass
        return batch

class Small(mark.Model):
    inputs = [mark.TensorSpec("x", "FP32")]

    def predict(self, batch):
        if len(batch) > 2:
            raise MemoryError
        return batch

class Fragile(Small):
    def predict(self, batch):
        if len(batch) > 2:
            os._exit(9)
        return batch

@mark.model
def silent(batch):
    return batch
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "timed.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)  # the model writes there
    return tmp_path


def quick(model: str, folder: Path, **more: Any) -> Profiling:
    return Profiling(model, folder, **dict[str, Any](batches=(1, 4), seconds=0.3, workers=1) | more)


@pytest.mark.slow
def test_times_are_those_that_the_model_took(folder: Path) -> None:
    """Measured times include late sleeps of this machine. The order is random, and warm-ups are left out."""
    found = profile(quick("timed:Timed", folder, instance="c5.large"))
    took: dict[int, list[float]] = {1: [], 4: []}
    for line in (folder / "took").read_text().splitlines():
        batch, seconds = line.split()
        took[int(batch)].append(float(seconds))
    # without the warm-up at the start and the requests by HTTP
    took[1] = took[1][1 : 1 + WARM_UPS + found.sizes[0].count]
    assert [size.batch for size in found.sizes] == [1, 4]
    for size in found.sizes:
        true = took[size.batch][WARM_UPS:]
        assert len(true) == size.count
        assert size.service_s is not None
        # A warm-up among the times would add 100 ms / count to the mean; a busy machine adds less.
        within_s = sum(true) / len(true)
        assert within_s < size.service_s < within_s + 0.1 / size.count
        assert size.service_s < size.mean_s
        assert size.mean_s >= 0.004 + 0.0005 * size.batch
    assert found.overhead_s is not None
    assert 0.0 <= found.overhead_s < 0.1  # 0 if noise of this machine hides the overhead
    assert found.cold_s is not None
    assert 0.01 < found.cold_s < 30.0
    row = found.profile().rows[1]
    assert (row.batch, row.basis, row.workers) == (4, Basis.MEASURED, 1)
    assert row.latency_ms == pytest.approx(found.sizes[1].mean_s * 1e3, abs=1e-3)


@pytest.mark.slow
def test_workers_are_busy_at_the_same_time(folder: Path) -> None:
    found = profile(quick("timed:Timed", folder, workers=2, batches=(1,)))
    assert found.sizes[0].count % 2 == 0
    assert found.profile().workers == 2
    assert found.throughput_rps(found.sizes[0]) == pytest.approx(2.0 / found.sizes[0].mean_s)


@pytest.mark.acceptance
def test_workers_are_as_many_as_keep_the_room_busy(folder: Path) -> None:
    """Each row has the use of one worker: a computing model uses a whole processor, a sleeping one almost nothing."""
    found = profile(quick("timed:Computes", folder, workers=None, room=Room(1.0), batches=(1,)))
    (row,) = found.profile().rows
    assert found.workers == 1
    assert row.vcpus is not None
    # 10 ms of a processor for each batch, however long a busy machine makes it wait.
    assert 0.0095 / found.sizes[0].mean_s < row.vcpus < 0.03 / found.sizes[0].mean_s
    assert row.memory_mb is not None
    assert 5.0 < row.memory_mb < 1000.0
    asleep = profile(quick("timed:Timed", folder, workers=None, room=Room(2.0), batches=(1,)))
    assert asleep.workers == 2
    assert asleep.sizes[0].vcpus is not None
    assert asleep.sizes[0].vcpus < 0.8
    assert profile(quick("timed:Small", folder, workers=None, room=Room(8.0, gpus=True), batches=(1,))).workers == 1


@pytest.mark.parametrize(
    ("model", "reason"), [("Small", "the model failed: MemoryError"), ("Fragile", "the worker was lost: exit code 9")]
)
def test_a_size_that_fails_is_left_out_with_its_reason(model: str, reason: str, folder: Path) -> None:
    found = profile(quick(f"timed:{model}", folder))
    assert [size.batch for size in found.sizes] == [1]
    assert found.failed == {4: reason}


def test_what_cannot_be_measured_is_said(folder: Path) -> None:
    with new_children() as children:
        for model, said in (
            ("timed:silent", "declares neither inputs nor warmup"),
            ("timed:Missing", "timed has no Missing"),
            ("nowhere:Model", "no module nowhere"),
        ):
            with pytest.raises(BadInput, match=said):
                profile(quick(model, folder))
        with pytest.raises(BadInput, match="no batch could be run: the model failed: MemoryError"):
            profile(quick("timed:Small", folder, batches=(4,)))
        assert children() == []


@pytest.mark.slow
def test_a_request_of_ones_own_is_repeated(folder: Path) -> None:
    body = orjson.dumps("a word")
    found = profile(quick("timed:silent", folder, calls=(Call("sagemaker", "application/json", body),)))
    assert [size.batch for size in found.sizes] == [1, 4]
    refused = Call("sagemaker", "application/json", b"{")
    with pytest.raises(BadInput, match="the body is not JSON"):
        profile(quick("timed:silent", folder, calls=(refused,)))


@pytest.mark.slow
def test_busy_processes_beside_end_with_the_measurement(folder: Path) -> None:
    seen: set[psutil.Process] = set()
    plan = quick("timed:silent", folder, background=1, calls=(Call("sagemaker", "text/plain", b"x"),), batches=(1,))
    with new_children() as children:
        found = profile(plan, lambda share: seen.update(children()))
    assert found.background == 1
    assert len(seen) == 2
    assert not any(process.is_running() for process in seen)


class Doubling(BaseHTTPRequestHandler):
    """A server of TensorFlow's REST interface that takes three items at most."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        items = orjson.loads(self.rfile.read(int(self.headers["content-length"])))["instances"]
        if len(items) > 3:
            self._answer(413, {"error": "too many"})
        else:
            self._answer(200, {"predictions": [2 * item for item in items]})

    def _answer(self, status: int, value: Any) -> None:
        body = orjson.dumps(value)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Any:
    with ThreadingHTTPServer(("127.0.0.1", 0), Doubling) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1/models/double"
        made.shutdown()
        thread.join()


def test_a_running_server_is_measured_as_clients_see_it(server: str, tmp_path: Path) -> None:
    call = Call("sagemaker", "application/json", b"21")
    found = profile(quick(server, tmp_path, calls=(call,), batches=(1, 2, 4), seconds=0.1))
    assert [size.batch for size in found.sizes] == [1, 2]
    assert "answered 413" in found.failed[4]
    assert (found.overhead_s, found.cold_s, found.sizes[0].service_s) == (None, None, None)
    assert found.profile().overhead_s == 0.0
    assert "times of a client" in found.warnings()[-1]
    with pytest.raises(BadInput, match="give a request"):
        profile(quick(server, tmp_path))


def test_a_client_that_is_refused_says_how(server: str) -> None:
    port = int(server.split(":")[2].split("/")[0])
    request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
    many, few = b'{"instances": [1, 2, 3, 4]}', b'{"instances": [1]}'
    with pytest.raises(ValueError, match=r"HTTP/1\.1 413"):
        latencies_s(port, request % (len(many), many), 10, 10.0)
    assert len(latencies_s(port, request % (len(few), few), 10, 10.0)) == 10
    assert len(latencies_s(port, request % (len(few), few), 10, 0.0)) == 1


def test_a_service_is_measured_by_its_code() -> None:
    def service(model: str, *versions: Version) -> ServiceConfig:
        from mark.domain.slo import Slo

        return ServiceConfig(
            "s", model, Slo(1.0, 0.9), "aws-2026", (), (), 1, 1.0, (), versions=versions, source="/a/s.toml"
        )

    what = of_service(service("m:A"))
    assert (what.model, what.named, what.search) == ("m:A", "m:A", Path("/a"))
    what = of_service(service("big", Version("1", "m:A", 0.3), Version("2", "m:B", 0.7)))
    assert (what.model, what.named) == ("m:B", "big")
    with pytest.raises(BadInput, match="has no code that could be measured"):
        of_service(service("inception-v3"))


@pytest.mark.parametrize("wrong", [{"precision": 0.0}, {"seconds": 0.0}, {"workers": 0}, {"background": -1}])
def test_what_makes_no_measurement(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Profiling("m:A", **wrong)


def test_the_measuring_process_has_no_compiler() -> None:
    modules = "mark.profiling.measure_server, mark.cli.profile, mark.studies.report.profile_report"
    code = f"import sys, {modules}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
