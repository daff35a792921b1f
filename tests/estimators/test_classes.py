"""Classes that are rare: public weights of classes, for every classifier and kind of input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dplateau import InvalidInput, PrivateLinearSVC, PrivateLogisticRegression, plan
from dplateau.estimators.probabilities import Widening
from dplateau.losses import ClassWeighted

pytestmark = [
    pytest.mark.filterwarnings("ignore::dplateau.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning"),
]
BOUNDS: dict[str, Any] = {"feature_bounds": (-1, 1), "compute_budget": 60}


def rare(n: int = 3000, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of which about a tenth are of class "yes", in the direction of column 0."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(n, 3))
    chance = 1 / (1 + np.exp(3.5 - 3 * rows[:, 0] + 2 * rows[:, 1]))
    return rows, np.where(rng.uniform(size=n) < chance, "yes", "no")


def recalls(model: Any, rows: Any, labels: Any) -> dict[str, float]:
    found = model.predict(rows)
    return {str(c): float(np.mean(found[labels == c] == c)) for c in np.unique(labels)}


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_weights_find_the_rare_class_at_the_same_claim(kind: Any) -> None:
    rows, labels = rare()
    asked = {"epsilon": 5.0, "classes": ["no", "yes"], "random_state": 1, **BOUNDS}
    plain = kind(**asked).fit(rows, labels)
    heavy = kind(**asked, class_weight={"yes": 10}).fit(rows, labels)
    assert recalls(plain, rows, labels)["yes"] < 0.5
    assert min(recalls(heavy, rows, labels).values()) > 0.7
    assert isinstance(heavy.plan_.loss, ClassWeighted)
    assert heavy.plan_.loss.weights == (0.1, 1.0)
    assert "public weights, in their order: 0.1, 1" in str(heavy.plan_)
    assert heavy.plan_.certificate.claimed_epsilon <= 5.0
    assert heavy.plan_.certificate.verify().ok
    said = [a.text for a in heavy.certificate_.assumptions]
    assert "the class weights were chosen without looking at the data" in said


def test_only_ratios_of_weights_matter() -> None:
    rows, labels = rare(1500)
    asked = {"classes": ["no", "yes"], "random_state": 1, **BOUNDS}
    first, second = (
        PrivateLogisticRegression(**asked, class_weight=weights).fit(rows, labels)
        for weights in ({"no": 0.5, "yes": 4}, {"no": 2, "yes": 16.0})
    )
    assert np.array_equal(first.coef_, second.coef_)
    same = PrivateLogisticRegression(**asked, class_weight={"no": 3, "yes": 3}).fit(rows, labels)
    plain = PrivateLogisticRegression(**asked).fit(rows, labels)
    assert np.allclose(same.coef_, plain.coef_)


@pytest.mark.parametrize("whitening", ["auto", "never"])
def test_sources_and_memory_weigh_alike(whitening: str) -> None:
    """Moments are of rows without weights; gradients carry them, wherever the rows are."""
    rows, labels = rare(2000)
    asked = {
        "classes": ["no", "yes"],
        "class_weight": {"yes": 6},
        "random_state": 1,
        "whitening": whitening,
        "algorithm": "momentum",
        **BOUNDS,
    }
    memory = PrivateLogisticRegression(**asked).fit(rows, labels)
    assert bool(memory.row_map_.whitening) == (whitening == "auto")
    chunked = PrivateLogisticRegression(**asked, scratch=True).fit(rows, labels)
    assert np.allclose(memory.coef_, chunked.coef_)
    if whitening == "never":
        sparse = PrivateLogisticRegression(**asked).fit(csr_array(rows), labels)
        assert np.allclose(memory.coef_, sparse.coef_)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_several_classes_have_a_weight_each(kind: Any) -> None:
    rng = np.random.default_rng(5)
    labels = rng.choice([3, 5, 9], size=3000, p=[0.6, 0.35, 0.05])
    rows = rng.normal(scale=0.35, size=(3000, 2))
    rows[np.arange(3000), labels % 2] += np.where(labels == 9, -0.5, 0.3)
    rows = np.clip(rows, -1, 1)
    asked = {"epsilon": 8.0, "classes": [3, 5, 9], "random_state": 0, **BOUNDS}
    plain = kind(**asked).fit(rows, labels)
    heavy = kind(**asked, class_weight={np.int64(9): 12.0, 5: 2}).fit(rows, labels)
    assert recalls(heavy, rows, labels)["9"] > recalls(plain, rows, labels)["9"] + 0.1
    assert heavy.plan_.loss.weights == (1 / 12, 2 / 12, 1.0)


def test_the_plan_expects_less_of_lighter_classes() -> None:
    light = plan(n=5000, d=10, epsilon=1.0, class_weight=(1.0, 50.0))
    even = plan(n=5000, d=10, epsilon=1.0)
    assert light.expected is not None
    assert even.expected is not None
    assert light.expected.error > 1.3 * even.expected.error
    assert light.run.loss == even.run.loss, "weights of at most 1 leave the constants"


def test_what_are_no_public_weights_is_refused() -> None:
    rows, labels = rare(1200)
    for weights, said in (
        ("balanced", r"would be read off the labels.*1 / \(k p\)"),
        ({"maybe": 2}, r"names \['maybe'\], which are not among classes=\['no', 'yes'\]"),
        ({"yes": 0}, "class_weight of 'yes'"),
        ({"yes": -1}, "class_weight of 'yes'"),
        ({"yes": "a"}, "class_weight of 'yes'"),
        ([1, 2], "must be a dict"),
    ):
        model = PrivateLogisticRegression(classes=["no", "yes"], class_weight=weights, **BOUNDS)
        with pytest.raises(InvalidInput, match=said):
            model.fit(rows, labels)


def test_probabilities_are_monotone_and_between_the_scores_and_a_half() -> None:
    scores = np.linspace(-9, 9, 723)
    for by in (Widening(), Widening(0.6, 0.8, 0.7), Widening(0.6, 0.1, 0.0), Widening(0.3, 1.0, 2)):
        for norm in (0.0, 0.4, 1.0, 3.0):
            found = by.two(scores, np.full(scores.size, norm))
            assert np.all(np.diff(found) >= -1e-12)
            assert np.all(np.abs(found) <= np.abs(scores))
            assert np.all(found * scores >= -1e-12)
    several = Widening(0.8, 0.9, 0.5).several(scores.reshape(-1, 3), np.ones(241))
    assert np.all(np.abs(several) <= np.abs(scores.reshape(-1, 3)))
    assert np.array_equal(Widening().two(scores, np.ones(723)), scores)


def test_undoing_the_cut_finds_the_probability_that_the_cut_loss_stands_still_at() -> None:
    chance, cut = 0.9, 0.6
    grid = np.linspace(0, 6, 200_001)
    sigma = 1 / (1 + np.exp(-grid))
    push = (1 - chance) * np.minimum(sigma, cut) - chance * np.minimum(1 - sigma, cut)
    still = grid[np.argmin(np.abs(push))]
    found = Widening(clip=cut).two(np.array([still]), np.ones(1))
    assert 1 / (1 + np.exp(-found[0])) == pytest.approx(chance, abs=1e-4)


def test_a_public_prior_moves_the_threshold_and_nothing_else() -> None:
    rows, labels = rare()
    asked = {"classes": ["no", "yes"], "random_state": 1, "epsilon": 5.0, **BOUNDS}
    plain = PrivateLogisticRegression(**asked).fit(rows, labels)
    prior = {"yes": 0.1}
    moved = PrivateLogisticRegression(**asked, class_prior=prior, decision_prior="balanced").fit(
        rows, labels
    )
    assert np.array_equal(plain.predict_proba(rows), moved.predict_proba(rows))
    assert np.array_equal(plain.decision_function(rows), moved.decision_function(rows))
    assert min(recalls(moved, rows, labels).values()) > 0.7 > recalls(plain, rows, labels)["yes"]
    likely = moved.predict_proba(rows)[:, 1] > 0.1
    assert np.array_equal(moved.predict(rows) == "yes", likely)
    same = PrivateLogisticRegression(**asked, class_prior=prior, decision_prior=prior)
    assert np.array_equal(same.fit(rows, labels).predict(rows), plain.predict(rows))
    # Weights that balance the classes have moved the threshold already.
    both = {"class_weight": {"no": 1 / 1.8, "yes": 5.0}, "class_prior": prior}
    weighed = PrivateLogisticRegression(**asked, **both, decision_prior="balanced")
    assert np.allclose(weighed.fit(rows, labels).decision_shift_, 0.0)
    for wrong, said in (
        ({"class_prior": prior}, "belong together"),
        ({"class_prior": "balanced", "decision_prior": "balanced"}, "read off the labels"),
        ({"class_prior": {"yes": 0.1, "no": 0.5}, "decision_prior": prior}, "sum up to 0.6"),
        ({"class_prior": prior, "decision_prior": "even"}, "decision_prior"),
    ):
        with pytest.raises(InvalidInput, match=said):
            PrivateLogisticRegression(**asked, **wrong).fit(rows, labels)
    with pytest.raises(InvalidInput, match="margins, no log-odds"):
        PrivateLinearSVC(**asked, class_prior=prior, decision_prior="balanced").fit(rows, labels)
