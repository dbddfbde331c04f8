"""Table 3 of the paper beside ours."""

from mark_papers.paper.table3 import table3_rows
from mark_papers.paper_pages.table3_page import table3_report

from mark.domain.catalog.tables import load_catalog
from mark.profiling.table import load_profiles
from tests.studies.report.test_simulate_report import plain


def test_every_type_stands_beside_the_paper_s_figure() -> None:
    rows = table3_rows(load_catalog("aws-2019"), load_profiles(None))
    shown = {(row["model"], row["instance"]): row for row in table3_report(rows).data["rows"]}
    assert shown["inception-v3", "t2.medium"]["paper_usd_per_million"] == 1.81
    assert shown["opennmt-ende", "t2.large"]["paper_usd_per_million"] == 56.71
    page = plain(table3_report(rows))
    assert "t2.micro" in page
    assert "33 min" in page
