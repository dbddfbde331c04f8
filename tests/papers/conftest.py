"""Fixtures for tests of experiments."""

from __future__ import annotations

import pytest

from tests.cli.conftest import no_progress

__all__ = ("no_progress",)


@pytest.fixture
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop training the LSTM of `mark-paper` early, because it takes most of a short run."""
    monkeypatch.setattr("mark_predictors.network._PATIENCE", 2)
