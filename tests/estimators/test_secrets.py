"""Whatever is wrong with the data, no refusal shows any of it: it says where, and of what kind."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn.base import clone

from dplateau import (
    InvalidInput,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    noisy_score,
)
from dplateau.engines import ArraySource, Prepared, TableSource

NAME, NUMBER = "Alice Smith", 7654321.125
# Every way in which the number might be printed.
SECRETS = (NAME, "Alice", "7654321", "7.654321", "76543")
X = np.linspace(-1, 1, 40).reshape(20, 2)
Y = np.arange(20) % 2
QUICK: dict[str, Any] = {"compute_budget": 2, "algorithm": "momentum"}


def with_cell(values: Any, place: Any, cell: Any, dtype: Any) -> Any:
    found = np.asarray(values).astype(dtype)
    found[place] = cell
    return found


TEXT = with_cell(X, (7, 1), NAME, object)
LARGE = with_cell(X, (0, 0), NUMBER, float)
LABELS = with_cell(Y, 7, NAME, object)
TARGETS = with_cell(Y, 7, NUMBER, float)


def bad_rows() -> Iterator[tuple[str, Any, str]]:
    """Yield rows with secrets in them, and where the refusal must see the trouble."""
    words = [str(cell) for cell in TEXT[:, 1]]
    cell, named = "row 7, column 1", "row 7, column 'b'"
    yield "objects", TEXT, f"{cell} .*: text"
    yield "texts", TEXT.astype(str), f"{cell} .*: text"
    yield "bytes", TEXT.astype("S30"), f"{cell} .*: text"
    yield "lists", TEXT.tolist(), f"{cell} .*: text"
    yield "pandas", pd.DataFrame({"a": X[:, 0], "b": TEXT[:, 1]}), f"{named} .*: text"
    yield "pandas texts", pd.DataFrame({"a": X[:, 0], "b": words}), f"{named} .*: text"
    yield (
        "pandas categories",
        pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(words)}),
        f"{named} .*: text",
    )
    yield "polars", pl.DataFrame({"a": X[:, 0], "b": words}), f"{named} .*: text"
    yield "dict", with_cell(TEXT, (7, 1), {NAME: NUMBER}, object), f"{cell} .*not 'dict'"
    inner = with_cell(X, (7, 1), 0.0, object)
    inner[7, 1] = [NUMBER]
    yield "list in a cell", inner, f"{cell} .*not 'list'"
    yield "complex", with_cell(X, (7, 1), NUMBER + 1j, complex), "Complex data not supported"
    yield "NaN", with_cell(LARGE, (7, 1), np.nan, float), f"{cell} .*: NaN"
    yield "infinite", with_cell(LARGE, (7, 1), np.inf, float), f"{cell} .*inf"
    yield "one dimension", LARGE[:, 0], r"the shape \(20,\)"
    yield "a number", NUMBER, r"the shape \(\)"
    yield "a text", NAME, r"the shape \(\)"
    yield "a set", {NAME, NUMBER}, r"the shape \(\)"
    yield "ragged", [[1.0, NUMBER], [NUMBER]] * 10, "inhomogeneous shape"
    yield "too few", LARGE[:3], r"inconsistent numbers of samples: \[3, 20\]"
    holes = csr_array(with_cell(LARGE, (7, 1), np.nan, float))
    yield "sparse", holes, f"{cell} .*: NaN"
    yield "sparse complex", csr_array(with_cell(X, (7, 1), NUMBER + 1j, complex)), "Complex data"
    yield "sparse of another size", coo_array(LARGE[:3]), r"\[3, 20\]"
    arrow = pa.table({"a": X[:, 0], "b": words})
    yield "arrow", arrow, f"{named} .*: text"
    yield "a number as text", with_cell(TEXT, (7, 1), "nan", object), f"{cell} .*: NaN"
    yield "a huge number", with_cell(TEXT, (7, 1), 7654321 * 10**400, object), f"{cell} .*too large"
    dates = pd.to_datetime(["2021-07-06"] * 20)
    yield "dates", pd.DataFrame({"a": dates, "b": LARGE[:, 0]}), "row 0, column 'a' .*Timestamp"


def bad_targets() -> Iterator[tuple[str, Any, str]]:
    yield "objects", LABELS, "row 7|Unknown label type"
    yield "pandas", pd.Series(LABELS), "row 7|Unknown label type"
    yield "polars", pl.Series([str(label) for label in LABELS]), "row [07]"
    yield "NaN", with_cell(TARGETS, 3, np.nan, float), "row 3 .*: NaN"
    yield "two columns", np.column_stack([TARGETS, TARGETS]), r"shape \(20, 2\)"
    yield "dicts", [{NAME: NUMBER}] * 20, "row 0 .*not 'dict'|no label|Unknown label type"
    yield "nested", [[NUMBER], [NUMBER, 2]] * 10, "inhomogeneous shape"
    yield "dates", np.array(["2021-07-06"] * 20, dtype="M8[D]"), "row 0|one class"
    yield "complex number", NUMBER + 1j, "X or y cannot be used"
    yield "text", NAME, "a text y names the column of targets"
    yield "set", {NAME, NUMBER}, "X or y cannot be used|1d array"


MODELS = [
    PrivateRidge(**QUICK),
    PrivateLogisticRegression(classes=[0, 1], **QUICK),
    PrivateLinearSVC(**QUICK),
]
pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]


def everything_said(error: BaseException) -> str:
    """Return every text that a log of the exception could hold, hidden links of its chain too."""
    said = [line for line in traceback.format_exception(error) if not line.startswith("  File")]
    link: BaseException | None = error
    while link is not None:
        said += [str(link), repr(link), repr(link.args), *getattr(link, "__notes__", ())]
        link = link.__cause__ or link.__context__
    return "\n".join(said)


def assert_unsaid(act: Any, *arguments: Any, where: str, **named: Any) -> None:
    """Require a refusal that says where, and in all that is said no secret."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(InvalidInput, match=where) as refusal:
            act(*arguments, **named)
    said = [everything_said(refusal.value), *(str(warning.message) for warning in caught)]
    assert not [secret for secret in SECRETS if secret in "\n".join(said)]


def test_the_search_sees_hidden_links() -> None:
    """An exception keeps what it replaced even where a traceback does not show it."""

    def act() -> None:
        try:
            float(NAME)
        except ValueError:
            raise InvalidInput("no number") from None

    with pytest.raises(AssertionError, match="Alice"):
        assert_unsaid(act, where="no number")


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("case", list(bad_rows()), ids=lambda case: case[0])
def test_rows_stay_unsaid(model: Any, case: tuple[str, Any, str]) -> None:
    _, rows, where = case
    assert_unsaid(model.fit, rows, Y, where=where)


@pytest.mark.parametrize("case", list(bad_rows()), ids=lambda case: case[0])
def test_rows_to_predict_stay_unsaid(case: tuple[str, Any, str]) -> None:
    _, rows, where = case
    if "3, 20" in where:  # any number of rows can be predicted for
        rows, where = LARGE[:, :1], "X has 1 features"
    model = PrivateRidge(**QUICK).fit(X, Y)
    assert_unsaid(model.predict, rows, where=where)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize(
    "targets", [LABELS, LABELS.astype(str), LABELS.tolist(), pd.Series(LABELS)]
)
def test_scored_targets_stay_unsaid(model: Any, targets: Any) -> None:
    """What scikit-learn says of targets quotes them."""
    fitted = clone(model).fit(X, Y)
    where = (
        "row 7 .*: text" if isinstance(model, PrivateRidge) else r"label of the type of classes="
    )
    assert_unsaid(fitted.score, X, targets, where=where)
    assert_unsaid(noisy_score, fitted, X, targets, where="finite numbers|not among", epsilon=1.0)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize(
    "targets", [TARGETS[:, None], pd.DataFrame({"y": Y}), TARGETS[:0], NUMBER, {NAME}, Y[:3], None]
)
def test_noisy_scores_take_one_target_per_row(model: Any, targets: Any) -> None:
    """A column of targets would be compared with every row: each record would count n times."""
    fitted = clone(model).fit(X, Y)
    assert_unsaid(noisy_score, fitted, X, targets, where="target", epsilon=1.0)


def test_what_functions_of_rows_say_stays_unsaid() -> None:
    """They raise whatever they like, at a record."""
    model = PrivateRidge(n_public=20, **QUICK)
    rows = Prepared(
        ArraySource(TEXT, Y), lambda features, targets: (features.astype(float), targets)
    )
    assert_unsaid(model.fit, rows, where="prepare raised ValueError")
    table = pa.table({"a": [NAME] * 20, "y": Y})
    encoded = TableSource(table, ["a"], "y", encode=lambda batch: float(batch["a"][0].as_py()))
    assert_unsaid(model.fit, encoded, where="encode raised ValueError")


@pytest.mark.parametrize("targets", [LABELS, LABELS.astype(str), [[NUMBER], [NUMBER, 2]] * 10])
def test_chunks_stay_unsaid(targets: Any) -> None:
    model = PrivateRidge(n_public=20, **QUICK)
    assert_unsaid(model.fit, [(X, targets)], where="finite numbers: row 7|one target per row")
    asked = "features must be numbers; a chunk holds"
    assert_unsaid(model.fit, [(TEXT, Y)], where=f"{asked} object_: row 7, column 1 .*, text")
    assert_unsaid(
        model.fit, [(TEXT.astype(str), Y)], where=f"{asked} str_: row 7, column 1 .*, text"
    )


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("case", list(bad_targets()), ids=lambda case: case[0])
def test_targets_stay_unsaid(model: Any, case: tuple[str, Any, str]) -> None:
    name, targets, where = case
    if name == "polars" and model.get_params().get("classes", 0) is None:
        targets, where = pl.Series(["x"] * 20), "one class"  # texts are labels like any other
    assert_unsaid(model.fit, X, targets, where=where)
