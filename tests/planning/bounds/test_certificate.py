"""A certificate proves its number to a script that shares no code with mark, and changed numbers are refused."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.domain.errors import BadInput
from mark.planning.bounds.certificate import BoundCertificate, certify_blocks
from mark.planning.bounds.whole_bound import highest_bound
from tests.planning.bounds.test_lower_bound import Steps, offer, problem, spot
from tests.planning.bounds.test_whole_bound import swinging, two_types

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_bound.py"


def check(file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT), str(file), *more], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def certificate() -> BoundCertificate:
    made = two_types(swinging(1.0, 12.0), usd_per_request=1e-4)
    return certify_blocks(made, 0.02 * float(made.counts.sum()))


def parts(certificate: BoundCertificate) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(io.BytesIO(certificate.content)) as data:
        arrays = {name: data[name] for name in ("counts", "prices", "pattern")}
        return json.loads(bytes(data["head"])), arrays


def written(file: Path, head: str, arrays: dict[str, np.ndarray]) -> Path:
    np.savez_compressed(file, head=np.frombuffer(head.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return file


def test_script_proves_the_number_without_mark(certificate: BoundCertificate, tmp_path: Path) -> None:
    assert "import mark" not in SCRIPT.read_text()
    assert "from mark" not in SCRIPT.read_text()
    assert len(SCRIPT.read_text().splitlines()) <= 150
    file = tmp_path / "bound.npz"
    file.write_bytes(certificate.content)
    done = check(file, "--digest", certificate.sha256)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"${certificate.usd:.4f}" in done.stdout
    other = check(file, "--digest", "0" * 64)
    assert other.returncode == 1
    assert "refused: its digest is" in other.stderr


@pytest.mark.parametrize(
    "forged",
    ["usd", "late_usd", "late_allowed", "bin_s", "block_bins", "function_usd", "usd_per_s", "rps", "boot", "count"],
)
def test_a_changed_number_is_refused(certificate: BoundCertificate, tmp_path: Path, forged: str) -> None:
    """The changed numbers prove another bound or, if they prove the same, the digest differs."""
    head, arrays = parts(certificate)
    factor = 0.5 if forged == "bin_s" else 1.01
    if forged in head:
        head[forged] = head[forged] + 1 if forged == "block_bins" else head[forged] * factor
    elif forged == "count":
        arrays["counts"][500] += 50
    elif forged == "usd_per_s":
        arrays["prices"] *= factor
    else:
        for one in head["offers"]:
            one["billed_boot_s" if forged == "boot" else forged] *= factor
    done = check(written(tmp_path / "forged.npz", json.dumps(head), arrays), "--digest", certificate.sha256)
    assert done.returncode == 1
    # Here the cheapest schedule has no event, and functions cost more than late requests: these changes prove the same.
    if forged not in ("boot", "function_usd"):
        done = check(tmp_path / "forged.npz")
        assert (done.returncode, "refused" in done.stderr) == (1, True)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_a_file_that_is_no_certificate_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bound.npz"
    file.write_bytes(content)
    done = check(file)
    assert done.returncode == 1
    assert "refused: no certificate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_place_without_a_file_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none.npz"):
        done = check(place)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{place}: refused: no certificate (")
        assert done.stderr.count("\n") == 1


def test_a_damaged_certificate_is_refused(certificate: BoundCertificate, tmp_path: Path) -> None:
    file, content = tmp_path / "bound.npz", certificate.content
    for at in range(0, len(content) - 40, len(content) // 5):
        file.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40 :])
        done = check(file)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), at


def test_numbers_out_of_range_are_refused(certificate: BoundCertificate, tmp_path: Path) -> None:
    head, arrays = parts(certificate)
    for wrong in ({"late_usd": -1.0}, {"late_usd": 1.0}, {"late_allowed": float("nan")}, {"rt_max_s": 9.0}):
        done = check(written(tmp_path / "forged.npz", json.dumps(head | wrong), arrays))
        assert done.returncode == 1
        assert "refused" in done.stderr
    done = check(written(tmp_path / "forged.npz", json.dumps(head), arrays | {"prices": arrays["prices"] * 0.9}))
    assert "below the lowest price" in done.stderr


def test_forged_data_are_refused_although_they_prove_the_number(certificate: BoundCertificate, tmp_path: Path) -> None:
    head, arrays = parts(certificate)
    text, counts = json.dumps(head), arrays["counts"]
    forged: dict[str, tuple[str, dict[str, np.ndarray]]] = {
        "repeated key": ('{"usd": 1000.0, ' + text[1:], {}),
        "another format": (json.dumps(head | {"format": 2}), {}),
        "a word for a truth value": (json.dumps(head | {"warm_start": "yes"}), {}),
        "true for a number": (json.dumps(head | {"rt_max_s": True}), {}),
        "function without a price": (json.dumps(head | {"function_usd": float("nan")}), {}),
        "text counts": (text, {"counts": counts.astype(str)}),
        "signed counts": (text, {"counts": counts.astype(np.int64)}),
        "nested counts": (text, {"counts": counts[:, None]}),
        "patterns from the end": (text, {"pattern": arrays["pattern"].astype(np.int64) - len(arrays["prices"])}),
        "more patterns than blocks": (text, {"pattern": np.tile(arrays["pattern"], 2)}),
    }
    for name, (changed, other) in forged.items():
        written(tmp_path / "forged.npz", changed, arrays | other)
        done = check(tmp_path / "forged.npz")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), name


def test_sums_that_are_not_finite_are_refused(certificate: BoundCertificate, tmp_path: Path) -> None:
    head, arrays = parts(certificate)
    for huge in ({"late_usd": 1e308, "function_usd": None}, {"bin_s": 1e308}):
        file = written(tmp_path / "forged.npz", json.dumps(head | huge), arrays)
        done = check(file)
        assert (done.returncode, done.stdout, "refused" in done.stderr) == (1, "", True), huge


def test_spot_series_are_in_the_certificate(tmp_path: Path) -> None:
    gone = Steps("availability", (0.0, 1800.0), (1.0, 0.0))
    priced = Steps("price", (0.0, 900.0, 2000.0), (0.3, 0.5, 0.4))
    made = problem(swinging(1.0, 9.0), spot(), (offer(), 10.0), (offer("b.xlarge", 3.0), 40.0), spot=(gone, priced))
    found = certify_blocks(made, 0.0)
    file = tmp_path / "spot.npz"
    file.write_bytes(found.content)
    assert check(file).returncode == 0
    assert found.usd <= (highest_bound(made).whole_usd or 0.0) * (1.0 + 1e-9)


def test_nothing_to_certify_is_one_clear_line() -> None:
    with pytest.raises(BadInput, match="nothing to certify"):
        certify_blocks(two_types(np.zeros(100)), 0.0)
    fractions = two_types(np.full(600, 5.0))
    with pytest.raises(BadInput, match="whole numbers of requests"):
        certify_blocks(replace(fractions, counts=np.full(600, 5.5)), 0.0)
