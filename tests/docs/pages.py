"""The pages of the documentation, taken apart: blocks of commands, of Python, and files to write.

A page may have comments that readers do not see:

    <!-- given: NAME from PATH -->   from the next block on, the user has this file (".": the contents of a folder)
    <!-- not run: why -->            right before a block: it cannot run in a test

A line of a block that ends in `# exit N` must end with that code. A block whose first line is `# NAME.SUFFIX` is that
file. A server runs until its page ends, or until the next one takes its port.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]

_COMMAND = re.compile(
    r"(\.venv/bin/)?(mark (?=simulate|compare|bound|plan|forecast|trace|catalog|init|check|profile|serve|gateway|keys|"
    r"insure|advise|controller|testbed|deploy|reproduce|reconcile|models|pipeline|feedback|selection|personal|torture)|"
    r"pip |python |make |curl |aws |terraform |git |cd |docker |env )"
)
_SERVER = re.compile(r"(env .*)?mark (serve|gateway|controller) ")
_COMMENT = re.compile(r"<!-- (given|not run): (.+) -->")
_FILE = re.compile(r"# ([\w-]+\.(?:py|toml|csv|txt))")
_ADDRESS = re.compile(r"((?:localhost|127\.0\.0\.1):|--(?:controller-)?port )(\d{4,5})\b")
_PORT = re.compile(r"--port (\d{4,5})\b")
_EXIT = re.compile(r"#.*\bexit (\d+)")
_LIMIT_S = 120.0
# Commands of a single process; `testbed up` starts others, which may use all cores.
_WARM = (
    *("simulate", "compare", "bound", "plan", "forecast", "trace", "catalog", "init", "check", "pipeline", "models"),
    *("personal", "selection", "feedback", "testbed load", "testbed status", "testbed interrupt", "testbed down"),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page; `line` is the number of its first line."""

    line: int
    kind: Literal["shell", "python", "file"]
    text: str
    given: tuple[tuple[str, str], ...] = ()
    not_run: str | None = None


def blocks(page: Path) -> list[Block]:
    """Return the blocks that the page tells to run or write, in order.

    Raises ValueError for a comment without a block.
    """
    lines = page.read_text().splitlines()
    found: list[Block] = []
    given: list[tuple[str, str]] = []
    not_run: str | None = None
    at = 0
    while at < len(lines):
        began, line = at, lines[at]
        at += 1
        if comment := _COMMENT.fullmatch(line.strip()):
            if comment[1] == "given":
                name, _, source = comment[2].partition(" from ")
                given.append((name, source))
            else:
                not_run = comment[2]
            continue
        if line.lstrip().startswith("```"):
            language = line.strip().removeprefix("```")
            while not lines[at].lstrip().startswith("```"):
                at += 1
            kind = _kind(language, text := textwrap.dedent("\n".join(lines[began + 1 : at])))
            at += 1
        elif line.startswith("    ") and (began == 0 or not lines[began - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            kind = _kind(None, text := textwrap.dedent("\n".join(lines[began:at])).strip("\n"))
        elif line.strip():
            kind = None
        else:
            continue
        if kind is not None:
            found.append(Block(began + 1, kind, text, tuple(given), not_run))
            given, not_run = [], None
        elif not_run is not None:
            raise ValueError(f"{page.name}:{began + 1}: a comment before what is no block")
    return found


def _kind(language: str | None, text: str) -> Literal["shell", "python", "file"] | None:
    if language in ("sh", "console"):
        return "shell"
    if _FILE.fullmatch(text.split("\n", 1)[0]):
        return "file"
    if language == "python" or (language is None and text.startswith(("import ", "from "))):
        return "python"
    return "shell" if language is None and any(_COMMAND.match(line) for line in text.splitlines()) else None


@dataclass
class Reader:
    """A reader that follows a page step by step in `folder`; `warm` starts simulations (see warm.py)."""

    folder: Path
    warm: list[str]
    _ports: dict[str, int] = field(default_factory=dict)
    _servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def follow(self, page: Path) -> None:
        """Follow a page. Raises AssertionError if a step does not end as the page says."""
        for block in blocks(page):
            for name, source in block.given:
                self._give(name, source)
            if block.not_run is None:
                self._do(block, f"{page.name}:{block.line}")

    def _do(self, block: Block, where: str) -> None:
        if block.kind == "shell":
            for command in commands(block.text):
                self._run(command, where)
            return
        text = self._with_ports(block.text)
        name = "block.py" if block.kind == "python" else text.split("\n", 1)[0].removeprefix("# ")
        (self.folder / name).write_text(text + "\n")
        if name.endswith(".py"):
            self._run(f"python {name}", where)

    def _run(self, command: str, where: str) -> None:
        if _SERVER.match(command):
            self._serve(command, where)
            return
        ended = subprocess.run(
            ["bash", "-c", self._with_ports(command)],
            cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        expected = int(said[1]) if (said := _EXIT.search(command)) else 0
        assert ended.returncode == expected, f"{where}: {command}\n{ended.stdout}{ended.stderr}"

    def _serve(self, command: str, where: str) -> None:
        """Start a server on a port of the kernel's, which replaces the page's port from then on."""
        command, _, _ = command.partition("  #")
        found = _PORT.search(command)
        port = found[1] if found else "8080"
        self._end(port)
        reading, writing = os.pipe()
        command = f"{self._with_ports(_PORT.sub('', command))} --port 0 --ready-fd {writing}"
        if "mark serve" in command and "--workers" not in command:
            command += " --workers 1"  # each worker imports and trains its own model
        log = self.folder / ".tools" / f"{port}.log"
        environment = self._environment()
        with log.open("w") as errors:
            server = self._servers[port] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors, pass_fds=(writing,),
            )  # fmt: skip
        os.close(writing)
        late = threading.Timer(_LIMIT_S, server.kill)
        late.start()
        with open(reading) as ready:
            said = ready.read()  # waits until it is ready or has ended
        late.cancel()
        assert said, f"{where}: {command}\n{log.read_text()}"
        self._ports[port] = json.loads(said)["port"]

    def _end(self, port: str) -> None:
        if (server := self._servers.pop(port, None)) is not None:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
                raise

    def close(self) -> None:
        for port in list(self._servers):
            self._end(port)
        if (self.folder / ".mark-testbed" / "daemon.json").exists():
            self._run("mark testbed down", "at the end")

    def _give(self, name: str, source: str) -> None:
        path, target = ROOT / source, self.folder / name
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        elif path.suffix == ".gz" and target.suffix != ".gz":
            target.write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, target)

    def _with_ports(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: f"{found[1]}{self._port(found[2])}", text)

    def _port(self, written: str) -> int:
        """Return the port of its server, or else a free one, because two pages may run at a time."""
        if written not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[written] = free.getsockname()[1]
        return self._ports[written]

    def _environment(self) -> dict[str, str]:
        tools = self.folder / ".tools"
        if not tools.exists():
            tools.mkdir()
            warm = shlex.join(self.warm)
            for name, module, starts in (("mark", "-P -m mark.cli.main", _WARM), ("python", "", ("[!-]*.py",))):
                quick = "|".join(f"{start} *".replace(" ", "\\ ") for start in starts)
                cold = f'"{sys.executable}" {module} "$@"'
                (tools / name).write_text(
                    f'#!/bin/sh\ncase "$1 $2 " in\n{quick}) exec {warm} {name} "$@" ;;\n*) exec {cold} ;;\nesac\n'
                )
                (tools / name).chmod(0o755)
        return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "AWS_EC2_METADATA_DISABLED": "true"}


def commands(text: str) -> Iterator[str]:
    """Return the commands of a block: in a console block those after a prompt. Lines that end in a backslash go on."""
    prompted = any(line.startswith("$ ") for line in text.splitlines())
    begun = ""
    for line in text.splitlines():
        if begun or (line.startswith("$ ") if prompted else line.strip() and not line.lstrip().startswith("#")):
            begun += line.removeprefix("$ ").removeprefix(".venv/bin/")
            if begun.endswith("\\"):
                begun = begun[:-1]
            else:
                yield begun
                begun = ""
