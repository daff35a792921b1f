"""One call from a potential and a body to draws with a certificate, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Domain
from dplateau.errors import InvalidInput, NotApplicable, SpendRefused
from dplateau.ground import checks
from dplateau.ground.progress import Progress, counting
from dplateau.ground.shown import Shown
from dplateau.ground.types import FloatArray
from dplateau.ledger import ledger_in_force
from dplateau.sampling.bodies import check_projection, random_points
from dplateau.sampling.mixing import MixingCertificate, certify_mixing, proposed_steps
from dplateau.sampling.potentials import Potential, check_constants
from dplateau.sampling.sampler import Alone, LangevinSampler, LangevinState, one_by_one

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Shown):
    """Draws of shape (chains, draws, d), and how they came about.

    Draws are not private: every iterate that is kept is a release (``sampler.run`` says "all" and
    describes one of the chains). ``warmup`` steps were thrown away; ``certificate`` bounds the
    total variation between what is left and the chain's stationary law, if one was asked for.
    """

    draws: FloatArray
    sampler: LangevinSampler
    warmup: int
    thin: int
    last: LangevinState
    certificate: MixingCertificate | None = None

    @property
    def flat(self) -> FloatArray:
        """All draws as rows."""
        return self.draws.reshape(-1, self.draws.shape[-1])

    def to_datatree(self, name: str = "x") -> xr.DataTree:
        """Return the draws as ArviZ data: a tree with the group "posterior"."""
        base, _ = _arviz()
        run = self.sampler.run
        attributes = {
            "inference_library": "dplateau",
            "algorithm": run.kind,
            "learning_rate": str(run.learning_rate),
            "warmup_steps": self.warmup,
            "thinning": self.thin,
        }
        tree: xr.DataTree = base.from_dict(
            {"posterior": {name: np.ascontiguousarray(self.draws)}},
            attrs={"posterior": attributes},
        )
        return tree

    to_arviz = to_datatree

    def r_hat(self) -> FloatArray:
        """Return the rank-normalized R-hat of each coordinate (near 1: the chains agree)."""
        _, stats = _arviz()
        if self.draws.shape[0] < 2 or self.draws.shape[1] < 4:
            raise InvalidInput(
                f"R-hat compares chains: it needs at least 2 chains of 4 draws; these are "
                f"{self.draws.shape[0]} of {self.draws.shape[1]}"
            )
        return self._by_coordinate(lambda one: stats.rhat(one))

    def effective_sample_size(self) -> FloatArray:
        """Return how many independent draws each coordinate's mean is worth (bulk)."""
        _, stats = _arviz()
        return self._by_coordinate(lambda one: stats.ess(one))

    def _by_coordinate(self, measure: Any) -> FloatArray:
        size = self.draws.shape[-1]
        one = [np.ascontiguousarray(self.draws[:, :, j]) for j in range(size)]
        return np.array([float(measure(values)) for values in one])

    def __str__(self) -> str:
        """Say how many draws there are and what is known of them."""
        chains, draws, size = self.draws.shape
        kept = "every draw" if self.thin == 1 else f"one of {self.thin} steps"
        claim = "" if self.certificate is None else f"; {self.certificate}"
        return (
            f"{chains} chains of {draws} draws in {size} dimensions, {self.warmup} steps of "
            f"warm-up, {kept} kept{claim}"
        )


def _arviz() -> tuple[Any, Any]:
    """Load the two packages of the extra, or refuse in one line."""
    try:
        import arviz_base
        import arviz_stats
    except ImportError:
        raise NotApplicable(
            "ArviZ export and diagnostics need the extra sampling: pip install 'dplateau[sampling]'"
        ) from None
    return arviz_base, arviz_stats


# A certified warm-up beyond this is refused: nobody meant to wait that long.
_LONGEST_WARMUP = 10**7


def sample(
    potential: Potential,
    body: Domain,
    n_samples: int,
    *,
    learning_rate: float,
    l2: float = 0.0,
    inverse_temperature: float = 1.0,
    batch_size: int | None = None,
    sampling: Literal["poisson", "fixed"] = "poisson",
    chains: int = 4,
    warmup: int | None = None,
    tv: float = 0.01,
    thin: int = 1,
    start: npt.ArrayLike | None = None,
    dimension: int | None = None,
    seed: int | np.random.Generator | None = None,
    jobs: int | None = 0,
    progress: Progress | None = None,
) -> Samples:
    """Draw ``n_samples`` from each of several chains, after they have forgotten where they began.

    Without ``warmup``, as many steps are thrown away as a mixing certificate needs for a total
    variation of ``tv`` to the chain's stationary law, from any start. That law is close to the
    density exp(-inverse_temperature (f + l2 |x|^2 / 2)) on the body for small learning rates; how
    close is not certified. A wrong projection, constants that the gradient contradicts, a start
    outside the body and a learning rate that no theorem covers are refused.

    Parameters
    ----------
    potential
        The potential f with its gradient and constants.
    body
        Where the chains live: ``Ball``, ``Box``, ``Simplex``, ``Polytope`` or another convex body.
    n_samples
        Draws kept of each chain.
    learning_rate, l2, inverse_temperature
        The step size, the ridge term added to f, and beta.
    batch_size, sampling
        Size and kind ("poisson" or "fixed") of mini-batches, if gradients are taken on some.
    chains
        How many chains run.
    warmup
        Steps thrown away; by default as many as a mixing certificate asks for.
    tv
        The total variation that it is asked for.
    thin
        One of so many steps is kept.
    start
        A point for all chains, or one row for each; by default random points of the body.
    dimension
        Number of coordinates, where neither body nor start says it.
    seed
        A seed or a generator.
    jobs
        0: all chains side by side in this process, from one generator. Another number: every chain
        on its own, with a generator of its own, in so many processes (None: one for every
        processor); the draws are the same for every such number. It pays where gradients are
        slow. More than one needs joblib (extra ``train``).
    progress
        Called with (steps done, steps in all) a few times per second, in place of a bar.

    Returns
    -------
    Samples
        The draws, with warmup, certificate and diagnostics.

    Raises
    ------
    InvalidInput
        If the projection, the constants or the start are wrong.
    NotApplicable
        If no theorem covers the learning rate and no ``warmup`` is stated.
    SpendRefused
        Inside ``with Ledger(path):``, since draws that are kept all along make no claim.

    Examples
    --------
    >>> from dplateau import Box, LossGeometry
    >>> flat = Potential(lambda x: 0 * x, LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-9))
    >>> drawn = sample(flat, Box(-1.0, 1.0), 500, learning_rate=0.1, thin=10, seed=1)
    >>> drawn.draws.shape, drawn.warmup
    ((4, 500, 1), 61)
    """
    if ledger_in_force() is not None:
        raise SpendRefused(
            "sample(...) inside a ledger: every iterate that it keeps leaves without a claim; "
            "LangevinSampler.draws(start, count) makes draws that the ledger pays for, and a "
            "potential without private records is sampled outside of the ledger's block"
        )
    kept, every = checks.whole("n_samples", n_samples), checks.whole("thin", thin)
    count = checks.whole("chains", chains)
    generator = np.random.default_rng(seed)
    sampler = LangevinSampler.of(
        potential,
        body,
        steps=kept * every,
        learning_rate=learning_rate,
        release="all",
        l2=l2,
        inverse_temperature=inverse_temperature,
        batch_size=batch_size,
        sampling=sampling,
        dimension=dimension,
    )
    state = sampler.init(_starts(sampler, start, count, generator))
    check_projection(body, state.position.shape[1])
    check_constants(potential, random_points(body, 128, state.position.shape[1], generator))
    skipped, certificate = _warmed_up(sampler, warmup, tv)
    if jobs == 0:
        with counting("steps", skipped + kept * every, progress) as advance:
            if skipped:
                state, _ = sampler.collect(generator, state, 1, thin=skipped, advance=advance)
            last, draws = sampler.collect(generator, state, kept, thin=every, advance=advance)
    else:
        starts = [LangevinState(row[None]) for row in state.position]
        alone = Alone(sampler, skipped, kept, every)
        pairs = list(zip(starts, generator.spawn(count), strict=True))
        last, draws = one_by_one(alone, pairs, jobs, progress)
    whole = LangevinSampler(potential, sampler.run.replace(steps=skipped + kept * every))
    return Samples(draws, whole, skipped, every, last, certificate)


def _starts(
    sampler: LangevinSampler,
    start: npt.ArrayLike | None,
    chains: int,
    generator: np.random.Generator,
) -> FloatArray:
    if start is None:
        size = sampler.run.dimension
        if size is None:
            raise InvalidInput("state dimension=... or start=...: the body does not tell it")
        return random_points(sampler.body, chains, size, generator)
    rows = np.array(start, dtype=np.float64, ndmin=2)
    if rows.shape[0] == 1:
        return np.repeat(rows, chains, axis=0)
    if rows.shape[0] != chains:
        raise InvalidInput(f"start has {rows.shape[0]} rows for {chains} chains; give one or all")
    return rows


def _warmed_up(
    sampler: LangevinSampler, warmup: int | None, tv: float
) -> tuple[int, MixingCertificate | None]:
    """Return how many steps are thrown away, and what is proved about them."""
    if warmup is not None:
        steps = checks.whole("warmup", warmup, least=0)
        try:
            return steps, certify_mixing(sampler.run, steps=steps) if steps else None
        except NotApplicable:
            return steps, None  # the user chose the warm-up, so no claim is needed
    level = checks.probability("tv", tv)
    steps = proposed_steps(sampler.run, level)
    if steps > _LONGEST_WARMUP:
        raise NotApplicable(
            f"certified mixing to tv={tv:g} takes {steps} steps at "
            f"learning_rate={sampler.run.learning_rate}; state warmup=... to go on without, or use "
            "a larger learning rate or a smaller body"
        )
    certificate = certify_mixing(sampler.run, tv=level)
    return certificate.steps, certificate
