"""Three names for one noise level: each follows from the others, and only one is stored."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import LossGeometry, NoisyGD, NoisySGD, NotApplicable, ProjectedLangevin, Schedule
from dplateau.algorithms import Run
from dplateau.algorithms.schedule import NOISE_CONVENTIONS, Given, as_noise_std
from dplateau.errors import InvalidInput

positive = st.floats(1e-6, 1e6)


def sgd(**changes: object) -> Run:
    options: dict[str, object] = {
        "n": 1000,
        "batch_size": 50,
        "steps": 4,
        "learning_rate": 0.5,
        "loss": LossGeometry(lipschitz=2.0, convex=True),
        "release": "last",
    }
    return NoisySGD(**{**options, **changes})


def test_the_three_conventions_of_one_run() -> None:
    run = sgd(noise_multiplier=3.0)
    # sigma = z L / b and nu = eta sigma.
    assert run.noise_std == pytest.approx(3.0 * 2.0 / 50)
    assert run.iterate_std == pytest.approx(0.5 * 3.0 * 2.0 / 50)
    assert run.record_step == pytest.approx(0.5 * 2.0 / 50)
    assert run.record_step / run.iterate_std == pytest.approx(1 / 3.0)


@given(
    z=positive,
    lipschitz=positive,
    rate=positive,
    batch=st.integers(1, 1000),
    stated=st.sampled_from(NOISE_CONVENTIONS),
    through=st.sampled_from(NOISE_CONVENTIONS),
)
def test_round_trips(
    z: float, lipschitz: float, rate: float, batch: int, stated: str, through: str
) -> None:
    loss = LossGeometry(lipschitz=lipschitz, convex=False)
    first = sgd(batch_size=batch, learning_rate=rate, loss=loss, **{stated: z})
    second = first.replace(**{through: getattr(first, through)})
    for name in NOISE_CONVENTIONS:
        assert getattr(second, name) == pytest.approx(getattr(first, name), rel=1e-14)
    assert second.noise.name == through
    assert set(second.to_dict()) & set(NOISE_CONVENTIONS) == {through}


@given(
    blocks=st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(1, 5)), min_size=1, max_size=6),
    stated=st.sampled_from(NOISE_CONVENTIONS),
)
def test_schedules_round_trip_too(blocks: list[tuple[float, int]], stated: str) -> None:
    noise = Schedule(tuple(blocks))
    rates = [0.1 * (1 + i) for i in range(len(noise))]
    run = sgd(steps=len(noise), learning_rate=rates, **{stated: noise})
    for through in NOISE_CONVENTIONS:
        again = run.replace(**{through: getattr(run, through)})
        kept = getattr(again, stated)
        values = kept.values() if isinstance(kept, Schedule) else [kept] * len(noise)
        assert values == pytest.approx(noise.values(), rel=1e-14)


def test_the_convention_stated_is_the_one_kept() -> None:
    for name in NOISE_CONVENTIONS:
        run = sgd(**{name: 1.25})
        assert run.noise == Given(name, 1.25)
        assert run.parameters()[name] == 1.25
        assert set(run.parameters()) & set(NOISE_CONVENTIONS) == {name}


def test_a_full_batch_divides_by_n() -> None:
    loss = LossGeometry(lipschitz=2.0, convex=True)
    run = NoisyGD(n=400, steps=1, noise_std=0.05, loss=loss, release="last")
    assert run.noise_multiplier == pytest.approx(0.05 * 400 / 2.0)


def test_langevin_noise_follows_from_the_step_size() -> None:
    loss = LossGeometry(lipschitz=3.0, convex=True)
    run = ProjectedLangevin(
        n=10, steps=5, learning_rate=0.08, inverse_temperature=4.0, loss=loss, release="last"
    )
    assert run.iterate_std == pytest.approx(math.sqrt(2 * 0.08 / 4.0))
    assert run.noise_std == pytest.approx(run.iterate_std / 0.08)
    assert run.noise_multiplier == pytest.approx(run.noise_std * 10 / 3.0)
    varied = run.replace(learning_rate=[0.02] * 2 + [0.08] * 3)
    assert varied.iterate_std.values() == pytest.approx([0.1] * 2 + [0.2] * 3)


def test_what_a_conversion_lacks_is_named() -> None:
    with pytest.raises(NotApplicable, match=r"noise_multiplier follows from noise_std only with"):
        _ = sgd(loss=None, noise_std=1.0).noise_multiplier
    with pytest.raises(NotApplicable, match=r"pass loss=LossGeometry\(lipschitz="):
        _ = sgd(loss=LossGeometry(lipschitz=math.inf, convex=True), noise_multiplier=1.0).noise_std
    with pytest.raises(NotApplicable, match="iterate_std follows from noise_std only with the lea"):
        _ = sgd(learning_rate=None, noise_std=1.0).iterate_std
    with pytest.raises(NotApplicable, match=r"needs learning_rate=\.\.\. and loss=LossGeometry"):
        _ = sgd(learning_rate=None, noise_multiplier=1.0).record_step
    with pytest.raises(InvalidInput, match="unknown noise convention 'sigma'"):
        as_noise_std(Given("sigma", 1.0), batch_size=1, lipschitz=1.0, learning_rate=1.0)


def test_the_multiplier_alone_needs_neither_loss_nor_step_size() -> None:
    assert sgd(loss=None, learning_rate=None, noise_multiplier=1.5).noise_multiplier == 1.5
