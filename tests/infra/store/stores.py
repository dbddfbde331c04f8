"""The stores under test, each as a table that several holders and processes may open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from mark_infra.aws.gate import Gate
from mark_infra.aws.site import Site
from mark_infra.store.dynamo_table import Table
from mark_infra.store.dynamodb import create_table
from mark_infra.store.store import open_table

from tests.infra.conftest import REGION, MotoServer
from tests.infra.transactions import mend_transactions

Open = Callable[[], Table]
"""Opens the same table once more, as another process would."""


def dynamo_gate(moto: MotoServer) -> Gate:
    return Gate(Site("test", REGION, "dynamodb:any"), options=moto.options)


def opener(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Yield for a fixture a function that opens a new table of that kind, and close all tables at the end."""
    opened: list[Table] = []
    spec, gate = f"sqlite:{folder / 'state.db'}", None
    if kind == "dynamodb":
        mend_transactions()
        moto = request.getfixturevalue("moto")
        name = f"mark-{uuid4()}"
        create_table(moto.client("dynamodb"), name)
        spec, gate = f"dynamodb:{name}", dynamo_gate(moto)

    def open_again() -> Table:
        opened.append(open_table(spec, gate))
        return opened[-1]

    yield open_again
    for table in opened:
        table.close()
