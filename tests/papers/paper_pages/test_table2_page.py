"""Table 2 of the paper beside ours."""

from mark_papers.paper.table2 import table2_rows
from mark_papers.paper_pages.table2_page import table2_report

from mark.domain.catalog.tables import load_catalog
from mark.profiling.table import load_profiles
from tests.studies.report.test_simulate_report import plain


def test_every_row_stands_beside_the_papers_figure() -> None:
    rows = table2_rows(load_catalog("aws-2019"), load_profiles(None))
    data = table2_report(rows).data["rows"]
    assert {(row["model"], row["resource"], row["paper_usd_per_million"]) for row in data} >= {
        ("inception-v3", "c5.large", 5.0),
        ("inception-resnet-v2", "lambda:3008", 39.3),
        ("opennmt-ende", "lambda:3008", 155.0),
    }
    assert all(abs(row["usd_per_million"] / row["paper_usd_per_million"] - 1.0) < 0.06 for row in data)
    assert "51.5" in plain(table2_report(rows))
