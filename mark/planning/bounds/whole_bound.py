"""The bound of a service: the higher of the fluid bound and the bound in whole instances (docs/bound.md)."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mark.planning.bounds.block_bound import BlockProof, block_bound, prove_blocks
from mark.planning.bounds.feasible_plan import feasible_usd
from mark.planning.bounds.lower_bound import Bound, BoundProblem, fluid_bound
from mark.planning.bounds.path_bound import PathProof, Paths, path_bound, prove_paths
from mark.planning.bounds.whole_problem import WholeProblem, whole_problem


@dataclass(frozen=True, slots=True)
class WholeProof:
    """The proof in whole instances, without commitments and extras: by blocks, and by paths if these help."""

    problem: WholeProblem
    late_allowed: float
    blocks: BlockProof
    paths: PathProof

    @property
    def by_paths(self) -> bool:
        return self.paths.usd > self.blocks.usd

    @property
    def usd(self) -> float:
        return max(0.0, self.blocks.usd, self.paths.usd)

    @property
    def late_usd(self) -> float:
        """The price of a late request in the proof."""
        return self.paths.late_usd if self.by_paths else self.blocks.late_usd

    @property
    def functions(self) -> float:
        """Approximate number of requests that go to functions in the schedule that attains it."""
        left = self.paths.left if self.by_paths else self.blocks.left
        return max(0.0, left - self.late_allowed) if self.late_usd >= self.problem.function_usd else 0.0

    @property
    def words(self) -> str:
        if self.by_paths:
            return "by whole instances, bin by bin"
        return f"by whole instances, in blocks of {self.blocks.block_bins * self.problem.bin_s:g} s"

    def disks_usd(self) -> float:
        """Return the dollars for disks: how much less the same proof proves for instances without disks."""
        if not self.usd > 0.0 or not self.problem.disk_usd_per_s.any():
            return 0.0
        bare = self.problem.without_disks()
        if not self.by_paths:
            other = prove_blocks(bare, self.late_allowed, self.blocks.block_bins, self.blocks.late_usd).usd
        elif len(self.paths.most) == len(self.problem.names):
            other = prove_paths(Paths(bare, self.paths.most), self.late_allowed, self.paths.late_usd).usd
        else:
            return 0.0
        return min(max(0.0, self.usd - other), self.usd)


def whole_proof(problem: BoundProblem, late_allowed: float) -> WholeProof | None:
    """Return the bound in whole instances; None without requests, or if an instance may cost nothing."""
    whole = whole_problem(problem)
    if whole is None or float(np.sum(whole.counts)) <= late_allowed:
        return None
    blocks = block_bound(whole, late_allowed)
    paths = path_bound(whole, late_allowed, blocks.usd, blocks.late_usd or None)
    return WholeProof(whole, late_allowed, blocks, paths)


def highest_bound(problem: BoundProblem, late_allowed: float = 0.0, *, with_plan: bool = False) -> Bound:
    """Return the highest bound that is proven for all but `late_allowed` requests in time.

    `with_plan` also looks for a feasible plan of whole instances. Deterministic. Raises BadInput for a `late_allowed`
    that is negative or not finite.
    """
    return _highest_bound(pickle.dumps((problem, late_allowed, with_plan)))


@lru_cache(maxsize=2)  # policies that are compared on a trace have the same bound
def _highest_bound(pickled: bytes) -> Bound:
    problem, late_allowed, with_plan = pickle.loads(pickled)
    fluid = fluid_bound(problem, late_allowed)
    proof = None if fluid.usd is None else whole_proof(problem, late_allowed)
    if proof is None or fluid.usd is None:
        return fluid
    committed_usd = problem.resolved.committed_usd_per_hour * problem.end_s / 3600.0
    whole_usd = proof.usd + committed_usd
    plan_usd = feasible_usd(proof.problem, late_allowed, proof.late_usd) if with_plan else None
    found = replace(fluid, whole_usd=whole_usd, feasible_usd=None if plan_usd is None else plan_usd + committed_usd)
    if whole_usd <= fluid.usd:
        return found
    spent = min(proof.usd, proof.functions * proof.problem.function_usd) if proof.functions > 0.0 else 0.0
    return replace(
        found,
        usd=whole_usd,
        instance_usd=whole_usd - spent,
        function_usd=spent,
        function_share=min(1.0, proof.functions / float(problem.counts.sum())),
        note="; ".join(filter(None, (fluid.note, proof.words))),
        gap=None,
        disks_usd=proof.disks_usd(),
    )
