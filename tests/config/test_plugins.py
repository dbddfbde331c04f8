"""Entry points of installed packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mark.config import plugins
from mark.domain.errors import BadInput


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with two entry points, one of which does not load."""
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[mark.tests]\nsound = own_plugin:VALUE\nbroken = own_missing:VALUE\n"
        "[mark.adapters]\ndouble = own_plugin:double\nlacks = own_plugin:lacks\nfaulty = own_plugin:faulty\n"
    )
    (tmp_path / "own_plugin.py").write_text(
        "VALUE = 7\n"
        "def double(number, *, plus): return 2 * number + plus\n"
        "def lacks(): raise ModuleNotFoundError('no boto3', name='boto3.session')\n"
        "def faulty(): import own_missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_plugin", raising=False)


def test_names_are_sorted_and_import_nothing(installed: None) -> None:
    assert plugins.names("mark.tests") == ("broken", "sound")
    assert "own_plugin" not in sys.modules


def test_a_group_without_entries_tells_to_install_again(installed: None) -> None:
    """After a pull the installed metadata may be older than the sources."""
    with pytest.raises(BadInput, match=r"entry points: nothing is registered: install again"):
        plugins.names("mark.no-such-group")


def test_a_name_loads_or_says_why_not(installed: None) -> None:
    assert plugins.load("mark.tests", "sound", "test") == 7
    with pytest.raises(BadInput, match=r"test broken: does not load \(No module named 'own_missing'\): own_missing"):
        plugins.load("mark.tests", "broken", "test")


def test_an_adapter_is_called_with_the_arguments(installed: None) -> None:
    assert plugins.adapter("double", "--on")(3, plus=1) == 7


def test_an_adapter_of_newer_sources_asks_for_an_installation(installed: None) -> None:
    with pytest.raises(BadInput, match=r"--on: is not registered: install again .*: mark.adapters newer"):
        plugins.adapter("newer", "--on")()


def test_an_adapter_that_lacks_a_library_names_its_extra(installed: None) -> None:
    with pytest.raises(BadInput, match=r"--on: needs boto3 \(pip install 'mark-serving\[aws\]'\)"):
        plugins.adapter("lacks", "--on")()


def test_a_module_that_no_extra_brings_is_a_fault(installed: None) -> None:
    with pytest.raises(ModuleNotFoundError, match="own_missing"):
        plugins.adapter("faulty", "--on")()
