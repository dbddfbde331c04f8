"""The parts of the testbed's comparison with the simulator that need no testbed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.traffic.traces.reader import open_trace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fidelity"))

import fidelity
import fidelity_faults
import fidelity_testbed

ARGS = argparse.Namespace(
    start=7200.0, lead=120.0, settle=60.0, calm=120.0, faulty=60.0, scale=2.0, history=0.0501, recovery=30.0,
    predictor="last-value",
)  # fmt: skip


def part(*requests: tuple[float, float, bool]) -> fidelity.Part:
    return fidelity.Part(*(np.array(column) for column in zip(*requests, strict=True)))


def world(one: fidelity.Part) -> fidelity.World:
    """A dollar a minute from a minute before the load on."""
    t_s = np.arange(-60.0, 241.0, 60.0)
    return fidelity.World(one, t_s, 1.0 + t_s / 60.0, np.full(len(t_s), 2.0), [])


def look(at_unix_s: float, usd: float) -> tuple[float, dict[str, object]]:
    bill = dict.fromkeys(fidelity.MARKETS, 0.0) | {"spot": usd}
    return at_unix_s, {"bill_usd": bill, "fleet": [{"service": "words", "state": "running"}]}


def test_history_a_gap_and_the_load(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t_seconds,count\n" + "".join(f"{60 * n},{n}\n" for n in range(200)))
    made = fidelity_testbed.cut(argparse.Namespace(**vars(ARGS), trace=trace), tmp_path)
    lines = [line.split(",") for line in made.file.read_text().splitlines()[1:]]
    rows = {float(at_s): float(count) for at_s, count in lines}
    assert made.begin_s == 72 * 60.0 + 120.0  # whole minutes
    wanted = {t for t in np.arange(0.0, made.begin_s + 240.0, 60.0) if not made.begin_s - 120.0 <= t < made.begin_s}
    assert set(rows) == wanted
    assert rows[made.begin_s] == 2.0 * 120  # minute 120, scaled
    assert open_trace(str(made.file)).gaps == ((made.begin_s - 120.0, made.begin_s),)
    assert open_trace(str(made.history)).duration_s == made.begin_s - 120.0


def test_the_same_seconds_are_compared() -> None:
    requests = [(30.0, 9.0, True), *((60.0 + t, 0.1 + t / 1000, t < 12) for t in range(120)), (200.0, 9.0, True)]
    slower = [(at_s, 1.04 * latency_s, at_s < 75.0) for at_s, latency_s, _ in requests]
    # Looks are not quite when they should be: dollars are compared between them.
    looks = [look(1000.0 + at_s, 1.01 * at_s / 60.0) for at_s in (0.0, 61.0, 120.0, 182.0, 240.0)]
    rows = fidelity.compared(
        {"words": part(*slower)}, {"words": world(part(*requests))}, looks, {"words": 1000.0}, ARGS
    )
    found = {r["what"]: r for r in rows}
    assert found["bill"]["simulated"] == pytest.approx(121.0 / 60.0)
    assert found["bill"]["off"] == pytest.approx(0.01)
    assert [found["p50"]["off"], found["p99"]["off"]] == pytest.approx([0.04, 0.04])
    assert found["p99"]["simulated"] == pytest.approx(1e3 * np.quantile(0.1 + np.arange(120) / 1000, 0.99))
    assert found["overflow"]["off"] == pytest.approx(3 / 120)
    assert [r["kept"] for r in rows] == [True, True, True, False]
    assert "| words | overflow | 0.1000 | 0.1250 | +2.5 points | 2 |" in fidelity.table(rows)
    text = fidelity.minutes({"words": part(*slower)}, {"words": world(part(*requests))}, looks, {"words": 1000.0}, ARGS)
    assert len(text.splitlines()) == 2 + 3
    assert "| 2 | 2 / 1 | 130 / 135 | 20.0 / 25.0 |" in text


def test_what_is_late_after_a_fault_does_not_count() -> None:
    rows = [
        {"request_id": str(at_s), "due_s": str(at_s), "answered_s": str(at_s + late_s), "status": status}
        for at_s, late_s, status in ((59.0, 9.0, "200"), (60.0, 0.1, "200"), (99.0, 0.1, "503"), (101.0, 9.0, "200"),
                                     (129.0, 9.0, "200"), (131.0, 0.1, "200"))
    ]  # fmt: skip
    told = {"began_unix_s": 1000.0, "slo": {"rt_max_ms": 200.0}}
    assert fidelity_faults.outside_faults(rows, told, [(1100.0, "a fault")], ARGS) == (3, pytest.approx(2 / 3))


def test_answers_are_counted_in_the_logs_of_all_bouncers(tmp_path: Path) -> None:
    logs = tmp_path / ".mark-testbed" / "logs"
    logs.mkdir(parents=True)
    good, bad = ({"request_id": "a", "status": status} for status in (200, 503))
    (logs / "i-1.log").write_text(f"ready\n{json.dumps(good)}\n{json.dumps(bad)}\n")
    (logs / "i-2.log").write_text(f"{json.dumps(good)}\n")
    assert fidelity_faults.answered_in_logs(tmp_path) == {"a": 2}


@pytest.mark.parametrize("name", fidelity_testbed.SERVICES)
def test_the_services_are_there(name: str) -> None:
    service = load_service(str(fidelity_testbed.SERVICES[name]))
    assert (service.name, service.functions != ()) == (name, True)
