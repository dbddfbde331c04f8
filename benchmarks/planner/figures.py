"""Figures of the source itself, as a Markdown table: `python benchmarks/planner/figures.py [BEFORE] [AFTER]`.

Without arguments it describes this checkout; with two checkouts each has a column. It reads the checkouts' files and
imports none of their modules.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGES = ("mark", "infra/mark_infra", "predictors/mark_predictors", "lambda_handlers/mark_lambda")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Source:
    """One file, parsed. `module` is its dotted name, `folder` the package it lies in."""

    path: Path
    module: str
    folder: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[FunctionNode]:
        return [node for node in self.nodes if isinstance(node, FunctionNode)]

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """Comments and strings."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]

    @property
    def comments(self) -> int:
        """Lines that hold a comment."""
        return sum(token.type == tokenize.COMMENT for token in self.tokens)

    def imports(self, modules: set[str]) -> set[str]:
        """Return the imports from `modules`, late and type-only imports included."""
        found = set()
        for node in _statements(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in modules else node.module)
        return found & modules - {self.module}


class Checkout:
    """The sources and tests of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = [source for package in PACKAGES for source in _read(root / package, (root / package).parent)]
        self.tests = list(_read(root / "tests", root))

    def rooms(self) -> dict[str, tuple[int, int]]:
        """Return files and lines by package: `mark.serving`, `mark_infra`."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for source in self.sources:
            parts = source.folder.split(".")
            room = found[".".join(parts[: 2 if parts[0] == "mark" else 1])]
            room[0] += 1
            room[1] += source.text.count("\n")
        return {room: (files, lines) for room, (files, lines) in sorted(found.items())}

    def cycles(self) -> dict[str, str]:
        """Return import cycles, late and type-only imports counted."""
        modules, folders = self._import_graphs()
        return {
            "import cycles between modules (modules in them)": _cycles(modules),
            "import cycles between folders (folders in them)": _cycles(folders),
        }

    def figures(self) -> dict[str, str]:
        """Return every row of the table except those of the rooms."""
        sources = self.sources
        every = [node for source in sources for node in source.nodes]
        functions = [function for source in sources for function in source.functions]
        public = list(_public(sources))
        lines = sum(source.text.count("\n") for source in sources)
        documented = sum(ast.get_docstring(node, clean=False) is not None for node in public)
        return {
            "source: files / lines": f"{len(sources)} / {lines:,}",
            "tests: files / lines": f"{len(self.tests)} / {sum(s.text.count(chr(10)) for s in self.tests):,}",
            "lines a file, p50 / p90 / max": _spread([source.text.count("\n") for source in sources]),
            "lines a function, p50 / p90 / max": _spread([_length(function) for function in functions]),
            **self.cycles(),
            "imports inside functions": str(len({id(n) for f in functions for n in ast.walk(f) if _is_import(n)})),
            "public classes' names used twice": str(len(self.names_used_twice())),
            "public functions and classes with a docstring": f"{100.0 * documented / len(public):.0f} %",
            "lines with a comment": f"{100.0 * sum(s.comments for s in sources) / lines:.1f} %",
            "calls with an unpacked sequence among arguments": str(sum(map(_unpacks, every))),
            "calls with more than five positional arguments": str(
                sum(isinstance(node, ast.Call) and len(node.args) > 5 for node in every)
            ),
            "lines that assign several attributes": str(sum(map(_assigns_several, every))),
            "`# fmt: skip`": str(sum(source.text.count("# fmt: skip") for source in sources)),
        }

    def names_used_twice(self) -> dict[str, list[str]]:
        """Return the names of several public classes, with the modules that define them."""
        found: dict[str, list[str]] = defaultdict(list)
        for source in self.sources:
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(source.module)
        return {name: modules for name, modules in found.items() if len(modules) > 1}

    def _import_graphs(self) -> tuple[Graph, Graph]:
        known = {source.module for source in self.sources}
        folder = {source.module: source.folder for source in self.sources}
        modules = {source.module: source.imports(known) for source in self.sources}
        folders: Graph = defaultdict(set)
        for module, imported in modules.items():
            folders[folder[module]] |= {folder[other] for other in imported} - {folder[module]}
        return modules, folders


def _read(package: Path, root: Path) -> Iterator[Source]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield Source(path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts), ".".join(parts[:-1]))


def _public(sources: Iterable[Source]) -> Iterator[FunctionNode | ast.ClassDef]:
    """Yield the public functions, classes and methods."""
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, FunctionNode | ast.ClassDef) and not node.name.startswith("_"):
                yield node
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield from (m for m in node.body if isinstance(m, FunctionNode) and not m.name.startswith("_"))


def _length(function: FunctionNode) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _spread(lengths: list[int]) -> str:
    ordered = sorted(lengths)
    return f"{ordered[len(ordered) // 2]} / {ordered[len(ordered) * 9 // 10]} / {ordered[-1]}"


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements without their expressions: imports are found in a fifth of the time."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _unpacks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(isinstance(argument, ast.Starred) for argument in node.args)


def _assigns_several(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Tuple) and sum(isinstance(item, ast.Attribute) for item in target.elts) > 1
        for target in node.targets
    )


def _cycles(graph: Graph) -> str:
    """Return the number of strongly connected components of several nodes, and of their nodes (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        _visit(start, graph, seen, order)
    backward: Graph = defaultdict(set)
    for node, others in graph.items():
        for other in others:
            backward[other].add(node)
    seen, sizes = set(), []
    for node in reversed(order):
        component: list[str] = []
        _visit(node, backward, seen, component)
        if len(component) > 1:
            sizes.append(len(component))
    return f"{len(sizes)} ({sum(sizes)})"


def _visit(start: str, graph: Graph, seen: set[str], finished: list[str]) -> None:
    """Append the unseen modules that `start` reaches, each after all that it reaches."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(graph.get(start, ()))))]
    while stack:
        node, others = stack[-1]
        following = next((other for other in others if other not in seen), None)
        if following is None:
            finished.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(sorted(graph.get(following, ())))))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Figures of the source itself, as a Markdown table.")
    parser.add_argument("checkout", nargs="*", type=Path, help="one column for each (default: this one)")
    roots = parser.parse_args(arguments).checkout or [Path(__file__).parents[2]]
    checkouts = [Checkout(root) for root in roots]
    titles = ["now"] if len(roots) == 1 else ["before", "after", *map(str, roots[2:])]
    print(f"| figure | {' | '.join(titles)} |\n|---|{'---:|' * len(roots)}")
    columns = [checkout.figures() for checkout in checkouts]
    for row in columns[0]:
        print(f"| {row} | {' | '.join(column[row] for column in columns)} |")
    rooms = [checkout.rooms() for checkout in checkouts]
    for room in sorted(set().union(*rooms)):
        cells = (f"{r[room][0]} / {r[room][1]:,}" if room in r else "" for r in rooms)
        print(f"| `{room}`: files / lines | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
