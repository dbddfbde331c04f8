"""The local Lambda in its own process, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mark_infra.testbed.local_functions import Config, FunctionConfig

from tests.infra.testbed.real_processes import PATIENCE_S, get


@dataclass(frozen=True)
class LocalLambda:
    """A running local Lambda."""

    url: str
    process: subprocess.Popen[str]
    folder: Path

    def status(self, function: str) -> dict[str, Any]:
        told: dict[str, Any] = get(f"{self.url}/status")[1][function]
        return told

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("*.log")))


@contextmanager
def local_lambda(folder: Path, functions: Sequence[FunctionConfig], **config: Any) -> Iterator[LocalLambda]:
    """Run it for the block and end it by SIGTERM. AWS's part of a cold start takes no time unless `config` says so."""
    logs = folder / "logs"
    made = Config(functions, str(logs), **{"sandbox_mean_s": 0.0, "sandbox_p95_s": 0.0} | config)
    file = folder / "functions.json"
    file.write_text(json.dumps(asdict(made)))
    command = [sys.executable, "-m", "mark_infra.testbed.local_functions", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield LocalLambda(f"http://127.0.0.1:{int(process.stdout.readline())}", process, logs)
            process.terminate()
            assert process.wait(PATIENCE_S) in (0, -signal.SIGKILL)  # only a test kills it
        finally:
            process.kill()
