"""A service with parity models as a pipeline of two kinds of stages, and the calls of its queries."""

from __future__ import annotations

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage, Pipeline
from mark.insurance.fill import mean_group
from mark.insurance.insurance_settings import DEGRADED

_QUERIES_OF = 10**9  # queries of a law, large because counts of calls are whole


def insured_visits(
    config: PipelineConfig, queries_rps: float, lineage: str | None, queries: str | None, answers: str | None
) -> tuple[Pipeline, Lineage, list[str]]:
    """Return the stages, the law of which queries call which, and notes. Raises BadInput for files of other pipelines.

    Each query calls the model. One query of each coding group calls the parity models.
    """
    for option, given in (("lineage", lineage), ("queries", queries), ("answers", answers)):
        if given is not None:
            raise BadInput("is for stages that some queries call, and parity models are none", option, given)
    insurance = config.insurance
    assert insurance is not None
    assert insurance.parity is not None
    assert config.pipeline is not None
    k, r = insurance.parity.k, insurance.parity.r
    groups = min(_QUERIES_OF, round(_QUERIES_OF / mean_group(k, queries_rps, insurance.fill_s)))
    counts = {(1, *[0] * r): _QUERIES_OF - groups, (1, *[1] * r): groups}
    patterns = [calls for calls, count in counts.items() if count > 0]
    law = Lineage(config.names, np.array(patterns), np.array([counts[calls] for calls in patterns]))
    notes = []
    if insurance.accept != DEGRADED:
        notes = [f'no query accepts a reconstruction: [insurance] accept is "{insurance.accept}"']
    return config.pipeline, law, notes


def check_policy(config: PipelineConfig, policy: str) -> None:
    """Raise BadInput for a policy that plans a graph of stages, if the file has parity models."""
    if config.insured is not None:
        what = f"policy {policy} plans no service with parity models: take mark, or leave the section out"
        raise BadInput(what, f"{config.source} [insurance] parity")
