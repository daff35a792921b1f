"""Random batches on a narrow domain: what each step leaves of the hockey stick."""

from __future__ import annotations

from collections.abc import Callable

from dplateau.algorithms import Run
from dplateau.verify.claims import CLOSED, Case, Derived
from dplateau.verify.facts import require_cap, require_sampling
from dplateau.verify.one_use import (
    HIDDEN,
    Facts,
    facts_of,
    moved_by_record,
    require_domain,
    require_run,
)
from dplateau.verify.precise import MP, Precise, epsilon_at
from dplateau.verify.walks import StepLosses


def poisson_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches each record joins on its own."""
    return _recursion(case, "poisson")


def fixed_size_recursion(case: Case) -> Derived:
    """Derive the recursion over steps whose batches have one size."""
    return _recursion(case, "fixed")


def _recursion(case: Case, sampling: str) -> Derived:
    require_sampling(case, sampling)
    run, stage = require_run(case, type(case.run.batches), HIDDEN)
    require_domain(case)
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    # Common batches of one size lack one record at most; a Poisson batch may be empty.
    least = (run.batch_size - 1) / run.batch_size if sampling == "fixed" else 0.0
    maps = StepLosses(run.loss, run.l2, least, cap / run.batch_size)
    facts = facts_of(case, run, stage, maps, shifts=False)
    far = MP.mpf(facts.reach) + facts.step
    if sampling == "fixed":
        # All b gradients are exchanged at worst, the record's among them.
        apart = abs(1 - stage.eta * run.l2) * run.diameter + 2 * stage.eta * run.loss.lipschitz
        far = min(far, apart * facts.step / moved_by_record(run, stage.eta))
    epsilon = epsilon_at(_recursive(facts, run, far, extra), case.delta, case.epsilon)
    return Derived(float(epsilon), CLOSED, f"recursion over {run.steps} steps")


def _recursive(facts: Facts, run: Run, far: Precise, extra: float) -> Callable[[Precise], Precise]:
    """Return e_T + extra for e_{t+1} = (1 - e_t) A + e_t B, from one step off a common start."""
    q = MP.mpf(run.sampling_rate)

    def delta(epsilon: Precise) -> Precise:
        order = 1 + MP.expm1(epsilon) / q
        inner = MP.log(order)
        near, away = facts.stick(inner, facts.step), facts.stick(inner, far)
        fresh = q * (near / order + (1 - 1 / order) * away)
        mixed = (1 - q) * facts.stick(epsilon, facts.reach) + q * facts.stick(epsilon, far)
        limit = fresh / (1 - mixed + fresh)
        # e_t minus its limit shrinks by the same factor at every step.
        return limit + (q * near - limit) * (mixed - fresh) ** (run.steps - 1) + extra

    return delta
