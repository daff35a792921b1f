"""Momentum: a norm that all steps shrink, checked in exact arithmetic.

One step takes the gradient at a = w (a heavy ball) or a = w - m u (Nesterov), u = -velocity, and
then u <- m u + x a, w <- w - u, in a direction of curvature h, x = learning_rate * h: a matrix A_x
on (w, u). Whatever else enters it enters along G = (-1, 1). Two matrix inequalities,
A_x^T P A_x <= c^2 P at the least and the largest x, hold for all x between (the left side is
convex in x), so a use l steps old moves the last w by at most kappa c^l of its length, kappa^2 =
(G^T P G) (P^-1)_{11}. The last step's noise hides its own use and the old ones
(docs/theory/momentum.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from dplateau.algorithms import FullBatch, LastIterate, Poisson, Run
from dplateau.algorithms.stated import loss_of
from dplateau.verify import blocks
from dplateau.verify.cases import (
    ROUNDED,
    Case,
    Derived,
    distance_factor,
    gaussian_derived,
    require_batches,
    require_cap,
    require_constant,
    require_noise,
    theorem,
)
from dplateau.verify.coins import Coins
from dplateau.verify.precise import MP


@theorem(release=None, noise=None, knows_groups=True)
def momentum(case: Case) -> Derived:
    """Derive Poisson or full batches: the steps' own blocks, and that of the last step."""
    run = case.run
    _require_run(case)
    cap, extra = require_cap(case) if isinstance(run.batches, Poisson) else (run.n, MP.zero)
    contraction = case.witness["contraction"].number()
    stage = require_constant(case)
    kappa = _require_norm(case, stage.eta, cap, contraction)
    own = case.witness["own_blocks"].whole(1)
    case.require("own blocks", own <= run.steps, f"{own} of {run.steps} steps")
    size = stage.eta * loss_of(run).lipschitz / run.batch_size / stage.nu * ROUNDED
    rate = run.sampling_rate
    if rate == 1:
        return _certain(case, size, kappa, contraction, own)
    coins = _last_uses(run, size, kappa, contraction, own, rate)
    rarest = blocks.rarest_chance(case)
    splits: list[blocks.Parts] = []
    for split in blocks.require_splits(case):
        parts: blocks.Parts = [(blocks.coin_pair(coins, split, math.inf, rarest), 1)]
        if own > 1:
            parts.append((blocks.single_pair(size, rate, split, rarest), own - 1))
        splits.append(parts)
    return blocks.worst_split(case, splits, extra)


def _certain(case: Case, size: float, kappa: float, c: float, own: int) -> Derived:
    """Return the claim about a record in every batch: squares of certain moves."""
    log = math.log(c)
    powers = math.exp(own * log) * math.expm1((case.run.steps - own) * log) / math.expm1(log)
    mu = size * math.sqrt(own - 1 + (1 + kappa * powers * ROUNDED) ** 2)
    return gaussian_derived(mu * case.run.group_size * distance_factor(case.run), case.delta)


def _last_uses(run: Run, size: float, kappa: float, c: float, own: int, rate: float) -> Coins:
    """Return what the last step's noise hides: its own use, and those ``own`` steps old or more."""
    one = Coins(np.array([size]), np.array([rate]), np.array([1.0]))
    if own >= run.steps:
        return one
    log = math.log(c) + 4e-16
    steps = [blocks.Stretch(0, run.steps, kappa * size, 1.0, rate, log, 0.0)]
    old = blocks.uses_of(steps, own, run.steps, 0.0)
    if old is None:
        return one
    weights, rates = np.r_[one.weights, old.weights], np.r_[one.rates, old.rates]
    return Coins(weights, rates, np.r_[one.counts, old.counts], old.offset)


def _require_norm(case: Case, eta: float, cap: int, contraction: float) -> float:
    """Check both matrix inequalities exactly, and return kappa, rounded up."""
    run, loss = case.run, loss_of(case.run)
    case.require("contraction", 0 < contraction < 1, f"{contraction:.9g}")
    entries = case.witness["norm"].numbers(most=2)
    case.require("norm", len(entries) == 2, f"{len(entries)} entries")
    cross, own = (Fraction(entry) for entry in entries)
    norm = np.array([[Fraction(1), cross], [cross, own]])
    case.require("positive norm", _positive(norm) and own > cross**2, f"{entries}")
    rate, ridge, m = Fraction(eta), Fraction(run.l2), Fraction(run.momentum)
    steep = ridge + Fraction(loss.smoothness) * Fraction(cap) / Fraction(run.batch_size)
    ahead = -m if run.momentum_kind == "nesterov" else Fraction(0)
    for name, curvature in (("flattest", ridge), ("steepest", steep)):
        x = rate * curvature
        turned = (x, m + x * ahead)  # the new u: m u + x (w + ahead u)
        step = np.array([[1 - turned[0], -turned[1]], turned])
        left = Fraction(contraction) ** 2 * norm - step.T @ norm @ step
        detail = f"c = {contraction:.12g} at learning rate times curvature {float(x):.6g}"
        case.require(f"shrinks at the {name}", _positive(left), detail)
    entering = norm[0, 0] - 2 * cross + own  # G^T P G
    leaving = own / (own - cross**2)  # (P^-1)_11
    return math.sqrt(float(entering * leaving)) * (1 + 1e-15)


def _positive(matrix: Any) -> bool:
    """Return whether a symmetric matrix of fractions has no negative direction."""
    (a, b), (_, d) = matrix
    return bool(a >= 0 and d >= 0 and a * d >= b * b)


def _require_run(case: Case) -> None:
    run, loss = case.run, case.run.loss
    hidden = isinstance(run.release, LastIterate)
    case.require("release", hidden, f"the run releases {run.release.name!r}")
    moves = run.momentum > 0 and run.momentum_kind in ("heavy_ball", "nesterov")
    case.require("momentum", moves, f"{run.momentum:g}, {run.momentum_kind}")
    case.require("one iterate", run.average_last == 1, "averages are not covered")
    require_batches(case, FullBatch, Poisson)
    case.require("no domain", run.domain is None, "a projection may stretch the norm")
    require_noise(case)
    case.require("constant steps", not run.has_schedule, "the theorem is about equal steps")
    case.require("learning rate", run.learning_rate is not None, "the theorem needs it")
    known = loss is not None and loss.convex
    fits = known and all(map(math.isfinite, (loss_of(run).smoothness, loss_of(run).lipschitz)))
    case.require("geometry", fits, "convex, smooth and Lipschitz losses")
