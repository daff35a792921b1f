"""Figures about hidden iterates: plateaus, one pass over the records, and moduli of steps.

From Altschuler and Talwar (2022), Asoodeh, Diaz and Calmon (2020), and Bravo et al. (2024).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from dplateau.algorithms import Ball, Holder, LossGeometry, NoisyGD, NoisySGD, OnePassSGD, Run
from dplateau.audit.lower_curves import lower_over_steps
from dplateau.bounds import literature
from dplateau.bounds.historical import burn_in
from dplateau.bounds.registry import bound_named
from dplateau.certificates import epsilon_over_steps
from dplateau.curves import GaussianCurve, PrivacyCurve, RenyiCurve
from dplateau.ground.types import FloatArray
from dplateau.plots.panels import Line, Panel, Surface
from dplateau.reproduce.exhibit import Exhibit, Quoted
from dplateau.reproduce.published_forms import (
    corollary_3_7,
    corollary_3_8,
    corollary_3_9,
    corollary_3_9_logarithm,
    theorem_3_4,
)

DELTA = 1e-5


def _claim(name: str, run: Run) -> PrivacyCurve:
    bound = bound_named(name)
    return bound.curve(run, bound.plan(run, DELTA))


def _of_record(name: str, run: Run, record: int) -> PrivacyCurve:
    """Return a bound's curve of a record, counted from 1."""
    bound: Any = bound_named(name)
    curve: PrivacyCurve = bound.record_curve(run, record - 1)
    return curve


def _short(number: float) -> str:
    """Return a number that a paper states, as it states it."""
    return f"{number:g}"


def _deltas(curve: PrivacyCurve, epsilons: FloatArray) -> FloatArray:
    return np.array([curve.delta(float(epsilon)) for epsilon in epsilons])


# ---- the plateau --------------------------------------------------------------------------------


def plateau() -> Exhibit:
    """Epsilon over steps on a bounded domain: it grows, and then it stops."""
    run = NoisyGD(
        n=100,
        steps=1,
        learning_rate=0.1,
        noise_std=0.2,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
        domain=Ball(0.5),
        release="last",
    )
    end = burn_in(run)
    steps = np.unique(np.geomspace(10, 20 * end, 60).astype(np.int64))
    curve = epsilon_over_steps(run, DELTA, steps)
    x = steps.astype(float)
    lower = lower_over_steps(run, DELTA, steps[::6])
    lines = (
        Line("every iterate released", x, curve.epsilon("gdp_composition")),
        Line("hidden iterates", x, curve.best, "ours"),
        Line("exact lower bound", lower.at.astype(float), lower.epsilon, "lower"),
    )
    lengths = np.array([end, 10 * end, 100 * end])
    after = epsilon_over_steps(run, DELTA, lengths)
    rows = tuple(
        Quoted(
            f"epsilon after {count} steps ({count // end} D n / (L eta))", float(all_), float(last)
        )
        for count, all_, last in zip(
            lengths, after.epsilon("gdp_composition"), after.best, strict=True
        )
    )
    return Exhibit(
        "plateau",
        "The privacy loss stops growing",
        literature.altschuler_talwar("Figure 1"),
        "The figure is a sketch without constants; here n = 100, L = 1, D = 1, eta = .1, noise "
        ".2 on the average, delta = 1e-5.",
        (Panel("convex losses on a ball", "steps", "epsilon", lines, x_scale="log"),),
        "composition",
        "hidden",
        rows,
        "The paper's proof for sampled batches conditions on noise that depends on the batch, "
        "and its definition of the sampled divergence is the smaller of the two orders; the "
        "bounds here advance one step at a time and use the larger. The plateau itself stands.",
    )


# ---- one pass -----------------------------------------------------------------------------------

_FIGURE_2: dict[str, Any] = {
    "n": 40,
    "learning_rate": 0.5,
    "noise_std": 2.0,
    "loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5),
    "domain": Ball(0.5),
    "neighbors": "replace",
    "release": "last",
}


def one_pass() -> Exhibit:
    """Delta over epsilon of the first, a middle and a late record; convex losses."""
    run = OnePassSGD(**_FIGURE_2)
    return Exhibit(
        "one-pass",
        "One pass: each record's own privacy",
        literature.asoodeh_diaz_calmon("Figure 2"),
        "n = 40, sigma = 2, L = 1, beta = .5, eta = .5, D = 1, convex.",
        _record_panels(run, (1, 20, 39)),
        "Theorem 4",
        "ours",
        _record_rows(run, ((20, 0.1), (20, 0.5), (20, 1.0), (39, 0.1), (39, 1.0))),
        "Neither family wins everywhere. The hybrid follows the shift program for some steps and "
        "contracts the hockey stick afterwards; it is never worse than either.",
    )


def one_pass_strongly() -> Exhibit:
    """Do the same for strongly convex losses."""
    factor = math.sqrt(1 - 2 * 0.7 * 0.5 * 0.2 / (0.5 + 0.2))
    run = OnePassSGD(
        **{**_FIGURE_2, "learning_rate": 0.7, "noise_std": 1.0, "l2": (1 - factor) / 0.7}
    )
    sharp = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5, strong_convexity=0.2)
    ours = OnePassSGD(**{**_FIGURE_2, "learning_rate": 0.7, "noise_std": 1.0, "loss": sharp})
    return Exhibit(
        "one-pass-strongly-convex",
        "One pass, strongly convex",
        literature.asoodeh_diaz_calmon("Figure 3"),
        "n = 40, sigma = 1, L = 1, beta = .5, rho = .2, eta = .7, D = 1.",
        _record_panels(run, (20, 30, 39), ours),
        "Theorem 4",
        "ours",
        _record_rows(run, ((20, 1.0), (30, 1.0), (39, 1.0), (39, 2.0)), ours),
        "The paper's factor is sqrt(1 - 2 eta beta rho / (beta + rho)) = .894; the sharper one "
        "is max(1 - eta rho, eta beta - 1) = .86. Its GDP columns ignore the wall, which is "
        "nearer than the record's own step.",
    )


def _record_panels(
    run: Run, records: tuple[int, ...], ours: Run | None = None
) -> tuple[Panel, ...]:
    epsilons = np.linspace(0.02, 2.0, 60)
    panels = []
    for record in records:
        lines = (
            Line(
                "Balle et al. (2019)",
                epsilons,
                _deltas(_of_record("mixing_rdp", run, record), epsilons),
            ),
            Line(
                "Theorem 4",
                epsilons,
                _deltas(_of_record("one_pass_hockey_stick", run, record), epsilons),
            ),
            Line(
                "ours",
                epsilons,
                _deltas(_of_record("one_pass_hybrid", ours or run, record), epsilons),
                "ours",
            ),
        )
        panels.append(Panel(f"record {record}", "epsilon", "delta", lines, y_limits=(1e-20, 2.0)))
    return tuple(panels)


def _record_rows(
    run: Run, places: tuple[tuple[int, float], ...], ours: Run | None = None
) -> tuple[Quoted, ...]:
    return tuple(
        Quoted(
            f"delta of record {record} at epsilon {_short(epsilon)}",
            _of_record("one_pass_hockey_stick", run, record).delta(epsilon),
            _of_record("one_pass_hybrid", ours or run, record).delta(epsilon),
        )
        for record, epsilon in places
    )


_RANDOM_STOPS: tuple[tuple[str, str, Literal["ours", "paper"]], ...] = (
    ("Feldman et al. (2018), H_T", "random_stop_rdp", "paper"),
    ("slides, any Lipschitz loss", "random_stop_lipschitz", "paper"),
    ("ours", "random_stop_mean", "ours"),
)


def random_stop() -> Exhibit:
    """Delta over epsilon of a run that stops at a random step."""
    panels, rows = [], []
    for eta, sigma in ((0.05, 5.0), (0.1, 3.0)):
        run = OnePassSGD(
            n=100,
            learning_rate=eta,
            noise_std=sigma,
            loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
            domain=Ball(0.5),
            neighbors="replace",
            release="random_stop",
        )
        epsilons = np.linspace(0.05, 3.0, 50)
        lines = tuple(
            Line(title, epsilons, _deltas(_claim(name, run), epsilons), kind)
            for title, name, kind in _RANDOM_STOPS
        )
        title = f"eta = {eta:g}, sigma = {sigma:g}"
        panels.append(Panel(title, "epsilon", "delta", lines, y_limits=(1e-18, 1.0)))
        rows += [
            Quoted(
                f"{title}: delta at epsilon {_short(epsilon)}",
                _claim("random_stop_lipschitz", run).delta(epsilon),
                _claim("random_stop_mean", run).delta(epsilon),
            )
            for epsilon in (0.5, 1.0, 2.0)
        ]
    return Exhibit(
        "random-stop",
        "Stopping at a random step",
        literature.asoodeh_online("Corollary on randomly stopped SGD, both panels of the slides"),
        "T = 100, L = 1, D = 1 (the slides set D = 1 without saying so).",
        tuple(panels),
        "slides",
        "ours",
        tuple(rows),
        "Theorem 26 of Feldman et al. has log T where its proof gives the harmonic number H_T, "
        "and the slides' last corollary multiplies by alpha twice. Ours averages the best bound "
        "of every step; it needs convexity, the slides' statement does not.",
    )


# ---- moduli beyond contraction ------------------------------------------------------------------


def table_1() -> Exhibit:
    """Read the rows of Table 1 as epsilon: by Rényi divergences, and lifted to GDP."""
    eta, nu, diameter, steps = 0.1, 0.5, 1.0, 100
    lipschitz, beta, kappa, dissipation = 1.0, 1.0, 0.5, 0.05
    p, holder = 0.5, 1.0
    jump_smooth = (
        2 * eta ** (1 / (1 - p)) * math.sqrt((1 - p) / (1 + p)) * (holder / 2) ** (1 / (1 - p))
    ) ** 2
    c_strong = 1 - 2 * eta * kappa + (eta * beta) ** 2
    rows_by_class = {
        "convex, Lipschitz": corollary_3_7(diameter, (2 * eta * lipschitz) ** 2, nu, steps),
        "convex, weakly smooth (p = .5)": corollary_3_7(diameter, jump_smooth, nu, steps),
        "strongly convex, smooth": corollary_3_8(diameter, c_strong, nu, steps),
        "convex, smooth": corollary_3_8(diameter, 1.0, nu, steps),
        "nonconvex, smooth": corollary_3_8(diameter, (1 + eta * beta) ** 2, nu, steps),
        "strongly dissipative, smooth": corollary_3_9_logarithm(
            diameter, c_strong, 2 * eta * dissipation, nu, steps
        ),
    }
    sharper = dict(rows_by_class)
    sharper["strongly dissipative, smooth"] = corollary_3_9(
        diameter, c_strong, 2 * eta * dissipation, nu, steps
    )
    sharper["strongly convex, smooth"] = corollary_3_8(
        diameter, max(1 - eta * kappa, eta * beta - 1) ** 2, nu, steps
    )
    orders = 1 + np.geomspace(1e-2, 1e3, 300)
    rows = tuple(
        Quoted(
            name,
            RenyiCurve(tuple(orders.tolist()), tuple((orders * mu2 / 2).tolist())).epsilon(DELTA),
            GaussianCurve(math.sqrt(sharper[name])).epsilon(DELTA),
        )
        for name, mu2 in rows_by_class.items()
    )
    return Exhibit(
        "moduli",
        "Six classes of losses",
        literature.bravo("Table 1"),
        "Two starts a diameter apart: D = 1, T = 100, eta = .1, noise .5 per step, L = 1, beta "
        "= 1, kappa = .5, lambda = .05; epsilon at delta = 1e-5.",
        (),
        "Rényi, as in the table",
        "GDP",
        rows,
        "The same sum of squares bounds the trade-off function, not only Rényi divergences, and "
        "that is strictly stronger. Strong convexity has the smaller modulus max(1 - eta kappa, "
        "eta beta - 1), and the dissipative row needs no logarithm.",
    )


def weakly_smooth() -> Exhibit:
    """Draw the published bound over step sizes for several Hölder exponents."""
    n, lipschitz, constant, diameter = 1000, 1.0, 2.0, 1.0
    etas = np.geomspace(1 / n, n**-0.5, 50)
    lines = []
    for p in (0.2, 0.4, 0.6, 1.0):
        rounds = np.ceil(diameter * n / (4 * etas * lipschitz))
        added = np.zeros_like(etas)
        if p < 1:
            power = etas ** (2 * p / (1 - p)) * (constant / 2) ** (2 / (1 - p))
            added = (n / (2 * lipschitz)) ** 2 * power * (1 - p) / (1 + p) * np.log(math.e * rounds)
        lines.append(Line(f"p = {p:g}", etas, 2 * rounds + added))
    rows = []
    for p in (0.4, 0.6, 0.9):
        run = NoisySGD(
            n=n,
            batch_size=20,
            steps=200_000,
            learning_rate=0.01,
            noise_multiplier=60.0,
            loss=LossGeometry(lipschitz=lipschitz, convex=True, holder=Holder(p, constant)),
            domain=Ball(diameter / 2),
            neighbors="replace",
            release="last",
        )
        published = bound_named("bravo_weakly_smooth")
        theirs = published.curve(run, published.plan(run, DELTA)).epsilon(DELTA)
        ours = bound_named("poisson_replace_modulus")
        rows.append(
            Quoted(
                f"epsilon, p = {p:g}, eta = .01, batches of 20, noise 60",
                theirs,
                ours.curve(run, ours.plan(run, DELTA)).epsilon(DELTA),
            )
        )
    return Exhibit(
        "weakly-smooth",
        "Weakly smooth losses",
        literature.bravo("Figure 1 and Theorem 5.2"),
        "n = 1000, L = 1, M = 2, D = 1; step sizes from 1/n to 1/sqrt(n).",
        (
            Panel(
                "published: 2 T + V over the step size",
                "learning rate",
                "bound, up to a factor",
                tuple(lines),
                x_scale="log",
            ),
        ),
        "Theorem 5.2",
        "ours",
        tuple(rows),
        "The paper takes the map of a Poisson batch for a contraction although it divides by "
        "the constant batch size: false for batches above it. Here the largest batch is bounded "
        "and the chance of a larger one is charged to delta.",
    )


def energy() -> Exhibit:
    """Draw the sum of squares over two distances: not convex, and solved all the same."""
    diameter, jump = 5.0, 4.0
    noise = np.array([1.0, 0.01, 0.4])
    first, second = np.meshgrid(np.linspace(0.0, 6.0, 240), np.linspace(0.0, 6.0, 240))

    def cost(u1: FloatArray | float, u2: FloatArray | float) -> Any:
        moves = (
            math.sqrt(diameter**2 + jump) - u1,
            np.sqrt(np.square(u1) + jump) - u2,
            np.sqrt(np.square(u2) + jump),
        )
        return sum(np.square(move / sd) for move, sd in zip(moves, noise, strict=True))

    # The cost to go is A u^2 + B: the best distances follow one after the other.
    inverse = [0.0]
    for sd in noise[::-1]:
        inverse.insert(0, inverse[0] + sd**2)
    u = [diameter]
    for t in range(2):
        weight = 1 / inverse[t + 1]
        u.append(math.sqrt(u[-1] ** 2 + jump) / (1 + weight * noise[t] ** 2))
    closed = theorem_3_4(diameter, np.ones(3), np.full(3, jump), noise**2)
    grid = float(np.min(cost(first, second)))
    surface = Surface(first, second, np.log10(cost(first, second)), (u[1], u[2]))
    panel = Panel(
        "sum of squares over two distances", "u1", "u2", surface=surface, y_scale="linear"
    )
    return Exhibit(
        "shift-energy",
        "The shift program is not convex",
        literature.bravo("Figure 2"),
        "D = 5, eta = 1, L = 1, noise 1, .01, .4.",
        (panel,),
        "least on a grid of 240 x 240",
        "closed form",
        (
            Quoted("sum of squares", grid, closed),
            Quoted("the same, at the distances found", None, float(cost(u[1], u[2]))),
        ),
        "The paper proves a local minimum by second-order conditions. Dynamic programming "
        "backwards shows that the cost to go is quadratic, so the closed form is the global "
        "minimum.",
    )
