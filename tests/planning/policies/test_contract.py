"""The contract of policies, over every policy that is registered."""

from __future__ import annotations

import pytest

from mark.planning.policies.registry import POLICY_NAMES, make_policy
from mark.planning.port import Policy
from mark.testing.policy_contract import PolicyContract
from tests.planning.build import load
from tests.planning.policies.test_registry import everything


class TestRegisteredPolicies(PolicyContract):
    @pytest.fixture(params=[*POLICY_NAMES, "fixed:small=2"])
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return make_policy(request.param, everything(), load(30.0, 50.0))
