"""User data of a conductor and of a stage's instance, run from the artifacts of `mark deploy` to a query's answer."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.packed_services import GRPC_PACKAGES
from mark_infra.deploy.wheelhouse import PackagesWanted

from tests.infra.testbed.real_processes import held_port, wait_for
from tests.serving.worker.listening import keepers
from tests.terraform.booting import CONDUCTOR, KEY, Machine, artifact, rendered
from tests.terraform.conftest import Packed
from tests.terraform.test_boot import is_ready

STAGE_KEY = "f" * 20
FILES: dict[str, Path | bytes] = {
    "service.toml": b"""
[service]
name = "two"
slo_ms = 2000
slo_attainment = 0.98
pipeline = "driver:run"
profile = "profile.csv"
[fleet]
instances = ["c5.large"]
[stage.first]
model = "stages:Twice"
slo_ms = 1000
[stage.second]
model = "stages:Twice"
slo_ms = 1000
""",
    "profile.csv": b"model,instance,batch,latency_ms\nstages:Twice,c5.large,1,20\n",
    "driver.py": b"import mark\n\n\n@mark.pipeline\nasync def run(query, models):\n"
    b"    return await models.second(await models.first(query))\n",
    "stages.py": b"import mark\n\n\nclass Twice(mark.Model):\n"
    b"    def predict(self, batch): return [2 * one for one in batch]\n",
}
VALUES = {
    "region": "eu-west-1",
    "pipeline": "two",
    "keys": "/mark/mark/keys/bouncers",
    "stages_keys": "/mark/mark/keys/conductors",
    "stages_at": "--stage-at first=http://internal:80 --stage-at second=http://internal:80",
    "store": "",
    "port": "8080",
    "linger_s": "0",
    "drain_s": "5",
    "linger_s + drain_s + 10": "15",
    "log_group": "/mark/mark/pipelines/two",
}


class Boots:
    """A machine for conductors, and a bucket with one pipeline, `two`."""

    def __init__(self, folder: Path, wheels: Path | None = None) -> None:
        self.machine = machine = Machine(folder)
        (machine.root / "var/log/cloud-init-output.log").write_text("no such key")
        made = archive(FILES, folder / "two.tar.gz")
        self.values = VALUES | artifact(machine.store, "archive", "artifacts/archive/two", made, "v1")
        self.values |= artifact(machine.store, "wheels", "artifacts/wheels/two", wheels or made, "v1")
        keys = f"conductor:{'o' * 20}:infer:4000000000\nconductor:{STAGE_KEY}:infer\n\n"
        (machine.store / "stage-keys").write_text(keys)
        given = 'ssm) case "$*" in */conductors\\ *) cat "$STORE/stage-keys"; exit ;; esac; '
        (folder / "bin/aws").write_text((folder / "bin/aws").read_text().replace("ssm) ", given))

    def boot(self, scheme: str = "https", **values: str) -> subprocess.CompletedProcess[str]:
        true = ('scheme == "https"',) if scheme == "https" else ()
        return self.machine.run(rendered(CONDUCTOR, {**self.values, "scheme": scheme, **values}, true))


def without_packages(folder: Path) -> Boots:
    """Take the packages that python3.11 should install as installed."""
    boots = Boots(folder, archive({"requirements.txt": b""}, folder / "wheels.tar"))
    pip = '#!/bin/bash\nmkdir -p "$3/bin"; printf "#!/bin/bash\\n" >"$3/bin/pip"; chmod +x "$3/bin/pip"\n'
    (folder / "bin/python3.11").write_text(pip)
    (folder / "bin/python3.11").chmod(0o755)
    live = (folder / "bin/curl").read_text().replace("*/v2/health/ready)", "*/v2/health/live)")
    (folder / "bin/curl").write_text(live)
    return boots


def test_a_conductor_knows_its_stages_and_their_newest_key(tmp_path: Path) -> None:
    boots = without_packages(tmp_path)
    done = boots.boot()
    assert done.returncode == 0, done.stderr
    command = boots.machine.unit()["ExecStart"]
    assert "mark serve service.toml --host 0.0.0.0 --port 8080" in command
    assert "--stage-at first=http://internal:80 --stage-at second=http://internal:80" in command
    assert "--stages-in-clear" in command
    assert f"--keys {boots.machine.root}/var/lib/mark/keys --keys-parameter /mark/mark/keys/bouncers" in command
    key = boots.machine.root / "var/lib/mark/stage-key"
    assert key.read_text() == f"{STAGE_KEY}\n"
    assert key.stat().st_mode & 0o007 == 0
    others = [path for path in boots.machine.root.rglob("*") if path.is_file() and path != key]
    assert not any(STAGE_KEY in path.read_text(errors="replace") for path in others)
    assert STAGE_KEY not in done.stdout + done.stderr
    assert boots.machine.certified().subject.rfc4514_string() == "CN=conductor"
    assert "restart mark.service" in (boots.machine.store / "systemctl").read_text()
    assert not (boots.machine.store / "shutdown").exists()


@pytest.mark.parametrize("fault", ["no key", "a driver that cannot be loaded", "another hash"])
def test_a_failed_boot_ends_the_conductor(tmp_path: Path, fault: str) -> None:
    """The log of the pipeline has the reason, because its Auto Scaling group tries again."""
    boots = without_packages(tmp_path)
    if fault == "no key":
        (boots.machine.store / "stage-keys").write_text("client:0123:infer\n")
    elif fault == "another hash":
        (boots.machine.store / "artifacts-archive-two@v1").write_bytes(b"another")
    else:
        boots.machine.environment |= {"READY": "22", "RESTARTS": "3"}
    assert boots.boot().returncode != 0
    assert (boots.machine.store / "shutdown").read_text() == "-h now\n"
    assert boots.machine.last_words().startswith("no such key")
    assert "/mark/mark/pipelines/two" in (boots.machine.store / "logs").read_text()


def test_a_stages_instance_serves_that_stage_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.root / "var/log/cloud-init-output.log").write_text("")
    none = hashlib.sha256(b"none").hexdigest()
    said = machine.sent("archive", archive(FILES, tmp_path / "two.tar.gz"), "v1")
    said |= {f"artifacts.wheels.{name}": none for name in ("key", "version", "sha256")}
    (machine.root / "opt/mark/venv").mkdir(parents=True)
    (machine.root / "opt/mark/venv/wheels").write_text(f"{none}\n")
    of_stage = {"stage": "second", "service": "two-second", "function": "--stage-function second=mark_two-second:1"}
    done = machine.boot("i-1", said, ('scheme == "https"', 'function != ""', 'stage != ""'), **of_stage)
    assert done.returncode == 0, done.stderr
    command = machine.unit()["ExecStart"]
    assert command.endswith(" --stage-function second=mark_two-second:1 --stage second")


@contextmanager
def serving(machine: Machine, **replaced: str) -> Iterator[None]:
    """Run the command of the unit, with parts of it replaced, until the block ends."""
    command = shlex.split(machine.unit()["ExecStart"])
    for option, value in {"host": "127.0.0.2", **replaced}.items():
        command[command.index(f"--{option.replace('_', '-')}") + 1] = value
    environment = machine.environment | {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"}
    with (machine.root / "said").open("w") as said:
        folder = machine.root / "opt/mark/service"
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=said)
    try:
        yield
        assert process.poll() is None, (machine.root / "said").read_text()
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.acceptance
def test_user_data_of_stages_and_conductor_answers_a_query(tmp_path: Path, packed: Packed) -> None:
    """The machines have only the packages that mark deploy resolves. The stages are asked with the conductors' key."""
    # With gRPC's packages, as `test_user_data_boots_a_bouncer_twice` wants them, so that they are resolved once.
    packages = packed(PackagesWanted("two", FILES, GRPC_PACKAGES, os.uname().machine), tmp_path)
    built = tmp_path / "built"
    (tmp_path / "conductor").mkdir()
    boots = Boots(tmp_path / "conductor", packages)
    live = (tmp_path / "conductor/bin/curl").read_text().replace("*/v2/health/ready)", "*/v2/health/live)")
    (tmp_path / "conductor/bin/curl").write_text(live)
    with ExitStack() as stack:
        ports = {stage: stack.enter_context(held_port()) for stage in ("first", "second")}
        at = " ".join(f"--stage-at {stage}=http://127.0.0.2:{port}" for stage, port in ports.items())
        done = boots.boot(stages_at=at)
        assert done.returncode == 0, done.stderr
        environment = boots.machine.root / "opt/mark/venv"
        for stage, port in ports.items():
            machine = Machine(tmp_path / stage)
            (machine.store / "keys").write_text(f"conductor:{STAGE_KEY}:infer\n")
            said = machine.sent("archive", archive(FILES, built / "two.tar.gz"), "v1")
            said |= machine.sent("wheels", packages, "v1")
            # It boots from an image that has the packages; `test_boot.py` installs them.
            (machine.root / "opt/mark").mkdir(parents=True)
            (machine.root / "opt/mark/venv").symlink_to(environment)
            (environment / "wheels").write_text(f"{said['artifacts.wheels.sha256']}\n")
            values = {"stage": stage, "service": f"two-{stage}", "scheme": "http"}
            done = machine.boot("i-1", said, ('stage != ""',), **values)
            assert done.returncode == 0, done.stderr
            socket = stack.enter_context(keepers(machine.root / "keepers"))
            stack.enter_context(serving(machine, port=str(port), worker_socket=str(socket)))
        boots.machine.certified()
        port = stack.enter_context(held_port())
        stack.enter_context(serving(boots.machine, port=str(port)))
        client = httpx.Client(base_url=f"https://127.0.0.2:{port}", verify=False, trust_env=False, timeout=30.0)
        stack.callback(client.close)
        wait_for(lambda: is_ready(client), "a conductor whose stages are ready")
        assert client.post("/invocations", json=3).status_code == 401, "it has keys"
        found = client.post("/invocations", json=3, headers={"Authorization": f"Bearer {KEY}"})
        assert (found.status_code, found.json()) == (200, 12), found.text
        assert re.fullmatch(r"first=\d+;second=\d+", found.headers["mark-stages"])
