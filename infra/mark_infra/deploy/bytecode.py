"""Compile a function's modules once here and not in every new environment, because AWS bills that time.

The bytecode is marked as unchecked (PEP 552), so that it is valid whatever the source's date, and the same source gives
the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mark.domain.errors import MarkError

TASK_ROOT = "/var/task"  # where Lambda unpacks a function
# Compiles all modules in one process. A module for another Python gets no bytecode, and fails when it is imported.
_COMPILE = """
import json, py_compile, sys
for source, to, named in json.load(sys.stdin):
    try:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(source, to, named, doraise=True, invalidation_mode=mode)
    except (py_compile.PyCompileError, ValueError, RecursionError):
        pass
"""


def interpreter(version: str) -> str | None:
    """Return a CPython of this version (like 3.12): the running one, or `python3.12`, or None."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        return None
    # The program found may be a launcher without this Python version.
    command = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    process = subprocess.run(command, capture_output=True, text=True)
    return found if process.stdout.strip() == version else None


def bytecode(files: Mapping[str, Path | bytes], python: str, version: str, cache: Path) -> dict[str, Path]:
    """Return the compiled modules of `files`, by the names under which CPython of `version` looks for them.

    `python` is that CPython's program. Compiled modules are kept in `cache`. Raises MarkError if `python` fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    made: dict[str, Path] = {}
    todo: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory(dir=cache) as work:
        for name, content in files.items():
            if not name.endswith(".py"):
                continue
            source = content if isinstance(content, bytes) else content.read_bytes()
            # The key includes the name, which is part of the bytecode for tracebacks.
            key = hashlib.sha256(f"{version} {name} ".encode() + source).hexdigest()
            to = made[_cached(name, version)] = cache / f"{key}.pyc"
            if not to.is_file():
                if isinstance(content, bytes):
                    content = Path(work, f"{key}.py")
                    content.write_bytes(source)
                todo.append((str(content), str(to), f"{TASK_ROOT}/{name}"))
        if todo:
            command = [python, "-I", "-W", "ignore", "-c", _COMPILE]
            process = subprocess.run(command, input=json.dumps(todo), capture_output=True, text=True)
            if process.returncode != 0:
                raise MarkError(f"{python}: {(process.stderr.splitlines() or ['failed'])[-1][:400]}")
    return {name: path for name, path in made.items() if path.is_file()}


def _cached(name: str, version: str) -> str:
    folder, _, file = name.rpartition("/")
    tag = f"cpython-{version.replace('.', '')}"
    return f"{folder}{'/' if folder else ''}__pycache__/{file.removesuffix('.py')}.{tag}.pyc"
