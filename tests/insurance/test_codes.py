"""Codes of parity models: any k of k + r outputs give the others."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.arrays import FloatArray
from mark.domain.errors import BadInput
from mark.insurance.codes import ParityCode, check_shape
from mark.insurance.insurance_settings import CONCAT, SUM


@given(st.integers(2, 8), st.integers(1, 2), st.integers(0, 2**32 - 1))
def test_every_missing_set_is_reconstructed_for_a_linear_model(k: int, r: int, seed: int) -> None:
    r = min(r, k - 1)
    rng = np.random.default_rng(seed)
    code, model, queries = ParityCode(SUM, k, r), rng.normal(size=(5, 3)), rng.normal(size=(k, 5))
    outputs = queries @ model
    parities = [query @ model for query in code.encode(list(queries))]
    np.testing.assert_allclose(parities, code.targets(outputs[None])[:, 0])
    for missing in (*combinations(range(k), 1), *combinations(range(k), r)):
        known = {c: outputs[c] for c in range(k) if c not in missing}
        for order in (range(r), reversed(range(r))):
            found = code.decode(known, {p: parities[p] for p in order})
            assert sorted(found) == sorted(missing)
            for c, output in found.items():
                np.testing.assert_allclose(output, outputs[c], atol=1e-8)


def test_nothing_missing_needs_no_parity() -> None:
    assert ParityCode(SUM, 2).decode({0: np.ones(1), 1: np.ones(1)}, {}) == {}


def test_two_missing_answers_need_two_parities() -> None:
    with pytest.raises(BadInput, match="2 are missing"):
        ParityCode(SUM, 3, 2).decode({0: np.ones(1)}, {1: np.ones(1)})


def test_concat_puts_shrunken_images_into_a_grid() -> None:
    images = [np.full((4, 4), float(n)) for n in range(4)]
    (whole,) = ParityCode(CONCAT, 4).encode(images)
    np.testing.assert_array_equal(whole, [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]])


def test_concat_shrinks_by_means() -> None:
    image = np.arange(8.0).reshape(1, 4, 2)
    (whole,) = ParityCode(CONCAT, 2).encode([image, image])
    np.testing.assert_array_equal(whole, [[[1, 2], [5, 6], [1, 2], [5, 6]]])


@given(st.integers(2, 8), st.integers(8, 13), st.integers(8, 13))
def test_concat_keeps_constant_images_of_any_size(k: int, height: int, width: int) -> None:
    (whole,) = ParityCode(CONCAT, k).encode([np.full((3, height, width), 7.0)] * k)
    np.testing.assert_allclose(whole, 7.0)
    assert whole.shape == (3, height, width)


@pytest.mark.parametrize(
    ("name", "k", "r", "said"),
    [
        ("xor", 2, 1, "sum or concat"),
        (SUM, 1, 1, "2 to 8"),
        (SUM, 9, 1, "2 to 8"),
        (SUM, 2, 2, "1 to 1"),
        (SUM, 4, 0, "r"),
    ],
)
def test_codes_that_cannot_be_are_refused(name: str, k: int, r: int, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ParityCode(name, k, r)


def test_concat_needs_rows_and_columns() -> None:
    check_shape(ParityCode(CONCAT, 4), (2, 2), "input")
    with pytest.raises(BadInput, match="2 x 2"):
        check_shape(ParityCode(CONCAT, 4), (10,), "input")
    check_shape(ParityCode(SUM, 4), (10,), "input")


def test_integers_are_encoded_as_floats() -> None:
    (whole,) = ParityCode(SUM, 2).encode([np.array([200], dtype=np.uint8)] * 2)
    assert whole.dtype == np.float32
    assert whole[0] == 400.0


@pytest.mark.parametrize("name", [SUM, CONCAT])
def test_queries_too_large_to_add_are_encoded_as_infinite_without_a_warning(name: str) -> None:
    largest: FloatArray = np.full((4, 4), np.finfo(np.float32).max, dtype=np.float32)
    (found,) = ParityCode(name, 4).encode([largest] * 4)
    assert np.isinf(found).any()
