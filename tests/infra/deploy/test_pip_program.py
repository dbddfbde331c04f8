"""pip's options for machines other than the one that runs it."""

from __future__ import annotations

import pytest
from mark_infra.deploy.pip_program import linux_tags, pins_beside, run_pip
from packaging.utils import parse_wheel_filename

from mark.domain.errors import MarkError

PINS = "numpy==2.4.6\nscikit-learn==1.9.1\nPyYAML==6.0.3\n"


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("", ["numpy==2.4.6", "scikit-learn==1.9.1", "pyyaml==6.0.3"]),
        ("scikit_learn==1.7.0  # as it was pickled", ["numpy==2.4.6", "pyyaml==6.0.3"]),
        ("scikit-learn\nnumpy>=2,<3", ["numpy==2.4.6", "scikit-learn==1.9.1", "pyyaml==6.0.3"]),
        ("pyyaml<6 --hash=sha256:00", ["numpy==2.4.6", "scikit-learn==1.9.1"]),
        ("--pre\n-r more.txt\n./own.whl", ["numpy==2.4.6", "scikit-learn==1.9.1", "pyyaml==6.0.3"]),
    ],
)
def test_pins_give_way_to_what_a_model_needs(asked: str, kept: list[str]) -> None:
    assert pins_beside(PINS, asked).splitlines() == kept


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("a-1-cp39-abi3-manylinux2014_x86_64.whl", True),
        ("a-1-cp311-cp311-linux_x86_64.whl", True),
        ("a-1-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("a-1-cp311-cp311-manylinux_2_35_x86_64.whl", False),
        ("a-1-cp311-cp311-macosx_11_0_arm64.whl", False),
    ],
)
def test_which_wheels_an_instance_can_install(file: str, fits: bool) -> None:
    assert bool(parse_wheel_filename(file)[3] & linux_tags("3.11", "x86_64")) is fits


def test_a_failure_is_the_line_that_says_why() -> None:
    with pytest.raises(MarkError, match=r"^pip download: .*no-such-thing"):
        run_pip("download", "--no-index", "no-such-thing")
