"""What the theorems for random batches share: the kind of batches, and a cap on their size."""

from __future__ import annotations

from scipy import special

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.verify import reading
from dplateau.verify.claims import Case
from dplateau.verify.facts import blocks_of, require_hidden
from dplateau.verify.precise import MP

_SCHEMES: dict[str, Scheme] = {"poisson": Poisson, "fixed": FixedSize}


def require_sampled(case: Case, sampling: str, neighbors: str, *, own_rates: bool = False) -> Run:
    """Require the kind of batches and of neighbours that a theorem is about."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger, own_rates=own_rates)
    require_sampling(case, sampling)
    ledger.require("neighbours", run.neighbors == neighbors, f"they are {run.neighbors!r}")
    return run


def require_sampling(case: Case, sampling: str) -> None:
    """Require the kind of random batches that a theorem is about."""
    wanted = isinstance(case.run.batches, _SCHEMES[sampling])
    case.ledger.require("sampling", wanted, f"this is {case.run.described}")


def require_cap(case: Case, run: Run) -> tuple[int, float]:
    """Check the cap on batches and what exceeding it costs: the sum of P(Bin(n, q_t) > cap)."""
    cap = reading.whole(case.witness, "batch_cap")
    stored = reading.number(case.witness, "extra_delta")
    if isinstance(run.batches, FixedSize):
        case.ledger.require("batch cap", cap == run.batch_size, f"{cap} of {run.batch_size:g}")
        cost = 0.0
    else:
        assert isinstance(run.batches, Poisson)
        rates = blocks_of(run.batches.rate, run.steps)
        cost = sum(count * binomial_tail(cap, run.n, rate) for rate, count in rates)
    detail = f"stored {stored:.9g}, derived {cost:.9g}"
    close = cost * (1 - 1e-9) <= stored <= cost * (1 + 1e-6)
    case.ledger.require("batches above the cap", close, detail)
    return cap, max(stored, cost * (1 + 1e-12))


def binomial_tail(most: int, trials: int, rate: float) -> float:
    """Return P(Bin(trials, rate) > most), term by term from the first one beyond."""
    first = most + 1
    if first > trials:
        return 0.0
    if rate == 1:
        return 1.0
    if first <= trials * rate:
        return float(special.bdtrc(most, trials, rate))  # no tail at all: any precision will do
    n, k, q = MP.mpf(trials), MP.mpf(first), MP.mpf(rate)
    log = MP.loggamma(n + 1) - MP.loggamma(k + 1) - MP.loggamma(n - k + 1)
    term = total = float(MP.exp(log + k * MP.log(q) + (n - k) * MP.log1p(-q)))
    odds = rate / (1 - rate)
    for j in range(first, trials):
        term *= (trials - j) / (j + 1) * odds
        total += term
        if term < 1e-17 * total:
            break
    return total
