"""`mark simulate --keys`: instances see only the requests that the cache does not answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mark.cli.main import main

Captured = pytest.CaptureFixture[str]
SERVICE = """[service]
name = "cached"
model = "net"
slo_ms = 200
slo_attainment = 0.99
profile = "net.csv"
[fleet]
instances = ["c7i.large"]
markets = ["on-demand"]
"""
RUN = ("simulate", "synthetic:poisson?rate=40", "--service", "s.toml", "--duration", "120", "--policy", "reactive")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(f"{SERVICE}[cache]\nmemory_mb = 1\n")
    Path("net.csv").write_text("model,instance,batch,latency_ms,basis\nnet,c7i.large,1,10,measured\n")


def test_instances_see_the_misses_and_the_answer_says_so(capsys: Captured) -> None:
    assert main([*RUN, "--no-bound", "--json", "all.json"]) == 0
    capsys.readouterr()
    assert main([*RUN, "--no-bound", "--json", "misses.json", "--keys", "zipf:1.1,100000,600"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    everything, misses = (json.loads(Path(name).read_text()) for name in ("all.json", "misses.json"))

    assert "cache" not in everything
    assert misses["cache"] == {"hit_share": pytest.approx(0.733, abs=0.01), "answers_kept": 1000}
    assert misses["requests"]["total"] == pytest.approx(0.267 * everything["requests"]["total"], rel=0.1)
    assert "a cache of 1,000 answers in each process gives 73.3 % of all requests" in out


def test_keys_without_a_cache_and_keys_that_cannot_be_are_one_line(capsys: Captured) -> None:
    assert main([*RUN, "--keys", "zipf:1.1"]) == 2
    assert "--keys: must be zipf:EXPONENT,KEYS" in capsys.readouterr().err
    Path("s.toml").write_text(SERVICE)
    assert main([*RUN, "--keys", "zipf:1.1,1e6"]) == 2
    assert "--keys: needs a section [cache]" in capsys.readouterr().err
