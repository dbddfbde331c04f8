"""The documentation as a site: it builds without a network, every link works, and every name in it exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT

_FENCE = re.compile(r"^```.*?^```|^    .*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED = re.compile(
    r"`((?:mark|infra|predictors|lambda_handlers|tools|terraform|examples|benchmarks|tests|docs|traces)/[\w./-]+)(::\w+)?`"
)


class _Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = dict(attrs)
        if of.get("id"):
            self.ids.add(str(of["id"]))
        if tag == "a":
            self.links.append(of.get("href") or "")
        else:
            self.loaded += [value for key in ("src", "href") if (value := of.get(key))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site is built by mkdocs: install mark with [docs]")
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet, because the test counts the printed warnings.
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_it_builds_strictly_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        elsewhere = [url for url in _Page(path).loaded if urlsplit(url).netloc]
        assert elsewhere == [], path


@pytest.mark.slow
def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    pages = {path: _Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (path, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, (path, link)


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "SCOPE", "SECURITY", "CHANGELOG"])
def test_links_of_top_level_documents_lead_somewhere(name: str) -> None:
    for link in _LINK.findall((ROOT / f"{name}.md").read_text()):
        if not urlsplit(link).scheme:
            assert (ROOT / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_and_tests_that_it_names_are_there(page: Path) -> None:
    for name, test in _NAMED.findall(_FENCE.sub("", page.read_text())):
        assert (ROOT / name).exists(), name
        if test:
            functions = [node.name for node in ast.parse((ROOT / name).read_text()).body if hasattr(node, "name")]
            assert test.removeprefix("::") in functions, name + test
