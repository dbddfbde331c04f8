"""Policies on a log: errors, calls and dollars computed by hand, skipped queries, and one-line refusals."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mark.domain.errors import BadInput
from mark.planning.graphs.lineage_file import lineage_csv, load_lineage
from mark.studies.selection_replay import ReplayRequest, lineage_of, replay_log
from tests.models.test_policy_loading import CODE
from tests.studies.logged import SERVICE, write_log, write_service


def test_cascade_asks_the_second_candidate_below_the_threshold(tmp_path: Path) -> None:
    """`small` is sure of 4 in 10 and right there; `large` answers the other six, one of them wrongly."""
    service = write_service(tmp_path, SERVICE.replace('score = "p"', 'score = "p"\nexplore = 0'))
    found = replay_log(ReplayRequest(write_log(tmp_path), service, window=40))
    one = found.policies["cascade"]
    assert (one.queries, one.asks, one.skipped) == (100, 160, 0)
    assert one.error == pytest.approx(0.10)
    assert one.error_interval() == (pytest.approx(0.0552, abs=1e-4), pytest.approx(0.1744, abs=1e-4))
    small, large = (found.candidates[name].usd_per_million / 1e6 for name in ("small", "large"))
    assert one.usd == pytest.approx(100 * small + 60 * large)
    assert [(window.first, window.queries) for window in one.windows] == [(0, 40), (40, 40), (80, 20)]
    assert one.windows[0].chosen == {0: 16, 1: 24}
    assert (found.best, found.regret("cascade")) == ("large", pytest.approx(0.0))


def test_lineage_says_who_is_asked_and_is_read_again(tmp_path: Path) -> None:
    service = write_service(tmp_path, SERVICE.replace('score = "p"', 'score = "p"\nexplore = 0'))
    lineage = lineage_of(replay_log(ReplayRequest(write_log(tmp_path), service)))
    (tmp_path / "lineage.csv").write_text(lineage_csv(lineage))
    again = load_lineage(str(tmp_path / "lineage.csv"), ("small", "large"))
    assert again.queries.tolist() == [60, 40]
    assert again.calls.tolist() == [[1, 1], [1, 0]]


def test_equal_seeds_make_equal_replays(tmp_path: Path) -> None:
    log = write_log(tmp_path)

    def losses(seed: int, *policies: str) -> list[float]:
        found = replay_log(ReplayRequest(log, policies=policies, seed=seed))
        return [window.loss for policy in policies for window in found.policies[policy].windows]

    assert losses(3, "thompson", "split") == losses(3, "thompson", "split")
    assert losses(3, "split", "thompson") == losses(3, "split", "thompson") == losses(3, "thompson", "split")[::-1]
    assert len({tuple(losses(seed, "split")) for seed in range(5)}) > 1


def test_queries_whose_answer_the_log_lacks_are_skipped_for_the_policy_that_asks(tmp_path: Path) -> None:
    rows = "".join(f"1,{1 if at % 2 else ''},1\n" for at in range(40))
    (tmp_path / "log.csv").write_text(f"label,a.answer,b.answer\n{rows}")
    found = replay_log(ReplayRequest(str(tmp_path / "log.csv"), policies=("exp4", "split")))
    assert (found.policies["exp4"].queries, found.policies["exp4"].skipped) == (20, 20)
    split = found.policies["split"]
    assert split.queries + split.skipped == 40
    assert 0 < split.skipped < 20
    assert sum(window.queries for window in split.windows) == split.queries
    assert any("biased unless the log asked everybody" in note for note in found.notes)
    assert "exp4: 20 of 40 queries are skipped" in found.notes


def test_options_come_before_the_file(tmp_path: Path) -> None:
    request = ReplayRequest(write_log(tmp_path), write_service(tmp_path), ("cascade",))
    asked = {
        threshold: replay_log(replace(request, threshold=threshold)).policies["cascade"].asks
        for threshold in (0.0, 1.0)
    }
    assert asked[0.0] < 110 < 190 < asked[1.0], "up to the 2 % that explore"
    valued = replay_log(replace(request, correct_usd=1e-9)).policies["cascade"]
    assert valued.asks < 190, "correct_usd takes the place of the file's threshold"


def test_default_answers_are_counted(tmp_path: Path) -> None:
    text = SERVICE.replace('score = "p"', 'score = "p"\nmin_confidence = 1.0\ndefault = 1').replace("cascade", "exp4")
    service = write_service(tmp_path, text.replace("threshold = 0.5\n", ""))
    found = replay_log(ReplayRequest(write_log(tmp_path), service))
    one = found.policies["exp4"]
    assert one.by_default > 0
    assert f"exp4: {one.by_default} queries have the default as their answer" in found.notes


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "policy_of_test.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("beside", [True, False])
def test_own_policy_lies_beside_the_file_or_in_the_current_folder(
    own: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.path)
    (own / "elsewhere").mkdir()
    monkeypatch.chdir(own / "elsewhere" if beside else own)
    try:
        service = write_service(own if beside else own / "elsewhere")
        found = replay_log(ReplayRequest(write_log(own), service, ("policy_of_test:First", "exp4")))
        assert found.policies["policy_of_test:First"].error == pytest.approx(0.6)
        with pytest.raises(BadInput, match=r"^policy_of_test:Stranger: ask\(\) returned candidate 7"):
            replay_log(ReplayRequest(write_log(own), service, ("policy_of_test:Stranger",)))
    finally:
        sys.path[:] = before
        sys.modules.pop("policy_of_test", None)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ReplayRequest(""), "--policy: is needed without --service: some of split, exp3"),
        (ReplayRequest("", policies=("exp5",)), "--policy: must be split, exp3, exp4, exp4:thesis"),
        (ReplayRequest("", policies=("exp4:theses",)), "did you mean exp4:thesis?: exp4:theses"),
        (ReplayRequest("", policies=("cascade",)), "--policy: a cascade needs --correct-usd"),
        (
            ReplayRequest("", policies=("exp4",), threshold=0.5),
            "--threshold: is for policy 'cascade', and --policy has",
        ),
        (ReplayRequest("", policies=("cascade",), threshold=0.5, correct_usd=1.0), "so does --threshold: keep one"),
    ],
)
def test_request_that_cannot_be_is_one_line(tmp_path: Path, request_: ReplayRequest, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        replay_log(replace(request_, log=write_log(tmp_path)))
    assert message in str(refused.value)


def test_cascade_needs_the_scores_of_all_but_the_last_candidate(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("label,a.answer,a.score,b.answer\n1,1,0.5,1\n1,1,,1\n")
    with pytest.raises(BadInput, match=r"log.csv:3 a.score: must not be blank: a cascade asks"):
        replay_log(ReplayRequest(str(tmp_path / "log.csv"), policies=("cascade",), threshold=0.5))


def test_file_without_a_selection_is_one_line(tmp_path: Path) -> None:
    text = SERVICE.partition("[selection]")[0].replace("usd_per_call = 0.001\n", "")
    with pytest.raises(BadInput, match=r"service.toml: has no section \[selection\]"):
        replay_log(ReplayRequest(write_log(tmp_path), write_service(tmp_path, text)))
