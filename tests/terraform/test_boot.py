"""A bouncer's user data, run: from what `mark deploy` builds to an answer, and once more on the image made of that.

Paths are below a folder, and what only an instance has (the AWS CLI, metadata, systemd, other users) is a small script.
pip, the environment and `mark serve` are real.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.deploy import GRPC_PACKAGES
from mark_infra.deploy.own_wheel import wheel
from mark_infra.deploy.wheelhouse import PackagesWanted, wheelhouse

from mark.domain.errors import MarkError
from tests.infra.testbed.real_processes import held_port, wait_for
from tests.serving.worker.listening import keepers
from tests.terraform.conftest import MODULES

KEY = "0123456789abcdef0123"
SERVICE = """
[service]
name = "echo"
model = "echo:Echo"
slo_ms = 600
slo_attainment = 0.98
profile = "profile.csv"
[overflow]
function = "lambda:1024"
"""
SERVICE_FILES: dict[str, Path | bytes] = {
    "service.toml": SERVICE.encode(),
    "profile.csv": b"model,instance,batch,latency_ms\necho:Echo,c5.large,1,20\necho:Echo,lambda:1024,1,40\n",
    "echo.py": b"import mark\n\n\nclass Echo(mark.Model):\n    def predict(self, batch): return batch\n",
}
# What an instance has and this machine has not.
PROGRAMS = {
    "aws": """
case "$1" in
  ssm) cat "$STORE/keys" ;;
  logs) printf '%s\n' "$@" >>"$STORE/logs" ;;
  s3api)
    while [ $# -gt 1 ]; do
      case "$1" in --key) key=$2 ;; --version-id) version=$2 ;; esac
      shift
    done
    echo "$key" >>"$STORE/fetched"
    cp "$STORE/${key//\\//-}@$version" "$1" ;;
esac
""",
    "curl": """
for address; do :; done
case "$address" in
  */api/token) echo token ;;
  */instance-type) echo c5.large ;;
  */instance-id) cat "$STORE/instance-id" ;;
  *) exit 22 ;;
esac
""",
    "getent": 'test -f "$STORE/user-$2"',
    "useradd": 'for name; do :; done; if [ -f "$STORE/user-$name" ]; then exit 9; fi; touch "$STORE/user-$name"',
    "systemd-run": 'echo "$*" >>"$STORE/as-worker"; case "$*" in *" curl "*) exit "${REACHED:-7}" ;; esac',
    "systemctl": 'echo "$*" >>"$STORE/systemctl"',
    "shutdown": 'echo "$*" >>"$STORE/shutdown"',
    "dnf": "exit 1",  # no index of packages can be reached; the log agent may fail
    "install": """
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in -o | -g) shift ;; *) arguments+=("$1") ;; esac
  shift
done
exec /usr/bin/install "${arguments[@]}"
""",
}


class Machine:
    """A disk below `root`, and the artifacts bucket in `store`."""

    def __init__(self, folder: Path) -> None:
        self.root, self.store, programs = folder / "root", folder / "store", folder / "bin"
        for made in ("etc/systemd/system", "etc/logrotate.d", "var/tmp", "var/log"):
            (self.root / made).mkdir(parents=True)
        self.store.mkdir()
        programs.mkdir()
        (self.store / "keys").write_text(f"operator:{KEY}:admin\n")
        for name, text in PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/bash\n{text}")
            (programs / name).chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        others = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        self.environment = others | {"PATH": path, "STORE": str(self.store), "PIP_CONFIG_FILE": "/dev/null"}

    def sent(self, kind: str, file: Path, version: str) -> dict[str, str]:
        """An artifact in the bucket; what the script has for it."""
        shutil.copy(file, self.store / f"artifacts-{kind}-echo@{version}")
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        said = {"bucket": "b", "key": f"artifacts/{kind}/echo", "version": version, "sha256": sha256}
        return {f"artifacts.{kind}.{name}": value for name, value in said.items()}

    def installed(self) -> dict[str, str]:
        """Packages, as on an image that has been here; what the script has for them."""
        wheels = hashlib.sha256(b"none").hexdigest()
        (self.root / "opt/mark/venv").mkdir(parents=True)
        (self.root / "opt/mark/venv/wheels").write_text(f"{wheels}\n")
        return {f"artifacts.wheels.{name}": wheels for name in ("key", "version", "sha256")}

    def boot(
        self, instance_id: str, artifacts: dict[str, str], grpc_port: str = "", scheme: str = "https"
    ) -> subprocess.CompletedProcess[str]:
        (self.store / "instance-id").write_text(instance_id)
        text = (MODULES / "modules" / "fleet" / "bouncer.sh.tftpl").read_text(encoding="utf-8")
        values = artifacts | {"region": "eu-west-1", "service": "echo", "keys": "/mark/keys", "port": "8080"}
        values |= {"linger_s": "0", "drain_s": "5", "linger_s + drain_s + 10": "15", "log_group": "/mark/mark/echo"}
        values |= {"function": "mark_echo-overflow:3", "grpc_port": grpc_port, "scheme": scheme}
        holds = {'grpc_port != ""': bool(grpc_port), 'scheme == "https"': scheme == "https"}
        for condition in (condition for condition, it_does in holds.items() if not it_does):
            text = re.sub(rf"%\{{ if {condition} \}}.*?%\{{ endif \}}", "", text, flags=re.S)
        text = re.sub(r"%\{ if [^}]*\}|%\{ endif \}", "", text)
        text = re.sub(r"(?<!\$)\$\{([^}]*)\}", lambda found: values[found[1]], text).replace("$${", "${")
        text = re.sub(r"(?<![\w.$])/(opt|etc|var|run/mark)/", rf"{self.root}/\1/", text)
        return subprocess.run(["bash"], input=text, env=self.environment, capture_output=True, text=True)

    def unit(self) -> dict[str, str]:
        text = (self.root / "etc/systemd/system/mark.service").read_text().replace("\\\n", "")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    def certified(self) -> x509.Certificate:
        """What systemd runs before the bouncer, in a folder that it makes in memory."""
        unit = self.unit()
        folder = self.root / "run" / unit["RuntimeDirectory"]
        folder.mkdir(int(unit["RuntimeDirectoryMode"], 8), parents=True)
        done = subprocess.run(shlex.split(unit["ExecStartPre"]), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())

    def fetched(self) -> list[str]:
        """Keys, since the last time."""
        found = (self.store / "fetched").read_text().split()
        (self.store / "fetched").unlink()
        return found


def answer(machine: Machine) -> None:
    """Starts what the unit says, and asks it; workers by whoever listens instead of systemd."""
    machine.certified()
    with held_port() as port, keepers(machine.root / "keepers") as path:
        command = shlex.split(machine.unit()["ExecStart"].replace("--port 8080", f"--port {port}"))
        command[command.index("0.0.0.0")] = "127.0.0.2"
        command[command.index("/run/mark-worker.socket")] = str(path)
        environment = machine.environment | {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"}
        with (machine.root / "said").open("w") as said:
            process = subprocess.Popen(command, cwd=machine.root / "opt/mark/service", env=environment, stderr=said)
        # As the load balancer does: it verifies no certificate of a target.
        client = httpx.Client(base_url=f"https://127.0.0.2:{port}", verify=False, trust_env=False, timeout=30.0)
        try:
            wait_for(lambda: process.poll() is not None or is_ready(client), "a bouncer that is ready")
            assert process.poll() is None, (machine.root / "said").read_text()
            assert client.get("/metrics").status_code == 401, "it has keys"
            tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
            headers = {"Authorization": f"Bearer {KEY}"}
            found = client.post("/v2/models/echo/infer", json={"inputs": [tensor]}, headers=headers)
            assert found.json()["outputs"][0]["data"] == [1.0, 2.0]
            process.terminate()
            assert process.wait(30) == 0
        finally:
            client.close()
            process.kill()
            process.wait()


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/v2/health/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_user_data_boots_a_bouncer_twice(tmp_path: Path) -> None:
    if shutil.which("python3.11") is None:
        pytest.skip("instances have Python 3.11")
    machine, built = Machine(tmp_path), tmp_path / "built"
    try:
        packages = wheelhouse(PackagesWanted("echo", SERVICE_FILES), wheel(built), constraints(), built / "wheels")
    except MarkError as error:
        pytest.skip(f"no index of packages can be reached: {error}")
    first = machine.sent("archive", archive(SERVICE_FILES, built / "echo.tar.gz"), "v1")
    first |= machine.sent("wheels", packages.file, "v1")

    done = machine.boot("i-1", first)
    assert done.returncode == 0, done.stderr
    assert machine.fetched() == ["artifacts/archive/echo", "artifacts/wheels/echo"]
    there = machine.root / "opt/mark"
    assert sorted(path.name for path in there.iterdir()) == ["service", "venv"]  # nothing lies about
    installed = {path.name.partition("-")[0] for path in there.glob("venv/lib/*/site-packages/*.dist-info")}
    assert "mark_serving" in installed
    assert not installed & {"numba", "pandas", "scipy", "scikit_learn", "plotly", "highspy", "fastapi"}
    answer(machine)

    keys = [path for path in machine.root.rglob("*.key") if path.is_file()]
    assert keys == [machine.root / "run/mark/tls.key"], "in memory, and nowhere else"
    assert keys[0].stat().st_mode & 0o077 == keys[0].parent.stat().st_mode & 0o077 == 0
    shutil.rmtree(machine.root / "run")

    # An image of it, booted with another archive: the environment is there, and what it served before is gone.
    (machine.store / "artifacts-wheels-echo@v1").unlink()
    files = {**SERVICE_FILES, "new.txt": b""}
    del files["profile.csv"]
    files["service.toml"] = SERVICE.replace('profile = "profile.csv"\n', "").encode()
    second = first | machine.sent("archive", archive(files, built / "echo.tar.gz"), "v2")
    old = machine.unit()["ExecCondition"]
    done = machine.boot("i-2", second)
    assert done.returncode == 0, done.stderr
    assert machine.fetched() == ["artifacts/archive/echo"]
    assert sorted(path.name for path in (there / "service").iterdir()) == ["echo.py", "new.txt", "service.toml"]
    assert (old.split()[2], machine.unit()["ExecCondition"].split()[2]) == ("i-1", "i-2")
    assert machine.certified().subject.rfc4514_string() == "CN=i-2"
    assert "restart mark.service" in (machine.store / "systemctl").read_text()
    assert not (machine.store / "shutdown").exists()


@pytest.mark.slow
def test_a_bouncer_with_grpc_boots_on_its_packages(tmp_path: Path) -> None:
    if shutil.which("python3.11") is None:
        pytest.skip("instances have Python 3.11")
    machine, built = Machine(tmp_path), tmp_path / "built"
    wanted = PackagesWanted("echo", SERVICE_FILES, GRPC_PACKAGES)
    try:
        packages = wheelhouse(wanted, wheel(built), constraints(), built / "wheels")
    except MarkError as error:
        pytest.skip(f"no index of packages can be reached: {error}")
    said = machine.sent("archive", archive(SERVICE_FILES, built / "echo.tar.gz"), "v1")
    said |= machine.sent("wheels", packages.file, "v1")
    done = machine.boot("i-1", said, grpc_port="0")
    assert done.returncode == 0, done.stderr
    assert "--grpc-port 0" in machine.unit()["ExecStart"]
    answer(machine)


def test_a_service_that_was_made_with_http_keeps_it(tmp_path: Path) -> None:
    """Its target groups are of HTTP: there is no certificate, and the bouncer has none."""
    machine = Machine(tmp_path)
    said = machine.sent("archive", archive(SERVICE_FILES, tmp_path / "echo.tar.gz"), "v1") | machine.installed()
    assert machine.boot("i-1", said, scheme="http").returncode == 0
    assert "RuntimeDirectory" not in machine.unit()
    assert "--tls-cert" not in machine.unit()["ExecStart"]
    assert machine.boot("i-1", said).returncode == 0
    assert "--tls-cert" in machine.unit()["ExecStart"]


def test_workers_that_reach_the_metadata_end_a_boot(tmp_path: Path) -> None:
    """They would have the instance's role."""
    machine = Machine(tmp_path)
    (machine.root / "var/log/cloud-init-output.log").write_text("")
    said = machine.sent("archive", archive(SERVICE_FILES, tmp_path / "echo.tar.gz"), "v1") | machine.installed()
    machine.environment["REACHED"] = "0"
    done = machine.boot("i-1", said)
    assert done.returncode == 1, done.stderr
    assert done.stdout == "workers reach the metadata service\n"
    assert (machine.store / "shutdown").read_text() == "-h now\n"
    asked = (machine.store / "as-worker").read_text().splitlines()
    assert all("--uid=mark-worker --slice=mark-worker.slice" in line for line in asked)
    assert "restart" not in (machine.store / "systemctl").read_text()
    del machine.environment["REACHED"]
    assert machine.boot("i-1", said).returncode == 0
    assert "restart mark.service" in (machine.store / "systemctl").read_text()


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (MODULES / "modules" / "fleet" / "bouncer.sh.tftpl").read_text(encoding="utf-8")
    units = dict(re.findall(r"cat >/etc/systemd/system/(mark-worker\S*) <<'UNIT'\n(.*?)^UNIT$", text, re.M | re.S))
    assert set(units) == {"mark-worker.slice", "mark-worker.socket", "mark-worker@.service"}
    assert "IPAddressDeny=169.254.169.254 fd00:ec2::254" in units["mark-worker.slice"]
    assert "Slice=mark-worker.slice" in units["mark-worker@.service"]
    for name, unit in units.items():
        (tmp_path / name).write_text(unit.replace("/opt/mark/venv/bin/python", sys.executable))
    names = [str(tmp_path / name) for name in units]
    done = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_with_another_hash_ends_a_boot(tmp_path: Path) -> None:
    """And the instance, which says why in the service's log."""
    machine = Machine(tmp_path)
    (machine.root / "var/log/cloud-init-output.log").write_text('the last "line"')
    said = machine.sent("archive", archive(SERVICE_FILES, tmp_path / "echo.tar.gz"), "v1")
    said |= machine.sent("wheels", tmp_path / "echo.tar.gz", "v1")
    (machine.store / "artifacts-archive-echo@v1").write_bytes(b"another")
    assert machine.boot("i-1", said).returncode != 0
    assert machine.fetched() == ["artifacts/archive/echo"] * 3
    assert not (machine.store / "systemctl").exists()
    assert (machine.store / "shutdown").read_text() == "-h now\n"
    lines = (machine.store / "logs").read_text().splitlines()
    assert lines[:2] == ["logs", "create-log-stream"]
    assert lines.count("boot/i-1") == 2
    assert json.loads(lines[-1])[0]["message"] == 'the last "line"'
