"""The data sets of utility.py, prepared by public knowledge alone: rows of norm at most 1.

Ranges are those of the census's codes, of physical measures, of forms and of laws, rounded
outward. Nothing is scaled by what the data happen to hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dplateau.engines import scale_rows
from dplateau.tables import encode_features, encode_target, read_table
from dplateau.tables.schema import completed

ROOT = Path(__file__).resolve().parents[1]
# The large data sets once more with so many records of theirs, and with all of their test rows.
FEW_RECORDS = {
    "adult": (500, 1000, 2000),
    "casp_protein_regression": (500, 1000, 2000),
}
ADULT_LOW = (17.0, 0.0, 1.0, 0.0, 0.0, 1.0)
ADULT_HIGH = (90.0, 1.5e6, 16.0, 1e5, 5e3, 99.0)
CASP_LOW = (2000.0, 0.0, 0.0, 0.0, 3e5, 0.0, 0.0, 0.0, 15.0)
CASP_HIGH = (45000.0, 16000.0, 0.6, 400.0, 6e6, 600.0, 1.1e5, 400.0, 60.0)
CASP_TARGET = (0.0, 21.0)
# Columns of scikit-learn's breast_cancer data: mean, error and worst of ten measures.
BREAST_HIGH = (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.35, 0.1, 3, 5, 22, 550, 0.04, 0.15, 0.4,
               0.06, 0.08, 0.03, 40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25)  # fmt: skip
# Age, sex, body mass index, blood pressure and six blood values; the target is a score.
DIABETES_LOW = (18, 1, 15, 50, 80, 30, 15, 1.5, 3, 50)
DIABETES_HIGH = (80, 2, 45, 140, 320, 250, 105, 10, 6.5, 130)
DIABETES_TARGET = (0.0, 350.0)
# What forms and years allow in the tables; text columns are hashed, missing cells are indicated.
TABLES: dict[str, tuple[str, Any, dict[str, tuple[float, float]]]] = {
    "attrition": ("Attrition", ["No", "Yes"], {
        "Age": (18, 70), "DailyRate": (0, 2000), "DistanceFromHome": (0, 50),
        "HourlyRate": (0, 150), "JobLevel": (1, 5), "MonthlyIncome": (0, 20000),
        "MonthlyRate": (0, 30000), "NumCompaniesWorked": (0, 10), "PercentSalaryHike": (0, 30),
        "StockOptionLevel": (0, 3), "TotalWorkingYears": (0, 50), "TrainingTimesLastYear": (0, 10),
        "YearsAtCompany": (0, 40), "YearsInCurrentRole": (0, 20),
        "YearsSinceLastPromotion": (0, 20), "YearsWithCurrManager": (0, 20),
    }),
    "credit_status": ("Status", ["bad", "good"], {
        "Seniority": (0, 50), "Time": (6, 72), "Age": (18, 80), "Expenses": (0, 200),
        "Income": (0, 1000), "Assets": (0, 50000), "Debt": (0, 10000), "Amount": (0, 5000),
        "Price": (0, 10000),
    }),
    "ames_housing": ("Sale_Price", (0.0, 600000.0), {
        "Lot_Frontage": (0, 200), "Lot_Area": (0, 30000), "Year_Built": (1870, 2010),
        "Year_Remod_Add": (1950, 2010), "Mas_Vnr_Area": (0, 1000), "BsmtFin_SF_1": (0, 10),
        "BsmtFin_SF_2": (0, 1500), "Bsmt_Unf_SF": (0, 2500), "Total_Bsmt_SF": (0, 3000),
        "First_Flr_SF": (0, 3000), "Second_Flr_SF": (0, 2000), "Gr_Liv_Area": (0, 4000),
        "Bsmt_Full_Bath": (0, 3), "Bsmt_Half_Bath": (0, 3), "Full_Bath": (0, 4),
        "Half_Bath": (0, 3), "Bedroom_AbvGr": (0, 8), "Kitchen_AbvGr": (0, 3),
        "TotRms_AbvGrd": (0, 15), "Fireplaces": (0, 4), "Garage_Cars": (0, 5),
        "Garage_Area": (0, 1500), "Wood_Deck_SF": (0, 1000), "Open_Porch_SF": (0, 500),
        "Enclosed_Porch": (0, 500), "Three_season_porch": (0, 500), "Screen_Porch": (0, 500),
        "Pool_Area": (0, 800), "Misc_Val": (0, 10000), "Mo_Sold": (1, 12),
        "Year_Sold": (2006, 2010),
        "Longitude": (-93.75, -93.55), "Latitude": (41.95, 42.1),
    }),
}  # fmt: skip


@dataclass(frozen=True)
class Data:
    """Rows of norm at most 1, prepared by public knowledge; targets are classes or in [-1, 1]."""

    name: str
    rows: Any
    targets: Any
    test_rows: Any
    test_targets: Any
    regression: bool = False

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return 1 if self.regression else int(self.targets.max()) + 1

    def score(self, scores: Any) -> tuple[float, float | None]:
        """Return (accuracy, AUC) of raw scores, the latter of two classes, or (R^2, None)."""
        if self.regression:
            rest = np.mean((np.clip(scores[:, 0], -1, 1) - self.test_targets) ** 2)
            return float(1 - rest / np.var(self.test_targets)), None
        if scores.shape[1] > 1:
            return float(np.mean(scores.argmax(1) == self.test_targets)), None
        from sklearn.metrics import roc_auc_score

        right = (scores[:, 0] > 0).astype(int) == self.test_targets
        return float(np.mean(right)), float(roc_auc_score(self.test_targets, scores[:, 0]))


def ranged(rows: Any, low: Any, high: Any) -> Any:
    low, high = np.asarray(low, dtype=np.float32), np.asarray(high, dtype=np.float32)
    return np.clip(2 * (rows - low) / (high - low) - 1, -1, 1)


def unit(rows: Any) -> Any:
    return scale_rows(np.ascontiguousarray(rows, dtype=np.float32), 1.0)


def from_file(folder: Path, name: str) -> Data:
    found = np.load(folder / f"{name}.npz")
    rows, test = found["X_train"].astype(np.float32), found["X_test"].astype(np.float32)
    y, y_test = found["y_train"], found["y_test"]
    if name == "adult":
        for part in (rows, test):
            part[:, :6] = ranged(part[:, :6], ADULT_LOW, ADULT_HIGH)
    if name == "mnist":
        rows, test = rows / 255, test / 255
    if name.startswith("casp"):
        rows, test = (ranged(part, CASP_LOW, CASP_HIGH) for part in (rows, test))
        y, y_test = (ranged(part, *CASP_TARGET).astype(float) for part in (y, y_test))
        return Data(name, unit(rows), y, unit(test), y_test, regression=True)
    return Data(name, unit(rows), y.astype(int), unit(test), y_test.astype(int))


def fewer(data: Data, n: int) -> Data:
    """Keep n records, the same in every run."""
    chosen = np.random.default_rng(0).permutation(len(data.targets))[:n]
    return replace(
        data, name=f"{data.name}_{n}", rows=data.rows[chosen], targets=data.targets[chosen]
    )


def split(name: str, rows: Any, targets: Any, *, regression: bool = False) -> Data:
    """Hold out a fifth, the same in every run."""
    order = np.random.default_rng(0).permutation(len(targets))
    rows, targets, cut = unit(rows[order]), targets[order], round(0.2 * len(targets))
    return Data(name, rows[cut:], targets[cut:], rows[:cut], targets[:cut], regression)


def bundled(name: str) -> Data:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    if name == "diabetes":
        rows, y = load_diabetes(return_X_y=True, scaled=False)
        y = ranged(y, *DIABETES_TARGET).astype(float)
        return split(name, ranged(rows, DIABETES_LOW, DIABETES_HIGH), y, regression=True)
    loaded = load_breast_cancer if name == "breast_cancer" else load_digits
    rows, labels = loaded(return_X_y=True)
    return split(
        name, ranged(rows, 0, BREAST_HIGH) if name == "breast_cancer" else rows / 16, labels
    )


def from_table(folder: Path, name: str) -> Data:
    target, known, ranges = TABLES[name]
    table = read_table(folder / "tables" / f"{name}.csv")
    number = isinstance(known, tuple)
    said = {"low": known[0], "high": known[1]} if number else {"classes": known}
    columns = {
        column: {"kind": "numeric", "low": low, "high": high}
        for column, (low, high) in ranges.items()
    }
    declared = {"target": {"column": target, **said}, "columns": columns, "missing": "indicator"}
    schema = completed(declared, table.types(), source="benchmark", data=name)
    rows, y = encode_features(table, schema), encode_target(table, schema)
    if number:
        return split(name, rows, ranged(y, *known).astype(float), regression=True)
    return split(name, rows, (y == known[1]).astype(int))


def data_sets(folder: Path) -> Iterator[tuple[str, Callable[[], Data]]]:
    """Yield what there is, small ones first."""
    for name in ("breast_cancer", "diabetes", "digits"):
        yield name, lambda name=name: bundled(name)
    for name in TABLES:
        if (folder / "tables" / f"{name}.csv").is_file():
            yield name, lambda name=name: from_table(folder, name)
    for name, sizes in FEW_RECORDS.items():
        if (folder / f"{name}.npz").is_file():
            for n in sizes:
                yield f"{name}_{n}", lambda name=name, n=n: fewer(from_file(folder, name), n)
    for name in ("casp_protein_regression", "adult", "imdb_hash4096", "mnist"):
        if (folder / f"{name}.npz").is_file():
            yield name, lambda name=name: from_file(folder, name)


def data_folder() -> Path:
    """Return where the larger data sets are: $DPLATEAU_DATA, or ../shared/data."""
    return Path(os.environ.get("DPLATEAU_DATA", ROOT.parent / "shared" / "data"))
