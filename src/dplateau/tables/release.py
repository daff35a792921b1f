"""Training on a table: a model, a noisy score if one is paid for, and one certificate for both.

Everything that leaves a training is stated by ``TableRelease.certificate``; nothing else leaves.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import astuple, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.bounds.base import Assumption
from dplateau.certificates import Certificate, Composition, compose
from dplateau.certificates.composition import Part, Records
from dplateau.engines import Randomness, SecureRandomness, SeededRandomness
from dplateau.engines.randomness import coins_for
from dplateau.engines.sources import over_parts
from dplateau.errors import InvalidInput, PoorPlanWarning, PrivacyLeakWarning
from dplateau.ground import checks
from dplateau.ground.files import write_whole
from dplateau.ground.shown import counted, printable, rounded_up, wrapped, wrapped_lines
from dplateau.ledger import released_with
from dplateau.planning import Plan
from dplateau.tables.files import TableFiles
from dplateau.tables.model import CLASSIFIERS, REGRESSORS, TableModel
from dplateau.tables.schema import BUCKET_END, Schema
from dplateau.tables.table import Table, encode_features, encode_target

# scikit-learn loads when a model is trained.
if TYPE_CHECKING:
    from dplateau.estimators.scoring import Counts, Evaluation, NoisyScore, OverParts

MODEL, CERTIFICATE, REPORT, PAGE = FILES = (
    "model.json",
    "certificate.json",
    "report.txt",
    "report.html",
)
# Models that left on the way are numbered from 1.
CHECKPOINT = "checkpoint-{}.json"
HELD_OUT = 0.1
# So many weights are listed in a report; the model's file has them all.
MOST_LISTED = 40
_OWN_COIN = Assumption(
    "each row is held out by a coin of its own, so a record is in one of both parts: the worse of "
    "both counts",
    "by construction",
)
_BOTH_PARTS = Assumption(
    "each row is held out by a coin of its own, so the rows of one person may be in both parts: "
    "both count together",
    "by construction",
)


@dataclass(frozen=True)
class TableRelease:
    """A model with its certificate and plan, and a noisy evaluation if one was paid for.

    ``checkpoints`` holds the models that left on the way, the last or the best of which is
    ``model``; ``public_scores`` what each of them scores on public rows, if some were given.
    """

    model: TableModel
    model_certificate: Certificate | Composition
    plan: Plan
    evaluation: Evaluation | None
    warnings: tuple[str, ...]
    checkpoints: tuple[TableModel, ...] = ()
    public_scores: tuple[float, ...] = ()

    @cached_property
    def certificate(self) -> Certificate | Composition:
        """The claim about everything that leaves, or about nothing if the model has none.

        It holds the hashes of the models' files: the claim is about these models and no others.
        """
        return self._claim().with_files(_encoded(self._models()))

    def certificate_beside(self, report: str) -> Certificate | Composition:
        """Return the same claim, with the hash of the report: noisy scores left in that alone."""
        return self.certificate.with_files(_encoded({**self._models(), REPORT: report}))

    def _models(self) -> dict[str, str]:
        """Return the content of every file that holds a model."""
        on_the_way = {
            CHECKPOINT.format(place): model.to_json()
            for place, model in enumerate(self.checkpoints, 1)
        }
        return {MODEL: self.model.to_json(), **on_the_way}

    def _claim(self) -> Certificate | Composition:
        model = self.model_certificate
        if self.evaluation is None:
            return model
        if model.no_claim is None:
            return together(model, self.evaluation.certificate)
        planned = together(self.plan.certificate, self.evaluation.certificate)
        return planned.without_claim(model.no_claim)

    def report(self, data: str, public_score: float | None = None) -> str:
        """Return the claim, what left, what ran, what it rests on, and the weights by name.

        Of what claims nothing there are no neighbors to state, and nothing for it to rest on.
        """
        schema, run = self.model.schema, self.plan.run
        kind = "regression" if self.model.classes is None else "classification"
        ignored = len(schema.columns) - len(schema.used)
        claimed = self.certificate.claim is not None
        head = f"Private {kind}" if claimed else kind.capitalize()
        neighbors = neighbors_in_words(self.plan.gradients)
        lines = [
            f"{head} of {schema.target.column!r} from {data} ({self.model.kind})",
            f"{counted(run.n, 'record')}, {counted(schema.width, 'feature')} from "
            f"{counted(len(schema.used), 'column')}" + (f" ({ignored} ignored)" if ignored else ""),
            "",
            *wrapped(self.certificate.headline, "Claim: "),
            *(wrapped(neighbors, "Neighbors: ") if claimed else ()),
            "",
            "What left",
            "  the model's weights",
        ]
        lines += self._on_the_way()
        if self.model.whitening:
            lines.append("  noisy second moments of the rows, by which they were whitened")
        if self.evaluation is not None:
            lines += [f"  {line}" for line in in_words(self.evaluation, claimed=claimed)]
        if public_score is not None:
            name = "R^2" if self.model.classes is None else "accuracy"
            lines += ["", f"Exact {name} on the public test rows: {public_score:.4f}"]
        lines += ["", "What ran"]
        if not claimed:
            told = "with secret noise, what ran would have had the claims named here; it has none"
            lines += wrapped(f"({told})", "  ")
        lines += wrapped_lines(textwrap.indent(self.plan.summary, "  "))
        if claimed:
            lines += ["", "What the claim rests on"]
            for assumption in self.certificate.assumptions:
                lines += wrapped(f"{assumption.text} ({assumption.status})", "  - ")
        lines += ["", *self._weights()]
        for text in self.warnings:
            lines += wrapped(" ".join(text.split()), "Warning: ")
        return printable("\n".join(lines) + "\n")

    def _on_the_way(self) -> list[str]:
        """Return what left on the way to the model, in words."""
        count = len(self.checkpoints)
        if not count:
            return []
        first, last = CHECKPOINT.format(1), CHECKPOINT.format(count)
        lines = [f"  the model at {counted(count, 'checkpoint')}: {first} to {last}"]
        if self.public_scores:
            best = int(np.argmax(self.public_scores)) + 1
            shown = ", ".join(f"{score:.4f}" for score in self.public_scores)
            lines += wrapped(f"scores on public rows: {shown}; model.json is number {best}", "    ")
        return lines

    def _weights(self) -> list[str]:
        """Return the largest weights by name, a column for each score; buckets have no names."""
        model = self.model
        classes = model.classes or ()
        target = model.schema.target.column
        heads = (
            classes if len(classes) > 2 else classes[1:] or (target, "beyond")[: len(model.weights)]
        )
        named = np.flatnonzero([not label.endswith(BUCKET_END) for label in model.schema.labels])
        sizes = np.abs(model.weights[:, named]).max(axis=0, initial=0.0)
        largest = named[np.argsort(-sizes, kind="stable")[:MOST_LISTED]]
        labels = [model.schema.labels[place] for place in largest]
        wide = max(len("constant"), *map(len, labels), 0)
        rows = [("constant", model.intercepts), *zip(labels, model.weights.T[largest], strict=True)]
        more = model.weights.shape[1] - len(largest)
        return [
            "Noisy weights (ranges are mapped to [-1, 1], nonnegative numbers to [0, 1])",
            f"  {'':{wide}}  {'  '.join(f'{head:>11}' for head in heads)}",
            *(
                f"  {label:{wide}}  {'  '.join(f'{weight:>11.5g}' for weight in row)}"
                for label, row in rows
            ),
            *([f"  and {more} of buckets, or smaller (model.json has all)"] if more else []),
        ]

    def write(self, folder: str | Path, report: str, page: str | None = None) -> None:
        """Write model, certificate, report and page into a folder, each whole or not at all."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot write to {folder}: {error.strerror}") from None
        for old in folder.glob(CHECKPOINT.format("*")):
            old.unlink()  # of a release that is written over
        contents = {
            **self._models(),
            CERTIFICATE: self.certificate_beside(report).to_json(),
            REPORT: report,
            PAGE: page,
        }
        for name, content in contents.items():
            if content is not None:
                write_whole(folder / name, content)


def _encoded(contents: Mapping[str, str]) -> dict[str, bytes]:
    return {name: content.encode() for name, content in contents.items()}


def refuse_to_overwrite(folder: Path) -> None:
    """Refuse a folder that holds a release: what left once cannot be taken back."""
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise InvalidInput(
            f"{folder} holds a release ({', '.join(there)}), and its epsilon is spent; choose "
            "another folder with -o, or say --overwrite"
        )


def neighbors_in_words(certificate: Certificate) -> str:
    """Return which tables the claim tells hard to tell apart."""
    run = certificate.run
    who = "one row" if run.group_size == 1 else f"the rows of one person, at most {run.group_size}"
    if run.neighbors == "replace":
        others = "any other" if run.group_size == 1 else "as many others"
        return f"tables that differ in {who}, exchanged for {others} (replace)"
    return f"tables that differ in {who}, present in one and absent from the other (add-remove)"


def fit_table(
    table: Table | TableFiles,
    schema: Schema,
    *,
    epsilon: float,
    delta: float | None = None,
    model: str | None = None,
    data_norm: float = 1.0,
    n_public: int | None = None,
    neighbors: str = "add_remove",
    compute_budget: float | None = None,
    class_weight: Mapping[str, float] | None = None,
    class_prior: Mapping[str, float] | None = None,
    decision_prior: Mapping[str, float] | str | None = None,
    evaluate_epsilon: float | None = None,
    checkpoints: int | None = None,
    public_validation: Table | None = None,
    safe_noise: bool = False,
    seed: int | None = None,
    scratch: Any = None,
    engine: Any = None,
) -> TableRelease:
    """Train a private model on a table; what a schema says counts as public.

    Parameters
    ----------
    table, schema
        The private rows, in memory or in files that are read a part at a time, and what is
        publicly known about them.
    epsilon, delta, data_norm, n_public, neighbors, compute_budget, safe_noise, scratch, engine
        As of the estimators; the last two are for tables in files.
    model
        "logistic" (default) or "svm" for classes, "ridge" (default) or "huber" for numbers.
    class_weight, class_prior, decision_prior
        Public numbers by class, as of the classifiers.
    evaluate_epsilon
        Hold out each row with probability 0.1, by a coin of its own, and score the model on those
        rows with this extra cost. A record is in one part only, so the worse part counts; with
        several rows per person both do.
    checkpoints
        So many models leave on the way; the certificate covers all of them.
    public_validation
        Public rows that score every checkpoint: the best is the model, and training stops when two
        are no better.
    seed
        Makes the training repeatable, and so not private.

    Returns
    -------
    TableRelease
        The model and one certificate for everything that leaves.
    """
    from dplateau.estimators.scoring import NoisyScore

    by_class = {
        "class_weight": class_weight,
        "class_prior": class_prior,
        "decision_prior": decision_prior,
    }
    kind = _kind_of(model, schema, by_class)
    rest: Table | TableFiles = table
    test: Table | TableFiles | None = None
    if evaluate_epsilon is not None:
        checks.positive("evaluate_epsilon", evaluate_epsilon)
        if n_public is not None:
            raise InvalidInput(
                "a noisy score divides by the number of rows that were held out, which n_public "
                "hides; leave one of evaluate_epsilon and n_public out, or score on public rows"
            )
        coins = coins_for(table.n_rows, HELD_OUT, _randomness(seed, safe_noise))
        rest, test = table.split(coins)
    options = {
        "epsilon": epsilon,
        "delta": delta,
        "data_norm": data_norm,
        "n_public": n_public,
        "neighbors": neighbors,
        "max_records_per_person": schema.max_records_per_person,
        "compute_budget": compute_budget,
        "random_state": seed,
        "safe_noise": safe_noise,
        "scratch": scratch,
        "engine": engine,
        "checkpoints": checkpoints,
    }
    if public_validation is not None:
        options["early_stopping"] = "released"
        options["public_validation"] = (
            encode_features(public_validation, schema),
            encode_target(public_validation, schema),
        )
    score = None
    if test is not None and evaluate_epsilon is not None:
        score = NoisyScore(test.n_rows, evaluate_epsilon, classes=schema.target.bounds is None)
    # A ledger in force pays for the model and its score before the training starts.
    with nullcontext() if score is None else released_with(partial(_with_score, score)):
        estimator, told = _fitted(kind, rest, schema, options, by_class)
    released = released_model(kind, schema, estimator)
    evaluation = None
    if test is not None and score is not None:
        cost = priced(score, estimator.plan_.gradients)
        source = _randomness(seed, safe_noise)
        evaluation = score.of(released.estimator, _over_parts(test, schema), cost, source)
    return TableRelease(
        released,
        estimator.certificate_,
        estimator.plan_,
        evaluation,
        told,
        checkpoints=()
        if checkpoints is None
        else tuple(released_model(kind, schema, one) for one in estimator.staged_models()),
        public_scores=() if public_validation is None else tuple(estimator.validation_scores_),
    )


def _kind_of(model: str | None, schema: Schema, by_class: Mapping[str, object]) -> str:
    """Return the kind of model for the schema's target; refuse what belongs to another kind."""
    kinds = CLASSIFIERS if schema.target.bounds is None else REGRESSORS
    kind = checks.choice("model", model or kinds[0], kinds)
    stated = [name for name, value in by_class.items() if value is not None]
    if stated and kinds is REGRESSORS:
        raise InvalidInput(
            f"{stated[0]} is for classes, but {schema.target.column!r} is a number; leave it out"
        )
    return kind


def _fitted(
    kind: str, table: Table | TableFiles, schema: Schema, options: Any, by_class: dict[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Return the fitted estimator, and what it warned of."""
    from dplateau.estimators.models import MODELS

    target = schema.target
    if target.bounds is not None:
        options["target_bound"] = (target.bounds.low, target.bounds.high)
    else:
        options |= by_class
        options["classes"] = None if target.classes is None else list(target.classes)
    features: Any
    targets: Any
    if isinstance(table, TableFiles):
        features, targets = table.source(schema), None
    else:
        features, targets = encode_features(table, schema), encode_target(table, schema)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = MODELS[kind](**options).fit(features, targets)
    ours = (PrivacyLeakWarning, PoorPlanWarning)
    told = tuple(str(w.message) for w in caught if issubclass(w.category, ours))
    return estimator, told


def released_model(kind: str, schema: Schema, estimator: Any) -> TableModel:
    """Return what a fitted estimator releases, as a model of the table's own columns."""
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    row_map = estimator.row_map_
    if row_map.bend is not None:
        coef = np.vstack([coef, estimator.coef_beyond_])
        intercept = np.append(intercept, estimator.intercept_beyond_)
    numbers = schema.target.bounds is not None
    return TableModel(
        kind=kind,
        schema=schema,
        weights=coef,
        intercepts=intercept.astype(float),
        data_norm=row_map.data_norm,
        classes=None if numbers else tuple(map(str, estimator.classes_)),
        constant=row_map.intercept,
        whitening=tuple(one.matrix for one in row_map.whitening),
        bend=row_map.bend,
        widening=astuple(estimator.widening_) if kind == "logistic" else None,
        decision_shift=_plain_shift(estimator),
    )


def _plain_shift(estimator: Any) -> tuple[float, ...] | None:
    shift = getattr(estimator, "decision_shift_", None)
    return None if shift is None else tuple(map(float, shift))


def in_words(evaluation: Evaluation, *, claimed: bool = True) -> list[str]:
    """Return what left with a score, and what follows from it."""
    cost = f"at epsilon {rounded_up(evaluation.epsilon)}" if claimed else "without a claim"
    wide = max(map(len, evaluation.scores))
    lines = [
        f"  {name:{wide}}  {one.value:.4f} "
        f"({'noise alone' if name == 'calibration error' else 'noise deviation'} "
        f"{one.noise_std:.4f})"
        for name, one in evaluation.scores.items()
    ]
    if evaluation.counts is None:
        return [f"a noisy score on {evaluation.rows} held-out rows, {cost}:", *lines]
    head = f"noisy counts of {evaluation.rows} held-out rows by class and score bin, {cost}:"
    return [head, *lines, *_table(evaluation.counts)]


def _table(counts: Counts) -> list[str]:
    """Return the counts by bin, with what the model predicts there and what was observed."""
    if counts.shift is None or len(counts.edges) < 2:
        return []
    yes, no = counts.against(counts.noisy.astype(float))
    two = len(counts.classes) == 2
    names = (counts.classes[1], counts.classes[0]) if two else ("right", "wrong")
    lines = [f"  {'predicted':>9}  {'observed':>8}  {names[0]:>9}  {names[1]:>9}"]
    for chance, first, second in zip(counts.predicted, yes, no, strict=True):
        # Of cells that hold little more than noise a share would say nothing.
        told = first + second > 6 * counts.noise_std
        share = f"{min(1.0, max(0.0, first / (first + second))):.3f}" if told else ""
        lines.append(f"  {chance:>9.3f}  {share:>8}  {first:>9.0f}  {second:>9.0f}")
    return lines


def _randomness(seed: int | None, safe_noise: bool) -> Randomness:
    if seed is None:
        return SecureRandomness(safe_noise=safe_noise)
    return SeededRandomness(seed, safe_noise=safe_noise)


def _over_parts(table: Table | TableFiles, schema: Schema) -> OverParts:
    """Return what goes over encoded rows and targets: all of them, or a part at a time."""
    if isinstance(table, TableFiles):
        return partial(over_parts, table.source(schema))
    rows, targets = encode_features(table, schema), encode_target(table, schema)
    return lambda use: [use(rows, targets)]


def together(model: Part, score: Certificate) -> Composition:
    """Return the claim about a model and its score: the worse of both if a person has one row."""
    records: Records = "disjoint" if score.run.group_size == 1 else "same"
    return compose([model, score], score.claimed_delta, records=records)


def _with_score(score: NoisyScore, model: Part) -> Composition:
    return together(model, priced(score, model))


def priced(score: NoisyScore, model: Part) -> Certificate:
    """Return what a score costs, for the neighbors, the unit and the delta of a model's claim."""
    # Of a whitened model any part will do: all have the neighbors and the delta of the whole.
    one = model.certificates[0] if isinstance(model, Composition) else model
    assert isinstance(one, Certificate)
    run = one.run
    certificate = score.certificate(run.neighbors, run.group_size, one.claimed_delta)
    coin = _OWN_COIN if run.group_size == 1 else _BOTH_PARTS
    return replace(certificate, assumptions=(*certificate.assumptions, coin))
