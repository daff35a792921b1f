"""Three raw tables from CSV to predictions by the command line, with public knowledge only.

Ranges are what anybody would say before seeing the data (an employee is 18 to 65 years old, a house
in a town costs at most half a million); most text columns are hashed, so not even their values are
listed. The split into rows to train on and to predict, and the score, are the benchmark's: they
are no part of a release.

    python benchmarks/tables.py [--epsilon 1] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SATISFACTION = "Low,Medium,High,Very_High"


@dataclass(frozen=True)
class Known:
    """What is publicly known about a table."""

    target: str
    classes: str | None
    target_bound: str | None
    ranges: dict[str, str]
    categories: dict[str, str]
    booleans: tuple[str, ...] = ()

    def options(self, header: list[str]) -> list[str]:
        """Return the command line's words for it; other columns are texts, hashed."""
        words = ["--target", self.target, "--missing", "indicator"]
        words += ["--classes", self.classes] if self.classes else []
        words += ["--target-bound", self.target_bound] if self.target_bound else []
        for column in header:
            if column == self.target:
                continue
            if column in self.ranges:
                words += ["--bounds", f"{column}={self.ranges[column]}"]
            elif column in self.categories:
                words += ["--categories", f"{column}={self.categories[column]}"]
            elif column in self.booleans:
                words += ["--boolean", column]
            else:
                words += ["--hash", f"{column}=8"]
        return words


TABLES = {
    "attrition": Known(
        "Attrition",
        "No,Yes",
        None,
        {
            **{"Age": "18:65", "DailyRate": "100:1500", "DistanceFromHome": "0:30"},
            **{"HourlyRate": "30:100", "JobLevel": "1:5", "MonthlyIncome": "1000:20000"},
            **{"MonthlyRate": "2000:27000", "NumCompaniesWorked": "0:10"},
            **{"PercentSalaryHike": "0:25", "StockOptionLevel": "0:3"},
            **{"TotalWorkingYears": "0:45", "TrainingTimesLastYear": "0:6"},
            **{"YearsAtCompany": "0:40", "YearsInCurrentRole": "0:20"},
            **{"YearsSinceLastPromotion": "0:15", "YearsWithCurrManager": "0:20"},
        },
        {
            "BusinessTravel": "Non-Travel,Travel_Rarely,Travel_Frequently",
            "EnvironmentSatisfaction": SATISFACTION,
            "JobInvolvement": SATISFACTION,
            "JobSatisfaction": SATISFACTION,
            "RelationshipSatisfaction": SATISFACTION,
            "MaritalStatus": "Single,Married,Divorced",
            "Gender": "Female,Male",
        },
        ("OverTime",),
    ),
    "credit_status": Known(
        "Status",
        "bad,good",
        None,
        {
            **{"Seniority": "0:50", "Time": "6:72", "Age": "18:70", "Expenses": "0:200"},
            **{"Income": "0:1000", "Assets": "0:100000", "Debt": "0:30000", "Amount": "0:5000"},
            "Price": "0:10000",
        },
        {},
        ("Records",),
    ),
    "ames_housing": Known(
        "Sale_Price",
        None,
        "0:500000",
        {
            **{"Lot_Frontage": "0:200", "Lot_Area": "0:50000", "Year_Built": "1870:2010"},
            **{"Year_Remod_Add": "1950:2010", "Mas_Vnr_Area": "0:1500", "BsmtFin_SF_1": "0:7"},
            **{"BsmtFin_SF_2": "0:1500", "Bsmt_Unf_SF": "0:2500", "Total_Bsmt_SF": "0:3000"},
            **{"First_Flr_SF": "0:3000", "Second_Flr_SF": "0:2000", "Gr_Liv_Area": "0:4000"},
            **{"Bsmt_Full_Bath": "0:3", "Bsmt_Half_Bath": "0:2", "Full_Bath": "0:4"},
            **{"Half_Bath": "0:2", "Bedroom_AbvGr": "0:8", "Kitchen_AbvGr": "0:3"},
            **{"TotRms_AbvGrd": "0:15", "Fireplaces": "0:4", "Garage_Cars": "0:5"},
            **{"Garage_Area": "0:1500", "Wood_Deck_SF": "0:1500", "Open_Porch_SF": "0:800"},
            **{"Enclosed_Porch": "0:1000", "Three_season_porch": "0:500", "Screen_Porch": "0:600"},
            **{"Pool_Area": "0:800", "Misc_Val": "0:20000", "Mo_Sold": "1:12"},
            **{"Year_Sold": "2006:2010", "Longitude": "-93.7:-93.5", "Latitude": "41.9:42.1"},
        },
        {},
    ),
}


def split(path: Path, folder: Path, seed: int) -> tuple[Path, Path, list[str]]:
    """Write four fifths of the rows to one file and the rest to another; return the header too."""
    header, *rows = list(csv.reader(path.open(encoding="utf-8")))
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = len(rows) * 4 // 5
    files = folder / "train.csv", folder / "test.csv"
    for file, part in zip(files, (order[:cut], order[cut:]), strict=True):
        with file.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows([header, *(rows[i] for i in part)])
    return *files, header


def dplateau(*words: str, folder: Path) -> str:
    """Run a command as a user does; stop with its message where it fails."""
    command = [sys.executable, "-m", "dplateau", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words[:3])} ...: {done.stderr.strip()}")
    return done.stdout


def column(path: Path, name: str) -> list[str]:
    with path.open(encoding="utf-8") as file:
        return [row[name] for row in csv.DictReader(file)]


def score(known: Known, truth: list[str], found: list[str]) -> tuple[str, float, float]:
    """Return what is measured, its value, and that of the best constant."""
    if known.classes is not None:
        right = np.mean([a == b for a, b in zip(truth, found, strict=True)])
        shares = [truth.count(name) / len(truth) for name in set(truth)]
        return "accuracy", float(right), max(shares)
    y, p = np.array(truth, dtype=float), np.array(found, dtype=float)
    return "R^2", float(1 - np.sum((y - p) ** 2) / np.sum((y - y.mean()) ** 2)), 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("DPLATEAU_DATA", "../shared/data")) / "tables"
    parser.add_argument("--data", type=Path, default=default, help="folder with the CSV files")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--seed", type=int, default=0, help="of the split")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"there is no folder {options.data}: pass --data or set DPLATEAU_DATA")
    print(f"{'table':<14} {'rows':>5} {'measure':<8} {'value':>6} {'constant':>8} {'seconds':>7}")
    for name, known in TABLES.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            train, test, header = split(options.data / f"{name}.csv", folder, options.seed)
            begin = time.perf_counter()
            words = known.options(header)
            dplateau("train", train.name, "--epsilon", options.epsilon, *words, folder=folder)
            seconds = time.perf_counter() - begin
            model = "dplateau-model"
            dplateau("predict", f"{model}/model.json", test.name, "-o", "found.csv", folder=folder)
            dplateau("verify", f"{model}/certificate.json", folder=folder)  # or stop here
            found = column(folder / "found.csv", known.target)
            measure, value, constant = score(known, column(test, known.target), found)
            rows = len(column(train, known.target))
            print(f"{name:<14} {rows:>5} {measure:<8} {value:6.3f} {constant:8.3f} {seconds:7.1f}")


if __name__ == "__main__":
    main()
