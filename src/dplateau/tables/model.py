"""A private model of a table, and the file that it is kept in: plain JSON, no code."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.files import read_text
from dplateau.ground.types import FloatArray
from dplateau.tables.schema import Schema
from dplateau.tables.table import Table, as_table, encode_features, encode_target

FORMAT = "dplateau/model"
FORMAT_VERSION = 2
CLASSIFIERS, REGRESSORS = ("logistic", "svm"), ("ridge", "huber")


@dataclass(frozen=True, eq=False)
class TableModel:
    """Weights of a linear model on the encoded columns of a table.

    ``kind`` is "logistic", "svm", "ridge" or "huber". ``classes`` is None for a regression, whose
    targets lie in ``schema.target.bounds``. With two classes there is one row of weights, positive
    scores meaning the second class; ``widening`` (of a logistic model: clip, learned share and
    variance of the noise) makes probabilities of scores, to whose logarithms ``decision_shift`` is
    added before the highest is predicted. The constant feature has the size ``constant``;
    ``whitening`` holds the matrices that turned the rows; a regression on such rows has a second
    row of weights, for what lies beyond ``bend``.
    """

    kind: str
    schema: Schema
    weights: FloatArray
    intercepts: FloatArray
    data_norm: float
    classes: tuple[str, ...] | None
    constant: float = 0.0
    whitening: tuple[FloatArray, ...] = ()
    bend: float | None = None
    widening: tuple[float, float, float] | None = None
    decision_shift: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse weights that do not fit the schema, and what is not a number."""
        known = REGRESSORS if self.classes is None else CLASSIFIERS
        checks.choice("kind", self.kind, known)
        rows = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        rows = rows if self.bend is None else 2 * rows
        wide = self.schema.width + (self.constant > 0)
        if any(m.shape != (wide, wide) or not np.all(np.isfinite(m)) for m in self.whitening):
            raise InvalidInput(
                f"not a whole model: whitening needs {wide} x {wide} matrices of finite numbers"
            )
        if self.weights.shape != (rows, self.schema.width) or self.intercepts.shape != (rows,):
            raise InvalidInput("not a whole model: weights and schema do not fit together")
        if not (np.all(np.isfinite(self.weights)) and np.all(np.isfinite(self.intercepts))):
            raise InvalidInput("not a model: some of its weights are no finite numbers")
        _check_probabilities(self)

    @cached_property
    def estimator(self) -> Any:
        """The fitted estimator, for rows that are encoded already."""
        from dplateau.estimators.models import restored
        from dplateau.estimators.probabilities import Widening
        from dplateau.estimators.rows import RowMap
        from dplateau.estimators.whitening import Whitening

        bounds = self.schema.target.bounds
        rounds = tuple(map(Whitening, self.whitening))
        return restored(
            self.kind,
            RowMap(self.data_norm, self.constant, whitening=rounds, bend=self.bend),
            coef=self.weights,
            intercept=self.intercepts,
            classes=self.classes,
            target_bound=None if bounds is None else (bounds.low, bounds.high),
            widening=None if self.widening is None else Widening(*self.widening),
            decision_shift=self.decision_shift,
        )

    def predict(self, table: Table) -> npt.NDArray[Any]:
        """Return the classes, or the numbers."""
        return np.asarray(self.estimator.predict(encode_features(table, self.schema)))

    def probabilities(self, table: Table) -> FloatArray:
        """Return a column for each class; only logistic models have probabilities."""
        if self.kind != "logistic":
            raise InvalidInput(
                f"a model of kind {self.kind!r} gives no probabilities; train --model logistic"
            )
        return np.asarray(self.estimator.predict_proba(encode_features(table, self.schema)))

    def answers(
        self, table: Table, *, proba: bool = False, keep: Sequence[str] = ()
    ) -> dict[str, list[Any]]:
        """Return columns of a table's own that are passed through, and the predictions."""
        columns: dict[str, list[Any]] = {name: table.cells(name).texts() for name in keep}
        column = self.schema.target.column
        if column in columns:
            raise InvalidInput(f"{column!r} is what is predicted, and cannot be passed through")
        columns[column] = self.predict(table).tolist()
        if proba:
            chances = self.probabilities(table)
            for place, label in enumerate(self.classes or ()):
                columns[f"{column}={label}"] = chances[:, place].tolist()
        return columns

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
            "kind": self.kind,
            "schema": self.schema.to_dict(),
            "weights": self.weights.tolist(),
            "intercepts": self.intercepts.tolist(),
            "data_norm": self.data_norm,
            "classes": None if self.classes is None else list(self.classes),
            "constant": self.constant,
            "whitening": [matrix.tolist() for matrix in self.whitening],
            "bend": self.bend,
            # A clip that never cuts is infinite, which JSON has no number for.
            "widening": None
            if self.widening is None
            else [None if math.isinf(one) else one for one in self.widening],
            "decision_shift": None if self.decision_shift is None else list(self.decision_shift),
        }
        return json.dumps(body, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> TableModel:
        """Read what :meth:`to_json` wrote."""
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidInput(f"{source} is not a model: it is no JSON") from None
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise InvalidInput(f"{source} is not a model: it lacks 'format': '{FORMAT}'")
        if stored.get("format_version") != FORMAT_VERSION:
            raise InvalidInput(
                f"{source} is a model of format version {stored.get('format_version')!r}; "
                f"this release reads {FORMAT_VERSION}"
            )
        try:
            return cls(
                kind=str(stored["kind"]),
                schema=Schema.from_dict(stored["schema"], source=source),
                weights=np.array(stored["weights"], dtype=float),
                intercepts=np.array(stored["intercepts"], dtype=float),
                data_norm=checks.positive("data_norm", stored["data_norm"]),
                classes=None if stored["classes"] is None else tuple(map(str, stored["classes"])),
                constant=checks.nonnegative("constant", stored["constant"]),
                whitening=tuple(np.array(one, dtype=float) for one in stored["whitening"]),
                bend=None if stored["bend"] is None else checks.probability("bend", stored["bend"]),
                widening=_widening_in(stored.get("widening")),
                decision_shift=_shift_in(stored.get("decision_shift")),
            )
        except InvalidInput as problem:
            raise InvalidInput(f"{source}: {problem}") from None
        except (KeyError, TypeError, ValueError) as problem:
            what = type(problem).__name__
            raise InvalidInput(f"{source} is not a whole model: {what} in its fields") from None


def _widening_in(stored: Any) -> tuple[float, float, float] | None:
    if stored is None:
        return None
    clip, learned, variance = stored
    return (
        math.inf if clip is None else checks.positive("clip", clip),
        checks.positive("learned", learned),
        checks.nonnegative("variance", variance),
    )


def _shift_in(stored: Any) -> tuple[float, ...] | None:
    return None if stored is None else tuple(checks.real("decision_shift", one) for one in stored)


def _check_probabilities(model: TableModel) -> None:
    """Refuse a shift that does not fit the classes, and numbers that a model has no use for."""
    shift = model.decision_shift
    stated = model.widening is not None or shift is not None
    if stated and model.kind != "logistic":
        raise InvalidInput(f"not a model: one of kind {model.kind!r} has no probabilities")
    wide = 0 if model.classes is None else len(model.classes)
    if shift is not None and not (len(shift) == wide and all(map(math.isfinite, shift))):
        raise InvalidInput("not a whole model: decision_shift needs a finite number for each class")


def load_model(path: str | Path) -> Any:
    """Return the model of a release as a fitted scikit-learn pipeline.

    The pipeline takes what people have: the path of a CSV or Parquet file, a pandas or polars
    frame, or a mapping of columns. Its last step is the private estimator, with ``coef_``,
    ``intercept_`` and ``classes_``; the names of the encoded features are those of the first step.

    Parameters
    ----------
    path
        The file ``model.json`` that ``dplateau train`` wrote, or the folder that holds it.

    Returns
    -------
    sklearn.pipeline.Pipeline
        With ``predict``, ``score``, and ``predict_proba`` if the model is logistic.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or is no model of this format.
    """
    from dplateau.estimators.models import pipeline

    place = Path(path)
    place = place / "model.json" if place.is_dir() else place
    model = TableModel.from_json(read_text(place), source=str(place))
    return pipeline(partial(_encoded, model.schema), model.schema.labels, model.estimator)


def _encoded(schema: Schema, data: Any) -> FloatArray:
    return encode_features(as_table(data), schema)
