"""A private model of a table, and the file that it is kept in: plain JSON, no code."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.certificates import Certificate
from dplateau.engines import SecureRandomness, scale_rows
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.planning import Plan
from dplateau.tables.schema import Schema
from dplateau.tables.table import Table, encode_features, encode_target

FORMAT = "dplateau/model"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class TableModel:
    """Weights of a linear model on the encoded columns of a table.

    ``classes`` is None for a regression, whose targets lie in ``schema.target.bounds``. With two
    classes there is one row of weights, positive scores meaning the second class.
    """

    schema: Schema
    weights: FloatArray
    intercepts: FloatArray
    data_norm: float
    classes: tuple[str, ...] | None

    def scores(self, table: Table) -> FloatArray:
        """Return one column of scores for each row of weights."""
        rows = scale_rows(encode_features(table, self.schema), self.data_norm)
        return np.asarray(rows @ self.weights.T + self.intercepts)

    def predict(self, table: Table) -> npt.NDArray[Any]:
        """Return the classes, or the numbers."""
        scores = self.scores(table)
        if self.classes is None:
            return np.asarray(scores[:, 0])
        two = scores.shape[1] == 1
        places = (scores[:, 0] > 0).astype(int) if two else scores.argmax(axis=1)
        return np.asarray(np.array(self.classes, dtype=object)[places])

    def score(self, table: Table) -> float:
        """Return the exact accuracy, or R^2: a release unless the rows are public."""
        truth, guess = encode_target(table, self.schema), self.predict(table)
        if self.classes is not None:
            return float(np.mean(truth == guess))
        spread = float(np.sum((truth - truth.mean()) ** 2))
        return 1 - float(np.sum((truth - guess) ** 2)) / spread if spread > 0 else math.nan

    def to_json(self) -> str:
        """Return the model as JSON text; floats keep every digit."""
        body = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "schema": self.schema.to_dict(),
            "weights": self.weights.tolist(),
            "intercepts": self.intercepts.tolist(),
            "data_norm": self.data_norm,
            "classes": None if self.classes is None else list(self.classes),
        }
        return json.dumps(body, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TableModel:
        """Read what :meth:`to_json` wrote."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            raise InvalidInput("not a model: the text is no JSON") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise InvalidInput(f"not a model: the text lacks 'format': '{FORMAT}'")
        if found.get("format_version") != FORMAT_VERSION:
            raise InvalidInput(
                f"a model of format version {found.get('format_version')!r}; "
                f"this release reads {FORMAT_VERSION}"
            )
        try:
            return cls._from_fields(found)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"not a whole model: {type(error).__name__} in its fields") from None

    @classmethod
    def _from_fields(cls, found: dict[str, Any]) -> TableModel:
        schema = Schema.from_dict(found["schema"])
        weights = np.array(found["weights"], dtype=float)
        intercepts = np.array(found["intercepts"], dtype=float)
        classes = None if found["classes"] is None else tuple(map(str, found["classes"]))
        rows = 1 if classes is None or len(classes) == 2 else len(classes)
        if weights.shape != (rows, schema.width) or intercepts.shape != (rows,):
            raise InvalidInput("not a whole model: weights and schema do not fit together")
        norm = checks.positive("data_norm", found["data_norm"])
        return cls(schema, weights, intercepts, norm, classes)


@dataclass(frozen=True)
class Evaluation:
    """A noisy score on held-out private rows, and what it costs.

    The number of right answers (or the sum of squared errors, cut to the target's range) among the
    held-out rows changes by at most one unit with one row, so by at most m with the m rows of one
    person, all of which may be held out. Laplace noise of scale m / epsilon makes it
    epsilon-private.
    """

    metric: str
    value: float
    noise_std: float
    epsilon: float
    rows: int


@dataclass(frozen=True)
class Fitted:
    """A model with its certificate, its plan, and a noisy evaluation if one was paid for."""

    model: TableModel
    certificate: Certificate
    plan: Plan
    evaluation: Evaluation | None
    warnings: tuple[str, ...]

    @property
    def total_epsilon(self) -> float:
        """Return what model and evaluation cost together, by basic composition."""
        extra = 0.0 if self.evaluation is None else self.evaluation.epsilon
        return self.certificate.claimed_epsilon + extra


def fit_table(
    table: Table,
    schema: Schema,
    *,
    epsilon: float,
    delta: float | None = None,
    data_norm: float = 1.0,
    neighbors: str = "add_remove",
    compute_budget: float | None = None,
    evaluate_epsilon: float | None = None,
    held_out: float = 0.1,
    random_state: int | None = None,
    verbose: bool = False,
) -> Fitted:
    """Train on a table; with ``evaluate_epsilon`` a share of the rows is held out and scored."""
    import warnings

    from dplateau.errors import PoorPlanWarning, PrivacyLeakWarning

    rest, test = table, None
    if evaluate_epsilon is not None:
        checks.positive("evaluate_epsilon", evaluate_epsilon)
        rest, test = _split(table, checks.probability("held_out", held_out))
    estimator = _estimator(
        schema,
        epsilon=epsilon,
        delta=delta,
        data_norm=data_norm,
        neighbors=neighbors,
        max_records_per_person=schema.max_records_per_person,
        compute_budget=compute_budget,
        random_state=random_state,
        verbose=int(verbose),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(encode_features(rest, schema), encode_target(rest, schema))
    classes = None if schema.target.bounds is not None else tuple(map(str, estimator.classes_))
    model = TableModel(
        schema=schema,
        weights=np.atleast_2d(estimator.coef_),
        intercepts=np.atleast_1d(estimator.intercept_).astype(float),
        data_norm=estimator.plan_.data_norm,
        classes=classes,
    )
    evaluation = None
    if test is not None and evaluate_epsilon is not None:
        evaluation = _evaluated(model, test, evaluate_epsilon)
    told = (PrivacyLeakWarning, PoorPlanWarning)
    leaks = [str(w.message) for w in caught if issubclass(w.category, told)]
    return Fitted(model, estimator.certificate_, estimator.plan_, evaluation, tuple(leaks))


def _estimator(schema: Schema, **options: Any) -> Any:
    from dplateau.estimators import PrivateLogisticRegression, PrivateRidge

    target = schema.target
    if target.bounds is not None:
        return PrivateRidge(target_bound=(target.bounds.low, target.bounds.high), **options)
    classes = None if target.classes is None else list(target.classes)
    return PrivateLogisticRegression(classes=classes, **options)


def _split(table: Table, share: float) -> tuple[Table, Table]:
    """Return two parts of the rows, drawn at random."""
    size = round(share * table.n_rows)
    if not 1 <= size < table.n_rows:
        raise InvalidInput(f"{table.n_rows} rows are too few to hold out a share of {share:g}")
    order = SecureRandomness().permutation(table.n_rows)
    return table.part(order[size:]), table.part(order[:size])


def _evaluated(model: TableModel, test: Table, epsilon: float) -> Evaluation:
    truth, guess = encode_target(test, model.schema), model.predict(test)
    most_rows = model.schema.max_records_per_person
    scale = math.sqrt(2.0) * most_rows / (epsilon * test.n_rows)
    noise = float(SecureRandomness().laplace(1)[0]) * scale
    if model.classes is not None:
        metric, value = "accuracy", float(np.mean(truth == guess))
    else:
        bounds = model.schema.target.bounds
        assert bounds is not None
        # In units of the target's range, so that one row's error is at most 1.
        width = bounds.high - bounds.low
        cut = np.clip([truth, guess], bounds.low, bounds.high) / width
        metric, value = (
            "mean squared error over the squared range",
            float(np.mean((cut[0] - cut[1]) ** 2)),
        )
    return Evaluation(metric, value + noise, scale, epsilon, test.n_rows)
