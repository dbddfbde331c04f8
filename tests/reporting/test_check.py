"""`mark check`: every kind of file is told and read."""

from pathlib import Path

import pytest

from mark.config.new_service import new_service
from mark.domain.errors import BadInput, Infeasible
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


def test_a_service_says_which_faults_are_played(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    said = "slow_share = 0.2\nslow_factor = 3\nslow_add_ms = 50\nhangs_per_hour = 2\ncrashes_per_hour = 0.5\n"
    file.write_text(f"{new_service('mine')}[faults]\n{said}")
    assert (
        "simulator and testbed play slow periods (20.0 % of the time, x3 and 50 ms), hangs (2/h, 5 s), crashes (0.5/h)"
    ) in check_file(str(file))


def test_shipped_names_can_be_checked_as_well() -> None:
    assert "a catalogue" in check_file("aws-2026")
    assert "a service" in check_file("nasnet")


@pytest.mark.parametrize("content", ["", "model,instance\n", "instance,market\nx,y\n", "hello\n", "\x00\x01\x02"])
def test_a_bad_file_is_bad_input(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"x\.csv"):
        check_file(str(path))


PIPELINE = """
[service]
name = "two"
slo_ms = 300
slo_attainment = 0.99
profile = "p.csv"
[stage.first]
model = "one:One"
[stage.second]
model = "two:Two"
after = ["first"]
"""


def test_a_pipeline_says_what_its_stages_can_run_on(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(PIPELINE)
    profile = tmp_path / "p.csv"
    profile.write_text("model,instance,batch,latency_ms\none:One,c7i.large,1,50\n")
    stages = "first can run on 1 offer; no profile yet of second"
    assert check_file(str(file)) == f"ok, a pipeline of 2 stages (first, second), its graph as said; {stages}"
    profile.write_text("model,instance,batch,latency_ms\none:One,c7i.large,1,50\ntwo:Two,c7i.large,1,400\n")
    with pytest.raises(Infeasible, match=r"two\.toml \[stage\.second\]: "):
        check_file(str(file))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'after = ["first"]',
            'after = ["frist"]',
            r"\[stage\.second\] after: is no stage, did you mean first\?: frist",
        ),
        ("p.csv", "q.csv", r"q\.csv"),
        ("[stage.first]", '[fleet]\ncatalog = "aws-1999"\n[stage.first]', "aws-1999"),
    ],
)
def test_a_pipeline_that_cannot_be_used(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "two.toml"
    file.write_text(PIPELINE.replace(old, new))
    (tmp_path / "p.csv").write_text("model,instance,batch,latency_ms\none:One,c7i.large,1,50\n")
    with pytest.raises(BadInput, match=said):
        check_file(str(file))
