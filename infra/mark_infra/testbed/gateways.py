"""Real gateways for target groups: a `mark gateway` process each, on a loopback port that stays the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.domain.errors import MarkError
from mark.serving.gateway.admin import GatewayAdmin
from mark_infra.testbed.environment import of_aws
from mark_infra.testbed.launch import command

_START_S, _END_S, _LOOK_S = 30.0, 35.0, 0.05


class GatewayProcess:
    """One `mark gateway` process. Raises MarkError if it does not start."""

    def __init__(self, port: int, log: Path, options: Sequence[str], environment: Mapping[str, str]) -> None:
        ready = log.with_suffix(".ready")
        ready.unlink(missing_ok=True)
        arguments = ["gateway", "--host", "127.0.0.1", "--port", str(port), "--ready-file", str(ready), *options]
        began = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command(sys.executable, "-m", "mark.cli.main", *arguments),
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(environment),
            )  # fmt: skip
        self.url = self._await(ready, log, began)
        self._admin = GatewayAdmin(self.url)

    def put(self, weights: Mapping[str, float], groups: Mapping[str, str]) -> None:
        self._admin.put(weights, groups)

    def state(self) -> Mapping[str, Any]:
        return self._admin.state()

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._admin.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await(self, ready: Path, log: Path, began: int) -> str:
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if ready.exists():
                url: str = json.loads(ready.read_text())["url"]
                return url
            if self._process.poll() is not None:
                said = log.read_bytes()[began:].decode("utf-8", "replace")
                raise MarkError(f"mark gateway ended with {self._process.returncode}: {said.strip()[-300:]}")
            time.sleep(_LOOK_S)
        self._process.kill()
        self._process.wait()
        raise MarkError(f"mark gateway was not ready within {_START_S:g} s")


class ProcessGateways:
    """The port `Gateways`. Logs go to `folder`; a group keeps its port.

    `options` are for every `mark gateway`, `of` has further ones by the target group's name; `variables` extend the
    environment of each.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: Sequence[str] = (),
        of: Mapping[str, Sequence[str]] | None = None,
        variables: Mapping[str, str] | None = None,
        region: str = "us-east-1",
    ) -> None:
        self._folder, self._options, self._of = folder, options, dict(of or {})
        self._environment = of_aws(os.environ, region) | dict(variables or {})
        self._ports: dict[str, int] = {}

    def start(self, target_group: str) -> GatewayProcess:
        """Start a group's gateway. The group's name is a part of its ARN: .../targetgroup/NAME/ID."""
        name = target_group.split("/")[-2]
        log = self._folder / f"gateway-{name}.log"
        options = [*self._options, *self._of.get(name, ())]
        gateway = GatewayProcess(self._ports.get(target_group, 0), log, options, self._environment)
        self._ports[target_group] = int(gateway.url.rpartition(":")[2])
        return gateway
