"""Sections of a TOML file, read strictly: errors name file, section, key and value."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mark.domain.cells import read_text
from mark.domain.errors import BadInput, did_you_mean
from mark.domain.time import span_s

# Far beyond one controller's capacity (a few thousand), so a larger number is a typing error.
_MOST_INSTANCES = 100_000


def tables_of(path: Path) -> dict[str, Any]:
    """Return the file as nested dictionaries, unchecked. Raises BadInput for invalid TOML."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, and integers of 5,000 digits
        raise BadInput(f"is no TOML: {error}", str(path)) from None


def check_sections(path: Path, tables: Mapping[str, Any], known: Mapping[str, Collection[str]]) -> None:
    """Raise BadInput for a section that is not in `known`, or a key that is unknown in its section."""
    for name, table in tables.items():
        if name not in known:
            raise BadInput("unknown section" + _known(name, known), f"{path} [{name}]")
        if not isinstance(table, dict):
            raise BadInput("must be a section", f"{path} {name}", table)
        Section(path, name, table).only(known[name])


class Section:
    """One table of the file; every getter raises BadInput with file, section, key and value."""

    def __init__(self, path: Path, name: str, table: dict[str, Any]) -> None:
        self.path, self.name, self.table = path, name, table

    def where(self, key: str) -> str:
        return f"{self.path} [{self.name}] {key}"

    def only(self, known: Collection[str]) -> None:
        """Raise BadInput for a key that is not among these."""
        for key in self.table:
            if key not in known:
                raise BadInput("unknown key" + _known(key, known), self.where(key), self.table[key])

    def below(self, key: str) -> Section:
        """Return the table at this key, empty if it is missing."""
        table = self.table.get(key, {})
        if not isinstance(table, dict):
            raise BadInput("must be a section", f"{self.path} [{self.name}.{key}]", table)
        return Section(self.path, f"{self.name}.{key}", table)

    def _value(self, key: str, default: Any) -> Any:
        value = self.table.get(key, default)
        if value is None:
            raise BadInput("missing", self.where(key))
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str) or (key in self.table and not value.strip()):
            raise BadInput("must be a text that is not empty", self.where(key), value)
        return value

    def texts(self, key: str, default: list[str]) -> list[str]:
        value = self._value(key, default)
        if not isinstance(value, list) or not value or not all(isinstance(v, str) and v.strip() for v in value):
            raise BadInput("must be a list of texts that is not empty", self.where(key), value)
        return value

    def one_of(self, key: str, choices: Sequence[str], *, required: bool = False) -> str:
        value = self.text(key, None if required else choices[0])
        if value not in choices:
            raise BadInput(f"must be one of {', '.join(choices)}", self.where(key), value)
        return value

    def number(
        self, key: str, default: float | None = None, *, above_zero: bool = False, most: float = math.inf
    ) -> float:
        value = self._value(key, default)
        # In Python true is the integer 1, in TOML it is a boolean.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput("must be a number", self.where(key), value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadInput("must be a finite number", self.where(key), value)
        if number < 0.0 or (above_zero and number == 0.0):
            raise BadInput("must be above zero" if above_zero else "must be zero or more", self.where(key), value)
        if number > most:
            raise BadInput(f"must be at most {most:g}", self.where(key), value)
        return number

    def span_s(self, key: str, default_s: float) -> float:
        """Return seconds, written as a number or as `30m`, `24h`, `7d`."""
        value = self._value(key, default_s)
        if isinstance(value, str):
            found_s = span_s(value)
            if found_s is None:
                raise BadInput("must be seconds, or a time such as 24h or 7d", self.where(key), value)
            return found_s
        return self.number(key, default_s)

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput("must be a whole number", self.where(key), value)
        if not least <= value <= _MOST_INSTANCES:
            raise BadInput(f"must lie between {least} and {_MOST_INSTANCES}", self.where(key), value)
        return value


def _known(name: str, known: Collection[str]) -> str:
    """Return the known name that resembles this one, or all known names if none does."""
    return did_you_mean(name, known) or f" (known: {', '.join(sorted(known))})"
