"""Random batches on a narrow domain: what each step leaves of the hockey stick, and its plateau."""

from __future__ import annotations

from collections.abc import Callable

from dplateau.algorithms import FixedSize, Poisson, Scheme
from dplateau.verify.claims import ROUNDED, Case, Derived
from dplateau.verify.facts import (
    largest_share,
    least_share,
    require_batches,
    require_cap,
    require_constant,
    require_domain,
    require_hidden,
    require_neighbors,
    smallest_batch,
)
from dplateau.verify.one_use import HIDDEN, Lengths, lengths_of, noise_unit, require_run
from dplateau.verify.precise import MP, Precise, epsilon_at, up
from dplateau.verify.walks import StepLosses


def poisson_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches each record joins on its own."""
    return _recursion(case, Poisson)


def fixed_size_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches have one size."""
    return _recursion(case, FixedSize)


def _recursion(case: Case, scheme: Scheme) -> Derived:
    stage, run = require_run(case, scheme, HIDDEN), case.run
    require_domain(run, case.ledger)
    cap, extra = require_cap(case)
    assert run.loss is not None
    fixed = scheme is FixedSize
    # Common batches of one size lack one record at most; a Poisson batch may be empty.
    least = least_share(run, smallest_batch(run), used=True) if fixed else 0.0
    maps = StepLosses(run.loss, run.l2, least, largest_share(run, cap))
    lengths = lengths_of(case, stage, maps)
    far = MP.mpf(lengths.reach) + lengths.step
    if fixed:
        # All b gradients are exchanged at worst, the record's among them.
        apart = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
        far = min(far, apart / noise_unit(run, stage) * ROUNDED)
    curve = _recursive(case, lengths, far, extra)
    epsilon = epsilon_at(curve, case.delta, case.epsilon)
    return Derived(epsilon, f"recursion over {run.steps} steps")


def _recursive(
    case: Case, lengths: Lengths, far: Precise, extra: Precise
) -> Callable[[Precise], Precise]:
    """Return e_T + extra for e_{t+1} = (1 - e_t) A + e_t B, from one step off a common start."""
    q = MP.mpf(case.run.sampling_rate)

    def delta(epsilon: Precise) -> Precise:
        order = 1 + MP.expm1(epsilon) / q
        inner = MP.log(order)
        near, away = lengths.stick(inner, lengths.step), lengths.stick(inner, far)
        fresh = q * (near / order + (1 - 1 / order) * away)
        mixed = (1 - q) * lengths.stick(epsilon, lengths.reach) + q * lengths.stick(epsilon, far)
        limit = fresh / (1 - mixed + fresh)
        # e_t minus its limit shrinks by the same factor at every step.
        return limit + (q * near - limit) * (mixed - fresh) ** (case.run.steps - 1) + extra

    return delta


def asoodeh_diaz_closed(case: Case) -> Derived:
    """Derive the plateau of e <- (1-q) theta e + q theta, theta <= exp(-(eps/m - m/2)^2 / 2).

    The plateau is below delta as soon as theta is below delta / (q + (1-q) delta).
    """
    run = case.run
    require_hidden(run, case.ledger)
    require_batches(run, case.ledger, FixedSize)
    require_neighbors(run, case.ledger, "replace")
    stage = require_constant(run, case.ledger)
    require_domain(run, case.ledger)
    assert run.loss is not None
    moved = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
    m, q, delta = (MP.mpf(x) for x in (moved / stage.nu * ROUNDED, run.sampling_rate, case.delta))
    theta = delta / (q + (1 - q) * delta)
    epsilon = m * m / 2 + m * MP.sqrt(-2 * MP.log(theta))
    return Derived(up(epsilon), f"one step is {float(m):.9g}-GDP, in fifty digits")
