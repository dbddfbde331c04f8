"""`mark check`: every kind of file is recognised and read."""

import re
from pathlib import Path

import pytest

from mark.config.new_service import new_service
from mark.domain.errors import BadInput, Infeasible
from mark.studies.report.check import check_file
from mark.studies.report.promise_help_report import tail_words

pytestmark = pytest.mark.usefixtures("coarse_late_shares")


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


def test_a_pipeline_says_which_faults_are_played(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    stage = '[stage.a]\nmodel = "inception-v3"\n'
    head = '[service]\nname = "p"\nslo_ms = 600\nslo_attainment = 0.98\n'
    file.write_text(f"{head}{stage}[faults]\nslow_share = 0.2\nslow_answer_ms = 50\n")
    said = "simulator and testbed play slow periods (20.0 % of the time, x1, answers 50 ms later)"
    assert said in check_file(str(file))


TAIL = """model,instance,batch,latency_ms,p99_ms
ranker,c7i.large,1,24,75
ranker,c7i.xlarge,1,14,40
"""


def a_tail(tmp_path: Path, attainment: float, instances: str = "c7i.large") -> str:
    """Return a service of which 0.73 % of the requests take longer than RT_max on a c7i.large even without a queue."""
    (tmp_path / "own.csv").write_text(TAIL)
    file = tmp_path / "own.toml"
    file.write_text(
        f"""[service]
name = "ranker"
model = "ranker"
slo_ms = 80
slo_attainment = {attainment}
profile = "own.csv"
[fleet]
catalog = "aws-2026"
markets = ["on-demand"]
instances = ["{instances}"]
[overflow]
function = "none"
"""
    )
    return str(file)


def test_a_service_says_what_fleets_carry_and_what_tails_allow(tmp_path: Path) -> None:
    said = check_file(a_tail(tmp_path, 0.99))
    carried = re.search(r"1 / 2 / 4 / 8 c7i.large keep the promise up to ([\d.]+) / ([\d.]+) / ([\d.]+) / ", said)
    assert carried is not None
    one, two, four = map(float, carried.groups())
    assert 1.0 < one < 4.0
    assert 2.0 * one < two < four / 2.0
    assert "even if no request waits, the share in time is at most 99.27 % on c7i.large" in said
    few = re.search(r"a day on c7i.large needs ([\d,]+) requests to keep it with 95 %", said)
    assert few is not None
    assert 2000 < int(few[1].replace(",", "")) < 4000
    assert "would help" not in said


def test_a_tail_that_leaves_no_room_says_what_would_help(tmp_path: Path) -> None:
    said = check_file(a_tail(tmp_path, 0.9925))
    assert (
        "service times alone use up 97 % of the requests that may be late; these changes would help: slo_ms = 85"
        in said
    )
    assert "instances = [c7i.xlarge] at $0.18/h an instance" in said


def test_a_promise_that_no_type_keeps_carries_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(Infeasible) as refused:
        check_file(a_tail(tmp_path, 0.995))
    assert tail_words(refused.value.helps) == (
        "; these changes would help: slo_ms = 91 (RT_max + 11 ms) at $0.089/h an instance of c7i.large, or instances = "
        "[c7i.xlarge] at $0.18/h an instance, or slo_attainment = 0.9902 at $0.089/h an instance of c7i.large"
    )


def test_certain_service_times_say_nothing_of_tails() -> None:
    assert "even if no request waits" not in check_file("inception-v3-2026")


def test_check_refuses_an_unknown_instance_of_the_own_policy(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(new_service("mine") + '[policy]\nkind = "fixed"\ninstance = "c9.large"\nmin = 1\nmax = 1\n')
    with pytest.raises(BadInput, match=r"s\.toml \[policy\] instance: aws-2026 has no such instance.*c9\.large"):
        check_file(str(file))


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


def test_selection_is_named_with_its_candidates_and_policy(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text(
        '[service]\nname = "digits"\nslo_ms = 50\nslo_attainment = 0.99\n'
        '[stage.small]\nmodel = "digits:Small"\n[stage.large]\nmodel = "digits:Large"\n'
        '[feedback]\nlog = "feedback"\n[selection]\npolicy = "exp4"\n'
    )
    assert check_file(str(file)).startswith("ok, a selection among 2 candidates (small, large) by exp4; no profile")
