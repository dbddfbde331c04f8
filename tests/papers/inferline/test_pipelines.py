"""InferLine's pipelines: their shapes, and profiles in the proportions of its figures."""

from __future__ import annotations

import numpy as np
import pytest
from mark_papers.inferline.pipelines import (
    MODELS,
    PIPELINES,
    USD_PER_HOUR,
    functions_of,
    gamma_queries,
    options_of,
)

from mark.domain.slo import Slo


def test_every_stage_has_options_and_a_column() -> None:
    for pipeline, law in PIPELINES.values():
        assert law.stages == pipeline.names
        options = options_of(pipeline)
        assert [[one.hardware for one in offered] for offered in options] == [
            list(MODELS[name]) for name in pipeline.names
        ]
        for offered in options:
            for one in offered:
                assert one.usd_per_hour == USD_PER_HOUR[one.hardware]
                assert (np.diff(one.service_s[1:]) > 0.0).all()


def test_resnet_has_the_throughputs_that_the_paper_prints() -> None:
    """0.6 queries/s on a CPU, 50.6 on a K80 in batches of 32."""
    cpu, k80, _ = options_of(PIPELINES["image"][0])[1]
    assert cpu.calls_per_s(1) == pytest.approx(0.6, rel=0.01)
    assert k80.calls_per_s(32) == pytest.approx(50.6, rel=0.01)


def test_stages_have_functions_that_can_be_in_time() -> None:
    """A ResNet152 takes 30 + 1640 / 6 ms on six vCPUs: within half a second, not within 150 ms."""
    pipeline, _ = PIPELINES["social"]
    tight, wide = (functions_of(pipeline, Slo(rt_max_s, 0.99)) for rt_max_s in (0.15, 0.5))
    assert [use is not None for use in tight] == [True, True, False, True]
    warm_s = [use.warm_s for use in wide if use is not None]
    assert warm_s == pytest.approx([0.00075, 0.04 + 0.32 / 6, 0.03 + 1.64 / 6, 0.002])


@pytest.mark.parametrize("cv", [1.0, 4.0])
def test_arrivals_have_the_rate_and_the_variation_asked_for(cv: float) -> None:
    queries = gamma_queries(PIPELINES["social"][1], 200.0, cv, 300.0, seed=1)
    gaps_s = np.diff(queries.arrivals_s)
    assert len(queries.arrivals_s) / 300.0 == pytest.approx(200.0, rel=0.05)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.05)
    assert queries.calls.mean(axis=0).tolist() == pytest.approx([1.0, 0.4, 0.6, 1.0], abs=0.01)
