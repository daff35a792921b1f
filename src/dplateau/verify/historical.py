"""Statements of papers as they stand: Rényi forms of amplification by iteration, closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

from dplateau.algorithms import OnePass, Release
from dplateau.verify import reading
from dplateau.verify.claims import CLOSED, RENYI, Case, Derived
from dplateau.verify.facts import require_constant, require_contraction, require_sampled
from dplateau.verify.iteration import (
    cyclic_squares,
    gd_bounded_squares,
    gd_contraction_squares,
    one_pass_squares,
)
from dplateau.verify.one_use import (
    HIDDEN,
    STOPPED,
    Facts,
    moved_by_record,
    require_noise,
    require_run,
)
from dplateau.verify.precise import MP, gaussian_run_epsilon, sampled_epsilon
from dplateau.verify.walks import CONTRACTION

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
    return Derived(epsilon, RENYI, f"best order at sum of squares {total:.9g}")


def mixing_rdp(case: Case) -> Derived:
    """Derive the Rényi rate of the last record, and its classic conversion."""
    facts = _contractive_pass(case, HIDDEN)
    rate = MP.mpf(facts.step) ** 2 / 2
    case.ledger.agree("rate", reading.number(case.witness, "rate"), float(rate))
    epsilon = rate + 2 * MP.sqrt(-rate * MP.log(case.delta))
    return Derived(float(epsilon), CLOSED, f"alpha * {float(rate):.9g} at the best order")


def random_stop_rdp(case: Case) -> Derived:
    """Derive the Rényi bound of a random stop: twice the mean, where that is allowed."""
    facts = _contractive_pass(case, STOPPED)
    square = facts.step**2
    orders = reading.numbers(case.witness, "orders")
    fits = all(order > 1 and order * (order - 1) * square <= 2 * (1 + 1e-9) for order in orders)
    case.ledger.require("orders", fits, f"up to {max(orders):.9g} at squared step {square:.9g}")
    rate = square * float(MP.harmonic(case.run.steps)) * (1 + 1e-15) / case.run.steps
    # As of two Gaussians: alpha times the rate.
    epsilon = sampled_epsilon([(math.sqrt(2 * rate), 1.0, 1)], orders, case.delta)
    return Derived(epsilon, RENYI, f"best of {len(orders)} orders, rate {rate:.9g}")


def _contractive_pass(case: Case, release: Release) -> Facts:
    """Return the facts of a pass with Gaussian noise whose steps do not expand, domain or not."""
    run, stage = require_run(case, OnePass, release)
    require_noise(case, "gaussian")
    require_contraction(run, 1.0, case.ledger)
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses == CONTRACTION, f"{losses!r}")
    return Facts(False, moved_by_record(run, stage.eta) / stage.nu, math.inf, None, math.inf)


def asoodeh_diaz_closed(case: Case) -> Derived:
    """Derive the plateau of e <- (1-q) theta e + q theta, theta <= exp(-(eps/m - m/2)^2 / 2).

    The plateau is below delta as soon as theta is below delta / (q + (1-q) delta).
    """
    run = require_sampled(case, "fixed", "replace")
    stage = require_constant(run, case.ledger)
    case.ledger.require("domain", math.isfinite(run.diameter), f"D = {run.diameter:g}")
    assert run.loss is not None
    moved = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
    m, q, delta = (MP.mpf(x) for x in (moved / stage.nu, run.sampling_rate, case.delta))
    theta = delta / (q + (1 - q) * delta)
    epsilon = m * m / 2 + m * MP.sqrt(-2 * MP.log(theta))
    return Derived(float(epsilon), CLOSED, f"one step is {float(m):.9g}-GDP, in fifty digits")
