"""The files of a model's folder that are sent with it or registered, and those left out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from mark.domain.errors import BadInput

_FILES = ("torch", "sklearn", "onnx")
_ELSEWHERE = ("http", "https", "registry", "version")
_MOST_NAMED = 8
# Left out: folders of tools (and all hidden ones), files that may contain a secret, and logs, which contain clients'
# addresses.
_LEFT_OUT = ("__pycache__", "node_modules", "venv", "*.egg-info")
_SECRETS = (
    *("*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "keys", "*.keys", "keys.*", "*secret*"),
    *("credentials*", "*.tfstate*", "*.tfvars*", "*.env", "*password*", "*passwd*", "service?account*.json"),
    *("*.log", "*.log.*", "*.log-*"),
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's reference within `folder`, its files by their path there, and the names left out as secrets or logs."""

    reference: str
    folder: Path
    files: dict[str, Path]
    kept_back: list[str]

    def only(self, opened: set[Path]) -> ModelFiles:
        """Return a copy with only the files that the model opened and no installed package owns."""
        installed = [Path(__file__).parents[1], Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
        inside = [place for place in installed if not self.folder.resolve().is_relative_to(place)]
        files = {
            name: path
            for name, path in self.files.items()
            if path in opened and not any(path.resolve().is_relative_to(place) for place in inside)
        }
        return replace(self, files=files, kept_back=[name for name in self.kept_back if self.folder / name in opened])

    def checked(self) -> ModelFiles:
        """Return itself. Raises BadInput if a file is a symbolic link to a place outside the folder."""
        top = self.folder.resolve()
        for name, path in self.files.items():
            if not (to := path.resolve()).is_relative_to(top):
                raise BadInput("is a symbolic link to a file outside of the model's folder: copy it there", name, to)
        return self


def listed(files: Mapping[str, Path | bytes]) -> str:
    """Return number, size and names of files, to be displayed before they are copied or sent."""
    size = sum(len(one) if isinstance(one, bytes) else one.stat().st_size for one in files.values())
    names = sorted(files)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    count = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    return f"{count}, {size:,} bytes: {', '.join(names[:_MOST_NAMED])}{more}"


def sorted_out(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a model's folder by their path, and those left out: logs and possible secrets."""
    files: dict[str, Path] = {}
    kept_back: list[str] = []
    for path, name in walk(folder, folder):
        # the folders of a .py file do not count, because a package may be called `keys`
        parts = (path.name,) if path.suffix == ".py" else Path(name).parts
        if any(fnmatch(part.lower(), pattern) for part in parts for pattern in _SECRETS):
            kept_back.append(name)
        else:
            files[name] = path
    return files, sorted(kept_back)


def walk(folder: Path, top: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files below `folder` in order, with their paths from `top`, without hidden ones and tools' own."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or any(fnmatch(path.name, pattern) for pattern in _LEFT_OUT):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from walk(path, top)
        elif path.is_file():
            yield path, path.relative_to(top).as_posix()


def model_files(reference: str, folder: Path, patterns: Sequence[str] = (), without: Path | None = None) -> ModelFiles:
    """Return the files that a model may need: all of `folder`; for `onnx:FILE` and the like, all of that file's folder.

    `patterns` select files instead. Files below `without` are ignored. Raises BadInput for a model without files, and
    if the file or module of the reference is not among them.
    """
    kind, _, rest = reference.partition(":")
    if kind in _ELSEWHERE or not rest:
        raise BadInput("has no files of its own that could be kept", "model", reference)
    if kind in _FILES:
        name, question, query = rest.partition("?")
        folder, name = (folder / name).parent, Path(name).name
        if not (folder / name).is_file():
            raise BadInput("no such file", reference, str(folder / name))
        reference = f"{kind}:{name}{question}{query}"
        names = {name}
    else:
        module = kind.replace(".", "/")
        names = {f"{module}.py", f"{module}/__init__.py"}
    found, kept_back = sorted_out(folder)
    ours = None if without is None else without.absolute()

    def chosen(name: str) -> bool:
        match = not patterns or any(fnmatch(name, pattern) for pattern in patterns)
        return match and (ours is None or not (folder / name).absolute().is_relative_to(ours))

    files = {name: path for name, path in found.items() if chosen(name)}
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in found):
            raise BadInput(f"no file of {folder} that may be kept matches it", "files", pattern)
    if not names & files.keys():
        what = "its own file is not among them: name it, too" if patterns else f"is not among the files of {folder}"
        raise BadInput(what, "files" if patterns else "model", reference)
    return ModelFiles(reference, folder, files, list(filter(chosen, kept_back)))
