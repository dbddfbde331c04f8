"""A selection on the testbed with two conductors, which learn together and survive each other's end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import uvloop

from tests.infra.testbed.real_processes import processes_of, wait_for
from tests.infra.testbed.selection_kills import killed_under_feedback, write_selection
from tests.infra.testbed.test_daemon import CATALOG, here, status


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    write_selection(tmp_path)
    (tmp_path / "catalog.csv").write_text(CATALOG)
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()
    psutil.wait_procs(processes_of(tmp_path), timeout=60)


@pytest.mark.acceptance
def test_conductors_lose_and_double_no_fact_when_one_is_killed(folder: Path) -> None:
    done = here("up", "pick.toml", "--seed", "1", "--history", "synthetic:poisson?rate=20")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: all(one["url"] for one in status()["conductors"].values()), "two conductors")
    assert status()["pipelines"]["pick"] not in [one["url"] for one in status()["conductors"].values()]
    assert sorted(status()["conductors"]) == ["pick-0", "pick-1"]
    found = uvloop.run(killed_under_feedback(status, kills=3, rate=20.0, seed=1))
    assert found.kills == 3
    assert found.results["applied"] > 100
    assert (found.lost, found.doubled, found.off) == (0, 0, [])
    assert found.results["never answered"] == 0
    assert len(set(found.facts)) == 1, "each conductor has the facts of both"
    assert found.failed.total() <= 3, "the other conductor answers"
    assert here("down").returncode == 0
    assert processes_of(folder) == []
