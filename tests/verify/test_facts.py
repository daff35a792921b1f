"""What is read off a run, against SciPy."""

from __future__ import annotations

from scipy import stats

from dplateau.verify.precise import binomial_tail


def test_binomial_tails() -> None:
    for most, trials, rate in ((15, 100, 0.05), (500, 1000, 0.3), (120, 10**5, 1e-3)):
        exact = float(stats.binom.sf(most, trials, rate))
        assert exact * (1 - 1e-9) <= binomial_tail(most, trials, rate) <= exact * (1 + 1e-9)
    assert binomial_tail(7, 7, 0.5) == 0
