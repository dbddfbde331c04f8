"""Find imports of a model's code that no package of the instances provides, before an instance fails.

Only imports that run when the module is imported count. Imports within functions, `try` or `if` may never be needed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

# packages of a new environment of Python 3.11
_WITH_PYTHON = frozenset(("pip", "pkg_resources", "setuptools"))


def absent_imports(
    module: str, files: Mapping[str, Path | bytes], provided: Collection[str], folder: str = ""
) -> list[tuple[str, str]]:
    """Return files of the service, each with an import that nothing provides, starting at `module` in `folder`."""
    known = {*provided, *sys.stdlib_module_names, *_WITH_PYTHON}
    todo, seen, found = [module], set[str](), list[tuple[str, str]]()
    while todo:
        one = todo.pop()
        file = _file_of(one, files, folder)
        if file is None or file in seen:
            continue
        seen.add(file)
        content = files[file]
        try:
            tree = ast.parse(content if isinstance(content, bytes) else content.read_bytes())
        except (SyntaxError, ValueError):
            continue  # written for another Python than this one; the instance reports its errors
        package = one if file.endswith("/__init__.py") else one.rpartition(".")[0]
        for name in _imported(tree, package):
            top = name.partition(".")[0]
            if _file_of(top, files, folder) is not None or _is_folder(top, files, folder):
                todo += [top, name]
            elif top not in known:
                found.append((file, top))
    return sorted(set(found))


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            name = ".".join([*parents, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _file_of(module: str, files: Mapping[str, Path | bytes], folder: str) -> str | None:
    path = PurePosixPath(folder, *module.split("."))
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in files), None)


def _is_folder(top: str, files: Mapping[str, Path | bytes], folder: str) -> bool:
    inside = f"{PurePosixPath(folder, top)}/"
    return any(name.startswith(inside) for name in files)
