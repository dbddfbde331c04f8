"""A market of instances around moto."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.infra.aws.bench import Place
from tests.infra.aws.market import Market
from tests.infra.conftest import moto_app, serving


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    market = Market(moto_app())
    with serving(market) as server:
        yield Place(server, market)
