"""Load models by their references."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from mark.domain.errors import BadInput
from mark.models import registry_unpacked
from mark.models.model import Model

# Imported on use, because each needs its own library.
_FILES = {
    "torch": ("mark.models.from_torch", "TorchModel"),
    "sklearn": ("mark.models.from_sklearn", "SklearnModel"),
    "onnx": ("mark.models.from_onnx", "OnnxModel"),
}
_SERVERS = (
    (re.compile(r"https?://[^/]+/(.+/)?v2/models/[^/]+(/versions/[^/]+)?"), "OipServer"),
    (re.compile(r"https?://[^/]+/(.+/)?v1/models/[^/]+(/versions/[^/]+)?"), "TfServer"),
    (re.compile(r"https?://[^/]+/(.+/)?invocations"), "SagemakerServer"),
)
_CODE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*)(\?(?P<query>.*))?")
_FORMS = "module:Class, torch:FILE, sklearn:FILE, onnx:FILE, registry:NAME@VERSION or the address of a server"


def load(reference: str, search: Path) -> Model:
    """Return the model of a reference after its own `load`. Raises BadInput, and whatever that load raises."""
    model = find(reference, search)
    model.load()
    return model


def find(reference: str, search: Path) -> Model:
    """Return the model of a reference, before its `load`. Raises BadInput.

    Files and modules are looked up in `search` first, modules then in the Python path. `docs/models.md` lists the forms
    and their options (`FILE?option=value`); the options of `module:Class` are keywords of its constructor, as text.
    """
    kind, _, rest = reference.partition(":")
    if f"{kind}:" == registry_unpacked.PREFIX:
        return _unpacked(search / rest)
    if kind in _FILES:
        name, _, query = rest.partition("?")
        file = search / name
        if not name or not file.is_file():
            raise BadInput("no such file", reference, str(file))
        return _made(_attribute(*_FILES[kind]), file, query, reference)
    if kind in ("http", "https"):
        url, _, query = reference.partition("?")
        for form, server in _SERVERS:
            if form.fullmatch(url):
                return _made(_attribute("mark.models.from_server", server), url, query, reference)
        raise BadInput("address must end in /v2/models/NAME, /v1/models/NAME or /invocations", reference)
    code = _CODE.fullmatch(reference)
    if code is None:
        raise BadInput(f"no such form of reference, known are {_FORMS}", "model", reference)
    options = _options(code["query"] or "", reference)
    return _from_code(code["module"], code["attribute"], options, search, reference)


def home(reference: str, search: Path) -> Path:
    """Return the working folder of processes that run the model: an unpacked version's files, else `search`."""
    kind, _, rest = reference.partition(":")
    return search / rest / registry_unpacked.FILES if f"{kind}:" == registry_unpacked.PREFIX else search


def library(name: str, reference: str) -> Any:
    """Import an optional library. Raises BadInput with its install command if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"needs {name}, which is not installed: pip install {name}", reference) from error


def only(options: dict[str, str], known: dict[str, tuple[str, ...]], reference: str) -> dict[str, str]:
    """Return the options of a reference, with defaults. `known` lists the values of each option, the default first.

    Raises BadInput for unknown options and values.
    """
    for option, value in options.items():
        if option not in known:
            raise BadInput(f"unknown option, known are {', '.join(known) or 'none'}", reference, option)
        if value not in known[option]:
            raise BadInput(f"{option} must be one of {', '.join(known[option])}", reference, value)
    return {option: values[0] for option, values in known.items()} | options


def in_one_line(error: BaseException) -> str:
    """Return kind and text of an error of the model's code, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _unpacked(folder: Path) -> Model:
    """Return the model of an unpacked version, after checking its bytes, because they may be code."""
    reference = registry_unpacked.check(folder).content.model
    # from now on: bytecode that Python wrote beside the files would run unchecked the next time
    sys.dont_write_bytecode = True
    files = (folder / registry_unpacked.FILES).resolve()
    found = find(reference, files)
    code = _CODE.fullmatch(reference)
    if code is not None and code["module"] in sys.modules:
        home = Path(sys.modules[code["module"]].__file__ or "").resolve()
        if not home.is_relative_to(files):  # this process has imported another module of that name
            raise BadInput(f"its module {code['module']} is not the version's own but {home}", str(folder))
    return found


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _made(kind: Callable[..., Model], target: Any, query: str, reference: str) -> Model:
    return kind(target, reference, _options(query, reference))


def _options(query: str, reference: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise BadInput("options are written ?option=value&option=value", reference, query) from None


def imported(module: str, attribute: str, search: Path, reference: str) -> Any:
    """Return an attribute of a module, which is looked up in `search` first, then in the Python path.

    Raises BadInput.
    """
    search = search.resolve()
    if str(search) not in sys.path:
        sys.path.insert(0, str(search))  # permanently, because the module may import its neighbours later
        importlib.invalidate_caches()
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInput(f"no module {module} in {search} or the Python path", reference) from None
        raise BadInput(f"importing it failed: {in_one_line(error)}", reference) from error
    except (Exception, SystemExit) as error:  # a script without `if __name__ == "__main__"` may exit
        raise BadInput(f"importing it failed: {in_one_line(error)}", reference) from error
    made = getattr(home, attribute, None)
    if made is None:
        raise BadInput(f"{module} has no {attribute}", reference)
    return made


def _from_code(module: str, attribute: str, options: dict[str, str], search: Path, reference: str) -> Model:
    made = imported(module, attribute, search, reference)
    if isinstance(made, type) and issubclass(made, Model):
        try:
            made = made(**options)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(f"{attribute}() failed: {in_one_line(error)}", reference) from error
    elif options:
        raise BadInput(f"{attribute} is no class, only those have options", reference)
    if not isinstance(made, Model):
        raise BadInput(
            f"{attribute} is no model: derive it from mark.Model, or decorate it with @mark.model", reference
        )
    return made
