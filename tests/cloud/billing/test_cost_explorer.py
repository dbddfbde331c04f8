"""Cost Explorer's answers and downloads: usage types are required, and record types tell credits from use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mark.cloud.billing.invoice import Invoice, read_invoice
from mark.cloud.billing.invoice_lines import CREDIT, DISKS, TAX, InvoiceLine
from mark.domain.errors import BadInput
from tests.traffic.traces.cur import HOUR, MAY

DAY = 24 * HOUR
C5 = InvoiceLine("on_demand", "c5.large", "h")


def group(usage_type: str, usd: str, amount: str = "0", record: str = "Usage", unit: str = "USD") -> dict[str, Any]:
    metrics = {"UnblendedCost": {"Amount": usd, "Unit": unit}, "UsageQuantity": {"Amount": amount, "Unit": "Hrs"}}
    return {"Keys": [usage_type, record], "Metrics": metrics}


def answer(*groups: dict[str, Any], keys: tuple[str, ...] = ("USAGE_TYPE", "RECORD_TYPE")) -> dict[str, Any]:
    return {
        "GroupDefinitions": [{"Type": "DIMENSION", "Key": key} for key in keys],
        "ResultsByTime": [
            {"TimePeriod": {"Start": f"2026-05-0{day}", "End": f"2026-05-0{day + 1}"}, "Total": {}, "Groups": groups}
            for day in (1, 2)
        ],
        "DimensionValueAttributes": [],
    }


def read(path: Path, content: object) -> Invoice:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_invoice([str(path)], MAY, MAY + 2 * DAY)


def test_an_answer_has_use_hours_and_what_was_paid(tmp_path: Path) -> None:
    groups = [
        group("BoxUsage:c5.large", "4.08", "48"),
        group("BoxUsage:c5.large", "-1.5", record="Credit"),
        group("NoUsageType", "0.4", record="Tax"),
        group("NatGateway-Hours", "1.08", "24"),
    ]
    invoice = read(tmp_path / "ce.json", answer(*groups))
    assert (invoice.charges[C5].usd, invoice.charges[C5].amount) == (8.16, 96.0)
    assert invoice.charges[CREDIT].usd == -3.0
    assert invoice.charges[TAX].usd == 0.8
    assert invoice.charges[InvoiceLine("", "NatGateway-Hours")].usd == 2.16
    assert invoice.runs[C5] == ((MAY, MAY + DAY, 48.0), (MAY + DAY, MAY + 2 * DAY, 48.0))


def test_a_page_needs_the_pages_behind_it(tmp_path: Path) -> None:
    page = answer(group("BoxUsage:c5.large", "4.08", "48")) | {"NextPageToken": "x"}
    with pytest.raises(BadInput, match=r"1.json NextPageToken: is one page of several: .*--next-page-token"):
        read(tmp_path / "1.json", page)
    (tmp_path / "2.json").write_text(json.dumps(answer(group("BoxUsage:m5.large", "2.3", "24"))))
    assert read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY).usd == pytest.approx(12.76)


def test_pages_may_split_the_uses_of_a_line(tmp_path: Path) -> None:
    first = answer(group("EBS:VolumeUsage.gp2", "1", "10"), group("BoxUsage:c5.large", "-0.5", record="Credit"))
    last = answer(group("EBS:VolumeUsage.gp3", "1", "10"), group("BoxUsage:m5.large", "-0.1", record="Credit"))
    (tmp_path / "1.json").write_text(json.dumps(first | {"NextPageToken": "x"}))
    (tmp_path / "2.json").write_text(json.dumps(last))
    invoice = read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY)
    assert (invoice.charges[DISKS].usd, invoice.charges[CREDIT].usd) == (4.0, pytest.approx(-1.2))


@pytest.mark.parametrize("form", ["a list", "one behind the other"])
def test_pages_may_share_a_file(tmp_path: Path, form: str) -> None:
    pages = [answer(group("BoxUsage:c5.large", "4.08", "48")) | {"NextPageToken": "x"}]
    pages += [answer(group("BoxUsage:m5.large", "2.3", "24"))]
    text = json.dumps(pages) if form == "a list" else "\n".join(json.dumps(page, indent=4) for page in pages)
    assert read(tmp_path / "ce.json", text).usd == pytest.approx(12.76)


def test_answer_of_another_month_is_no_further_page(tmp_path: Path) -> None:
    june = json.dumps(answer(group("BoxUsage:c5.large", "4.08", "48"))).replace("2026-05", "2026-06")
    (tmp_path / "2.json").write_text(june)
    page = answer(group("BoxUsage:c5.large", "4.08", "48")) | {"NextPageToken": "x"}
    (tmp_path / "1.json").write_text(json.dumps(page))
    with pytest.raises(BadInput, match=r"1.json NextPageToken: is one page of several"):
        read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY)


def test_answers_that_overlap_late_count_once(tmp_path: Path) -> None:
    many = answer(*(group(f"EBS:Kind{n}", "1") for n in range(1200)))
    (tmp_path / "1.json").write_text(json.dumps(many))
    second = many["ResultsByTime"][1]
    (tmp_path / "2.json").write_text(json.dumps(many | {"ResultsByTime": [second]}))
    assert read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY).usd == pytest.approx(2400.0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_an_answer_is_read_in_the_encodings_of_windows(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "ce.json").write_text(json.dumps(answer(group("BoxUsage:c5.large", "4.08", "48"))), encoding)
    assert read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY).usd == pytest.approx(8.16)


def test_costs_that_are_estimated_are_said(tmp_path: Path) -> None:
    whole = answer(group("BoxUsage:c5.large", "4.08", "48"))
    whole["ResultsByTime"][1]["Estimated"] = True
    assert "ce.json estimated: they may still change" in read(tmp_path / "ce.json", whole).notes[-1]


def test_dollars_that_credits_have_lowered_are_said(tmp_path: Path) -> None:
    net = answer({**group("BoxUsage:c5.large", "0", "48"), "Keys": ["BoxUsage:c5.large"]}, keys=("USAGE_TYPE",))
    assert "credits, refunds and taxes are in the dollars of use" in read(tmp_path / "ce.json", net).notes[-1]


def test_in_a_folder_manifests_are_no_answers(tmp_path: Path) -> None:
    (tmp_path / "cur-Manifest.json").write_text("{}")
    (tmp_path / "ce.json").write_text(json.dumps(answer(group("BoxUsage:c5.large", "4.08", "48"))))
    assert read_invoice([str(tmp_path)], MAY, MAY + DAY).files == 1


def test_a_download_of_the_console_has_days_and_no_hours(tmp_path: Path) -> None:
    table = (
        '"Usage type","BoxUsage:c5.large($)","NatGateway-Hours($)","Total costs($)"\n'
        '"Usage type total","8.16","2.16","10.32"\n'
        '"2026-05-01","4.08","1.08","5.16"\n'
        '"2026-05-02","4.08","1.08","5.16"\n'
    )
    invoice = read(tmp_path / "costs.csv", table)
    assert invoice.usd == pytest.approx(10.32)
    assert (invoice.charges[C5].usd, invoice.charges[C5].amount) == (8.16, 0.0)


@pytest.mark.parametrize("cells", [("4,08", "5,16"), ("4,080", "1.080,00"), ("0,0850000000", "1")])
def test_decimal_commas_of_a_saved_download_are_refused(tmp_path: Path, cells: tuple[str, str]) -> None:
    table = '"Usage type","BoxUsage:c5.large($)","NatGateway-Hours($)"\n'
    table += "".join(f'"2026-05-0{day}","{cells[0]}","{cells[1]}"\n' for day in (1, 2))
    with pytest.raises(BadInput, match="is the comma a decimal sign"):
        read(tmp_path / "costs.csv", table)


def test_groups_of_digits_are_read(tmp_path: Path) -> None:
    table = '"Usage type","BoxUsage:c5.large($)"\n"2026-05-01","1,004.08"\n"2026-05-02","12,004,000"\n'
    assert read(tmp_path / "costs.csv", table).usd == pytest.approx(12_005_004.08)


@pytest.mark.parametrize("total", ["9.08", "2.04", "0.00"])
def test_columns_that_do_not_sum_to_the_total_are_refused(tmp_path: Path, total: str) -> None:
    head = '"Usage type","BoxUsage:c5.large($)","Total costs($)"\n'
    table = f'{head}"2026-05-01","4.08","4.08"\n"2026-05-02","4.08","{total}"\n'
    with pytest.raises(BadInput, match=rf"costs.csv:3 total costs: the columns sum to \$4.08: .*: {total}"):
        read(tmp_path / "costs.csv", table)


def test_the_first_month_of_a_download_may_be_cut(tmp_path: Path) -> None:
    table = '"Usage type","BoxUsage:c5.large($)"\n"2026-03-15","17"\n"2026-04-01","30"\n"2026-05-01","31"\n'
    assert read(tmp_path / "costs.csv", table).usd == pytest.approx(2.0)


@pytest.mark.parametrize("days", [("01", "03", "05"), ("01", "08", "15"), ("02", "04")])
def test_rows_that_are_no_hours_days_or_months_are_refused(tmp_path: Path, days: tuple[str, ...]) -> None:
    table = '"Usage type","BoxUsage:c5.large($)"\n' + "".join(f'"2026-05-{day}","4"\n' for day in days)
    with pytest.raises(BadInput, match="rows are neither hours, days nor months: some are missing"):
        read(tmp_path / "costs.csv", table)


def test_an_answer_with_a_day_twice_is_refused(tmp_path: Path) -> None:
    whole = answer(group("BoxUsage:c5.large", "4.08", "48"))
    whole["ResultsByTime"] += whole["ResultsByTime"][1:]
    with pytest.raises(
        BadInput, match=r"ResultsByTime\[2\] Groups: stands twice for one time.*: BoxUsage:c5.large, Usage"
    ):
        read(tmp_path / "ce.json", whole)


def test_months_of_a_download_are_as_long_as_they_are(tmp_path: Path) -> None:
    table = '"Usage type","BoxUsage:c5.large($)"\n"2026-05-01","31"\n"2026-06-01","30"\n'
    assert read(tmp_path / "costs.csv", table).usd == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (answer(keys=("SERVICE", "REGION")), "no usage types; group it by usage type .*: SERVICE, REGION"),
        ({"ResultsByTime": []}, "no usage types; group it by usage type .*: not grouped"),
        ({"a": 1}, "no Cost Explorer export: it has no ResultsByTime"),
        ("{", "is no JSON"),
        (answer({"Keys": ["a", "b"], "Metrics": {"AmortizedCost": {}}}), "no unblended costs; ask for --metrics"),
        (answer({"Keys": ["a", "b"]}), "it lacks a field"),
        (answer(group("BoxUsage:c5.large", "x")), "UnblendedCost: must be a finite number: x"),
        (answer(group("BoxUsage:c5.large", "1", unit="EUR")), "mark's prices are US dollars: EUR"),
    ],
)
def test_answers_that_lack_what_is_needed_are_refused(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path / "ce.json", content)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('"Service","EC2-Instances($)"\n"2026-05-01","4"\n', "no usage types; group by `Usage type`"),
        ('"Usage type","BoxUsage:c5.large($)"\n"2026-05-01","4"\n', "one row may be a day or a month"),
        ('"Usage type","BoxUsage:c5.large(€)"\n"2026-05-01","4"\n"2026-05-02","4"\n', "prices are US dollars: €"),
        ('"Usage type","BoxUsage:c5.large($)"\n"2026-05-02","4"\n"2026-05-01","4"\n', "forward in time"),
    ],
)
def test_downloads_that_lack_what_is_needed_are_refused(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path / "costs.csv", table)
