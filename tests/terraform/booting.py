"""A stand-in for an instance that runs its user data, for tests of boots and benchmarks/data_plane/boot.py."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from cryptography import x509
from mark_infra.deploy.checkout import terraform_modules

KEY = "0123456789abcdef0123"
_MODULES = terraform_modules() / "modules"
BOUNCER = _MODULES / "fleet" / "bouncer.sh.tftpl"
CONTROLLER = _MODULES / "controller" / "controller.sh.tftpl"
CONDUCTOR = _MODULES / "conductors" / "conductor.sh.tftpl"
METADATA = """
for address; do :; done
case "$address" in
  */api/token) echo token ;;
  */instance-type) echo "${TYPE:-c5.large}" ;;
  */instance-id) cat "$STORE/instance-id" ;;
  */mark:service) cat "$STORE/service" 2>/dev/null || exit 22 ;;
"""
# Programs that an instance has and this machine lacks. $STORE is a folder.
AWS_PROGRAMS = {
    "aws": """
case "$1" in
  ssm) touch "$STORE/gave-keys"; cat "$STORE/keys" ;;
  logs) printf '%s\\n' "$@" >>"$STORE/logs" ;;
  s3api)
    while [ $# -gt 1 ]; do
      case "$1" in --key) key=$2 ;; --version-id) version=$2 ;; esac
      shift
    done
    echo "$key" >>"$STORE/fetched"
    cp "$STORE/${key//\\//-}@$version" "$1" ;;
esac
""",
    "systemd-run": 'echo "$*" >>"$STORE/as-worker"; case "$*" in *" curl "*) exit "${REACHED:-7}" ;; esac',
    "shutdown": 'echo "$*" >>"$STORE/shutdown"',
    "dnf": 'sleep "${DNF_S:-0}"; exit 1',  # fails: no package index can be reached, so the log agent must be optional
}
# Programs for things that a folder of this machine lacks, too: other users, a service manager.
PROGRAMS = AWS_PROGRAMS | {
    "curl": METADATA + '  */v2/health/ready) exit "${READY:-0}" ;;\n  *) exit 22 ;;\nesac',
    "getent": 'test -f "$STORE/user-$2"',
    "useradd": 'for name; do :; done; if [ -f "$STORE/user-$name" ]; then exit 9; fi; touch "$STORE/user-$name"',
    "chgrp": "true",
    "systemctl": 'echo "$*" >>"$STORE/systemctl"; case "$1" in show) echo "${RESTARTS:-0}" ;; esac',
    "install": """
arguments=()
while [ $# -gt 0 ]; do
  case "$1" in -o | -g) shift ;; *) arguments+=("$1") ;; esac
  shift
done
exec /usr/bin/install "${arguments[@]}"
""",
}
# Template values of a bouncer of the service `echo`, apart from its artifacts.
BOUNCER_VALUES = {
    "region": "eu-west-1",
    "service": "echo",
    "keys": "/mark/keys",
    "port": "8080",
    "boot_s": "540",
    "linger_s": "0",
    "drain_s": "5",
    "linger_s + drain_s + 10": "15",
    "log_group": "/mark/mark/echo",
    "function": "--function mark_echo-overflow:3",
    "stage": "",
    "grpc_port": "",
    "inner_key": "",
    "store": "",
    "scheme": "https",
}
_HOLDS = ('function != ""', 'scheme == "https"')


def rendered(template: Path, values: Mapping[str, str], true: Collection[str] = ()) -> str:
    """Render a template as Terraform does: `values` by expression, and the conditions in it that are true."""
    text = template.read_text(encoding="utf-8")
    text = re.sub(
        r"%\{ if ([^}]*) \}(.*?)%\{ endif \}", lambda found: found[2] * (found[1] in true), text, flags=re.DOTALL
    )
    return re.sub(r"(?<!\$)\$\{([^}]*)\}", lambda found: values[found[1]], text).replace("$${", "${")


def artifact(store: Path, name: str, key: str, file: Path, version: str) -> dict[str, str]:
    """Put an object into the bucket's folder and return the values that the script gets for it."""
    shutil.copy(file, store / f"{key.replace('/', '-')}@{version}")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    said = {"bucket": "b", "key": key, "version": version, "sha256": sha256}
    return {f"artifacts.{name}.{part}": value for part, value in said.items()}


def write_programs(programs: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)


class Machine:
    """A machine: its disk lies below `root`, the artifacts bucket in `store`. pip and the environment are real."""

    def __init__(self, folder: Path) -> None:
        self.root, self.store = folder / "root", folder / "store"
        for made in ("etc/systemd/system", "etc/logrotate.d", "var/tmp", "var/log"):
            (self.root / made).mkdir(parents=True)
        self.store.mkdir()
        (self.store / "keys").write_text(f"operator:{KEY}:admin\n")
        write_programs(PROGRAMS, folder / "bin")
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        others = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        # Compile no bytecode, because compiling numpy and the like takes longer than a boot and no test imports them.
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_COMPILE": "0"}
        self.environment = others | pip | {"PATH": path, "STORE": str(self.store)}

    def sent(self, kind: str, file: Path, version: str) -> dict[str, str]:
        """Send an artifact of `echo` to the bucket and return the values that the script gets for it."""
        return artifact(self.store, kind, f"artifacts/{kind}/echo", file, version)

    def boot(
        self, instance_id: str, artifacts: Mapping[str, str], true: Collection[str] = _HOLDS, **values: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the user data of a bouncer."""
        (self.store / "instance-id").write_text(instance_id)
        return self.run(rendered(BOUNCER, {**BOUNCER_VALUES, **artifacts, **values}, true))

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        script = re.sub(r"(?<![\w.$])/(opt|etc|var|run/mark)/", rf"{self.root}/\1/", script)
        return subprocess.run(["bash"], input=script, env=self.environment, capture_output=True, text=True)

    def unit(self) -> dict[str, str]:
        text = (self.root / "etc/systemd/system/mark.service").read_text().replace("\\\n", "")
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    def certified(self) -> x509.Certificate:
        """Run the command that systemd runs before the bouncer, in a folder that systemd makes in memory."""
        unit = self.unit()
        folder = self.root / "run" / unit["RuntimeDirectory"]
        folder.mkdir(int(unit["RuntimeDirectoryMode"], 8), parents=True)
        done = subprocess.run(shlex.split(unit["ExecStartPre"]), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())

    def fetched(self) -> list[str]:
        """Return the keys of objects fetched since the last call."""
        found = (self.store / "fetched").read_text().split()
        (self.store / "fetched").unlink()
        return found

    def last_words(self) -> str:
        """Return the log lines of a boot that failed."""
        return str(json.loads((self.store / "logs").read_text().splitlines()[-1])[0]["message"])
