"""Load a model or driver once in a separate process, like a worker, and note which files of its folder it opens.

    python -m mark.models.trial REFERENCE SEARCH REPORT

The kernel reports the opened files (inotify), because C and Rust libraries open weights without Python's knowledge.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mark.domain.errors import BadInput, MarkError
from mark.domain.extras import check_installed
from mark.models.driver import load_driver
from mark.models.loading import home, in_one_line, load

if TYPE_CHECKING:
    from _typeshed.importlib import PathEntryFinderProtocol

_OPENED, _LOST = 0x20, 0x4000  # IN_OPEN, IN_Q_OVERFLOW
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
DRIVER = "driver:"  # before the reference to a driver, which is only imported
_SAY_FILES = "say by `files` which ones it needs"


def try_model(reference: str, search: Path) -> None:
    """Load the model and let it predict its warm-up. Raises BadInput if it fails."""
    _run(reference, search, None)


def opened_files(reference: str, search: Path, files: Iterable[Path]) -> set[Path]:
    """Return the `files` below `search` that are opened while the model loads and predicts its warm-up.

    It runs in a folder of its own with links to these files, so that files that another program opens do not count.
    Raises BadInput.
    """
    here = tempfile.gettempdir()
    beside = here if os.stat(here).st_dev == search.stat().st_dev else search  # links need the same file system
    with tempfile.TemporaryDirectory(prefix=".mark-trial-", dir=beside) as folder:
        alone = Path(folder).resolve()
        links = {alone / path.relative_to(search): path for path in files}
        for link, path in links.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path.resolve(), link)
            except OSError:  # another user's file, or a file system without links
                shutil.copyfile(path, link)
        with _Watch(reference, {link.parent for link in links}) as watch:
            _run(reference, alone, watch)
            return {path for link, path in links.items() if link in watch.opened}


class _Watch:
    """Watches which files of some folders any process opens by their names there."""

    def __init__(self, reference: str, folders: Iterable[Path]) -> None:
        self.opened: set[Path] = set()
        self._reference = reference
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise self._impossible()
        self._places: dict[int, Path] = {}
        try:
            for place in folders:
                self._add(place)
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def read(self) -> None:
        """Read the events since the last call. Raises BadInput if some were lost."""
        with suppress(BlockingIOError):
            while events := os.read(self.fd, 1 << 16):
                at = 0
                while at < len(events):
                    watch, mask, _, length = _EVENT.unpack_from(events, at)
                    if mask & _LOST:
                        raise BadInput(f"opens more files than can be followed: {_SAY_FILES}", self._reference)
                    name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                    if name and watch in self._places:
                        self.opened.add(self._places[watch] / os.fsdecode(name))
                    at += _EVENT.size + length

    def _add(self, place: Path) -> None:
        watch = self._libc.inotify_add_watch(self.fd, os.fsencode(place), _OPENED)
        if watch < 0:
            raise self._impossible()
        self._places[watch] = place

    def _impossible(self) -> BadInput:
        why = os.strerror(ctypes.get_errno())
        return BadInput(f"the files that it opens cannot be followed ({why}): {_SAY_FILES}", self._reference)


def _run(reference: str, search: Path, watch: _Watch | None) -> None:
    check_installed("orjson", "the trial of a model")
    with tempfile.TemporaryDirectory(prefix="mark-trial-") as folder:
        report = Path(folder, "report")
        report.touch()
        command = [sys.executable, "-P", "-m", "mark.models.trial", reference, str(search.resolve()), str(report)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, process_group=0) as child:
            try:
                ended, polled = os.pidfd_open(child.pid), select.poll()
                try:
                    polled.register(ended, select.POLLIN)
                    if watch is not None:
                        polled.register(watch.fd, select.POLLIN)
                    over = False
                    while not over:
                        over = ended in {fd for fd, _ in polled.poll()}
                        if watch is not None:
                            watch.read()
                finally:
                    os.close(ended)
            finally:
                with suppress(ProcessLookupError):  # including its child processes
                    os.killpg(child.pid, signal.SIGKILL)
        if child.returncode != 0:
            code = child.returncode
            how = f"{signal.strsignal(-code)} (signal {-code})" if code < 0 else f"exit code {code}"
            why = report.read_text(errors="replace") or f"its process ended with {how}"
            raise BadInput(f"does not load: {why}", reference)


class _FromSource(SourceFileLoader):
    """Compiles a module from its source, because Python does not open a source file that has current bytecode."""

    def path_stats(self, path: str | bytes) -> NoReturn:
        raise OSError("importlib ignores the bytecode of a source file that has no time stamp")


def _open_sources(search: Path, bytecode: Path) -> None:
    """Open the source of each imported module below `search`; libraries keep their bytecode.

    Python processes that the model starts compile all their modules again, into the folder `bytecode`.
    """
    os.environ["PYTHONPYCACHEPREFIX"] = str(bytecode)
    installed = Path(sys.prefix)
    finder = FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_FromSource, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )

    def below(path: str) -> PathEntryFinderProtocol:
        place = Path(path).absolute()
        # a virtual environment inside the project
        if installed.is_relative_to(search) and place.is_relative_to(installed):
            raise ImportError
        if not place.is_relative_to(search) and not place.resolve().is_relative_to(search):
            raise ImportError
        return finder(path)

    sys.path_hooks.insert(0, below)
    sys.path_importer_cache.clear()


def main() -> None:
    reference, search, report = sys.argv[1:]
    code = 0
    _open_sources(Path(search), Path(report).parent)
    try:
        os.chdir(home(reference, Path(search)))
        if reference.startswith(DRIVER):
            load_driver(reference.removeprefix(DRIVER), Path(search))
        else:
            from mark.models.answering import warm_up  # imported here because only a trial of a model needs orjson

            warm_up(load(reference, Path(search)))
    except (Exception, SystemExit) as error:
        if not isinstance(error, MarkError):  # a MarkError's text is complete in one line
            traceback.print_exc()
        told = str(error) if isinstance(error, MarkError) else in_one_line(error)
        Path(report).write_text(told, errors="replace")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the model's threads must not keep the process alive


if __name__ == "__main__":
    main()
