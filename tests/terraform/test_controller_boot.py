"""The controller's user data, run: a step that fails says why and ends the instance."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.terraform.conftest import MODULES

PROGRAMS = {
    "aws": 'echo "$*" >>"$STORE/aws"; [ "$1" != s3api ]',  # the bucket cannot be read
    "useradd": "true",
    "install": "true",
    "shutdown": 'echo "$*" >>"$STORE/shutdown"',
}


def test_a_failed_boot_says_why_and_ends_the_instance(tmp_path: Path) -> None:
    """So that the group tries again: one that only stopped booting would be taken for healthy."""
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/cloud-init-output.log").write_text("no such key")
    script = (MODULES / "modules/controller/controller.sh.tftpl").read_text(encoding="utf-8")
    script = re.sub(r"%\{ if [^}]*\}|%\{ endif \}", "", script)
    script = re.sub(r"(?<!\$)\$\{log_group\}", "/mark/mark/controller", script)
    script = re.sub(r"(?<!\$)\$\{[^}]*\}", "x", script).replace("$${", "${")
    script = re.sub(r"(?<![\w.$])/(opt|etc|var)/", rf"{tmp_path}/\1/", script)
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "STORE": str(tmp_path)}
    done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert (tmp_path / "shutdown").read_text() == "-h now\n"
    *_, events = (tmp_path / "aws").read_text().splitlines()
    assert events.startswith(
        "logs put-log-events --region x --log-group-name /mark/mark/controller --log-stream-name boot/"
    )
    assert '"message": "no such key"' in events


def test_what_is_up_ends_the_instance_no_more() -> None:
    """The log agent may fail: the controller goes on."""
    script = (MODULES / "modules/controller/controller.sh.tftpl").read_text(encoding="utf-8")
    started, rest = script.split("systemctl enable --now mark.service\n")
    assert "trap failed EXIT" in started
    assert rest.startswith("trap - EXIT\n")
    template = (MODULES / "modules/controller/main.tf").read_text(encoding="utf-8")
    assert 'instance_initiated_shutdown_behavior = "terminate"' in template
