"""Thresholds that turn a 128-bit uniform number into a binomial one."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from functools import lru_cache

BITS = 128
DIGITS = 60


@lru_cache(maxsize=16)
def binomial_thresholds(trials: int, probability: float) -> list[int]:
    """Return t_0 <= t_1 <= ...: a uniform 128-bit number below t_k (and no earlier) means k.

    t_k is 2^128 P(X <= k), rounded. The sums run in 60-digit decimals with unbounded exponents, so
    each is right to far more than 120 bits; the list ends where the rest would be less than one.
    """
    with localcontext(Context(prec=DIGITS, Emin=-(10**15), Emax=10**15)):
        p = Decimal(probability)
        if p == 1:
            return [0] * trials
        odds = p / (1 - p)
        mass = (1 - p) ** trials
        total, scale = mass, Decimal(2**BITS)
        thresholds = [int(total * scale)]
        for k in range(trials):
            if thresholds[-1] >= 2**BITS - 1:
                break
            mass = mass * odds * (trials - k) / (k + 1)
            total += mass
            thresholds.append(min(int(total * scale), 2**BITS))
    return thresholds
