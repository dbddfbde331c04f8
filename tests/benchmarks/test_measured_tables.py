"""Tables of the documentation are those of the kept measurements, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import measured_tables as tables

PLANNED = {
    "rows": [
        {"miss_share": {"inferline": 0.012, "mark": 0.002}, "usd_per_hour": {"inferline": 4.0, "mark": 3.0}},
        {"miss_share": {"inferline": 0.004, "mark": 0.01}, "usd_per_hour": {"inferline": 2.0, "mark": 2.5}},
    ]
}


@pytest.mark.parametrize("page", sorted(tables.DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_page_has_the_tables_of_its_measurements(page: Path) -> None:
    """`python benchmarks/measured_tables.py` writes them."""
    text = page.read_text()
    assert tables.written(text, tables.DOCS) == text


def test_every_kept_measurement_is_on_a_page() -> None:
    pages = "".join(page.read_text() for page in tables.DOCS.glob("*.md"))
    assert [name for name in tables.TABLES if f"<!-- table: {name} -->" not in pages] == []
    kept = {path.stem for path in (tables.DOCS / "measured").glob("*.json")}
    assert kept == {source for source, _ in tables.TABLES.values()}


def test_table_is_counted_by_hand(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text(json.dumps({**PLANNED, "curve": [1, 2, 3]}))
    tables.keep("inferline-fig5", tmp_path / "found.json", tmp_path, "2026-11-28", "mark reproduce inferline-fig5")
    assert tables.block("inferline-fig5", tmp_path).splitlines() == [
        "|  | `inferline` | `mark` |",
        "| --- | --: | --: |",
        "| promise missed (more than 1 % of new queries), of 2 cases | 1 | 0 |",
        "| the most missed | 1.20 % | 1.00 % |",
        "| dollars, InferLine's = 1 | 1.00 to 1.00 | 0.75 to 1.25 |",
        "",
        "`mark reproduce inferline-fig5`, 2026-11-28 ([data](measured/inferline-fig5.json)).",
    ]
    page = "before\n<!-- table: inferline-fig5 -->\nold\n<!-- end of table -->\nafter"
    written = tables.written(page, tmp_path)
    assert written.startswith("before\n<!-- table: inferline-fig5 -->\n\n|  | `inferline`")
    assert written.endswith("json)).\n\n<!-- end of table -->\nafter")
    assert "old" not in written


def test_figures_of_clipper_are_told_by_panel(tmp_path: Path) -> None:
    row = {"forests": "4", "p99_ms": 20.04, "error": 0.0125}
    found = {"panels": [{"title": "digits", "rows": [row], "curves": [{"name": "p99", "x": [1.0]}]}], "notes": ["a"]}
    (tmp_path / "found.json").write_text(json.dumps(found))
    tables.keep("clipper-fig3-9", tmp_path / "found.json", tmp_path, "2026-11-29", "mark reproduce clipper-fig3-9")
    head, _, line, *_ = tables.block("clipper-fig3-9", tmp_path).splitlines()
    assert head == "|  | forests | p99 ms | error |"
    assert line == "| digits | 4 | 20.0 | 1.25 % |"
    assert "curves" not in (tmp_path / "measured" / "clipper-fig3-9.json").read_text()


def test_kept_file_has_neither_curves_nor_details_of_runs() -> None:
    run = {"usd": 1.0, "windows": {"missed": [0, 1]}, "fleet": {"peak": 3}}
    found = {"loads": [run], "came_rps": [1.0, 2.0], "model": "a"}
    assert tables.kept(found) == {"loads": [{"usd": 1.0, "windows": {}}], "model": "a"}


def test_unknown_table_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no table 'fig99'; known: table2"):
        tables.written("<!-- table: fig99 -->\n<!-- end of table -->", tmp_path)


@pytest.mark.parametrize(
    ("share", "shown"), [(0.99999, "99.99 %"), (1.0, "100.00 %"), (0.98, "98.00 %"), (0.0, "0.00 %")]
)
def test_nearly_all_is_not_shown_as_all(share: float, shown: str) -> None:
    assert tables.percent(share) == shown
