"""The picture of an audit shows its counts, its bounds and the claim."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from dplateau import AuditReport, Certificate, InvalidInput, NoisyGD, audit_trainer, certify
from dplateau.ground.types import FloatArray
from dplateau.plots import AuditDisplay


@lru_cache
def claim() -> Certificate:
    return certify(NoisyGD(n=1, steps=1, noise_multiplier=1.0, release="last"), delta=1e-5)


@lru_cache
def audited(shift: float) -> AuditReport:
    def train(record: float, rng: np.random.Generator, count: int) -> FloatArray:
        return record + rng.normal(size=(count, 1))

    return audit_trainer(train, claim(), shift, 0.0, runs=2000, seed=5, at_once=2000)


def test_data_is_the_reports_and_the_certificates() -> None:
    report = audited(1.5)
    display = AuditDisplay.from_report(report, claim(), points=9)
    assert display.beta.tolist() == [claim().tradeoff(float(rate)) for rate in display.alpha]
    assert display.violated.tolist() == [point.violated for point in report.points]
    hits = [point.hits_neighbor for point in report.points]
    assert np.allclose(display.false_alarms * report.tested, hits)
    assert np.all(display.most_false_alarms >= 0)
    assert np.all(display.most_misses <= 1)


def test_a_refuted_claim_lies_above_the_ends_of_some_whiskers() -> None:
    for shift in (1.0, 1.5):
        display = AuditDisplay.from_report(audited(shift), claim())
        corners = zip(display.most_false_alarms, display.most_misses, strict=True)
        below = [miss < claim().tradeoff(float(alarm)) for alarm, miss in corners]
        assert all(below[i] for i in np.flatnonzero(display.violated))
        assert np.any(display.violated) == (shift > 1)


def test_refuting_thresholds_are_drawn_apart() -> None:
    drawn = AuditDisplay.from_report(audited(1.5), claim()).plot()
    legend = drawn.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert "rates that refute the claim" in labels
    assert drawn.get_title(loc="left").startswith("Claim violated: 2000 runs")
    calm = AuditDisplay.from_report(audited(1.0), claim()).plot().get_legend()
    assert calm is not None
    assert "rates that refute the claim" not in [text.get_text() for text in calm.get_texts()]


def test_a_saved_picture_is_real(tmp_path: Path) -> None:
    path = AuditDisplay.from_report(audited(1.5), claim()).save(tmp_path / "audit.png")
    pixels: FloatArray = np.asarray(imread(path))[:, :, :3]
    ink = pixels.min(axis=2) < 0.8
    assert 0.005 < ink.mean() < 0.5
    assert not ink[[0, -1], :].any()
    assert not ink[:, [0, -1]].any()


def test_a_report_about_another_claim_is_refused() -> None:
    other = certify(NoisyGD(n=1, steps=1, noise_multiplier=2.0, release="last"), delta=1e-5)
    with pytest.raises(InvalidInput, match=r"the report is about a claim of epsilon 4\.377"):
        AuditDisplay.from_report(audited(1.5), other)
