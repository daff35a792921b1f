"""The commands ``train``, ``predict`` and ``schema``: from a table in a file to a private model."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.ledger import refusals_are_verdicts
from dplateau.cli.options import (
    CLAIM_PANEL,
    OUTPUT_PANEL,
    print_json,
    real_option,
    whole_option,
)
from dplateau.errors import InvalidInput
from dplateau.ground.files import read_text, refuse_file_as_folder, write_whole
from dplateau.ground.shown import counted

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.engines import Ray
    from dplateau.estimators.scoring import Evaluation
    from dplateau.tables import Schema, Table, TableFiles, TableRelease

app = typer.Typer()

_TRAIN = (
    "Example: `dplateau train adult.csv --target income --epsilon 1 --classes '<=50K,>50K' "
    "--bounds age=17:90 --bounds hours=1:99`"
)
_KNOWN = "What is publicly known"
_FIT = "Training"
_FILE = "The file"
_NO_MODEL = "logistic or svm for classes, ridge or huber for numbers"


def _known(flag: str, text: str) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=_KNOWN)


Several = list[str]
Separator = Annotated[
    str | None,
    typer.Option(help="Between cells of a CSV (default: by its header).", rich_help_panel=_FILE),
]
Decimal = Annotated[str, typer.Option(help="Decimal point of a CSV.", rich_help_panel=_FILE)]


@app.command(name="train", epilog=_TRAIN)
@refusals_are_verdicts
def train_command(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="CSV or Parquet file of private rows; several Parquet files, folders and large "
            "ones are read a part at a time."
        ),
    ],
    epsilon: Annotated[
        float,
        real_option("--epsilon", help="What the model may cost.", panel=CLAIM_PANEL),
    ],
    target: Annotated[
        str | None, _known("--target", "Column to predict (a schema file may say it).")
    ] = None,
    schema: Annotated[
        Path | None, _known("--schema", "Schema file (default: DATA.schema.toml if there is one).")
    ] = None,
    bounds: Annotated[
        Several | None,
        _known("--bounds", "Public range of numbers or dates, COLUMN=LOW:HIGH (repeatable)."),
    ] = None,
    categories: Annotated[
        Several | None, _known("--categories", "Public values, COLUMN=A,B,C (repeatable).")
    ] = None,
    nonnegative: Annotated[
        Several | None,
        _known("--nonnegative", "Numbers from 0 to a public HIGH, COLUMN=HIGH (repeatable)."),
    ] = None,
    hashed: Annotated[
        Several | None, _known("--hash", "Hash a text, COLUMN=BUCKETS (repeatable).")
    ] = None,
    boolean: Annotated[
        Several | None, _known("--boolean", "A column of yes and no (repeatable).")
    ] = None,
    ignore: Annotated[
        Several | None, _known("--ignore", "Leave a column out (repeatable).")
    ] = None,
    missing: Annotated[
        Several | None,
        _known(
            "--missing",
            "What missing cells count as: zero, indicator (one more feature) or a public value; "
            "for one column COLUMN=... (repeatable).",
        ),
    ] = None,
    classes: Annotated[str | None, _known("--classes", "Classes of the target, A,B.")] = None,
    target_bound: Annotated[
        str | None,
        _known("--target-bound", "Public range of a numeric target, LOW:HIGH, or B for -B:B."),
    ] = None,
    class_weight: Annotated[
        Several | None,
        _known(
            "--class-weight",
            "By how much the records of a class count, CLASS=NUMBER (repeatable; others 1).",
        ),
    ] = None,
    class_prior: Annotated[
        Several | None,
        _known(
            "--class-prior",
            "Publicly known share of a class, CLASS=SHARE (repeatable; one may be left out).",
        ),
    ] = None,
    decision_prior: Annotated[
        Several | None,
        _known(
            "--decision-prior",
            "Shares to decide for in place of those: balanced, or CLASS=SHARE (repeatable).",
        ),
    ] = None,
    data_norm: Annotated[
        float,
        real_option("--data-norm", help="Encoded rows are scaled down to this norm.", panel=_KNOWN),
    ] = 1.0,
    n_public: Annotated[
        int | None,
        whole_option(
            "--n-public",
            help="Public upper bound on the rows; hides how many there are.",
            panel=_KNOWN,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        real_option(
            "--delta", help="Failure probability (default 1e-5, or 1/n if less).", panel=CLAIM_PANEL
        ),
    ] = None,
    neighbors: Annotated[
        str, typer.Option(help="add-remove or replace.", rich_help_panel=CLAIM_PANEL)
    ] = "add-remove",
    max_records_per_person: Annotated[
        int | None,
        whole_option(
            "--max-records-per-person",
            help="Most rows of one person (default 1, or what a schema file says); the claim "
            "holds for all of them.",
            panel=CLAIM_PANEL,
        ),
    ] = None,
    evaluate_epsilon: Annotated[
        float | None,
        real_option(
            "--evaluate-epsilon",
            help="Hold out a tenth of the rows and release noisy counts at this cost: accuracy, "
            "balanced accuracy, AUC and calibration (of numbers: the squared error).",
            panel=CLAIM_PANEL,
        ),
    ] = None,
    checkpoints: Annotated[
        int | None,
        whole_option(
            "--checkpoints",
            help="So many models leave on the way too; the claim covers all of them.",
            panel=CLAIM_PANEL,
        ),
    ] = None,
    public_validation: Annotated[
        Path | None,
        typer.Option(
            help="With --checkpoints, public rows: the checkpoint that is best on them is the "
            "model, and training stops when two are no better.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="Ledger that pays for all that leaves, or refuses before training.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help=f"{_NO_MODEL.capitalize()}.", rich_help_panel=_FIT)
    ] = None,
    compute_budget: Annotated[
        float | None,
        real_option("--compute-budget", help="Most passes over the data.", panel=_FIT),
    ] = None,
    safe_noise: Annotated[
        bool,
        typer.Option(
            "--safe-noise",
            help="Build every noise value from several, against attacks on floating point.",
            rich_help_panel=_FIT,
        ),
    ] = False,
    seed: Annotated[
        int | None,
        whole_option("--seed", help="Makes the fit repeatable, and so not private.", panel=_FIT),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Read the files a part at a time and keep encoded rows in a nameless file in this "
            "folder (default: encode them on every pass).",
            rich_help_panel=_FIT,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="ray: workers of a Ray cluster read Parquet files of their own.",
            rich_help_panel=_FIT,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of a Ray cluster that runs (default: one for the time of the command).",
            rich_help_panel=_FIT,
        ),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = ".",
    public_test: Annotated[
        Path | None,
        typer.Option(help="Public rows for an exact score.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for the results.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = Path("dplateau-model"),
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Write over a release that is there.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not text.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Train a private linear model on a table and write model, certificate and report."""
    from dplateau.ledger import Ledger
    from dplateau.report import report_page
    from dplateau.tables import fit_table, read_table, read_tables
    from dplateau.tables.release import CERTIFICATE, FILES, refuse_to_overwrite

    refuse_file_as_folder(output)
    if not overwrite:
        refuse_to_overwrite(output)
    cluster = _engine(engine, address)
    stay = cluster is not None or scratch is not None
    table = read_tables(data, stay=stay, separator=separator, decimal=decimal)
    columns = _column_options(bounds, nonnegative, categories, hashed, boolean, ignore)
    default = _missing_options(missing, columns)
    options: dict[str, Any] = {
        "target": _target_options(target, classes, target_bound),
        "columns": columns,
        "missing": default,
        "max_records_per_person": max_records_per_person,
    }
    known = _schema(table, data[0], schema, options)
    if public_validation is not None and checkpoints is None:
        raise InvalidInput("--public-validation chooses among checkpoints; say --checkpoints 5 too")
    tests, known_rows = (
        None if path is None else read_table(path, separator=separator, decimal=decimal)
        for path in (public_test, public_validation)
    )
    # The ledger names the folder, beside whose model the certificate lies.
    with nullcontext() if ledger is None else Ledger(ledger, name=output.resolve().name):
        release = fit_table(
            table,
            known,
            epsilon=epsilon,
            delta=delta,
            model=model,
            data_norm=data_norm,
            n_public=n_public,
            neighbors=neighbors.replace("-", "_"),
            compute_budget=compute_budget,
            class_weight=_by_class("--class-weight", class_weight),
            class_prior=_by_class("--class-prior", class_prior),
            decision_prior="balanced"
            if decision_prior == ["balanced"]
            else _by_class("--decision-prior", decision_prior),
            evaluate_epsilon=evaluate_epsilon,
            checkpoints=checkpoints,
            public_validation=known_rows,
            safe_noise=safe_noise,
            seed=seed,
            scratch=scratch,
            engine=cluster,
        )
    public_score = None if tests is None else release.model.score(tests)
    report = release.report(table.path, public_score)
    page = report_page(release.certificate_beside(report), name=CERTIFICATE)
    release.write(output, report, page)
    for warning in release.warnings:
        sys.stderr.write(f"dplateau: warning: {' '.join(warning.split())}\n")
    if json:
        print_json(_summary(release, output, public_score))
    else:
        print(report, end="")
        more = len(release.checkpoints)
        also = f" and {counted(more, 'checkpoint')}" if more else ""
        print(f"\nwritten to {output}: {', '.join(FILES)}{also}")


@app.command(
    name="predict",
    epilog="Example: `dplateau predict model.json new.csv -o predictions.csv`",
)
def predict_command(
    model: Annotated[Path, typer.Argument(help="model.json of a training.")],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the same columns.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the predictions here (.csv or .parquet)."),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Give the probability of every class too.")
    ] = False,
    keep: Annotated[
        Several | None,
        typer.Option("--keep", help="Column of the data to pass through (repeatable)."),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = ".",
) -> None:
    """Predict the target of new rows; using a private model costs nothing more."""
    from dplateau.tables import TableModel, read_table
    from dplateau.tables.table import written

    if output is not None and output.resolve() in (model.resolve(), data.resolve()):
        raise InvalidInput(f"-o {output} would take the place of what is read; name another file")
    trained = TableModel.from_json(read_text(model), source=str(model))
    table = read_table(data, separator=separator, decimal=decimal)
    suffix = ".csv" if output is None else output.suffix.lower()
    content = written(trained.answers(table, proba=proba, keep=keep or ()), suffix)
    if output is None:
        _print_file(content)
        return
    write_whole(output, content)
    print(f"{counted(table.n_rows, 'prediction')} written to {output}")


def _print_file(content: bytes) -> None:
    """Print a file as it is, whatever the output's encoding."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        print(content.decode(), end="")


@app.command(
    name="schema",
    epilog="Example: `dplateau schema adult.csv --target income`, then edit the file it writes",
)
def schema_command(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file, or a folder of Parquet.")],
    target: Annotated[str, typer.Option("--target", help="Column to predict.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Schema file to write (default: DATA.schema.toml)."),
    ] = None,
    separator: Separator = None,
    decimal: Decimal = ".",
) -> None:
    """Draft a schema from column names and types, for you to fill in the public ranges."""
    from dplateau.tables import read_tables
    from dplateau.tables.schema import draft

    types = read_tables([data], stay=False, separator=separator, decimal=decimal).types()
    place = output or default_schema(data)
    if place.exists():
        raise InvalidInput(f"{place} exists; remove it first, or choose another with -o")
    write_whole(place, draft(types, target, data=str(data)))
    print(f"draft written to {place}: replace every '?' by what is publicly known")


def default_schema(data: Path) -> Path:
    """Return where a table's schema is looked for."""
    named = data if data.name else data.resolve()
    return named.with_name(f"{named.name}.schema.toml")


def _engine(name: str | None, address: str | None) -> Ray | None:
    """Return the cluster that the options name."""
    from dplateau.engines.cluster import Ray, engine_of

    if name is None:
        if address is not None:
            raise InvalidInput("--address is that of a Ray cluster; say --engine ray too")
        return None
    engine_of(name)
    return Ray(address=address)


def _schema(
    table: Table | TableFiles, data: Path, path: Path | None, options: dict[str, Any]
) -> Schema:
    """Return what the schema file says, with what the options say in its place."""
    from dplateau.tables.schema import completed, declared_in, overridden

    place = path or (default_schema(data) if default_schema(data).is_file() else None)
    declared = {} if place is None else declared_in(read_text(place), str(place))
    source = str(data) if place is None else str(place)
    return completed(overridden(declared, options), table.types(), source=source, data=str(data))


# --- options as declarations ---------------------------------------------------------------------


def _target_options(name: str | None, classes: str | None, bound: str | None) -> dict[str, Any]:
    declared: dict[str, Any] = {} if name is None else {"column": name}
    if classes is not None:
        declared["classes"] = _names(classes)
    if bound is not None:
        low, high = _ends("--target-bound", bound if ":" in bound else f"-{bound}:{bound}")
        declared |= {"low": low, "high": high}
    return declared


def _column_options(
    bounds: Several | None,
    nonnegative: Several | None,
    categories: Several | None,
    hashed: Several | None,
    boolean: Several | None,
    ignore: Several | None,
) -> dict[str, dict[str, Any]]:
    declared: dict[str, dict[str, Any]] = {}
    for name, text in _pairs("--bounds", bounds):
        low, high = _ends("--bounds", text)
        declared[name] = {"kind": "date" if isinstance(low, str) else "numeric"}
        declared[name] |= {"low": low, "high": high}
    for name, text in _pairs("--nonnegative", nonnegative):
        declared[name] = {"kind": "nonnegative", "high": _number_in("--nonnegative", text)}
    for name, text in _pairs("--categories", categories):
        declared[name] = {"kind": "categories", "categories": _names(text)}
    for name, text in _pairs("--hash", hashed):
        if not text.isdigit():
            raise InvalidInput(f"--hash takes COLUMN=BUCKETS; got {text!r} buckets")
        declared[name] = {"kind": "hashed", "buckets": int(text)}
    declared |= {name: {"kind": "boolean"} for name in boolean or ()}
    return declared | {name: {"kind": "ignored"} for name in ignore or ()}


def _missing_options(missing: Several | None, columns: dict[str, dict[str, Any]]) -> str | None:
    """Put what is said about single columns with them, and return what is said about all."""
    default = None
    for value in missing or ():
        if "=" in value:
            ((name, text),) = _pairs("--missing", [value])
            columns.setdefault(name, {})["missing"] = text
        else:
            default = value
    return default


def _by_class(flag: str, values: Several | None) -> dict[str, float] | None:
    """Return what is said by class; None if nothing is."""
    numbers = {}
    for name, text in _pairs(flag, values, "CLASS"):
        try:
            numbers[name] = float(text)
        except ValueError:
            raise InvalidInput(f"{flag} takes CLASS=NUMBER; got {name}={text}") from None
    return numbers or None


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _pairs(flag: str, values: Several | None, what: str = "COLUMN") -> list[tuple[str, str]]:
    pairs = []
    for value in values or []:
        name, equals, rest = value.rpartition("=")
        if not equals or not name or not rest:
            raise InvalidInput(f"{flag} takes {what}=...; got {value!r}")
        pairs.append((name, rest))
    return pairs


def _number_in(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{flag} takes a number; got {text!r}") from None


def _ends(flag: str, text: str) -> tuple[Any, Any]:
    """Return two numbers; two dates stay texts."""
    ends = text.split(":")
    if len(ends) != 2:
        raise InvalidInput(f"{flag} takes LOW:HIGH, two numbers or two dates; got {text!r}")
    try:
        return float(ends[0]), float(ends[1])
    except ValueError:
        return ends[0], ends[1]


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """Return a noisy score as JSON-ready data: the first by itself, all by name, and the counts."""
    names = ("metric", "value", "noise_std", "epsilon", "rows")
    said: dict[str, Any] = {name: getattr(evaluation, name) for name in names}
    said["scores"] = {name: asdict(one) for name, one in evaluation.scores.items()}
    if evaluation.counts is not None:
        said["counts"] = {
            "classes": list(evaluation.counts.classes),
            "edges": list(evaluation.counts.edges),
            "noisy": evaluation.counts.noisy.tolist(),
            "noise_std": evaluation.counts.noise_std,
        }
    return said


def _summary(release: TableRelease, output: Path, public_score: float | None) -> dict[str, Any]:
    """Return the outcome as JSON-ready data."""
    claim = release.certificate.claim
    outcome: dict[str, Any] = {
        "epsilon": None if claim is None else claim.epsilon,
        "delta": None if claim is None else claim.delta,
        "no_claim": release.certificate.no_claim,
        "max_records_per_person": release.plan.run.group_size,
        "model": str(output / "model.json"),
        "certificate": str(output / "certificate.json"),
        "warnings": list(release.warnings),
    }
    if release.evaluation is not None:
        outcome["evaluation"] = _evaluation(release.evaluation)
    if release.checkpoints:
        from dplateau.tables.release import CHECKPOINT

        places = range(1, len(release.checkpoints) + 1)
        outcome["checkpoints"] = [str(output / CHECKPOINT.format(place)) for place in places]
        outcome["public_validation_scores"] = list(release.public_scores)
    if public_score is not None:
        outcome["public_test_score"] = public_score
    return outcome
