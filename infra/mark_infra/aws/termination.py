"""Terminate instances although EC2 refuses a whole call for one of them."""

from __future__ import annotations

from collections.abc import Callable

from mark.domain.errors import CloudError, NotFoundError
from mark_infra.aws.gate import Gate, is_refusal
from mark_infra.aws.inventory import Inventory


def in_turn(ids: list[str], work: Callable[[list[str]], None]) -> None:
    """Do the work for all instances, one by one if EC2 refuses it for one of them. Raises the last CloudError."""
    try:
        work(ids)
    except CloudError as error:
        if len(ids) == 1 or not (is_refusal(error) or isinstance(error, NotFoundError)):
            raise
        failed: CloudError | None = None
        for id in ids:
            try:
                work([id])
            except CloudError as refused:
                failed = refused
        if failed is not None:
            raise failed from failed.__cause__


def end(gate: Gate, inventory: Inventory, ids: list[str]) -> None:
    """Terminate instances of a site; instances that are gone are ignored. Raises CloudError."""
    terminate(gate, ids)
    inventory.ended(ids)


def terminate(gate: Gate, ids: list[str]) -> None:
    """Terminate instances; instances that are gone are ignored. Raises CloudError."""
    try:
        gate.call(gate.client("ec2").terminate_instances, InstanceIds=ids)
    except NotFoundError:
        if len(ids) > 1:  # one that is gone makes EC2 refuse the whole call
            for id in ids:
                terminate(gate, [id])
