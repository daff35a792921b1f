"""Draw docs/images/releases.png: epsilon over the number of iterates that leave a run.

    python benchmarks/releases.py [FILE]

A ridge-regularized run with Poisson batches, from "only the last iterate" to "all of them".
"""

from __future__ import annotations

import sys
from pathlib import Path

from dplateau import LossGeometry, NoisySGD, epsilon_over_releases
from dplateau.plots import EpsilonOverReleasesDisplay

TARGET = Path(__file__).parents[1] / "docs" / "images" / "releases.png"
RUN = NoisySGD(
    n=1_000_000,
    sampling_rate=0.01,
    steps=20_000,
    learning_rate=1.0,
    l2=0.01,
    noise_multiplier=2.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
    release="last",
)
RELEASES = [1, 2, 3, 5, 10, 20, 40, 70, 100, 140, 200, 300, 400, 1000, 5000, 20_000]


def main() -> None:
    """Ask for every claim, and draw them."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    curve = epsilon_over_releases(RUN, 1e-5, RELEASES)
    print("drawn to", EpsilonOverReleasesDisplay.from_curve(curve).save(target))


if __name__ == "__main__":
    main()
