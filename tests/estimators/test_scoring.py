"""Noisy counts of held-out rows: what they cost, and what they say."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from dplateau import (
    Composition,
    InvalidInput,
    Ledger,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    SpendRefused,
    compose,
    noisy_score,
)
from dplateau.engines import ArraySource, ChunkSource, SeededRandomness, hold_out
from dplateau.estimators.inputs import TargetRange
from dplateau.estimators.scoring import (
    COARSE,
    ERROR_UNITS,
    FINE,
    RIGHT_OR_WRONG,
    Counts,
    NoisyScore,
    _squared_errors,
)
from dplateau.ground.types import FloatArray

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]
QUICK: dict[str, Any] = {"feature_bounds": (-1, 1), "compute_budget": 60}


def records(n: int, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(n, 3))
    scores = 4 * rows[:, 0] - 2 * rows[:, 1] - 1.5 + rng.logistic(size=n)
    return rows, np.digitize(scores, [0.0] if classes == 2 else [-2.0, 1.0])


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_with_little_noise_the_counts_say_what_exact_scores_say(kind: Any, classes: int) -> None:
    rows, labels = records(4000, classes)
    model = kind(epsilon=8.0, classes=list(range(classes)), random_state=0, **QUICK)
    model.fit(rows[:2000], labels[:2000])
    test, truth = rows[2000:], labels[2000:]
    found = noisy_score(model, test, truth, epsilon=1e6, seed=0)
    assert found.counts is not None
    assert found.counts.noisy.sum() == 2000, "noise of scale 1e-6 rounds to nothing"
    said = {name: number.value for name, number in found.scores.items()}
    assert said["accuracy"] == pytest.approx(np.mean(model.predict(test) == truth), abs=1e-12)
    exact = balanced_accuracy_score(truth, model.predict(test))
    assert said["balanced accuracy"] == pytest.approx(exact, abs=1e-12)
    if classes == 2:
        # Bins tie what lies close together, which moves an AUC by little.
        exact = roc_auc_score(truth, model.decision_function(test))
        assert said["AUC"] == pytest.approx(exact, abs=0.012)
    assert ("calibration error" in said) == (kind is PrivateLogisticRegression)


def test_noise_is_what_the_numbers_say_it_is() -> None:
    """Over many draws every score scatters as much as its deviation says, about its true value."""
    rows, labels = records(5000)
    model = PrivateLogisticRegression(classes=[0, 1], random_state=0, **QUICK)
    model.fit(rows[:2000], labels[:2000])
    test, truth = rows[2000:], labels[2000:]
    exact = noisy_score(model, test, truth, epsilon=1e6, seed=0).scores
    drawn = [noisy_score(model, test, truth, epsilon=0.5, seed=s).scores for s in range(80)]
    for name in ("accuracy", "balanced accuracy", "AUC"):
        values = np.array([scores[name].value for scores in drawn])
        told = float(np.mean([scores[name].noise_std for scores in drawn]))
        assert 0.75 * told < values.std() < 1.3 * told
        assert abs(values.mean() - exact[name].value) < 4 * told / math.sqrt(80)


def test_calibration_is_told_from_noise() -> None:
    """Rows that happen as often as predicted show what noise makes; overconfident ones more."""
    size = len(FINE) + 1
    shown = Counts(("no", "yes"), FINE, np.zeros((2, size), dtype=np.int64), 3.0, 8000)
    chance = shown.predicted
    for tempered, calibrated in ((chance, True), (0.5 + (chance - 0.5) / 2, False)):
        counts = 500 * np.array([1 - tempered, tempered])
        noise = np.rint(3 * SeededRandomness(0).laplace(2 * size)).reshape(2, size)
        noisy = (counts + noise).astype(np.int64)
        found = Counts(("no", "yes"), FINE, noisy, 3.0, 8000).scores["calibration error"]
        assert (found.value < 2 * found.noise_std) == calibrated


def rounded_laplace(scale: float, shift: int) -> FloatArray:
    """Return the law of shift + round(Laplace) on whole numbers in a wide window."""
    away = np.abs(np.arange(-300, 301) - shift)
    tail = np.exp(-(away - 0.5) / scale) * -math.expm1(-1 / scale) / 2
    return np.where(away == 0, -math.expm1(-0.5 / scale), tail)


def losses(scale: float, shift: int) -> dict[float, float]:
    """Return the privacy losses of one count that is moved, with their chances."""
    here, moved = rounded_laplace(scale, shift), rounded_laplace(scale, 0)
    found: dict[float, float] = {}
    for first, second in zip(here, moved, strict=True):
        if first > 1e-40 and second > 1e-40:
            loss = round(math.log(first / second), 9)
            found[loss] = found.get(loss, 0.0) + first
    return found


def attack(scale: float, shifts: tuple[int, ...], epsilon: float) -> float:
    """Return the exact delta of telling apart counts that are moved so, by all of them."""
    total = 0.0
    for cells in itertools.product(*(losses(scale, shift).items() for shift in shifts)):
        loss, chance = sum(one for one, _ in cells), math.prod(one for _, one in cells)
        total += chance * max(0.0, -math.expm1(epsilon - loss))
    return total


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("group", [1, 2])
def test_no_exact_attack_on_the_counts_exceeds_the_claim(neighbors: Any, group: int) -> None:
    """A removed row moves one count, an exchanged one two, a group each of its rows' counts."""
    score, delta = NoisyScore(300, 1.0, classes=True), 1e-3
    claim = score.certificate(neighbors, group, delta)
    assert claim.verify().ok
    assert claim.claimed_epsilon <= 1.0
    scale = score.noise_std(neighbors, group) / math.sqrt(2)
    sides = (1, -1) if neighbors == "replace" else (1,)
    in_one_cell, apart = tuple(group * side for side in sides), sides * group
    for shifts in (in_one_cell, apart):
        for turned in (shifts, tuple(-shift for shift in shifts)):
            assert attack(scale, turned, claim.claimed_epsilon) <= delta
    # The noise is not wasted either: half the epsilon would be too little.
    assert attack(scale, in_one_cell, claim.claimed_epsilon / 2) > 10 * delta


def test_a_score_of_its_own_composes_and_is_paid_for(tmp_path: Any) -> None:
    rows, labels = records(3000)
    model = PrivateLogisticRegression(classes=[0, 1], **QUICK).fit(rows[:2000], labels[:2000])
    Ledger.create(tmp_path / "book", epsilon=1.0, delta=1e-4)
    with Ledger(tmp_path / "book"):
        found = noisy_score(model, rows[2000:], labels[2000:], epsilon=0.7)
        with pytest.raises(SpendRefused):
            noisy_score(model, rows[2000:], labels[2000:], epsilon=0.7)
        with pytest.raises(SpendRefused, match="not private at any price"):
            noisy_score(model, rows[2000:], labels[2000:], epsilon=0.1, seed=1)
    whole = compose([model.certificate_, found.certificate], 1e-5, records="disjoint")
    assert isinstance(whole, Composition)
    assert whole.claimed_epsilon <= 1.0
    assert whole.verify().ok
    seeded = noisy_score(model, rows[2000:], labels[2000:], epsilon=0.7, seed=1)
    assert seeded.certificate.claim is None


def test_numbers_keep_their_squared_error() -> None:
    rows, _ = records(3000)
    targets = 5 + 2 * rows[:, 0]
    asked = {"target_bound": (0, 10), "neighbors": "replace", "random_state": 0, **QUICK}
    model = PrivateRidge(**asked).fit(rows[:2000], targets[:2000])
    found = noisy_score(model, rows[2000:], targets[2000:], epsilon=1e5, seed=0)
    exact = np.mean((model.predict(rows[2000:]) - targets[2000:]) ** 2) / 100
    assert found.counts is None
    assert found.value == pytest.approx(exact, abs=1e-6)
    cost = NoisyScore(1000, 0.5, classes=False)
    assert cost.certificate("replace", 1, 1e-5).epsilon(0.0) == pytest.approx(0.5)
    assert cost.noise_std("replace", 1) == pytest.approx(math.sqrt(2) / 0.5)


@pytest.mark.parametrize("target", [np.nan, np.inf, "text"])
@pytest.mark.parametrize("in_parts", [False, True])
def test_one_target_that_is_no_number_moves_nothing(target: Any, in_parts: bool) -> None:
    """As a whole number it would be minus 2^63, beside noise for errors of at most 1."""
    rows, _ = records(60)
    targets: Any = rows[:, 0].astype(object)
    targets[3] = target
    targets = targets if isinstance(target, str) else targets.astype(float)
    model = PrivateRidge(target_bound=1.0, **QUICK).fit(rows, rows[:, 0])
    asked = (
        ([(rows[:30], targets[:30]), (rows[30:], targets[30:])],) if in_parts else (rows, targets)
    )
    with pytest.raises(InvalidInput, match="targets must be finite numbers"):
        noisy_score(model, *asked, epsilon=1.0)


def test_an_error_is_at_most_one_whatever_is_predicted() -> None:
    class Broken:
        target_range = TargetRange.of(1.0, centered=True)

        def predict(self, rows: Any) -> Any:
            return np.full(len(rows), np.nan)

    assert _squared_errors(Broken(), np.zeros((3, 1)), np.zeros(3)) == 3 * ERROR_UNITS


def test_bins_follow_from_public_sizes() -> None:
    many, few = NoisyScore(5000, 1.0, classes=True), NoisyScore(50, 1.0, classes=True)
    assert many.edges(2, many.noise_std("add_remove", 1)) == FINE
    assert few.edges(2, few.noise_std("add_remove", 1)) == COARSE
    assert few.edges(5, few.noise_std("add_remove", 1)) == RIGHT_OR_WRONG
    assert many.noise_std("replace", 3) == pytest.approx(6 * math.sqrt(2))


def test_a_class_that_noise_hides_has_no_balanced_score() -> None:
    noisy = np.array([[900, 40, 20, 10], [1, 0, -2, 3]])
    found = Counts(("no", "yes"), COARSE, noisy, 3.0, 972).scores
    assert "accuracy" in found
    assert "balanced accuracy" not in found
    assert "AUC" not in found


def test_a_class_that_noise_hardly_shows_has_a_deviation() -> None:
    noisy = np.array([[900, 40, 20, 10], [1, 5, 5, 3]])
    found = Counts(("no", "yes"), COARSE, noisy, 3.0, 984).scores
    for name in ("balanced accuracy", "AUC"):
        assert 0.02 < found[name].noise_std < 1.0


def test_what_cannot_be_scored_is_refused() -> None:
    rows, labels = records(1500)
    model = PrivateLogisticRegression(classes=[0, 1], random_state=0, **QUICK).fit(rows, labels)
    with pytest.raises(InvalidInput, match="epsilon"):
        noisy_score(model, rows, labels, epsilon=0.0)
    with pytest.raises(InvalidInput, match="a label that is not among"):
        noisy_score(model, rows, labels + 5, epsilon=1.0)


def test_rows_in_chunks_and_files_are_scored_as_in_memory(tmp_path: Any) -> None:
    from pyarrow import parquet, table

    rows, labels = records(3000)
    columns = dict(zip("abc", rows.T, strict=True)) | {"label": labels}
    for k in range(2):
        part = slice(1500 * k, 1500 * (k + 1))
        cells = {name: column[part] for name, column in columns.items()}
        parquet.write_table(table(cells), tmp_path / f"{k}.parquet")
    model = PrivateLogisticRegression(classes=[0, 1], random_state=0, **QUICK)
    model.fit(tmp_path, "label")
    chunks = [(rows[:7], labels[:7]), (rows[7:], labels[7:])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            noisy_score(model, *data, epsilon=1.0, seed=5).counts
            for data in ((tmp_path, "label"), (chunks,), (ArraySource(rows, labels),))
        ]
        del model.feature_names_in_
        expected = noisy_score(model, rows, labels, epsilon=1.0, seed=5).counts
    assert expected is not None
    for one in found:
        assert one is not None
        assert np.array_equal(one.noisy, expected.noisy)
    with pytest.raises(InvalidInput, match="the number of its rows has to be known before"):
        noisy_score(model, iter(chunks), epsilon=1.0)
    model.feature_names_in_ = np.array(list("abc"), dtype=object)
    turned = table({name: columns[name] for name in ("c", "b", "a", "label")})
    with pytest.raises(InvalidInput, match="columns differ from those of the fit: c, b, a"):
        noisy_score(model, turned, "label", epsilon=1.0)


def test_the_sum_of_errors_does_not_depend_on_the_chunks() -> None:
    rows, _ = records(2000)
    line = rows[:, 0]
    model = PrivateRidge(target_bound=1.0, random_state=0, **QUICK).fit(rows, line)
    whole = noisy_score(model, rows, line, epsilon=1.0, seed=1).value
    cuts = np.array_split(np.arange(2000), 13)
    parts = ChunkSource([(rows[cut], line[cut]) for cut in cuts])
    assert noisy_score(model, parts, epsilon=1.0, seed=1).value == whole
    exact = np.mean((np.clip(model.predict(rows), -1, 1) - line) ** 2) / 4
    assert noisy_score(model, parts, epsilon=1e9, seed=1).value == pytest.approx(exact, abs=1e-9)


def test_a_source_that_changes_between_counting_and_scoring_is_refused() -> None:
    rows, labels = records(600)

    class Shrinking:
        passes = 0

        def __iter__(self) -> Any:
            self.passes += 1
            return iter([(rows[: 600 - self.passes], labels[: 600 - self.passes])])

    model = PrivateLogisticRegression(classes=[0, 1], **QUICK).fit(rows, labels)
    with pytest.raises(InvalidInput, match="599 held-out rows were counted, and 598 came"):
        noisy_score(model, Shrinking(), epsilon=1.0)


def test_a_model_of_one_part_is_scored_on_the_other() -> None:
    rows, labels = records(4000)
    rest, held = hold_out(ArraySource(rows, labels), share=0.25)
    model = PrivateLogisticRegression(classes=[0, 1], epsilon=4.0, **QUICK).fit(rest)
    found = noisy_score(model, held, epsilon=0.5)
    assert model.plan_.run.n + found.rows == 4000
    assert found.scores["AUC"].value > 0.8
    both = compose([model.certificate_, found.certificate], 1e-5, records="disjoint")
    assert both.claimed_epsilon <= 4.0
