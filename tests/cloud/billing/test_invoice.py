"""Cost and usage reports: all formats agree, each dollar is in one of three sums, and unusable input is named."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.cloud.billing.invoice import read_invoice
from mark.cloud.billing.invoice_lines import COMMITMENTS, DATA_OUT, TAX, InvoiceLine
from mark.domain.errors import BadInput
from tests.traffic.traces.cur import HOUR, MAY, Item, cur2, focus, legacy, parquet

DAY = 24 * HOUR
C5 = InvoiceLine("on_demand", "c5.large", "h")
ITEMS = [
    *(Item(start_s=MAY + k * HOUR, amount=2.0, cost=0.17, tags={"mark:service": "a"}) for k in range(24)),
    Item("SpotUsage:c5.xlarge", 3.0, 0.21, operation="RunInstances:SV001", tags={"mark:service": "b"}),
    Item("DataTransfer-Out-Bytes", 10.0, 0.9, tags={"mark:service": "a"}),
    Item("NatGateway-Hours", 1.0, 0.045),
    Item("", "", 0.5, "Tax", end_s=MAY + 31 * DAY - 1.0),
]

Writer = Callable[[Path, Sequence[Item]], str]


@pytest.mark.parametrize(
    ("write", "name"),
    [
        *((write, name) for write in (legacy, cur2, focus) for name in ("cur.csv", "cur.csv.gz")),
        (parquet, "cur.parquet"),
    ],
)
def test_all_formats_say_the_same(tmp_path: Path, write: Writer, name: str) -> None:
    invoice = read_invoice([write(tmp_path / name, ITEMS)], MAY, MAY + DAY)
    assert (invoice.files, invoice.rows, invoice.regions, invoice.notes) == (1, 28, ("us-east-1",), ())
    assert invoice.charges[C5].amount == 48.0
    assert invoice.charges[C5].usd == pytest.approx(24 * 0.17)
    assert invoice.charges[InvoiceLine("spot", "c5.xlarge", "h")].usd == 0.21
    assert invoice.charges[DATA_OUT].amount == 10.0
    assert invoice.charges[InvoiceLine("", "AmazonEC2 NatGateway-Hours")].usd == 0.045
    # A month's tax, for the share of the month.
    assert invoice.charges[TAX].usd == pytest.approx(0.5 * DAY / (31 * DAY - 1.0))
    assert invoice.total_usd == pytest.approx(24 * 0.17 + 0.21 + 0.9 + 0.045 + 0.5, abs=1e-12)
    assert invoice.runs[C5][5] == (MAY + 5 * HOUR, MAY + 6 * HOUR, 2.0)


@pytest.mark.parametrize("write", [legacy, cur2, focus, parquet])
def test_tags_and_types_select_and_the_rest_is_counted(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path / ("cur.parquet" if write is parquet else "cur.csv"), ITEMS)
    tagged = read_invoice([path], MAY, MAY + DAY, tags=[("mark:service", "a")])
    assert set(tagged.charges) == {C5, DATA_OUT}
    assert tagged.outside_selection_usd == pytest.approx(0.21 + 0.045 + 0.5 * DAY / (31 * DAY - 1.0))
    typed = read_invoice([path], MAY, MAY + DAY, instances=["m*", "c5.x*"])
    assert C5 not in typed.charges
    assert InvoiceLine("spot", "c5.xlarge", "h") in typed.charges
    assert DATA_OUT in typed.charges
    assert typed.outside_selection_usd == pytest.approx(24 * 0.17)
    with pytest.raises(BadInput, match="no line item of the period fits `tags`"):
        read_invoice([path], MAY, MAY + DAY, tags=[("mark:service", "c")])


def test_an_hour_across_the_period_counts_by_share(tmp_path: Path) -> None:
    invoice = read_invoice([legacy(tmp_path / "c.csv", ITEMS)], MAY + 0.25 * HOUR, MAY + 1.5 * HOUR)
    assert invoice.charges[C5].amount == pytest.approx(2.0 * 1.25)
    assert invoice.charges[C5].usd == pytest.approx(0.17 * 1.25)


@given(
    st.lists(
        st.builds(
            Item,
            amount=st.floats(0.0, 1e6),
            cost=st.floats(-1e3, 1e6).map(lambda x: f"{x:.10f}"),
            usage_type=st.sampled_from(["BoxUsage:c5.large", "SpotUsage:m5.large", "NatGateway-Bytes", "Request"]),
            item_type=st.sampled_from(["Usage", "DiscountedUsage", "RIFee", "Credit", "EdpDiscount", "New"]),
            list_cost=st.sampled_from(["", "0.5", "12.25"]),
            start_s=st.integers(-50, 50).map(lambda k: MAY + k * 1800.0),
            tags=st.sampled_from([{}, {"team": "x"}]),
        ).filter(lambda item: item.item_type != "Usage" or float(item.cost) >= 0.0),
        min_size=1,
        max_size=20,
    )
)
def test_no_dollar_is_lost(tmp_path_factory: pytest.TempPathFactory, items: list[Item]) -> None:
    """For any items and any cut, the dollars inside, outside and not selected add up to the file's."""
    items = [*items, Item(tags={"team": "x"})]
    path = legacy(tmp_path_factory.mktemp("cur") / "c.csv", items)
    invoice = read_invoice([path], MAY - HOUR, MAY + 1000.0, tags=[("team", "x")])
    whole = sum(float(item.cost) for item in items)
    assert invoice.total_usd == pytest.approx(whole, abs=1e-6)
    assert sum(charge.usd for charge in invoice.charges.values()) == pytest.approx(invoice.usd, abs=1e-6)


def test_a_savings_plan_takes_off_what_it_covers(tmp_path: Path) -> None:
    items = [
        Item(amount=1.0, cost=0.085, item_type="SavingsPlanCoveredUsage"),
        Item(amount=1.0, cost=-0.085, item_type="SavingsPlanNegation"),
        Item("ComputeSP:1yrNoUpfront", 1.0, 0.06, "SavingsPlanRecurringFee", "ComputeSavingsPlans"),
    ]
    invoice = read_invoice([legacy(tmp_path / "c.csv", items)], MAY, MAY + HOUR)
    assert (invoice.charges[C5].amount, invoice.charges[C5].usd) == (1.0, 0.085)
    assert invoice.charges[COMMITMENTS].usd == pytest.approx(0.06 - 0.085)


def test_a_reservation_is_shown_in_the_same_way(tmp_path: Path) -> None:
    """Its hours cost nothing in the report and count at list price here; `commitments` is less by the same amount."""
    items = [
        Item(amount=1.0, cost=0.0, item_type="DiscountedUsage", list_cost=0.085),
        Item("HeavyUsage:c5.large", 744.0, 0.055 * 744, "RIFee", end_s=MAY + 744 * HOUR),
        Item(amount=1.0, cost=0.08),
    ]
    invoice = read_invoice([legacy(tmp_path / "c.csv", items)], MAY, MAY + HOUR)
    assert invoice.charges[C5].amount == 2.0
    assert invoice.charges[C5].usd == pytest.approx(0.165)
    assert invoice.charges[COMMITMENTS].usd == pytest.approx(0.055 - 0.085)
    assert invoice.usd == pytest.approx(0.055 + 0.08)
    # The price paid for use is the other hour's.
    assert invoice.charges[C5].rated_usd / invoice.charges[C5].rated_amount == pytest.approx(0.08)


def test_a_tag_separates_what_is_covered_from_its_fees(tmp_path: Path) -> None:
    items = [
        Item(item_type="DiscountedUsage", cost=0.0, list_cost=0.085, tags={"a": "b"}),
        Item("HeavyUsage:c5.large", 1.0, 0.055, "RIFee"),
    ]
    path = legacy(tmp_path / "c.csv", items)
    assert read_invoice([path], MAY, MAY + HOUR).notes == ()
    tagged = read_invoice([path], MAY, MAY + HOUR, tags=[("a", "b")])
    assert tagged.notes == ("fees carry no tags: use covered by reservations and plans stands here without its fee",)
    assert tagged.outside_selection_usd == 0.055


def test_a_private_discount_lowers_the_price_of_what_it_discounts(tmp_path: Path) -> None:
    items = [Item(amount=10.0, cost=0.85), Item(amount=10.0, cost=-0.085, item_type="EdpDiscount")]
    charge = read_invoice([cur2(tmp_path / "c.csv", items)], MAY, MAY + HOUR).charges[C5]
    assert charge.amount == charge.rated_amount == 10.0
    assert charge.rated_usd == pytest.approx(0.765)


def test_a_folder_is_read_with_its_subfolders(tmp_path: Path) -> None:
    legacy(tmp_path / "20260501-20260601" / "cur-1.csv.gz", ITEMS[:10])
    legacy(tmp_path / "20260501-20260601" / "cur-2.csv.gz", ITEMS[10:])
    legacy(tmp_path / "empty.csv", [])
    (tmp_path / "cur-Manifest.json").write_text("{}")
    invoice = read_invoice([str(tmp_path)], MAY, MAY + DAY)
    assert (invoice.files, invoice.rows) == (3, len(ITEMS))


def test_parts_in_parquet_are_one_report(tmp_path: Path) -> None:
    parquet(tmp_path / "BILLING_PERIOD=2026-05" / "export-00001.snappy.parquet", ITEMS[:10])
    parquet(tmp_path / "BILLING_PERIOD=2026-05" / "export-00002.snappy.parquet", [*ITEMS[10:], ITEMS[0]])
    invoice = read_invoice([str(tmp_path)], MAY, MAY + DAY)
    assert invoice.charges[C5].usd == pytest.approx(25 * 0.17)


@pytest.mark.parametrize("ending", ["zip", "csv.zip"])
def test_archives_in_a_folder_are_parts_of_a_report(tmp_path: Path, ending: str) -> None:
    for part, items in enumerate((ITEMS[:10], ITEMS[10:]), 1):
        report = Path(legacy(tmp_path / "report.csv", items))
        with zipfile.ZipFile(tmp_path / f"cur-{part}.{ending}", "w") as archive:
            archive.write(report, "cur.csv")
        report.unlink()
    assert read_invoice([str(tmp_path)], MAY, MAY + DAY).charges[C5].usd == pytest.approx(24 * 0.17)
    with zipfile.ZipFile(tmp_path / f"cur-2.{ending}", "a") as archive:
        archive.writestr("other.csv", "")
    with pytest.raises(BadInput, match=r"cur-2.*zip: a zip archive of several files.*unpack it"):
        read_invoice([str(tmp_path)], MAY, MAY + DAY)


@pytest.mark.parametrize("region", ["USE2", "EU", "APS10", "USE1-USW2"])
def test_regions_are_no_part_of_a_type(tmp_path: Path, region: str) -> None:
    path = cur2(tmp_path / "cur.csv", [Item(f"{region}-BoxUsage:c5.large")])
    assert set(read_invoice([path], MAY, MAY + HOUR).charges) == {C5}


def of_account(items: Sequence[Item], account: str) -> list[Item]:
    return [replace(item, account=account) for item in items]


def of_days(items: Sequence[Item], days: int) -> list[Item]:
    return [replace(item, start_s=item.start_s + k * DAY) for k in range(days) for item in items]


HOURS = ITEMS[:-1]  # the tax is the month's
PAYER = [*of_account(HOURS, "111"), *of_account(ITEMS, "222")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("a/cur.csv", legacy, ITEMS), ("b/export.csv", cur2, ITEMS), id="a legacy and a new export"),
        pytest.param(("cur.csv", legacy, ITEMS), ("cur (1).csv", legacy, ITEMS), id="a second download"),
        pytest.param(("cur.csv", legacy, ITEMS), ("cur.csv.gz", legacy, ITEMS), id="a file and its compressed copy"),
        pytest.param(("cur-1.csv", legacy, ITEMS), ("cur-2.csv", legacy, ITEMS), id="a copy named like a part"),
        pytest.param(
            ("h.csv", legacy, ITEMS),
            ("d.csv", legacy, [replace(ITEMS[0], amount=48.0, cost=4.08, end_s=MAY + DAY), *ITEMS[24:]]),
            id="by hour and by day",
        ),
        pytest.param(
            ("h.csv", legacy, ITEMS),
            ("m.csv", legacy, [replace(ITEMS[0], amount=48.0, cost=4.08, end_s=MAY + 31 * DAY), *ITEMS[24:]]),
            id="by hour and by month",
        ),
        pytest.param(
            ("all.csv", legacy, ITEMS),
            ("ids.csv", legacy, [replace(i, amount=1.0, cost=0.085) for i in ITEMS[:24] for _ in range(2)]),
            id="with every instance on a line of its own",
        ),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_what_two_reports_have_counts_once(
    tmp_path: Path, first: tuple[str, Writer, list[Item]], second: tuple[str, Writer, list[Item]], swapped: bool
) -> None:
    for name, write, items in (first, second):
        write(tmp_path / name, items)
    names = [str(tmp_path / name) for name, _, _ in (first, second)]
    alone = read_invoice([names[0]], MAY, MAY + DAY)
    both = read_invoice(names[::-1] if swapped else names, MAY, MAY + DAY)
    assert both.usd == pytest.approx(alone.usd)
    assert both.charges[C5].amount == pytest.approx(48.0)
    assert both.total_usd == pytest.approx(alone.total_usd)
    assert "count" in both.notes[-1]
    assert "once" in both.notes[-1]


def test_a_payers_report_has_what_its_members_reports_have(tmp_path: Path) -> None:
    payer = legacy(tmp_path / "payer" / "cur-1.csv", PAYER)
    member = legacy(tmp_path / "member" / "cur-1.csv", of_account(ITEMS, "222"))
    alone, both = (read_invoice(paths, MAY, MAY + DAY) for paths in ([payer], [payer, member]))
    assert both.charges[C5].amount == alone.charges[C5].amount == 96.0
    assert both.usd == pytest.approx(alone.usd)
    assert both.rows == alone.rows
    assert alone.notes == ("the invoice is of 2 accounts, all of which count: 111, 222",)


def test_two_accounts_that_run_the_same_are_two(tmp_path: Path) -> None:
    paths = [legacy(tmp_path / f"{name}.csv", of_account(ITEMS, name)) for name in ("111", "222")]
    assert read_invoice(paths, MAY, MAY + DAY).charges[C5].amount == 96.0


def test_days_that_one_report_has_beyond_the_other_count(tmp_path: Path) -> None:
    """An older version of a report ends at the time when it was made."""
    old = legacy(tmp_path / "old" / "cur-1.csv", of_days(HOURS, 2))
    new = legacy(tmp_path / "new" / "cur-1.csv", of_days(HOURS, 3))
    assert read_invoice([old, new], MAY, MAY + 3 * DAY).charges[C5].amount == 3 * 48.0


def test_reports_of_other_things_or_months_add_up(tmp_path: Path) -> None:
    legacy(tmp_path / "ec2.csv", ITEMS[:24])
    legacy(tmp_path / "rest.csv", ITEMS[24:])
    legacy(tmp_path / "june.csv", [replace(ITEMS[0], start_s=MAY + 31 * DAY)])
    invoice = read_invoice([str(tmp_path)], MAY, MAY + DAY)
    assert (invoice.charges[C5].amount, invoice.rows, invoice.notes) == (48.0, len(ITEMS) + 1, ())
    assert invoice.outside_period_usd == pytest.approx(0.17 + 0.5 * (1.0 - DAY / (31 * DAY - 1.0)))


def test_reports_that_differ_are_refused(tmp_path: Path) -> None:
    """They may be an older version, or two partial exports: the files do not tell which is right."""
    legacy(tmp_path / "aaa" / "cur-1.csv", ITEMS)
    legacy(tmp_path / "bbb" / "cur-1.csv", [replace(ITEMS[0], amount=7.0, cost=1.0), *ITEMS[1:]])
    said = r"both have c5.large on-demand of 2026-05-01 and differ \(\$4.08, \$4.91\): leave out the older"
    with pytest.raises(BadInput, match=said):
        read_invoice([str(tmp_path)], MAY, MAY + DAY)
    # It does not matter for another period.
    legacy(tmp_path / "june.csv", [replace(ITEMS[0], start_s=MAY + 31 * DAY)])
    assert read_invoice([str(tmp_path)], MAY + 31 * DAY, MAY + 32 * DAY).usd == pytest.approx(0.17)


def test_halves_of_a_day_that_cost_the_same_are_refused(tmp_path: Path) -> None:
    """A constant fleet costs the same in the morning and in the afternoon, so equal dollars prove nothing."""
    legacy(tmp_path / "morning.csv", ITEMS[:12])
    legacy(tmp_path / "afternoon.csv", ITEMS[12:24])
    with pytest.raises(BadInput, match=r"both have c5.large on-demand of 2026-05-01 and are of different hours"):
        read_invoice([str(tmp_path)], MAY, MAY + DAY)


def test_parts_that_share_line_items_are_two_reports(tmp_path: Path) -> None:
    items = [replace(item, identity=f"id{n}") for n, item in enumerate(ITEMS)]
    legacy(tmp_path / "cur-1.csv", items)
    legacy(tmp_path / "cur-2.csv", [*items, replace(items[0], identity="new", start_s=MAY + DAY)])
    assert read_invoice([str(tmp_path)], MAY, MAY + 2 * DAY).charges[C5].amount == 50.0


@pytest.mark.parametrize("write", [legacy, cur2, focus])
def test_a_report_that_stands_twice_in_one_file_is_refused(tmp_path: Path, write: Writer) -> None:
    items = [replace(item, identity=f"id{n}") for n, item in enumerate(ITEMS)]
    path = Path(write(tmp_path / "cur.csv", items))
    head, _, rows = path.read_text().partition("\n")
    path.write_text(f"{head}\n{rows}{rows}")
    with pytest.raises(BadInput, match=rf"cur.csv:{len(items) + 2} line item: stands above already.*id0"):
        read_invoice([str(path)], MAY, MAY + DAY)


def test_copied_part_of_a_long_report_is_refused(tmp_path: Path) -> None:
    path = Path(focus(tmp_path / "focus.csv", [Item(identity=f"id{n}") for n in range(1200)]))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, *lines[-100:]]))
    with pytest.raises(BadInput, match=r"focus.csv:1202 line item: stands above already"):
        read_invoice([str(path)], MAY, MAY + DAY)


def test_a_report_without_a_last_line_feed_may_be_cut(tmp_path: Path) -> None:
    path = Path(legacy(tmp_path / "cur.csv", [Item()]))
    path.write_text(path.read_text().rstrip("\n"))
    assert "rows may be missing in" in read_invoice([str(path)], MAY, MAY + HOUR).notes[-1]


def test_covered_use_without_a_list_price_is_said(tmp_path: Path) -> None:
    path = legacy(tmp_path / "cur.csv", [Item(item_type="DiscountedUsage", cost=0.0)])
    assert "counts as $0" in read_invoice([path], MAY, MAY + HOUR).notes[-1]


def test_use_that_does_not_cover_the_period_is_said(tmp_path: Path) -> None:
    invoice = read_invoice([legacy(tmp_path / "c.csv", ITEMS)], MAY, MAY + 2 * DAY)
    assert invoice.notes == (
        "the invoice has use from 2026-05-01T00:00Z to 2026-05-02T00:00Z only, and the trace is of "
        "2026-05-01T00:00Z to 2026-05-03T00:00Z",
    )
    taxes = read_invoice([legacy(tmp_path / "t.csv", ITEMS[-1:])], MAY, MAY + DAY)
    assert taxes.notes == ("the invoice has no use at all, only fees, taxes and credits",)


def test_instances_that_are_no_plain_linux_are_said(tmp_path: Path) -> None:
    invoice = read_invoice([legacy(tmp_path / "c.csv", [Item(operation="RunInstances:0002")])], MAY, MAY + HOUR)
    assert invoice.notes == ("not plain Linux, and simulated as if it were: RunInstances:0002",)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([Item(start_s=MAY - 9 * DAY)], "no line item in the trace's period; use is from 2026-04-22T00:00Z"),
        ([Item("", "", 1.0, "Tax", start_s=MAY - 9 * DAY)], "no line item in the trace's period: 2026-05-01T00:00Z"),
        ([], "headers and no line items"),
        ([Item(), Item(currency="CNY")], r"c.csv:3 currency: mark's prices are US dollars: CNY"),
        ([Item(cost="a lot")], "c.csv:2 lineItem/UnblendedCost: must be a finite number: a lot"),
        ([Item(cost="NaN")], "must be a finite number: NaN"),
        ([Item(), Item(cost="")], "c.csv:3 lineItem/UnblendedCost: is blank beside use"),
        ([Item(), Item(cost="-0.085")], "c.csv:3 lineItem/UnblendedCost: is negative beside use"),
        ([Item(amount="1e400")], "UsageAmount: must be a finite number"),
        ([Item(start_s=-1e9)], "must be a time like 2026-05-01T00:00:00Z: 1938-04-24T22:13:20Z"),
        ([Item(end_s=MAY - 1.0)], "ends before it starts"),
    ],
)
def test_items_that_cannot_be_used_are_named(tmp_path: Path, items: list[Item], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_invoice([legacy(tmp_path / "c.csv", items)], MAY, MAY + HOUR)


def test_a_row_of_totals_is_refused(tmp_path: Path) -> None:
    total = Item("", "", 0.17, item_type="", product="", end_s=MAY + 31 * DAY)
    with pytest.raises(BadInput, match=r"c.csv:4 lineItem/LineItemType: names no use .*: a row of totals\? Delete it"):
        read_invoice([legacy(tmp_path / "c.csv", [Item(), Item(start_s=MAY + HOUR), total])], MAY, MAY + HOUR)


@pytest.mark.parametrize(("end_s", "said"), [(MAY + 31 * DAY, True), (MAY + 2 * DAY, True), (MAY + DAY, False)])
def test_shares_of_long_items_are_said(tmp_path: Path, end_s: float, said: bool) -> None:
    invoice = read_invoice([legacy(tmp_path / "c.csv", [Item(cost=31.0, end_s=end_s)])], MAY, MAY + DAY)
    share = DAY / (end_s - MAY)
    expected = [f"${31.0 * share:.2f} of the invoice are shares of use longer than a day"] if said else []
    assert [note.partition(", by")[0] for note in invoice.notes if "shares of use" in note] == expected


HEADER = b"lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/ProductCode,lineItem/UsageType,"
HEADER += b"lineItem/LineItemType,lineItem/UsageAmount,lineItem/UnblendedCost\n"
ROW = b"2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,AmazonEC2,BoxUsage:c5.large,Usage,1,0.085\n"


def test_the_fewest_columns_will_do(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(HEADER + ROW)
    assert read_invoice([str(path)], MAY, MAY + HOUR).usd == 0.085


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"t_seconds,count\n0,1\n", "c.csv:1: no bill of AWS as CSV; known are cost and usage report, FOCUS export, "),
        (HEADER + b"yesterday" + ROW[20:], "c.csv:2 lineItem/UsageStartDate: must be a time like"),
        (HEADER + ROW[:30], "c.csv:2: 2 cells under a header of 7"),
        (HEADER + b'"unended\n', "is no CSV"),
        (HEADER + ROW.replace(b"EC2", b"\xff"), "is no UTF-8 text"),
        (b"PK\3\4\0\0", "the zip archive is truncated or corrupt"),
        (b"PAR1\0", "the Parquet file cannot be read"),
        (gzip.compress(HEADER + ROW * 99, mtime=0)[:-9], "truncated"),
    ],
)
def test_files_that_are_no_reports_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said):
        read_invoice([str(path)], MAY, MAY + HOUR)


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    """Its index, at the end, is whole."""
    parquet(path := tmp_path / "c.parquet", ITEMS)
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes(len(data) // 4) + data[40 + len(data) // 4 :])
    with pytest.raises(BadInput, match="the Parquet file cannot be read"):
        read_invoice([str(path)], MAY, MAY + DAY)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be opened"):
        read_invoice([str(tmp_path / "no.csv")], MAY, MAY + HOUR)
    with pytest.raises(BadInput, match=r"no .csv, .csv.gz, .zip or .parquet files"):
        read_invoice([str(tmp_path)], MAY, MAY + HOUR)


def test_tags_that_are_no_map_are_refused(tmp_path: Path) -> None:
    path = Path(cur2(tmp_path / "c.csv", [Item(tags={"a": "b"})]))
    path.write_text(path.read_text().replace('{""user_a"": ""b""}', "user_a=b"))
    with pytest.raises(BadInput, match="must be a map of tags"):
        read_invoice([str(path)], MAY, MAY + HOUR, tags=[("a", "b")])


@given(st.integers(0, 700), st.binary(min_size=1, max_size=6))
def test_a_damaged_report_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, damage: bytes) -> None:
    """The only error is BadInput, wherever the damage is."""
    path = Path(cur2(tmp_path_factory.mktemp("cur") / "c.csv", [Item(tags={"a": "b"}), Item()]))
    content = path.read_bytes()
    path.write_bytes(content[:at] + damage + content[at + len(damage) :])
    with suppress(BadInput):
        read_invoice([str(path)], MAY, MAY + HOUR, tags=[("a", "b")])
