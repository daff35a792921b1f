"""The picture of claim, example and the band between them."""

from __future__ import annotations

import numpy as np
import pytest

from dplateau import Ball, LossGeometry, NoisyGD
from dplateau.audit import TightnessOverSteps, tightness_over_steps
from dplateau.plots import TightnessDisplay

RUN = NoisyGD(
    n=100,
    steps=1,
    learning_rate=0.1,
    noise_std=2.0,
    domain=Ball(0.5),
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
    release="last",
)


@pytest.fixture(scope="module")
def curve() -> TightnessOverSteps:
    return tightness_over_steps(RUN, 1e-3, [1, 8, 64, 512])


def test_the_drawn_lines_are_the_data(curve: TightnessOverSteps) -> None:
    axes = TightnessDisplay.from_curve(curve).plot()
    lines = {str(line.get_label()): line for line in axes.lines}
    assert np.asarray(lines["best claim"].get_ydata()) == pytest.approx(curve.upper)
    assert np.asarray(lines["proved lower bound"].get_ydata()) == pytest.approx(curve.lower)
    assert axes.get_ylim()[0] < curve.lower.min() < curve.upper.max() < axes.get_ylim()[1]


def test_the_band_lies_between_the_two(curve: TightnessOverSteps) -> None:
    axes = TightnessDisplay.from_curve(curve).plot()
    band = axes.collections[0].get_paths()[0].vertices
    assert np.min(band[:, 1]) == pytest.approx(curve.lower.min())
    assert np.max(band[:, 1]) == pytest.approx(curve.upper.max())
    # Between two dots nothing was computed: the band reaches down to the lower of them.
    between = band[band[:, 0] == curve.steps[1]][:, 1]
    assert np.min(between) == pytest.approx(min(curve.lower[0], curve.lower[1], curve.lower[2]))


def test_the_ratio_is_written_beside_the_end(curve: TightnessOverSteps) -> None:
    axes = TightnessDisplay.from_curve(curve).plot()
    texts = [text.get_text() for text in axes.texts]
    (ratio,) = [text for text in texts if text.startswith("ratio ")]
    assert float(ratio.split()[1]) == pytest.approx(curve.ratio[-1], rel=0.01)


def test_a_curve_without_lower_bounds_is_drawn_alone() -> None:
    bare = tightness_over_steps(RUN.replace(momentum=0.5, release="all"), 1e-3, [1, 9])
    axes = TightnessDisplay.from_curve(bare).plot()
    assert len(axes.lines) == 1
    assert not any(text.get_text().startswith("ratio") for text in axes.texts)


def test_files_are_the_same_each_time(curve: TightnessOverSteps) -> None:
    display = TightnessDisplay.from_curve(curve)
    assert display.to_bytes(".png") == display.to_bytes(".png")
