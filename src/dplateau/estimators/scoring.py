"""Scores of a model on private rows that it was not trained on: noisy counts, and what they say.

Of a classifier the held-out rows are counted by class and by bin of the model's score, and the
counts leave with Laplace noise. A row is in one cell, so for a row that is present or absent the
release is one noisy count: the others have the same law. A group of m rows, or an exchanged row,
which is one removed and one added, follow by group privacy, which for Laplace noise gives the law
of one count moved by m (Dong, Roth and Su 2022, theorem 2.14, noise of log-concave density). So the
certificate is that of one number with Laplace noise. Accuracy, balanced accuracy, AUC and
calibration only process the counts. Bins follow from public sizes and from the model, which left
already. Of a regressor one number leaves, the sum of squared errors in units of the target's range.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from dplateau.algorithms import LossGeometry, NoisyGD
from dplateau.certificates import Certificate, certify
from dplateau.engines import Randomness, SecureRandomness, SeededRandomness
from dplateau.engines.sources import over_parts, parts_of, reads_once, size_of
from dplateau.errors import InvalidInput, SpendRefused
from dplateau.estimators.data import names_of, source_of
from dplateau.estimators.disclosures import SEEDED
from dplateau.estimators.inputs import as_array, check_scored, class_numbers, finite_targets
from dplateau.estimators.models import PrivateClassifier, PrivateLogisticRegression
from dplateau.ground import checks
from dplateau.ground.types import FloatArray, IntArray
from dplateau.ledger import ledger_in_force, paid_for

# Bins of the score of two classes, which is 0 where predictions change (log-odds, or a margin), and
# of the confidence in one of several classes, positive if it is right and negative if it is wrong.
FINE = (-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
COARSE = (-1.5, 0.0, 1.5)
CONFIDENCE = (-0.9, -0.7, -0.5, 0.0, 0.5, 0.7, 0.9)
RIGHT_OR_WRONG = (0.0,)
# Fine bins need noise in the accuracy of no more than this.
MOST_NOISE = 0.02
# Calls a function of rows and targets on all rows, some at a time, and yields what it returns.
OverParts = Callable[[Callable[[Any, Any], Any]], Iterable[Any]]
# Parts of 1 that squared errors are rounded to: 2^31 of them at once fit in 63 bits.
ERROR_UNITS = 1 << 32
MEAN_SQUARED_ERROR = "mean squared error over the squared range"


@dataclass(frozen=True)
class NoisyNumber:
    """A number that follows from what left, and the deviation that the noise gives it.

    A calibration error cannot be negative: there ``noise_std`` is about what noise alone makes.
    """

    value: float
    noise_std: float


@dataclass(frozen=True, eq=False)
class Counts:
    """Noisy counts of rows, a row for each class and a column for each bin between ``edges``."""

    classes: tuple[str, ...]
    edges: tuple[float, ...]
    noisy: IntArray
    noise_std: float
    rows: int
    # log-odds that the score adds to those of the probabilities; None: there are none
    shift: float | None = 0.0

    @property
    def scores(self) -> dict[str, NoisyNumber]:
        """Return what the counts say about the model, by name."""
        scores = {"accuracy": self._number(self._accuracy)}
        # A class that noise hides has no share that could be told.
        totals = self.noisy.sum(axis=1)
        if np.all(totals > 2 * self.noise_std * math.sqrt(self.noisy.shape[1])):
            scores["balanced accuracy"] = self._number(self._balanced)
            if len(self.classes) == 2:
                scores["AUC"] = self._number(self._auc)
        if self.shift is not None and len(self.edges) > 1:
            scores["calibration error"] = self._calibration()
        return scores

    @property
    def predicted(self) -> FloatArray:
        """Return the probability that the model gives to rows of each bin, about.

        Of two classes that of the second; of several that of being right, for the bins of rows that
        the model got right, from the least confident on.
        """
        if len(self.classes) > 2:
            above = [edge for edge in self.edges if edge > 0]
            return _middles(np.array([1.0 / len(self.classes), *above, 1.0]))
        ends = np.array([-math.inf, *self.edges, math.inf])
        return _middles(expit(ends - (self.shift or 0.0)))

    def against(self, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return in which rows what is predicted happened, and in which it did not, by bin."""
        if len(self.classes) == 2:
            return counts[1], counts[0]
        together, half = counts.sum(axis=0), (len(self.edges) + 1) // 2
        return together[half:], together[:half][::-1]

    def _right(self, counts: FloatArray) -> FloatArray:
        """Return how many rows of each class the model got right."""
        middle = self.edges.index(0.0) + 1
        if len(self.classes) > 2:
            return np.asarray(counts[:, middle:].sum(axis=1))
        return np.array([counts[0, :middle].sum(), counts[1, middle:].sum()])

    def _accuracy(self, counts: FloatArray) -> float:
        return float(self._right(counts).sum() / self.rows)

    def _balanced(self, counts: FloatArray) -> float:
        return float(np.mean(np.clip(self._right(counts) / counts.sum(axis=1), 0.0, 1.0)))

    def _auc(self, counts: FloatArray) -> float:
        """Return how likely the second class has the higher bin; equal ones count half."""
        below = np.cumsum(counts[0]) - counts[0] / 2
        return float(np.clip(counts[1] @ below / counts.sum(axis=1).prod(), 0.0, 1.0))

    def _calibration(self) -> NoisyNumber:
        """Return the mean gap between predicted and observed shares, and what noise alone makes."""
        yes, no = self.against(self.noisy.astype(float))
        chance = self.predicted
        gaps = np.abs((1 - chance) * yes - chance * no)
        several = len(self.classes) if len(self.classes) > 2 else 1
        alone = math.sqrt(2 * several / math.pi) * self.noise_std * np.hypot(1 - chance, chance)
        return NoisyNumber(float(gaps.sum() / self.rows), float(alone.sum() / self.rows))

    def _number(self, of: Callable[[FloatArray], float]) -> NoisyNumber:
        """Return a function of the counts, with the noise that each of them brings in."""
        counts = self.noisy.astype(float)
        step = max(self.noise_std, 1e-3)
        moved = np.zeros_like(counts)
        squares = 0.0
        for cell in np.ndindex(counts.shape):
            moved[cell] = step
            slope = (of(counts + moved) - of(counts - moved)) / (2 * step)
            squares += slope * slope
            moved[cell] = 0.0
        return NoisyNumber(of(counts), self.noise_std * math.sqrt(squares))


def _rounded_std(std: float) -> float:
    """Return the deviation of Laplace noise of deviation ``std``, rounded to whole numbers.

    With scale b it is at least k with probability e^(-(k - 1/2) / b), k = 1, 2, ...
    """
    rest = math.exp(-math.sqrt(2) / std)
    return math.sqrt(math.sqrt(rest) * (1 + rest)) / (1 - rest)


def _middles(ends: FloatArray) -> FloatArray:
    return np.asarray((ends[:-1] + ends[1:]) / 2)


@dataclass(frozen=True)
class Evaluation:
    """Noisy scores on held-out private rows, and the certificate of what they cost.

    ``scores`` has each by its name; of a classifier they all follow from ``counts``.
    """

    epsilon: float
    rows: int
    certificate: Certificate
    scores: dict[str, NoisyNumber]
    counts: Counts | None = None

    @property
    def metric(self) -> str:
        """Return the name of the first score."""
        return next(iter(self.scores))

    @property
    def value(self) -> float:
        """Return the first score."""
        return self.scores[self.metric].value

    @property
    def noise_std(self) -> float:
        """Return the deviation of the noise in the first score."""
        return self.scores[self.metric].noise_std


@dataclass(frozen=True)
class NoisyScore:
    """Scores on so many held-out rows, to be released with Laplace noise at this epsilon."""

    rows: int
    epsilon: float
    classes: bool

    def noise_std(self, neighbors: str, group_size: int) -> float:
        """Return the deviation of the noise in a count, or in the sum of errors."""
        # A std is sqrt(2) times the scale of a Laplace law. A person's rows add up; an exchanged
        # one leaves a count and joins another, but moves a sum of errors in [0, 1] by 1 at most.
        moved = 2 if neighbors == "replace" and self.classes else 1
        return math.sqrt(2.0) * moved * group_size / self.epsilon

    def certificate(self, neighbors: Any, group_size: int, delta: float) -> Certificate:
        """Return what the scores cost, for these neighbors: that of one sum with Laplace noise.

        Under "replace" an error in [0, 1] is one in [-1/2, 1/2] about a constant that all neighbors
        share.
        """
        half = neighbors == "replace" and not self.classes
        run = NoisyGD(
            n=self.rows,
            steps=1,
            learning_rate=1.0,
            noise_std=self.noise_std(neighbors, group_size) / self.rows,
            noise_kind="laplace",
            dimension=1,
            loss=LossGeometry(lipschitz=0.5 if half else 1.0, convex=True),
            neighbors=neighbors,
            group_size=group_size,
            release="all",
        )
        what = (
            "the noisy counts of held-out rows by class and score bin, of which a row is in one"
            if self.classes
            else f"the noisy {MEAN_SQUARED_ERROR} on held-out rows, one sum over the rows"
        )
        return certify(run, delta).named(what)

    def edges(self, classes: int, noise_std: float) -> tuple[float, ...]:
        """Return the bins for so many classes: fine where noise leaves room for them."""
        fine, coarse = (FINE, COARSE) if classes == 2 else (CONFIDENCE, RIGHT_OR_WRONG)
        right = (len(fine) + 1) * classes / 2
        return fine if math.sqrt(right) * noise_std / self.rows <= MOST_NOISE else coarse

    def of(
        self, model: Any, over: OverParts, paid: Certificate, randomness: Randomness
    ) -> Evaluation:
        """Return the scores of a fitted model on rows, with the noise that was paid for.

        ``over`` calls what it is given on rows and targets, in parts that pass by once; how they
        are cut changes nothing.
        """
        std = self.noise_std(paid.run.neighbors, paid.run.group_size)
        if not isinstance(model, PrivateClassifier):
            sums = self._whole(over, partial(_squared_errors, model))
            noisy = sum(sums) / ERROR_UNITS + std * float(randomness.laplace(1)[0])
            number = NoisyNumber(noisy / self.rows, std / self.rows)
            return Evaluation(self.epsilon, self.rows, paid, {MEAN_SQUARED_ERROR: number})
        labels = model.classes_
        edges = self.edges(len(labels), std)
        counts = np.zeros((len(labels), len(edges) + 1), dtype=np.int64)

        def count(features: Any, targets: Any) -> None:
            truth = class_numbers(as_array(targets), labels)
            bins = np.searchsorted(np.array(edges), _score_of(model, features, truth), side="left")
            np.add.at(counts, (truth, bins), 1)

        self._whole(over, count)
        # Whole numbers: rounding commutes with moving a count by one, and no last bit tells of it.
        noise = np.rint(std * randomness.laplace(counts.size)).astype(np.int64)
        released = Counts(
            classes=tuple(map(str, labels)),
            edges=edges,
            noisy=counts + noise.reshape(counts.shape),
            noise_std=_rounded_std(std),
            rows=self.rows,
            shift=_shift_of(model),
        )
        return Evaluation(self.epsilon, self.rows, paid, released.scores, released)

    def _whole(self, over: OverParts, use: Callable[[Any, Any], Any]) -> list[Any]:
        """Use all parts, and see that they hold as many rows as the certificate says."""
        used = list(over(lambda features, targets: (len(targets), use(features, targets))))
        seen = sum(rows for rows, _ in used)
        if seen != self.rows:
            raise InvalidInput(
                f"{self.rows} held-out rows were counted, and {seen} came: their source was "
                "changed meanwhile. Nothing was released"
            )
        return [result for _, result in used]


def _score_of(model: PrivateClassifier, features: Any, truth: IntArray) -> FloatArray:
    """Return what rows are binned by: the score, or how confident in the truth the model is."""
    scores = model.deciding_scores(features)
    if scores.shape[1] == 1:
        return np.asarray(scores[:, 0])
    right = scores.argmax(axis=1) == truth
    if not isinstance(model, PrivateLogisticRegression):
        return np.asarray(np.where(right, 1.0, -1.0))
    confidence = model.predict_proba(features)[np.arange(len(truth)), scores.argmax(axis=1)]
    return np.asarray(np.where(right, confidence, -confidence))


def _shift_of(model: PrivateClassifier) -> float | None:
    """Return what two classes' scores add to the log-odds; None if there are no log-odds."""
    if not isinstance(model, PrivateLogisticRegression):
        return None
    shift = model.decision_shift_
    return 0.0 if shift is None else float(shift[1] - shift[0])


def _squared_errors(model: Any, features: Any, targets: Any) -> int:
    """Return the sum of squared errors in units of the target's range, so each at most 1.

    Each is rounded to whole parts of 1, so that the sum is exact, and the same in any order.
    """
    limits = model.target_range
    truth = finite_targets(as_array(targets))
    both = np.clip([truth, model.predict(features)], limits.low, limits.high)
    shares = both / (limits.high - limits.low)
    # What is no number counts as the largest error: the noise is made for errors of at most 1.
    errors = np.fmin((shares[0] - shares[1]) ** 2, 1.0)
    return int(np.rint(errors * ERROR_UNITS).astype(np.int64).sum())


def _rows_in(model: Any, X: Any, y: Any) -> tuple[int, OverParts]:
    """Return how many rows there are, and the rows: whole if they are arrays, else in parts."""
    source = source_of(X, y, anyway=False)
    if source is None:
        return check_scored(X, y), lambda use: [use(X, y)]
    if reads_once(source):
        raise InvalidInput(
            "a stream can be read once, and the number of its rows has to be known before; pass a "
            "list of chunks, files, or dplateau.engines.in_scratch_file(source)"
        )
    names, known = names_of(source), getattr(model, "feature_names_in_", None)
    if names is not None and known is not None and names != list(known):
        raise InvalidInput(
            f"the columns differ from those of the fit: {', '.join(names)} in place of "
            f"{', '.join(known)}"
        )
    n = size_of(source)
    counted = sum(len(targets) for _, targets in parts_of(source)) if n is None else n
    if not counted:
        raise InvalidInput("there are no rows to score")
    return counted, partial(over_parts, source)


def noisy_score(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float,
    seed: int | None = None,
) -> Evaluation:
    """Score a fitted private model on private rows that it was not trained on, with noise.

    The certificate is about the neighbors, the unit and the delta of the model's own claim. Put
    both together by
    ``compose([model.certificate_, evaluation.certificate], delta, records="disjoint")`` if no
    record was in both parts, whatever it says; else by ``records="same"``. Inside
    ``with Ledger(path):`` the ledger pays first.

    Parameters
    ----------
    model
        A fitted estimator of this library.
    X, y
        The held-out rows, whose number becomes public, and their targets. Rows that do not fit in
        memory are read a part at a time, in whatever form ``fit`` takes them: Parquet files and the
        name of the target's column, a source (``dplateau.engines.hold_out`` splits one by coins),
        or a list of chunks.
    epsilon
        What the score may cost.
    seed
        Makes the noise repeatable, and so not private: no claim is made.

    Returns
    -------
    Evaluation
        ``scores`` by name, each with the deviation of its noise: of a classifier accuracy, balanced
        accuracy, AUC and calibration error, of a regressor the mean squared error in units of the
        squared range of the targets. ``certificate`` says what they cost.

    Raises
    ------
    InvalidInput
        If the model was not fitted here, if a label is none of its classes, or if the rows are a
        stream: how many there are has to be known before they are scored.
    SpendRefused
        If the ledger in force has too little left, or if there is a seed beside it.

    Examples
    --------
    >>> import numpy as np
    >>> from dplateau import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(6000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = PrivateLogisticRegression(classes=[0, 1], feature_bounds=(-1, 1))
    >>> evaluation = noisy_score(model.fit(X[:4000], y[:4000]), X[4000:], y[4000:], epsilon=0.5)
    >>> evaluation.scores["AUC"].value > 0.9, evaluation.certificate.claimed_epsilon <= 0.5
    (True, True)
    """
    check_is_fitted(model)
    if seed is not None and ledger_in_force() is not None:
        raise SpendRefused(
            "seed inside a ledger: a score with a known seed is not private at any price; leave "
            "seed out"
        )
    if not hasattr(model, "plan_"):
        raise InvalidInput(
            "noisy_score is about the neighbors and the delta of a fit; this model was read from a "
            "file, which has none"
        )
    rows, over = _rows_in(model, X, y)
    claim = model.plan_.gradients
    classes = isinstance(model, PrivateClassifier)
    asked = NoisyScore(rows, checks.positive("epsilon", epsilon), classes=classes)
    run = claim.run
    cost = asked.certificate(run.neighbors, run.group_size, claim.claimed_delta)
    source: Randomness = SecureRandomness() if seed is None else SeededRandomness(seed)
    with paid_for(cost, name="noisy_score"), warnings.catch_warnings():
        # Names of a source's columns were compared above; its rows come as arrays without names.
        if y is None or isinstance(y, str):
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
        evaluation = asked.of(model, over, cost, source)
    return (
        evaluation
        if source.private
        else replace(evaluation, certificate=cost.without_claim(SEEDED))
    )
