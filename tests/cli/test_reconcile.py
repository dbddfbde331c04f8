"""mark reconcile end to end: a table, an object, a page; errors are one line and exit 2."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mark.cli.main import main
from mark.cloud.billing.line_items import parse_time
from mark.config.new_service import new_service
from tests.traffic.traces.cur import HOUR, MAY, Item, cur2
from tests.traffic.traces.files import alb_line

Captured = pytest.CaptureFixture[str]
SERVE = ("--service", "inception-v3", "--predictor", "seasonal-naive", "--duration", "3600")
BEGAN = ("--began", "2026-05-01T00:00Z")
TRACE = "synthetic:poisson?rate=20"


@pytest.fixture
def bill(tmp_path: Path) -> str:
    items = [
        Item("BoxUsage:c5.xlarge", 4.0, 0.68, tags={"mark:service": "inception"}),
        Item("BoxUsage:m5.xlarge", 2.0, 0.4),
        Item("NatGateway-Hours", 1.0, 0.045),
    ]
    return cur2(tmp_path / "cur.csv.gz", items)


def test_the_table_the_words_and_the_object(bill: str, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "r.json"
    tag = ("--tag", "mark:service=inception", "--policies", "mark,reactive", "--json", str(out))
    assert main(["reconcile", TRACE, *SERVE, *BEGAN, "--bill", bill, *tag]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "fixed:c5.xlarge=4 at the catalogue's prices" in words
    assert "The simulator explains 100.0 % of the $0.68 that were used" in words
    assert "mark would have paid" in words
    assert "$0.45 not selected by --tag, --instances" in words
    data = json.loads(out.read_text())
    assert data["explained"] == pytest.approx(1.0)
    assert data["policy"] == "fixed:c5.xlarge=4"
    assert list(data["policies"]) == ["fixed:c5.xlarge=4", "mark", "reactive"]
    assert data["invoice"]["outside_selection_usd"] == pytest.approx(0.445)


def test_the_page_and_a_missed_promise(bill: str, tmp_path: Path, capsys: Captured) -> None:
    page, few = tmp_path / "r.html", "fixed:c5.large=1"
    asked = ("--policy", few, "--policies", few, "--report", str(page), "--fail-below-slo", "--instances", "c5.*")
    assert main(["reconcile", TRACE, *SERVE, *BEGAN, "--bill", bill, *asked]) == 4
    assert few in page.read_text()
    out = capsys.readouterr().out
    assert "Not simulated: AmazonEC2 NatGateway-Hours $0.045." in out
    assert "would have paid" not in out


def test_the_command_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Its files are a folder of ALB logs, a service file with [policy], and a folder of reports of the same hour."""
    page = Path(__file__).parents[2] / "docs" / "reconcile.md"
    command = next(line.strip() for line in page.read_text().splitlines() if line.startswith("    mark reconcile"))
    monkeypatch.chdir(tmp_path)
    Path("my-access-logs").mkdir()
    Path("my-access-logs/a.log").write_text("".join(alb_line(k / 4.0) for k in range(4 * 3600)))
    Path("mine.toml").write_text(
        new_service("inception-v3") + '[policy]\nkind = "fixed"\ninstance = "c5.large"\nmin = 2\n'
    )
    began_s = parse_time("2018-07-02T22:00:00Z")
    cur2(
        Path("cur/2018-07/cur-1.csv.gz"),
        [Item(amount=2.0, cost=0.17, start_s=began_s, tags={"mark:service": "inception"})],
    )
    assert main(shlex.split(command)[1:]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("read 14,400 requests in 60 minutes, 4/s; ALB access log ")
    assert "The simulator explains 100.0 % of the $0.17 that were used" in words
    assert "mark would have paid $" in words


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "--bill"),
        (("--bill", "{bill}"), "--began: say when its first row was"),
        (("--bill", "{bill}", "--began", "May"), "--began: must be a time like 2026-05-01T00:00Z, not 'May'"),
        (("--bill", "{bill}", "--began", "2026-06-01"), "no line item in the trace's period; use is from 2026-05-01"),
        (("--bill", "{bill}", *BEGAN, "--tag", "mark:service"), "must be field=value"),
        (("--bill", "{bill}", *BEGAN, "--tag", "a=b"), "fits --tag and --instances"),
        (("--bill", "{bill}", *BEGAN, "--instances", ","), "names no type"),
        (("--bill", "{bill}", *BEGAN, "--prices", "mine"), "mine"),
        (("--bill", "{bill}", *BEGAN, "--policy", "as-is"), "the policy as-is needs a section [policy]"),
        (("--bill", "{bill}", *BEGAN, "--instances", "c5.*", "--policies", "absent"), "policy: unknown"),
        (("--bill", "no-such.csv", *BEGAN), "no-such.csv: cannot be opened"),
        (("--bill", __file__, *BEGAN), "no bill of AWS"),
    ],
)
def test_what_is_wrong_is_one_line(argv: tuple[str, ...], said: str, bill: str, capsys: Captured) -> None:
    given = [part.replace("{bill}", bill) for part in argv]
    assert main(["reconcile", TRACE, *SERVE, *given]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_invoice_that_is_not_constant_asks_for_the_policy(tmp_path: Path, capsys: Captured) -> None:
    items = [Item("BoxUsage:c5.xlarge", 4.0, 0.68, end_s=MAY + 0.5 * HOUR)]
    bill = cur2(tmp_path / "cur.csv", items)
    assert main(["reconcile", TRACE, *SERVE, *BEGAN, "--bill", bill]) == 2
    err = capsys.readouterr().err
    assert "[policy]: state today's fleet" in err
    assert "c5.xlarge 0 to 8" in err


def test_its_options_stand_in_the_usage(capsys: Captured) -> None:
    assert main(["reconcile", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in ("--bill", "--began", "--tag", "--instances", "--prices", "--policies", "--service", "--json"):
        assert option in shown
