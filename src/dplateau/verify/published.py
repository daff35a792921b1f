"""Closed statements of papers that are claimed as they stand."""

from __future__ import annotations

import math

from dplateau.verify.claims import CLOSED, Case, Derived
from dplateau.verify.facts import require_constant
from dplateau.verify.precise import MP
from dplateau.verify.sampled import require_sampled


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
