"""mark init: a commented service file to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from mark.cli.options import Commands, writable
from mark.cli.output import write_file
from mark.domain.errors import BadInput


def add_to(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "init",
        help="write a commented service file",
        description="Write a commented service file to edit. Nothing is ever overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", default="my-service", metavar="NAME", help="default: my-service")
    parser.add_argument("--out", metavar="FILE", help="default: NAME.toml")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from mark.config.service_file import template

    text = template(args.name)
    path = writable(args.out or f"{args.name}.toml", "--out")
    if Path(path).exists():
        raise BadInput("exists already and is left alone", "--out", path)
    write_file(path, text, "--out")
    print(f"next: edit {path}, then: mark check {path}")
    return 0
