"""Honest papers other than certificates of one run: compositions and mixing certificates, to forge.

The compositions are those that training writes (whitening and gradients, a search for ranges, a
score of held-out rows by the coin of each), and those that people put together: what other software
accounts for, repeats, groups, one composition inside another.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from catalogue import RUNS, SMOOTH, STEPS, WEAKLY_SMOOTH
from dplateau import Ball, Body, Box, LossGeometry, NoisySGD, ProjectedLangevin
from dplateau.algorithms import Run
from dplateau.bounds.registry import bound_named
from dplateau.certificates import Certificate, certify, compose, foreign
from dplateau.certificates.composition import Part
from dplateau.engines.moments import moments_run
from dplateau.engines.ranges import ranges_run
from dplateau.estimators.scoring import NoisyScore
from dplateau.sampling import certify_mixing
from dplateau.tables.release import together

Found = dict[str, Any]
DELTA = 1e-5
COMPOSITION, MIXING = "composition", "mixing"
# Runs whose neighbors differ in several records, and the bounds about them that are forged.
_GROUPED: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("full batch", 3, ("gd_contraction", "iteration_rdp", "gdp_composition")),
    ("full batch, heavy ball", 2, ("momentum",)),
    ("Laplace", 2, ("pld_composition",)),
    ("one pass, domain", 2, ("one_pass_hockey_stick", "one_pass_contraction")),
    ("Poisson, short", 3, ("poisson_blocks", "pld_composition")),
    ("Poisson, replace, short", 2, ("poisson_blocks_replace", "every_batch")),
    ("Poisson, heavy ball", 3, ("momentum",)),
    ("Poisson, nonconvex", 2, ("poisson_modulus",)),
    ("narrow domain", 2, ("poisson_recursion",)),
    ("fixed size", 2, ("fixed_size_averaged", "every_batch")),
    ("shuffled once", 2, ("shuffle_once_average",)),
    ("checkpoints, Poisson", 2, ("checkpoints_poisson",)),
    ("checkpoints, full batch", 3, ("checkpoints_full_batch",)),
)
GROUPS: dict[str, Run] = {
    f"{name}, group of {size}": RUNS[name].replace(group_size=size) for name, size, _ in _GROUPED
}
# With as much momentum as the catalogue's run no norm shrinks: nothing would be certified.
GROUPS["Poisson, heavy ball, group of 3"] = RUNS["Poisson, heavy ball"].replace(
    group_size=3, momentum=0.3
)


def grouped() -> list[tuple[str, str]]:
    """Return the runs about groups, each with the bounds that are forged."""
    bounds = (bounds for _, _, bounds in _GROUPED)
    return [(name, one) for name, each in zip(GROUPS, bounds, strict=True) for one in each]


def _proved(name: str, *bounds: str) -> Certificate:
    wanted = [bound_named(bound) for bound in bounds] or None
    return certify({**RUNS, **GROUPS}[name], DELTA, bounds=wanted)


def _moments(run: Run, noise_multiplier: float, feature_norm: float) -> Certificate:
    described = moments_run(
        n=run.n,
        feature_norm=feature_norm,
        noise_multiplier=noise_multiplier,
        neighbors=run.neighbors,
        group_size=run.group_size,
    )
    return certify(described, DELTA)


def _whitened(name: str, *bounds: str) -> list[Part]:
    run = {**RUNS, **GROUPS}[name]
    return [_moments(run, 4.0, 1.5), _moments(run, 5.0, 1.0), _proved(name, *bounds)]


def _ranged(name: str) -> list[Part]:
    run = RUNS[name]
    search = ranges_run(
        n=run.n, columns=7, noise_multiplier=20.0, neighbors=run.neighbors, group_size=1
    )
    return [certify(search, DELTA, bounds=[bound_named("gdp_composition")]), _proved(name)]


def _scored(name: str) -> Part:
    run = {**RUNS, **GROUPS}[name]
    score = NoisyScore(300, 0.5, classes=True)
    return together(_proved(name), score.certificate(run.neighbors, run.group_size, DELTA))


def _declared(**numbers: float) -> Part:
    return foreign(neighbors="add_remove", **numbers)


def _both(*parts: Part) -> Part:
    return compose(parts, DELTA)


_COMPOSITIONS: dict[str, Callable[[], Part]] = {
    "whitened, full batch": lambda: _both(*_whitened("full batch", "gd_contraction")),
    "whitened, momentum": lambda: _both(*_whitened("full batch, heavy ball", "momentum")),
    "whitened, Poisson": lambda: _both(*_whitened("Poisson, short", "poisson_blocks")),
    "whitened, group": lambda: _both(*_whitened("full batch, group of 3", "gd_contraction")),
    "ranges": lambda: _both(*_ranged("full batch, replace")),
    "ranges, whitened, Poisson": lambda: _both(
        *_ranged("Poisson, short"), _moments(RUNS["Poisson, short"], 4.0, 1.0)
    ),
    "score by coin": lambda: _scored("full batch"),
    "score by coin, Poisson": lambda: _scored("Poisson, short"),
    "score, group": lambda: _scored("full batch, group of 3"),
    "averages": lambda: _both(_proved("shuffled once", "shuffle_once_average")),
    "positions, checkpoints": lambda: _both(
        _proved("checkpoints, shuffled once", "checkpoints_shuffled"), _declared(mu=0.2)
    ),
    "checkpoints twice": lambda: _both(
        *[_proved("checkpoints, Poisson", "checkpoints_poisson")] * 2
    ),
    "declared": lambda: _both(
        _declared(epsilon=0.1, delta=1e-7), _declared(epsilon=0.2, delta=0.0)
    ),
    "declared, often": lambda: _both(*[_declared(epsilon=1e-3, delta=1e-9)] * 40),
    "declared and proved": lambda: _both(
        _declared(mu=0.3), _declared(epsilon=0.2, delta=1e-7), _proved("Poisson, short")
    ),
    "composed again": lambda: _both(
        _both(_proved("full batch, one step"), _declared(mu=0.1)), _proved("sampled Laplace")
    ),
    "composed again, disjoint": lambda: _both(_scored("full batch"), _declared(mu=0.1)),
}


def _langevin(domain: Any, eta: Any, **known: Any) -> Run:
    return ProjectedLangevin(
        steps=len(eta) if isinstance(eta, list) else 1,
        learning_rate=eta,
        domain=domain,
        loss=LossGeometry(**{"lipschitz": 2.0, "convex": True, **known}),
        release="last",
    )


CHAINS: dict[str, tuple[Run, dict[str, float]]] = {
    "Langevin": (_langevin(Box(-1.0, 1.0), 0.05, smoothness=3.0), {"tv": 0.05}),
    "Langevin, one block": (_langevin(Body(diameter=1.0), 0.02, smoothness=1.0), {"steps": 7}),
    "Langevin, strongly convex": (
        _langevin(Ball(2.0), 0.05, smoothness=3.0, strong_convexity=1.0),
        {"tv": 0.2},
    ),
    "Langevin, corners": (_langevin(Box(-1.0, 1.0), 0.05), {"steps": 120}),
    "Langevin, expanding": (
        _langevin(Box(-0.5, 0.5), 0.05, convex=False, smoothness=4.0),
        {"steps": 60},
    ),
    "Langevin, dissipative": (
        _langevin(Box(-1.0, 1.0), 0.05, convex=False, smoothness=9.0, dissipativity=(2.7, 1.5)),
        {"tv": 0.5},
    ),
    "Langevin, schedule": (
        _langevin(Body(diameter=1.0), [0.05] * 8 + [0.02] * 4, smoothness=1.0),
        {},
    ),
    "mini-batches": (
        NoisySGD(
            n=200, batch_size=20, steps=1, iterate_std=0.3, domain=Ball(0.7), **{**STEPS, "l2": 0.5}
        ),
        {"tv": 0.1},
    ),
    "mini-batches of one size": (
        NoisySGD(
            n=50,
            batch_size=5,
            steps=1,
            noise_multiplier=3.0,
            sampling="fixed",
            neighbors="replace",
            domain=Box(-0.5, 0.5),
            learning_rate=0.4,
            loss=SMOOTH,
            release="last",
        ),
        {"steps": 40},
    ),
    "mini-batches, weakly smooth": (
        NoisySGD(
            n=400,
            batch_size=40,
            steps=1,
            noise_std=0.8,
            domain=Ball(0.4),
            learning_rate=0.2,
            loss=WEAKLY_SMOOTH,
            release="last",
        ),
        {"steps": 50},
    ),
}


def papers() -> list[tuple[str, str]]:
    """Return the names of all compositions and mixing certificates, each with its kind."""
    return [*((name, COMPOSITION) for name in _COMPOSITIONS), *((name, MIXING) for name in CHAINS)]


@cache
def honest_paper(name: str, kind: str) -> Found:
    """Return an honest paper as JSON data."""
    if kind == COMPOSITION:
        made: Any = _COMPOSITIONS[name]()
    else:
        run, wanted = CHAINS[name]
        made = certify_mixing(run, **wanted)
    found: Found = json.loads(made.to_json())
    return found
