"""Every module passes its own tests (a mocked provider, no credentials), its format check, and a policy scanner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.terraform.conftest import MODULES, ROOT, Terraform

NAMES = sorted(path.name for path in (MODULES / "modules").iterdir())


def test_everything_is_formatted(terraform: Terraform) -> None:
    done = terraform.run(MODULES, "fmt", "-check", "-recursive", "-diff", "-no-color")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_module_keeps_its_promises(mocked: Terraform, name: str) -> None:
    folder = mocked.home / "modules" / name
    assert list((folder / "tests").glob("*.tftest.hcl"))
    done = mocked.run(folder, "test", "-no-color")  # without `init`, because the provider runs already
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_and_output_says_what_it_is() -> None:
    for file in [*MODULES.rglob("variables.tf"), *MODULES.rglob("outputs.tf")]:
        text = file.read_text(encoding="utf-8")
        for kind in ("variable", "output"):
            assert text.count(f'\n{kind} "') + text.startswith(f'{kind} "') <= text.count("description = "), file
        assert ".terraform" not in file.parts


def test_nothing_is_allowed_everything() -> None:
    for file in MODULES.rglob("*.tf"):
        text = file.read_text(encoding="utf-8")
        # Only a Deny of everything may have a star for a whole AWS service.
        for line in text.splitlines():
            if "Action" in line and ":*" in line:
                assert '"s3:*"' in line or '"sqs:*"' in line, f"{file}: {line}"
                assert text[: text.index(line)].rstrip().splitlines()[-2].split("=")[-1].strip() == '"Deny"', file


@pytest.mark.slow
def test_the_policy_scanner_finds_nothing() -> None:
    """checkov pins an old boto3, so it lives in a separate environment, .venv-checkov, or on the PATH."""
    beside = ROOT / ".venv-checkov" / "bin" / "checkov"
    program = str(beside) if beside.is_file() else shutil.which("checkov")
    if program is None:
        pytest.skip("checkov is not installed: make .venv-checkov/.done")
    done = subprocess.run(
        [program, "-d", str(MODULES), "--config-file", str(MODULES / ".checkov.yaml")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "Passed checks: 1" in done.stdout  # a hundred checks or more: it did scan


def test_scripts_are_bash(tmp_path: Path) -> None:
    """The boot scripts parse. Terraform replaces ${...} before a boot."""
    bash = shutil.which("bash")
    assert bash is not None
    for file in MODULES.rglob("*.sh.tftpl"):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("%{")]
        text = "\n".join(lines).replace("%{ if", "# %{ if")
        done = subprocess.run([bash, "-n"], input=_filled(text), capture_output=True, text=True)
        assert done.returncode == 0, f"{file}: {done.stderr}"


def _filled(text: str) -> str:
    import re

    return re.sub(r"\$\{[^}]*\}", "x", text)
