"""Every command and every piece of Python in the documentation does as its page says: exit 0, or the stated code.

It takes a minute, mostly for simulations. The pages that start a testbed are in a file of their own beside this one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.not_run import NOT_RUN
from tests.docs.pages import PAGES, Block, Reader, blocks, commands

TESTBED = {"testbed", "controller"}
# Pages with several simulations, servers, or profiles of models.
LONG = {
    "quick-start",
    "simulate-your-alb-logs",
    "traces",
    "pipelines",
    "pipelines-reference",
    "pipelines-serve",
    "selection",
    "personal",
    "registry",
    "bouncer-before-your-server",
}
RUN = [page for page in PAGES if page.stem not in TESTBED and any(block.not_run is None for block in blocks(page))]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONG else [], id=page.stem) for page in RUN],
)
def test_the_page_does_what_it_says(page: Path, reader: Reader) -> None:
    reader.follow(page)


def test_what_is_not_run_is_known_with_its_reason() -> None:
    """The list beside this file must name every block that no test runs."""
    found = {
        (page.name, block.text[:40].split("\n")[0]): block.not_run
        for page in PAGES
        for block in blocks(page)
        if block.not_run is not None
    }
    assert found == NOT_RUN


def test_blocks_are_found(tmp_path: Path) -> None:
    """Indented and fenced blocks count, with their comments; output and prose do not."""
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n    mark check a.toml   # exit 2\n    mark bound x \\\n        --y\n\nMore:\n\n"
        "    mark keeps the promise\n\n<!-- given: a.log from traces/b.gz -->\n<!-- not run: long -->\n\n"
        "```console\n$ make all\noutput\n```\n\n```python\n# m.py\nx = 1\n```\n\n```\nmark check b\n```\n"
    )
    assert blocks(page) == [
        Block(3, "shell", "mark check a.toml   # exit 2\nmark bound x \\\n    --y"),
        Block(14, "shell", "$ make all\noutput", (("a.log", "traces/b.gz"),), "long"),
        Block(19, "file", "# m.py\nx = 1"),
    ]
    assert list(commands("mark a \\\n  --b\n# no\n.venv/bin/mark c")) == ["mark a   --b", "mark c"]
    assert list(commands("$ make all\noutput")) == ["make all"]
    page.write_text("<!-- not run: why -->\n\nText.\n")
    with pytest.raises(ValueError, match=r"page.md:3"):
        blocks(page)


def test_a_command_that_fails_fails_its_page(reader: Reader) -> None:
    page = reader.folder / "page.md"
    page.write_text("    python -c 'exit(3)'  # exit 3\n")
    reader.follow(page)
    page.write_text("    python -c 'exit(3)'\n")
    with pytest.raises(AssertionError, match=r"page.md:1"):
        reader.follow(page)
