"""The first reading of a log: each candidate alone, prices, and warnings about the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.config.pipeline_file import load_pipeline
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.selection.outcome import candidate_key
from mark.studies.answer_files import AnswerLog
from mark.studies.answer_scan import AnswerScan, instance_usd_per_call
from tests.studies.logged import SERVICE, write_log, write_service


def scan(folder: Path, text: str, service: str | None = None) -> AnswerScan:
    (folder / "log").write_text(text)
    config = None if service is None else load_pipeline(write_service(folder, service))
    return AnswerScan(AnswerLog(str(folder / "log"), 1.0), config)


def test_candidates_alone_have_their_errors_and_prices(tmp_path: Path) -> None:
    found = scan(tmp_path, "label,a.answer,a.usd,b.answer\n1,1,0.5,1\n2,1,0.25,\n")
    a, b = found.records["a"], found.records["b"]
    assert (a.answers, a.error, a.usd_per_million, b.answers, b.error) == (2, 0.5, 375_000.0, 1, 0.0)
    assert found.notes(by_key=False) == [
        "1 of 2 rows lack the answer of a candidate: queries that ask it are skipped, which is biased unless the log "
        "asked everybody, or at random",
        "prices that the log does not say (b.usd) count as $0: --service FILE tells them",
    ]


def test_price_is_that_of_the_cheapest_instance_at_its_capacity_and_of_the_call(tmp_path: Path) -> None:
    config = load_pipeline(write_service(tmp_path))
    small, large = config.stages
    offers = load_catalog("aws-2026").offers
    usd_per_hour = min(o.usd_per_hour for o in offers if o.instance == "c7i.large" and o.market is Market.ON_DEMAND)
    usd, why = instance_usd_per_call(config, small)
    assert (usd, why) == (pytest.approx(usd_per_hour / 3600.0 * 0.010), "")
    assert instance_usd_per_call(config, large) == (None, "no profile has its model large")
    found = AnswerScan(AnswerLog(write_log(tmp_path), 1.0), config)
    assert found.records["small"].usd_per_million == pytest.approx(1e6 * (usd or 0.0))
    assert found.records["large"].usd_per_million == pytest.approx(1000.0)
    assert found.notes(by_key=False) == ["the price of large is usd_per_call alone: no profile has its model large"]


def test_price_of_a_model_that_is_too_slow_is_unknown(tmp_path: Path) -> None:
    config = load_pipeline(write_service(tmp_path, SERVICE.replace("slo_ms = 100", "slo_ms = 5")))
    usd, why = instance_usd_per_call(config, config.stages[0])
    assert usd is None
    assert "no offer meets the SLO" in why


def test_prices_of_the_log_come_before_those_of_the_file(tmp_path: Path) -> None:
    text = "label,small.answer,small.usd,large.answer\n1,1,0.5,1\n"
    assert scan(tmp_path, text, SERVICE).records["small"].usd_per_million == 500_000.0


def test_keys_of_a_feedback_log_name_candidates(tmp_path: Path) -> None:
    small, large = candidate_key("small", "small"), candidate_key("large", "large")
    text = json.dumps({"label": 1, small: {"answer": 1}, large: {"answer": 2}})
    assert list(scan(tmp_path, text).records) == ["small", "large"]
    assert scan(tmp_path, text, SERVICE).records["large"].answers == 1
    both = '{"label": 1, "a@1": {"answer": 1}, "a@2": {"answer": 2}}\n'
    assert list(scan(tmp_path, both).records) == ["a", "a@2"], "two versions are two candidates"


def test_answers_of_another_version_are_left_out_and_counted(tmp_path: Path) -> None:
    keys = [candidate_key("small", "small"), candidate_key("large", "large"), candidate_key("small", "older")]
    text = "\n".join(json.dumps({"label": 1, key: {"answer": 1}}) for key in keys)
    found = scan(tmp_path, text, SERVICE)
    assert found.records["small"].answers == 1
    assert found.notes(by_key=False)[0] == "1 answers of another version of a candidate"


@pytest.mark.parametrize(
    ("text", "service", "message"),
    [
        (
            "label,a.answer\n1,1\n",
            None,
            "log: has fewer than two candidates: a policy chooses among columns NAME.answer",
        ),
        ("label,a.answer,b.answer\n", None, "log: has no row that can be replayed"),
        ("label,a.answer,b.answer\n1,1,\n", None, "log: has no answer of this candidate (column b.answer): b"),
        ("label,small.answer,smal.answer\n1,1,1\n", SERVICE, "log:2: is no candidate of "),
        ("label,small.answer\n1,1\n", SERVICE, "log: has no answer of this candidate (column large.answer): large"),
        ('{"id": "r", "feedback": {"reward": 1}}\n', None, "log: has no row that can be replayed (1 without an answer"),
    ],
)
def test_log_that_does_not_fit_is_one_line(tmp_path: Path, text: str, service: str | None, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        scan(tmp_path, text, service)
    assert str(refused.value).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize(
    ("label", "answer"),
    [('"Cat"', '"cat"'), ('"7"', "7"), ("true", '"True"'), ('"false"', "0"), ("0.3", "0.30000000004")],
)
def test_answers_that_are_written_unlike_their_labels_are_refused(tmp_path: Path, label: str, answer: str) -> None:
    row = f'{{"label": {label}, "a.answer": {label}, "b.answer": {answer}}}\n'
    with pytest.raises(BadInput, match=r"log b.answer: 20 answers differ .* write both alike: .*log:1: "):
        scan(tmp_path, 20 * row)
    rarely = row + 19 * '{"label": 1, "a.answer": 1, "b.answer": 2}\n'
    assert scan(tmp_path, rarely).records["b"].error == 1.0


def test_stranger_that_is_almost_a_candidate_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"did you mean small\?: smal$"):
        scan(tmp_path, "label,small.answer,smal.answer\n1,1,1\n", SERVICE)


def test_more_candidates_than_a_selection_has_are_refused(tmp_path: Path) -> None:
    header = ",".join(["label", *(f"m{n}.answer" for n in range(17))])
    with pytest.raises(BadInput, match="has more than 16 candidates: m16"):
        scan(tmp_path, f"{header}\n1{',1' * 17}\n")


def test_keys_that_are_not_used_are_told(tmp_path: Path) -> None:
    with_keys = "label,small.answer,large.answer,small.usd,large.usd,key\n1,1,1,0,0,u\n"
    assert scan(tmp_path, with_keys).notes(by_key=True) == []
    assert "keys of the log are not used" in scan(tmp_path, with_keys).notes(by_key=False)[0]
    without = "label,small.answer,large.answer,small.usd,large.usd\n1,1,1,0,0\n"
    assert "no row of the log has a key" in scan(tmp_path, without).notes(by_key=True)[0]
