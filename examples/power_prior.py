"""A linear model with a prior between Laplace and Gauss: exp(-|A x - b|^2 - |B x|_q^q), q = 1 + p.

    python examples/power_prior.py [--draws 2000] [--picture marginal.png]

The gradient of |B x|_q^q is only Hölder continuous of exponent p, so the potential is not smooth.
Bravo, Flores-Mella and Guzmán name this model for their mixing theorem. The sum of a smooth and a
weakly smooth part is weakly smooth on a bounded body: |d| <= D^(1-p) |d|^p. Beside it stand exact
draws; what differs is the bias of the step, most of it from the mass that sits on the boundary,
which shrinks like the square root of the learning rate.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from dplateau import Ball, LossGeometry, Potential, sample
from dplateau.ground.types import FloatArray
from dplateau.sampling import theorem_4_2

POWER = 0.5
RADIUS = 1.0
LEARNING_RATE = 0.01
DIMENSION = 2


def model(seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return A, b and B."""
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((4, DIMENSION)) * 0.7
    outputs = inputs @ np.array([0.6, 0.0]) + 0.2 * generator.standard_normal(4)
    return inputs, outputs, np.array([[1.0, 0.0], [0.4, 1.0]])


def potential_of(inputs: FloatArray, outputs: FloatArray, prior: FloatArray) -> Potential:
    """Return the potential with its Hölder constant on the ball.

    |grad |Ax-b|^2| changes by 2 |A^T A| |d|; each |.|^q by q 2^(1-p) |.|^p (attained on both sides
    of zero), and (sum_i s_i^(2p))^(1/2) <= k^((1-p)/2) |s|^p for s = |B d| with k rows.
    """
    q = 1 + POWER
    rows = prior.shape[0]
    smooth = 2 * float(np.linalg.norm(inputs, 2)) ** 2 * (2 * RADIUS) ** (1 - POWER)
    spread = float(np.linalg.norm(prior, 2))
    rough = q * 2 ** (1 - POWER) * rows ** ((1 - POWER) / 2) * spread * spread**POWER

    def value(x: FloatArray) -> FloatArray:
        misfit = np.sum((x @ inputs.T - outputs) ** 2, axis=1)
        return misfit + np.sum(np.abs(x @ prior.T) ** q, axis=1)

    def gradient(x: FloatArray) -> FloatArray:
        pull = x @ prior.T
        return (
            2 * (x @ inputs.T - outputs) @ inputs
            + q * (np.sign(pull) * np.abs(pull) ** POWER) @ prior
        )

    known = LossGeometry(lipschitz=math.inf, convex=True, holder=(POWER, smooth + rough))
    return Potential(gradient, known, value=value, dimension=DIMENSION)


def exact_draws(potential: Potential, draws: int, seed: int) -> FloatArray:
    """Draw from the target density itself by rejection from the uniform law on the disc."""
    generator = np.random.default_rng(seed)
    assert potential.value is not None
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 401)] * 2), axis=-1).reshape(-1, 2)
    least = float(potential.value(grid[np.sum(grid**2, axis=1) <= 1]).min()) - 0.01
    kept = np.empty((0, DIMENSION))
    while len(kept) < draws:
        point = generator.uniform(-1, 1, (4 * draws, DIMENSION))
        point = point[np.sum(point**2, axis=1) <= RADIUS**2]
        taken = generator.random(len(point)) < np.exp(least - potential.value(point))
        kept = np.concatenate([kept, point[taken]])
    return kept[:draws]


def main() -> None:
    """Sample, compare and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--picture", help="draw the first marginal here")
    chosen = parser.parse_args()
    potential = potential_of(*model())
    drawn = sample(
        potential,
        Ball(RADIUS),
        -(-chosen.draws // 200),
        learning_rate=LEARNING_RATE,
        chains=200,
        thin=60,
        seed=1,
    )
    print(drawn)
    published = theorem_4_2(drawn.sampler.run, 0.01)
    print("Theorem 4.2:", published.steps or published.reason)
    exact = exact_draws(potential, chosen.draws, seed=2)
    print("coordinate   Langevin mean (sd)   exact mean (sd)")
    for j in range(DIMENSION):
        ours, theirs = drawn.flat[:, j], exact[:, j]
        print(
            f"{j:>10}   {ours.mean():+.3f} ({ours.std():.3f})       "
            f"{theirs.mean():+.3f} ({theirs.std():.3f})"
        )
    if chosen.picture:
        from dplateau.plots import MarginalDisplay

        display = MarginalDisplay.from_samples(
            drawn, 0, reference=exact[:, 0], reference_name="exact draws"
        )
        print("drawn to", display.save(chosen.picture))


if __name__ == "__main__":
    main()
