"""A profile is not called after a type that this machine is not, without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.catalog.tables import load_catalog
from mark.profiling.machine import ProfiledMachine, this_machine


@pytest.mark.parametrize(
    ("machine", "named", "said"),
    [
        (ProfiledMachine(8), "local", None),
        (ProfiledMachine(8), "c7i.large", "this machine (8 processors) is no EC2 instance"),
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
