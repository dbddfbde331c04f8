"""A market of instances around moto."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The suite of the port and its fakes; tests/control is no package.
sys.path.append(str(Path(__file__).parents[2] / "control"))

from tests.infra.aws.bench import Place
from tests.infra.aws.market import Market
from tests.infra.conftest import moto_app, serving


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    market = Market(moto_app())
    with serving(market) as server:
        yield Place(server, market)
