"""The section `[faults]`, of a service file or by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.faults_section import load_faults
from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.faults import Faults

SERVICE = '[service]\nname = "s"\nmodel = "nasnet"\nslo_ms = 1000\nslo_attainment = 0.9\n'
FAULTS = (
    "[faults]\nslow_share = 0.1\nslow_s = 20\nslow_factor = 3\nslow_add_ms = 50\nslow_answer_ms = 25\nhost_group = 4\n"
    "hangs_per_hour = 2\nhang_s = 7\ncrashes_per_hour = 0.5\n"
)


def written(folder: Path, text: str) -> str:
    file = folder / "some.toml"
    file.write_text(text)
    return str(file)


def test_every_key_of_faults_is_read(tmp_path: Path) -> None:
    """The keys may be in either file; without them nothing fails."""
    said = Faults(0.1, 20.0, 3.0, 0.05, 4, 2.0, 7.0, 0.5, 0.025)
    assert load_faults(written(tmp_path, FAULTS)) == said
    assert load_service(written(tmp_path, SERVICE + FAULTS)).faults == said
    assert load_faults(written(tmp_path, "[faults]\n")) == load_service(written(tmp_path, SERVICE)).faults == Faults()
    assert not Faults().any


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[faults]\nslow_share = 1\n", "[faults] slow_share: must be below 1, a share of the time: 1"),
        ("[faults]\nslow_share = 0.1\n", "[faults] slow_share: changes nothing without slow_factor or slow_add_ms or"),
        ("[faults]\nslow_factor = 3\n", "[faults] slow_factor: changes nothing without slow_share: 3"),
        ("[faults]\nhang_s = 3\n", "[faults] hang_s: changes nothing without hangs_per_hour: 3"),
        ("[faults]\nslow_share = 0.1\nslow_factor = 0.5\n", "[faults] slow_factor: must be 1 or more"),
        ("[faults]\nhang_s = 61\nhangs_per_hour = 1\n", "[faults] hang_s: must be 60 at most"),
        ("[faults]\nslow_s = 0\n", "[faults] slow_s: must be above zero: 0"),
        ("[faults]\nhost_group = 0\n", "[faults] host_group: must lie between 1 and"),
        ("[faults]\ncrashes = 1\n", "[faults] crashes: unknown key"),
        ("[service]\n", "[service]: unknown section"),
        ("", "has no section [faults]"),
    ],
)
def test_wrong_faults_are_named_by_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_faults(written(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "some.toml"))
    assert message in str(caught.value)


def test_a_file_of_faults_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_faults("nowhere.toml")
    with pytest.raises(BadInput, match="is a folder, not a file"):
        load_faults(str(tmp_path))
