"""Private linear classifiers and regressors: which loss, which targets, what is predicted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from dplateau.algorithms import Run
from dplateau.bounds.base import Assumption
from dplateau.engines import Randomness
from dplateau.errors import InvalidInput
from dplateau.estimators.base import PrivateLinearModel
from dplateau.estimators.columns import PRIVATE
from dplateau.estimators.data import Data
from dplateau.estimators.disclosures import (
    PUBLIC_WEIGHTS,
    about_classes,
    inferred_classes,
    undeclared_targets,
)
from dplateau.estimators.inputs import (
    ClassNumbers,
    Goal,
    TargetRange,
    check_labels,
    checked_records,
    checked_rows,
    class_weights,
    known_classes,
    scored,
    seen_classes,
)
from dplateau.estimators.probabilities import Widening, decision_shift
from dplateau.estimators.rows import RowMap
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.losses import Huber as HuberLoss
from dplateau.losses import Loss, OneVersusRest, SmoothedHinge
from dplateau.planning import Plan
from dplateau.planning.forecast import HINGE_WIDTH


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """What the private classifiers share."""

    _parameters = """
    classes
        The labels that may occur, declared in advance. None takes them from y, which makes public
        which labels occur, and warns.
    class_weight
        Dict from classes to positive numbers (1 for those not named), chosen from what is publicly
        known: each record's loss is multiplied by the number of its class. They are divided by the
        largest, which leaves the claim as it is; lighter classes count less against the same noise.
        "balanced" would read the labels and is refused: declare 1 / (k share) for k classes.
    class_prior, decision_prior
        Of logistic regression: dict of the publicly known shares of the classes among the records,
        and "balanced" or a dict of the shares to decide for. ``predict`` then takes the class that
        is likeliest where classes have those shares; ``predict_proba`` and ``decision_function``
        stay. A class that is left out has the rest. It costs nothing, and no noise.
    """

    classes_: npt.NDArray[Any]
    intercept_: FloatArray
    decision_shift_: FloatArray | None

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        classes: Any = None,
        class_weight: Any = None,
        class_prior: Any = None,
        decision_prior: Any = None,
        data_norm: float | None = None,
        feature_bounds: Any = None,
        fit_intercept: bool = True,
        n_public: int | None = None,
        neighbors: str = "add_remove",
        max_records_per_person: int = 1,
        algorithm: str | Run = "auto",
        whitening: str = "auto",
        compute_budget: float | None = None,
        checkpoints: int | None = None,
        early_stopping: str | None = None,
        public_validation: Any = None,
        random_state: Any = None,
        safe_noise: bool = False,
        scratch: Any = None,
        engine: Any = None,
        verbose: Any = True,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            data_norm=data_norm,
            feature_bounds=feature_bounds,
            fit_intercept=fit_intercept,
            n_public=n_public,
            neighbors=neighbors,
            max_records_per_person=max_records_per_person,
            algorithm=algorithm,
            whitening=whitening,
            compute_budget=compute_budget,
            checkpoints=checkpoints,
            early_stopping=early_stopping,
            public_validation=public_validation,
            random_state=random_state,
            safe_noise=safe_noise,
            scratch=scratch,
            engine=engine,
            verbose=verbose,
        )
        self.classes = classes
        self.class_weight = class_weight
        self.class_prior = class_prior
        self.decision_prior = decision_prior

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores: one per row with two classes (positive: the second), else one each."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the exact accuracy: a release, unless the rows are public (see noisy_score)."""
        check_is_fitted(self)
        labels = f"label of the type of classes={self.classes_.tolist()}"
        return scored(lambda: super(PrivateClassifier, self).score(X, y, sample_weight), y, labels)

    def deciding_scores(self, X: Any) -> FloatArray:
        """Return the scores that predictions follow: one column (positive: the second), or k."""
        return self._scores(X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the highest score, or the likeliest for ``decision_prior``."""
        check_is_fitted(self)
        scores = self._scores(X) if self.decision_shift_ is None else self.deciding_scores(X)
        two = scores.shape[1] == 1
        places = (scores[:, 0] > 0).astype(int) if two else scores.argmax(axis=1)
        labels: npt.NDArray[Any] = self.classes_[places]
        return labels

    @abstractmethod
    def _loss(self, n_classes: int) -> str | Loss:
        """Return the loss of a record for that many classes."""

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        features, targets = checked_records(self, X, y, numbers=False)
        if self.classes is None:
            check_labels(targets)
        return features, targets

    def _goal(self, targets: Any) -> Goal:
        declared = self.classes is not None
        if targets is None and not declared:
            raise InvalidInput(
                "which labels occur is not known before all records were read; declare "
                "classes=[...]"
            )
        self.classes_ = known_classes(self.classes) if declared else seen_classes(targets)
        count = len(self.classes_)
        read = ClassNumbers(self.classes_)
        weights = class_weights(self.class_weight, self.classes_)
        self.decision_shift_ = self._shift(weights)
        return Goal(self._loss(count), count, read, 0.0 if count > 2 else 1.0, weights)

    def _shift(self, weights: tuple[float, ...] | None) -> FloatArray | None:
        """Refuse priors: only log-odds can be moved by them."""
        del weights
        if self.class_prior is not None or self.decision_prior is not None:
            raise InvalidInput(
                f"{type(self).__name__} has margins, no log-odds, which decision_prior would move; "
                "use PrivateLogisticRegression, or class_weight"
            )
        return None

    def _keep(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef_, self.intercept_ = coef, intercept

    def _more_assumptions(self) -> tuple[Assumption, ...]:
        about = about_classes(self.classes is not None)
        return (about,) if self.class_weight is None else (about, PUBLIC_WEIGHTS)

    def _leaks(self) -> tuple[str, ...]:
        if self.classes is not None:
            return super()._leaks()
        return (*super()._leaks(), inferred_classes(type(self).__name__))

    def __sklearn_tags__(self) -> Any:
        """Say that noise may spoil the score on small data."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression whose weights are private: two classes, or a softmax over more.

    >>> import numpy as np
    >>> X = np.repeat([[0.6, 0.0], [-0.6, 0.1]], 1000, axis=0)
    >>> y = np.repeat(["yes", "no"], 1000)
    >>> model = PrivateLogisticRegression(
    ...     epsilon=1.0, classes=["no", "yes"], feature_bounds=(-1, 1)
    ... ).fit(X, y)
    >>> model.predict(X[[0, -1]]).tolist()
    ['yes', 'no']
    >>> model.certificate_.claimed_epsilon <= 1.0
    True
    """

    widening_: Widening

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every class, widened by the noise that the plan forecasts."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of every class's probability."""
        scores = self._log_odds(X)
        if scores.shape[1] == 1:
            return np.column_stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])])
        logs: FloatArray = log_softmax(scores, axis=1)
        return logs

    def deciding_scores(self, X: Any) -> FloatArray:
        """Return log-odds of the second class, or scores of all, moved to ``decision_prior``."""
        scores, shift = self._log_odds(X), self.decision_shift_
        if shift is None:
            return scores
        return scores + (shift[1] - shift[0] if scores.shape[1] == 1 else shift)

    def _expect(self, chosen: Plan) -> None:
        self.widening_ = Widening.of(chosen)

    def _log_odds(self, X: Any) -> FloatArray:
        """Return scores after widening."""
        scores = self._scores(X)
        norms = self.row_map_.norms(checked_rows(self, X))
        if scores.shape[1] == 1:
            return self.widening_.two(scores[:, 0], norms)[:, None]
        return self.widening_.several(scores, norms)

    def _shift(self, weights: tuple[float, ...] | None) -> FloatArray | None:
        return decision_shift(self.class_prior, self.decision_prior, weights, self.classes_)

    def staged_predict_proba(self, X: Any) -> Iterator[FloatArray]:
        """Yield the probabilities of every model that left on the way."""
        for model in self.staged_models():
            yield model.predict_proba(X)

    def _loss(self, n_classes: int) -> str | Loss:
        return "logistic"


class PrivateLinearSVC(PrivateClassifier):
    """A linear support vector machine whose weights are private.

    It minimizes the hinge loss with a rounded corner; more than two classes are told apart by one
    such machine each, trained together as one loss.
    """

    def _loss(self, n_classes: int) -> str | Loss:
        if n_classes == 2:
            return "hinge"
        return OneVersusRest(SmoothedHinge(HINGE_WIDTH), n_classes)


DEFAULT_TARGET_BOUND = 1.0
# Half the range is a residual that most records stay within; a quarter of it resists outliers.
DEFAULT_THRESHOLD_SHARE = 0.25


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """What the private regressors share."""

    _parameters = """
    target_bound
        Public limits of the targets: a number B for [-B, B], or a pair (low, high). Targets are cut
        to them, each on its own, and so are predictions. None means 1, and warns. "private" finds
        them with noise, as ``feature_bounds`` does.
    """

    intercept_: float
    coef_beyond_: FloatArray | None
    target_bound_: tuple[float, float]
    intercept_beyond_: float | None

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        target_bound: Any = None,
        data_norm: float | None = None,
        feature_bounds: Any = None,
        fit_intercept: bool = True,
        n_public: int | None = None,
        neighbors: str = "add_remove",
        max_records_per_person: int = 1,
        algorithm: str | Run = "auto",
        whitening: str = "auto",
        compute_budget: float | None = None,
        checkpoints: int | None = None,
        early_stopping: str | None = None,
        public_validation: Any = None,
        random_state: Any = None,
        safe_noise: bool = False,
        scratch: Any = None,
        engine: Any = None,
        verbose: Any = True,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            data_norm=data_norm,
            feature_bounds=feature_bounds,
            fit_intercept=fit_intercept,
            n_public=n_public,
            neighbors=neighbors,
            max_records_per_person=max_records_per_person,
            algorithm=algorithm,
            whitening=whitening,
            compute_budget=compute_budget,
            checkpoints=checkpoints,
            early_stopping=early_stopping,
            public_validation=public_validation,
            random_state=random_state,
            safe_noise=safe_noise,
            scratch=scratch,
            engine=engine,
            verbose=verbose,
        )
        self.target_bound = target_bound

    def predict(self, X: Any) -> FloatArray:
        """Return the scores, cut to ``target_bound``."""
        limits = self.target_range
        predictions: FloatArray = np.clip(
            self._scores(X)[:, 0] + limits.center, limits.low, limits.high
        )
        return predictions

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the exact R^2: a release, unless the rows are public (see noisy_score)."""
        check_is_fitted(self)
        return scored(lambda: super(PrivateRegressor, self).score(X, y, sample_weight), y, "")

    @abstractmethod
    def _loss(self) -> str | Loss:
        """Return the loss of a record whose target was mapped to [-1, 1]."""

    @property
    def target_range(self) -> TargetRange:
        """Return what ``target_bound`` says."""
        bound = DEFAULT_TARGET_BOUND if self.target_bound is None else self.target_bound
        if self._seeks_targets:
            bound = getattr(self, "target_bound_", DEFAULT_TARGET_BOUND)
        return TargetRange.of(bound, centered=bool(self.fit_intercept))

    def _undeclared(self) -> tuple[str, ...]:
        if self.target_bound is not None:
            return super()._undeclared()
        return (*super()._undeclared(), undeclared_targets(type(self).__name__))

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        return checked_records(self, X, y, numbers=True)

    def _goal(self, targets: Any) -> Goal:
        if not self._seeks_targets:
            return Goal(self._loss(), 2, self.target_range.mapped, 0.0)
        # Asked for when targets are read: until then the bounds have been found.
        return Goal(self._loss(), 2, lambda given: self.target_range.mapped(given), 0.0)

    @property
    def _seeks_targets(self) -> bool:
        return isinstance(self.target_bound, str) and self.target_bound == PRIVATE

    def _ranges(
        self, run: Run, data: Data, unknown: tuple[int, ...], randomness: Randomness
    ) -> tuple[FloatArray, FloatArray]:
        low, high = super()._ranges(run, data, unknown, randomness)
        if self._seeks_targets:
            self.target_bound_ = (float(low[-1]), float(high[-1]))
        return low, high

    def _keep(self, coef: FloatArray, intercept: FloatArray) -> None:
        slopes, constants = coef * self.target_range.half, intercept * self.target_range.half
        self.coef_, self.intercept_ = slopes[0], float(constants[0] + self.target_range.center)
        beyond = len(slopes) > 1
        self.coef_beyond_ = slopes[1] if beyond else None
        self.intercept_beyond_ = float(constants[1]) if beyond else None

    def by_score(self) -> tuple[FloatArray, FloatArray]:
        """Return them about the middle of the targets, which no row is too long for."""
        first = self.intercept_ - self.target_range.center
        if self.coef_beyond_ is None or self.intercept_beyond_ is None:
            return self.coef_[None, :], np.array([first])
        slopes = np.vstack([self.coef_, self.coef_beyond_])
        return slopes, np.array([first, self.intercept_beyond_])

    def __sklearn_tags__(self) -> Any:
        """Say that noise may spoil the score on small data."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class PrivateRidge(PrivateRegressor):
    """Linear least squares whose weights are private.

    Residuals count squared up to a cut and linearly beyond, which bounds every record's influence.
    The planner chooses the cut, at most half the width of ``target_bound``, and the ridge, or an
    earlier end instead of one: a penalty tuned on the data would leak.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 4000)[:, None]
    >>> y = 30 + 10 * X[:, 0]
    >>> model = PrivateRidge(epsilon=1.0, feature_bounds=(-1, 1), target_bound=(0, 60)).fit(X, y)
    >>> abs(float(model.predict([[0.5]])[0]) - 35) < 3
    True
    """

    def _loss(self) -> str | Loss:
        return "squared"


class PrivateHuberRegressor(PrivateRegressor):
    """Robust linear regression whose weights are private."""

    _parameters = """
    threshold
        Residuals count squared up to here and linearly beyond, in the units of y. None: a quarter
        of half the width of ``target_bound``. Less of it means less noise.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        threshold: float | None = None,
        target_bound: Any = None,
        data_norm: float | None = None,
        feature_bounds: Any = None,
        fit_intercept: bool = True,
        n_public: int | None = None,
        neighbors: str = "add_remove",
        max_records_per_person: int = 1,
        algorithm: str | Run = "auto",
        whitening: str = "auto",
        compute_budget: float | None = None,
        checkpoints: int | None = None,
        early_stopping: str | None = None,
        public_validation: Any = None,
        random_state: Any = None,
        safe_noise: bool = False,
        scratch: Any = None,
        engine: Any = None,
        verbose: Any = True,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            target_bound=target_bound,
            data_norm=data_norm,
            feature_bounds=feature_bounds,
            fit_intercept=fit_intercept,
            n_public=n_public,
            neighbors=neighbors,
            max_records_per_person=max_records_per_person,
            algorithm=algorithm,
            whitening=whitening,
            compute_budget=compute_budget,
            checkpoints=checkpoints,
            early_stopping=early_stopping,
            public_validation=public_validation,
            random_state=random_state,
            safe_noise=safe_noise,
            scratch=scratch,
            engine=engine,
            verbose=verbose,
        )
        self.threshold = threshold

    def _loss(self) -> str | Loss:
        if self.threshold is None:
            return HuberLoss(DEFAULT_THRESHOLD_SHARE)
        if self._seeks_targets:
            raise InvalidInput(
                'threshold is in the units of y, which target_bound="private" does not know in '
                "advance; leave one of them out"
            )
        return HuberLoss(checks.positive("threshold", self.threshold) / self.target_range.half)


# Short names, as files and the command line have them.
PrivateModel = PrivateClassifier | PrivateRegressor
MODELS: dict[str, type[PrivateModel]] = {
    "logistic": PrivateLogisticRegression,
    "svm": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}


def restored(
    kind: str,
    row_map: RowMap,
    *,
    coef: FloatArray,
    intercept: FloatArray,
    classes: Sequence[str] | None,
    target_bound: tuple[float, float] | None,
    widening: Widening | None = None,
    decision_shift: Sequence[float] | None = None,
) -> PrivateModel:
    """Return a fitted estimator from what it released: weights with a row for each score.

    A regression with two slopes has two rows, those beyond the bend second.
    """
    model = MODELS[kind](data_norm=row_map.data_norm)
    model.n_features_in_ = coef.shape[1]
    model.row_map_ = row_map
    if isinstance(model, PrivateClassifier):
        model.classes = list(classes or ())
        model.classes_ = np.array(model.classes, dtype=object)
        model.coef_, model.intercept_ = coef, intercept
        model.decision_shift_ = None if decision_shift is None else np.array(decision_shift)
        if isinstance(model, PrivateLogisticRegression):
            model.widening_ = widening or Widening()
    else:
        model.set_params(target_bound=target_bound)
        model.coef_, model.intercept_ = coef[0], float(intercept[0])
        beyond = len(coef) > 1
        model.coef_beyond_ = coef[1] if beyond else None
        model.intercept_beyond_ = float(intercept[1]) if beyond else None
    return model


def pipeline(encode: Callable[[Any], FloatArray], names: list[str], model: Any) -> Pipeline:
    """Return a fitted pipeline that encodes what it is given, column by column, and predicts."""
    encoder = FunctionTransformer(encode, feature_names_out=partial(_these, names))
    return Pipeline([("encode", encoder), ("model", model)])


def _these(names: list[str], transformer: Any, input_features: Any) -> npt.NDArray[Any]:
    return np.array(names, dtype=object)
