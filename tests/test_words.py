"""One word for one thing: unique class names, glossary names that exist, no retired words, machines as "it"."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks" / "planner"))
from figures import MOST_WORDS, Checkout

ROOT = Path(__file__).parents[1]
_PACKAGES = ("mark", "predictors/mark_predictors", "lambda_handlers/mark_lambda", "infra/mark_infra")

# Words of an earlier dialect, each with the field's word that replaced it.
RETIRED = {
    "Bay": "ModelServer",
    "Births": "EventSink",
    "Buyer": "Launcher",
    "Charge": "ServiceSpec or CostLine",
    "ControlRoom": "ControllerManager",
    "Deployment": "ResolvedService",
    "Doors": "ListenerConfig",
    "Frictions": "CostGap",
    "Hosted": "ServedVersion",
    "Life": "Instance",
    "Lives": "InstanceLifecycle",
    "Member": "ServiceRuntime",
    "Parts": "RuntimePorts",
    "Passage": "InFlightRequest",
    "Savings": "ServedLoad",
    "Situation": "PlanningContext",
    "Ticket": "Attempt",
    "favourite": "default_offer",
    "frictions": "cost_gap",
    "savings": "served_load",
    "silence": "health",
    "suspects": "unhealthy",
}


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for folder in _PACKAGES for path in (ROOT / folder).rglob("*.py")}


def _classes() -> dict[str, list[str]]:
    """Where each public class is defined."""
    found = defaultdict(list)
    for path, tree in _trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def _functions() -> set[str]:
    return {node.name for tree in _trees().values() for node in tree.body if isinstance(node, ast.FunctionDef)}


def _aliases() -> set[str]:
    """Names that a module gives to a union of classes or a type."""
    return {
        target.id
        for tree in _trees().values()
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _identifiers(path: Path, tree: ast.Module) -> Iterator[str]:
    """Every name that the module defines: its own, classes, functions, arguments, variables, attributes."""
    yield path.stem
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: places for name, places in _classes().items() if len(places) > 1} == {}


def test_names_in_the_glossary_exist() -> None:
    rows = re.findall(r"^\|.*\|(.*)\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    named = [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]
    assert len(named) > 60
    known = _classes().keys() | _functions() | _aliases()
    assert [name for name in named if name not in known] == []


def test_a_word_stands_in_the_glossary_once() -> None:
    words = re.findall(r"^\| ([^|]+) \|.*\|.*\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = [word for word in words if word != "word"]
    assert len(words) == len(set(words))


def test_retired_words_are_no_identifiers() -> None:
    found = defaultdict(list)
    for path, tree in _trees().items():
        for name in {*_identifiers(path, tree)} & RETIRED.keys():
            found[f"{name}: say {RETIRED[name]}"].append(path.relative_to(ROOT).as_posix())
    assert found == {}


@cache
def _checkout() -> Checkout:
    return Checkout(ROOT)


def test_machines_are_it_and_numbers_have_names() -> None:
    """Say "a client that", "no instance", "this many"; where a person is meant, `figures.ALLOWED` has the words."""
    found = [line for lines in _checkout().persons().values() for line in lines]
    assert not found, "\n".join(["a machine is it, and a number has a name:", *found])


def test_the_name_of_a_test_is_a_short_sentence() -> None:
    found = _checkout().long_test_names()
    assert not found, "\n".join([f"more than {MOST_WORDS} words:", *found])
