"""How rows become what the model sees, and how scores come back in the user's units."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, csr_matrix

from dplateau import (
    InvalidInput,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from dplateau.engines import SeededRandomness, scale_rows, train
from dplateau.estimators.columns import columns_of
from dplateau.estimators.rows import RowMap
from dplateau.estimators.whitening import Whitening

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]

QUICK: dict[str, Any] = {"compute_budget": 10, "algorithm": "momentum", "random_state": 3}
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(60, 3))
LABELS = (X @ [1.0, -2.0, 0.5] > 0).astype(int)
THREE = np.digitize(X[:, 0], [-0.3, 0.3])
Y = X @ [0.2, 0.4, -0.1]


def classifiers() -> list[Any]:
    return [
        (PrivateLogisticRegression(classes=[0, 1], **QUICK), LABELS),
        (PrivateLogisticRegression(classes=[0, 1, 2], **QUICK), THREE),
        (PrivateLinearSVC(classes=[0, 1], **QUICK), LABELS),
        (PrivateLinearSVC(classes=[0, 1, 2], **QUICK), THREE),
    ]


def regressors() -> list[Any]:
    return [(PrivateRidge(**QUICK), Y), (PrivateHuberRegressor(**QUICK), Y)]


def scores(model: Any, rows: Any) -> Any:
    return getattr(model, "decision_function", model.predict)(rows)


def within_range(model: Any, linear: Any) -> Any:
    """Predictions of numbers are cut to the target bound; scores of classes are not."""
    return linear if hasattr(model, "classes") else np.clip(linear, -1.0, 1.0)


@pytest.mark.parametrize(("model", "y"), [*classifiers(), *regressors()])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("bounds", [None, (-1, 1), ([-1, -2, -1.5], [1.5, 1, 2])])
def test_within_bounds_and_norm_scores_are_linear(
    model: Any, y: Any, fit_intercept: bool, bounds: Any
) -> None:
    model.set_params(data_norm=2.0, feature_bounds=bounds, fit_intercept=fit_intercept).fit(X, y)
    linear = within_range(model, X @ model.coef_.T + model.intercept_)
    found = scores(model, X)
    np.testing.assert_allclose(found, np.reshape(linear, found.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("model", "y"), [*classifiers(), *regressors()])
def test_longer_rows_are_predicted_as_they_were_trained(model: Any, y: Any) -> None:
    model.fit(X, y)
    far = 50 * X
    found = scores(model, far)
    linear = within_range(model, scale_rows(far, 1.0) @ model.coef_.T + model.intercept_)
    np.testing.assert_allclose(found, np.reshape(linear, found.shape), rtol=1e-9, atol=1e-12)


def test_values_beyond_the_bounds_count_as_the_bounds() -> None:
    model = PrivateRidge(feature_bounds=([0, 0, 0], [1, 2, 4]), data_norm=9.0, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(
        model.predict([[7.0, -3.0, 1.0]]), model.predict([[1.0, 0.0, 1.0]])
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_columns_are_mapped_alike_and_within_the_norm(dtype: Any) -> None:
    columns = columns_of({0: (-1, 3), 1: "binary", 2: ("nonnegative", 5)}, 3)
    row_map = RowMap(data_norm=0.9, intercept=0.4, columns=columns)
    rows = np.random.default_rng(2).normal(scale=3, size=(4000, 3)).astype(dtype)
    by_row = row_map.training_rows(rows, 4010)
    by_column = row_map.training_rows(np.asfortranarray(rows), 4010)
    tiny = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(by_row, by_column, rtol=tiny, atol=tiny)
    cut = np.clip(rows.astype(float), [-1, 0, 0], [3, 1, 5])
    plain = (cut - [1, 0, 0]) / [2, 1, 5]
    plain *= np.minimum(1, 0.9 / np.maximum(np.linalg.norm(plain, axis=1), 0.9))[:, None]
    np.testing.assert_allclose(by_row[:4000, :3], plain, rtol=2 * tiny, atol=2 * tiny)
    for mapped in (by_row, by_column):
        assert np.all(np.abs(mapped[:4000, 3] - 0.4) <= tiny)
        assert not np.any(mapped[4000:])
        assert np.all(np.linalg.norm(mapped[:, :3].astype(float), axis=1) <= 0.9)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("order", ["C", "F"])
def test_bounds_do_not_hide_what_is_no_number(odd: float, order: Any) -> None:
    rows = np.zeros((3000, 3), order=order)
    rows[2999, 1] = odd
    for columns in (None, columns_of((0, 1), 3)):
        with pytest.raises(InvalidInput, match="must be finite"):
            RowMap(1.0, 1.0, columns).training_rows(rows, 3000)


@pytest.mark.parametrize("bounds", [None, ([-1, -2, 0], [1, 1, 3])])
def test_the_fit_is_the_engine_on_mapped_rows(bounds: Any) -> None:
    """The whole way by hand: map, scale, append the constant, pad, train, divide out."""
    model = PrivateLogisticRegression(classes=[0, 1], feature_bounds=bounds, n_public=70, **QUICK)
    model.fit(X, LABELS)
    low, high = (-1.0, 1.0) if bounds is None else (np.array(side) for side in bounds)
    mapped = 2 * (np.clip(X, low, high) - low) / (high - low) - 1 if bounds else X
    plan = model.plan_
    rows = np.zeros((70, 4))
    rows[:60, :3] = scale_rows(mapped, 1.0)
    rows[:60, 3] = plan.intercept
    targets = np.concatenate([2.0 * LABELS - 1, -np.ones(10)])
    weights = train(
        plan.run,
        plan.loss,
        rows,
        targets,
        feature_norm=plan.feature_norm,
        clip=plan.clip,
        randomness=SeededRandomness(3),
    )
    at = rows[:60] @ weights
    np.testing.assert_allclose(model.decision_function(X), at, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("model", "y"), [*classifiers(), *regressors()])
@pytest.mark.parametrize("bounds", [None, (-0.5, 0.5)])
@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_sparse_rows_give_the_same_model(model: Any, y: Any, bounds: Any, kind: Any) -> None:
    thin = np.where(np.abs(X) > 0.4, 3 * X, 0.0)
    model.set_params(feature_bounds=bounds, n_public=64)
    dense = model.fit(thin, y).coef_
    found = scores(model, thin)
    np.testing.assert_allclose(model.fit(kind(thin), y).coef_, dense, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores(model, kind(thin)), found, rtol=1e-9, atol=1e-12)


def test_an_entry_stored_twice_counts_as_its_sum() -> None:
    twice = csr_array(
        (np.array([3.0, 3.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2)
    )
    rows = RowMap(1.0, 0.0).training_rows(twice, 2).toarray()
    np.testing.assert_allclose(rows, [[1.0, 0.0], [0.0, 1.0]], rtol=1e-9)
    assert twice.nnz == 3, "the user's matrix was changed"


def test_sparse_rows_need_bounds_that_keep_zeros() -> None:
    model = PrivateRidge(feature_bounds=(0, 1), **QUICK)
    with pytest.raises(InvalidInput, match="symmetric about 0"):
        model.fit(csr_array(X), Y)


def test_memory_mapped_and_narrow_rows(tmp_path: Path) -> None:
    place = tmp_path / "rows.dat"
    stored = np.memmap(place, dtype=np.float32, mode="w+", shape=X.shape)
    stored[:] = X
    stored.flush()
    mapped = np.memmap(place, dtype=np.float32, mode="r", shape=X.shape)
    model = PrivateLogisticRegression(classes=[0, 1], **QUICK)
    wide = model.fit(X, LABELS).coef_
    narrow = model.fit(mapped, LABELS).coef_
    np.testing.assert_allclose(narrow, wide, rtol=1e-4)
    precise = "gradients are computed in float32 and noise in float64"
    assert precise in [assumption.text for assumption in model.certificate_.assumptions]


@example(np.full((4, 3), 1e308), np.float64, 3.0, None)
@given(
    arrays(
        np.float64,
        (4, 3),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.sampled_from([np.float32, np.float64]),
    st.floats(0.01, 100.0),
    st.sampled_from([None, (-1.0, 1.0), (-2.0, 7.0), ["binary", ("nonnegative", 3.0), (-5, 1)]]),
)
def test_no_row_is_longer_than_promised(rows: Any, dtype: Any, norm: float, bounds: Any) -> None:
    """In exact arithmetic: what the gradient bound rests on."""
    with np.errstate(over="ignore"):
        given_rows = rows.astype(dtype)
    given_rows[~np.isfinite(given_rows)] = 0
    with np.errstate(all="ignore"):
        found = RowMap(norm, 0.5 * norm, columns_of(bounds, 3)).training_rows(given_rows, 5)
    assert found.dtype == dtype
    assert np.all(np.isfinite(found))
    for row in found:
        size = sum(Fraction(float(value)) ** 2 for value in row)
        assert size <= Fraction(norm) ** 2 + (Fraction(norm) / 2) ** 2


@pytest.mark.parametrize("bounds", [None, (-0.4, 0.4)])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_rows_do_not_see_each_other(bounds: Any, kind: Any) -> None:
    """Bit by bit: whatever is done to a row depends on that row alone."""
    row_map = RowMap(0.5, 0.25, columns_of(bounds, 3))
    together = row_map.training_rows(kind(X), len(X))
    for place in range(len(X)):
        alone = row_map.training_rows(kind(X[place : place + 1]), 1)
        difference = together[[place]] - alone
        assert abs(difference).max() == 0


def test_absent_records_have_no_constant_feature_either() -> None:
    for rows in (X[:3], csr_array(X[:3])):
        found = RowMap(1.0, 0.5).training_rows(rows, 5)
        dense = found if isinstance(found, np.ndarray) else found.toarray()
        assert dense.shape == (5, 4)
        assert not dense[3:].any()
        assert np.all(dense[:3, 3] == 0.5)


@pytest.mark.parametrize("unit", [1e-3, 40.0])
def test_units_do_not_matter(unit: float) -> None:
    """Columns with bounds and targets with a range may be measured in anything."""
    plain = PrivateRidge(feature_bounds=(-1, 1), target_bound=(-1, 2), **QUICK).fit(X, Y)
    other = PrivateRidge(feature_bounds=(-unit, unit), target_bound=(-unit, 2 * unit), **QUICK).fit(
        unit * X, unit * Y
    )
    np.testing.assert_allclose(other.predict(unit * X), unit * plain.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (3.0, "must be a pair"),
        ((0, [1, 2]), "3 numbers each"),
        ((1, 0), "low < high"),
        ((0, [1, 1, 0]), "drop columns"),
        ((0, np.inf), "finite"),
        (("a", "b"), "must be a pair"),
    ],
)
def test_bounds_that_are_none(bounds: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        columns_of(bounds, 3)


def test_columns_are_mapped_by_their_kind() -> None:
    rows = np.array([[1.0, 30.0, 8.0], [0.0, -5.0, 2.0], [3.0, 70.0, 20.0]])
    kinds = ["binary", ("nonnegative", 60.0), (0, 10)]
    expected = [[1, 0.5, 0.6], [0, 0, -0.6], [1, 1, 1]]
    by_name = dict(zip("abc", kinds, strict=True))
    turned = {name: by_name[name] for name in "cab"}
    for columns in (columns_of(kinds, 3), columns_of(turned, 3, list("abc"))):
        found = RowMap(9.0, 0.0, columns).training_rows(rows, 3)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    by_place = columns_of(dict(enumerate(kinds)), 3)
    assert by_place is not None
    assert by_place.center.tolist() == [0, 0, 5]


def test_sparse_rows_keep_their_zeros_where_zero_means_absence() -> None:
    kinds = ["binary", ("nonnegative", 2.0), (-1, 1)]
    thin = np.abs(X) * (np.abs(X) > 0.5)
    row_map = RowMap(1.0, 0.5, columns_of(kinds, 3))
    np.testing.assert_allclose(
        row_map.training_rows(csr_array(thin), 60).toarray(), row_map.training_rows(thin, 60)
    )


def test_a_frame_names_its_columns() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    bounds = {"c": (-1, 1), "a": (-1, 1), "b": ("nonnegative", 1)}
    model = PrivateRidge(feature_bounds=bounds, **QUICK).fit(frame, Y)
    same = PrivateRidge(feature_bounds=[(-1, 1), ("nonnegative", 1), (-1, 1)], **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    with pytest.raises(InvalidInput, match="says nothing about 'b'"):
        model.set_params(feature_bounds={"a": "binary", "c": (0, 1)}).fit(frame, Y)
    with pytest.raises(InvalidInput, match="names 'z', but X has the columns 'a', 'b', 'c'"):
        model.set_params(feature_bounds={"z": "binary"}).fit(frame, Y)


@pytest.mark.parametrize(
    ("bounds", "d", "reason"),
    [
        (["binary", "rare", (0, 1)], 3, "column 1 must be"),
        ([("positive", 3), "binary"], 2, "column 0 must be"),
        (["binary", (0, 1)], 3, "2 entries, but X has 3 columns"),
        ([(0, 1), (2, 5)], 2, "read in two ways"),
        ({"a": (0, 1)}, 1, "an array has no names"),
        ([("nonnegative", -1), "binary", "binary"], 3, "low < high"),
        ({0: (0, 1), 1: (0, 1)}, 3, "says nothing about 2"),
    ],
)
def test_kinds_that_are_none(bounds: Any, d: int, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        columns_of(bounds, d)


def test_predictions_stay_within_the_target_bound() -> None:
    for fit_intercept, bound in ((True, (-0.3, 0.2)), (False, (-0.3, 0.2)), (True, 0.1)):
        model = PrivateRidge(target_bound=bound, fit_intercept=fit_intercept, **QUICK).fit(X, Y)
        found = model.predict(9 * X)
        low, high = bound if isinstance(bound, tuple) else (-bound, bound)
        assert low <= found.min() < found.max() <= high


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize(("d", "k"), [(8, 1), (14, 3), (33, 10)])
def test_a_score_is_the_same_to_the_last_bit_whoever_else_is_scored(
    d: int, k: int, whitened: bool
) -> None:
    rng = np.random.default_rng(d)
    turned = (Whitening(rng.normal(size=(d, d))),) if whitened else ()
    row_map = RowMap(1.0, 0.0, columns_of((-2, 3), d), turned)
    row, coef = rng.normal(size=(1, d)), rng.normal(size=(k, d))
    alone = row_map.scores(row, coef, np.zeros(k))
    for n in (2, 3, 7, 64, 1001):
        for order in ("C", "F"):
            rows = np.array(np.repeat(row, n, axis=0), order=order)
            assert np.all(row_map.scores(rows, coef, np.zeros(k)) == alone), (n, order)
            assert np.all(row_map.norms(rows) == row_map.norms(row)), (n, order)
