"""Run pip, which fetches packages for other machines than this one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name

from mark.domain.errors import MarkError

# Amazon Linux 2023, on instances and Lambda, has glibc 2.34, which also runs wheels for older versions.
_GLIBC = range(34, 16, -1)
_OLD_NAMES = {"x86_64": ("manylinux2014", "manylinux2010", "manylinux1"), "aarch64": ("manylinux2014",)}


def run_pip(*arguments: str, cwd: Path | None = None) -> str:
    """Run pip and return its output. Raises MarkError with the most informative of its errors."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if process.returncode != 0:
        said = re.findall(r"^ERROR: (?!ResolutionImpossible)(.*)$", process.stderr, re.MULTILINE)
        said = said or process.stderr.splitlines() or ["failed"]
        raise MarkError(f"pip {arguments[0]}: {said[-1][:400]}")
    return process.stdout


def for_linux(python: str, machine: str) -> list[str]:
    """Return options that make pip choose wheels for Amazon Linux 2023, on any machine."""
    platforms = [f"--platform={platform}" for platform in _platforms(machine)]
    return ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms]


def linux_tags(python: str, machine: str) -> set[Tag]:
    """Return the tags of wheels that can be installed there; a wheel compiled here may have the tag `linux` only."""
    version = tuple(int(part) for part in python.split("."))
    platforms = [*_platforms(machine), f"linux_{machine}"]
    interpreter = f"cp{python.replace('.', '')}"
    return {*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)}


def linux_markers(python: str, machine: str) -> dict[str, str]:
    """Return the values of a requirement's markers there."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


def pins_beside(pins: str, requirements: str) -> str:
    """Return our pins without the pins that a requirements file excludes.

    A model that was made with one release of a library must be served with that release.
    """
    asked: dict[str, SpecifierSet] = {}
    for need in _requirements(requirements):
        asked[need.name] = asked.get(need.name, SpecifierSet()) & need.specifier
    kept = [
        pin
        for pin in _requirements(pins)
        if all(asked.get(pin.name, SpecifierSet()).contains(one.version) for one in pin.specifier)
    ]
    return "".join(f"{pin}\n" for pin in kept)


def without_hashes(requirements: str) -> tuple[str, set[str]]:
    """Return the text of a requirements file without its hashes (SHA-256), and the hashes.

    With one hash, pip demands a hash for everything, including packages that the file does not name.
    """
    text = re.sub(r"[ \t]*(\\\r?\n)?[ \t]*--hash=\S+", "", requirements)
    return text, set(re.findall(r"--hash=sha256:([0-9a-f]{64})", requirements))


def named_in(requirements: str) -> set[str]:
    """Return the packages that a requirements file names."""
    return {need.name for need in _requirements(requirements)}


def _requirements(text: str) -> Iterator[Requirement]:
    """Yield the requirements of named packages, by canonical name; options and addresses are left to pip."""
    for line in text.splitlines():
        with suppress(InvalidRequirement):
            found = Requirement(re.sub(r"(^|\s)(#|--).*$", "", line).strip())
            found.name = canonicalize_name(found.name)
            yield found


def _platforms(machine: str) -> list[str]:
    return [f"{name}_{machine}" for name in (*(f"manylinux_2_{minor}" for minor in _GLIBC), *_OLD_NAMES[machine])]
