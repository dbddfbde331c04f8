"""Fixtures for tests of commands in this folder."""

from __future__ import annotations

from tests.cli.conftest import no_progress

__all__ = ("no_progress",)
