"""Admissible one-dimensional problems, and the privacy loss that each one proves.

The record's loss is linear. So are those of the others, unless they are pulled (see below), and
with the ridge term every problem is a pair of scalar walks

    X_{t+1}  = clamp( c_t X_t  + drift_t + I_t (s_t  - removed_t) + nu_t xi_t )   record present
    X'_{t+1} = clamp( c_t X'_t + drift_t + I_t (s'_t - removed_t) + nu_t xi_t )   absent or replaced

with s_t = record_step, and s'_t = 0 ("add_remove") or -record_step ("replace": its opposite took
its place). drift is what a batch of b other records of equal slope adds, and removed_step what the
one of them adds in whose slot the record sits: drift / b, at most record_step in size. This covers
full and cyclic batches, one pass, and batches of fixed size drawn without replacement (a random
member swapped for the record with probability b / n: Bernoulli). Under Poisson sampling nobody
makes room and removed_step is 0; a constant drift is then the limit of ever more, ever smaller
records at fixed rate and record_step: use it against bounds that do not depend on the number of
records.

Curved losses of the others pull the walk to a point: a batch of b of them subtracts

    pull_t * clip(X_t - pull_center, -pull_width, pull_width)

(a Huber loss; nonconvex ones push away, pull < 0), of which the one in whose slot the record sits
contributes removed_pull_t. ``pull_when`` names the steps whose batches are curved. Where no loss
of the class is linear, record_pull_t is the curvature of the record's own, present or replaced.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from dplateau.algorithms.base import NoiseKind
from dplateau.audit.final_law import mixed_law
from dplateau.audit.laws import (
    HalfLine,
    Law,
    Score,
    TailBracket,
    delta_score,
    epsilon_score,
    gaussian_delta_below,
    gaussian_epsilon_below,
    search_half_lines,
)
from dplateau.audit.linear_walks import gaussian_law, gaussian_shift
from dplateau.audit.walks import (
    ALWAYS,
    Bernoulli,
    Inclusion,
    Once,
    Pattern,
    PerStep,
    Reshuffled,
    Shuffled,
    Until,
    Walk,
    as_per_step,
    inclusion_from_dict,
    inclusion_to_dict,
)
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray

_PER_STEP = (
    "contraction",
    "record_step",
    "noise_std",
    "drift",
    "removed_step",
    "pull",
    "removed_pull",
    "record_pull",
)
Walks = list[tuple[float, Walk]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkProblem:
    """A pair of scalar walks that differ in one record; see the module's docstring.

    ``contraction`` is 1 - learning_rate * l2, ``record_step`` learning_rate * L / b, ``noise_std``
    the standard deviation of the noise in parameter space (for Laplace noise too, whose scale is
    noise_std / sqrt(2)). These three, ``drift`` and ``removed_step`` are one number, or one number
    per step. With ``random_stop`` the iterate after a uniformly random number of steps between 1
    and ``steps`` is released, and the number is not.
    """

    steps: int
    contraction: PerStep
    record_step: PerStep
    noise_std: PerStep
    inclusion: Inclusion = ALWAYS
    drift: PerStep = 0.0
    removed_step: PerStep = 0.0
    start: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf
    neighbors: Literal["add_remove", "replace"] = "add_remove"
    noise_kind: NoiseKind = "gaussian"
    random_stop: bool = False
    pull: PerStep = 0.0
    removed_pull: PerStep = 0.0
    record_pull: PerStep = 0.0
    pull_center: float = 0.0
    pull_width: float = math.inf
    pull_when: Pattern = ALWAYS

    def __post_init__(self) -> None:
        """Refuse numbers that describe no walk."""
        if self.steps < 1:
            raise InvalidInput(f"a walk has at least one step; got steps={self.steps}")
        for name in _PER_STEP:
            self._check_per_step(name)
        if not self.lower <= self.start <= self.upper or not math.isfinite(self.start):
            raise InvalidInput(
                f"start={self.start} lies outside of the domain [{self.lower}, {self.upper}]"
            )
        if not self.lower < self.upper:
            raise InvalidInput(f"the domain [{self.lower}, {self.upper}] has no interior")
        if self.neighbors not in ("add_remove", "replace"):
            raise InvalidInput(f"neighbors must be add_remove or replace; got {self.neighbors!r}")
        if self.noise_kind not in ("gaussian", "laplace"):
            raise InvalidInput(f"noise_kind must be gaussian or laplace; got {self.noise_kind!r}")
        if not math.isfinite(self.pull_center) or not self.pull_width > 0:
            raise InvalidInput(
                f"a pull needs a finite center and a width above 0; got center={self.pull_center}, "
                f"width={self.pull_width}"
            )
        if isinstance(self.inclusion, Once) and self.inclusion.step >= self.steps:
            raise InvalidInput(
                f"the record's step {self.inclusion.step} lies beyond the last one "
                f"({self.steps - 1})"
            )

    def _check_per_step(self, name: str) -> None:
        given = getattr(self, name)
        values = np.asarray(given, dtype=np.float64)
        if isinstance(given, tuple) and values.shape != (self.steps,):
            raise InvalidInput(f"{name} needs one value per step ({self.steps}); got {len(given)}")
        if not np.all(np.isfinite(values)):
            raise InvalidInput(f"{name} must be finite; got {given}")
        if name == "noise_std" and not np.all(values > 0):
            raise InvalidInput(f"noise_std must be above 0; got {given}")
        if name == "contraction" and not np.all(values >= 0):
            raise InvalidInput(f"contraction must be at least 0; got {given}")
        kept = tuple(float(v) for v in values) if isinstance(given, tuple) else float(values)
        object.__setattr__(self, name, kept)

    def present(self) -> Walks:
        """Return the walk of the run that holds the record, as (probability, walk) pairs."""
        return self._walks(1.0, 1.0)

    def absent(self) -> Walks:
        """Return the walk of the run without it, or with its opposite."""
        return self._walks(-1.0, 1.0) if self.neighbors == "replace" else self._walks(0.0, 0.0)

    def difference(self) -> Walk:
        """Return a walk whose jumps are those by which the two runs differ."""
        factor = 1.0 if self.neighbors == "add_remove" else 2.0
        return self._walk(factor * np.asarray(self.record_step), 0.0, self.inclusion)

    def _walks(self, factor: float, own: float) -> Walks:
        """Return the walk whose record has ``factor`` of the slope and ``own`` of the curvature."""
        jumps = factor * np.asarray(self.record_step) - np.asarray(self.removed_step)
        if isinstance(self.inclusion, Shuffled):
            walks = [(p, self._walk(jumps, own, at)) for p, at in self.inclusion.positions()]
        else:
            walks = [(1.0, self._walk(jumps, own, self.inclusion))]
        if not self.random_stop:
            return walks
        counts = range(1, self.steps + 1)
        return [(p / self.steps, walk.first(count)) for p, walk in walks for count in counts]

    def _walk(self, jumps: FloatArray, own: float, inclusion: Inclusion) -> Walk:
        change = -np.asarray(self.removed_pull)
        own_pull = own * np.asarray(self.record_pull)
        if inclusion == Bernoulli(0.0) or not any(map(np.any, (jumps, change, own_pull))):
            jumps, change, own_pull, inclusion = (np.zeros(()),) * 3 + (ALWAYS,)
        elif inclusion == Bernoulli(1.0):
            inclusion = ALWAYS
        assert not isinstance(inclusion, Shuffled | Until)
        return Walk(
            steps=self.steps,
            contraction=self.contraction,
            noise_std=self.noise_std,
            drift=self.drift,
            jump=as_per_step(jumps),
            inclusion=inclusion,
            start=self.start,
            lower=self.lower,
            upper=self.upper,
            noise_kind=self.noise_kind,
            pull=self.pull,
            pull_change=as_per_step(change),
            record_pull=as_per_step(own_pull),
            pull_when=self.pull_when,
            center=self.pull_center,
            width=self.pull_width,
        )

    @property
    def is_pulled(self) -> bool:
        """Whether any loss is curved."""
        return any(map(np.any, (self.pull, self.removed_pull, self.record_pull)))

    @property
    def is_gaussian(self) -> bool:
        """Whether both final laws are exactly Gaussian with one common variance."""
        unbounded = math.isinf(self.lower) and math.isinf(self.upper)
        mixed = isinstance(self.inclusion, Bernoulli | Shuffled | Reshuffled) or self.random_stop
        return unbounded and not mixed and self.noise_kind == "gaussian" and not self.is_pulled

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description that replays the problem; defaults are left out."""
        described: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name in ("inclusion", "pull_when"):
                value = inclusion_to_dict(value)
            described[field.name] = list(value) if isinstance(value, tuple) else value
        return described

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> WalkProblem:
        """Read what :meth:`to_dict` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in document.items()
        }
        for name in ("inclusion", "pull_when"):
            if isinstance(values.get(name), dict):
                values[name] = inclusion_from_dict(values[name])
        try:
            return cls(**values)
        except TypeError as error:
            raise InvalidInput(f"no walk problem: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """Proof that no (epsilon', delta') guarantee below this point holds for ``problem``.

    ``epsilon`` is 0 and ``event`` may be None when the problem shows nothing at this delta.
    """

    epsilon: float
    delta: float
    problem: WalkProblem
    event: HalfLine | None
    rigorous: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready record of the bound, its problem and its event."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rigorous": self.rigorous,
            "problem": self.problem.to_dict(),
            "event": None if self.event is None else asdict(self.event),
        }


def final_laws(problem: WalkProblem) -> tuple[Law, Law]:
    """Return the final laws with and without the record."""
    return mixed_law(problem.present()), mixed_law(problem.absent())


def solve(
    problem: WalkProblem, points: FloatArray | None = None
) -> tuple[TailBracket, TailBracket]:
    """Return bounds on the tails of the final iterate, with and without the record."""
    present, absent = final_laws(problem)
    if points is None:
        low = min(present.span[0], absent.span[0])
        high = max(present.span[1], absent.span[1])
        points = np.linspace(low, high, 257)
    thresholds = np.asarray(points, dtype=np.float64)
    return present.tail(thresholds), absent.tail(thresholds)


def lower_epsilon(problem: WalkProblem, delta: float) -> LowerBound:
    """Return the largest epsilon at ``delta`` that a half-line event proves to be needed.

    >>> walk = WalkProblem(steps=100, contraction=0.95, record_step=0.1, noise_std=1.0)
    >>> round(lower_epsilon(walk, 1e-5).epsilon, 6)
    2.540615
    """
    score = epsilon_score(delta)
    if problem.is_gaussian:
        mu = gaussian_shift(problem.difference())
        epsilon = gaussian_epsilon_below(mu, delta)
        event = _gaussian_event(problem, mu, epsilon)
        return LowerBound(epsilon=epsilon, delta=delta, problem=problem, event=event)
    proven, event = _search(problem, score)
    return LowerBound(epsilon=max(0.0, proven), delta=delta, problem=problem, event=event)


def lower_delta(problem: WalkProblem, epsilon: float) -> LowerBound:
    """Return the largest delta at ``epsilon`` that a half-line event proves to be needed."""
    score = delta_score(epsilon)
    if problem.is_gaussian:
        mu = gaussian_shift(problem.difference())
        delta = gaussian_delta_below(epsilon, mu)
        event = _gaussian_event(problem, mu, epsilon)
        return LowerBound(epsilon=epsilon, delta=delta, problem=problem, event=event)
    proven, event = _search(problem, score)
    return LowerBound(epsilon=epsilon, delta=max(0.0, proven), problem=problem, event=event)


def _search(problem: WalkProblem, score: Score) -> tuple[float, HalfLine | None]:
    best, event = search_half_lines(*final_laws(problem), score)
    return (best, event) if best > 0 else (0.0, None)


def _gaussian_event(problem: WalkProblem, mu: float, epsilon: float) -> HalfLine | None:
    """Return the half-line on which the likelihood ratio exceeds e^epsilon."""
    if mu <= 0:
        return None
    present, absent = (gaussian_law(w[0][1]) for w in (problem.present(), problem.absent()))
    side = 1.0 if present.mean > absent.mean else -1.0
    threshold = absent.mean + side * absent.std * (mu / 2 + epsilon / mu)
    return HalfLine("present_first", "above" if side > 0 else "below", threshold)
