"""Replaced records and steps that do not contract: the split form with any modulus."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest

from dplateau import Ball, LossGeometry, NoisySGD, certify, compare
from dplateau.algorithms import Run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import bound_named
from dplateau.bounds.square_root_moduli import (
    FixedSizeModulus,
    PoissonReplaceModulus,
    swapped_runs,
)
from dplateau.bounds.step_maps import tail_cap
from dplateau.curves import LossCurve, PoissonPair, SubsampledGaussianPair, compose_pairs
from dplateau.errors import InvalidInput, NotApplicable

OPTIONS: dict[str, Any] = {
    "n": 400,
    "batch_size": 8,
    "steps": 3000,
    "learning_rate": 0.4,
    "domain": Ball(0.05),
    "noise_multiplier": 4.0,
    "neighbors": "replace",
    "sampling": "fixed",
    "release": "last",
}
LOSSES = {
    "convex and Lipschitz": LossGeometry(lipschitz=1.0, convex=True),
    "convex and weakly smooth": LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.01)),
    "smooth": LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02),
    "strongly dissipative": LossGeometry(
        lipschitz=1.0, convex=False, smoothness=0.05, dissipativity=(1e-6, 0.04)
    ),
    "convex and smooth": LossGeometry(lipschitz=1.0, convex=True, smoothness=6.0),
}
BOUNDS = {"fixed": FixedSizeModulus(), "poisson": PoissonReplaceModulus()}


def epsilon(bound: Bound, run: Run, delta: float = 1e-5) -> float:
    return bound.curve(run, bound.plan(run, delta)).epsilon(delta)


@pytest.mark.parametrize("sampling", BOUNDS)
@pytest.mark.parametrize("losses", LOSSES)
def test_every_class_of_losses_is_covered(sampling: Any, losses: str) -> None:
    """The whole run is among the plans: composition with the symmetric operator covers it."""
    run = NoisySGD(**{**OPTIONS, "sampling": sampling, "loss": LOSSES[losses]})
    bound = BOUNDS[sampling]
    witness = bound.plan(run, 1e-5)
    assert witness["losses"] == losses
    found = bound.curve(run, witness).epsilon(1e-5)
    step = SubsampledGaussianPair(run.sampling_rate, 2.0 / OPTIONS["noise_multiplier"])
    assert found <= LossCurve(((step, run.steps),)).epsilon(1e-5) * 1.002
    assert next(item.text for item in bound.assumptions(run)).startswith("every record's loss is")


@pytest.mark.parametrize(
    ("losses", "factor"),
    [("convex and weakly smooth", 0.25), ("smooth", 0.25), ("strongly dissipative", 0.2)],
)
def test_mild_losses_have_a_plateau(losses: str, factor: float) -> None:
    run = NoisySGD(**{**OPTIONS, "loss": LOSSES[losses]})
    short = epsilon(FixedSizeModulus(), run)
    long = epsilon(FixedSizeModulus(), run.replace(steps=100_000))
    assert long == pytest.approx(short, rel=5e-3)
    composed = compare(run, 1e-5).epsilon("pld_composition")
    assert composed is not None
    assert short < factor * composed


def test_two_steps_by_hand() -> None:
    """From 2 eta L / b = .1 after one step: a = 1.04 * .1, and swaps of .1 + (eta/b) M .1."""
    loss = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1)
    run = NoisySGD(**OPTIONS | {"steps": 2, "domain": None, "loss": loss})
    run = run.replace(iterate_std=0.3)
    witness = {
        "losses": "smooth",
        "batch_cap": 8,
        "extra_delta": 0.0,
        "last_steps": 1,
        "start_distance": 0.1,
        "swap_share": 0.6,
        "blocks": [[1, 0.104 * (1 + 1e-9)]],
    }
    curve = FixedSizeModulus().curve(run, witness)
    swap = 0.1 + 0.4 / 8 * 0.1 * 0.1
    pairs = [
        (SubsampledGaussianPair(0.02, swap / 0.3 / math.sqrt(0.6)), 1),
        (PoissonPair(1.0, 0.104 / 0.3 / math.sqrt(0.4)), 1),
    ]
    for delta in (1e-2, 1e-5):
        expected = compose_pairs(pairs, target_delta=delta, rtol=1e-4).epsilon(delta)
        assert curve.epsilon(delta) == pytest.approx(expected, rel=2e-3)


def test_the_start_of_a_jumping_modulus_by_hand() -> None:
    """u = .1, then sqrt(.01 + (2 eta L)^2) + .1; equal states do not jump."""
    run = NoisySGD(**{**OPTIONS, "domain": None, "loss": LOSSES["convex and Lipschitz"]})
    (swapped,) = swapped_runs(run, tail_cap(run, 1e-5)).values()
    assert swapped.start(3000) == 0.0
    assert swapped.start(2999) == pytest.approx(0.1, rel=1e-12)
    assert swapped.start(2998) == pytest.approx(math.hypot(0.1, 0.8) + 0.1, rel=1e-12)
    apart = swapped.distances(0.1, np.array([0.2, 0.0, 1.5]))
    expected = [0.1, math.hypot(0.1, 0.8) - 0.2]
    expected.append(math.hypot(expected[-1], 0.8))
    assert apart[:-1] == pytest.approx(expected, rel=1e-12)
    assert apart[-1] == 0.0
    assert swapped.distances(0.0, np.zeros(3)).tolist() == [0.0] * 4


def test_swaps_grow_with_the_distance_up_to_four_gradients() -> None:
    for losses, at_one_tenth in (
        ("convex and Lipschitz", 2.0),
        ("convex and weakly smooth", 1 + 0.01 * math.sqrt(0.1) / 2),
        ("smooth", 1 + 0.02 * 0.1 / 2),
    ):
        run = NoisySGD(**{**OPTIONS, "loss": LOSSES[losses]})
        swapped = swapped_runs(run, tail_cap(run, 1e-5))[losses]
        swaps = swapped.swaps(np.array([0.0, 0.1, 1e9])) / swapped.swaps(np.array([0.0]))
        assert swaps == pytest.approx([1.0, at_one_tenth, 2.0], rel=1e-9)


@pytest.mark.parametrize("sampling", BOUNDS)
def test_flat_losses_are_all_alike(sampling: Any) -> None:
    """Without curvature every class is a translation: the same claim, and no less than c = 1."""
    found = []
    for loss in (
        LossGeometry(lipschitz=1.0, convex=False, smoothness=1e-9),
        LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 1e-9)),
    ):
        run = NoisySGD(**{**OPTIONS, "sampling": sampling, "loss": loss})
        found.append(epsilon(BOUNDS[sampling], run))
    assert found[0] == pytest.approx(found[1], rel=2e-3)
    contractive = NoisySGD(
        **OPTIONS | {"sampling": sampling},
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1e-9),
    )
    name = "fixed_size_averaged" if sampling == "fixed" else "poisson_blocks_replace"
    asked = (bound_named(name), BOUNDS[sampling])
    known = [epsilon(bound, contractive) for bound in asked if bound.refusal(contractive) is None]
    assert found[0] >= min(known) * (1 - 1e-2)


@pytest.mark.parametrize("sampling", BOUNDS)
def test_more_curvature_never_lowers_epsilon(sampling: Any) -> None:
    found = [
        epsilon(
            BOUNDS[sampling],
            NoisySGD(
                **OPTIONS | {"sampling": sampling},
                loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=smoothness),
            ),
        )
        for smoothness in (1e-3, 1e-2, 0.1, 1.0)
    ]
    assert all(a <= b * 1.003 for a, b in itertools.pairwise(found))
    assert found[0] < 0.5 * found[-1]


def test_witnesses_that_prove_nothing_are_refused() -> None:
    run = NoisySGD(**{**OPTIONS, "loss": LOSSES["smooth"]})
    bound = FixedSizeModulus()
    honest = dict(bound.plan(run, 1e-5))
    assert honest["last_steps"] < 3000
    changes: list[tuple[dict[str, Any], str]] = [
        ({"losses": "convex and Lipschitz"}, "no modulus is known"),
        ({"losses": "magic"}, "no modulus is known"),
        ({"swap_share": 1.0}, "no split"),
        ({"swap_share": 0.0}, "no split"),
        ({"last_steps": 0}, "no split"),
        ({"last_steps": honest["last_steps"] + 1}, "the plan must hold"),
        ({"blocks": [[honest["last_steps"], -1.0]]}, "the plan must hold"),
        ({"blocks": [[honest["last_steps"], 0.0]]}, "does not absorb"),
    ]
    smaller = copy.deepcopy(honest["blocks"])
    smaller[-1][1] *= 0.999
    changes.append(({"blocks": smaller}, "does not absorb"))
    for change, reason in changes:
        with pytest.raises(InvalidInput, match=reason):
            bound.curve(run, {**honest, **change})


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("neighbors", ["replace", "add_remove"])
def test_distances_that_overflow_leave_composition(sampling: Any, neighbors: Any) -> None:
    """Expanding steps without a domain: after 3000 of them no distance is finite."""
    if sampling == "fixed" and neighbors == "add_remove":
        neighbors = "replace"
    run = NoisySGD(
        **OPTIONS | {"sampling": sampling, "domain": None, "neighbors": neighbors},
        loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=5.0),
    )
    composed = compare(run, 1e-5).epsilon("pld_composition")
    assert composed is not None
    assert certify(run, 1e-5).claimed_epsilon <= composed


@pytest.mark.parametrize(
    ("bound", "changes", "reason"),
    [
        ("fixed_size_modulus", {"sampling": "poisson"}, "is about NoisySGD with sampling='fixed'"),
        ("fixed_size_modulus", {"learning_rate": [0.4] * 2999 + [0.1]}, "yours has a schedule"),
        ("fixed_size_modulus", {"loss": None}, "needs the loss"),
        (
            "fixed_size_modulus",
            {"loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0)},
            "is for losses whose steps do not contract",
        ),
        ("fixed_size_modulus", {"loss": LossGeometry(lipschitz=1.0, convex=False)}, "nothing but"),
        ("poisson_replace_modulus", {}, "is about NoisySGD with sampling='poisson'"),
        (
            "poisson_replace_modulus",
            {"sampling": "poisson", "neighbors": "add_remove"},
            "is about neighbors='replace'; yours is 'add_remove'",
        ),
        (
            "poisson_replace_modulus",
            {"sampling": "poisson", "loss": LossGeometry(lipschitz=1.0, convex=False)},
            "nothing but",
        ),
    ],
)
def test_refusals(bound: str, changes: dict[str, Any], reason: str) -> None:
    run = NoisySGD(**{**OPTIONS, "loss": LOSSES["smooth"], **changes})
    assert reason in (bound_named(bound).refusal(run) or "")


def test_a_step_that_contracts_once_batches_are_capped_is_left_to_lagged_blocks() -> None:
    """Batches of all five records expand: rare ones are capped at this delta, not at the least."""
    run = NoisySGD(
        n=5,
        sampling_rate=0.002193445074047965,
        steps=145,
        learning_rate=4.287255416470358,
        loss=LossGeometry(lipschitz=1.05, convex=True, smoothness=0.0010232397470985295),
        iterate_std=518.5,
        release="last",
    )
    bound = bound_named("poisson_modulus")
    assert bound.refusal(run) is None
    with pytest.raises(NotApplicable, match="lagged blocks are never worse"):
        bound.plan(run, 1.07e-4)
    assert certify(run, 1.07e-4).bound != bound.name
