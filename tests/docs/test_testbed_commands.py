"""The pages that start a testbed do as they say. Half a minute: instances boot, and the load lasts."""

from __future__ import annotations

import pytest

from tests.docs.pages import DOCS, Reader
from tests.docs.test_commands import TESTBED


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(TESTBED))
def test_the_page_does_what_it_says(page: str, reader: Reader) -> None:
    reader.follow(DOCS / f"{page}.md")
