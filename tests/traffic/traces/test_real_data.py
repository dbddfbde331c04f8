"""Real traces read as their index says. Skipped where the data is not there (MARK_DATA, or ../shared/data)."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from mark.traffic.traces import open_trace, trace_info

ROOT = Path(__file__).parents[3]
TRACES = Path(os.environ.get("MARK_DATA", ROOT.parent / "shared" / "data")) / "traces"

pytestmark = pytest.mark.skipif(not (TRACES / "INDEX.csv").is_file(), reason="real traces are not here (set MARK_DATA)")


def index() -> dict[str, dict[str, str]]:
    with (TRACES / "INDEX.csv").open() as file:
        return {row["file"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize(
    "name",
    [
        "twitter_prod_d0_6_60s.csv.gz",
        "worldcup98_apr30_jun30_60s.csv.gz",
        "elb_requests_d00_09_300s.csv.gz",
        "nyc_taxi_d000_143_1800s.csv.gz",
        "twitter_stream_2021_d00_14_1s.csv.gz",
        "azure_llm_2023_code.csv.gz",
        "mooncake_conversation.csv.gz",
        "alibaba_genai_nov15_dec02.csv.gz",
    ],
)
def test_a_real_trace_has_the_numbers_of_its_index(name: str) -> None:
    row = index()[name]
    info = trace_info(open_trace(str(TRACES / name)))
    assert info["rows"] == int(row["rows"])
    assert info["requests"] == pytest.approx(float(row["events"]), abs=1.0)
    assert info["duration_s"] / 3600.0 == pytest.approx(float(row["length_h"]), rel=0.006)
    if info["kind"] == "counts":
        assert info["gap_s"] / info["bin_s"] == pytest.approx(int(row["missing_bins"]), abs=0.5)
        assert info["mean_rps"] == pytest.approx(float(row["mean_rps"]), rel=0.005)
        assert info["peak_rps"] == pytest.approx(float(row["peak_rps"]), rel=0.005)
