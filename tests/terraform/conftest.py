"""Terraform for the tests: the program, and its provider from a local mirror or from the registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mark_infra.deploy.own_wheel import wheel

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

    def __init__(self, program: str, home: Path) -> None:
        self.program, self.home = program, home

    def run(self, folder: Path, *arguments: str, timeout_s: float = 400.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout_s)

    def init(self, folder: Path) -> None:
        """Run `terraform init`; skip the test if the provider cannot be had."""
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


@pytest.fixture(scope="session")
def own_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout, which every instance installs."""
    return wheel(tmp_path_factory.mktemp("wheel"))
