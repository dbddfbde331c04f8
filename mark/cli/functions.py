"""Options of the command line that say where functions are."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mark.cli.doors import key_from
from mark.domain.errors import BadInput

if TYPE_CHECKING:
    from mark.serving.overflow.functions import FunctionClient


def add_functions(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--function", metavar="NAME|URL", help="Lambda function, or another server of the same model")
    group.add_argument("--function-key", type=Path, metavar="FILE", help="holds the key that a URL asks for")


def functions_from(args: argparse.Namespace) -> FunctionClient | None:
    """Raises BadInput where there can be none such."""
    name: str | None = args.function
    at_url = name is not None and name.startswith(("http://", "https://"))
    if args.function_key is not None and not at_url:
        raise BadInput("is for a --function at a URL; AWS's keys are those of its environment", "--function-key")
    if name is None:
        return None
    if at_url:
        from mark.serving.overflow.http_functions import HttpFunctions

        return HttpFunctions(name, key=None if args.function_key is None else key_from(args.function_key))
    from mark_infra.aws.functions import LambdaFunctions

    if find_spec("aioboto3") is None:
        raise BadInput("needs aioboto3: pip install 'mark-serving[aws]'", "--function", name)
    return LambdaFunctions(name)
