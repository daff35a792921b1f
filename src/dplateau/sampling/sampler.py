"""Projected Langevin steps: what runs is what is described.

``init`` and ``step`` are pure: a state goes in with a generator, a new state comes out. ``advance``
and ``collect`` do many steps in place, for speed, and give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dplateau.algorithms import (
    Cyclic,
    Domain,
    FixedSize,
    FullBatch,
    NoisySGD,
    OnePass,
    Poisson,
    ProjectedLangevin,
    Run,
    refuse_batches,
)
from dplateau.algorithms.release import Release, ReleaseName
from dplateau.algorithms.schedule import values_over
from dplateau.algorithms.stated import learning_rate_of
from dplateau.certificates import certify, compose
from dplateau.engines import SecureRandomness
from dplateau.errors import InvalidInput, NotApplicable, SpendRefused
from dplateau.ground import checks
from dplateau.ground.processes import in_processes
from dplateau.ground.progress import Advance, Progress, counting, untold
from dplateau.ground.types import FloatArray, IntArray
from dplateau.ledger import ledger_in_force, paid_for
from dplateau.sampling.bodies import check_inside, dimension_of, projector
from dplateau.sampling.potentials import Gradient, Potential, gradient_at


class SecureGenerator:
    """Numbers from the operating system's entropy, for draws that leave as private releases.

    It has those methods of a NumPy generator that chains use.
    """

    def __init__(self) -> None:
        self._randomness = SecureRandomness()

    def standard_normal(self, *, out: FloatArray) -> FloatArray:
        """Fill an array with standard normal numbers."""
        out[...] = self._randomness.gaussian(out.size).reshape(out.shape)
        return out

    def binomial(self, n: int, p: float, size: int) -> IntArray:
        """Return binomial numbers."""
        return np.array(self._randomness.binomials(n, p, size), dtype=np.int64)

    def choice(self, n: int, size: int, **_: Any) -> IntArray:
        """Return a uniformly random set of 0 ... n - 1, without repetition."""
        return self._randomness.subsets(n, [int(size)])[0] if size else np.empty(0, np.int64)


Source = np.random.Generator | SecureGenerator


def random_batches(run: Run, chains: int, generator: Source) -> tuple[IntArray, FloatArray]:
    """Return the records of each chain's batch and their weights: 1 / b, or 0 for padding.

    Poisson: the size is binomial and, given its size, a batch is a uniformly random set; that is
    the law of independent inclusions. The step divides by the constant b all the same.
    """
    match run.batches:
        case Poisson():
            sizes = generator.binomial(run.n, run.sampling_rate, size=chains)
        case FixedSize(size=each):
            sizes = np.full(chains, each)
        case FullBatch() | Cyclic() | OnePass():
            raise NotApplicable(f"chains draw random batches; {run.kind} has none")
        case _ as unknown:
            refuse_batches(unknown)
    width = int(sizes.max())
    rows = np.zeros((chains, width), dtype=np.int64)
    for chain, size in enumerate(sizes):
        rows[chain, :size] = generator.choice(run.n, size=size, replace=False, shuffle=False)
    weights = (np.arange(width) < sizes[:, None]) / run.batch_size
    return rows, weights


# Noise is drawn for many steps at once, about this many numbers.
_NOISE_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class LangevinState:
    """Where the chains are, one per row, and how many steps they have taken."""

    position: FloatArray
    step: int = 0


@dataclass(frozen=True)
class LangevinSampler:
    """Projected Langevin chains of a potential, as ``run`` describes them.

    The run is a ``ProjectedLangevin`` (full gradients), or a ``NoisySGD`` whose noise has the
    standard deviation sqrt(2 learning_rate / inverse_temperature) in parameter space, for
    mini-batches; :meth:`of` makes either. It carries the body, the constants of the potential and
    what is released, so ``certify(sampler.run, delta)`` and ``certify_mixing(sampler.run, tv=...)``
    speak about exactly what runs.

    >>> from dplateau import Ball, LossGeometry
    >>> bowl = Potential(lambda x: x, LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0))
    >>> sampler = LangevinSampler.of(bowl, Ball(1.0), steps=100, learning_rate=0.01, release="last")
    >>> state = sampler.init([0.5, 0.0])
    >>> state = sampler.step(np.random.default_rng(0), state)
    >>> state.step, state.position.shape
    (1, (1, 2))
    """

    potential: Potential
    run: Run

    @classmethod
    def of(
        cls,
        potential: Potential,
        body: Domain,
        *,
        steps: int,
        learning_rate: float | list[float],
        release: Release | ReleaseName,
        l2: float = 0.0,
        inverse_temperature: float = 1.0,
        batch_size: int | None = None,
        sampling: Literal["poisson", "fixed"] = "poisson",
        dimension: int | None = None,
    ) -> LangevinSampler:
        """Describe and return the sampler; without ``batch_size`` every gradient is a full one."""
        shared: dict[str, Any] = {
            "n": potential.n,
            "steps": steps,
            "learning_rate": learning_rate,
            "l2": l2,
            "domain": body,
            "loss": potential.geometry,
            "dimension": _dimension(potential, body, dimension),
            "release": release,
        }
        full = ProjectedLangevin(**shared, inverse_temperature=inverse_temperature)
        if batch_size is None:
            return cls(potential, full)
        # Theorems about fixed-size batches are about replaced records.
        neighbors = "replace" if sampling == "fixed" else "add_remove"
        batches: dict[str, Any] = {
            "batch_size": batch_size,
            "sampling": sampling,
            "neighbors": neighbors,
        }
        return cls(potential, NoisySGD(**shared, **batches, iterate_std=full.iterate_std))

    def __post_init__(self) -> None:
        """Refuse a description that is not the potential's."""
        run = self.run
        sampled = isinstance(run.batches, Poisson | FixedSize)
        if not sampled and run.inverse_temperature is None:
            raise InvalidInput(f"run must be ProjectedLangevin or NoisySGD; got {run.kind}")
        if run.has_own_rate:
            raise InvalidInput(
                "chains draw records with probability batch_size / n; leave sampling_rate out"
            )
        if run.loss != self.potential.geometry or run.n != self.potential.n:
            raise InvalidInput(
                f"the run describes another potential: n={run.n} and {run.loss} are not its own "
                f"n={self.potential.n} and geometry (LangevinSampler.of takes them over)"
            )
        if run.domain is None:
            raise NotApplicable(
                "sampling needs a bounded body: pass Ball, Box, Simplex, Polytope or Body"
            )
        if sampled and self.potential.batch_gradient is None:
            raise InvalidInput("mini-batches need Potential(batch_gradient=...)")
        if not run.is_plain or run.noise_kind != "gaussian":
            raise InvalidInput("Langevin steps are plain steps with Gaussian noise")

    @property
    def body(self) -> Domain:
        """The body that every iterate is projected onto."""
        assert self.run.domain is not None
        return self.run.domain

    def init(self, position: npt.ArrayLike) -> LangevinState:
        """Return the state of chains at ``position``: one point, or one row per chain."""
        rows = np.array(position, dtype=np.float64, ndmin=2)
        if rows.ndim != 2 or rows.size == 0 or not np.all(np.isfinite(rows)):
            raise InvalidInput("a start is a point, or one row per chain, of finite numbers")
        size = self.run.dimension
        if size is not None and rows.shape[1] != size:
            raise InvalidInput(f"a start needs {size} coordinates; got {rows.shape[1]}")
        check_inside(self.body, rows)
        gradient_at(self.potential, rows)
        return LangevinState(rows)

    def step(self, generator: Source, state: LangevinState) -> LangevinState:
        """Return the state one step later; nothing but the generator changes."""
        moved, _ = self.collect(generator, state, 1, advance=untold)
        return moved

    def advance(
        self,
        generator: Source,
        state: LangevinState,
        steps: int,
    ) -> LangevinState:
        """Return the state ``steps`` steps later."""
        moved, _ = self.collect(generator, state, 1, thin=steps)
        return moved

    def collect(
        self,
        generator: Source,
        state: LangevinState,
        draws: int,
        *,
        thin: int = 1,
        advance: Advance | None = None,
    ) -> tuple[LangevinState, FloatArray]:
        """Return the last state and every ``thin``-th position, shape (chains, draws, d).

        ``advance`` is called with numbers of steps just done, and learns nothing else; without it a
        bar counts them.
        """
        if advance is None:
            with counting("steps", draws * thin) as counted:
                return self.collect(generator, state, draws, thin=thin, advance=counted)
        position = state.position.copy()
        kept = np.empty((draws, *position.shape))
        move = self._mover(generator, position)
        taken = 0
        for rates, noise in self._noise(generator, state, draws * thin):
            for rate, shock in zip(rates, noise, strict=True):
                move(rate, shock)
                taken += 1
                if taken % thin == 0:
                    kept[taken // thin - 1] = position
                advance(1)
            _check_finite(position)
        return LangevinState(position, state.step + taken), kept.transpose(1, 0, 2)

    def draw(self, start: npt.ArrayLike, *, generator: Source | None = None) -> FloatArray:
        """Return the last iterate of one chain after the run's own number of steps, nothing else.

        This is what ``certify(sampler.run, delta)`` speaks about when the run releases "last". The
        claim needs a start that does not depend on data, and noise that nobody can predict: without
        a ``generator`` it comes from the operating system's entropy. Inside ``with Ledger(path):``
        the ledger pays for that claim before the first step, and a ``generator`` is refused.
        """
        state = self.init(start)
        if state.position.shape[0] != 1:
            raise InvalidInput(
                "draw runs one chain: every chain is a release of its own; draws(start, count) "
                "makes several"
            )
        if generator is not None and ledger_in_force() is not None:
            raise SpendRefused(
                "generator=... inside a ledger: a draw whose noise the caller can repeat is not "
                "private at any price; leave generator out"
            )
        with self._paid_for(1):
            last: FloatArray = self.advance(
                generator or SecureGenerator(), state, self.run.steps
            ).position[0]
        return last

    def draws(
        self,
        start: npt.ArrayLike,
        count: int,
        *,
        jobs: int | None = 1,
        progress: Progress | None = None,
    ) -> FloatArray:
        """Return the last iterates of ``count`` independent chains from one start, one per row.

        Every row is a release of its own: all of them together have the claim
        ``compose([certify(sampler.run, delta)] * count, delta)``, not that of :meth:`draw`, and
        that is what a ledger in force pays, at once and before the first step. Every chain has a
        key of its own from the operating system's entropy.

        Parameters
        ----------
        start
            One public point for all chains.
        count
            How many chains run.
        jobs
            Processes that share the chains (None: one for every processor). More than one needs
            joblib (extra ``train``).
        progress
            Called with (steps done, steps in all), of all chains together, in place of a bar.
        """
        state = self.init(start)
        if state.position.shape[0] != 1:
            raise InvalidInput("draws starts all chains at one point, which is public; give one")
        alone = Alone(self, 0, 1, self.run.steps)
        chains = [(state, None)] * checks.whole("count", count)
        with self._paid_for(len(chains)):
            last, _ = one_by_one(alone, chains, jobs, progress)
        return last.position

    @contextmanager
    def _paid_for(self, count: int) -> Iterator[None]:
        """Make ``count`` draws within the block: the ledger in force, if any, pays for all."""
        ledger = ledger_in_force()
        if ledger is None:
            yield
            return
        delta = ledger.statement().settings.budget.delta
        one = certify(self.run, delta)
        whole = one if count == 1 else compose([one] * count, delta)
        with paid_for(whole, name="LangevinSampler"):
            yield

    def _mover(
        self, generator: Source, position: FloatArray
    ) -> Callable[[float, FloatArray], None]:
        """Return a function that takes one step in place, given learning rate and scaled noise."""
        gradient = self._gradient(generator)
        project = projector(self.body)
        scratch = np.empty_like(position)
        l2 = self.run.l2

        def move(rate: float, shock: FloatArray) -> None:
            # The gradient may be the position itself: it is used up before that changes.
            np.multiply(gradient(position), rate, out=scratch)
            if l2:
                np.multiply(position, 1.0 - l2 * rate, out=position)
            np.subtract(position, scratch, out=position)
            np.add(position, shock, out=position)
            project(position)

        return move

    def _gradient(self, generator: Source) -> Gradient:
        run, batch_gradient = self.run, self.potential.batch_gradient
        if batch_gradient is None or not isinstance(run.batches, Poisson | FixedSize):
            return self.potential.gradient

        def sampled(position: FloatArray) -> FloatArray:
            return batch_gradient(position, *random_batches(run, position.shape[0], generator))

        return sampled

    def _noise(
        self, generator: Source, state: LangevinState, steps: int
    ) -> Iterator[tuple[list[float], FloatArray]]:
        """Yield learning rates and scaled noise of many steps at once (of one with batches)."""
        rates, stds = self._schedule(state.step, steps)
        sampled = isinstance(self.run.batches, Poisson | FixedSize)
        block = 1 if sampled else max(1, _NOISE_BLOCK // state.position.size)
        noise = np.empty((min(block, steps), *state.position.shape))
        for first in range(0, steps, block):
            part = slice(first, min(first + block, steps))
            shocks = noise[: part.stop - first]
            generator.standard_normal(out=shocks)
            shocks *= stds[part, None, None]
            yield rates[part].tolist(), shocks

    def _schedule(self, first: int, steps: int) -> tuple[FloatArray, FloatArray]:
        """Return learning rate and noise of each step from ``first`` on."""
        rate, noise = learning_rate_of(self.run), self.run.iterate_std
        if isinstance(rate, float) and isinstance(noise, float):
            return np.full(steps, rate), np.full(steps, noise)
        if first + steps > self.run.steps:
            raise InvalidInput(
                f"the schedule has {self.run.steps} steps; step {first + steps} was asked for"
            )
        span = slice(first, first + steps)
        return values_over(rate, self.run.steps)[span], values_over(noise, self.run.steps)[span]


@dataclass(frozen=True)
class Alone:
    """What a chain does on its own: steps thrown away, then draws, every ``thin`` steps one."""

    sampler: LangevinSampler
    skipped: int
    draws: int
    thin: int

    @property
    def steps(self) -> int:
        """Return how many steps a chain takes."""
        return self.skipped + self.draws * self.thin

    def __call__(
        self, chain: tuple[LangevinState, np.random.Generator | None], advance: Advance = untold
    ) -> tuple[LangevinState, FloatArray]:
        """Return last state and draws, from a state with a generator (None: a secret key)."""
        state, given = chain
        generator = SecureGenerator() if given is None else given
        # A library's threads would compete with other chains, and add up in another order.
        with threadpool_limits(1, user_api="blas"):
            if self.skipped:
                state, _ = self.sampler.collect(
                    generator, state, 1, thin=self.skipped, advance=advance
                )
            return self.sampler.collect(
                generator, state, self.draws, thin=self.thin, advance=advance
            )


def one_by_one(
    alone: Alone,
    chains: Sequence[tuple[LangevinState, np.random.Generator | None]],
    jobs: int | None,
    progress: Progress | None,
) -> tuple[LangevinState, FloatArray]:
    """Return last states and draws of all chains, each run on its own, in ``jobs`` processes.

    What a chain does depends on its start and its generator, never on the number of processes,
    which only tell that a chain is done.
    """
    finished: dict[int, tuple[LangevinState, FloatArray]] = {}
    with counting("steps", len(chains) * alone.steps, progress) as advance:
        if jobs == 1:
            finished = {place: alone(chain, advance) for place, chain in enumerate(chains)}
        else:
            for place, one in in_processes(alone, chains, jobs):
                finished[place] = one
                advance(alone.steps)
    states, draws = zip(*(finished[place] for place in range(len(chains))), strict=True)
    positions = np.concatenate([state.position for state in states])
    return LangevinState(positions, states[0].step), np.concatenate(draws)


def _dimension(potential: Potential, body: Domain, stated: int | None) -> int | None:
    known = {size for size in (potential.dimension, dimension_of(body), stated) if size is not None}
    if len(known) > 1:
        raise InvalidInput(
            f"potential, body and dimension=... disagree on the number of coordinates: "
            f"{', '.join(map(str, sorted(known)))}"
        )
    return known.pop() if known else None


def _check_finite(position: FloatArray) -> None:
    if not math.isfinite(float(position.sum())):
        raise InvalidInput("a chain left the real numbers: the gradient is not finite on the body")
