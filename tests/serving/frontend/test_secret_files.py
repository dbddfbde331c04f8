"""A file with keys is refused where others than its owner may change it, or read a key in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.launch.listening import key_from
from mark.serving.frontend.auth import TokenSigner, digest_of, read_keys
from mark.serving.frontend.secret_files import others_may
from mark.serving.frontend.tls import TlsFiles

KEY = "k" * 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that all users can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def written(folder: Path, text: str, mode: int) -> Path:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("mode", "may"),
    [(0o600, ""), (0o400, ""), (0o640, ""), (0o644, "read"), (0o604, "read"), (0o620, "change"), (0o666, "change")],
)
def test_keys_that_others_may_use_are_refused(folder: Path, mode: int, may: str) -> None:
    file = written(folder, f"{KEY}\n", mode)
    if not may:
        assert list(read_keys(file)) == [KEY]
        assert key_from(file) == KEY
        return
    said = rf"keys: others than its owner may {may} it \(mode {mode:04o}\): chmod 600 .*keys; in a container mount it"
    with pytest.raises(BadInput, match=said):
        read_keys(file)
    with pytest.raises(BadInput, match=said):
        key_from(file)
    with pytest.raises(BadInput, match=said):
        TokenSigner.from_file(file)


@pytest.mark.parametrize(("mode", "may"), [(0o644, ""), (0o664, "change"), (0o646, "change")])
def test_digests_may_be_read_by_all(folder: Path, mode: int, may: str) -> None:
    file = written(folder, f"client:{digest_of(KEY)}:infer\n", mode)
    if may:
        with pytest.raises(BadInput, match=f"may {may} it .* chmod 600"):
            read_keys(file)
    else:
        assert list(read_keys(file)) == [digest_of(KEY)]


def test_closed_folder_excuses_the_mode_of_its_files(folder: Path) -> None:
    file = written(folder, KEY, 0o666)
    folder.chmod(0o700)
    assert list(read_keys(file)) == [KEY]


def test_private_key_of_a_certificate_is_refused(folder: Path) -> None:
    file = written(folder, "no PEM", 0o644)
    with pytest.raises(BadInput, match="others than its owner may read it"):
        TlsFiles(file, file).context()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o777])
def test_read_only_mount_excuses_every_mode(mode: int) -> None:
    """Containers get their secrets so."""
    assert others_may(mode, secret=True, read_only=True) == ""
    assert bool(others_may(mode, secret=True, read_only=False)) is (mode != 0o600)
