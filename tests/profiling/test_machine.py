"""A profile that names another type than this machine's comes with a warning."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.profiling.machine import (
    ProfiledMachine,
    Room,
    check_named,
    cpu_s,
    peak_bytes,
    room_of,
    this_machine,
    this_room,
)

CATALOGS = [load_catalog("aws-2019"), load_catalog("aws-2026")]


@pytest.mark.parametrize(
    ("machine", "named", "said"),
    [
        (ProfiledMachine(8), "local", None),
        (ProfiledMachine(8), "c7i.large", "this machine (8 processors) does not say that it is an EC2 instance"),
        (ProfiledMachine(2, "c7i.large"), "c7i.large", None),
        (
            ProfiledMachine(4, "c7i.xlarge"),
            "c7i.large",
            "this machine is a c7i.xlarge, and the profile calls it c7i.large",
        ),
        (ProfiledMachine(4, "c7i.xlarge"), "my-box", None),
    ],
)
def test_another_type_is_named(machine: ProfiledMachine, named: str, said: str | None) -> None:
    found = machine.mismatch(named, load_catalog("aws-2026"))
    assert found is None if said is None else (found or "").startswith(said)


@pytest.mark.parametrize(
    "named",
    [
        *("c5.large", "p2.xlarge", "ml.c5.large", "c9g.large", "c7j.112xlarge", "u-6tb1.metal", "p6-b200.48xlarge"),
        *("c7i-flex.large", "m8g.metal-24xl", "local", "my-box", "lambda:1024", "desk"),
    ],
)
def test_types_to_come_and_names_of_other_machines_are_accepted(named: str) -> None:
    check_named(named, CATALOGS, "--instance")


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("c7i.lrge", "did you mean c7i.large?"),
        ("c7ilarge", "did you mean c7i.large?"),
        ("C7i.large", "did you mean c7i.large?"),
        ("c7i.4xlage", "did you mean c7i.4xlarge?"),
        ("c7i.", "c7i."),
        ("my.box", "my.box"),
    ],
)
def test_misspelt_type_is_refused(named: str, said: str) -> None:
    with pytest.raises(BadInput, match="--instance: is no instance type") as caught:
        check_named(named, CATALOGS, "--instance")
    assert said in str(caught.value)


def test_ec2_s_firmware_names_the_type(tmp_path: Path) -> None:
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    (tmp_path / "product_name").write_text("c7i.large\n")
    assert this_machine(tmp_path).instance == "c7i.large"


@pytest.mark.parametrize("vendor", [None, "QEMU"])
def test_any_other_machine_has_no_type(tmp_path: Path, vendor: str | None) -> None:
    if vendor is not None:
        (tmp_path / "sys_vendor").write_text(vendor)
        (tmp_path / "product_name").write_text("Standard PC")
    found = this_machine(tmp_path)
    assert found.instance is None
    assert found.processors >= 1


@pytest.mark.parametrize(
    ("room", "vcpus", "memory_bytes", "workers"),
    [
        (Room(2.0), 1.02, 3e7, 2),  # the server needs its part beside a worker that always computes
        (Room(8.0), 3.6, 3e7, 2),
        (Room(2.0), 0.1, 3e7, 2),  # it mostly waits: a worker per processor
        (Room(2.0), 4.0, 3e7, 1),
        (Room(16.0, 10e9), 1.0, 3e9, 2),  # memory is enough for two
        (Room(16.0, 10e9), 1.0, 3e10, 1),
        (Room(16.0, gpus=True), 0.5, 1e9, 1),
        (Room(0.0), 1.0, 1e9, 1),
    ],
)
def test_workers_are_as_many_as_processors_and_memory_carry(
    room: Room, vcpus: float, memory_bytes: float, workers: int
) -> None:
    assert room.workers(vcpus, memory_bytes) == workers


def test_room_is_the_smaller_of_machine_and_named_type() -> None:
    catalog, here = load_catalog("aws-2026"), this_room()
    assert here.vcpus == this_machine().processors
    assert room_of("c7i.large", catalog).vcpus == min(2.0, here.vcpus)
    assert room_of("c7i.large", catalog).memory_bytes <= 4 * 2**30
    assert room_of("g4dn.xlarge", catalog).gpus
    assert room_of("local", catalog) == room_of(None, catalog) == here


def test_what_a_process_uses_is_read_of_its_number() -> None:
    before_s = time.process_time()
    assert before_s <= cpu_s(os.getpid()) <= time.process_time()
    assert peak_bytes(os.getpid()) > 1e6
