"""Fakes of the ports, and contract suites, for authors of a cloud, a policy or a predictor. Needs pytest.

A contract is a class of tests. Derive from it in a test file of your own and define the fixture that its docstring
names: pytest runs the whole suite on your implementation.
"""

import pytest

pytest.register_assert_rewrite(
    "mark.testing.cloud_contract", "mark.testing.policy_contract", "mark.testing.predictor_contract"
)
