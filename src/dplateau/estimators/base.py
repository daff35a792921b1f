"""What private estimators share: validate, plan, scale rows, train, keep only what may leave."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dplateau.algorithms import (
    Cyclic,
    FixedSize,
    FullBatch,
    OnePass,
    Poisson,
    Run,
    refuse_batches,
)
from dplateau.bounds.base import Assumption
from dplateau.certificates import Certificate, Composition
from dplateau.engines import (
    ArraySource,
    Randomness,
    SecureRandomness,
    SeededRandomness,
)
from dplateau.engines.cluster import engine_of
from dplateau.engines.ranges import noisy_ranges
from dplateau.engines.training import train_kept
from dplateau.errors import InvalidInput, PoorPlanWarning, PrivacyLeakWarning, SpendRefused
from dplateau.estimators.columns import columns_of
from dplateau.estimators.data import ArrayData, Data, names_of, source_data, source_of
from dplateau.estimators.disclosures import (
    PUBLIC_VALIDATION,
    SEEDED,
    about_engine,
    about_rows,
    about_sizes,
    fixed_seed,
    progress_of,
    undeclared_rows,
)
from dplateau.estimators.inputs import Goal, checked_rows
from dplateau.estimators.rows import RowMap
from dplateau.estimators.stages import Stages, Watching, staged
from dplateau.ground import checks
from dplateau.ground.progress import silence
from dplateau.ground.types import FloatArray
from dplateau.ledger import ledger_in_force, paid_for
from dplateau.planning import Plan, plan
from dplateau.planning.plan import records_per_person, released

DEFAULT_DELTA = 1e-5
# What a fitted model predicts with, beside the map of rows.
_WEIGHTS = ("coef_", "intercept_", "coef_beyond_", "intercept_beyond_")
DEFAULT_NORM = 1.0

_PARAMETERS = """
    epsilon, delta
        What may leak about one person. None means a delta of 1e-5, or 1/n if that is less; a
        larger one than 1/n warns.
    data_norm
        Rows longer than this are scaled down to it, each on its own. Choose it from what is known
        about the columns, never from the data. None means 1, and warns unless there are
        ``feature_bounds``.
    feature_bounds
        Pair (low, high) of numbers or of one number per column: columns are cut to it and mapped to
        [-1, 1] before ``data_norm`` applies. Or a dict by column name (by position if X has no
        names), or a list, that has for each column (low, high), "binary" (0 or 1, left as it is) or
        ("nonnegative", high) (mapped to [0, 1]). Sparse X needs zeros that stay zeros: those two
        kinds, or ranges that are symmetric about 0. Where no bounds are known, "private" (for all
        columns, or as the kind of one) finds them with noise, which a tenth of the squared Gaussian
        parameter pays for; honest public bounds are better.
    fit_intercept
        Whether to learn a constant.
    n_public
        Public upper bound on the number of rows; what is missing counts as absent records. None
        declares the number of rows itself as public.
    neighbors
        "add_remove" (a record is present or absent) or "replace" (it is exchanged).
    max_records_per_person
        Most rows that one person has: epsilon and delta hold for all of them together. Rows do not
        tell whose they are, so nothing checks it: you vouch for it. The noise grows about as much.
    algorithm
        "auto", the name of a planner's recipe, or a run whose noise is then calibrated.
    whitening
        "auto" turns and stretches the rows by noisy second moments first, which are part of the
        release and of its certificate, wherever public sizes say that it pays; "never" does not.
        Sparse rows are never whitened.
    compute_budget
        Most passes over the data; None: about ten seconds' worth.
    checkpoints
        So many models leave on the way, equally spaced (``staged_predict``); the certificate covers
        all of them. Free where the plan's claim is composition's; otherwise they cost noise.
    early_stopping
        "released": looks at each checkpoint with ``public_validation``, stops after two without a
        better score and keeps the best. The certificate stays that of the steps planned.
    public_validation
        A pair (X, y) of public records, none of them private, for ``early_stopping``.
    random_state
        None draws noise from a secure generator. Anything else makes the fit repeatable, which is
        not private, and warns.
    safe_noise
        Build every noise value from several, against attacks on floating-point numbers.
    scratch
        For records that are not in memory: None maps rows to the bounds whenever they are read;
        True or a folder keeps them in a file once they are, which has no name and is gone with the
        process. Arrays are then read in chunks too.
    engine
        None trains in this process. "ray", or a :class:`dplateau.engines.Ray` with its settings,
        trains on a Ray cluster, whose workers load files of their own (Parquet files, or
        memory-mapped arrays): the same law and the same certificate.
    verbose
        Whether a fit of more than two seconds shows its steps in a terminal or a notebook (see
        :func:`dplateau.progress`). A function is called with (steps done, steps in all) instead.
"""
_ATTRIBUTES = """
    Attributes
    ----------
    coef_, intercept_
        The noisy weights, in the units of X.
    coef_beyond_, intercept_beyond_
        Of regressors: the same for what a whitened row is longer than usual, which has a slope of
        its own; None where rows were not whitened.
    certificate_, plan_, row_map_
        What is proved about the fit, what was run and why, and how rows are brought to the bounds.
    staged_weights_, validation_scores_
        With ``checkpoints``: ``coef_``, ``intercept_`` and so on of every stage, by name; and with
        ``early_stopping`` the score of each on the public records.
    n_features_in_, feature_names_in_, classes_
        The columns, and the classes of a classifier.
    widening_, decision_shift_
        Of logistic regression, from public numbers alone: how scores become probabilities, and what
        ``decision_prior`` adds to the log-probability of each class before predictions.

    Notes
    -----
    Errors that the data cause (NaN, an unknown label, too many rows) are outside the guarantee.
    There is no ``sample_weight``: a weight multiplies what a record may leak (``class_weight`` is
    public, and its largest number is what the noise is made for).
    """


class PrivateLinearModel(BaseEstimator):
    """A linear model whose weights are (epsilon, delta)-private in every person's records.

    Subclasses say which loss and which targets; this class does all that touches rows and noise.
    """

    plan_: Plan
    certificate_: Certificate | Composition
    _parameters: ClassVar[str] = _PARAMETERS
    row_map_: RowMap
    coef_: FloatArray
    intercept_: Any
    n_features_in_: int
    staged_weights_: list[dict[str, Any]]
    validation_scores_: list[float]

    def __init_subclass__(cls, **options: Any) -> None:
        """Complete the docstring with the parameters of all bases, which are all by keyword."""
        super().__init_subclass__(**options)
        listed = [vars(kind)["_parameters"] for kind in cls.__mro__ if "_parameters" in vars(kind)]
        title = "\n\n    Parameters\n    ----------"
        shown = [(cls.__doc__ or "").rstrip(), title, *(part.rstrip() for part in listed)]
        cls.__doc__ = "".join(shown) + "\n" + _ATTRIBUTES

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
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
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.feature_bounds = feature_bounds
        self.fit_intercept = fit_intercept
        self.n_public = n_public
        self.neighbors = neighbors
        self.max_records_per_person = max_records_per_person
        self.algorithm = algorithm
        self.whitening = whitening
        self.compute_budget = compute_budget
        self.checkpoints = checkpoints
        self.early_stopping = early_stopping
        self.public_validation = public_validation
        self.random_state = random_state
        self.safe_noise = safe_noise
        self.scratch = scratch
        self.engine = engine
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Any:
        """Train on the rows of X with targets y; of the data only the noisy weights are kept.

        Data larger than memory stay where they are: X may be a memory-mapped array; Parquet files
        (a path, a list of paths, a folder) or an Arrow table or dataset, with the name of the
        target's column as y and all other columns as features; a source of
        :mod:`dplateau.engines`; or an iterable of chunks (features, targets), with ``n_public`` and
        no y. An iterator is read once, in batches that follow its order, and ``n_public`` is then
        the exact number of its records.

        A fit that fails or is interrupted leaves no fitted attribute, not even an older one. Inside
        ``with Ledger(path):`` the ledger pays for it before training starts, or refuses.
        """
        self._forget()
        for leak in self._leaks():
            warnings.warn(leak, PrivacyLeakWarning, stacklevel=2)
        try:
            # A warning about overflow would tell something of the data.
            with np.errstate(all="ignore"), nullcontext() if self.verbose else silence():
                self._learn(X, y)
        except BaseException:
            self._forget()
            raise
        return self

    def _learn(self, X: Any, y: Any) -> None:
        self._check_stages()
        told = progress_of(self.verbose)
        data = self._data(X, y)
        slots = self._slots(data.n) if isinstance(data, ArrayData) else data.n
        names = getattr(self, "feature_names_in_", None)
        columns = columns_of(self.feature_bounds, data.width, names)
        unknown = () if columns is None else columns.unknown
        goal = self._goal(data.targets)
        sought = len(unknown) + self._seeks_targets
        chosen, stages = self._planned(slots, data, goal, sought), None
        if self.checkpoints is not None:
            chosen, stages = staged(chosen, self.checkpoints)
        for doubt in (*self._undeclared(), *chosen.doubts):
            warnings.warn(doubt, PoorPlanWarning, stacklevel=3)
        self._expect(chosen)
        row_map = RowMap(chosen.data_norm, chosen.intercept, columns)
        randomness = self._randomness()
        with paid_for(chosen.certificate, name=type(self).__name__):
            if chosen.ranges is not None:
                low, high = self._ranges(chosen.ranges.run, data, unknown, randomness)
                if columns is not None:
                    bounded = columns.bounded(low[: len(unknown)], high[: len(unknown)])
                    row_map = dataclasses.replace(row_map, columns=bounded)
            training = data.training(row_map, goal, slots, chosen, randomness)
            bend = None if chosen.lengths is None else chosen.lengths.bend_of_longest
            row_map = dataclasses.replace(row_map, whitening=training.whitening, bend=bend)
            watching = None if stages is None else self._watching(stages, row_map)
            weights = train_kept(
                chosen.run,
                chosen.loss,
                training.features,
                training.targets,
                feature_norm=chosen.feature_norm,
                clip=chosen.clip,
                randomness=randomness,
                progress=told,
                on_checkpoint=watching,
                engine=engine_of(self.engine),
            )
        self.plan_ = chosen
        self.row_map_ = row_map
        gradients = dataclasses.replace(
            chosen.gradients,
            assumptions=(
                *chosen.gradients.assumptions,
                about_sizes(None if data.exact else self.n_public, slots, chosen.run.neighbors),
                *about_rows(data.dtype, randomness),
                *about_engine(self.engine),
                *((PUBLIC_VALIDATION,) if self.early_stopping is not None else ()),
                *self._more_assumptions(),
            ),
        )
        whole = released(chosen.before, gradients)
        # Whoever knows the seed can subtract the noise; plan_.certificate says what it would cost.
        self.certificate_ = whole if randomness.private else whole.without_claim(SEEDED)
        if watching is None:
            self._keep(*row_map.in_original_units(weights))
            return
        models = [self._at(w, row_map) for w in watching.stages.weights(watching.path)]
        self.staged_weights_ = [
            {name: value for name, value in vars(model).items() if name in _WEIGHTS}
            for model in models
        ]
        self._take(self.staged_weights_[watching.best])
        if watching.score is not None:
            self.validation_scores_ = watching.scores

    def staged_predict(self, X: Any) -> Iterator[Any]:
        """Yield the predictions of every model that left on the way, as boosting has it."""
        for model in self.staged_models():
            yield model.predict(X)

    def staged_models(self) -> Iterator[Any]:
        """Yield a copy of this estimator for every stage, with that stage's weights."""
        check_is_fitted(self)
        if self.checkpoints is None:
            raise InvalidInput(
                f"{type(self).__name__} was fitted without stages: pass checkpoints=5 or so, which "
                "are then part of what leaves and of its certificate"
            )
        for weights in self.staged_weights_:
            model = copy.copy(self)
            model._take(weights)
            yield model

    def _take(self, weights: dict[str, Any]) -> None:
        for name, value in weights.items():
            setattr(self, name, value)

    def _at(self, weights: FloatArray, row_map: RowMap) -> Any:
        """Return a copy of this estimator with these weights of the run."""
        model = copy.copy(self)
        model.row_map_ = row_map
        model._keep(*row_map.in_original_units(weights))
        return model

    def _check_stages(self) -> None:
        """Refuse to stop by what is not public, or by nothing."""
        if self.early_stopping is None:
            if self.public_validation is not None:
                raise InvalidInput(
                    "public_validation is for early_stopping='released'; pass both, or neither"
                )
            return
        checks.choice("early_stopping", self.early_stopping, ("released",))
        if self.checkpoints is None or self.public_validation is None:
            raise InvalidInput(
                "early_stopping='released' looks at checkpoints with public data: pass "
                "checkpoints=... and public_validation=(X, y); a score on private records would be "
                "one more release"
            )
        if not isinstance(self.public_validation, tuple | list) or len(self.public_validation) != 2:
            raise InvalidInput(
                f"public_validation is a pair (X, y); got {type(self.public_validation).__name__}"
            )

    def _watching(self, stages: Stages, row_map: RowMap) -> Watching:
        """Return what takes the checkpoints: with public records it scores each stage."""
        if self.early_stopping is None:
            return Watching(stages, None)
        known, truth = self.public_validation
        return Watching(stages, lambda w: float(self._at(w, row_map).score(known, truth)))

    @property
    def _seeks_targets(self) -> bool:
        """Return whether bounds of the targets are to be found."""
        return False

    def _ranges(
        self, run: Run, data: Data, unknown: tuple[int, ...], randomness: Randomness
    ) -> tuple[FloatArray, FloatArray]:
        """Return bounds of the unknown columns, and of the targets last if they are sought."""
        if not isinstance(data, ArrayData) or issparse(data.features):
            raise InvalidInput(
                'bounds="private" needs dense arrays in memory; state public bounds for sources '
                "and sparse rows"
            )
        values = np.asarray(data.features[:, list(unknown)], dtype=np.float64)
        if self._seeks_targets:
            values = np.column_stack([values, data.targets])
        return noisy_ranges(run, values, randomness=randomness)

    def _data(self, X: Any, y: Any) -> Data:
        """Return the records: checked arrays, or a source whose records are checked when read."""
        scratch = None if self.scratch is False else self.scratch
        engine = engine_of(self.engine)
        elsewhere = scratch is not None or engine is not None
        source = source_of(X, y, anyway=elsewhere)
        if source is None:
            arrays = self._validated(X, y)
            if not elsewhere:
                return ArrayData(*arrays, exact=self.n_public is None)
            source = ArraySource(*arrays)
        ordered = isinstance(self.algorithm, Run) and _is_ordered(self.algorithm)
        data = source_data(source, self.n_public, scratch, engine, ordered=ordered)
        self.n_features_in_ = data.width
        if (names := names_of(data.source)) is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        return data

    @abstractmethod
    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and targets as arrays, or refuse them."""

    @abstractmethod
    def _goal(self, targets: Any) -> Goal:
        """Return the loss and the targets that it takes."""

    @abstractmethod
    def _keep(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Store the weights, which have one row per score."""

    def _expect(self, chosen: Plan) -> None:
        """Keep what the plan says about the scores to come, if it is needed to predict."""
        return

    def _more_assumptions(self) -> tuple[Assumption, ...]:
        return ()

    def _leaks(self) -> tuple[str, ...]:
        """Return what the parameters let out, and what to do about it."""
        name = type(self).__name__
        return () if self.random_state is None else (fixed_seed(name),)

    def _undeclared(self) -> tuple[str, ...]:
        """Return which public bounds were not stated, and what that does to the model."""
        if self.feature_bounds is not None or self.data_norm is not None:
            return ()
        return (undeclared_rows(type(self).__name__),)

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _slots(self, rows: int) -> int:
        """Return the public number of records."""
        if self.n_public is None:
            return rows
        slots = checks.whole("n_public", self.n_public)
        if isinstance(self.algorithm, Run) and _is_ordered(self.algorithm):
            raise InvalidInput(
                f"n_public={slots} with batches in a fixed order: a record that is absent would "
                "move the later ones to other batches. Use full, sampled or shuffled batches"
            )
        if rows > slots:
            raise InvalidInput(
                f"there are more rows than n_public={slots}; a public bound must hold"
            )
        return slots

    def _delta(self, slots: int) -> float:
        if self.delta is None:
            return min(DEFAULT_DELTA, 1.0 / slots)
        return checks.probability("delta", self.delta)

    def _planned(self, slots: int, data: Data, goal: Goal, private_ranges: int) -> Plan:
        """Return what to run; sizes and parameters are all that it depends on."""
        if isinstance(self.algorithm, Run) and self.algorithm.neighbors != self.neighbors:
            raise InvalidInput(
                f"neighbors={self.neighbors!r}, but algorithm={self.algorithm.kind} was described "
                f"with neighbors={self.algorithm.neighbors!r}; make them the same"
            )
        return _plan(
            n=slots,
            d=data.width,
            n_classes=goal.n_classes,
            loss=goal.loss,
            epsilon=self.epsilon,
            delta=self._delta(slots),
            compute_budget=self.compute_budget,
            data_norm=DEFAULT_NORM if self.data_norm is None else self.data_norm,
            fit_intercept=bool(self.fit_intercept),
            neighbors=self.neighbors,
            private_ranges=private_ranges,
            class_weight=goal.class_weight,
            # Checked here: to the memory of plans True and 1 are the same.
            max_records_per_person=records_per_person(self.max_records_per_person, slots),
            algorithm="one_pass" if data.streams and self.algorithm == "auto" else self.algorithm,
            # How rows are stored, and whether they can be read again, is the caller's choice.
            whitening=self.whitening if data.whitens and not data.streams else "never",
        )

    def _randomness(self) -> Randomness:
        if self.random_state is not None and ledger_in_force() is not None:
            raise SpendRefused(
                "random_state inside a ledger: a fit with a known seed is not private at any "
                "price; leave random_state out"
            )
        if self.random_state is None:
            return SecureRandomness(safe_noise=bool(self.safe_noise))
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return SeededRandomness(int(seed), safe_noise=bool(self.safe_noise))

    def _scores(self, X: Any) -> FloatArray:
        """Return the scores of rows, one column per score."""
        check_is_fitted(self)
        features = checked_rows(self, X)
        with np.errstate(all="ignore"):
            return self.row_map_.scores(features, *self.by_score())

    def by_score(self) -> tuple[FloatArray, FloatArray]:
        """Return coefficients and constants as the row map takes them, one row per score."""
        return np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)

    def __sklearn_tags__(self) -> Any:
        """Say what the estimator takes: sparse rows too."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# A plan depends on sizes and parameters alone, so fits that share them share it.
_remembered_plan = lru_cache(maxsize=128)(plan)


def _plan(**asked: Any) -> Plan:
    try:
        hash(tuple(asked.values()))
    except TypeError:  # no plan either, but the planner says why
        return plan(**asked)
    return _remembered_plan(**asked)


def _is_ordered(run: Run) -> bool:
    """Return whether a record's batch depends on how many records stand before it."""
    match run.batches:
        case OnePass() | Cyclic(order="cyclic"):
            return True
        case FullBatch() | Poisson() | FixedSize() | Cyclic():
            return False
        case _ as unknown:
            refuse_batches(unknown)
