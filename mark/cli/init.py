"""mark init: a commented service file to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.arguments import writable
from mark.cli.output import write_file
from mark.config.service_file import template
from mark.domain.errors import BadInput


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a commented service file to edit. Nothing is ever overwritten."
    parser.add_argument("name", nargs="?", default="my-service", metavar="NAME", help="default: my-service")
    parser.add_argument("--out", metavar="FILE", help="default: NAME.toml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    text = template(args.name)
    path = writable(args.out or f"{args.name}.toml", "--out")
    if Path(path).exists():
        raise BadInput("exists already and is left alone", "--out", path)
    write_file(path, text, "--out")
    print(f"next: edit {path}, then: mark check {path}")
    return 0
