"""Rényi divergences of the sampled Gaussian: never below the truth, and a hair above it."""

from __future__ import annotations

import math

import dp_accounting as peer
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau.curves.renyi import LARGEST_REAL_ORDER, sampled_gaussian_rdp

RATES = [1e-6, 1e-4, 256 / 60000, 0.1, 0.5, 0.99, 1 - 1e-7]
NOISES = [0.05, 0.3, 1.1, 5.0, 100.0]
# What the code promises beyond the truth; a looser answer would not be wrong.
CLOSE = 1e-10


def ours(order: float, rate: float, step: float) -> float:
    return float(sampled_gaussian_rdp(np.array([order]), rate, step)[0])


def exact_whole(order: int, rate: float, step: float) -> mp.mpf:
    """Binomial theorem with 60 digits."""
    with mp.workdps(60):
        q, r = mp.mpf(rate), mp.mpf(step)
        terms = (
            mp.binomial(order, k)
            * (1 - q) ** (order - k)
            * q**k
            * mp.expm1(k * (k - 1) * r * r / 2)
            for k in range(2, order + 1)
        )
        return mp.log1p(mp.fsum(terms)) / (order - 1)


def exact_real(order: float, rate: float, step: float) -> mp.mpf:
    """Quadrature with 34 digits: the trapezoidal rule, far finer and wider than needed."""
    with mp.workdps(34):
        a, q, r = mp.mpf(order), mp.mpf(rate), mp.mpf(step)
        width = min(mp.mpf(2), mp.pi / r * mp.mpf("0.95"))
        spacing = 2 * mp.pi * width / (75 + width**2)
        count = int((34 + a * r) / spacing) + 1
        total = mp.mpf(0)
        for i in range(count):
            x = -17 + spacing * (i + mp.mpf(1) / 3)
            u = q * mp.expm1(r * x - r * r / 2)
            total += mp.exp(-x * x / 2) * ((1 + u) ** a - 1 - a * u)
        return mp.log1p(total * spacing / mp.sqrt(2 * mp.pi)) / (a - 1)


def assert_just_above(found: float, exact: mp.mpf) -> None:
    assert exact <= found <= exact * (1 + CLOSE)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("rate", RATES)
def test_whole_orders(rate: float, noise: float) -> None:
    for order in (2, 3, 8, 33, 400):
        step = 1 / noise
        assert_just_above(ours(order, rate, step), exact_whole(order, rate, step))


@pytest.mark.parametrize(
    ("order", "rate", "noise"),
    [
        (1.0005, 1e-6, 100.0),
        (1.0005, 256 / 60000, 1.1),
        (1.0005, 1e-6, 0.2),  # the mean alone decides, and it sits in a far bump
        (1.1, 0.5, 5.0),
        (1.5, 1 - 1e-7, 1.0),
        (2.5, 0.1, 0.3),
        (3.7, 1e-4, 0.3),
        (8.1, 256 / 60000, 1.1),
        (12.2, 256 / 60000, 1.1),  # where the best order for one step lies
        (17.3, 0.99, 5.0),
        (30.5, 1e-6, 1.0),
        (63.9, 1e-4, 100.0),
        (63.9, 0.1, 2.0),
    ],
)
def test_real_orders(order: float, rate: float, noise: float) -> None:
    assert_just_above(ours(order, rate, 1 / noise), exact_real(order, rate, 1 / noise))


@pytest.mark.parametrize(("order", "rate", "noise"), [(1.5, 0.01, 0.05), (2.001, 1e-6, 0.05)])
def test_real_orders_at_tiny_noise(order: float, rate: float, noise: float) -> None:
    """Between whole orders (alpha - 1) D is convex: two whole orders bracket a real one."""
    step = 1 / noise
    found = ours(order, rate, step) * (order - 1)
    low, high = math.floor(order), math.ceil(order)
    right = float(exact_whole(high, rate, step)) * (high - 1)
    left = float(exact_whole(low, rate, step)) * (low - 1) if low > 1 else 0.0
    assert left <= found <= left + (order - low) * (right - left)
    # One Gaussian bump of weight q^order dominates here: E = q^a e^{a (a-1) r^2 / 2}.
    bump = order * math.log(rate) + order * (order - 1) * step**2 / 2
    assert found == pytest.approx(bump, rel=1e-3)


@pytest.mark.parametrize(
    ("order", "rate"), [(1.0005, 1e-6), (1.037, 0.01), (7.7, 0.5), (60.5, 0.1)]
)
def test_quadrature_and_the_far_limit_meet(order: float, rate: float) -> None:
    """Centers 100 standard deviations apart are no longer integrated."""
    inside, outside = 100 * (1 - 1e-12), 100 * (1 + 1e-12)
    near, far = ours(order, rate, inside), ours(order, rate, outside)
    assert far == pytest.approx(near, rel=1e-9)
    assert 0 < ours(order, rate, 1e9) < math.inf
    assert ours(order, rate, 1e9) == pytest.approx(order * 1e18 / 2, rel=1e-6)


def test_quadrature_and_binomial_sums_meet() -> None:
    for order in (2.0, 5.0, 30.0):
        beside = np.array([order * (1 - 1e-9), order, order * (1 + 1e-9)])
        low, middle, high = sampled_gaussian_rdp(beside, 0.01, 0.8).tolist()
        assert low == pytest.approx(middle, rel=1e-6)
        assert high == pytest.approx(middle, rel=1e-6)


@given(
    rate=st.floats(1e-6, 0.999),
    step=st.floats(0.01, 4.0),
    orders=st.lists(st.floats(1.001, 60.0), min_size=2, max_size=5),
)
def test_monotone_in_order_rate_and_step(rate: float, step: float, orders: list[float]) -> None:
    alphas = np.sort(np.array(orders))
    found = sampled_gaussian_rdp(alphas, rate, step)
    assert np.all(found > 0)
    assert np.all(np.diff(found) >= -1e-10 * found[1:])
    more = sampled_gaussian_rdp(alphas, min(1.0, 1.5 * rate), 1.1 * step)
    assert np.all(more >= found)
    # Sampling never costs more than always joining.
    assert np.all(found <= alphas * step**2 / 2 * (1 + 1e-10))


def test_no_sampling_is_the_plain_gaussian() -> None:
    orders = np.array([1.5, 2.0, 100.0, 16384.0])
    found = sampled_gaussian_rdp(orders, 1.0, 0.7)
    np.testing.assert_allclose(found, orders * 0.49 / 2, rtol=1e-11)
    assert np.all(found >= orders * 0.49 / 2)


def test_real_orders_above_the_limit_use_the_next_whole_one() -> None:
    order = LARGEST_REAL_ORDER + 0.5
    above = math.ceil(order)
    assert ours(order, 0.01, 0.5) * (order - 1) == pytest.approx(
        ours(above, 0.01, 0.5) * (above - 1), rel=1e-12
    )


@pytest.mark.parametrize("rate", [1e-4, 256 / 60000, 0.2, 0.9])
@pytest.mark.parametrize("noise", [0.5, 1.1, 10.0])
def test_against_dp_accounting(rate: float, noise: float) -> None:
    orders = [1.25, 1.5, 2.0, 3.0, 5.5, 8.0, 17.0, 40.0, 64.0, 256.0]
    accountant = peer.rdp.RdpAccountant(orders)
    accountant.compose(peer.PoissonSampledDpEvent(rate, peer.GaussianDpEvent(noise)))
    mine = sampled_gaussian_rdp(np.array(orders), rate, 1 / noise)
    whole = np.array([order == int(order) for order in orders])
    np.testing.assert_allclose(mine[whole], accountant.rdp[whole], rtol=1e-6, atol=1e-13)
    # Between whole orders it is sometimes looser.
    assert np.all(mine <= accountant.rdp * (1 + 1e-6) + 1e-13)
