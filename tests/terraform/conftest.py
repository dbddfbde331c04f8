"""Terraform for the tests: the program, and its provider from a local mirror or from the registry."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from mark_infra.deploy.checkout import constraints
from mark_infra.deploy.own_wheel import wheel
from mark_infra.deploy.wheelhouse import PackagesWanted, wheelhouse
from mark_infra.testbed.launch import command

from mark.domain.errors import MarkError
from tests.terraform.mocked_site import MockedSite, Step

ROOT = Path(__file__).parents[2]
MODULES = ROOT / "terraform"


def mirror() -> Path | None:
    """Return a folder of providers: MARK_TF_PLUGIN_DIR, or the usual place of packages in an image."""
    if said := os.environ.get("MARK_TF_PLUGIN_DIR"):
        return Path(said)
    for found in sorted(Path("/opt").glob("*/*/hashicorp/aws")):
        return found.parents[2]
    return None


class Terraform:
    """Terraform in a copy of terraform/, so that nothing is written into the checkout."""

    def __init__(self, program: str, home: Path, more: Mapping[str, str] = MappingProxyType({})) -> None:
        self.program, self.home, self._more = program, home, more

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **self._more}

    def run(self, folder: Path, *arguments: str, timeout_s: float = 400.0) -> subprocess.CompletedProcess[str]:
        asked, env = [self.program, *arguments], self.environment
        return subprocess.run(asked, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s)

    def init(self, folder: Path) -> None:
        """Run `terraform init` once in a folder; skip the test if the provider cannot be had."""
        if (folder / ".terraform.lock.hcl").exists():  # written at the end of an `init`
            return
        done = self.run(folder, "init", "-input=false", "-no-color", "-backend=false")
        if done.returncode != 0:
            pytest.skip(f"the AWS provider cannot be had (MARK_TF_PLUGIN_DIR names a mirror): {done.stderr[-300:]}")


@pytest.fixture(scope="session")
def terraform(tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("terraform is not installed")
    home = tmp_path_factory.mktemp("terraform")
    ignored = shutil.ignore_patterns(".terraform*", "*.tfstate*")
    shutil.copytree(MODULES, home, dirs_exist_ok=True, ignore=ignored)
    return Terraform(program, home)


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    """Set Terraform's own variable for the folder of providers, so that any program that runs Terraform finds them."""
    with pytest.MonkeyPatch.context() as patch:
        if (found := mirror()) is not None:
            patch.setenv("TF_CLI_ARGS_init", f"-plugin-dir={found}")
        patch.delenv("TF_CLI_CONFIG_FILE", raising=False)
        # The AWS provider spends an eighth of its time on garbage collection, but lives for seconds only.
        patch.setenv("GOGC", os.environ.get("GOGC", "400"))
        patch.setenv("GOMEMLIMIT", os.environ.get("GOMEMLIMIT", "1GiB"))
        yield


@contextmanager
def running_provider(terraform: Terraform, root: Path | None = None) -> Iterator[str]:
    """Run the provider, and yield the value of TF_REATTACH_PROVIDERS by which Terraform finds it.

    The provider opens files from the root module's folder.

    Otherwise Terraform would check and start the provider for each command, and for each step of a test, which takes
    as long as the step. A running provider keeps its environment, so a test with an emulator needs its own.
    """
    folder = terraform.home / "examples" / "complete"
    terraform.init(folder)
    (program,) = folder.glob(".terraform/providers/*/hashicorp/aws/*/*/terraform-provider-aws*")
    start = command(str(program), "-debug")
    # It would format thousands of lines for each command.
    quiet = {**os.environ, "TF_LOG_SDK": "OFF", "TF_LOG_PROVIDER": "OFF"}
    quiet.pop("AWS_CA_BUNDLE", None)  # the provider accepts one in its first configuration only
    with subprocess.Popen(
        start, cwd=root, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = (re.search(r"TF_REATTACH_PROVIDERS='(.*)'", line) for line in process.stdout)
            yield next(found[1] for found in said if found)
            process.send_signal(signal.SIGINT)  # on SIGKILL, it would leave its socket behind
            process.wait(30)
        finally:
            process.kill()


@contextmanager
def shared(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """Yield a folder of all workers of the session to one of them at a time."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="module")
def mocked(terraform: Terraform, provider: None) -> Iterator[Terraform]:
    """Terraform for tests that mock the provider: a module's tests share a running one."""
    with running_provider(terraform) as address:
        yield Terraform(terraform.program, terraform.home, {"TF_REATTACH_PROVIDERS": address})


@pytest.fixture(scope="module")
def applied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the state of a site with the services `mocked_site.APPLIED`, which is applied once in a session."""
    with shared(tmp_path_factory, "applied-site") as folder:
        file = folder / "state.json"
        if not file.exists():
            site = MockedSite(request.getfixturevalue("mocked"), folder)
            (state,) = site.run(Step(site.applied(), default="echo"))
            file.write_text(json.dumps(state))
        return json.loads(file.read_text())


@pytest.fixture(scope="session")
def own_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout, which every instance installs."""
    return wheel(tmp_path_factory.mktemp("wheel"))


Packed = Callable[[PackagesWanted, Path], Path]


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory, own_wheel: Path) -> Packed:
    """Return a function that resolves packages from the index as `mark deploy` does, and packs their wheels.

    All workers of a session share the wheels, because resolving takes many seconds. Services with the same requirements
    share them, too.
    """

    def pack(wanted: PackagesWanted, to: Path) -> Path:
        if shutil.which("python3.11") is None:
            pytest.skip("instances have Python 3.11")
        with shared(tmp_path_factory, "wheels-of-instances") as folder:
            try:
                made = wheelhouse(wanted, own_wheel, constraints(), folder / "wheels")
            except MarkError as error:
                pytest.skip(f"no index of packages can be reached: {error}")
            return Path(shutil.move(made.file, to))

    return pack
