"""One call from a potential and a body to draws with a certificate."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Domain
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.types import FloatArray
from dplateau.sampling.bodies import check_projection, random_points
from dplateau.sampling.mixing import certify_mixing, proposed_steps
from dplateau.sampling.mixing_certificate import MixingCertificate
from dplateau.sampling.potentials import Potential, check_constants
from dplateau.sampling.sampler import LangevinSampler, Progress
from dplateau.sampling.samples import Samples

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
    progress: Progress | None = None,
) -> Samples:
    """Draw ``n_samples`` from each of several chains, after they have forgotten where they began.

    Without ``warmup``, as many steps are thrown away as a mixing certificate needs for a total
    variation of ``tv`` to the chain's stationary law, from any start. That law is close to the
    density exp(-inverse_temperature (f + l2 |x|^2 / 2)) on the body for small learning rates; how
    close is not certified. A wrong projection, constants that the gradient contradicts, a start
    outside the body and a learning rate that no theorem covers are refused.

    >>> from dplateau import Box, LossGeometry
    >>> flat = Potential(lambda x: 0 * x, LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-9))
    >>> drawn = sample(flat, Box(-1.0, 1.0), 500, learning_rate=0.1, thin=10, seed=1)
    >>> drawn.draws.shape, drawn.warmup
    ((4, 500, 1), 61)
    """
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
    certificate = _certificate(sampler, warmup, tv)
    skipped = certificate.steps if certificate is not None and warmup is None else warmup
    assert skipped is not None
    if skipped:
        state = sampler.advance(generator, state, skipped, progress=progress)
    last, draws = sampler.collect(generator, state, kept, thin=every, progress=progress)
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


def _certificate(
    sampler: LangevinSampler, warmup: int | None, tv: float
) -> MixingCertificate | None:
    if warmup is not None:
        steps = checks.whole("warmup", warmup, least=0)
        try:
            return certify_mixing(sampler.run, steps=steps) if steps else None
        except NotApplicable:
            return None  # the user chose the warm-up, so no claim is needed
    level = checks.probability("tv", tv)
    steps = proposed_steps(sampler.run, level)
    if steps > _LONGEST_WARMUP:
        raise NotApplicable(
            f"certified mixing to tv={tv:g} takes {steps} steps at "
            f"learning_rate={sampler.run.learning_rate}; state warmup=... to go on without, or use "
            "a larger learning rate or a smaller body"
        )
    return certify_mixing(sampler.run, tv=level)
