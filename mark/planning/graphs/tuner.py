"""The tuner of InferLine as printed (SoCC '20, section 5): how many replicas each stage gets while the load moves.

Hardware and batches stay as planned. Comments name the points that the paper leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.pipeline import Pipeline
from mark.planning.graphs.critical_paths import longest_path_s
from mark.planning.graphs.envelope import RecentEnvelope, envelope_windows_s, most_within
from mark.planning.graphs.estimate import Choices, QuerySample

# The tuner scales down after three activations without a change; the paper assumes activations of 5 s.
STABLE_ACTIVATIONS = 3.0
STABLE_S = STABLE_ACTIVATIONS * 5.0
SLACK_S, SLACK_WINDOW_S = 30.0, 5.0  # scaling down uses the busiest 5 s of the last 30

Replicas = tuple[int, ...]
"""The replicas of each stage, in the order of the pipeline, that serve or are being activated."""


class Tuner(Protocol):
    """The port of a tuner: how many replicas each stage should have. It reads no clock and keeps only the returned
    state.
    """

    def begin(self) -> Any:
        """Return the state before the first step, with the planned replicas."""

    def step(self, state: Any, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, Any]:
        """Return the replicas from now on, and the state of the next step.

        `arrivals_s` are those of all queries until now, ascending. The request of the step before has been carried out,
        as far as its replicas are active by now.
        """


@dataclass(frozen=True, eq=False, slots=True)
class InferLineState:
    """The tuner's memory from one step to the next."""

    envelope: RecentEnvelope
    replicas: Replicas
    changed_s: float | None  # when the replicas last changed; None before the first step


@dataclass(frozen=True, eq=False, slots=True)
class InferLineTuner:
    """A tuner that scales up immediately if the load outgrows its sample at any time scale, and down after a stable
    time.

    Up: k = ceil(r s / (mu rho)), where r is the highest of the rates that exceed the sample's. Down, after `stable_s`
    without a change: the same with the highest rate of the last 30 s in windows of 5 s, and the least rho of all
    stages. The paper does not say which wins if both apply; here no replica leaves that scaling up would bring back.
    """

    planned: Replicas
    calls_per_query: FloatArray  # (S,) s: InferLine's scale factors, with fan-out
    calls_per_s: FloatArray  # (S,) mu, of one replica
    provisioning: FloatArray  # (S,) rho, the planned load of each stage as a share of its capacity
    windows_s: FloatArray  # (W,)
    sample_counts: IntArray  # (W,) the sample's envelope
    stable_s: float = STABLE_S

    @classmethod
    def of(
        cls, pipeline: Pipeline, sample: QuerySample, choices: Choices, stable_s: float = STABLE_S
    ) -> InferLineTuner:
        """Return the tuner of a configuration that was planned on this sample."""
        arrivals_s = np.sort(sample.arrivals_s)
        windows_s = envelope_windows_s(
            longest_path_s(pipeline, [float(choice.option.service_s[choice.batch]) for choice in choices])
        )
        calls_per_query = sample.calls.mean(axis=0)
        calls_per_s = np.array([choice.option.calls_per_s(choice.batch) for choice in choices])
        planned = tuple(choice.replicas for choice in choices)
        rate = (len(arrivals_s) - 1) / max(float(np.ptp(arrivals_s)), float(windows_s[0]))
        return cls(
            planned,
            calls_per_query,
            calls_per_s,
            # The paper has k mu, the thesis mu "in its current configuration", which is the same. A short sample hides
            # a queue that grows, so that the planned load may exceed the capacity; hence the limit of 1.
            np.minimum(1.0, rate * calls_per_query / (np.array(planned) * calls_per_s)),
            windows_s,
            most_within(arrivals_s, windows_s),
            stable_s,
        )

    def begin(self) -> InferLineState:
        return InferLineState(RecentEnvelope(self.windows_s), self.planned, None)

    def step(self, state: InferLineState, arrivals_s: FloatArray, now_s: float) -> tuple[Replicas, InferLineState]:
        envelope = state.envelope.advanced(arrivals_s, now_s)
        changed_s = now_s if state.changed_s is None else state.changed_s
        kept = np.array(state.replicas)
        if now_s - changed_s >= self.stable_s:
            slack = self._needed(_busiest_rate(arrivals_s, now_s), _least_positive(self.provisioning))
            kept = np.minimum(kept, slack)
        needed = self._needed(self._excess_rate(envelope), self.provisioning)
        replicas = tuple(int(n) for n in np.maximum(kept, needed))
        changed_s = changed_s if replicas == state.replicas else now_s
        return replicas, replace(state, envelope=envelope, replicas=replicas, changed_s=changed_s)

    def _excess_rate(self, envelope: RecentEnvelope) -> float:
        """Return the highest of the rates (queries/s) that exceed the sample's at their time scale; 0 if none does."""
        counts = envelope.counts
        rates = np.where(counts > self.sample_counts, counts / self.windows_s, 0.0)
        return float(rates.max())

    def _needed(self, rate: float, provisioning: FloatArray | float) -> IntArray:
        return replicas_for(rate * self.calls_per_query, self.calls_per_s * provisioning)


def replicas_for(calls_per_s: FloatArray, each_calls_per_s: FloatArray) -> IntArray:
    """Return the replicas that together serve `calls_per_s`, one each `each_calls_per_s`; at least one, shape (S,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(calls_per_s > 0.0, calls_per_s / each_calls_per_s, 0.0)
    return np.maximum(1, np.ceil(exact - 1e-9)).astype(np.int64)


def _busiest_rate(arrivals_s: FloatArray, now_s: float) -> float:
    """Return the highest rate in successive windows of 5 s, the last of which ends now."""
    edges_s = now_s - SLACK_WINDOW_S * np.arange(round(SLACK_S / SLACK_WINDOW_S), -1, -1)
    return float(np.diff(np.searchsorted(arrivals_s, edges_s, side="right")).max()) / SLACK_WINDOW_S


def _least_positive(shares: FloatArray) -> float:
    """Return the least positive share, because the share of a stage that the sample never calls says nothing."""
    positive = shares[shares > 0.0]
    return float(positive.min()) if len(positive) else 1.0
