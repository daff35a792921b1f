"""What runs is what is described, it samples the right law, and bad input is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from dplateau import (
    Ball,
    Body,
    Box,
    InvalidInput,
    LangevinSampler,
    LossGeometry,
    NoisyGD,
    NotApplicable,
    Potential,
    Simplex,
    certify,
    sample,
)
from dplateau.algorithms import FixedSize, Poisson
from dplateau.ground.types import FloatArray
from dplateau.losses import Absolute, Logistic
from dplateau.sampling import check_constants
from dplateau.sampling.sampler import SecureGenerator, random_batches
from mixing_truth import grid_chain


def geometry(**known: Any) -> LossGeometry:
    return LossGeometry(**{"lipschitz": math.inf, "convex": True, **known})


BOWL = Potential(lambda x: x, geometry(smoothness=1.0, strong_convexity=1.0))


def records(n: int = 60) -> Potential:
    generator = np.random.default_rng(11)
    features = generator.standard_normal((n, 2))
    targets = np.where(features @ [2.0, -1.0] + generator.standard_normal(n) > 0, 1, -1)
    return Potential.from_loss(Logistic(), features, targets, feature_norm=1.5)


def sampler(**more: Any) -> LangevinSampler:
    shared: dict[str, Any] = {
        "steps": 30,
        "learning_rate": 0.05,
        "release": "last",
        "dimension": 2,
    }
    return LangevinSampler.of(more.pop("potential", BOWL), Ball(1.0), **{**shared, **more})


@pytest.mark.parametrize(
    "made",
    [
        sampler(),
        sampler(l2=0.3, inverse_temperature=2.0),
        sampler(learning_rate=[0.05] * 10 + [0.02] * 20),
        sampler(potential=records(), batch_size=12),
        sampler(potential=records(), batch_size=12, sampling="fixed"),
    ],
    ids=["plain", "ridge", "schedule", "Poisson", "fixed"],
)
def test_single_steps_and_many_steps_give_the_same_numbers(made: LangevinSampler) -> None:
    start = made.init(np.array([[0.1, 0.2], [-0.5, 0.0], [0.0, 0.9]]))
    generator = np.random.default_rng(4)
    state = start
    for _ in range(30):
        state = made.step(generator, state)
    fast = made.advance(np.random.default_rng(4), start, 30)
    last, kept = made.collect(np.random.default_rng(4), start, 10, thin=3)
    assert state.step == fast.step == last.step == 30
    assert np.array_equal(state.position, fast.position)
    assert np.array_equal(kept[:, -1], fast.position)
    assert kept.shape == (3, 10, 2)
    assert start.step == 0
    assert np.array_equal(start.position[0], [0.1, 0.2])


def test_a_step_is_the_described_update() -> None:
    made = sampler(l2=0.3, inverse_temperature=2.0)
    start = np.array([[0.6, 0.7], [0.1, -0.2]])
    moved = made.step(np.random.default_rng(9), made.init(start)).position
    noise = np.random.default_rng(9).standard_normal((2, 2))
    free = start - 0.05 * (start + 0.3 * start) + math.sqrt(2 * 0.05 / 2) * noise
    assert moved == pytest.approx(Ball(1.0).project(free), abs=1e-14)
    assert made.run.inverse_temperature == 2.0
    assert made.run.iterate_std == pytest.approx(math.sqrt(0.05))


def test_a_batch_step_is_the_described_update() -> None:
    potential = records()
    made = sampler(potential=potential, batch_size=12)
    assert isinstance(made.run.batches, Poisson)
    start = np.array([[0.3, 0.1]])
    moved = made.step(np.random.default_rng(9), made.init(start)).position
    generator = np.random.default_rng(9)
    noise = generator.standard_normal((1, 2))
    rows, weights = random_batches(made.run, 1, generator)
    assert potential.batch_gradient is not None
    gradient = potential.batch_gradient(start, rows, weights)
    free = start - 0.05 * gradient + math.sqrt(0.1) * noise
    assert moved == pytest.approx(Ball(1.0).project(free), abs=1e-14)


def test_batches_have_the_described_law() -> None:
    run = sampler(potential=records(), batch_size=12).run
    assert isinstance(run.batches, Poisson | FixedSize)
    generator = np.random.default_rng(0)
    rows, weights = random_batches(run, 4000, generator)
    sizes = np.rint(weights.sum(axis=1) * 12)
    # Binomial(60, 0.2): mean 12, variance 9.6.
    assert sizes.mean() == pytest.approx(12, abs=0.25)
    assert sizes.var() == pytest.approx(9.6, rel=0.15)
    counts = np.bincount(rows[weights > 0], minlength=60)
    assert counts.min() > 640
    assert counts.max() < 960
    for chosen, weight in zip(rows[:50], weights[:50], strict=True):
        taken = chosen[weight > 0]
        assert np.unique(taken).size == taken.size
    fixed = sampler(potential=records(), batch_size=12, sampling="fixed").run
    assert isinstance(fixed.batches, FixedSize)
    assert np.all(random_batches(fixed, 3, generator)[1] == 1 / 12)


def test_an_average_over_all_records_is_the_full_gradient() -> None:
    potential = records()
    points = np.random.default_rng(1).standard_normal((5, 2))
    rows = np.tile(np.arange(60), (5, 1))
    assert potential.batch_gradient is not None
    summed = potential.batch_gradient(points, rows, np.full((5, 60), 1 / 60))
    assert summed == pytest.approx(potential.gradient(points), abs=1e-14)
    assert potential.value is not None
    step = 1e-6
    for j in range(2):
        shift = np.eye(2)[j] * step
        slope = (potential.value(points + shift) - potential.value(points - shift)) / (2 * step)
        assert slope == pytest.approx(potential.gradient(points)[:, j], abs=1e-8)


def test_draws_follow_the_chain_s_own_stationary_law() -> None:
    """One dimension, where the stationary law is computed exactly, atoms included."""
    corner = Potential(lambda x: 2 * np.sign(x), geometry(lipschitz=2.0))
    drawn = sample(corner, Box(-1.0, 1.0), 40, learning_rate=0.05, chains=1000, thin=20, seed=3)
    truth = grid_chain(drawn.sampler.run, lambda x: 2 * np.sign(x), panels=20, corners=(0.0,))
    law, nodes = truth.stationary(), truth.nodes[:, 0]
    values = drawn.flat[:, 0]
    assert np.mean(values == 1.0) == pytest.approx(law[-1], abs=0.006)
    assert np.mean(values) == pytest.approx(0.0, abs=0.015)
    assert np.var(values) == pytest.approx(float(law @ nodes**2), abs=0.01)
    assert drawn.certificate is not None
    assert drawn.certificate.claimed_tv <= 0.01
    assert drawn.warmup == drawn.certificate.steps


def test_small_steps_follow_the_target_density() -> None:
    narrow = Potential(lambda x: 9 * x, geometry(smoothness=9.0, strong_convexity=9.0))
    drawn = sample(
        narrow, Ball(2.0), 30, learning_rate=0.005, chains=500, thin=40, dimension=2, seed=0
    )
    # A Gaussian of variance 1/9 well inside; the step adds the factor 1 / (1 - eta 9 / 2).
    assert np.var(drawn.flat, axis=0) == pytest.approx(1 / (9 * (1 - 0.0225)), rel=0.03)


def test_draws_on_a_simplex_stay_there() -> None:
    flat = Potential(np.zeros_like, geometry(smoothness=1e-9))
    drawn = sample(flat, Simplex(3), 50, learning_rate=0.01, seed=2)
    assert drawn.flat.min() >= 0
    assert drawn.flat.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert drawn.draws.shape == (4, 50, 3)


def test_a_seed_repeats_everything() -> None:
    first, second, other = (
        sample(BOWL, Ball(1.0), 5, learning_rate=0.05, dimension=2, warmup=3, seed=seed).draws
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_progress_learns_numbers_of_steps_only() -> None:
    seen: list[tuple[object, ...]] = []
    sample(
        BOWL,
        Ball(1.0),
        50,
        learning_rate=0.05,
        dimension=2,
        warmup=30,
        thin=2,
        seed=0,
        progress=lambda *numbers: seen.append(numbers),
    )
    assert seen[-1] == (130, 130)
    assert all(isinstance(number, int) for numbers in seen for number in numbers)


def test_diagnostics_and_export() -> None:
    drawn = sample(BOWL, Ball(1.0), 400, learning_rate=0.1, dimension=2, thin=5, seed=5)
    assert drawn.r_hat() == pytest.approx(1.0, abs=0.03)
    assert np.all(drawn.effective_sample_size() > 300)
    tree = drawn.to_datatree("w")
    assert tree["posterior"]["w"].shape == (4, 400, 2)
    assert np.array_equal(tree["posterior"]["w"].values, drawn.draws)
    assert tree["posterior"].attrs["inference_library"] == "dplateau"
    assert drawn.to_arviz().equals(drawn.to_datatree())
    assert "4 chains of 400 draws" in str(drawn)
    stuck = sample(BOWL, Ball(1.0), 20, learning_rate=1e-6, dimension=2, warmup=0, seed=5)
    assert np.all(stuck.r_hat() > 1.5)
    assert stuck.certificate is None
    alone = sample(BOWL, Ball(1.0), 20, learning_rate=0.1, dimension=2, warmup=1, seed=5, chains=1)
    with pytest.raises(InvalidInput, match="at least 2 chains"):
        alone.r_hat()


def test_one_draw_is_private_by_the_same_description() -> None:
    """The exponential mechanism by Langevin: only the last iterate leaves."""
    potential = records(400)
    made = LangevinSampler.of(
        potential,
        Ball(1.0),
        steps=2000,
        learning_rate=0.2,
        inverse_temperature=20.0,
        l2=0.1,
        release="last",
    )
    point = made.draw([0.0, 0.0], generator=np.random.default_rng(0))
    assert point.shape == (2,)
    assert np.linalg.norm(point) <= 1 + 1e-12
    hidden = certify(made.run, 1e-5)
    released = certify(made.run.replace(release="all"), 1e-5)
    assert hidden.claimed_epsilon < released.claimed_epsilon / 2
    assert hidden.verify().ok
    # The same claim as for the equivalent noisy gradient descent.
    twin = NoisyGD(
        n=400,
        steps=2000,
        learning_rate=0.2,
        iterate_std=math.sqrt(0.02),
        domain=Ball(1.0),
        loss=potential.geometry,
        l2=0.1,
        dimension=2,
        release="last",
    )
    assert certify(twin, 1e-5).claimed_epsilon == pytest.approx(hidden.claimed_epsilon, rel=1e-9)
    with pytest.raises(InvalidInput, match="one chain"):
        made.draw(np.zeros((2, 2)))


def test_draws_that_are_kept_count_as_released() -> None:
    drawn = sample(records(), Ball(1.0), 5, learning_rate=0.1, warmup=2, seed=0)
    assert drawn.sampler.run.release.name == "all"
    assert drawn.sampler.run.steps == 7


@pytest.mark.parametrize(
    ("gradient", "known", "message"),
    [
        (lambda x: 2 * x, {"smoothness": 1.0}, "smoothness=1"),
        (lambda x: -x, {"smoothness": 1.0}, "convex=True"),
        (lambda x: x, {"lipschitz": 0.1}, "lipschitz=0.1"),
        (lambda x: x, {"smoothness": 2.0, "strong_convexity": 1.5}, "strong_convexity=1.5"),
        (lambda x: np.sign(x), {"holder": (0.5, 0.1)}, "holder=0.1"),
        (
            lambda x: -x,
            {"convex": False, "smoothness": 1.0, "dissipativity": (0.1, 1.0)},
            "dissipativity",
        ),
    ],
)
def test_constants_that_the_gradient_contradicts_are_refused(
    gradient: Any, known: dict[str, Any], message: str
) -> None:
    wrong = Potential(gradient, geometry(**known))
    with pytest.raises(InvalidInput, match=message):
        sample(wrong, Ball(1.0), 2, learning_rate=0.1, dimension=2, warmup=1, seed=0)


def test_true_constants_pass() -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    absolute = Potential.from_loss(Absolute(), points, points[:, 0], feature_norm=1.0)
    for potential in (BOWL_LIPSCHITZ, records(), absolute):
        check_constants(potential, points)


BOWL_LIPSCHITZ = Potential(lambda x: x, geometry(smoothness=1.0, lipschitz=2.0))


def test_bad_input_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match=r"row 1 is 0\.5 away"):
        sampler().init([[0.0, 0.0], [1.5, 0.0]])
    with pytest.raises(InvalidInput, match="2 coordinates; got 3"):
        sampler().init([0.0, 0.0, 0.0])
    with pytest.raises(InvalidInput, match="finite"):
        sampler().init([math.nan, 0.0])
    shared: dict[str, Any] = {"learning_rate": 0.1, "seed": 0}
    with pytest.raises(InvalidInput, match="no projection"):
        sample(BOWL, Body(2.0, lambda x: x / 2), 2, start=[0.0, 0.0], **shared)
    with pytest.raises(InvalidInput, match="or start="):
        sample(BOWL, Ball(1.0), 2, **shared)
    with pytest.raises(InvalidInput, match="3 rows for 4 chains"):
        sample(BOWL, Ball(1.0), 2, start=np.zeros((3, 2)), **shared)
    with pytest.raises(InvalidInput, match="n_samples"):
        sample(BOWL, Ball(1.0), 0, dimension=2, **shared)
    with pytest.raises(InvalidInput, match="disagree"):
        sample(BOWL, Box(0.0, 1.0), 2, dimension=2, **shared)
    with pytest.raises(NotApplicable, match="can be accounted for but not run"):
        sample(BOWL, Body(2.0), 2, dimension=2, **shared)
    with pytest.raises(InvalidInput, match="batch_gradient"):
        sample(
            Potential(lambda x: x, BOWL.geometry, n=10),
            Ball(1.0),
            2,
            dimension=2,
            batch_size=5,
            **shared,
        )
    with pytest.raises(InvalidInput, match="one row per point"):
        sample(Potential(lambda x: x[0], BOWL.geometry), Ball(1.0), 2, dimension=2, **shared)


def test_a_step_size_that_no_theorem_covers_is_refused() -> None:
    wild = Potential(lambda x: 3 * x, geometry(smoothness=3.0))
    with pytest.raises(NotApplicable, match=r"largest learning rate .* is 0\.6"):
        sample(wild, Ball(50.0), 2, learning_rate=1.0, dimension=2, seed=0)
    with pytest.raises(NotApplicable, match=r"takes \d+ steps .* state warmup"):
        sample(BOWL_LIPSCHITZ, Ball(1.0), 2, learning_rate=1e-9, dimension=2, seed=0)


def test_a_description_of_something_else_is_refused() -> None:
    run = sampler().run
    with pytest.raises(InvalidInput, match="another potential"):
        LangevinSampler(records(), run)
    gd = NoisyGD(n=1, steps=1, noise_std=1.0, release="last")
    with pytest.raises(InvalidInput, match="ProjectedLangevin or NoisySGD"):
        LangevinSampler(BOWL, gd)
    with pytest.raises(NotApplicable, match="bounded body"):
        LangevinSampler(BOWL, run.replace(domain=None))
    late = sampler(learning_rate=[0.1] * 30)
    state = late.advance(np.random.default_rng(0), late.init([0.0, 0.0]), 30)
    with pytest.raises(InvalidInput, match="step 31"):
        late.step(np.random.default_rng(0), state)


def test_a_gradient_that_explodes_is_noticed() -> None:
    def poles(x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.abs(x) > 0.2, np.nan, x)

    broken = Potential(poles, BOWL.geometry)
    made = LangevinSampler.of(
        broken, Ball(1.0), steps=50, learning_rate=0.1, release="last", dimension=2
    )
    with pytest.raises(InvalidInput, match="left the real numbers"):
        made.advance(np.random.default_rng(0), made.init([0.0, 0.0]), 50)


def test_the_extra_is_loaded_late() -> None:
    script = "import sys, dplateau.sampling; sys.exit('arviz_base' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_private_draw_takes_its_noise_from_the_secure_source() -> None:
    source = SecureGenerator()
    noise = source.standard_normal(out=np.empty((50, 4, 25)))
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4
    sizes = source.binomial(40, 0.3, 2000)
    expected = stats.binom(40, 0.3)
    assert abs(sizes.mean() - expected.mean()) < 5 * expected.std() / math.sqrt(2000)
    chosen = source.choice(30, 7, replace=False, shuffle=False)
    assert len(set(chosen.tolist())) == 7
    assert source.choice(30, 0).size == 0
    samplings: tuple[Literal["poisson", "fixed"], ...] = ("poisson", "fixed")
    for sampling in samplings:
        made = LangevinSampler.of(
            records(60), Ball(1.0), steps=30, learning_rate=0.1, batch_size=6, sampling=sampling,
            release="last",
        )  # fmt: skip
        first, second = made.draw([0.0, 0.0]), made.draw([0.0, 0.0])
        assert not np.array_equal(first, second)
