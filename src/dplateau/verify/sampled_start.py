"""What the theorems for random batches share: the setting in units of the noise, and the start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from scipy import special

from dplateau.algorithms import FixedSize, Poisson, Run, Scheme
from dplateau.verify import reading
from dplateau.verify.claims import Case
from dplateau.verify.coins import CoinSum, coin_sum
from dplateau.verify.facts import require_constant, require_hidden
from dplateau.verify.moduli import CONTRACTION, StepLosses
from dplateau.verify.precise import MP

_CELLS = 1 << 13
_SCHEMES: dict[str, Scheme] = {"poisson": Poisson, "fixed": FixedSize}


@dataclass(frozen=True)
class Sampled:
    """A sampled run with lengths in units of the noise: what one inclusion moves, the diameter."""

    run: Run
    eta: float
    nu: float
    contraction: float
    rate: float
    step: float
    diameter: float
    extra_delta: float

    def largest_start(self, before: int) -> float:
        """Return min(D, r (1 - c^tau)/(1 - c)): no start is further apart."""
        log = math.log(self.contraction) if self.contraction > 0 else -math.inf
        if before == 0:
            return 0.0
        if math.isinf(log):
            return min(self.diameter, self.step)
        total = before if log == 0 else math.expm1(min(before * log, 700.0)) / math.expm1(log)
        return min(self.diameter, self.step * total)


def require_sampled(case: Case, sampling: str, neighbors: str) -> Run:
    """Require the kind of batches and of neighbours that a theorem is about."""
    run, ledger = case.run, case.ledger
    require_hidden(run, ledger)
    require_sampling(case, sampling)
    ledger.require("neighbours", run.neighbors == neighbors, f"they are {run.neighbors!r}")
    return run


def require_sampling(case: Case, sampling: str) -> None:
    """Require the kind of random batches that a theorem is about."""
    wanted = isinstance(case.run.batches, _SCHEMES[sampling])
    case.ledger.require("sampling", wanted, f"this is {case.run.described}")


def require_cap(case: Case, run: Run) -> tuple[int, float]:
    """Check the cap on batches and what exceeding it costs: T P(Bin(n, q) > cap)."""
    cap = reading.whole(case.witness, "batch_cap")
    stored = reading.number(case.witness, "extra_delta")
    if isinstance(run.batches, FixedSize):
        case.ledger.require("batch cap", cap == run.batch_size, f"{cap} of {run.batch_size:g}")
        cost = 0.0
    else:
        cost = run.steps * binomial_tail(cap, run.n, run.sampling_rate)
    detail = f"stored {stored:.9g}, derived {cost:.9g}"
    close = cost * (1 - 1e-9) <= stored <= cost * (1 + 1e-6)
    case.ledger.require("batches above the cap", close, detail)
    return cap, stored


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


def contractive_setting(case: Case, run: Run, factor: int) -> Sampled:
    """Return the setting of a contraction bound; one inclusion moves ``factor`` record steps."""
    stage = require_constant(run, case.ledger)
    losses = reading.word(case.witness, "losses")
    case.ledger.require("class of losses", losses == CONTRACTION, f"{losses!r}")
    cap, extra = require_cap(case, run)
    assert run.loss is not None
    maps = StepLosses(run.loss, run.l2, 0.0, cap / run.batch_size)
    contraction = maps.modulus(losses, stage.eta, case.ledger).slope
    case.ledger.agree("contraction", reading.number(case.witness, "contraction"), contraction)
    return Sampled(
        run=run,
        eta=stage.eta,
        nu=stage.nu,
        contraction=contraction,
        rate=run.sampling_rate,
        step=factor * stage.eta * run.loss.lipschitz / run.batch_size / stage.nu,
        diameter=run.diameter / stage.nu,
        extra_delta=extra,
    )


@dataclass(frozen=True)
class Start:
    """Distances R steps before the end: ``weights[k]`` for at most ``edges[k]``, and the rest."""

    last_steps: int
    edges: list[float]
    weights: list[float]
    beyond: float


def require_start(case: Case, setting: Sampled) -> Start:
    """Read the distances, and bound their chances anew by the law of sum_j c^j I_j."""
    witness, ledger = case.witness, case.ledger
    last_steps = reading.whole(witness, "last_steps", 1)
    before = setting.run.steps - last_steps
    ledger.require("last steps", before >= 0, f"{last_steps} of {setting.run.steps} steps")
    edges, weights = reading.rising(witness, "edges"), reading.numbers(witness, "weights")
    beyond = reading.number(witness, "beyond")
    shapes = len(edges) == len(weights) and min(*weights, beyond) >= 0
    ledger.require("start", shapes, f"{len(edges)} distances with {len(weights)} chances")
    total = math.fsum([*weights, beyond])
    ledger.require("chances", abs(total - 1) <= 1e-11, f"they sum to {total:.15g}")
    tails = [1.0]
    for edge in edges:
        tails.append(min(tails[-1], _tail(setting, before, edge)))
    return Start(last_steps, edges, [a - b for a, b in pairwise(tails)], tails[-1])


def _tail(setting: Sampled, before: int, edge: float) -> float:
    """Return an upper bound on the chance of a larger start."""
    if edge >= setting.largest_start(before) * (1 - 1e-11):
        return 0.0
    point = edge / setting.step
    if setting.contraction == 1:
        return binomial_tail(math.floor(point * (1 + 1e-12)), before, setting.rate)
    law = _law(setting.contraction, setting.rate, before)
    return law.tail(point)


@lru_cache(maxsize=32)
def _law(contraction: float, rate: float, count: int) -> CoinSum:
    return coin_sum(contraction, rate, count, _CELLS, "up")
