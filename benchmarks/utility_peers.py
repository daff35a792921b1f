"""The ways in use that utility.py compares us with, each at the best of a wide grid.

Settings are chosen by their score on the test set, which flatters them, and then run with other
seeds. Runs that differ in rate, noise or seed alone walk side by side, as columns of one matrix:
that is the same recursion as the library's (a test holds them together), many times as fast.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from utility_data import ROOT, Data

from dplateau.algorithms import NoisyGD, NoisySGD
from dplateau.bounds.registry import bound_named
from dplateau.certificates import calibrate
from dplateau.losses import Huber, Softmax
from dplateau.planning.forecast import Model, model_of

PEER = ROOT / ".venv-peers-diffprivlib" / "bin" / "python"
DELTA = 1e-5
MOMENTUM, SGD, OBJECTIVE, ADASSP, PEERLIB = (
    "momentum GD, tuned", "DP-SGD (PLD), tuned", "objective perturbation, tuned", "AdaSSP, tuned",
    "diffprivlib, best C",
)  # fmt: skip
PEERS = (MOMENTUM, SGD, OBJECTIVE, ADASSP, PEERLIB)
RATES = (0.01, 0.05, 0.2, 1.0, 3.0, 10.0, 30.0)
STEPS = (50, 200, 600, 2000)
BATCHES, EPOCHS = (256, 1024), (3, 12, 50)
RIDGES = {OBJECTIVE: (1, 4, 16, 64, 256, 1024), ADASSP: (0.1, 0.3, 1.0, 3.0, 10.0)}
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
# Full batches of more numbers than this take hours on the whole grid, so it is thinned there.
LARGE = 2e7
TRIAL = 1000
Score = tuple[float, float | None]
Fit = tuple[float, float | None, float]  # score, AUC, seconds
Setting = dict[str, float]


def applies(data: Data, method: str) -> bool:
    """Return whether a method is made for such targets."""
    if method in (OBJECTIVE, PEERLIB):
        return not data.regression and (data.classes == 2 or method == PEERLIB)
    return method != ADASSP or data.regression


def scores_of(
    method: str, data: Data, epsilons: Sequence[float], seeds: Sequence[int]
) -> Iterator[tuple[float, Setting, list[Fit]]]:
    """Yield, for each epsilon, the best setting of a method and its score with every seed."""
    if method in (MOMENTUM, SGD):
        yield from _walkers(method, data, epsilons, seeds)
        return
    for epsilon in epsilons:
        find = _fitted_by_diffprivlib if method == PEERLIB else _solved
        yield epsilon, *find(method, data, epsilon, seeds)


# --- peers that walk in noisy gradients --------------------------------------------------------


def model_for(data: Data) -> Model:
    """Return loss, gradient bound and constant feature: those that our estimators use."""
    loss = "squared" if data.regression else "logistic"
    classes = max(2, data.classes)
    return model_of(loss, classes, data_norm=1.0, fit_intercept=True, target_bound=1.0)


def with_constant(rows: Any, size: float) -> Any:
    """Append the constant feature."""
    return np.hstack([rows, np.full((len(rows), 1), size, dtype=rows.dtype)])


def kept_sparse(rows: Any) -> Any:
    """Return the nonzero entries alone where they are few."""
    return sparse.csr_array(rows) if np.count_nonzero(rows) < 0.1 * rows.size else rows


@dataclass(frozen=True)
class Length:
    """How long a run is, and its batches: of all records where ``batch`` is None."""

    n: int
    steps: int
    batch: int | None = None

    @property
    def momentum(self) -> float:
        """Return the momentum: full batches have it."""
        return 0.9 if self.batch is None else 0.0


@lru_cache(maxsize=512)
def multiplier(length: Length, epsilon: float) -> float:
    """Return the noise multiplier that releasing every iterate needs."""
    sizes: Any = {"n": length.n, "steps": length.steps, "release": "all"}
    sizes |= {"learning_rate": 0.1, "noise_multiplier": 1.0}
    if length.batch is None:
        run, bound = NoisyGD(**sizes), "gdp_composition"
    else:
        run, bound = NoisySGD(batch_size=length.batch, **sizes), "pld_composition"
    found = calibrate(run, epsilon, DELTA, bounds=[bound_named(bound)])
    return float(found.run.noise_multiplier)


@dataclass(frozen=True)
class Lane:
    """One of the runs that walk side by side: its rate, noise multiplier and seed."""

    rate: float
    noise: float
    seed: int


def slopes(model: Model, scores: Any, targets: Any, norms: Any) -> Any:
    """Return the derivatives by the scores (records, lanes, outputs), gradients clipped."""
    if isinstance(model.loss, Huber):
        return np.clip(scores - targets[:, None, None], -model.loss.threshold, model.loss.threshold)
    assert model.clip is not None
    most = (model.clip / norms)[:, None, None]
    if isinstance(model.loss, Softmax):
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        scores[np.arange(len(targets)), :, targets] -= 1
        sizes = np.sqrt(np.einsum("nlc,nlc->nl", scores, scores))[:, :, None]
        scores *= np.minimum(1, most / np.maximum(sizes, 1e-30))
        return scores
    signs = targets[:, None, None]
    return -signs * np.minimum(1 / (1 + np.exp(np.clip(signs * scores, -60, 60))), most)


def walk(data: Data, length: Length, lanes: Sequence[Lane]) -> tuple[Any, Any]:
    """Return the last weights and the mean of the second half, as (features, lanes, outputs).

    Batches are drawn by the first lane's seed: lanes in Poisson batches should share one.
    """
    model = model_for(data)
    rows = with_constant(data.rows, model.intercept)
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-30)
    targets = data.targets if data.regression or data.classes > 2 else 2 * data.targets - 1
    if data.classes <= 2:
        targets = targets.astype(rows.dtype)
    outputs = model.loss.n_outputs
    shape = (rows.shape[1], len(lanes), outputs)
    rates = np.array([lane.rate for lane in lanes], rows.dtype)[:, None]
    scale = model.loss.geometry(model.feature_norm * (1 + 1e-6), model.clip).lipschitz
    stds = np.array([scale * lane.noise for lane in lanes], rows.dtype)[:, None]
    # Lanes of one seed share their noise, up to its size: settings are compared on equal terms.
    sources = {lane.seed: np.random.default_rng((lane.seed, 1)) for lane in lanes}
    places = [list(sources).index(lane.seed) for lane in lanes]
    draws = np.random.default_rng((lanes[0].seed, 2))
    weights, velocity, total = (np.zeros(shape, rows.dtype) for _ in range(3))
    size = length.n if length.batch is None else length.batch

    rows = kept_sparse(rows)
    # Dense records are taken in pieces that fit the cache.
    size_of_piece = length.n if sparse.issparse(rows) else 4096
    pieces = [slice(i, i + size_of_piece) for i in range(0, length.n, size_of_piece)]
    parts = [(rows[piece], targets[piece], norms[piece]) for piece in pieces]

    def gradient(at: Any, x: Any, there: Any, sizes: Any) -> Any:
        scores = (x @ at.reshape(len(at), -1)).reshape(x.shape[0], *shape[1:])
        found = slopes(model, scores, there, sizes)
        return (x.T @ found.reshape(x.shape[0], -1)).reshape(shape)

    kept = max(1, length.steps // 2)
    for step in range(length.steps):
        ahead = weights + length.momentum * velocity
        if length.batch is not None:
            chosen = np.flatnonzero(draws.random(length.n) < length.batch / length.n)
            parts = [(rows[chosen], targets[chosen], norms[chosen])]
        sums = sum(gradient(ahead, *part) for part in parts)
        normals = [s.standard_normal((len(weights), outputs), np.float32) for s in sources.values()]
        sums += stds * np.stack(normals, axis=1)[:, places]
        velocity = length.momentum * velocity - rates * (sums / size)
        weights = weights + velocity
        if step >= length.steps - kept:
            total += weights
    return weights, total / kept


def measured(data: Data, weights: Any) -> list[Score]:
    """Return the score of every lane."""
    rows = with_constant(data.test_rows, model_for(data).intercept)
    return [data.score(rows @ weights[:, lane]) for lane in range(weights.shape[1])]


def lengths_for(method: str, n: int) -> list[Length]:
    """Return the lengths that are tried, the shortest first."""
    if method == MOMENTUM:
        return [Length(n, steps) for steps in STEPS]
    sizes = sorted({min(batch, n // 4) for batch in BATCHES})
    return [Length(n, round(e * n / b), b) for e, b in itertools.product(EPOCHS, sizes)]


def _walkers(
    method: str, data: Data, epsilons: Sequence[float], seeds: Sequence[int]
) -> Iterator[tuple[float, Setting, list[Fit]]]:
    chosen = tuned(data, epsilons, lengths_for(method, len(data.targets)))
    found: dict[float, list[Fit]] = {epsilon: [] for epsilon in epsilons}
    for length in {length for _, length, _, _ in chosen.values()}:
        here = [epsilon for epsilon in epsilons if chosen[epsilon][1] == length]
        together = [tuple(seeds)] if length.batch is None else [(seed,) for seed in seeds]
        for group in together:
            pairs = list(itertools.product(here, group))
            lanes = [Lane(chosen[e][2], multiplier(length, e), seed) for e, seed in pairs]
            began = time.perf_counter()
            ends = [measured(data, weights) for weights in walk(data, length, lanes)]
            share = (time.perf_counter() - began) / len(lanes)
            for place, (epsilon, _) in enumerate(pairs):
                mean = chosen[epsilon][3]
                found[epsilon].append((*ends[mean][place], share))
    for epsilon in epsilons:
        _, length, rate, mean = chosen[epsilon]
        setting: Setting = {"steps": length.steps, "rate": rate, "mean": mean}
        if length.batch is not None:
            setting["batch"] = length.batch
        yield epsilon, setting, found[epsilon]


Best = tuple[float, Length, float, int]


def tuned(data: Data, epsilons: Sequence[float], lengths: list[Length]) -> dict[float, Best]:
    """Return the best (score, length, rate, last or mean) at each epsilon, by one seed.

    The whole grid; but full batches of a large data set try every rate at the shortest length
    only, then the best rate and its neighbors, and longer runs for as long as they helped.
    """
    thin = data.rows.size >= LARGE and lengths[0].batch is None
    best: dict[float, Best] = {}
    going = dict.fromkeys(epsilons, RATES)
    for length in lengths:
        pairs = [(epsilon, rate) for epsilon, rates in going.items() for rate in rates]
        if not pairs:
            break
        lanes = [Lane(rate, multiplier(length, epsilon), TRIAL) for epsilon, rate in pairs]
        ends = [measured(data, weights) for weights in walk(data, length, lanes)]
        for epsilon in list(going):
            tries = [
                (ends[mean][place][0], length, rate, mean)
                for place, (level, rate) in enumerate(pairs)
                for mean in (0, 1)
                if level == epsilon
            ]
            top = max(tries, key=lambda one: one[0])
            helped = epsilon not in best or top[0] > best[epsilon][0]
            if helped:
                best[epsilon] = top
            if thin:
                del going[epsilon]
                if helped:
                    place = RATES.index(top[2])
                    going[epsilon] = RATES[max(0, place - 1) : place + 2]
    return best


# --- peers that solve a noisy problem ----------------------------------------------------------


def _solved(
    method: str, data: Data, epsilon: float, seeds: Sequence[int]
) -> tuple[Setting, list[Fit]]:
    """Return the best ridge, by a few seeds (one would pick fragile ones), and its scores."""
    solve = objective_perturbation if method == OBJECTIVE else ada_ssp
    tries = range(TRIAL, TRIAL + (1 if data.rows.size >= LARGE else 5))

    def mean(ridge: float) -> float:
        return sum(solve(data, epsilon, ridge, seed)[0] for seed in tries)

    ridge = max(RIDGES[method], key=mean)
    began = time.perf_counter()
    found = [solve(data, epsilon, ridge, seed) for seed in seeds]
    share = (time.perf_counter() - began) / len(seeds)
    return {"ridge": ridge}, [(*one, share) for one in found]


def objective_perturbation(data: Data, epsilon: float, ridge: float, seed: int) -> Score:
    """Minimize logistic losses plus a random linear term and a ridge."""
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = kept_sparse(with_constant(data.rows, 0.5))
    signs, norm = 2.0 * data.targets - 1, math.hypot(1.0, 0.5)
    strength = ridge * 2 * (norm**2 / 4) / epsilon
    std = norm * math.sqrt(8 * math.log(2 / DELTA) + 4 * epsilon) / epsilon
    linear = np.random.default_rng(seed).normal(size=rows.shape[1]) * std

    def loss(weights: Any) -> tuple[float, Any]:
        margins = signs * (rows @ weights.astype(rows.dtype))
        value = np.logaddexp(0, -margins).sum() + weights @ (strength / 2 * weights + linear)
        slope = (-signs * expit(-margins)).astype(rows.dtype)
        return value, (rows.T @ slope).astype(float) + strength * weights + linear

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
    return data.score((with_constant(data.test_rows, 0.5) @ found)[:, None])


def ada_ssp(data: Data, epsilon: float, ridge: float, seed: int) -> Score:
    """Solve least squares from noisy moments, with a ridge that follows their noise."""
    rows, rng = with_constant(data.rows, 0.5).astype(float), np.random.default_rng(seed)
    p, square = rows.shape[1], 1.25
    moments, log = rows.T @ rows, math.log(6 / DELTA)
    std = math.sqrt(log) * square / (epsilon / 3)
    least = np.linalg.eigvalsh(moments)[0] + std * rng.normal() - log * square / (epsilon / 3)
    spread = std * math.sqrt(p * math.log(2 * p * p / 0.05))
    strength = max(0.0, ridge * spread - max(0.0, least))
    upper = np.triu(rng.normal(size=(p, p)))
    noise = upper + np.triu(upper, 1).T
    noisy = moments + std * noise + strength * np.eye(p)
    answers = rows.T @ data.targets + std / math.sqrt(square) * rng.normal(size=p)
    weights = np.linalg.solve(noisy, answers)
    return data.score((with_constant(data.test_rows, 0.5) @ weights)[:, None])


def _fitted_by_diffprivlib(
    method: str, data: Data, epsilon: float, seeds: Sequence[int]
) -> tuple[Setting, list[Fit]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, rows=data.rows, labels=data.targets, test_rows=data.test_rows,
                 test_labels=data.test_targets)  # fmt: skip

        def scores(penalty: float, seeds: Sequence[int]) -> list[float]:
            script = ROOT / "benchmarks" / "peers" / "diffprivlib_accuracy.py"
            settings = json.dumps({"epsilon": epsilon, "C": penalty, "seeds": list(seeds)})
            done = subprocess.run([PEER, script, path, settings], capture_output=True, text=True,
                                  check=True)  # fmt: skip
            found: list[float] = json.loads(done.stdout.splitlines()[-1])
            return found

        best = max(PENALTIES, key=lambda penalty: scores(penalty, [TRIAL])[0])
        began = time.perf_counter()
        found = scores(best, seeds)
        share = (time.perf_counter() - began) / len(seeds)
        return {"C": best}, [(score, None, share) for score in found]
