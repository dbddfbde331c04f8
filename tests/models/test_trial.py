"""Loading a model once in a separate process: the files that it opens, and the errors that it reports."""

from __future__ import annotations

import compileall
import os
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.models.files import model_files
from mark.models.trial import opened_files, try_model

MODEL = """
import ctypes
import mark
from helper import name

class M(mark.Model):
    warmup = (1,)

    def load(self):
        self.kept = open(name).read()

    def predict(self, batch):
        libc = ctypes.CDLL(None)  # as a library in C opens its weights
        libc.close(libc.open(b"late/weights.bin", 0))
        return batch
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (
        ("m.py", MODEL),
        ("helper.py", "name = 'vocabulary.txt'"),
        ("vocabulary.txt", "x"),
        ("late/weights.bin", "x"),
        ("late/other.bin", "x"),
        ("unused.py", ""),
        ("traffic.csv", "x"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def opened(folder: Path, reference: str = "m:M") -> list[str]:
    files = model_files(reference, folder).files
    return sorted(path.relative_to(folder).as_posix() for path in opened_files(reference, folder, files.values()))


EXPECTED = ["helper.py", "late/weights.bin", "m.py", "vocabulary.txt"]


def test_trial_sees_what_python_and_c_open(folder: Path) -> None:
    """It gives their names in the folder, which is the current one."""
    assert opened(folder) == EXPECTED


def test_trial_sees_modules_that_python_has_compiled_before(folder: Path) -> None:
    assert compileall.compile_dir(folder, quiet=1)
    assert opened(folder) == EXPECTED


def test_trial_sees_modules_that_a_process_of_the_model_opens(folder: Path) -> None:
    assert compileall.compile_dir(folder, quiet=1)
    (folder / "start.py").write_text("import unused\n")
    started = "    import subprocess, sys; subprocess.run([sys.executable, 'start.py'], check=True)\n"
    (folder / "m.py").write_text(MODEL + started)
    assert opened(folder) == sorted([*EXPECTED, "start.py", "unused.py"])


def test_trial_does_not_compile_libraries_again(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the trial of a model that imports torch would compile torch for many seconds."""
    library = tmp_path_factory.mktemp("elsewhere") / "library.py"
    library.write_text("name = 'helper.py'")
    assert compileall.compile_file(library, quiet=1)
    compiled = library.stat()
    library.write_text("name = 'gone.text'")
    os.utime(library, ns=(compiled.st_atime_ns, compiled.st_mtime_ns))  # so that its bytecode counts as current
    monkeypatch.setenv("PYTHONPATH", str(library.parent), prepend=os.pathsep)
    (folder / "m.py").write_text("import library\nopen(library.name).close()\n" + MODEL)
    assert opened(folder) == EXPECTED


def test_trial_sees_a_link_as_a_file_of_its_own(folder: Path) -> None:
    (folder / "vocabulary.txt").rename(folder / "real.txt")
    (folder / "vocabulary.txt").symlink_to("real.txt")
    assert opened(folder) == EXPECTED


def test_trial_does_not_see_what_another_program_opens(folder: Path) -> None:
    other = f"    open({str(folder / 'traffic.csv')!r}).close()  # as a backup or an editor does\n"
    (folder / "m.py").write_text(MODEL + other)
    assert opened(folder) == EXPECTED


def test_trial_copies_files_that_cannot_be_linked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    assert opened(folder) == EXPECTED


def test_trial_sees_an_outside_file_behind_a_link(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "words"
    (folder / "vocabulary.txt").rename(elsewhere)
    (folder / "vocabulary.txt").symlink_to(elsewhere)
    assert opened(folder) == EXPECTED


def test_trial_ends_what_the_model_has_started(folder: Path) -> None:
    """Otherwise registering would wait for it, or leave it."""
    (folder / "m.py").write_text(MODEL + "    import subprocess; subprocess.Popen(['sleep', '1000'])\n")
    try_model("m:M", folder)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MODEL.replace("name)", "'gone.txt')"), "does not load: FileNotFoundError: .*'gone.txt'"),
        (MODEL.replace("return batch", "return 1"), "does not load: TypeError"),
        ("import os\nos._exit(3)", "does not load: its process ended with exit code 3"),
        ("import os\nos.kill(os.getpid(), 9)", r"does not load: its process ended with Killed \(signal 9\)"),
        ("import sys\nsys.exit('no')", "does not load: .*SystemExit: no"),
        ("N = 1", "does not load: m:M: m has no M"),
    ],
)
def test_trial_says_why_a_model_does_not_load(folder: Path, text: str, why: str) -> None:
    (folder / "m.py").write_text(text)
    with pytest.raises(BadInput, match=f"^m:M: {why}"):
        try_model("m:M", folder)
