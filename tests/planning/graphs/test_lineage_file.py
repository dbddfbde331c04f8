"""Lineage files keep a joint law, and errors say where they are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage
from mark.planning.graphs.lineage_file import called_by_all, calls_per_query, lineage_csv, load_lineage

TEXT = "queries,detect,classify\n7,1,0\n3,1,4\n"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "lineage.csv"
    lineage = Lineage(("detect", "classify"), np.array([[1, 0], [1, 4]]), np.array([7, 3]))
    file.write_text(lineage_csv(lineage))
    assert file.read_text() == TEXT
    found = load_lineage(str(file))
    assert found.stages == lineage.stages
    np.testing.assert_array_equal(found.calls, lineage.calls)
    np.testing.assert_array_equal(found.queries, lineage.queries)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "l.csv: is empty"),
        ("queries\n1\n", "l.csv:1: has no column of a stage"),
        ("detect\n1\n", "l.csv:1: missing column: queries"),
        ("queries,a,a\n1,1,1\n", "l.csv:1: the same column twice: a"),
        ("queries,a\n", "l.csv: has no row"),
        ("queries,a\n0,1\n", "l.csv:2 queries: must be at least 1: 0"),
        ("queries,a\n1,-1\n", "l.csv:2 a: must be at least 0: -1"),
        ("queries,a\n1,0.5\n", "l.csv:2 a: must be a whole number: 0.5"),
        ("queries,a\n1,\n", "l.csv:2 a: must not be blank"),
        ("queries,a\n1,1e30\n", "l.csv:2 a: must be 10,000 at most: 1e30"),
        ("queries,a\n1,10001\n", "l.csv:2 a: must be 10,000 at most: 10001"),
        ("queries,a\n1,1\n2,1\n", "the same calls as in"),
        ("queries,a\n1,1,2\n", "l.csv:2: 3 cells under a header of 2"),
    ],
)
def test_what_is_no_lineage_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "l.csv"
    file.write_text(text)
    with pytest.raises(BadInput) as caught:
        load_lineage(str(file))
    assert said in str(caught.value)


def test_a_header_in_quotes_as_spreadsheets_write_it(tmp_path: Path) -> None:
    file = tmp_path / "lineage.csv"
    file.write_text('"queries","detect","classify"\n7,1,0\n')
    assert load_lineage(str(file)).stages == ("detect", "classify")


PIPELINE = """
[service]
name = "p"
slo_ms = 100
slo_attainment = 0.99
{lineage}
[stage.detect]
model = "a"
[stage.classify]
model = "b"
after = ["detect"]
share = 0.5
"""


@pytest.mark.parametrize(
    ("lineage", "calls"), [("", [1.0, 0.5]), ('lineage = "l.csv"', [1.0, 1.2]), ('lineage = "other.csv"', None)]
)
def test_calls_of_a_query_are_those_of_lineage_or_shares(
    tmp_path: Path, lineage: str, calls: list[float] | None
) -> None:
    (tmp_path / "l.csv").write_text(TEXT)
    (tmp_path / "other.csv").write_text("queries,detect\n1,1\n")
    (tmp_path / "p.toml").write_text(PIPELINE.format(lineage=lineage))
    found = load_pipeline(str(tmp_path / "p.toml"))
    if calls is None:
        with pytest.raises(BadInput, match=r"other\.csv: must have a column for each of detect, classify"):
            calls_per_query(found)
    else:
        assert calls_per_query(found) == pytest.approx(calls)
        assert called_by_all(found) == [True, False]


def test_without_a_lineage_only_the_driver_knows(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        '[service]\nname = "p"\nslo_ms = 100\nslo_attainment = 0.99\npipeline = "a:b"\n[stage.one]\nmodel = "m"\n'
    )
    found = load_pipeline(str(tmp_path / "p.toml"))
    assert (calls_per_query(found), called_by_all(found)) == (None, [False])


SELECTS = """
[service]
name = "p"
slo_ms = 100
slo_attainment = 0.99
[stage.small]
model = "a"
[stage.large]
model = "b"
[feedback]
log = "said"
[selection]
"""


@pytest.mark.parametrize(
    ("selection", "calls"),
    [
        ('policy = "split"', [0.5, 0.5]),
        ('policy = "split"\nweights = { small = 0.9, large = 0.1 }', [0.9, 0.1]),
        ('policy = "split"\nweights = { small = 1.0, large = 0.0 }\nexplore = 0.2', [0.9, 0.1]),
        ('policy = "split"\nchampion = "small"', [1.0, 1.0]),  # its guard may leave one candidate
        ('policy = "thompson"', [1.0, 1.0]),
        ('policy = "exp4"', [1.0, 1.0]),
    ],
)
def test_candidate_counts_as_called_by_every_query_unless_shares_are_fixed(
    tmp_path: Path, selection: str, calls: list[float]
) -> None:
    (tmp_path / "p.toml").write_text(SELECTS + selection)
    found = load_pipeline(str(tmp_path / "p.toml"))
    assert calls_per_query(found) == pytest.approx(calls)
    assert called_by_all(found) == [share == 1.0 for share in calls]
