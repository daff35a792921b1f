"""Figures about accountants: conversions of Rényi divergences, moments, and noise for a target.

From the slides and the paper of Asoodeh, Liao, Calmon, Kosut and Sankar on lossless conversion, and
from the classical composition theorems.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from dplateau.algorithms import LossGeometry, NoisySGD
from dplateau.bounds import literature
from dplateau.bounds.registry import bound_named
from dplateau.certificates import calibrate, epsilon_over_steps
from dplateau.curves.conversions import (
    balle_epsilon,
    classic_epsilon,
    linearized_epsilon,
    optimal_delta,
    optimal_epsilon,
)
from dplateau.ground.types import FloatArray
from dplateau.plots.panels import Line, Panel
from dplateau.reproduce.exhibit import Exhibit, Quoted

DELTA = 1e-5


# ---- conversions --------------------------------------------------------------------------------


def conversions() -> Exhibit:
    """Epsilon over the Rényi divergence, by four conversions."""
    panels = []
    for alpha in (10, 5, 2):
        zeta = np.geomspace(1e-4, 2.0, 60)
        lines = (
            Line("classic", zeta, np.asarray(classic_epsilon(alpha, zeta, DELTA))),
            Line(
                "Balle et al., Canonne et al.", zeta, np.asarray(balle_epsilon(alpha, zeta, DELTA))
            ),
            Line("linearized", zeta, np.asarray(linearized_epsilon(alpha, zeta, DELTA))),
            Line("optimal", zeta, np.asarray(optimal_epsilon(alpha, zeta, DELTA)), "ours"),
        )
        panels.append(Panel(f"order {alpha}", "Rényi divergence", "epsilon", lines, x_scale="log"))
    rows = []
    for alpha, zeta_at in ((10, 1.0), (5, 0.5), (2, 0.1), (2, 0.01), (10, 1e-4)):
        closed = min(
            float(np.asarray(balle_epsilon(alpha, zeta_at, DELTA))),
            float(np.asarray(linearized_epsilon(alpha, zeta_at, DELTA))),
        )
        ours = float(np.asarray(optimal_epsilon(alpha, zeta_at, DELTA)))
        rows.append(Quoted(f"order {alpha}, divergence {zeta_at:g}", closed, ours))
    return Exhibit(
        "conversions",
        "From Rényi to approximate privacy",
        literature.asoodeh_conversion("the three panels on conversions (orders 10, 5, 2)"),
        "delta = 1e-5.",
        tuple(panels),
        "the better closed form",
        "optimal conversion",
        tuple(rows),
        "The optimal conversion solves the one-dimensional convex problem itself and rounds up: an "
        "inexact minimizer would err on the unsafe side. The closed forms are upper bounds on it.",
    )


def joint_range() -> Exhibit:
    """Draw the range of two divergences over all pairs of laws, and its upper boundary."""
    alpha, epsilon = 2.0, 1.0
    rng = np.random.default_rng(0)
    p, q = rng.uniform(size=(2, 4000)) ** rng.uniform(0.2, 4.0, size=(2, 4000))
    chi = (p**alpha * q ** (1 - alpha) + (1 - p) ** alpha * (1 - q) ** (1 - alpha) - 1) / (
        alpha - 1
    )
    stick = np.maximum(p - math.e**epsilon * q, 0) + np.maximum(
        (1 - p) - math.e**epsilon * (1 - q), 0
    )
    near = (chi < 12) & (stick > 0)
    zeta = np.linspace(1e-4, math.log(13.0), 80)
    boundary = np.asarray(optimal_delta(alpha, zeta, epsilon))
    over = np.expm1((alpha - 1) * zeta) / (alpha - 1)
    lines = (
        Line("pairs of Bernoulli laws", chi[near], stick[near], "points"),
        Line("upper boundary: the optimal delta", over, boundary, "ours"),
    )
    # Every pair lies below the boundary: how far the highest of those drawn reaches.
    own_zeta = np.log1p((alpha - 1) * chi[near]) / (alpha - 1)
    reached = stick[near] / np.asarray(optimal_delta(alpha, own_zeta, epsilon))
    return Exhibit(
        "joint-range",
        "The joint range of two divergences",
        literature.asoodeh_conversion("the joint range of f-divergences"),
        "Order 2, epsilon = 1 (the slides state none).",
        (Panel("all pairs of laws", "chi^alpha", "hockey stick", lines, y_scale="linear"),),
        "largest possible",
        "reached by the pairs drawn",
        (Quoted("hockey stick over its upper boundary", 1.0, float(reached.max())),),
        "Pairs of two-point laws fill the range up to its convex hull (Harremoës and Vajda), so "
        "the boundary is a problem in one variable.",
    )


# ---- the moments accountant ---------------------------------------------------------------------

_RATE, _NOISE, _N = 0.04, 4.0, 25_000


def _published_moments(steps: FloatArray) -> FloatArray:
    """Return rho T + sqrt(4 rho T log(1/delta)), rho = q^2 / ((1 - q) sigma^2)."""
    rho = _RATE**2 / ((1 - _RATE) * _NOISE**2)
    return np.asarray(rho * steps + np.sqrt(4 * rho * steps * math.log(1 / DELTA)))


def _published_improved(steps: FloatArray) -> FloatArray:
    """Return the least over orders of the two closed conversions of alpha rho T."""
    rho = _RATE**2 / ((1 - _RATE) * _NOISE**2)
    orders = 1 + np.geomspace(1e-2, 1e3, 400)
    epsilons = []
    for count in steps:
        zeta = orders * rho * count
        with np.errstate(over="ignore"):
            best = np.minimum(
                np.asarray(balle_epsilon(orders, zeta, DELTA)),
                np.asarray(linearized_epsilon(orders, zeta, DELTA)),
            )
        epsilons.append(float(np.min(best)))
    return np.array(epsilons)


def moments() -> Exhibit:
    """Epsilon of the moments accountant over steps, by published and present conversions."""
    run = NoisySGD(
        n=_N,
        batch_size=int(_RATE * _N),
        steps=1,
        noise_multiplier=_NOISE,
        release="all",
    )
    steps = np.unique(np.geomspace(10, 5000, 40).astype(np.int64))
    both = [bound_named("rdp_composition"), bound_named("pld_composition")]
    curves = epsilon_over_steps(run, DELTA, steps, bounds=both)
    x = steps.astype(float)
    lines = (
        Line("moments accountant (2016)", x, _published_moments(x)),
        Line("improved conversion (slides)", x, _published_improved(x)),
        Line("exact Rényi, optimal conversion", x, curves.epsilon("rdp_composition"), "ours"),
        Line("privacy-loss distribution", x, curves.epsilon("pld_composition"), "ours"),
    )
    lengths = np.array([1000, 3000])
    exact = epsilon_over_steps(run, DELTA, lengths, bounds=both).epsilon("pld_composition")
    rows = [
        Quoted(f"epsilon after {count} steps", float(theirs), float(ours))
        for count, theirs, ours in zip(lengths, _published_improved(lengths), exact, strict=True)
    ]
    allowed = float(_published_moments(np.array([400.0]))[0])
    more = int(np.searchsorted(_published_improved(np.arange(1.0, 800.0)), allowed)) - 400
    rows.append(Quoted("steps gained by the conversion at the epsilon of 400", 100.0, float(more)))
    return Exhibit(
        "moments",
        "The moments accountant, improved",
        literature.asoodeh_conversion("the panel on the moments accountant"),
        "Sampling rate .04, noise 4, delta = 1e-5.",
        (Panel("DP-SGD, every iterate released", "steps", "epsilon", lines, y_scale="linear"),),
        "slides",
        "ours (PLD; or recomputed)",
        tuple(rows),
        "The slides quote a hundred more steps from the better conversion, at a length that "
        "they do not state. Their rho drops a remainder term of the moments accountant: it is "
        "fine for this picture and no bound, so no claim here uses it. The exact divergences "
        "and their distributions need no rho at all.",
    )


# ---- noise for a target -------------------------------------------------------------------------

_TARGET = 1.0


@cache
def _needs(bound: str, steps: int) -> float:
    """Return the noise multiplier with which one bound certifies the target."""
    run = NoisySGD(
        n=10_000,
        batch_size=100,
        steps=steps,
        learning_rate=2.0,
        l2=0.005,
        noise_multiplier=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25),
        release="last",
    )
    return calibrate(run, _TARGET, DELTA, bounds=(bound_named(bound),)).value


def noise_scales() -> Exhibit:
    """Compare the noise that each composition theorem asks for, over steps."""
    steps = [10, 30, 100, 300, 1000, 3000, 10_000]
    x = np.array(steps, dtype=float)
    rate = 0.01
    formula = rate * x * np.sqrt(2 * np.log(1.25 * rate * x / DELTA)) / _TARGET
    names = {
        "naive_composition": "naive composition",
        "advanced_composition": "advanced composition",
        "rdp_composition": "moments (Rényi)",
        "pld_composition": "privacy-loss distribution",
        "poisson_blocks": "hidden iterates",
    }
    noises = {name: np.array([_needs(name, count) for count in steps]) for name in names}
    lines = [Line("the notes' formula, naive", x, formula)]
    lines += [
        Line(title, x, noises[name], "ours" if name == "poisson_blocks" else "paper")
        for name, title in names.items()
    ]
    ratio = noises["advanced_composition"] / noises["naive_composition"]
    ratios = (
        Line("advanced / naive", x, ratio, "ours"),
        Line("1 / sqrt(steps), scaled", x, ratio[0] * np.sqrt(x[0] / x)),
    )
    naive = noises["naive_composition"]
    rows = (
        Quoted("noise for 100 steps: naive", float(formula[2]), float(naive[2])),
        Quoted("noise for 10000 steps: naive", float(formula[-1]), float(naive[-1])),
        Quoted("noise for 10000 steps: advanced", None, float(noises["advanced_composition"][-1])),
        Quoted("noise for 10000 steps: moments", None, float(noises["rdp_composition"][-1])),
        Quoted("noise for 10000 steps: PLD", None, float(noises["pld_composition"][-1])),
        Quoted("noise for 10000 steps: hidden", None, float(noises["poisson_blocks"][-1])),
    )
    panel = Panel("noise for epsilon 1", "steps", "noise multiplier", tuple(lines), x_scale="log")
    return Exhibit(
        "noise-scales",
        "The noise that each theorem asks for",
        literature.abadi("the noise scales of section 3, and Theorem 1"),
        "Sampling rate .01, epsilon = 1, delta = 1e-5; for hidden iterates c = .99.",
        (panel, Panel("advanced over naive", "steps", "ratio", ratios, x_scale="log")),
        "formula of the notes",
        "calibrated",
        rows,
        "The naive formula amplifies epsilon by the sampling rate linearly, which is too little "
        "noise while a step's own epsilon is large; calibration uses the amplification that is "
        "proved. More epochs do not cost a constant factor under the moments accountant: they "
        "cost the square root of their number. A bound that does not grow needs hidden iterates.",
    )
