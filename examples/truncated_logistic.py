"""Bayesian logistic regression with its weights kept in a ball, beside a Metropolis sampler.

    python examples/truncated_logistic.py [--draws 2000] [--picture marginal.png]

The posterior is exp(-sum of logistic losses - |w|^2 / 2) on a ball. The Langevin chain comes with a
certificate of how soon it forgets its start; its stationary law differs from the posterior by a
bias of the order of the learning rate, which the table shows. Releasing *one* draw is a private
mechanism: the same description is certified for that.
"""

from __future__ import annotations

import argparse

import numpy as np

from dplateau import Ball, LangevinSampler, Potential, certify, sample
from dplateau.ground.types import FloatArray
from dplateau.losses import Logistic

RECORDS, FEATURES, RADIUS = 40, 3, 2.0
# The prior |w|^2 / 2 is shared by all records: with f the average loss, B (f + l2 |w|^2 / 2).
HEAT, RIDGE = float(RECORDS), 1.0 / RECORDS
LEARNING_RATE = 0.4


def data(seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return standard features and labels of a true weight vector."""
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((RECORDS, FEATURES))
    chances = 1 / (1 + np.exp(-features @ np.array([1.5, -1.0, 0.5])))
    return features, np.where(generator.random(RECORDS) < chances, 1.0, -1.0)


def metropolis(potential: Potential, draws: int, seed: int) -> FloatArray:
    """Draw from the exact posterior by random-walk Metropolis: reject what leaves the ball."""
    generator = np.random.default_rng(seed)
    assert potential.value is not None

    def energy(points: FloatArray) -> FloatArray:
        inside = np.sum(points**2, axis=1) <= RADIUS**2
        assert potential.value is not None
        value = HEAT * (potential.value(points) + RIDGE * np.sum(points**2, axis=1) / 2)
        return np.where(inside, value, np.inf)

    at = np.zeros((64, FEATURES))
    now = energy(at)
    kept = []
    for step in range(500 + 25 * -(-draws // 64)):
        other = at + 0.45 * generator.standard_normal(at.shape)
        then = energy(other)
        taken = generator.exponential(size=64) > then - now
        at, now = np.where(taken[:, None], other, at), np.where(taken, then, now)
        if step >= 500 and step % 25 == 0:
            kept.append(at)
    return np.concatenate(kept)[:draws]


def main() -> None:
    """Sample, compare, certify and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--picture", help="draw the first marginal here")
    chosen = parser.parse_args()
    features, labels = data()
    potential = Potential.from_loss(Logistic(), features, labels, feature_norm=2.0)
    settings = {"learning_rate": LEARNING_RATE, "l2": RIDGE, "inverse_temperature": HEAT}
    drawn = sample(
        potential, Ball(RADIUS), -(-chosen.draws // 64), chains=64, thin=25, seed=1, **settings
    )
    print(drawn)
    print(f"R-hat at most {drawn.r_hat().max():.3f}")
    exact = metropolis(potential, chosen.draws, seed=2)
    print("weight   Langevin mean (sd)   Metropolis mean (sd)")
    for j in range(FEATURES):
        ours, theirs = drawn.flat[:, j], exact[:, j]
        print(
            f"{j:>6}   {ours.mean():+.3f} ({ours.std():.3f})       "
            f"{theirs.mean():+.3f} ({theirs.std():.3f})"
        )
    private = LangevinSampler.of(potential, Ball(RADIUS), steps=500, release="last", **settings)
    print("one draw, nothing else released:", certify(private.run, delta=1e-4))
    if chosen.picture:
        from dplateau.plots import MarginalDisplay

        display = MarginalDisplay.from_samples(
            drawn, 0, reference=exact[:, 0], reference_name="Metropolis"
        )
        print("drawn to", display.save(chosen.picture))


if __name__ == "__main__":
    main()
