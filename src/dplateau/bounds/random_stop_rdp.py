"""Random stopping as a Rényi statement, with the noise that weak convexity asks for."""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import OnePass, RandomStop, Run
from dplateau.bounds import literature
from dplateau.bounds.base import RENYI_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.iteration import (
    CONTRACTION,
    geometry_assumptions,
    has_schedule,
    why_no_deterministic_contraction,
)
from dplateau.curves import RenyiCurve
from dplateau.errors import InvalidInput

_ORDERS = 60


class RandomStopRdp(Bound):
    """D_alpha <= alpha (s/nu)^2 H_T / T for the orders with alpha (alpha - 1) (s/nu)^2 <= 2.

    H_T = 1 + 1/2 + ... + 1/T. Rényi divergences are convex only up to a factor of two, and only
    while they are at most 1 / (alpha - 1): hence the limit on alpha. The published statement has
    log T where its proof gives H_T, which is larger (at T = 1 it would claim perfect privacy).
    """

    name = "random_stop_rdp"
    claim_margin = RENYI_MARGIN
    note = "docs/theory/renyi_competitors.md"
    title = "Random stop, as Rényi"
    citation = literature.feldman("Theorem 26, with H_T in place of log T")
    dominated_by = ("random_stop_mean",)
    hidden_state = True
    hides = RandomStop()

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive single pass, if so."""
        if isinstance(run.batches, OnePass) and has_schedule(run):
            return "needs the same learning rate and noise at every step; yours has a schedule"
        return why_no_deterministic_contraction(run, OnePass, nonconvex=False)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return orders up to the largest that the noise allows."""
        top = largest_order(_squared_step(run))
        parts = np.geomspace(1e-3, 1.0, _ORDERS)
        return {"losses": CONTRACTION, "orders": (1 + (top - 1) * parts).tolist()}

    def curve(self, run: Run, witness: Witness) -> RenyiCurve:
        """Return the divergences at the witness's orders."""
        square = _squared_step(run)
        orders = [float(order) for order in witness["orders"]]
        top = largest_order(square)
        if max(orders) > top * (1 + 1e-12):
            raise InvalidInput(f"the noise allows orders up to {top:g}; asked for {max(orders):g}")
        if witness["losses"] != CONTRACTION:
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        harmonic = math.fsum(1 / j for j in range(1, run.steps + 1))
        rate = square * harmonic / run.steps * (1 + 1e-13)
        return RenyiCurve(tuple(orders), tuple(order * rate for order in orders))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry, and how the run stops."""
        stop = "the stopping step is uniform and independent of the data; only its iterate leaves"
        return (
            *geometry_assumptions(run, (CONTRACTION,), bounded=False),
            Assumption(stop, "declared"),
        )


def largest_order(squared_step: float) -> float:
    """Return the alpha with alpha (alpha - 1) (s/nu)^2 = 2."""
    return (1 + math.sqrt(1 + 8 / squared_step)) / 2


def _squared_step(run: Run) -> float:
    eta, nu = run.learning_rate, run.iterate_std
    assert isinstance(eta, float)
    assert isinstance(nu, float)
    assert run.loss is not None
    step = run.neighbor_factor * eta * run.loss.lipschitz / run.batch_size
    return (step / nu) ** 2 * (1 + 1e-15)
