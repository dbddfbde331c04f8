"""The contract of policies, for every registered policy."""

from __future__ import annotations

import pytest

from mark.planning.planner import Policy
from mark.planning.policies.policy_registry import make_policy
from mark.testing.policy_contract import PolicyContract
from tests.planning.build import load
from tests.planning.policies.test_policy_registry import NAMES, everything


class TestRegisteredPolicies(PolicyContract):
    @pytest.fixture(params=NAMES)
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return make_policy(request.param, everything(), load(30.0, 50.0))
