"""Honest certificates of random runs that a verifier finds hard: each was once refused.

``tools/verify_many.py`` draws thousands of such runs; these are the ones that it has found.
"""

from __future__ import annotations

import pytest

from dplateau.algorithms import (
    Ball,
    Body,
    Box,
    Checkpoints,
    CyclicSGD,
    LossGeometry,
    NoisySGD,
    OnePassSGD,
    Run,
    Schedule,
)
from dplateau.bounds.registry import bound_named
from dplateau.certificates import certify
from dplateau.verify import Verification, verify


def confirmed(run: Run, bound: str, delta: float) -> Verification:
    verdict = certify(run, delta, bounds=[bound_named(bound)]).verify()
    assert verdict.ok, str(verdict)
    return verdict


def test_atoms_on_the_edges_of_a_start_are_covered_on_other_grids() -> None:
    """Almost all starts lie on a few points, and a plan's edges on some of them."""
    run = NoisySGD(
        n=322,
        batch_size=3,
        steps=22,
        learning_rate=1.9858905705626746,
        l2=0.46761374570148845,
        domain=Box(lower=(-2.5337664734033476,), upper=(2.5337664734033476,)),
        loss=LossGeometry(
            lipschitz=3.1772791462056826, convex=True, smoothness=0.10691346215033799
        ),
        noise_std=1.4465043166079157,
        neighbors="replace",
        release="last",
        sampling="fixed",
    )
    confirmed(run, "fixed_size_averaged", 6.74e-07)


def test_the_smallest_deltas_of_groups_are_confirmed() -> None:
    """Five records at an epsilon of 700 leave each of them a delta of 1e-249."""
    run = NoisySGD(
        n=114,
        sampling_rate=0.0018859518232838808,
        steps=2,
        learning_rate=1.0,
        noise_multiplier=0.32809706526959187,
        release="all",
        group_size=5,
    )
    verdict = confirmed(run, "pld_composition", 1.61e-05)
    assert verdict.claimed_epsilon == pytest.approx(700.9, abs=0.1)


def test_a_block_with_losses_beyond_all_numbers_is_confirmed() -> None:
    """Three records that rarely meet: one of their blocks has losses of 658."""
    run = NoisySGD(
        n=9,
        sampling_rate=0.00466,
        steps=64,
        learning_rate=0.0613,
        l2=0.058,
        loss=LossGeometry(lipschitz=2.34, convex=True, smoothness=0.104),
        noise_std=Schedule(((22.0, 22), (14.3, 21), (9.3, 21))),
        group_size=3,
        domain=Box(lower=(-0.276,), upper=(0.276,)),
        release="last",
    )
    verdict = confirmed(run, "poisson_blocks", 1.87e-08)
    assert verdict.claimed_epsilon is not None
    assert verdict.claimed_epsilon > 150


def test_losses_that_spread_far_are_tilted_to_the_point() -> None:
    """Two records at an epsilon of 712: beside the best tilt nothing is likely near it."""
    run = NoisySGD(
        n=19126,
        sampling_rate=0.0012418115419374485,
        steps=255,
        learning_rate=0.5,
        noise_multiplier=0.30979037397813575,
        release="last",
        group_size=2,
    )
    confirmed(run, "pld_composition", 4.76e-05)


@pytest.mark.parametrize("bound", ["random_stop_contraction", "random_stop_lipschitz"])
def test_states_that_hardly_meet_are_confirmed(bound: str) -> None:
    """A domain of fifty deviations: fifty digits do not tell its hockey stick from 1."""
    run = OnePassSGD(
        n=1,
        batch_size=1,
        learning_rate=1.5261838857717416,
        domain=Body(diameter=82.52434849472532),
        loss=LossGeometry(lipschitz=1.6150865153462257, convex=True, smoothness=0.476653763844319),
        noise_std=1.5768994694558256,
        release="random_stop",
    )
    confirmed(run, bound, 2.43e-08)


@pytest.mark.parametrize(("n", "batch_size", "steps"), [(43, 17, 1), (43, 17, 4), (790, 18, 5)])
def test_ordered_runs_that_end_within_an_epoch_are_confirmed(
    n: int, batch_size: int, steps: int
) -> None:
    """A shorter last batch makes steps differ, and the plan begins with the run itself."""
    run = CyclicSGD(
        n=n,
        batch_size=batch_size,
        steps=steps,
        order="shuffle_once",
        learning_rate=1.9,
        domain=Box(lower=(-13.9,), upper=(13.9,)),
        loss=LossGeometry(lipschitz=1.4, convex=True, smoothness=2.0, strong_convexity=0.08),
        noise_multiplier=18.0,
        release="last",
    )
    confirmed(run, "modulus", 4.99e-08)


def test_some_learning_rates_expand_and_some_do_not() -> None:
    """No class of losses but the smooth ones then serves all rates."""
    run = NoisySGD(
        n=832,
        sampling_rate=Schedule(((0.48456562492795807, 4), (0.39509448002410097, 4))),
        batch_size=497.5470363555418,
        steps=8,
        learning_rate=Schedule(((3.394537804238342, 4), (2.9394034705059218, 4))),
        l2=0.013283402012102536,
        domain=Body(diameter=5.027330530973873),
        loss=LossGeometry(
            lipschitz=0.9561115617640507,
            convex=True,
            smoothness=0.6538987417160431,
            strong_convexity=0.0877774740197927,
        ),
        noise_multiplier=58.86074188714035,
        release="last",
    )
    confirmed(run, "every_batch", 0.000529)


@pytest.mark.parametrize(
    ("neighbors", "rates", "steps", "multiplier", "delta"),
    [
        ("add_remove", (0.0016213, 0.0009566), 615, 0.3337, 1e-6),
        ("replace", (0.0496, 0.0080), 849, 0.9591, 1e-6),
    ],
)
def test_sampling_rates_that_never_repeat_are_confirmed(
    neighbors: str, rates: tuple[float, float], steps: int, multiplier: float, delta: float
) -> None:
    """Hundreds of rates are mixtures of a few; rounding them up would cost .3 percent."""
    first, last = rates
    falling = [first * (last / first) ** (t / (steps - 1)) for t in range(steps)]
    run = NoisySGD(
        n=5393,
        sampling_rate=Schedule.of(falling),
        batch_size=410.0,
        steps=steps,
        learning_rate=0.1,
        noise_multiplier=multiplier,
        neighbors=neighbors,
        release="last",
    )
    confirmed(run, "pld_composition", delta)


def test_starts_rarer_than_rounding_are_told_apart() -> None:
    """Two records at delta 1e-6 and epsilon 26: the starts that count have chances below 2e-10."""
    run = NoisySGD(
        n=33346,
        batch_size=13,
        steps=684,
        learning_rate=0.02382699990551197,
        l2=0.03961501664423588,
        loss=LossGeometry(lipschitz=2.5607257692948417, convex=True, smoothness=46.744064903964606),
        noise_multiplier=0.7560218361625697,
        neighbors="replace",
        release="last",
        group_size=2,
        sampling="fixed",
    )
    confirmed(run, "fixed_size_averaged", 1.09e-06)


def test_long_plans_that_leave_nothing_over_are_confirmed() -> None:
    """What 100,000 steps round would, left over, be a jump of losses that have corners."""
    run = NoisySGD(
        n=144,
        sampling_rate=0.02558050152437966,
        steps=100_000,
        learning_rate=0.215003884771675,
        l2=0.0007449193265619748,
        loss=LossGeometry(lipschitz=0.41163797260076446, convex=True),
        noise_multiplier=5.821792362160371,
        release="last",
    )
    confirmed(run, "every_batch", 0.000104)


@pytest.mark.parametrize("delta", [1e-5, 1e-20, 1e-30])
def test_checkpoints_on_a_tiny_domain_are_confirmed(delta: float) -> None:
    """Blocks of distances below the rounding of their losses: these looked larger than any."""
    run = NoisySGD(
        n=10,
        sampling_rate=0.01,
        steps=11,
        learning_rate=0.0067,
        l2=149.4,
        domain=Body(6e-11),
        loss=LossGeometry(lipschitz=112.6, convex=False, smoothness=0.0173),
        noise_multiplier=32.0,
        release=Checkpoints(every=5),
        sampling="poisson",
    )
    confirmed(run, "checkpoints_poisson", delta)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_more_than_a_thousand_different_uses_are_confirmed_in_time(sampling: str) -> None:
    """A noise that spreads fortyfold: rounded up to 600 values it cost more than the margin."""
    noise = [0.5 * 40 ** (i * 0.6180339887498949 % 1) for i in range(1400)]
    run = NoisySGD(
        n=144,
        batch_size=4,
        steps=len(noise),
        noise_multiplier=Schedule(tuple((value, 1) for value in noise)),
        neighbors="replace",
        release="all",
        sampling=sampling,
    )
    found = certify(run, 1e-5, bounds=[bound_named("pld_composition")]).to_dict()
    verdict = verify(found)  # in ten seconds
    assert verdict.ok, str(verdict)


def test_uses_that_differ_in_noise_and_in_rate_are_confirmed_in_time() -> None:
    """Of more than a verification tells apart the claim itself rounds both up."""
    noise = [0.5 * 40 ** (i * 0.6180339887498949 % 1) for i in range(2100)]
    rates = [0.002 * 25 ** (i * 0.4142135623730950 % 1) for i in range(2100)]
    run = NoisySGD(
        n=1000,
        batch_size=10,
        sampling_rate=Schedule(tuple((value, 1) for value in rates)),
        steps=len(noise),
        noise_multiplier=Schedule(tuple((value, 1) for value in noise)),
        release="all",
    )
    found = certify(run, 1e-5, bounds=[bound_named("pld_composition")])
    verdict = verify(found.to_dict())
    assert verdict.ok, str(verdict)


def test_many_uses_of_a_group_below_a_cap_are_told_apart() -> None:
    """Of 273 uses all counted as the cap, below which many a sum stays."""
    run = NoisySGD(
        n=418,
        sampling_rate=0.14662042893416088,
        steps=933,
        learning_rate=0.5664630139447514,
        l2=0.4997276580021698,
        domain=Ball(0.003380681484142232),
        loss=LossGeometry(
            lipschitz=1.2638579413311202, convex=True, smoothness=0.23979917388947483
        ),
        iterate_std=0.011444823715841842,
        release="last",
        group_size=2,
    )
    confirmed(run, "poisson_blocks", 1.21e-8)


def test_rates_of_replaced_records_are_mixtures_too() -> None:
    """Of 2186 rates 600 were told apart, which cost more than the margin."""
    rates = [0.0016507412861132482 * 0.99911**i for i in range(2186)]
    run = NoisySGD(
        n=31686,
        batch_size=57.923044812097146,
        sampling_rate=Schedule(tuple((rate, 1) for rate in rates)),
        steps=len(rates),
        learning_rate=0.1218250720703203,
        l2=0.002601789381342567,
        domain=Body(0.003634435764610334),
        loss=LossGeometry(
            lipschitz=1.1001731810128983, convex=False, smoothness=5.858742997401793, saddle=True
        ),
        iterate_std=0.016207115988825294,
        neighbors="replace",
        release="last",
    )
    confirmed(run, "poisson_blocks_replace", 1.4e-5)
