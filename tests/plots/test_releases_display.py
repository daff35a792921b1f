"""The picture of epsilon over the number of iterates that leave."""

from __future__ import annotations

import numpy as np
import pytest

from dplateau import InvalidInput, LossGeometry, NoisyGD, epsilon_over_releases
from dplateau.plots import EpsilonOverReleasesDisplay

RUN = NoisyGD(
    n=10,
    steps=100,
    learning_rate=0.5,
    l2=0.1,
    noise_std=1.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5),
    release="last",
)


def test_the_ends_are_the_last_iterate_and_all_of_them() -> None:
    """Golden: full batch with contraction .95, 100 steps; mu^2 of the stretches add up."""
    curve = epsilon_over_releases(RUN, 1e-5, [1, 3, 10, 30, 100])
    assert curve.releases.tolist() == [1, 3, 10, 25, 100]  # 30 would leave unequal stretches
    assert np.all(np.diff(curve.epsilon) > 0)
    assert curve.epsilon[[0, 2]] == pytest.approx([2.540615, 4.323369], abs=2e-6)
    assert curve.epsilon[-1] == pytest.approx(curve.all_released, rel=1e-9)


def test_the_drawn_line_is_the_data() -> None:
    curve = epsilon_over_releases(RUN, 1e-5, [1, 10, 100])
    axes = EpsilonOverReleasesDisplay.from_curve(curve).plot()
    lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
    assert lines["so many leave"] == pytest.approx(curve.epsilon)
    assert lines["every iterate leaves"] == pytest.approx(np.full(3, curve.all_released))
    assert any("only the last: 2.55" in text.get_text() for text in axes.texts)


def test_more_releases_than_steps_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"between 1 and the 100 steps of the run; got \[101\]"):
        epsilon_over_releases(RUN, 1e-5, [101])
