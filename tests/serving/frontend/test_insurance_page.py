"""The page of an insurance: the claims, unknown ones said, texts escaped."""

from __future__ import annotations

from typing import Any

from mark.serving.frontend.insurance_page import insurance_page


def _said(**changed: Any) -> dict[str, Any]:
    return {
        "code": "sum", "k": 3, "r": 1, "fill_ms": 12.0, "uninsured_since_unix_s": None, "uninsured_because": None,
        "parity_ready": True, "groups": 1000, "given_up": 2, "parity_calls": 998, "parity_missed": 5, "members": 3000,
        "passed_by": 4, "reconstructed": 17, "saved": 16, "compared": 10, "agreed": 9, "held": 3, "held_passed_on": 1,
        "malformed": 6, "unusable": 2041,
        "expected_agreement": 0.93, "premium_usd_per_hour": 1.25,
    } | changed  # fmt: skip


def test_page_shows_the_claims() -> None:
    page = insurance_page("digits", _said())
    for text in ("<td>insured", ">17", ">16", "9 of 10 (90.0 %)", "$1.25 an hour", "12 ms", "3, of which 1 passed on"):
        assert text in page


def test_page_counts_answers_that_cannot_be_used() -> None:
    page = insurance_page("digits", _said())
    assert "<tr><td>answers of the model that cannot reconstruct others<td>2,041" in page
    assert "<tr><td>malformed answers of parity models, and reconstructions<td>6" in page


def test_page_says_what_is_unknown() -> None:
    page = insurance_page("digits", _said(premium_usd_per_hour=None, fill_ms=None, compared=0, agreed=0))
    for text in ("unknown", "no limit", "none was compared; 93.0 % were right when trained"):
        assert text in page
    assert "trained" not in insurance_page("digits", _said(compared=0, expected_agreement=None))


def test_page_says_since_when_and_why_nothing_is_insured() -> None:
    page = insurance_page("digits", _said(uninsured_since_unix_s=0.0, uninsured_because="<b>another model"))
    assert "uninsured since 1970-01-01 00:00:00 UTC: &lt;b&gt;another model" in page
    assert "no parity model is ready" in insurance_page("digits", _said(parity_ready=False))
