"""Pictures of mixing and of draws hold the data that they were made from."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplateau import Ball, Body, InvalidInput, LossGeometry, Potential, ProjectedLangevin, sample
from dplateau.plots import MarginalDisplay, MixingDisplay, TraceDisplay
from dplateau.sampling import Samples, theorem_4_2_over_steps, tv_over_steps

KNOWN = LossGeometry(lipschitz=math.inf, convex=True, smoothness=1.0)
RUN = ProjectedLangevin(
    steps=1, learning_rate=0.01, domain=Body(diameter=1.0), loss=KNOWN, release="last"
)


@pytest.fixture(scope="module")
def drawn() -> Samples:
    bowl = Potential(lambda x: x, KNOWN)
    return sample(bowl, Ball(1.0), 40, learning_rate=0.1, dimension=2, warmup=5, seed=0, chains=9)


def test_mixing_shows_three_curves() -> None:
    steps = np.array([1, 10, 100, 151, 300])
    display = MixingDisplay.from_run(RUN, steps, target=0.01, needed=151)
    assert np.array_equal(display.certified, tv_over_steps(RUN, steps))
    ax = display.plot()
    names = [line.get_label() for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert names == ["certificate", "one block", "Theorem 4.2 of Bravo et al."]
    assert ax.lines[0].get_ydata() == pytest.approx(display.certified)
    assert any("151 steps" in text.get_text() for text in ax.texts)
    assert display.to_bytes(".png").startswith(b"\x89PNG")
    assert display.to_dict()["theorem_4_2"] == [1.0, 1.0, 0.5, 0.5, 0.125]


def test_mixing_leaves_out_a_theorem_that_says_nothing() -> None:
    rough = RUN.replace(loss=LossGeometry(lipschitz=math.inf, convex=False, smoothness=1.0))
    steps = np.array([1, 50])
    assert np.all(np.isnan(theorem_4_2_over_steps(rough, steps)))
    display = MixingDisplay.from_run(rough, steps)
    assert len(display.plot().lines) == 2
    assert display.to_dict()["theorem_4_2"] == [None, None]


def test_traces_and_marginals(drawn: Samples) -> None:
    trace = TraceDisplay.from_samples(drawn, 1)
    ax = trace.plot()
    assert len(ax.lines) == 8
    assert ax.lines[3].get_ydata() == pytest.approx(drawn.draws[3, :, 1])
    assert "first 8 chains" in ax.get_title(loc="left")
    marginal = MarginalDisplay.from_samples(
        drawn, 0, reference=drawn.flat[:, 1], density=lambda x: np.exp(-(x**2) / 2)
    )
    ax = marginal.plot()
    area = sum(patch.get_width() * patch.get_height() for patch in ax.patches[:50])  # type: ignore[attr-defined]
    assert area == pytest.approx(1.0)
    assert ax.lines[0].get_ydata() == pytest.approx(np.exp(-(ax.lines[0].get_xdata() ** 2) / 2))
    assert marginal.to_bytes(".svg").startswith(b"<?xml")
    with pytest.raises(InvalidInput, match=r"0\.\.1"):
        TraceDisplay.from_samples(drawn, 2)
