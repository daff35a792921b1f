"""Scaled rows never exceed the norm, exactly, in either precision."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dplateau.engines import scale_rows
from dplateau.engines.rows import row_norms
from dplateau.errors import InvalidInput


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 40),
    size=st.floats(1e-3, 1e6),
    norm=st.floats(1e-3, 1e3),
    dtype=st.sampled_from([np.float32, np.float64]),
    form=st.sampled_from([np.asarray, np.asfortranarray, sparse.csr_array]),
)
def test_no_scaled_row_is_longer_than_the_norm(
    seed: int, d: int, size: float, norm: float, dtype: Any, form: Any
) -> None:
    rows = (size * np.random.default_rng(seed).normal(size=(3, d))).astype(dtype)
    scaled = scale_rows(form(rows), norm)
    assert scaled.dtype == dtype
    dense = scaled.toarray() if sparse.issparse(scaled) else scaled
    for before, after in zip(rows, dense, strict=True):
        # Exact arithmetic: the claim is about the stored numbers.
        assert sum(Fraction(float(x)) ** 2 for x in after) <= Fraction(norm) ** 2
        if np.linalg.norm(before.astype(float)) > norm:
            assert np.linalg.norm(after.astype(float)) == pytest.approx(norm, rel=1e-5)
            assert np.allclose(after / np.linalg.norm(after), before / np.linalg.norm(before))


def test_short_rows_stay_as_they_are_and_long_ones_know_nothing_of_each_other() -> None:
    rows = np.array([[0.1, 0.2], [30.0, 40.0], [0.0, 0.0]])
    scaled = scale_rows(rows, 1.0)
    assert np.array_equal(scaled[0], rows[0])
    assert np.array_equal(scale_rows(rows[1:2], 1.0), scaled[1:2])
    assert not scaled[2].any()
    assert rows[1, 0] == 30.0, "the input is not changed"


def test_rows_can_be_scaled_into_a_file_and_in_place(tmp_path: Path) -> None:
    rows = 9 * np.random.default_rng(1).normal(size=(50, 3))
    expected = scale_rows(rows, 1.0)
    mapped = np.memmap(tmp_path / "rows", dtype=rows.dtype, mode="w+", shape=rows.shape)
    assert scale_rows(rows, 1.0, out=mapped) is mapped
    assert np.array_equal(mapped, expected)
    scale_rows(rows, 1.0, out=rows)
    assert np.array_equal(rows, expected)
    with pytest.raises(InvalidInput, match="out must have shape"):
        scale_rows(rows, 1.0, out=np.empty((2, 3)))


def test_an_intercept_adds_one_to_the_square() -> None:
    rows = scale_rows(np.random.default_rng(0).normal(size=(100, 4)) * 9, 2.0)
    whole = np.hstack([rows, np.ones((100, 1))])
    assert row_norms(whole).max() <= np.sqrt(2.0**2 + 1)


def test_bad_rows_are_refused() -> None:
    with pytest.raises(InvalidInput, match="norm must be finite and above 0"):
        scale_rows(np.ones((2, 2)), 0.0)
    with pytest.raises(InvalidInput, match="float32 or float64; got int64"):
        scale_rows(np.ones((2, 2), dtype=np.int64), 1.0)


def test_entries_that_are_stored_twice_are_refused() -> None:
    # One place of value 4, stored as four entries of 1: its norm would be taken for 2.
    twice = sparse.csr_array((np.ones(4), np.zeros(4, dtype=int), np.array([0, 4])), shape=(1, 3))
    for use in (row_norms, lambda rows: scale_rows(rows, 1.0)):
        with pytest.raises(InvalidInput, match="sum_duplicates"):
            use(twice)
    twice.sum_duplicates()
    assert row_norms(twice).tolist() == [4.0]
