"""Every number of a certificate is altered in turn: the verifier notices, or the claim still holds.

An altered certificate is tried twice. With its old digest it must be rejected. With a digest made
anew by the forger only the mathematics can tell; what is accepted then is listed in HARMLESS, and
for each such certificate the library's own evaluation of the altered proof must confirm the claim.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from typing import Any

import pytest

from dplateau.algorithms import (
    Ball,
    Body,
    Checkpoints,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    Run,
    Schedule,
    run_from_dict,
)
from dplateau.bounds.registry import bound_named
from dplateau.certificates import certify
from dplateau.errors import NotApplicable
from dplateau.ground.sealed import resealed
from dplateau.verify import verify

Found = dict[str, Any]
Path = tuple[str | int, ...]

# What may change without making the claim false or a derived number wrong, by bound.
HARMLESS = {
    # Composition looks at the noise in units of the gradient bound and at the uses, no further.
    "*_composition": (
        "run.learning_rate",
        "run.l2",
        "run.domain.*",
        "run.loss.*",
        "run.dimension",
        "run.n",
        "run.batch_size",
    ),
    # The claim is that of the best order; the others are spare.
    "rdp_composition": ("witness.orders.*",),
    "*": (
        # They only have to allow the contraction, which the ridge makes.
        "run.loss.smoothness",
        "run.loss.strong_convexity",
        # A constant that belongs to another class of losses than the one used.
        "run.loss.holder.*",
        "run.loss.dissipativity.*",
        # More ridge, shorter gradients under the same noise, or a domain that the distances do not
        # reach: the plan absorbs more than it has to, and is still a proof.
        "run.l2",
        "run.loss.lipschitz",
        "run.domain.*",
        "run.dimension",
        # One record fewer in the last, shorter batch of an epoch.
        "run.n",
        # The ratio of a block of one step, or of steps that absorb nothing.
        "witness.plan.blocks.*.2",
        "witness.groups.*.plan.blocks.*.2",
        # A shift whose square is lost in the sum.
        "witness.plan.blocks.*.1",
        # What concerns a position that is not the worst: another start or plan proves as much, and
        # an early learning rate may matter to it alone.
        "witness.starts.*",
        "witness.plans.*.blocks.*",
        "run.learning_rate.*.0",
        # Another way to group positions that changes no claim.
        "witness.edges.*",
    ),
    # The pattern depends on the number of epochs begun, not on where the last one stops.
    "cyclic_contraction": ("run.steps",),
    "modulus": ("run.steps",),
    # What follows changes epsilon by less than the tolerance of compositions: a delta two percent
    # larger, a step more or fewer, a level that absorbs a little more or is still enough, another
    # split of the noise, a start that moves within the tolerance of its chances.
    "pld_composition": ("claim.delta", "run.steps"),
    "poisson_*": (
        "claim.delta",
        "run.steps",
        "run.n",
        "run.batch_size",
        "witness.levels.*",
        "witness.blocks.*.1",
        "witness.edges.*",
        # A cap that no batch exceeds anyway.
        "witness.batch_cap",
    ),
    "fixed_size_averaged": (
        "claim.delta",
        "run.steps",
        "run.n",
        # More noise: the plan absorbs more than it has to, and swaps are smaller than planned for.
        "run.noise_multiplier",
        # A level that is still enough, or an edge within the same chances.
        "witness.levels.*",
        "witness.edges.*",
        # A step that moves to a neighbouring level.
        "witness.plans.*",
    ),
    # A cap whose chance of being exceeded is next to nothing.
    "every_batch": ("witness.batch_cap", "witness.extra_delta", "run.n", "run.batch_size"),
    # A larger claim is true too, and claims may round laws of uses up further than the verifier.
    # Edges a lag further on are another proof, next to as good.
    "poisson_blocks*": (
        "claim.epsilon",
        "run.noise_multiplier",
        "run.learning_rate",
        "run.domain.*",
        "witness.extra_delta",
        "witness.batch_floor",
        "witness.edges.*",
    ),
    "checkpoints_poisson": (
        "claim.epsilon",
        "claim.delta",
        "run.noise_multiplier",
        "run.learning_rate",
        "run.n",
        "run.batch_size",
        "witness.stretches.*.witness.batch_cap",
        "witness.stretches.*.witness.batch_floor",
        "witness.stretches.*.witness.extra_delta",
        "witness.stretches.*.witness.edges.*",
    ),
    # Momentum or a learning rate that the same norm shrinks under, and blocks one more or fewer.
    "momentum": (
        "claim.epsilon",
        "claim.delta",
        "run.steps",
        "run.n",
        "run.batch_size",
        "run.momentum",
        "run.learning_rate",
        "run.noise_multiplier",
        "witness.batch_cap",
        "witness.contraction",
        "witness.own_blocks",
    ),
    # Levels that cover what fewer or quieter uses cost cover it still.
    "checkpoints_shuffled": (
        "run.noise_multiplier",
        "run.learning_rate",
        "run.steps",
        "run.release.every",
        "witness.levels.*",
        "witness.shares.*",
    ),
    # Enough steps have been taken for one more or fewer not to matter.
    "fixed_size_recursion": ("run.steps",),
    # Laplace noise has an epsilon at delta = 0 already.
    "one_pass_laplace": ("claim.delta",),
    # With the noise stated on the gradient, the step's length is no part of these claims.
    "mixing_rdp": ("run.learning_rate",),
    "random_stop_rdp": ("run.learning_rate", "witness.orders.*"),
    # Another choice of the steps that are told apart is another proof, next to as good.
    "random_stop_mean": ("witness.knots.*",),
    "shuffled_pass": ("witness.knots.*",),
    # The plateau is the same for every number of steps; noise in units of the gradient leaves it.
    "asoodeh_diaz_closed": ("run.steps",),
    "*_modulus": (
        "claim.delta",
        "run.steps",
        "run.n",
        "witness.swap_share",
        "witness.blocks.*.1",
    ),
    "*_split": (
        "claim.delta",
        "run.steps",
        "run.n",
        "witness.swap_share",
        "witness.last_steps",
        "witness.edges.*",
    ),
}


def numbers(found: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the place of every number (True and False are none)."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from numbers(value, (*path, name))
    elif isinstance(found, list):
        for i, value in enumerate(found):
            yield from numbers(value, (*path, i))
    elif isinstance(found, int | float) and not isinstance(found, bool):
        yield path


def some_of_each_kind(paths: list[Path], rng: random.Random, most: int) -> Iterator[Path]:
    kinds: dict[Path, list[Path]] = {}
    for path in paths:
        kinds.setdefault(tuple(k for k in path if isinstance(k, str)), []).append(path)
    for alike in kinds.values():
        yield from alike if len(alike) <= most else rng.sample(alike, most)


def altered(found: Found, path: Path, up: bool) -> Found:
    """Return a copy with one number changed by two percent, or by one if it is whole."""
    new = copy.deepcopy(found)
    place: Any = new
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    if isinstance(old, int):
        place[path[-1]] = old + 1 if up else old - 1
    elif old == 0:
        place[path[-1]] = 0.02 if up else -0.02
    else:
        place[path[-1]] = old * (1.02 if up else 0.98)
    return new


def harmless(bound: str, path: Path) -> bool:
    name = ".".join(map(str, path)).removeprefix("content.")
    known = (places for pattern, places in HARMLESS.items() if fnmatch(bound, pattern))
    return any(fnmatch(name, place) for places in known for place in places)


def still_proved(found: Found) -> bool:
    """Return whether the library's own evaluation of the altered proof gives the claim."""
    content = found["content"]
    bound, run = bound_named(content["bound"]), run_from_dict(content["run"])
    if bound.refusal(run) is not None:
        return False
    epsilon = bound.curve(run, content["witness"]).epsilon(content["claim"]["delta"])
    composed = bound.name.startswith(("pld", "poisson", "fixed"))
    # The library's own grids are coarser than the verifier's, its laws of uses most of all.
    of_coins = "blocks" in bound.name or bound.name in ("checkpoints_poisson", "momentum")
    slack = 0.06 if of_coins else 5e-3 if composed else 1e-8
    return epsilon <= content["claim"]["epsilon"] * (1 + slack)


def attack(found: Found, rng: random.Random, most: int = 10**9) -> Counter[str]:
    """Alter numbers, each once, and return what happened to the certificates with a new digest.

    Of numbers that differ only in their place in a list, at most ``most`` are altered.
    """
    assert verify(found).ok
    outcome: Counter[str] = Counter()
    for path in some_of_each_kind(list(numbers(found)), rng, most):
        both = path[:2] == ("content", "claim")
        for up in (True, False) if both else (rng.random() < 0.5,):
            forged = altered(found, path, up)
            assert not verify(forged).ok, path
            forged = resealed(forged)
            if not verify(forged).ok:
                outcome["rejected"] += 1
                continue
            outcome["accepted"] += 1
            bound = found["content"]["bound"]
            assert harmless(bound, path), (bound, path, up)
            assert still_proved(forged), (bound, path, up)
    return outcome


# ---- certificates -------------------------------------------------------------------------------

CLOSED = (
    "naive_composition",
    "advanced_composition",
    "gdp_composition",
    "gd_contraction",
    "gd_bounded",
    "cyclic_contraction",
    "one_pass_contraction",
    "modulus",
)
CHUNKS, EACH = 8, 26


def some_loss(rng: random.Random, *, contractive: bool) -> LossGeometry:
    size = math.exp(rng.uniform(-1, 1))
    if contractive:
        return LossGeometry(lipschitz=size, convex=True, smoothness=rng.uniform(0.1, 0.9))
    kinds: list[Found] = [
        {"convex": True},
        {"convex": True, "holder": (rng.choice([0.0, 0.4, 0.7]), 0.5)},
        {"convex": False, "smoothness": rng.uniform(0.1, 0.5)},
        {"convex": False, "smoothness": 0.5, "dissipativity": (0.01, 0.2)},
    ]
    return LossGeometry(lipschitz=size, **rng.choice(kinds))


def some_run(bound: str, rng: random.Random) -> Run:
    """Return a random run that the bound covers."""
    options: Found = {
        "learning_rate": rng.uniform(0.05, 0.9),
        "l2": rng.choice([0.0, rng.uniform(0.01, 0.4)]),
        "loss": some_loss(rng, contractive=bound != "modulus"),
        "domain": Body(rng.uniform(0.05, 3.0)) if bound == "gd_bounded" else Ball(0.4),
        "neighbors": rng.choice(["add_remove", "replace"]),
        "release": "last",
        "dimension": 7,
    }
    if bound == "cyclic_contraction" or (bound == "modulus" and rng.random() < 0.3):
        noise = {"noise_multiplier": math.exp(rng.uniform(0, 2))}
        size = rng.randint(1, 7)
        return CyclicSGD(
            n=rng.randint(8, 60), batch_size=size, steps=rng.randint(1, 90), **options, **noise
        )
    if bound == "one_pass_contraction":
        return OnePassSGD(n=rng.randint(5, 60), batch_size=3, noise_std=2.0, **options)
    if rng.random() < 0.2:
        heat = math.exp(rng.uniform(-6, -2))
        return ProjectedLangevin(
            n=20, steps=rng.randint(1, 50), inverse_temperature=heat, **options
        )
    noise = {rng.choice(["noise_std", "noise_multiplier"]): rng.uniform(0.8, 9.0)}
    return NoisyGD(n=rng.randint(5, 200), steps=rng.randint(1, 200), **options, **noise)


def certificate(run: Run, bound: str, delta: float) -> Found:
    found: Found = json.loads(certify(run, delta, bounds=[bound_named(bound)]).to_json())
    return found


@cache
def closed_certificates(chunk: int) -> tuple[Found, ...]:
    rng = random.Random(chunk)
    found = []
    while len(found) < EACH:
        bound = rng.choice(CLOSED)
        try:
            made = certificate(some_run(bound, rng), bound, 10 ** rng.uniform(-9, -2))
        except NotApplicable:
            continue
        # An epsilon of zero would be true of many other numbers too.
        if made["content"]["claim"]["epsilon"] > 1e-3:
            found.append(made)
    return tuple(found)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_altered_numbers_of_closed_forms_are_noticed(chunk: int) -> None:
    rng = random.Random(1000 + chunk)
    outcome: Counter[str] = Counter()
    for found in closed_certificates(chunk):
        outcome += attack(found, rng)
    assert outcome["rejected"] > outcome["accepted"]


def test_there_are_enough_certificates() -> None:
    assert CHUNKS * EACH >= 200


SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
STEPS: Found = {"learning_rate": 0.5, "l2": 0.2, "loss": SMOOTH, "release": "last"}
SAMPLED: Found = {"n": 200, "batch_size": 10, "steps": 60, "noise_multiplier": 3.0, **STEPS}
BOUNDED: Found = {**STEPS, "domain": Ball(0.2)}
STOPPED: Found = {**BOUNDED, "release": "random_stop"}
EVERY_SEVEN: Found = {"release": Checkpoints(every=7)}
MILD = LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.02))
OTHERS: dict[str, Run] = {
    "rdp_composition": NoisySGD(**{**SAMPLED, "release": "all"}),
    "iteration_rdp": NoisyGD(n=50, steps=40, noise_multiplier=4.0, **STEPS),
    "shuffle_once_average": CyclicSGD(
        n=19, batch_size=5, steps=18, order="shuffle_once", noise_multiplier=2.0, **STEPS
    ),
    "reshuffle_average": CyclicSGD(
        n=19, batch_size=5, steps=20, order="reshuffle", noise_multiplier=2.0, **STEPS
    ),
    "pld_composition": NoisySGD(**{**SAMPLED, "neighbors": "replace"}),
    "poisson_blocks": NoisySGD(**SAMPLED),
    "poisson_modulus": NoisySGD(
        **{
            **SAMPLED,
            "steps": 2000,
            "l2": 0.0,
            "domain": Ball(0.05),
            "loss": LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02),
        }
    ),
    "poisson_blocks_replace": NoisySGD(**SAMPLED, neighbors="replace"),
    "fixed_size_averaged": NoisySGD(**SAMPLED, neighbors="replace", sampling="fixed"),
    "every_batch": NoisySGD(**{**SAMPLED, "batch_size": 160}, neighbors="replace"),
    "fixed_size_modulus": NoisySGD(
        **{**SAMPLED, "steps": 2000, "l2": 0.0, "domain": Ball(0.05), "loss": MILD},
        neighbors="replace",
        sampling="fixed",
    ),
    "poisson_replace_modulus": NoisySGD(
        **{**SAMPLED, "steps": 2000, "l2": 0.0, "domain": Ball(0.05), "loss": MILD},
        neighbors="replace",
    ),
    "asoodeh_diaz_closed": NoisySGD(
        **{**SAMPLED, "domain": Ball(0.01)}, neighbors="replace", sampling="fixed"
    ),
    "poisson_recursion": NoisySGD(**SAMPLED, domain=Ball(0.01)),
    "fixed_size_recursion": NoisySGD(
        **SAMPLED, neighbors="replace", sampling="fixed", domain=Ball(0.01)
    ),
    "one_pass_hockey_stick": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **BOUNDED),
    "one_pass_hybrid": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **BOUNDED),
    "one_pass_laplace": OnePassSGD(
        n=31, batch_size=3, noise_std=0.5, noise_kind="laplace", dimension=1, **BOUNDED
    ),
    "mixing_rdp": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **BOUNDED),
    "shuffled_pass": CyclicSGD(
        n=31, batch_size=3, epochs=1, order="shuffle_once", noise_std=0.5, **BOUNDED
    ),
    "momentum": NoisySGD(**SAMPLED, momentum=0.2),
    "checkpoints_full_batch": NoisyGD(
        n=50, steps=40, noise_multiplier=4.0, **{**STEPS, "release": Checkpoints(every=12)}
    ),
    "checkpoints_poisson": NoisySGD(**{**SAMPLED, "release": Checkpoints(at=[20, 45])}),
    "checkpoints_ordered": CyclicSGD(
        n=19, batch_size=5, steps=18, noise_multiplier=2.0, **{**BOUNDED, **EVERY_SEVEN}
    ),
    "checkpoints_shuffled": CyclicSGD(
        n=19,
        batch_size=5,
        steps=18,
        order="shuffle_once",
        noise_multiplier=2.0,
        **{**STEPS, **EVERY_SEVEN},
    ),
    "random_stop_contraction": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **STOPPED),
    "random_stop_lipschitz": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **STOPPED),
    "random_stop_mean": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **STOPPED),
    "random_stop_rdp": OnePassSGD(n=31, batch_size=3, noise_std=0.5, **STOPPED),
}


@pytest.mark.parametrize("bound", OTHERS)
def test_altered_numbers_of_other_bounds_are_noticed(bound: str) -> None:
    found = certificate(OTHERS[bound], bound, 1e-5)
    outcome = attack(found, random.Random(7), most=6)
    # Many numbers of a composition's certificate are none of its claim's business.
    assert outcome["rejected"] > outcome["accepted"] / 2


STRONG = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=0.2)
SCHEDULED: Found = {
    "n": 19,
    "batch_size": 5,
    "noise_multiplier": 2.0,
    **STEPS,
    "learning_rate": Schedule(((0.5, 8), (0.3, 8))),
    "steps": 16,
}
VARIED = {
    "kept": ("cyclic_contraction", CyclicSGD(**SCHEDULED)),
    "walls": ("cyclic_contraction", CyclicSGD(**{**SCHEDULED, "domain": Ball(0.02)})),
    "short batch": (
        "cyclic_contraction",
        CyclicSGD(**{**SCHEDULED, "learning_rate": 0.5, "loss": STRONG, "domain": Ball(3.0)}),
    ),
    "shuffled once": ("shuffle_once_average", CyclicSGD(**SCHEDULED, order="shuffle_once")),
    "reshuffled": (
        "reshuffle_average",
        CyclicSGD(**{**SCHEDULED, "domain": Ball(0.02)}, order="reshuffle"),
    ),
    "one pass": (
        "one_pass_contraction",
        OnePassSGD(n=31, batch_size=3, noise_std=0.5, **{**STEPS, "learning_rate": [0.9] * 11}),
    ),
    "general losses": (
        "modulus",
        CyclicSGD(**{**SCHEDULED, "loss": MILD, "domain": Ball(0.02)}),
    ),
}


@pytest.mark.parametrize("case", VARIED)
def test_altered_numbers_of_varied_steps_are_noticed(case: str) -> None:
    bound, run = VARIED[case]
    outcome = attack(certificate(run, bound, 1e-5), random.Random(7), most=6)
    assert outcome["rejected"] > outcome["accepted"]
