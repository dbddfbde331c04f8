"""The packages of bouncers or of the controller, as wheels for their processor, so that instances need no index.

They are resolved at deployment, so that a missing package fails the deployment and not an instance. A bouncer needs a
fifth of the packages of planning: neither solvers nor a compiler.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from mark.domain.errors import BadInput, MarkError
from mark.models.registry import hash_of
from mark_infra.deploy.artifacts import archive, bytes_of
from mark_infra.deploy.pip_program import (
    for_linux,
    linux_markers,
    linux_tags,
    named_in,
    pins_beside,
    run_pip,
    without_hashes,
)

PYTHON = "3.11"  # user data in terraform/modules
# Everything that `mark serve` imports, as Terraform's unit starts it; a test runs it with nothing else.
BOUNCER = ("aioboto3", "httptools", "numpy", "orjson", "prometheus-client", "uvloop")
HEADS = "scipy"  # also imported by servers of [personal]
LOCK = "requirements.txt"  # in the archive, beside the wheels


@dataclass(frozen=True, slots=True)
class PackagesWanted:
    """The packages to collect for a service's bouncers or the controller, besides mark's own needs."""

    service: str
    files: Mapping[str, Path | bytes]  # the service's: requirements.txt, and files that it may name
    kinds: Sequence[str] = ()  # libraries of models that are files: torch, scikit-learn, onnxruntime
    machine: str = "x86_64"  # or aarch64
    gpus: bool = False
    cpu_index: str | None = None  # index of wheels without GPU code
    extras: Sequence[str] | None = None  # of mark, with all its needs; None: a bouncer, which needs BOUNCER

    @property
    def where(self) -> str:
        return f"{self.service} requirements.txt" if self.extras is None else f"packages of the {self.service}"


@dataclass(frozen=True, slots=True)
class Wheelhouse:
    """A .tar of wheels, with a requirements file that names each by version and SHA-256."""

    file: Path
    packed_bytes: int
    unpacked_bytes: int
    modules: frozenset[str] = frozenset()  # importable names


def wheelhouse(wanted: PackagesWanted, own: Path, pins: Path, to: Path) -> Wheelhouse:
    """Return the wheels of `wanted`, with `own`, mark's wheel.

    The folder `to` keeps them; `pins` is a constraints file. Raises BadInput for packages that do not suit the
    instances, MarkError for packages that cannot be fetched.
    """
    tags = linux_tags(PYTHON, wanted.machine)
    if not parse_wheel_filename(own.name)[3] & tags:
        raise MarkError(f"{own.name} was compiled for another machine than CPython {PYTHON} on {wanted.machine}")
    kept = to / _name(wanted, own, pins)
    if not kept.is_dir():
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to) as work:
            there = _fetch(wanted, own, pins, Path(work))
            try:
                there.rename(kept)
            except OSError:
                if not kept.is_dir():  # otherwise another process was quicker
                    raise
    wheels = sorted([*kept.glob("*.whl"), own])
    files: dict[str, Path | bytes] = {path.name: path for path in wheels}
    files[LOCK] = "".join(map(_locked, wheels)).encode()
    made = archive(files, to.parent / f"{wanted.service}-wheels.tar")
    inside = [info for path in wheels for info in zipfile.ZipFile(path).infolist()]
    modules = {
        re.sub(r"^[^/]+\.data/(pure|plat)lib/", "", info.filename).split("/")[0].split(".")[0] for info in inside
    }
    return Wheelhouse(made, made.stat().st_size, sum(info.file_size for info in inside), frozenset(modules))


def _fetch(wanted: PackagesWanted, own: Path, pins: Path, work: Path) -> Path:
    """Return a folder with the wheels: with our pins or, if the model's needs exclude them, within our ranges."""
    text, hashes = without_hashes(_text(wanted))
    # As a file in the service's folder, so that the other files and wheels that it names are found.
    for name, content in wanted.files.items():
        if name.endswith((".txt", ".whl")):
            file = work / "service" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content) if isinstance(content, bytes) else shutil.copy(content, file)
    (work / "service").mkdir(exist_ok=True)
    (work / "service" / "requirements.txt").write_text(text, encoding="utf-8")
    asked = [*_ranges(own, wanted.extras), *wanted.kinds]
    options = [f"--extra-index-url={wanted.cpu_index}"] if wanted.cpu_index else []
    options += ["-r", "requirements.txt"]
    loose = work / "constraints.txt"
    loose.write_text(pins_beside(pins.read_text(encoding="utf-8"), text), encoding="utf-8")
    try:
        try:
            found = _resolved(asked, [*options, "-c", str(loose)], wanted, work)
        except MarkError:
            found = _resolved(asked, options, wanted, work)
        _check({name: one.version for name, one in found.items()}, wanted)
        others = sorted(one.file_name for one in found.values() if not one.file_name.endswith(".whl"))
        if others:
            raise BadInput("is no wheel: build one, and name it instead", wanted.where, ", ".join(others))
        # By address, because pip would read the whole index a second time to find the same files. The requirements file
        # is still read: it may name indexes with credentials, which the addresses lack.
        download = ("download", "--no-deps", "--dest", str(work / "wheels"), *for_linux(PYTHON, wanted.machine))
        run_pip(*download, *options, *(one.address for one in found.values() if not one.named), cwd=work / "service")
    except BadInput:
        raise
    except MarkError as error:
        what = f"cannot be had as wheels for CPython {PYTHON} on Linux, {wanted.machine}: {error}"
        raise MarkError(f"{wanted.where}: {what}") from None
    for path in (work / "wheels").iterdir():
        if hashes and parse_wheel_filename(path.name)[0] in named_in(text) and hash_of(path) not in hashes:
            raise BadInput("says another hash than its index has", wanted.where, path.name)
    return work / "wheels"


@dataclass(frozen=True, slots=True)
class _Found:
    """A package that pip would install."""

    version: str
    address: str  # of its file, with the file's hash
    named: bool  # by its file or address, in the requirements

    @property
    def file_name(self) -> str:
        return unquote(urlsplit(self.address).path.rpartition("/")[2])

    @classmethod
    def of_report(cls, one: Mapping[str, Any]) -> _Found:
        """Return an entry of pip's report."""
        info = one["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256")
        address = f"{info['url']}#sha256={sha256}" if sha256 else info["url"]
        return cls(str(one["metadata"]["version"]), address, one["is_direct"] and one["requested"])


def _resolved(asked: list[str], options: list[str], wanted: PackagesWanted, work: Path) -> dict[str, _Found]:
    """Return the packages that pip would install, by name.

    pip evaluates markers (`python_version < "3.13"`) for the Python that it runs on, so packages that only the instance
    needs must be requested explicitly.
    """
    markers = linux_markers(PYTHON, wanted.machine)
    report = work / "report.json"
    while True:
        linux = for_linux(PYTHON, wanted.machine)
        dry = ("install", "--dry-run", "--ignore-installed", "--report", str(report), "--target", str(work / "none"))
        run_pip(*dry, *linux, *options, *asked, cwd=work / "service")
        entries: list[dict[str, Any]] = json.loads(report.read_text("utf-8"))["install"]
        found: dict[str, _Found] = {
            canonicalize_name(one["metadata"]["name"]): _Found.of_report(one) for one in entries
        }
        needs = [Requirement(line) for one in entries for line in one["metadata"].get("requires_dist", ())]
        absent = {
            f"{need.name}{need.specifier}"
            for need in needs
            if canonicalize_name(need.name) not in found and (need.marker is None or need.marker.evaluate(markers))
        }
        if not absent:
            return found
        asked = [*asked, *sorted(absent)]


def _check(found: Mapping[str, str], wanted: PackagesWanted) -> None:
    """Raise BadInput for GPU libraries on types without GPUs, and for a torch without GPU code on types with GPUs."""
    nvidia = sorted(name for name in found if name.startswith("nvidia-"))
    if nvidia and not wanted.gpus:
        raise BadInput(
            "brings libraries for GPUs to types that have none: say where wheels without are, `cpu_index`",
            wanted.where,
            f"{nvidia[0]} and {len(nvidia) - 1} more",
        )
    torch = found.get("torch", "")
    if wanted.gpus and torch.endswith("+cpu"):
        raise BadInput("has no code for GPUs, which types of the service have", wanted.where, f"torch {torch}")


def _ranges(own: Path, extras: Sequence[str] | None) -> list[str]:
    """Return the version ranges in mark's wheel of BOUNCER, or of everything that these extras need."""
    needs = [Requirement(line) for line in _metadata(own).requires or ()]
    if extras is None:
        wanted = [need for need in needs if canonicalize_name(need.name) in BOUNCER]
    else:
        ours = [{"extra": extra} for extra in ("", *extras)]
        wanted = [need for need in needs if need.marker is None or any(map(need.marker.evaluate, ours))]
    return sorted({f"{need.name}{need.specifier}" for need in wanted})


def _locked(path: Path) -> str:
    name, version, *_ = parse_wheel_filename(path.name)
    return f"{name}=={version} --hash=sha256:{hash_of(path)}\n"


def _metadata(path: Path) -> Distribution:
    whole = zipfile.Path(path)
    (home,) = (folder for folder in whole.iterdir() if folder.name.endswith(".dist-info"))
    return PathDistribution(home)


def _text(wanted: PackagesWanted) -> str:
    try:
        return bytes_of(wanted.files, "requirements.txt").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8", wanted.where) from None


def _name(wanted: PackagesWanted, own: Path, pins: Path) -> str:
    """Return the name of the folder that keeps the wheels.

    mark's own wheel is not in it, because it changes more often.
    """
    named = {
        name: hashlib.sha256(bytes_of(wanted.files, name)).hexdigest()
        for name in sorted(wanted.files)
        if name.endswith((".txt", ".whl"))
    }
    said = [
        _ranges(own, wanted.extras),
        named,
        list(wanted.kinds),
        wanted.machine,
        wanted.gpus,
        wanted.cpu_index,
        PYTHON,
    ]
    return hashlib.sha256(json.dumps([*said, pins.read_text(encoding="utf-8")]).encode()).hexdigest()[:16]
