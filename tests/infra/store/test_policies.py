"""Every value that a controller puts, with every policy, comes back exactly as it was."""

from __future__ import annotations

from typing import Any

import pytest
from mark_infra.store.codec import decode, encode

import mark.simulation.run as simulation
from mark.control.memory_store import MemoryStore
from mark.simulation.request import RunRequest, Sensitivity
from mark.simulation.run import simulate
from tests.infra.store.test_codec import same
from tests.samples import first

POLICIES = (
    "mark",
    "greedy",
    "mark-paper",
    "mark-optimal",
    "target-tracking",
    "reactive",
    "static-mean",
    "fixed:c5.large=12",
)


class CodecStore(MemoryStore):
    """A store in memory that encodes its values as the real ones do."""

    kept: dict[str, Any]  # shared by all stores of a test

    def put(self, key: str, value: Any) -> None:
        back = decode(encode(value))
        assert same(back, value), f"{key} changed"
        self.kept[key] = back
        super().put(key, back)


@pytest.mark.parametrize(
    ("policy", "service"),
    first(3, [*((policy, "inception-v3") for policy in POLICIES), ("mark", "opennmt-ende")], slow=1),
)
def test_a_policys_memory_comes_back(policy: str, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run has twenty minutes with interrupted spot, burstables, standbys and refusals.

    OpenNMT's functions are slower than RT_max, so `mark` compares its plans with fixed fleets there.
    """
    monkeypatch.setattr(CodecStore, "kept", {}, raising=False)
    monkeypatch.setattr(simulation, "MemoryStore", CodecStore)  # the simulation makes its own store
    simulate(
        RunRequest(
            trace="synthetic:poisson?rate=150",
            service=service,
            policy=policy,
            predictor="seasonal-naive",
            markets=("on-demand", "spot", "burstable"),
            duration_s=1200.0,
            sensitivity=Sensitivity(interruptions=30_000.0),
            with_bound=False,
        )
    )
    state = CodecStore.kept["state"]
    assert None not in (state.plan, state.window)
    assert (state.memory is None) == (policy in ("static-mean", "fixed:c5.large=12"))
    if policy == "mark":
        assert (state.memory.past is None) == (service == "inception-v3")
    assert state.beliefs or policy not in ("mark", "mark-paper", "mark-optimal")
