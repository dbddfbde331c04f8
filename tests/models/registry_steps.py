"""A process that registers and promotes in a folder, and is killed before its Nth step on the file system.

    python -m tests.models.registry_steps FOLDER MODEL_FOLDER N

A step is a change of a folder or a file, as Python audits it. A process that is not killed prints the number of steps.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from mark.models.registry import Registry
from mark.models.registry_folder import FolderObjects

_CHANGES = ("os.mkdir", "os.link", "os.remove", "os.rename", "os.chmod")


def main(folder: Path, model: Path, most: int) -> None:
    registry = Registry(FolderObjects(folder), by="someone")
    done = 0

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if str(folder) not in repr(arguments) or not (writes or event in _CHANGES):
            return
        done += 1
        if done == most:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    files = {path.name: path for path in sorted(model.iterdir())}
    version = registry.register(
        "ranker", "ranker:Ranker", files, profile=("ranker:Ranker", b"rows"), metrics={"auc": 1}
    )
    registry.promote("ranker", version.short, "production")
    print(done)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
