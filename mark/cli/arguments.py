"""What the commands' modules share to declare arguments and to pass them on. Imports nothing that plans or serves."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from mark.domain.errors import BadInput

# argparse calls what is given to `add_subparsers()` so; it has no public name.
Commands = argparse._SubParsersAction

GAPS = ("bridge", "zero", "interpolate", "fail")

T = TypeVar("T")


def from_args(options: type[T], args: argparse.Namespace) -> T:
    """A dataclass of options from the arguments of the same names."""
    found: dict[str, Any] = {field.name: getattr(args, field.name) for field in fields(options)}  # type: ignore[arg-type]
    return options(**found)


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", type=_json_file, metavar="FILE", help="result as JSON; - is stdout, and nothing else")


def field_value(text: str) -> tuple[str, str]:
    field, equals, value = text.partition("=")
    if not field or not equals:
        raise argparse.ArgumentTypeError(f"must be field=value, not {text!r}")
    return field, value


def _json_file(text: str) -> str:
    return text if text == "-" else writable(text, "--json")


def html_file(text: str) -> str:
    return writable(text, "--report")


def writable(text: str, option: str) -> str:
    """The path, when a file can be put there: a long run must not end with a folder that isn't there."""
    path = Path(text)
    try:
        if not text or path.is_dir():
            raise BadInput("must name a file", option, text)
        if not path.parent.is_dir():
            raise BadInput("no such folder", option, str(path.parent))
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput("cannot be written", option, text)
    except OSError as error:  # a name too long for any file
        raise BadInput(f"cannot be written ({error.strerror})", option, text) from None
    return text
