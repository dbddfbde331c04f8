"""Readiness as a line of JSON for the parent program."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.launch.listening import ListenOptions
from mark.launch.ready import Ready, announce

READY = Ready("http://127.0.0.1:8080", 8080)


def test_a_descriptor_gets_one_line_and_is_closed() -> None:
    read, write = os.pipe()
    announce(READY, write, None)
    with open(read) as from_program:  # to its end, which comes when the other end is closed
        assert json.loads(from_program.read()) == {"url": "http://127.0.0.1:8080", "port": 8080}


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    file.write_text("of an earlier run")
    announce(READY, None, file)
    assert json.loads(file.read_text())["port"] == 8080
    assert list(tmp_path.iterdir()) == [file]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    read, write = os.pipe()
    with pytest.raises(BadInput, match="ready_fd: cannot be written"):
        announce(READY, read, None)
    os.close(write)
    with pytest.raises(BadInput, match="ready_file: cannot be written"):
        announce(READY, None, tmp_path / "missing" / "ready.json")


@pytest.mark.parametrize(("cert", "scheme"), [(None, "http"), (Path("cert.pem"), "https")])
def test_the_url_has_the_scheme_that_is_served(cert: Path | None, scheme: str, tmp_path: Path) -> None:
    file = tmp_path / "ready.json"
    assert ListenOptions(tls_cert=cert, ready_file=file).ready(4711) == f"{scheme}://127.0.0.1:4711"
    assert json.loads(file.read_text())["url"] == f"{scheme}://127.0.0.1:4711"
