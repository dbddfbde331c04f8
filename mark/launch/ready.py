"""Announce that a program is ready: one line of JSON to a file or a descriptor, for the program that started it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from mark.domain.errors import BadInput


@dataclass(frozen=True, slots=True)
class Ready:
    """The address on which a program listens."""

    url: str
    port: int


def announce(ready: Ready, descriptor: int | None, file: Path | None) -> None:
    """Write `{"url": ..., "port": ...}`, and close the descriptor. A reader never sees a part of the file.

    Raises BadInput for a descriptor or a file that cannot be written.
    """
    text = json.dumps({"url": ready.url, "port": ready.port}) + "\n"
    if descriptor is not None:
        try:
            with open(descriptor, "w") as to:
                to.write(text)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", "ready_fd", descriptor) from None
    if file is not None:
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        try:
            part.write_text(text)
            part.replace(file)
        except OSError as error:
            raise BadInput(f"cannot be written ({error.strerror})", "ready_file", str(file)) from None
