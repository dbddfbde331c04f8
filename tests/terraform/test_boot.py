"""A bouncer's user data, run from the output of `mark deploy` to an answer, and again on an image baked by that boot.

Paths are below a folder. Small scripts replace the AWS CLI, metadata, systemd and other users, which only an instance
has. pip, the environment and `mark serve` are real. benchmarks/data_plane/boot.py bounds disk and memory, too.
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
import time
from pathlib import Path

import httpx
import pytest
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.packed_services import GRPC_PACKAGES
from mark_infra.deploy.wheelhouse import PackagesWanted

from tests.infra.testbed.real_processes import held_port, wait_for
from tests.serving.worker.listening import keepers
from tests.terraform.booting import BOUNCER, KEY, Machine, artifact
from tests.terraform.conftest import Packed

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


def answer(machine: Machine) -> None:
    """Run the unit's command and send it requests. A keeper replaces systemd, which listens for workers."""
    machine.certified()
    with held_port() as port, keepers(machine.root / "keepers") as path:
        command = shlex.split(machine.unit()["ExecStart"].replace("--port 8080", f"--port {port}"))
        command[command.index("0.0.0.0")] = "127.0.0.2"
        command[command.index("/run/mark-worker.socket")] = str(path)
        environment = machine.environment | {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"}
        with (machine.root / "said").open("w") as said:
            process = subprocess.Popen(command, cwd=machine.root / "opt/mark/service", env=environment, stderr=said)
        # Verify no certificate, because the load balancer verifies none of its targets either.
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
def test_user_data_boots_a_bouncer_twice(tmp_path: Path, packed: Packed) -> None:
    """The first time with gRPC: `test_mark_serve_imports_what_a_bouncer_has` serves without gRPC's packages."""
    packages = packed(PackagesWanted("echo", SERVICE_FILES, GRPC_PACKAGES, os.uname().machine), tmp_path)
    machine, built = Machine(tmp_path), tmp_path / "built"
    first = machine.sent("archive", archive(SERVICE_FILES, built / "echo.tar.gz"), "v1")
    first |= machine.sent("wheels", packages, "v1")

    done = machine.boot("i-1", first, ('grpc_port != ""', 'function != ""', 'scheme == "https"'), grpc_port="0")
    assert done.returncode == 0, done.stderr
    assert "--grpc-port 0" in machine.unit()["ExecStart"]
    assert machine.fetched() == ["artifacts/archive/echo", "artifacts/wheels/echo"]
    there = machine.root / "opt/mark"
    assert sorted(path.name for path in there.iterdir()) == ["service", "venv"]  # no other file is left
    installed = {path.name.partition("-")[0] for path in there.glob("venv/lib/*/site-packages/*.dist-info")}
    assert "mark_serving" in installed
    assert not installed & {"numba", "pandas", "scipy", "scikit_learn", "plotly", "highspy", "fastapi"}
    answer(machine)

    keys = [path for path in machine.root.rglob("*.key") if path.is_file()]
    assert keys == [machine.root / "run/mark/tls.key"], "in memory, and nowhere else"
    assert keys[0].stat().st_mode & 0o077 == keys[0].parent.stat().st_mode & 0o077 == 0
    shutil.rmtree(machine.root / "run")

    # Boot its image with another archive: the environment is kept, and the files of the old archive are gone.
    (machine.store / "artifacts-wheels-echo@v1").unlink()
    files = {**SERVICE_FILES, "new.txt": b""}
    del files["profile.csv"]
    files["service.toml"] = SERVICE.replace('profile = "profile.csv"\n', "").encode()
    second = first | machine.sent("archive", archive(files, built / "echo.tar.gz"), "v2")
    old = machine.unit()["ExecCondition"]
    done = machine.boot("i-2", second)
    assert done.returncode == 0, done.stderr
    assert (machine.store / "gave-keys").exists()
    assert sorted(path.name for path in (there / "service").iterdir()) == ["echo.py", "new.txt", "service.toml"]
    assert (old.split()[2], machine.unit()["ExecCondition"].split()[2]) == ("i-1", "i-2")
    assert machine.certified().subject.rfc4514_string() == "CN=i-2"
    assert "restart mark.service" in (machine.store / "systemctl").read_text()
    assert not (machine.store / "shutdown").exists()


def baked(folder: Path) -> tuple[Machine, dict[str, str]]:
    """Bake an image that holds the packages (here none); return the machine and the values of its boot."""
    machine = Machine(folder)
    (machine.root / "var/log/cloud-init-output.log").write_text("")
    wheels = hashlib.sha256(b"none").hexdigest()
    said = machine.sent("archive", archive(SERVICE_FILES, folder / "echo.tar.gz"), "v1")
    said |= {f"artifacts.wheels.{name}": wheels for name in ("key", "version", "sha256")}
    (machine.root / "opt/mark/venv").mkdir(parents=True)
    (machine.root / "opt/mark/venv/wheels").write_text(f"{wheels}\n")
    return machine, said


def files_of(machine: Machine) -> dict[str, str]:
    """Return the files on the machine's disk with their contents."""
    paths = sorted(path for path in machine.root.rglob("*") if path.is_file())
    return {str(path.relative_to(machine.root)): path.read_text() for path in paths}


def test_a_builder_leaves_nothing_secret_nor_its_own(tmp_path: Path) -> None:
    """An instance that boots from the image is like any other."""
    machine, said = baked(tmp_path)
    (machine.root / "etc/machine-id").write_text("0123\n")
    for name in ("etc/ssh/ssh_host_rsa_key", "var/lib/cloud/instances/i-1/user-data.txt", "var/log/messages"):
        (machine.root / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.root / name).write_text("of this instance")
    (machine.store / "service").write_text("echo/image")
    done = machine.boot("i-1", said)
    assert done.returncode == 0, done.stderr
    assert not (machine.store / "gave-keys").exists()
    assert {name for name, text in files_of(machine).items() if text} == {"opt/mark/venv/wheels"}
    assert not (machine.root / "var/lib/mark").exists()
    assert json.loads((machine.store / "logs").read_text().splitlines()[-1])[0]["message"] == "baked\n"
    assert (machine.store / "shutdown").read_text() == "-h +60\n"  # stays up for an hour, until it is stopped
    asked = (machine.store / "systemctl").read_text().splitlines()
    assert asked[-2:] == ["disable --now mark.service mark-worker.socket", "stop mark-worker@*"]

    (machine.store / "service").write_text("echo")
    done = machine.boot("i-2", said)
    assert done.returncode == 0, done.stderr
    assert (machine.store / "gave-keys").exists()
    assert KEY in (machine.root / "var/lib/mark/keys").read_text()
    assert "--keys-parameter /mark/keys" in machine.unit()["ExecStart"]
    assert (machine.store / "systemctl").read_text().splitlines()[-1] == "restart mark.service"


def test_instance_that_learns_gets_the_inner_key_and_a_builder_does_not(tmp_path: Path) -> None:
    machine, said = baked(tmp_path)
    said |= {"inner_key": "/mark/mark/keys/conductors", "store": "s3://bucket"}
    (machine.store / "keys").write_text(f"operator:{KEY}:admin\nconductor:old{KEY}:infer:9\nconductor:{KEY}:infer\n")
    (machine.store / "service").write_text("echo/image")
    done = machine.boot("i-1", said)
    assert done.returncode == 0, done.stderr
    assert not (machine.store / "gave-keys").exists()

    (machine.store / "service").write_text("echo")
    done = machine.boot("i-2", said)
    assert done.returncode == 0, done.stderr
    key = machine.root / "var/lib/mark/inner-key"
    assert key.read_text() == f"{KEY}\n"
    assert key.stat().st_mode & 0o777 == 0o640
    assert f" --stage-key {key} --stages-in-clear --feedback-store s3://bucket" in machine.unit()["ExecStart"]


def test_a_builder_serves_with_no_key_of_the_site(tmp_path: Path) -> None:
    """The builder is stopped before it is wiped, so that the test can read the settings of its server."""
    machine, said = baked(tmp_path)
    (machine.store / "service").write_text("echo/image")
    machine.environment["READY"] = "7"
    done = machine.boot("i-1", said, boot_s="2")
    assert done.returncode == 1
    assert re.fullmatch(r"the bouncer is not ready \d+ s after the boot began\n", done.stdout)
    assert re.fullmatch(r"[a-z]+:[0-9a-f]{64}:infer\n", (machine.root / "var/lib/mark/keys").read_text())
    assert "--keys-parameter" not in machine.unit()["ExecStart"]
    assert (machine.store / "shutdown").read_text() == "-h +60\n-h now\n"


def test_each_platform_installs_its_own_packages(tmp_path: Path) -> None:
    """The template of the platform names the packages, whatever the image holds; the service's folder is the same."""
    machine, said = baked(tmp_path)
    (tmp_path / "bin/python3.11").write_text(
        """#!/bin/bash
mkdir -p "$3/bin"
printf '#!/bin/bash\\necho "$*" >>"$STORE/pip"\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""
    )
    (tmp_path / "bin/python3.11").chmod(0o755)
    packages = archive({"requirements.txt": b""}, tmp_path / "wheels.tar")
    for platform in ("x86_64-gpu", "arm64"):
        said |= artifact(machine.store, "wheels", f"artifacts/wheels/echo/{platform}", packages, "v1")
        done = machine.boot("i-1", said)
        assert done.returncode == 0, done.stderr
        assert machine.fetched() == ["artifacts/archive/echo", f"artifacts/wheels/echo/{platform}"]
        assert (machine.store / "pip").read_text().startswith("install --quiet")
        installed = machine.root / "opt/mark/venv/wheels"
        assert installed.read_text() == f"{said['artifacts.wheels.sha256']}\n"
        packages = archive({"requirements.txt": b"# others"}, tmp_path / "wheels.tar")


def test_a_service_that_was_made_with_http_keeps_it(tmp_path: Path) -> None:
    """Its target groups use HTTP, so neither it nor the bouncer needs a certificate."""
    machine, said = baked(tmp_path)
    assert machine.boot("i-1", said, ('function != ""',), scheme="http").returncode == 0
    assert "RuntimeDirectory" not in machine.unit()
    assert "--tls-cert" not in machine.unit()["ExecStart"]
    assert machine.boot("i-1", said).returncode == 0
    assert "--tls-cert" in machine.unit()["ExecStart"]


def test_workers_that_reach_the_metadata_end_a_boot(tmp_path: Path) -> None:
    """Workers that reach it would have the instance's role."""
    machine, said = baked(tmp_path)
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


def test_a_bouncer_that_keeps_ending_ends_its_boot(tmp_path: Path) -> None:
    """The boot ends within seconds, with the reason in the log. Otherwise the controller would wait for ten minutes,
    and a release for three such boots."""
    machine, said = baked(tmp_path)
    log = machine.root / "var/log/mark/serve.log"
    (tmp_path / "bin/systemctl").write_text(
        f"""#!/bin/bash
case "$1" in
  restart) echo "error: model: no such weights" >{log} ;;
  show) echo "${{RESTARTS:-0}}" ;;
esac
"""
    )
    log.parent.mkdir(parents=True)
    log.write_text("of the machine that the image was made of")
    machine.environment |= {"READY": "7", "RESTARTS": "3"}
    done = machine.boot("i-1", said)
    assert (done.returncode, done.stdout) == (1, "the bouncer has ended 3 times before it was ready\n"), done.stderr
    assert machine.last_words() == "error: model: no such weights\n"
    assert (machine.store / "shutdown").read_text() == "-h now\n"


@pytest.mark.slow
def test_a_model_may_load_until_the_deadline(tmp_path: Path) -> None:
    machine, said = baked(tmp_path)
    machine.environment |= {"READY": "7", "RESTARTS": "2"}
    begun_s = time.monotonic()
    done = machine.boot("i-1", said, boot_s="5")
    assert re.fullmatch(r"the bouncer is not ready [5-9] s after the boot began\n", done.stdout), done.stderr
    assert time.monotonic() - begun_s > 4
    assert (machine.store / "shutdown").exists()


def test_what_hangs_ends_a_boot_and_is_named(tmp_path: Path) -> None:
    machine, said = baked(tmp_path)
    said |= machine.sent("wheels", archive({"requirements.txt": b""}, tmp_path / "wheels.tar"), "v1")
    (tmp_path / "bin/python3.11").write_text("#!/bin/bash\nsleep 60\n")
    (tmp_path / "bin/python3.11").chmod(0o755)
    begun_s = time.monotonic()
    done = machine.boot("i-1", said, boot_s="2")
    assert done.returncode == 124
    assert "not done 2 s after the boot began: python3.11 -m venv" in done.stderr
    assert time.monotonic() - begun_s < 30
    assert (machine.store / "shutdown").exists()


def test_a_cut_character_or_no_log_still_ends_the_instance(tmp_path: Path) -> None:
    for content in ("\N{LATIN SMALL LETTER E WITH ACUTE}".encode() * 2500 + b"!", None):
        folder = tmp_path / str(content is None)
        machine = Machine(folder)
        if content is not None:
            (machine.root / "var/log/cloud-init-output.log").write_bytes(content)
        said = machine.sent("archive", archive(SERVICE_FILES, folder / "echo.tar.gz"), "v1")
        (machine.store / "artifacts-archive-echo@v1").write_bytes(b"another")
        assert machine.boot("i-1", said | machine.sent("wheels", folder / "echo.tar.gz", "v1")).returncode != 0
        assert (machine.store / "shutdown").read_text() == "-h now\n"
        assert machine.last_words().endswith("!" if content is not None else "no output")


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = BOUNCER.read_text(encoding="utf-8")
    units = dict(re.findall(r"cat >/etc/systemd/system/(mark-worker\S*) <<'UNIT'\n(.*?)^UNIT$", text, re.M | re.S))
    assert set(units) == {"mark-worker.slice", "mark-worker.socket", "mark-worker@.service"}
    assert "IPAddressDeny=169.254.169.254 fd00:ec2::254" in units["mark-worker.slice"]
    assert "Slice=mark-worker.slice" in units["mark-worker@.service"]
    python = tmp_path / "python"  # a link without a space in its path, wherever this checkout is
    python.symlink_to(sys.executable)
    for name, unit in units.items():
        (tmp_path / name).write_text(unit.replace("/opt/mark/venv/bin/python", str(python)))
    names = [str(tmp_path / name) for name in units]
    done = subprocess.run(["systemd-analyze", "verify", *names], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_with_another_hash_ends_a_boot(tmp_path: Path) -> None:
    """The instance ends, too, and says why in the service's log."""
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
    assert machine.last_words() == 'the last "line"'
