"""Errors name fields, and the command line prints them as flags."""

import pytest

from mark.cli.fields import with_flags
from mark.domain.errors import BadInput


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (BadInput("must be above zero", "start_s", -1), "--start: must be above zero: -1"),
        (BadInput("go together", "tls_cert and tls_key"), "--tls-cert and --tls-key: go together"),
        (BadInput("raise bin_s or lower `duration_s`", "t.csv"), "t.csv: raise bin_s or lower --duration"),
        (BadInput("see `mark forecast fit` and `unknown`", "policy"), "policy: see `mark forecast fit` and `unknown`"),
    ],
)
def test_fields_become_flags_in_place_and_backquotes_only(error: BadInput, printed: str) -> None:
    assert with_flags(error) == printed
