"""Wheels of a few bytes, and pip with a folder of them as its only index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from mark_infra.deploy.artifacts import zip_archive
from packaging.tags import parse_tag


def make_wheel(
    folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = (), tag: str = "py3-none-any"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    home = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    extras = "Provides-Extra: serve\n" if any("extra" in need for need in requires) else ""
    tags = "".join(f"Tag: {one}\n" for one in sorted(map(str, parse_tag(tag))))
    files: dict[str, Path | bytes] = {
        f"{module}/__init__.py": b"ANSWER = 42\n",
        f"{home}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extras}{needs}".encode(),
        f"{home}/WHEEL": f"Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\n{tags}".encode(),
        f"{home}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n".encode(),
        f"{home}/RECORD": b"",
    }
    return zip_archive(files, folder / f"{module}-{version}-{tag}.whl")


def only_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pip find only the wheels in the folder, whatever this machine's settings are."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
