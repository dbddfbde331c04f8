"""Helpers of the command modules to declare and pass on arguments. Imports nothing that plans or serves."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mark.domain.errors import BadInput
from mark.domain.extras import check_installed

# The type that `add_subparsers()` returns; argparse has no public name for it.
Commands = argparse._SubParsersAction

GAPS = ("bridge", "zero", "interpolate", "fail")

T = TypeVar("T")


def from_args(options: type[T], args: argparse.Namespace, **other: Any) -> T:
    """Return a dataclass of options, filled from the `other` values and the arguments of the same names."""
    names = [field.name for field in fields(options)]  # type: ignore[arg-type]
    return options(**{name: getattr(args, name) for name in names if name not in other}, **other)


class Listed(argparse.Action):
    """An option with several values, separated by commas or given by repeating it.

    The namespace gets a tuple, or the result of `parse` for all values joined by commas. `each` reads one value. The
    name of an existing file is one value even if it has commas.
    """

    def __init__(
        self, *args: Any, parse: Callable[[str], Any] | None = None, each: Callable[[str], Any] = str, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._parse, self._each = parse, each

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        said = vars(namespace).setdefault(_SAID, {}).setdefault(self.dest, [])
        said.append(values)
        try:
            if self._parse is not None:
                found = self._parse(",".join(said))
            else:
                parts = [part.strip() for text in said for part in _parts(text)]
                if not all(parts):
                    raise argparse.ArgumentTypeError(f"names nothing between two commas: {','.join(said)!r}")
                found = tuple(map(self._each, parts))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, found)


_SAID = "as said"  # no option has this name
_OUTPUTS = {
    name: f"--{name.replace('_', '-')}" for name in ("json", "report", "markdown", "out", "certificate", "ready_file")
} | {"requests_log": "--log"}


def _parts(text: str) -> list[str]:
    return [text] if _exists(text) else text.split(",")


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):
        return False


def refuse_overwriting(args: argparse.Namespace) -> None:
    """Raise BadInput if a result would overwrite an input file or another result."""
    outputs = {
        option: str(value)
        for name, option in _OUTPUTS.items()
        if (value := getattr(args, name, None)) not in (None, "-") and not _is_updated(args, name)
    }
    read = [
        Path(place)
        for name, value in vars(args).items()
        if name not in (*_OUTPUTS, _SAID)
        for text in (value if isinstance(value, list | tuple) else [value])
        if isinstance(text, str | Path)
        for place in (text, *_model_files(str(text)))
        if _exists(str(place))
    ]
    read += [named for path in read if path.suffix == ".toml" for named in _named_in(path)]
    for option, output in outputs.items():
        path = Path(output)
        for other in read:
            inside = (
                other.is_dir() and other != Path(".") and path.exists() and other.resolve() in path.resolve().parents
            )
            if inside or (path.exists() and other.is_file() and path.samefile(other)):
                raise BadInput(f"would be written over {other}, which is read", option, output)
        if list(map(os.path.realpath, outputs.values())).count(os.path.realpath(output)) > 1:
            raise BadInput("two results in one file", option, output)


def _is_updated(args: argparse.Namespace, name: str) -> bool:
    """Return whether the command may update its input: `mark profile` adds rows, `mark catalog refresh` new prices."""
    return name == "out" and getattr(args, "command", None) in ("profile", "catalog")


def _model_files(text: str) -> list[str]:
    """Return the files that `text` names if it is a model: module:Class, onnx:FILE, torch:FILE or sklearn:FILE."""
    kind, _, name = text.partition("?")[0].partition(":")
    return [f"{kind.replace('.', '/')}.py", name] if name else []


def _named_in(file: Path) -> list[Path]:
    """Return the files that a service or pipeline file names."""
    try:
        sections = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the reader of the file reports the error
        return []
    values = [value for table in sections.values() if isinstance(table, dict) for value in table.values()]
    places = [place for value in values if isinstance(value, str) for place in (value, *_model_files(value))]
    return [file.parent / place for place in places if _exists(str(file.parent / place))]


def add_json(parser: argparse._ActionsContainer) -> None:
    what = "result as JSON; - is stdout, and nothing else"
    parser.add_argument("--json", type=file_or_stdout("--json"), metavar="FILE", help=what)


def field_value(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not field or not equals:
        raise argparse.ArgumentTypeError(f"must be field=value, not {text!r}")
    return field, value


def file_or_stdout(option: str) -> Callable[[str], str]:
    """Return the type of an option that names a file to write, or - for stdout."""
    return lambda text: text if text == "-" else writable(text, option)


def html_file(text: str) -> str:
    if Path(writable(text, "--report")).suffix.lower() not in (".html", ".htm"):
        raise BadInput("is a page: name it .html", "--report", text)
    return text


def plotted_file(text: str) -> str:
    """Return the file of a page that plotly draws. plotly is required here because a run may take minutes."""
    check_installed("plotly", "--report")
    return html_file(text)


def writable(text: str, option: str) -> str:
    """Return the path if a file can be written there. Raises BadInput before a long run begins."""
    path = Path(text)
    try:
        if not text or path.is_dir():
            raise BadInput("must name a file", option, text)
        if not path.parent.is_dir():
            raise BadInput("no such folder", option, str(path.parent))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput("cannot be written", option, text)
    except OSError as error:  # e.g. a name too long for any file
        raise BadInput(f"cannot be written ({error.strerror})", option, text) from None
    return text


out_file = partial(writable, option="--out")
