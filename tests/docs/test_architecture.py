"""The architecture page names folders and files that exist, and every package."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "architecture.md").read_text()
_PATH = re.compile(r"`((?:mark|infra)/[\w./]+)`")


def _section(title: str) -> str:
    """Return the text below a heading, up to the next one of its level."""
    level = title.split(" ")[0]
    return re.split(rf"^{level} ", PAGE.partition(f"\n{title}\n")[2], flags=re.MULTILINE)[0]


def _paths(text: str) -> list[str]:
    return _PATH.findall(text)


def test_every_folder_of_the_tables_exists() -> None:
    cells = [line.split("|")[1] for line in _section("## Folders").splitlines() if line.startswith("| `")]
    folders = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(folders) > 30
    assert [name for name in folders if not (ROOT / name).is_dir()] == []


def test_every_package_is_in_the_tables() -> None:
    packages = [
        folder.relative_to(ROOT).as_posix()
        for pattern in ("mark/*", "mark/serving/*", "mark/planning/*", "infra/mark_infra/*", "predictors/*")
        for folder in ROOT.glob(pattern)
        if (folder / "__init__.py").exists() and folder.as_posix() != (ROOT / "mark/serving").as_posix()
    ]
    listed = _section("## Folders")
    assert len(packages) > 30
    assert [name for name in packages if f"`{name}`" not in listed] == []


def test_every_file_of_the_walks_exists() -> None:
    walks = re.findall(r"^### (.+)$", _section("## Three walks"), re.MULTILINE)
    assert len(walks) == 3
    for walk in walks:
        files = _paths(_section(f"### {walk}"))
        assert len(files) >= 8, walk
        assert [name for name in files if not (ROOT / name).is_file()] == [], walk
