"""Whether the claim of a forgery that verifies is true: exact adversaries, and the library's own.

"false" is proved: more is needed than is claimed. "true": the library's own evaluation of the
altered proof, or its best bound for what is described, claims about as little. Else "open".
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from dplateau import Box, NotApplicable
from dplateau.algorithms import FullBatch, Run, run_from_dict
from dplateau.algorithms.schedule import times
from dplateau.audit.lower_bounds import lower_bound
from dplateau.bounds.registry import bound_named
from dplateau.certificates import certify, compose
from dplateau.certificates.composition import ForeignPart, Part
from dplateau.curves import GaussianCurve, TablePair, TabulatedCurve
from dplateau.errors import DplateauError
from dplateau.ground import sealed
from dplateau.numerics.normal import gaussian_epsilon, gaussian_mu
from dplateau.sampling import certify_mixing
from dplateau.sampling.mixing import claimed_tv
from mixing_truth import grid_chain

Found = dict[str, Any]
# A derivation on a finer grid is smaller than the library's own by no more than this.
_FINER = 1.1
# Chains whose exact law is computed: panels of so many deviations of the noise.
_MOST_PANELS, _MOST_STEPS = 60, 3000
_MOST_PARTS = 500
_ASIDE = (DplateauError, ArithmeticError, MemoryError)


def judged(found: Found) -> str:
    """Return whether the claim of a forgery that verifies is "true", "false" or "open"."""
    judge = {sealed.COMPOSITION.name: _composition, sealed.MIXING.name: _mixing}
    return judge.get(found["kind"], _certificate)(found["content"])


def _certificate(content: Found) -> str:
    claimed, delta = content["claim"]["epsilon"], content["claim"]["delta"]
    described, run = json.dumps(content["run"], sort_keys=True), run_from_dict(content["run"])
    # The losses of Gaussian noise have no largest one.
    pure = delta == 0 and run.noise_kind == "gaussian"
    if pure or _needed(described, delta) > claimed:
        return "false"
    with suppress(Exception):  # the library may refuse the altered proof, in any way it likes
        bound = bound_named(content["bound"])
        if bound.refusal(run) is None:
            epsilon = bound.curve_for(run, content["witness"]).epsilon(delta)
            if epsilon <= claimed * _FINER:
                return "true"
    return "true" if _claimed(described, delta) <= claimed * _FINER else "open"


@lru_cache(1000)
def _needed(described: str, delta: float) -> float:
    """Return an epsilon that an exact adversary proves to be needed."""
    with suppress(*_ASIDE):
        return lower_bound(_as_one(run_from_dict(json.loads(described))), delta).epsilon
    return 0.0


def _as_one(run: Run) -> Run:
    """Return a run of one record that moves as far as its group, where all move together."""
    size = run.group_size
    if size == 1 or not isinstance(run.batches, FullBatch) or run.loss is None:
        return run.replace(group_size=1)
    if run.noise.name == "noise_multiplier":  # in units of the longest gradient
        return run.replace(group_size=1, noise_multiplier=times(run.noise.value, 1 / size))
    loss = dataclasses.replace(run.loss, lipschitz=size * run.loss.lipschitz)
    return run.replace(group_size=1, loss=loss)


@lru_cache(1000)
def _claimed(described: str, delta: float) -> float:
    """Return the epsilon of the library's best bound."""
    with suppress(*_ASIDE):
        return certify(run_from_dict(json.loads(described)), delta).claimed_epsilon
    return math.inf


# ---- compositions -------------------------------------------------------------------------------


def _composition(content: Found) -> str:
    claimed, delta = content["claim"]["epsilon"], content["claim"]["delta"]
    if _needed_together(content, delta) > claimed or _lost(content) > delta:
        return "false"
    with suppress(Exception):
        again = _composed_anew(content, delta)
        if again.epsilon(delta) <= claimed * _FINER:
            return "true"
    return "open"


def _leaves(content: Found, count: int = 1) -> Iterator[tuple[Found, int]]:
    """Yield all parts that no other is made of, with their repeats on the same records.

    Of disjoint parts the first one counts: which one the record is in is the adversary's choice.
    """
    parts = content["parts"]
    for entry in parts:
        times = count if content["records"] == "disjoint" else count * int(entry["count"])
        if entry["part"]["kind"] == sealed.COMPOSITION.name:
            yield from _leaves(entry["part"]["content"], times)
        else:
            yield entry["part"], times


def _is_shared(content: Found) -> bool:
    inner = (entry["part"] for entry in content["parts"])
    return content["records"] == "same" and all(
        _is_shared(part["content"]) for part in inner if part["kind"] == sealed.COMPOSITION.name
    )


def _needed_together(content: Found, delta: float) -> float:
    """Return an epsilon that is needed: for one part alone, and for the Gaussian ones together."""
    alone, squares = 0.0, 0.0
    for part, count in _leaves(content):
        inside = part["content"]
        if part["kind"] == sealed.FOREIGN.name:
            mu = float(inside["law"].get("mu", 0.0))
        else:
            run, described = run_from_dict(inside["run"]), json.dumps(inside["run"], sort_keys=True)
            needed = _needed(described, delta)
            alone = max(alone, needed)
            # Of full batches the exact adversary is a walk of Gaussian law.
            plain = isinstance(run.batches, FullBatch) and run.noise_kind == "gaussian"
            mu = gaussian_mu(needed, delta) if plain and needed > 0 and delta > 0 else 0.0
        squares += count * mu**2
    if not _is_shared(content) or squares == 0:
        return alone * (1 - 1e-9)
    together = gaussian_epsilon(delta, math.sqrt(squares)) if delta > 0 else math.inf
    return max(alone, together) * (1 - 1e-9)


def _lost(content: Found) -> float:
    """Return the delta that declared tables lose outright, at every epsilon."""
    lost, shared = [], _is_shared(content)
    for part, count in _leaves(content):
        law = part["content"].get("law") or {}
        if law.get("kind") == "table":
            lost.append(-math.expm1(count * math.log1p(-min(min(law["deltas"]), 1 - 1e-9))))
    if not lost:
        return 0.0
    total = -math.expm1(math.fsum(math.log1p(-one) for one in lost)) if shared else max(lost)
    return total * (1 - 1e-9)


def _composed_anew(content: Found, delta: float) -> Part:
    """Return the library's own composition of the parts, at the delta claimed."""
    parts: list[Part] = []
    # The library trusts what it reads of a part; the runs are certified anew.
    for entry in content["parts"]:
        if int(entry["count"]) + len(parts) > _MOST_PARTS:
            raise NotApplicable("has too many parts to be composed one by one")
        document, inside = entry["part"], entry["part"]["content"]
        match document["kind"]:
            case sealed.CERTIFICATE.name:
                part: Part = certify(run_from_dict(inside["run"]), delta)
            case sealed.COMPOSITION.name:
                part = _composed_anew(inside, delta)
            case _:
                part = _declared(inside)
        parts += [part] * int(entry["count"])
    return compose(parts, delta, records=content["records"])


def _declared(content: Found) -> Part:
    """Return a part that other software answers for, its rows in any order."""
    law = content["law"]
    curve: Any = GaussianCurve(law["mu"]) if law["kind"] == "gaussian" else None
    if curve is None:
        rows = np.array(law["epsilons"], dtype=float), np.array(law["deltas"], dtype=float)
        curve = TabulatedCurve(TablePair.hull(*rows))
    return ForeignPart(content["name"], content["neighbors"], content["unit"], curve)


# ---- mixing -------------------------------------------------------------------------------------


def _mixing(content: Found) -> str:
    claimed, run = content["claim"]["total_variation"], run_from_dict(content["run"])
    try:
        nu = np.atleast_1d(np.asarray(run.replace(steps=1).iterate_std, dtype=float))
    except DplateauError:
        nu = np.array([1.0]) if run.has_schedule else np.zeros(1)
    # Noise of unknown size may be none, and then nothing is forgotten.
    if claimed < 1 and (nu == 0).any():
        return "false"
    if _apart(json.dumps(content["run"], sort_keys=True)) > claimed:
        return "false"
    for again in _mixing_again(run, content["witness"]):
        with suppress(Exception):
            if again() <= claimed * (1 + 1e-6):
                return "true"
    return "open"


def _mixing_again(run: Run, witness: Found) -> Iterator[Callable[[], float]]:
    yield lambda: claimed_tv(run, witness)
    yield lambda: certify_mixing(run).claimed_tv


@lru_cache(1000)
def _apart(described: str) -> float:
    """Return how far apart the worst starts of some admissible chain on an interval still are."""
    run = run_from_dict(json.loads(described))
    apart = 0.0
    for gradient in _gradients(run):
        with suppress(*_ASIDE):
            apart = max(apart, _truth(run, gradient))
    return apart - 1e-4  # the differences of two laws have kinks inside panels


def _gradients(run: Run) -> Iterator[Callable[[Any], Any]]:
    """Yield gradients that the declared constants allow, on an interval about zero."""
    loss, half = run.loss, run.diameter / 2
    if loss is None or loss.saddle:
        return
    least = loss.strong_convexity
    if loss.dissipativity is not None:
        offset, rate = loss.dissipativity
        least = max(least, rate - offset / (4 * half**2))
    steep = loss.lipschitz / half  # curvatures up to this keep gradients short
    if max(least, 0.0) <= min(loss.smoothness, steep):
        yield lambda x: max(least, 0.0) * x
    if not loss.convex and loss.dissipativity is None and math.isfinite(loss.smoothness):
        yield lambda x: -min(loss.smoothness, steep) * x
    if math.isinf(loss.smoothness) and not loss.holders and least == 0:
        size = loss.lipschitz if math.isfinite(loss.lipschitz) else 1.0
        yield lambda x: size * np.sign(x)
        if not loss.convex and loss.dissipativity is None:
            yield lambda x: -size * np.sign(x)


def _truth(run: Run, gradient: Callable[[Any], Any]) -> float:
    half, one = run.diameter / 2, run if run.has_schedule else run.replace(steps=1)
    line = one.replace(domain=Box(-half, half), dimension=1)
    nu = line.iterate_std
    if not isinstance(nu, float) or run.steps > _MOST_STEPS:
        raise NotApplicable("is too long, or changes")
    panels = math.ceil(2 * half / nu)
    if panels > _MOST_PANELS:
        raise NotApplicable("needs too fine a grid")
    chain = grid_chain(line, gradient, panels=max(panels, 8), corners=(0.0,))
    if chain.defect > 1e-9:
        raise NotApplicable("is not resolved")
    ends = np.eye(len(chain.kernel))[[0, len(chain.nodes) - 1]]
    laws = ends @ np.linalg.matrix_power(chain.kernel, run.steps)
    return float(np.abs(laws[0] - laws[1]).sum() / 2)
