"""Many runs on several processes."""

from __future__ import annotations

import dataclasses

import pytest

from mark.domain.errors import BadInput
from mark.planning.policies.names import split_policy
from mark.simulation.request import RunRequest
from mark.studies.compare import compare, run_all
from mark.studies.executor import ProcessExecutor

REQUEST = RunRequest(
    trace="synthetic:poisson?rate=20",
    service="inception-v3",
    start_s=1800.0,
    duration_s=300.0,
    policy="mark-paper",
    predictor="seasonal-naive",  # without the imports of `auto`, workers start sooner
)


def test_two_processes_give_what_one_gives() -> None:
    """Results come in the order of the requests and do not depend on where they were made."""
    requests = [dataclasses.replace(REQUEST, seed=seed) for seed in range(3)]
    shares: list[float] = []
    alone = run_all(requests)
    spread = run_all(requests, executor=ProcessExecutor(2), progress=shares.append)
    assert [r.as_json() | {"speed": None} for r in alone] == [r.as_json() | {"speed": None} for r in spread]
    assert shares == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]


@pytest.mark.slow
def test_bad_input_of_a_worker_reaches_the_caller() -> None:
    """An error in another process is the same one line."""
    requests = [REQUEST, dataclasses.replace(REQUEST, trace="synthetic:nonsense")]
    with pytest.raises(BadInput, match="nonsense"):
        run_all(requests, executor=ProcessExecutor(2))


def test_names_are_checked_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="nonsense"):
        compare(REQUEST, ("mark", "nonsense"))
    with pytest.raises(BadInput, match="nonsense"):
        compare(REQUEST, ("mark:nonsense",))
    with pytest.raises(BadInput, match="twice"):
        compare(REQUEST, ("mark", "mark"))


def test_a_policy_name_may_carry_its_predictor() -> None:
    assert split_policy("mark-paper:artefact", "auto") == ("mark-paper", "artefact")
    assert split_policy("mark", "auto") == ("mark", "auto")
    assert split_policy("fixed:c5.xlarge=3", "auto") == ("fixed:c5.xlarge=3", "auto")
