"""The processes of `benchmarks/insured_sockets.py` serve, and reconstruct answers that are delayed on their way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import insured_sockets
from insured_sockets import Fleet

from mark.domain.faults import Faults


@pytest.mark.slow
def test_delayed_answers_are_reconstructed_by_real_processes(tmp_path: Path) -> None:
    """Times are long, so that the result does not depend on a busy machine."""
    faults = Faults(slow_share=0.5, slow_s=1.0, slow_answer_s=3.0)
    fleet = Fleet(model=2, parity=1, k=2, request_s=0.01, rt_max_s=30.0, after_s=0.5, faults=faults)
    found = insured_sockets.served(fleet, np.arange(100) / 10.0, 0, tmp_path)
    assert np.isfinite(found.latency_s).all()
    claims = found.claims
    assert (claims["members"], claims["groups"], claims["parity_calls"], found.refused) == (100, 50, 50, 0)
    assert claims["reconstructed"] > 0
    assert claims["agreed"] == claims["compared"]
