"""A disk is as large as its contents need, within the allowed size."""

from __future__ import annotations

from pathlib import Path

import pytest
from mark_infra.deploy.disk import GIB, disk_gib
from mark_infra.deploy.wheelhouse import Wheelhouse

from mark.domain.errors import BadInput

MIB = 2**20
LIGHT = Wheelhouse(Path("light"), 38 * MIB, 104 * MIB)
TORCH = Wheelhouse(Path("torch"), 260 * MIB, 1100 * MIB)
CUDA = Wheelhouse(Path("cuda"), 2914 * MIB, 5365 * MIB)


@pytest.mark.parametrize(
    ("packages", "model_gib", "gpus", "size"),
    [(LIGHT, 0.1, False, 8), (LIGHT, 2.5, False, 9), (TORCH, 2.5, False, 11), (CUDA, 5, True, 101)],
)
def test_a_disk_holds_what_lies_on_it(packages: Wheelhouse, model_gib: float, gpus: bool, size: int) -> None:
    model = int(model_gib * GIB)
    assert disk_gib("echo", packages, model, model, gpus=gpus, limit=None) == size
    assert disk_gib("echo", packages, model, model, gpus=gpus, limit=size) == size


def test_a_feedback_log_has_its_place() -> None:
    model = 5 * GIB // 2
    assert disk_gib("echo", TORCH, model, model, gpus=False, limit=None, log_bytes=3 * GIB) == 11 + 3


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    said = r"max_disk_gib: echo needs a disk of 11 GiB \(image 1\.7, packages 2\.1, .* files 5\.0, room 2\.0\): 8$"
    with pytest.raises(BadInput, match=said) as refused:
        disk_gib("echo", TORCH, 5 * GIB // 2, 5 * GIB // 2, gpus=False, limit=8)
    assert "\n" not in str(refused.value)
