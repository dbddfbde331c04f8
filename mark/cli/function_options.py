"""Options that name the functions."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_functions(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--function", metavar="NAME|URL", help="Lambda function, or another server of the same model")
    group.add_argument("--function-key", type=Path, metavar="FILE", help="holds the key that a URL asks for")
