"""Two small pipelines for tests of commands, one of them with a driver, and the commands' results on them."""

from __future__ import annotations

import json

import pytest

from mark.cli.main import main

Captured = pytest.CaptureFixture[str]

FILE = """
[service]
name = "two"
slo_ms = 100
slo_attainment = 0.95
profile = "two.csv"
[fleet]
instances = ["c7i.large", "c7i.xlarge"]
[packs]
allow = "separate"
[stage.first]
model = "one"
[stage.second]
model = "other"
after = ["first"]
share = 0.5
"""
PROFILE = """\
model,instance,batch,latency_ms,workers
one,c7i.large,1,20,2
other,c7i.large,1,40,2
other,c7i.xlarge,1,10,1
two_of_test:double,c7i.large,1,20,2
two_of_test:halve,c7i.large,1,30,2
"""
DRIVER_FILE = """
[service]
name = "traced"
slo_ms = 100
slo_attainment = 0.95
profile = "two.csv"
pipeline = "two_of_test:respond"
[fleet]
instances = ["c7i.large"]
[stage.twice]
model = "two_of_test:double"
[stage.half]
model = "two_of_test:halve"
"""
CODE = """
import mark

@mark.pipeline(slo_ms=100)
async def respond(query, models):
    print("a word of the driver's")
    found = await models.twice(query)
    return await models.half(found) if found > 2 else found

@mark.model
def double(batch):
    return [2 * one for one in batch]

@mark.model
def halve(batch):
    return [one / 2 for one in batch]
"""
# a steady query every 0.1 s
TRACE = "t_seconds\n" + "".join(f"{n / 10:.1f}\n" for n in range(1200))


def planned(argv: list[str], capsys: Captured) -> dict:  # type: ignore[type-arg]
    assert main([*argv, "--json", "-"]) == 0
    found: dict = json.loads(capsys.readouterr().out)  # type: ignore[type-arg]
    return found


def refused(argv: list[str], said: str, capsys: Captured, code: int = 2) -> None:
    assert main(argv) == code
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("mark: error: ")
    assert said in lines[0]
    assert captured.out == ""
