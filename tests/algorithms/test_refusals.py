"""Every refusal of a description names what was asked, why it fails and what would work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import (
    Body,
    Box,
    CyclicSGD,
    DplateauError,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    ProjectedLangevin,
)
from dplateau.algorithms import Run

Maker = Callable[..., Run]


def gd(**options: Any) -> Run:
    return NoisyGD(**{"n": 10, "steps": 2, "noise_std": 1.0, "release": "last", **options})


def sgd(**options: Any) -> Run:
    base = {"n": 10, "batch_size": 2, "steps": 2, "noise_std": 1.0, "release": "last"}
    return NoisySGD(**{**base, **options})


def cyclic(**options: Any) -> Run:
    base = {"n": 10, "batch_size": 2, "steps": 2, "noise_std": 1.0, "release": "last"}
    return CyclicSGD(**{**base, **options})


def one_pass(**options: Any) -> Run:
    return OnePassSGD(**{"n": 10, "noise_std": 1.0, "release": "last", **options})


def langevin(**options: Any) -> Run:
    base = {"n": 10, "steps": 2, "learning_rate": 0.1, "release": "last"}
    return ProjectedLangevin(**{**base, **options})


MAKERS: list[Maker] = [gd, sgd, cyclic, one_pass, langevin]
# One pass has no steps of its own, and Langevin no noise.
LACKS = {(one_pass, "steps"), (langevin, "noise_std")}


def each(*names: str) -> list[tuple[Maker, str]]:
    return [(make, name) for make in MAKERS for name in names if (make, name) not in LACKS]


@pytest.mark.parametrize("make", MAKERS)
def test_the_plain_run_is_accepted(make: Maker) -> None:
    assert make().n == 10


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "2", -1, 0, 2.5, [2], 1j])
@pytest.mark.parametrize(("make", "name"), each("n", "dimension", "steps"))
def test_counts_are_whole_numbers(make: Maker, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} must be (a real|a whole|at least)"):
        make(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, False, "2", -1.0, 0.0, 1j, {}])
@pytest.mark.parametrize(("make", "name"), each("learning_rate", "noise_std"))
def test_scales_are_finite_positive_numbers(make: Maker, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name} must be (a real|finite and above 0)"):
        make(**{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "2", -0.1])
@pytest.mark.parametrize("make", MAKERS)
def test_l2_is_finite_and_not_negative(make: Maker, value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^l2 must be"):
        make(l2=value)


@pytest.mark.parametrize("make", MAKERS)
def test_numbers_beyond_doubles_are_refused_in_words(make: Maker) -> None:
    with pytest.raises(InvalidInput, match="n is too large for a double"):
        make(n=10**400)


@pytest.mark.parametrize("make", MAKERS)
def test_the_release_has_no_default(make: Maker) -> None:
    with pytest.raises(
        InvalidInput, match=r"promise about what leaves .* say release='last', release='al"
    ):
        make(release=None)
    with pytest.raises(InvalidInput, match=r"release must be one of 'last', 'all', 'random_stop'"):
        make(release="final")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("neighbors", "swap", "neighbors must be one of 'add_remove', 'replace'; got 'swap'"),
        ("neighbors", 1, "neighbors must be one of 'add_remove', 'replace'; got 1"),
        ("domain", 3.0, "domain must be Ball, Box, Body or None; got 3.0"),
        ("loss", {"lipschitz": 1.0}, "loss must be LossGeometry or None; got {'lipschitz'"),
        ("sigma", 1.0, "has no option 'sigma'; options are n, "),
    ],
)
@pytest.mark.parametrize("make", MAKERS)
def test_options_are_known(make: Maker, name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**{name: value})


CASES: list[tuple[Maker, dict[str, Any], str]] = [
    (gd, {"epochs": 3}, "state the length once: steps or epochs; got both"),
    (sgd, {"steps": None}, "state the length once: steps or epochs; got neither"),
    (sgd, {"steps": None, "epochs": 0}, "epochs must be finite and above 0; got 0"),
    (sgd, {"steps": None, "epochs": math.nan}, "epochs must be a real number; got NaN"),
    (sgd, {"sampling_rate": [0.2, 1.5]}, "sampling_rate must be at most 1; got 1.5"),
    (sgd, {"sampling_rate": [0.2] * 3}, "sampling_rate has 3 values but the run has 2 steps"),
    (sgd, {"sampling_rate": [0.2, 0.0]}, "sampling_rate: every value .* above 0; got 0"),
    (sgd, {"sampling_rate": [0.1, 0.2], "batch_size": None}, "needs batch_size=... too"),
    (sgd, {"sampling_rate": [0.1], "steps": None, "epochs": 1}, "state steps"),
    (sgd, {"sampling_rate": 0.2, "sampling": "fixed", "neighbors": "replace"}, "got both"),
    (cyclic, {"sampling_rate": 0.2}, "state the batch once: batch_size or sampling_rate; got bo"),
    (cyclic, {"sampling_rate": [0.2], "batch_size": None}, "sampling_rate must be a real number"),
    (sgd, {"batch_size": None}, "state the batch once: batch_size or sampling_rate; got neither"),
    (sgd, {"batch_size": 11}, "batch_size=11 exceeds n=10; the largest batch is all records"),
    (sgd, {"batch_size": 0}, "batch_size must be finite and above 0; got 0"),
    (sgd, {"batch_size": None, "sampling_rate": 1.1}, "sampling_rate must be at most 1; got 1.1"),
    (sgd, {"batch_size": None, "sampling_rate": -0.1}, "sampling_rate must be finite and above 0"),
    (sgd, {"noise_std": None}, "state the noise once: exactly one of .*; got none"),
    (sgd, {"iterate_std": 1.0}, "exactly one of .*; got noise_std and iterate_std"),
    (sgd, {"sampling": "uniform"}, "sampling must be one of 'poisson', 'fixed'; got 'uniform'"),
    (cyclic, {"order": "random"}, "order must be one of 'cyclic', 'shuffle_once', 'reshuffle'"),
    (cyclic, {"batch_size": 2.5}, "consecutive batches hold whole records; got .* 2.5"),
    (one_pass, {"batch_size": 0.5}, "consecutive batches hold whole records; got .* 0.5"),
    (one_pass, {"steps": 3}, "OnePassSGD has no option 'steps'"),
    (gd, {"batch_size": 3}, "NoisyGD has no option 'batch_size'"),
    (gd, {"noise_kind": "cauchy"}, "noise_kind must be one of 'gaussian', 'laplace'"),
    (langevin, {"noise_std": 1.0}, "takes no noise_std: its noise is sqrt.* or use NoisyGD"),
    (langevin, {"noise_kind": "laplace"}, "Langevin noise is Gaussian; use NoisyGD"),
    (langevin, {"learning_rate": None}, "needs learning_rate=...: its noise follows from it"),
    (langevin, {"inverse_temperature": 0.0}, "inverse_temperature must be finite and above 0"),
    (gd, {"domain": Box([0, 0], [1, 1]), "dimension": 3}, "dimension=3 but the box has 2 coord"),
    # Combinations that no theorem covers.
    (
        gd,
        {"noise_kind": "laplace"},
        "Laplace noise with a dimension that is unstated; state dimension=1, or",
    ),
    (
        gd,
        {"noise_kind": "laplace", "dimension": 2},
        "Laplace noise with a dimension that is 2; state",
    ),
    (sgd, {"sampling": "fixed"}, "no theorem for neighbors='add_remove' .*; use neighbors='repl"),
    (
        sgd,
        {"sampling": "fixed", "neighbors": "replace", "batch_size": 10},
        "batch_size=10 with n=10 is the full batch; use NoisyGD",
    ),
    (
        sgd,
        {"sampling": "fixed", "neighbors": "replace", "batch_size": 2.5},
        "a fixed-size batch holds a whole number of records; got 2.5",
    ),
    *(
        (make, {"release": "random_stop"}, "no theorem covers release='random_stop' .*OnePassSGD")
        for make in (gd, sgd, cyclic, langevin)
    ),
]


@pytest.mark.parametrize(("make", "options", "message"), CASES)
def test_refusals(make: Maker, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**options)


def test_what_is_covered_is_not_refused() -> None:
    assert sgd(sampling="fixed", neighbors="replace").neighbors == "replace"
    assert one_pass(release="random_stop").release.name == "random_stop"
    assert gd(noise_kind="laplace", dimension=1).noise_kind == "laplace"


def test_one_except_catches_every_refusal() -> None:
    assert issubclass(InvalidInput, DplateauError)
    assert issubclass(NotApplicable, DplateauError)
    assert issubclass(DplateauError, ValueError)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.text(max_size=3),
    st.lists(st.floats(), max_size=3),
)


@given(
    make=st.sampled_from(MAKERS),
    options=st.dictionaries(
        st.sampled_from(["n", "learning_rate", "l2", "domain", "loss", "dimension", "neighbors"]),
        anything,
        max_size=3,
    ),
)
def test_nothing_but_refusals_comes_out_of_bad_input(make: Maker, options: dict[str, Any]) -> None:
    try:
        run = make(**options)
    except DplateauError:
        return
    assert run.n >= 1
    assert 0 <= run.l2 < math.inf
    assert run.steps >= 1


# ---- magnitudes ---------------------------------------------------------------------------------


def lossy(**constants: Any) -> Any:
    return LossGeometry(**{"lipschitz": 1.0, "convex": True, **constants})


@pytest.mark.parametrize("value", [5e-324, 1e-308, 1e-41, 1e41, 1e308])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("learning_rate", lambda x: gd(learning_rate=x)),
        ("learning_rate", lambda x: gd(learning_rate=[1.0, x])),
        ("noise_multiplier", lambda x: gd(noise_std=None, noise_multiplier=x)),
        ("noise_std", lambda x: gd(noise_std=x)),
        ("noise_std", lambda x: gd(noise_std=[x, 1.0])),
        ("l2", lambda x: gd(l2=x)),
        ("lipschitz", lambda x: gd(loss=lossy(lipschitz=x))),
        ("smoothness", lambda x: gd(loss=lossy(smoothness=x))),
        ("holder constant", lambda x: gd(loss=lossy(holder=(0.5, x)))),
        ("dissipativity rate", lambda x: gd(loss=lossy(dissipativity=(1.0, x)))),
        ("dissipativity offset", lambda x: gd(loss=lossy(dissipativity=(x, 1.0)))),
        ("the domain's diameter", lambda x: gd(domain=Body(x))),
        ("inverse_temperature", lambda x: langevin(inverse_temperature=x)),
    ],
)
def test_numbers_beyond_every_scale_are_refused(
    name: str, make: Callable[[float], Run], value: float
) -> None:
    """Noise of 1e308 on averages of 100 gradients once overflowed: such a run leaked nothing."""
    with pytest.raises(InvalidInput, match=rf"{name} = .* beyond double precision"):
        make(value)


@pytest.mark.parametrize("value", [1e-40, 1e40])
def test_numbers_of_every_scale_are_described(value: float) -> None:
    geometry = lossy(lipschitz=value, smoothness=value)
    run = gd(learning_rate=value, noise_std=value, l2=value, loss=geometry, domain=Body(value))
    for derived in (run.record_step, run.noise_multiplier, run.iterate_std):
        assert isinstance(derived, float)
        assert 1e-300 < derived**2 < 1e300


def test_batches_beyond_every_scale_are_refused() -> None:
    with pytest.raises(InvalidInput, match="batch_size = 1e\\+21 leads beyond double precision"):
        gd(n=10**21)
    with pytest.raises(InvalidInput, match="batch_size = 1e-21 leads beyond double precision"):
        sgd(batch_size=1e-21)
