"""The verifier of lagged blocks: laws, numbers computed by hand, forged witnesses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf, ncdf

from dplateau.algorithms import Ball, LossGeometry, NoisySGD, Run
from dplateau.ground.sealed import CERTIFICATE, Stamp, seal
from dplateau.verify import Verification, verify
from dplateau.verify.blocks import Edges, Stretch, block_parts, smoothed, uses_of
from dplateau.verify.coins import (
    Atoms,
    Coins,
    SmoothedCoins,
    capped_atoms,
    few_atoms,
    fewer_atoms,
)
from dplateau.verify.composed import Rows, composed_epsilon
from dplateau.verify.pairs import BlockPair, two_sided_pair
from forging import forged

Found = dict[str, Any]


def constant(c: float, q: float, z: float, steps: int) -> list[Stretch]:
    return [Stretch(0, steps, 1.0, z, q, math.log(c), 0.0)]


def blocks_epsilon(run: Any, edges: Edges, split: tuple[int, int], claimed: float) -> float:
    rows = Rows.product(block_parts(constant(*run), edges, split, math.inf, 1e-12))
    return composed_epsilon(rows, claimed, 1e-5).epsilon


def dyadic(c: float, steps: int) -> Edges:
    noise = [0, 1]
    while 2 * noise[-1] < math.log(4) / -math.log(c):
        noise.append(2 * noise[-1] + 1)
    return Edges(0, (*noise, 2 * noise[-1]), (*(2 * a for a in noise), steps))


@pytest.mark.parametrize(
    ("run", "edges", "epsilon"),
    [
        ((0.9, 0.5, 2.0, 2), Edges(0, (0, 1, 2), (0, 1, 2)), 1.83358),
        ((0.9, 0.5, 2.0, 2), Edges(2, (2,), (2,)), 1.83358),
        ((0.9, 0.5, 2.0, 2), Edges(0, (0, 1), (0, 2)), 2.75375),
        ((0.5, 0.2, 1.0, 3), Edges(0, (0, 1, 3), (0, 2, 3)), 3.38997),
    ],
)
def test_blocks_computed_by_hand(run: Any, edges: Edges, epsilon: float) -> None:
    """Atoms and weights written out in docs/theory/blocks.md."""
    found = blocks_epsilon(run, edges, (1, 0), epsilon * (1 - 1e-5))
    assert epsilon - 6e-6 <= found <= epsilon * (1 + 1e-4)


@pytest.mark.parametrize(
    ("c", "q", "z", "steps", "one", "lower", "two", "lower_two"),
    [
        (0.99, 0.01, 1.0, 5000, 0.656, 0.5691, 1.10, 1.068),
        (0.99, 0.01, 2.0, 20000, 0.2534, 0.2483, 0.503, 0.4966),
        (0.95, 0.05, 2.0, 2000, 0.690, 0.6437, 1.246, 1.196),
        (0.9, 0.1, 2.0, 1000, 1.074, 0.9844, 1.83, 1.745),
        (0.98, 0.1, 5.0, 5000, 0.7565, 0.7474, 1.568, 1.545),
    ],
)
def test_dyadic_plans_lie_between_exact_attacks_and_coarser_evaluations(
    c: float,
    q: float,
    z: float,
    steps: int,
    one: float,
    lower: float,
    two: float,
    lower_two: float,
) -> None:
    """The coarser evaluations round a few hundred atoms up: they are at most 1.3 percent larger."""
    for split, upper, least in (((1, 0), one, lower), ((1, 1), two, lower_two)):
        found = blocks_epsilon((c, q, z, steps), dyadic(c, steps), split, upper)
        assert max(least, upper * 0.987) < found < upper * 1.002


@pytest.mark.parametrize(
    ("q", "z", "steps", "epsilon"),
    [
        (0.01, 1, 5000, 7.146),
        (0.1, 2, 1000, 17.685),
        (0.01, 2, 20000, 6.602),
        (0.1, 5, 5000, 15.423),
    ],
)
def test_released_iterates_of_a_replaced_record(
    q: float, z: float, steps: int, epsilon: float
) -> None:
    rows = Rows.product([(two_sided_pair(q, 1 / z), steps)])
    found = composed_epsilon(rows, epsilon * (1 - 1e-5), 1e-5).epsilon
    assert epsilon * (1 - 1e-4) < found < epsilon * (1 + 1e-3)


COINS = Coins(
    np.array([0.3, 0.7, 1.1, 2.0]), np.array([0.2, 0.01, 0.5, 1e-3]), np.array([2.0, 3.0, 1.0, 1.0])
)


def test_inverted_laws_are_the_enumerated_ones_into_their_tails() -> None:
    exact, inverted = few_atoms(COINS, 5000), SmoothedCoins(COINS, 1e-25)
    assert exact is not None
    y = np.linspace(*inverted.reach(1e-20), 60)
    first, second = exact.tails(y), inverted.tails(y)
    for tail, other, error in (
        (first.upper, second.upper, second.upper_error),
        (first.lower, second.lower, second.lower_error),
    ):
        assert np.all(np.abs(tail - other) <= error + 1e-12 * tail)
        assert other == pytest.approx(tail, rel=1e-6)
    assert second.log_density == pytest.approx(first.log_density, abs=1e-6)


@pytest.mark.parametrize("cap", [0.25, 1.5, 3.0])
def test_laws_below_a_cap_are_rounded_up_a_little(cap: float) -> None:
    exact, cut = few_atoms(COINS, 5000), capped_atoms(COINS, cap)
    assert exact is not None
    assert cut is not None
    y = np.linspace(-3, 6, 40)
    least = Atoms(np.minimum(exact.points, cap), exact.masses).tails(y).upper
    found = cut.tails(y).upper
    assert np.all(found >= least * (1 - 1e-12))
    assert np.all(found <= least * 1.02)


def test_old_uses_are_grouped_upwards_and_none_is_lost() -> None:
    steps, c = 10**8, 0.9999
    found = uses_of(constant(c, 0.01, 1.0, steps), 50, steps, 0.0)
    assert found is not None
    exact = math.exp(50 * math.log(c)) / (1 - c)
    total = float(found.weights @ found.counts) + found.offset
    assert exact <= total <= exact * 1.001


# ---- certificates -------------------------------------------------------------------------------

RUN = NoisySGD(
    n=400,
    batch_size=8,
    steps=40,
    noise_multiplier=2.0,
    learning_rate=0.4,
    l2=0.1,
    loss=LossGeometry(lipschitz=2.0, convex=True, smoothness=0.5),
    release="last",
)
WITNESS: Found = {
    "losses": "convex and smooth",
    "batch_cap": 39,
    "batch_floor": 0,
    "extra_delta": 1e-9,
    "single_steps": 1,
    "edges": [[1, 1], [2, 3], [4, 7], [7, 40]],
}


def claim(epsilon: float, run: Run = RUN, /, **changes: Any) -> Found:
    content: Found = {
        "claim": {"epsilon": epsilon, "delta": 1e-5},
        "no_claim": None,
        "bound": "poisson_blocks" if run.neighbors == "add_remove" else "poisson_blocks_replace",
        "run": run.to_dict(),
        "witness": {**WITNESS, **changes},
        "assumptions": [{"text": "none", "status": "checked"}],
        "citation": "docs/theory/blocks.md",
        "files": {},
    }
    return seal(CERTIFICATE, content, Stamp("2026-01-31T12:00:00Z", "0.2.0"))


def derived(run: Run = RUN, **changes: Any) -> float:
    found = verify(claim(2.0, run, **changes)).rederived_epsilon
    assert found is not None
    return found


def failed(verdict: Verification) -> str:
    assert not verdict.ok
    return verdict.checks[-1].name


def test_a_claim_at_the_derived_epsilon_holds_and_none_below() -> None:
    settled = derived()
    for _ in range(4):  # the grid depends on the claim a little
        settled = verify(claim(settled * (1 + 1e-5))).rederived_epsilon or 0.0
    assert verify(claim(settled * (1 + 1e-3))).ok
    assert failed(verify(claim(settled * (1 - 1e-3)))) == "epsilon is proved"


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"edges": [[1, 1], [3, 3], [4, 7], [7, 40]]}, "causality"),
        ({"edges": [[1, 1], [2, 3], [2, 7], [7, 40]]}, "rising edges"),
        ({"edges": [[1, 1], [2, 7], [4, 3], [7, 40]]}, "rising edges"),
        ({"edges": [[1, 1], [2, 3], [4, 7], [7, 39]]}, "last edge"),
        ({"edges": [[1, 1], [2, 3], [4, 7], [7, 41]]}, "last edge"),
        ({"edges": [[1, 2], [2, 3], [4, 7], [7, 40]]}, "first edge"),
        ({"edges": [[0, 0], [2, 3], [4, 7], [7, 40]]}, "first edge"),
        ({"single_steps": 41}, "single steps"),
        ({"single_steps": 40, "edges": [[40, 40], [41, 41]]}, "last edge"),
        ({"edges": [[i, i] for i in range(1, 400)]}, "edges"),
        ({"edges": [[1, 1], [2.5, 3], [7, 40]]}, "readable"),
        ({"edges": [[1, 1], [2], [7, 40]]}, "readable"),
        ({"edges": []}, "readable"),
        ({"single_steps": -1}, "readable"),
        ({"batch_cap": 10}, "batch limits"),
        ({"batch_cap": 10, "extra_delta": 50.0}, "batch limits"),
        ({"batch_floor": 6}, "batch limits"),
        ({"batch_floor": 50}, "batch limits"),
        ({"batch_cap": 20, "extra_delta": 0.0}, "batch limits"),
        ({"losses": "convex and Lipschitz"}, "linear modulus"),
        ({"losses": "magic"}, "class of losses"),
    ],
)
def test_forged_witnesses_are_refused_with_the_reason(changes: Found, check: str) -> None:
    assert failed(verify(claim(2.0, **changes))) == check


def test_the_theorem_is_about_its_own_neighbors_and_batches() -> None:
    swapped = RUN.replace(neighbors="replace")
    found = forged(claim(2.0, swapped), bound="poisson_blocks")
    assert failed(verify(found)) == "neighbors"
    assert derived(swapped) > derived()


def test_what_hides_more_derives_less() -> None:
    base = derived()
    assert derived(RUN.replace(noise_multiplier=2.2)) < base
    assert derived(RUN.replace(l2=0.3)) < base
    assert derived(RUN.replace(domain=Ball(0.01))) < base
    assert derived(RUN.replace(group_size=2)) > base


def test_a_record_that_leaves_makes_room_for_another() -> None:
    """Groups of two: one record is removed, one is added, and all but one of the n are common."""
    run = RUN.replace(n=4, batch_size=2, group_size=2)
    assert failed(verify(claim(2.0, run, batch_cap=2))) == "batch limits"
    assert failed(verify(claim(2.0, run, batch_cap=3))) == "batch limits"
    assert derived(run, batch_cap=4) > 2


def test_more_laws_than_an_honest_plan_has_are_not_looked_at() -> None:
    """199 blocks for a group of 50 once took a minute and a gigabyte."""
    run = RUN.replace(n=1000, steps=100_000, group_size=50)
    edges = [[0, 0], [1, 500], *([500 * i + 1, 500 * (i + 1)] for i in range(1, 199))]
    edges[-1][1] = run.steps
    found = claim(2.0, run, batch_cap=1000, single_steps=0, edges=edges)
    assert failed(verify(found)) == "laws"


@pytest.mark.parametrize("never", [0.0, 1e-12, 1e-3, 0.4])
def test_fewer_atoms_are_a_larger_law(never: float) -> None:
    """Nothing above any point gets rarer, and no more than ``never`` moves."""
    generator = np.random.default_rng(3)
    points, logs = generator.uniform(0, 2, 40), generator.uniform(-30, 0, 40)
    whole = Atoms(points, np.exp(logs) / np.exp(logs).sum())
    fewer = fewer_atoms(whole, never)
    assert fewer.points.size < whole.points.size or never == 0
    for point in np.linspace(-0.1, 2.1, 45):
        before, after = (float(a.masses[a.points > point].sum()) for a in (whole, fewer))
        assert before * (1 - 1e-12) <= after <= before + 2 * never + 1e-15
    assert fewer.masses.sum() >= 1 - 1e-12


def test_what_never_happens_to_a_group_is_not_enumerated() -> None:
    """Fifty records in two steps have thousands of sums, of which few are likely at all."""
    coins = Coins(np.array([1.0, 0.4]), np.array([0.01, 0.01]), np.array([30.0, 30.0]))
    law = smoothed(coins, math.inf, 1e-12)
    assert isinstance(law, Atoms)
    assert law.points.size < 150
    assert few_atoms(coins, 1500).points.size == 31**2  # type: ignore[union-attr]
    assert law.masses.sum() == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("size", [1e-17, 3e-15, 1e-12, 1e-9, 1e-3])
@pytest.mark.parametrize("order", [0, 1])
def test_blocks_of_next_to_no_distance_have_ends(size: float, order: int) -> None:
    """Rounding leaves few losses, and beyond the last one a chance that is not above 1e-25."""
    right = Atoms(np.array([0.0, size]), np.array([0.99, 0.01]))
    pair = BlockPair(right, Atoms(np.zeros(1), np.ones(1)), 1e-27)
    epsilons = np.array([-1e-13, 0.0, size, 1e-14, 1e-11, 12 * size + 1e-9])
    found = pair.deltas(epsilons, order)
    with mp.workdps(60):
        for epsilon, delta in zip(epsilons.tolist(), found.tolist(), strict=True):
            ratio = mp.expm1(mpf(epsilon) * (1 - 2 * order)) / mpf("0.01") + 1
            if ratio <= 0:
                continue
            # Where the loss of 99 percent N(0) and 1 percent N(size) against N(0) is this one.
            y = mp.log(ratio) / mpf(size) + mpf(size) / 2
            rest = mpf("0.01") * (ncdf(mpf(size) - y) - ncdf(-y))
            tails = (ncdf(-y) + rest, ncdf(-y)) if order == 0 else (ncdf(y), ncdf(y) - rest)
            assert delta >= tails[0] - mp.exp(mpf(epsilon)) * tails[1]
    assert found[-1] < 1e-25
