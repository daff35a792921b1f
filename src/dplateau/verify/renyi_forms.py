"""Rényi forms of amplification by iteration, as papers state them."""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau.algorithms import OnePass, Release
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived
from dplateau.verify.facts import (
    least_share,
    moved_by_record,
    require_contraction,
    smallest_batch,
)
from dplateau.verify.iteration import gd_bounded_squares, gd_contraction_squares
from dplateau.verify.one_use import HIDDEN, STOPPED, require_noise, require_run
from dplateau.verify.ordered import cyclic_squares, one_pass_squares
from dplateau.verify.precise import MP, Precise, gaussian_run_epsilon, sampled_epsilon, up
from dplateau.verify.walks import CONTRACTION, StepLosses

_LIFTED: dict[str, Callable[[Case], float]] = {
    "gd_contraction": gd_contraction_squares,
    "gd_bounded": gd_bounded_squares,
    "cyclic_contraction": cyclic_squares,
    "one_pass_contraction": one_pass_squares,
}


def iteration_rdp(case: Case) -> Derived:
    """Derive the same sums of squares as Rényi divergences, alpha / 2 times the sum."""
    lifted = reading.word(case.witness, "lifted")
    case.ledger.require("lifted bound", lifted in _LIFTED, f"{lifted!r}")
    total = _LIFTED[lifted](case)
    epsilon = gaussian_run_epsilon(total, case.delta)
    return Derived(epsilon, f"best order at sum of squares {total:.9g}")


def mixing_rdp(case: Case) -> Derived:
    """Derive the Rényi rate of the last record, and its classic conversion.

    Earlier records have shorter ways in units of the noise that hides them, as long as a step does
    not stretch distances by sqrt(2) and more.
    """
    square, _ = _contractive_pass(case, HIDDEN)
    rate = square / 2
    epsilon = up(rate + 2 * MP.sqrt(-rate * MP.log(case.delta)))
    return Derived(epsilon, f"alpha * {float(rate):.9g} at the best order")


def random_stop_rdp(case: Case) -> Derived:
    """Derive the Rényi bound of a random stop: twice the mean, where that is allowed."""
    square, slope = _contractive_pass(case, STOPPED)
    steps = case.run.steps
    # A step that stretches distances by a rounding may do so in every one of them.
    square *= max(MP.mpf(1), MP.mpf(slope) ** (2 * steps))
    orders = reading.numbers(case.witness, "orders", most=500)
    # With x = (alpha - 1) D_alpha: e^x - 1 <= 2 x not only up to 1 but up to 1.25.
    fits = all(order > 1 and order * (order - 1) * square <= 2.1 for order in orders)
    case.ledger.require("orders", fits, f"up to {max(orders):.9g} at step {float(square):.9g}^.5")
    rate = up(square * MP.harmonic(steps) / steps)
    # As of two Gaussians: alpha times the rate.
    epsilon = sampled_epsilon([(math.sqrt(2 * rate) * ROUNDED, 1.0, 1)], orders, case.delta)
    return Derived(epsilon, f"best of {len(orders)} orders, rate {rate:.9g}")


def _contractive_pass(case: Case, release: Release) -> tuple[Precise, float]:
    """Return the squared length of a record's step in units of the noise, and a step's slope."""
    stage, run = require_run(case, OnePass, release), case.run
    require_noise(case, "gaussian")
    require_contraction(run, case.ledger)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, least_share(run, smallest_batch(run), used=True), 1.0)
    square = (MP.mpf(moved_by_record(run, stage.eta)) / stage.nu) ** 2
    return square, maps.slope(CONTRACTION, stage.eta, case.ledger)
