"""Schemas, encodings and model files."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from dplateau import InvalidInput
from dplateau.engines.sources import chunks_of, parts_of
from dplateau.tables import (
    Boolean,
    Categories,
    Day,
    Hashed,
    Ignored,
    Numeric,
    Schema,
    Table,
    TableModel,
    Target,
    as_table,
    encode_features,
    encode_target,
    read_tables,
)
from dplateau.tables.release import fit_table
from dplateau.tables.schema import draft
from dplateau.tables.table import arrow_table

SCHEMA = Schema(
    Target("y", classes=("a", "b")),
    {
        "size": Numeric(0, 10),
        "town": Categories(("Rome", "Oslo")),
        "name": Hashed(7),
        "id": Ignored(),
    },
)


def table(**columns: list[Any]) -> Table:
    return as_table(columns, name="memory")


ROWS = table(
    size=[0.0, 5.0, 12.0, -3.0],
    town=["Rome", "Oslo", "Lima", "Rome"],
    name=["x", "y", "x", "z"],
    id=[1.0, 2.0, 3.0, 4.0],
    y=["a", "b", "a", "b"],
)


def test_columns_become_public_ranges_and_indicators() -> None:
    found = encode_features(ROWS, SCHEMA)
    assert found.shape == (4, SCHEMA.width) == (4, 10)
    assert found[:, 0].tolist() == [-1.0, 0.0, 1.0, -1.0]
    assert found[:, 1:3].tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]
    assert found[:, 3:].sum(axis=1).tolist() == [1, 1, 1, 1]
    assert found[0, 3:].tolist() == found[2, 3:].tolist()
    assert encode_target(ROWS, SCHEMA).tolist() == ["a", "b", "a", "b"]


def test_missing_cells_of_files_that_stay_on_disk_count_as_declared(tmp_path: Path) -> None:
    whole = pa.table(
        {
            "size": pa.array([0.0, None, 12.0, None]),
            "count": pa.array([1, None, None, 4]),
            "member": pa.array([None, True, False, None]),
            "since": pa.array([date(2020, 1, 1), None, date(2021, 1, 1), None]),
            "town": pa.array(["Rome", None, "Oslo", None]).dictionary_encode(),
            "y": ["a", "b", "a", "b"],
        }
    )
    for k in range(2):
        parquet.write_table(whole.slice(2 * k, 2), tmp_path / f"{k}.parquet")
    schema = Schema(
        SCHEMA.target,
        {
            "size": Numeric(0, 10, missing="indicator"),
            "count": Numeric(0, 4, missing="2"),
            "member": Boolean(missing="indicator"),
            "since": Day(date(2020, 1, 1), date(2022, 1, 1), missing="zero"),
            "town": Categories(("Rome", "Oslo"), missing="zero"),
        },
    )
    expected = encode_features(as_table(whole.to_pandas(), name="memory"), schema)
    source = read_tables([tmp_path], stay=True).source(schema)
    rows, answers = (np.concatenate(parts) for parts in zip(*parts_of(source), strict=True))
    assert np.array_equal(rows, expected)
    assert answers.tolist() == ["a", "b", "a", "b"]
    (*_, chunk) = chunks_of(source)
    assert np.array_equal(chunk.rows(np.array([1, 0, 1]))[0], expected[[3, 2, 3]])


@given(st.lists(st.sampled_from(range(4)), min_size=1, max_size=6))
def test_a_row_is_encoded_without_looking_at_the_others(places: list[int]) -> None:
    whole = encode_features(ROWS, SCHEMA)
    part = encode_features(ROWS.part(np.array(places)), SCHEMA)
    assert part.tolist() == whole[places].tolist()


def test_a_schema_survives_its_own_form() -> None:
    assert Schema.from_dict(SCHEMA.to_dict()) == SCHEMA
    numeric = Schema(Target("y", bounds=Numeric(0, 5)), {"x": Numeric(-1, 1)})
    assert Schema.from_dict(numeric.to_dict()) == numeric
    several = Schema(SCHEMA.target, SCHEMA.columns, max_records_per_person=3)
    assert Schema.from_dict(several.to_dict()) == several != SCHEMA
    # Files of models whose rows are persons stay as they were.
    assert "max_records_per_person" not in SCHEMA.to_dict()


def test_a_draft_names_types_and_asks_for_the_rest() -> None:
    text = draft({"a b": "number", 'odd "name"': "text", "y": "number"}, "y")
    with pytest.raises(InvalidInput, match="public range"):
        Schema.from_toml(text)
    found = Schema.from_toml(
        text.replace('"?"', "0", 1)
        .replace('"?"', "1", 1)
        .replace('low = "?"\nhigh = "?"', "low = 0\nhigh = 1")
    )
    assert list(found.columns) == ["a b", 'odd "name"']
    assert found.target.bounds == Numeric(0, 1)
    assert found.max_records_per_person == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[columns]", "target"),
        ("max_records_per_person = 0\n[target]\ncolumn = 'y'", "must be at least 1"),
        ("max_records_per_person = 'two'\n[target]\ncolumn = 'y'", "must be a real number"),
        ("[target]\nname = 'y'", "lacks column"),
        ("[target]\ncolumn = 'y'\ncolor = 1", "no field 'color'"),
        ("[target]\ncolumn = 'y'\nclasses = ['a']", "two different classes"),
        ("[target]\ncolumn = 'y'\nclasses = ['a', 'b']\nlow = 0\nhigh = 1", "not both"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'rare'", "kind"),
        ("size = 1\n[target]\ncolumn = 'y'", "no field 'size'"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'hashed'\nlow = 1", "no field 'low'"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'date'\nlow = 1\nhigh = 2", "1999-12-31"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'numeric'\nlow = 3\nhigh = 1", "low < high"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'hashed'\nbuckets = 1", "at least 2"),
        ("[target]\ncolumn = 'y'\n[columns.x]\nkind = 'categories'", "at least one"),
        ("[target\n", "no TOML"),
    ],
)
def test_bad_schemas_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Schema.from_toml(text)


def test_a_model_survives_its_file_with_every_digit() -> None:
    rng = np.random.default_rng(0)
    weights, constants = rng.normal(size=(1, 10)), rng.normal(size=1)
    model = TableModel("logistic", SCHEMA, weights, constants, 1.0, ("a", "b"))
    again = TableModel.from_json(model.to_json())
    assert again.schema == SCHEMA
    assert again.weights.tolist() == model.weights.tolist()
    assert again.predict(ROWS).tolist() == model.predict(ROWS).tolist()


def test_the_model_scores_rows_as_its_estimator_does() -> None:
    from dplateau.estimators import PrivateLogisticRegression

    many = ROWS.part(np.tile(np.arange(4), 100))
    fitted = fit_table(many, SCHEMA, epsilon=4.0, compute_budget=20, seed=7)
    with pytest.warns(UserWarning, match="random_state"):
        direct = PrivateLogisticRegression(
            epsilon=4.0, classes=["a", "b"], compute_budget=20, data_norm=1.0, random_state=7
        ).fit(encode_features(many, SCHEMA), encode_target(many, SCHEMA))
    rows = encode_features(ROWS, SCHEMA)
    assert fitted.model.probabilities(ROWS) == pytest.approx(direct.predict_proba(rows))
    assert fitted.model.predict(ROWS).tolist() == direct.predict(rows).tolist()
    assert any("random_state" in text for text in fitted.warnings)


@pytest.mark.parametrize("numbers", [False, True])
def test_a_table_is_whitened_and_its_file_predicts_the_same(numbers: bool) -> None:
    """Moments are part of what leaves: of the claim, the report and the file."""
    rng = np.random.default_rng(3)
    size = rng.uniform(0, 10, 3000)
    columns = {
        "size": size,
        "town": np.array(["Rome", "Oslo", "Lima"])[rng.integers(0, 3, 3000)],
        "name": np.array(["x", "y"])[rng.integers(0, 2, 3000)],
        "id": np.arange(3000.0),
        "y": 3 + 4 * size if numbers else np.where(size > 5, "a", "b"),
    }
    target = Target("y", bounds=Numeric(0, 50)) if numbers else SCHEMA.target
    rows = as_table({name: list(cells) for name, cells in columns.items()}, name="memory")
    found = fit_table(rows, Schema(target, SCHEMA.columns), epsilon=2.0, evaluate_epsilon=1.0)
    assert found.plan.moments
    assert found.certificate.verify().ok
    assert found.certificate.claimed_epsilon <= 2.0
    assert "noisy second moments of the rows" in found.report("memory")
    again = TableModel.from_json(found.model.to_json())
    assert again.predict(rows).tolist() == found.model.predict(rows).tolist()
    assert again.score(rows) > (0.5 if numbers else 0.9)
    broken = json.loads(found.model.to_json())
    broken["whitening"][0].pop()
    with pytest.raises(InvalidInput, match="11 x 11 matrices"):
        TableModel.from_json(json.dumps(broken))


def test_dates_of_any_year_are_texts() -> None:
    """A date that was computed may lie beyond the calendar: it is no category, and no crash."""
    days = [0, 10957, -800_000, 20_000_000]
    cells = arrow_table(pa.table({"day": pa.array(days, pa.date32())}), "x").cells("day")
    texts = cells.texts()
    assert texts[:2] == ["1970-01-01", "2000-01-01"]
    assert texts[2].startswith("-")
    assert texts[3].startswith("56728")


def test_scores_of_many_checkpoints_fit_a_report() -> None:
    many = ROWS.part(np.tile(np.arange(4), 100))
    fitted = fit_table(many, SCHEMA, epsilon=4.0, compute_budget=20, seed=7)
    left = replace(fitted, checkpoints=(fitted.model,) * 9, public_scores=(0.8,) * 9)
    text = left.report("people")
    assert "model.json is number 1" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
