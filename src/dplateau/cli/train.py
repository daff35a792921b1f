"""The commands ``train``, ``predict`` and ``schema``: from a table in a file to a private model."""

from __future__ import annotations

import json as json_text
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import CLAIM_PANEL, OUTPUT_PANEL
from dplateau.errors import InvalidInput
from dplateau.ground.files import read_text, write_whole

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.tables import Schema, Table
    from dplateau.tables.model import Fitted
    from dplateau.tables.schema import Column

TRAIN_EXAMPLE = (
    "Example: `dplateau train adult.csv --target income --epsilon 1 --classes '<=50K,>50K' "
    "--bounds age=17:90 --bounds hours=1:99`"
)
PREDICT_EXAMPLE = "Example: `dplateau predict model.json new.csv -o predictions.csv`"
SCHEMA_EXAMPLE = (
    "Example: `dplateau schema adult.csv --target income`, then edit the file it writes"
)
_KNOWN = "What is publicly known"
_FIT = "Training"

Target = Annotated[
    str | None,
    typer.Option(
        "--target", help="Column to predict (a schema file may say it).", rich_help_panel=_KNOWN
    ),
]
Several = list[str]
Bounds = Annotated[
    Several | None,
    typer.Option(
        "--bounds", help="Public range, COLUMN=LOW:HIGH (repeatable).", rich_help_panel=_KNOWN
    ),
]
CategoryLists = Annotated[
    Several | None,
    typer.Option(
        "--categories", help="Public values, COLUMN=A,B,C (repeatable).", rich_help_panel=_KNOWN
    ),
]
Buckets = Annotated[
    Several | None,
    typer.Option(
        "--hash", help="Hash a text, COLUMN=BUCKETS (repeatable).", rich_help_panel=_KNOWN
    ),
]
LeftOut = Annotated[
    Several | None,
    typer.Option("--ignore", help="Leave a column out (repeatable).", rich_help_panel=_KNOWN),
]


def train_command(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file of private rows.")],
    epsilon: Annotated[
        float,
        typer.Option("--epsilon", help="What the model may cost.", rich_help_panel=CLAIM_PANEL),
    ],
    target: Target = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help="Schema file (default: DATA.schema.toml if there is one).", rich_help_panel=_KNOWN
        ),
    ] = None,
    bounds: Bounds = None,
    categories: CategoryLists = None,
    hashed: Buckets = None,
    ignore: LeftOut = None,
    classes: Annotated[
        str | None, typer.Option(help="Classes of the target, A,B.", rich_help_panel=_KNOWN)
    ] = None,
    target_bounds: Annotated[
        str | None,
        typer.Option(help="Public range of a numeric target, LOW:HIGH.", rich_help_panel=_KNOWN),
    ] = None,
    data_norm: Annotated[
        float,
        typer.Option(help="Encoded rows are scaled down to this norm.", rich_help_panel=_KNOWN),
    ] = 1.0,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Failure probability (default 1e-5, at most 1/n).", rich_help_panel=CLAIM_PANEL
        ),
    ] = None,
    neighbors: Annotated[
        str, typer.Option(help="add-remove or replace.", rich_help_panel=CLAIM_PANEL)
    ] = "add-remove",
    max_records_per_person: Annotated[
        int | None,
        typer.Option(
            help="Most rows of one person (default 1, or what a schema file says); the claim "
            "holds for all of them.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    evaluate_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Hold out a tenth of the rows and release a noisy score at this extra cost.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    public_test: Annotated[
        Path | None,
        typer.Option(help="Public rows for an exact score.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    passes: Annotated[
        float | None, typer.Option(help="Most passes over the data.", rich_help_panel=_FIT)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Makes the fit repeatable, and so not private.", rich_help_panel=_FIT),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for the results.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = Path("dplateau-model"),
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not text.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Train a private linear model on a table and write model, certificate and report."""
    from dplateau.tables import read_table
    from dplateau.tables.model import fit_table

    table = read_table(data)
    known = _schema(table, data, schema, target, classes, target_bounds)
    flags = {
        **_numeric_flags(bounds),
        **_category_flags(categories),
        **_hash_flags(hashed),
        **_ignore_flags(ignore),
    }
    known = complete(known, flags, table)
    if max_records_per_person is not None:
        known = replace(known, max_records_per_person=max_records_per_person)
    tests = None if public_test is None else read_table(public_test)
    fitted = fit_table(
        table,
        known,
        epsilon=epsilon,
        delta=delta,
        data_norm=data_norm,
        neighbors=neighbors.replace("-", "_"),
        compute_budget=passes,
        evaluate_epsilon=evaluate_epsilon,
        random_state=seed,
        verbose=sys.stderr.isatty(),
    )
    public_score = None if tests is None else fitted.model.score(tests)
    report = report_of(fitted, str(data), public_score)
    _write(output, fitted, report)
    for warning in fitted.warnings:
        sys.stderr.write(f"dplateau: warning: {' '.join(warning.split())}\n")
    if json:
        print(json_text.dumps(summary_of(fitted, output, public_score), indent=2))
    else:
        print(report, end="")
        print(f"\nwritten to {output}: model.json, certificate.json, report.txt")


def predict_command(
    model: Annotated[Path, typer.Argument(help="model.json of a training.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the predictions here (CSV).")
    ] = None,
) -> None:
    """Predict the target of new rows; using a private model costs nothing more."""
    import csv
    import io

    from dplateau.tables import TableModel, read_table

    found = TableModel.from_json(read_text(model))
    predictions = found.predict(read_table(data))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([found.schema.target.column])
    writer.writerows([value] for value in predictions.tolist())
    if output is None:
        print(text.getvalue(), end="")
        return
    write_whole(output, text.getvalue())
    print(f"{len(predictions)} predictions written to {output}")


def schema_command(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Schema file to write (default: DATA.schema.toml)."),
    ] = None,
) -> None:
    """Draft a schema from column names and types, for you to fill in the public ranges."""
    from dplateau.tables import read_table
    from dplateau.tables.schema import draft

    place = output or default_schema(data)
    if place.exists():
        raise InvalidInput(f"{place} exists; remove it first, or choose another with -o")
    write_whole(place, draft(read_table(data).types(), target))
    print(f"draft written to {place}: replace every '?' by what is publicly known")


def default_schema(data: Path) -> Path:
    """Return where a table's schema is looked for."""
    return data.with_name(f"{data.name}.schema.toml")


# --- the schema, from a file and from flags ----------------------------------------------------


def _schema(
    table: Table,
    data: Path,
    path: Path | None,
    target: str | None,
    classes: str | None,
    target_bounds: str | None,
) -> Schema:
    """Return the schema file's content, with what the flags say about the target."""
    from dplateau.tables import Numeric, Schema
    from dplateau.tables import Target as TargetColumn

    place = path or (default_schema(data) if default_schema(data).is_file() else None)
    found = None if place is None else Schema.from_toml(read_text(place))
    name = target or (found.target.column if found else None)
    if name is None:
        raise InvalidInput(f"say which column to predict: --target, one of {_names(table)}")
    if name not in table.columns:
        raise InvalidInput(f"{data} has no column {name!r} to predict; it has {_names(table)}")
    known = found.target if found and found.target.column == name else TargetColumn(name)
    if classes is not None:
        known = TargetColumn(name, classes=tuple(part.strip() for part in classes.split(",")))
    if target_bounds is not None:
        known = TargetColumn(name, bounds=Numeric(*_ends("--target-bounds", target_bounds)))
    if known.classes is None and known.bounds is None and table.types()[name] == "number":
        raise InvalidInput(
            f"the target {name!r} is a number: say --target-bounds LOW:HIGH (a public range), or "
            "--classes A,B if its numbers are classes"
        )
    columns = {k: v for k, v in (found.columns if found else {}).items() if k != name}
    return Schema(known, columns, found.max_records_per_person if found else 1)


def complete(schema: Schema, flags: dict[str, Column], table: Table) -> Schema:
    """Return a schema for every column: flags first, then the file; other text is hashed."""
    from dplateau.tables import Hashed

    for name in flags:
        if name not in table.columns:
            raise InvalidInput(f"there is no column {name!r}; the file has {_names(table)}")
    types = table.types()
    columns: dict[str, Column] = {}
    unknown = []
    for name in table.columns:
        if name == schema.target.column:
            continue
        if name in flags or name in schema.columns:
            columns[name] = flags[name] if name in flags else schema.columns[name]
        elif types[name] == "text":
            columns[name] = Hashed()
        else:
            unknown.append(name)
    if unknown:
        listed = ", ".join(map(repr, unknown[:8])) + (" ..." if len(unknown) > 8 else "")
        raise InvalidInput(
            f"no public range is known for the numeric column(s) {listed}: say "
            f"--bounds {unknown[0]}=LOW:HIGH or --ignore {unknown[0]} for each, or draft a file "
            "with 'dplateau schema' and fill it in"
        )
    missing = [name for name in schema.columns if name not in table.columns]
    if missing:
        raise InvalidInput(f"the schema's column {missing[0]!r} is not in the file")
    return replace(schema, columns=columns)


def _names(table: Table) -> str:
    names = [repr(name) for name in table.columns]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _pairs(flag: str, values: Several | None) -> list[tuple[str, str]]:
    found = []
    for value in values or []:
        name, equals, rest = value.rpartition("=")
        if not equals or not name or not rest:
            raise InvalidInput(f"{flag} takes COLUMN=...; got {value!r}")
        found.append((name, rest))
    return found


def _ends(flag: str, text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise InvalidInput(f"{flag} takes LOW:HIGH, two numbers; got {text!r}") from None
    return low, high


def _numeric_flags(values: Several | None) -> dict[str, Column]:
    from dplateau.tables import Numeric

    return {name: Numeric(*_ends("--bounds", text)) for name, text in _pairs("--bounds", values)}


def _category_flags(values: Several | None) -> dict[str, Column]:
    from dplateau.tables import Categories

    return {
        name: Categories(tuple(part.strip() for part in text.split(",")))
        for name, text in _pairs("--categories", values)
    }


def _hash_flags(values: Several | None) -> dict[str, Column]:
    from dplateau.tables import Hashed

    found: dict[str, Column] = {}
    for name, text in _pairs("--hash", values):
        if not text.isdigit():
            raise InvalidInput(f"--hash takes COLUMN=BUCKETS; got {text!r} buckets")
        found[name] = Hashed(int(text))
    return found


def _ignore_flags(values: Several | None) -> dict[str, Column]:
    from dplateau.tables import Ignored

    return {name: Ignored() for name in values or []}


# --- what is written ---------------------------------------------------------------------------


def _write(folder: Path, fitted: Fitted, report: str) -> None:
    """Write the three files, each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write to {folder}: {error.strerror}") from None
    write_whole(folder / "model.json", fitted.model.to_json())
    write_whole(folder / "certificate.json", certificate_text(fitted))
    write_whole(folder / "report.txt", report)


def certificate_text(fitted: Fitted) -> str:
    """Return the training's certificate with every further release beside it."""
    found = fitted.certificate.to_dict()
    if fitted.evaluation is not None:
        found["further_releases"] = [
            {
                "what": f"noisy {fitted.evaluation.metric} on held-out rows",
                "mechanism": "Laplace",
                "epsilon": fitted.evaluation.epsilon,
            }
        ]
    found["total_epsilon"] = fitted.total_epsilon
    return json_text.dumps(found, indent=2, allow_nan=False) + "\n"


def summary_of(fitted: Fitted, output: Path, public_score: float | None) -> dict[str, Any]:
    """Return the outcome as JSON-ready data."""
    found: dict[str, Any] = {
        "epsilon": fitted.certificate.claimed_epsilon,
        "delta": fitted.certificate.claimed_delta,
        "total_epsilon": fitted.total_epsilon,
        "max_records_per_person": fitted.certificate.run.group_size,
        "model": str(output / "model.json"),
        "certificate": str(output / "certificate.json"),
        "warnings": list(fitted.warnings),
    }
    if fitted.evaluation is not None:
        found["evaluation"] = vars(fitted.evaluation)
    if public_score is not None:
        found["public_test_score"] = public_score
    return found


def report_of(fitted: Fitted, data: str, public_score: float | None) -> str:
    """Return the report: the claim, what ran, what it rests on, and scores that were paid for."""
    certificate, schema = fitted.certificate, fitted.model.schema
    kind = "regression" if fitted.model.classes is None else "classification"
    lines = [
        f"Private {kind} of {schema.target.column!r} from {data}",
        f"{certificate.run.n} records, {schema.width} features from {len(schema.columns)} columns",
        "",
        f"Claim: {certificate}",
    ]
    if fitted.evaluation is not None:
        found = fitted.evaluation
        lines += [
            f"Noisy {found.metric} on {found.rows} held-out rows: {found.value:.4f} "
            f"(noise deviation {found.noise_std:.4f}), at epsilon {found.epsilon:g}",
            f"Together: epsilon {fitted.total_epsilon:.6g} at delta {certificate.claimed_delta:g}",
        ]
    if public_score is not None:
        name = "R^2" if fitted.model.classes is None else "accuracy"
        lines.append(f"Exact {name} on the public test rows: {public_score:.4f}")
    lines += ["", "What ran", *(f"  {line}" for line in fitted.plan.summary.splitlines())]
    lines += ["", "What the claim rests on"]
    lines += [f"  {a.text} ({a.status})" for a in certificate.assumptions]
    lines += [f"Warning: {' '.join(text.split())}" for text in fitted.warnings]
    return "\n".join(lines) + "\n"
