"""The controller's user data, run: packages without an index; a step that fails says why and ends the instance."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from mark_infra.deploy.artifacts import archive
from mark_infra.deploy.wheelhouse import PackagesWanted

from tests.terraform.booting import CONTROLLER, Machine, artifact, rendered, write_programs
from tests.terraform.conftest import MODULES, Packed

# An environment whose pip notes what it is told.
NO_PACKAGES = """mkdir -p "$3/bin"
printf '#!/bin/bash\\necho "$*" >"${0%%/*}/told"\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""
VALUES = {"region": "eu-west-1", "bucket": "b", "keys": "/mark/keys", "log_group": "/mark/mark/controller"}


class Boots:
    """A machine, and a bucket with one service, `echo`."""

    def __init__(self, folder: Path, wheels: Path | None = None) -> None:
        self.machine, self.values = Machine(folder), dict(VALUES)
        store = self.machine.store
        (self.machine.root / "var/log/cloud-init-output.log").write_text("no such key")
        service = archive({"service.toml": b"[service]\n"}, folder / "echo.tar.gz")
        said = artifact(store, "archive", "artifacts/archive/echo", service, "v1")
        (folder / "archives").write_text(f"echo artifacts/archive/echo v1 {said['artifacts.archive.sha256']}\n")
        (folder / "site.toml").write_text("[site]\n")
        for name, file in {".archives": "archives", '["site.toml"]': "site.toml", ".wheels": wheels or service}.items():
            made = artifact(store, "", f"artifacts/controller/{(folder / file).name}", folder / file, "v1")
            self.values |= {key.replace("artifacts.", f"artifacts{name}"): value for key, value in made.items()}

    def boot(self) -> subprocess.CompletedProcess[str]:
        return self.machine.run(rendered(CONTROLLER, self.values))


def test_a_failed_boot_says_why_and_ends_the_instance(tmp_path: Path) -> None:
    """Its group then tries again. An instance that only stopped booting would pass for healthy."""
    boots = Boots(tmp_path)
    (boots.machine.store / "artifacts-controller-site.toml@v1").write_text("broken off")
    assert boots.boot().returncode != 0
    assert boots.machine.fetched() == ["artifacts/controller/site.toml"] * 3, "what breaks off is tried again"
    assert (boots.machine.store / "shutdown").read_text() == "-h now\n"
    assert boots.machine.last_words() == "no such key"
    assert "/mark/mark/controller" in (boots.machine.store / "logs").read_text()


@pytest.mark.slow
def test_what_hangs_ends_the_instance(tmp_path: Path) -> None:
    boots = Boots(tmp_path)
    (tmp_path / "bin/aws").write_text('#!/bin/bash\n[ "$1" = logs ] || sleep 60\n')
    done = boots.machine.run(rendered(CONTROLLER, boots.values).replace("most_s=900", "most_s=2"))
    assert done.returncode != 0
    assert "not done 2 s after the boot began: aws s3api get-object" in done.stderr
    assert (boots.machine.store / "shutdown").exists()


def test_what_is_up_ends_the_instance_no_more() -> None:
    """The log agent may fail; the controller goes on."""
    script = CONTROLLER.read_text(encoding="utf-8")
    started, rest = script.split("systemctl enable --now mark.service\n")
    assert "trap failed EXIT" in started
    assert rest.startswith("trap - EXIT\n")
    template = (MODULES / "modules/controller/main.tf").read_text(encoding="utf-8")
    assert 'instance_initiated_shutdown_behavior = "terminate"' in template


def check_booted(boots: Boots) -> Path:
    """Check that the whole user data has run, and return the program that its unit starts."""
    done = boots.boot()
    assert done.returncode == 0, done.stderr
    unit = boots.machine.unit()
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    program, command, service, *_ = unit["ExecStart"].split()
    assert (command, service) == ("controller", "echo/service.toml")
    there = boots.machine.root / "opt/mark"
    assert sorted(path.name for path in there.iterdir()) == ["archives", "services", "venv"]
    assert (there / "services/echo/service.toml").is_file()
    return Path(program)


def test_the_controller_boots(tmp_path: Path) -> None:
    """All steps but the packages, which are taken as installed."""
    boots = Boots(tmp_path, archive({"requirements.txt": b""}, tmp_path / "wheels.tar"))
    write_programs({"python3.11": NO_PACKAGES}, tmp_path / "bin")
    program = check_booted(boots)
    told = (program.parent / "told").read_text()
    assert all(option in told for option in ("--no-index", "--require-hashes", "--no-deps", "/wheels/requirements.txt"))


@pytest.mark.acceptance
def test_the_controller_boots_without_an_index(tmp_path: Path, packed: Packed) -> None:
    """It has what it needs with the packages that mark deploy resolves, which takes a minute."""
    boots = Boots(tmp_path, packed(PackagesWanted("controller", {}, extras=("aws", "serve")), tmp_path))
    program = check_booted(boots)
    there = boots.machine.root / "opt/mark"
    alone = {name: value for name, value in boots.machine.environment.items() if name != "PYTHONPATH"}
    imports = (
        "import mark_infra.launch.launch_controller, mark_infra.aws.ec2_cloud, mark_predictors.auto, aioboto3, uvicorn"
    )
    python = f"{there}/venv/bin/python"
    for arguments in (
        [python, "-m", "pip", "check"],
        [str(program), "controller", "--help"],
        [python, "-P", "-c", imports],
    ):
        done = subprocess.run(arguments, capture_output=True, text=True, env=alone, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
