"""`mark check`: every kind of file is told and read."""

from pathlib import Path

import pytest

from mark.config.new_service import new_service
from mark.domain.errors import BadInput
from mark.reporting.check import check_file


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("s.toml", new_service("mine"), "a service"),
        ("p.csv", "model,instance,batch,latency_ms\nm,c5.large,1,50\n", "a profile of m on c5.large"),
        ("t.csv", "t_seconds,count\n0,60\n60,120\n", "a trace of 180 requests in 2 min"),
    ],
)
def test_a_good_file_says_what_is_in_it(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    assert said in check_file(str(tmp_path / name))


def test_shipped_names_can_be_checked_as_well() -> None:
    assert "a catalogue" in check_file("aws-2026")
    assert "a service" in check_file("nasnet")


@pytest.mark.parametrize("content", ["", "model,instance\n", "instance,market\nx,y\n", "hello\n", "\x00\x01\x02"])
def test_a_bad_file_is_bad_input(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"x\.csv"):
        check_file(str(path))
