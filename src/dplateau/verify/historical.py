"""Statements of papers as they stand: Rényi forms of amplification by iteration, closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau.algorithms import FixedSize, OnePass, Release
from dplateau.verify import reading
from dplateau.verify.claims import ROUNDED, Case, Derived
from dplateau.verify.facts import (
    least_share,
    moved_by_record,
    require_batches,
    require_constant,
    require_contraction,
    require_domain,
    require_hidden,
    require_neighbors,
    smallest_batch,
)
from dplateau.verify.iteration import (
    cyclic_squares,
    gd_bounded_squares,
    gd_contraction_squares,
    one_pass_squares,
)
from dplateau.verify.one_use import HIDDEN, STOPPED, require_noise, require_run
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


def asoodeh_diaz_closed(case: Case) -> Derived:
    """Derive the plateau of e <- (1-q) theta e + q theta, theta <= exp(-(eps/m - m/2)^2 / 2).

    The plateau is below delta as soon as theta is below delta / (q + (1-q) delta).
    """
    run = case.run
    require_hidden(run, case.ledger)
    require_batches(run, case.ledger, FixedSize)
    require_neighbors(run, case.ledger, "replace")
    stage = require_constant(run, case.ledger)
    require_domain(run, case.ledger)
    assert run.loss is not None
    moved = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
    m, q, delta = (MP.mpf(x) for x in (moved / stage.nu * ROUNDED, run.sampling_rate, case.delta))
    theta = delta / (q + (1 - q) * delta)
    epsilon = m * m / 2 + m * MP.sqrt(-2 * MP.log(theta))
    return Derived(up(epsilon), f"one step is {float(m):.9g}-GDP, in fifty digits")
