"""What notebooks show: one line for every echo, and a page with the answer first."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

import dplateau as dp
from dplateau.ground.shown import Shown, rounded_up

LOSS = dp.LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
GD = dp.NoisyGD(
    n=100, steps=50, learning_rate=1.0, l2=0.1, noise_multiplier=20.0, loss=LOSS, release="last"
)
PASS = dp.OnePassSGD(n=40, learning_rate=0.5, noise_std=2.0, loss=LOSS, release="last")


def trainer(record: float, rng: np.random.Generator, count: int) -> Any:
    return record + rng.normal(size=(count, 1))


@cache
def results() -> dict[str, Any]:
    certificate = dp.certify(GD, delta=1e-5)
    one = dp.certify(dp.NoisyGD(n=1, steps=1, noise_multiplier=1.0, release="last"), delta=1e-5)
    chain = dp.ProjectedLangevin(
        n=1,
        steps=100,
        learning_rate=0.05,
        loss=dp.LossGeometry(lipschitz=2.0, convex=True, smoothness=2.0),
        domain=dp.Ball(1.0),
        release="last",
    )
    return {
        "certificate": certificate,
        "composition": dp.compose([certificate, certificate], delta=1e-5),
        "comparison": dp.compare(GD, delta=1e-5),
        "calibration": dp.calibrate(GD, epsilon=1.0, delta=1e-5),
        "curve": dp.epsilon_over_steps(GD, 1e-5, [1, 10, 100]),
        "records": dp.per_record(PASS, delta=1e-5),
        "plan": dp.plan(n=10_000, d=10, epsilon=1.0),
        "tightness": dp.tightness(certificate),
        "mixing": dp.certify_mixing(chain, tv=0.01),
        "audit": dp.audit_trainer(trainer, one, 1.0, 0.0, runs=4000, seed=1, at_once=4000),
    }


NAMES = (
    *("certificate", "composition", "comparison", "calibration", "curve", "records"),
    *("plan", "tightness", "mixing", "audit"),
)


@pytest.mark.parametrize("name", NAMES)
def test_an_echo_is_one_short_line(name: str) -> None:
    shown = repr(results()[name])
    assert shown.startswith(f"<{type(results()[name]).__name__}: ")
    assert "\n" not in shown
    assert len(shown) < 250


@pytest.mark.parametrize("name", NAMES)
def test_a_page_answers_first(name: str) -> None:
    page = results()[name]._repr_html_()
    assert page.startswith("<div><p><b>")
    assert page.count("<table>") == page.count("</table>")
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize("name", ["certificate", "comparison", "curve", "records", "mixing"])
def test_pictures_are_inside(name: str) -> None:
    assert 'src="data:image/svg+xml;base64,' in results()[name]._repr_html_()


def test_numbers_are_those_of_the_claim() -> None:
    claimed = rounded_up(results()["certificate"].claimed_epsilon)
    assert claimed in results()["certificate"]._repr_html_()
    assert claimed in repr(results()["certificate"])
    refused = results()["comparison"]._repr_html_()
    assert "<details><summary>Bounds that say nothing</summary>" in refused


def test_text_is_escaped() -> None:
    part = dp.foreign(epsilon=0.1, delta=1e-7, neighbors="add_remove", name="<b>count</b>")
    page = dp.compose([results()["certificate"], part], delta=1e-5)._repr_html_()
    assert "&lt;b&gt;count" in page
    assert "<b>count" not in page


def test_a_result_without_a_page_is_its_text() -> None:
    class Other(Shown):
        def __str__(self) -> str:
            return "a < b\nmore"

    assert repr(Other()) == "<Other: a < b>"
    assert Other()._repr_html_() == "<pre>a &lt; b\nmore</pre>"


def test_without_matplotlib_there_are_tables() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dplateau as dp\n"
        "run = dp.NoisyGD(n=1, steps=1, noise_multiplier=1.0, release='all')\n"
        "page = dp.compare(run, delta=1e-5)._repr_html_()\n"
        "assert '<table>' in page and '<img' not in page and 'dplateau[plots]' in page, page"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
