"""Claims and runs against dp-accounting's own accountants, in both directions."""

from __future__ import annotations

import dp_accounting as dpa
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as peer

from dplateau import (
    Ball,
    Certificate,
    Checkpoints,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    Run,
    Schedule,
    certify,
    compose,
    foreign,
)

LOGISTIC = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
RIDGE = {"learning_rate": 2.0, "l2": 0.05, "loss": LOGISTIC}
POISSON = NoisySGD(n=2000, batch_size=400, steps=60, noise_multiplier=3.0, release="last", **RIDGE)


COARSE = 1e-3
HIDDEN = certify(POISSON, 1e-5)


def released(rate: float, noise: float, steps: int) -> dpa.DpEvent:
    return dpa.SelfComposedDpEvent(
        dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)), steps
    )


# ---- out: loss distributions --------------------------------------------------------------------


@pytest.mark.parametrize("mu_steps", [1, 16])
def test_a_gaussian_claim_is_its_own_loss_distribution(mu_steps: int) -> None:
    run = NoisyGD(n=9, steps=mu_steps, noise_multiplier=4.0, release="all")
    certificate = certify(run, 1e-5)
    pld = certificate.to_pld()
    exact = dpa.get_epsilon_gaussian(4.0 / mu_steps**0.5, 1e-5)
    assert exact <= pld.get_epsilon_for_delta(1e-5) <= exact + 1e-4
    theirs = peer.from_gaussian_mechanism(4.0 / mu_steps**0.5)
    assert pld.get_epsilon_for_delta(1e-5) == pytest.approx(
        theirs.get_epsilon_for_delta(1e-5), rel=1e-9
    )


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.02, 1.0, 200), (0.3, 2.0, 50)])
def test_a_released_poisson_claim_agrees_with_their_accountant(
    rate: float, noise: float, steps: int
) -> None:
    run = NoisySGD(n=1000, sampling_rate=rate, steps=steps, noise_multiplier=noise, release="all")
    pld = certify(run, 1e-5).to_pld()
    theirs = PLDAccountant().compose(released(rate, noise, steps))
    optimistic = peer.from_gaussian_mechanism(
        noise, sampling_prob=rate, pessimistic_estimate=False, use_connect_dots=False
    ).self_compose(steps)
    for delta in (1e-3, 1e-5, 1e-8):
        ours = pld.get_epsilon_for_delta(delta)
        assert ours >= optimistic.get_epsilon_for_delta(delta)
        assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-6)


def test_a_hidden_claim_keeps_its_advantage_in_their_hands() -> None:
    certificate = HIDDEN
    pld = certificate.to_pld(value_discretization_interval=COARSE)
    seen = pld.get_epsilon_for_delta(1e-5)
    assert certificate.bound == "poisson_blocks"
    # The claim carries a margin of two parts in a thousand, their grid costs less than that.
    assert 0.997 * certificate.claimed_epsilon < seen < 1.01 * certificate.claimed_epsilon
    assert seen < 0.8 * PLDAccountant().compose(released(0.2, 3.0, 60)).get_epsilon(1e-5)


def test_composing_there_and_here_agree() -> None:
    certificate = HIDDEN
    query = peer.from_gaussian_mechanism(5.0, value_discretization_interval=COARSE)
    pld = certificate.to_pld(value_discretization_interval=COARSE)
    there = pld.compose(query).get_epsilon_for_delta(1e-5)
    part = foreign(mu=0.2, neighbors="add_remove", name="a query")
    here = compose([certificate, part], 1e-5).claimed_epsilon
    assert there == pytest.approx(here, rel=5e-3)
    both = compose([certificate, certificate], 1e-5)
    pld = both.to_pld(value_discretization_interval=COARSE)
    assert pld.get_epsilon_for_delta(1e-5) == pytest.approx(both.claimed_epsilon, rel=5e-3)


@pytest.mark.parametrize(
    "run",
    [
        POISSON.replace(neighbors="replace"),
        POISSON.replace(group_size=2),
        POISSON.replace(sampling="fixed", neighbors="replace"),
        OnePassSGD(n=40, noise_std=2.0, release="random_stop", **RIDGE),
        NoisyGD(
            n=1, steps=9, noise_multiplier=6.0, noise_kind="laplace", dimension=1, release="all"
        ),
    ],
    ids=["replace", "group", "fixed", "random stop", "laplace"],
)
def test_every_kind_of_proof_gives_a_distribution_that_does_not_undercut_it(run: Run) -> None:
    certificate = certify(run, 1e-5)
    pld = certificate.to_pld(value_discretization_interval=COARSE)
    for delta in (1e-5, 1e-3):
        proved = certificate.curve.epsilon(delta)
        assert 0.997 * proved <= pld.get_epsilon_for_delta(delta) <= 1.05 * proved + 2e-3


def test_deltas_lost_outright_are_kept() -> None:
    foreign_pld = foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove")
    both = compose([HIDDEN, foreign_pld], 1e-5)
    pld = both.to_pld(value_discretization_interval=COARSE)
    assert pld.get_delta_for_epsilon(50.0) >= 1e-6
    assert pld.get_epsilon_for_delta(1e-5) >= 0.99 * both.claimed_epsilon


def test_a_grid_that_is_too_fine_is_refused_with_one_that_works() -> None:
    certificate = certify(NoisyGD(n=9, steps=25, noise_multiplier=1.0, release="all"), 1e-5)
    with pytest.raises(InvalidInput, match=r"value_discretization_interval=0\.0001$"):
        certificate.to_pld(value_discretization_interval=1e-6)
    exact = certificate.claimed_epsilon
    pld = certificate.to_pld(value_discretization_interval=0.01)
    assert exact * (1 - 1e-6) <= pld.get_epsilon_for_delta(1e-5) <= exact * 1.001


def test_no_claim_no_distribution() -> None:
    with pytest.raises(NotApplicable, match="seeded"):
        HIDDEN.without_claim("not private (seeded run)").to_pld()


# ---- out: events --------------------------------------------------------------------------------


def test_the_event_of_a_released_run_is_the_one_a_user_would_write() -> None:
    run = NoisySGD(n=1000, sampling_rate=0.25, steps=7, noise_multiplier=2.0, release="all")
    assert certify(run, 1e-5).to_dp_event() == released(0.25, 2.0 * (1 - 1e-15), 7)


def test_the_event_of_a_hidden_run_is_a_composition_of_mixtures() -> None:
    certificate = certify(POISSON.replace(steps=16, l2=0.3, learning_rate=1.0), 1e-5)
    event = certificate.to_dp_event()
    assert "MixtureOfGaussiansDpEvent(" in repr(event)
    theirs = PLDAccountant(value_discretization_interval=COARSE).compose(event).get_epsilon(1e-5)
    assert theirs == pytest.approx(certificate.claimed_epsilon, rel=1e-2)
    assert theirs >= 0.997 * certificate.claimed_epsilon


def test_the_event_of_a_plateau_is_one_gaussian() -> None:
    run = NoisyGD(n=100, steps=10**6, noise_multiplier=30.0, release="last", **RIDGE)
    certificate = certify(run, 1e-5)
    event = certificate.to_dp_event()
    assert isinstance(event, dpa.GaussianDpEvent)
    both = [
        acc.compose(event).get_epsilon(1e-5) for acc in (PLDAccountant(), dpa.rdp.RdpAccountant())
    ]
    assert certificate.curve.epsilon(1e-5) <= min(both) * (1 + 1e-9)
    assert both[0] <= certificate.claimed_epsilon + 2e-4


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (POISSON.replace(neighbors="replace"), "read one event differently"),
        (POISSON.replace(group_size=3), "about one record"),
        (POISSON.replace(n=1000, batch_size=20), "delta of .* outright"),
        (OnePassSGD(n=40, noise_std=2.0, release="random_stop", **RIDGE), "no composition"),
    ],
)
def test_what_no_event_says_is_refused_and_points_to_the_distribution(
    run: Run, reason: str
) -> None:
    with pytest.raises(NotApplicable, match=rf"{reason}.*to_pld\(\)"):
        certify(run, 1e-5).to_dp_event()


# ---- in -----------------------------------------------------------------------------------------


def test_a_users_event_becomes_the_run_it_came_from() -> None:
    run = Run.from_dp_event(released(256 / 60000, 1.1, 14062), n=60000, release="all")
    assert run == NoisySGD(
        n=60000, sampling_rate=256 / 60000, steps=14062, noise_multiplier=1.1, release="all"
    )
    # Certified by prv-accountant at an error of .001: epsilon lies in [2.3805, 2.3827].
    assert 2.3805 <= certify(run, 1e-5).claimed_epsilon <= 1.004 * 2.3827


def test_an_event_with_a_hidden_state_added_is_certified() -> None:
    run = Run.from_dp_event(released(0.2, 3.0, 60), n=2000, release="last", **RIDGE)
    assert certify(run, 1e-5).claimed_epsilon == HIDDEN.claimed_epsilon


def test_out_and_in_again() -> None:
    run = NoisyGD(n=50, steps=9, noise_multiplier=3.0, release="all")
    certificate: Certificate = certify(run, 1e-5)
    again = Run.from_dp_event(certificate.to_dp_event(), n=50, release="all")
    assert certify(again, 1e-5).claimed_epsilon == pytest.approx(
        certificate.claimed_epsilon, rel=1e-8
    )


def test_repeats_multiply_and_parts_add() -> None:
    one, two = dpa.GaussianDpEvent(1.0), dpa.GaussianDpEvent(2.0)
    nested = dpa.SelfComposedDpEvent(dpa.SelfComposedDpEvent(one, 3), 4)
    assert Run.from_dp_event(nested, n=5, release="all").steps == 12
    mixed = dpa.ComposedDpEvent([one, dpa.NoOpDpEvent(), one, dpa.SelfComposedDpEvent(two, 2)])
    run = Run.from_dp_event(dpa.SelfComposedDpEvent(mixed, 2), n=5, release="all")
    assert run.noise_multiplier == Schedule(((1.0, 2), (2.0, 2), (1.0, 2), (2.0, 2)))
    theirs = PLDAccountant().compose(mixed, 2).get_epsilon(1e-5)
    assert certify(run, 1e-5).claimed_epsilon == pytest.approx(theirs, rel=5e-3)


def test_a_warm_up_of_the_sampling_rate_is_a_schedule() -> None:
    event = dpa.ComposedDpEvent([released(0.01, 1.0, 50), released(0.04, 1.0, 100)])
    run = Run.from_dp_event(event, n=1000, batch_size=40, release="all")
    assert run.sampling_rates()[[0, 49, 50, 149]].tolist() == [0.01, 0.01, 0.04, 0.04]
    theirs = PLDAccountant().compose(event).get_epsilon(1e-5)
    assert theirs * 0.999 <= certify(run, 1e-5).claimed_epsilon <= theirs * 1.005


def test_samples_of_one_size() -> None:
    sampled = dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(2.0))
    event = dpa.SelfComposedDpEvent(sampled, 30)
    run = Run.from_dp_event(event, n=100, release="all", neighbors="replace")
    assert run.described == "NoisySGD with sampling='fixed'"
    assert (run.batch_size, run.steps) == (10, 30)
    with pytest.raises(InvalidInput, match="samples from 100 records, but n=99"):
        Run.from_dp_event(event, n=99, release="all", neighbors="replace")


@pytest.mark.parametrize(
    "event",
    [
        dpa.LaplaceDpEvent(1.0),
        dpa.SingleEpochTreeAggregationDpEvent(1.0, 3),
        dpa.ZCDpEvent(0.1),
        dpa.TruncatedSubsampledGaussianDpEvent(100, 0.1, 12, 1.0),
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(1.0)),
        dpa.ComposedDpEvent([dpa.GaussianDpEvent(1.0), dpa.NonPrivateDpEvent()]),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_that_no_run_describes_are_refused(event: dpa.DpEvent) -> None:
    with pytest.raises(NotApplicable, match=r"no run of this library does .*foreign"):
        Run.from_dp_event(event, n=100, release="all")


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), 2.5), "count .* whole number; got 2.5"),
        (
            dpa.ComposedDpEvent(
                [dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1.0), k) for k in (5, -3)]
            ),
            "count .* at least 0; got -3",
        ),
        (
            dpa.SampledWithoutReplacementDpEvent(100, 10.5, dpa.GaussianDpEvent(1.0)),
            "sample_size .* whole number; got 10.5",
        ),
        (dpa.GaussianDpEvent(None), "noise_multiplier must be a real number; got None"),
        (dpa.PoissonSampledDpEvent(1.5, dpa.GaussianDpEvent(1.0)), "sampling_rate .* at most 1"),
    ],
)
def test_numbers_that_events_do_not_check_are_checked(event: dpa.DpEvent, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Run.from_dp_event(event, n=100, release="all", neighbors="replace")


@pytest.mark.parametrize(
    "option",
    [
        {"noise_multiplier": 100.0},
        {"noise_std": 5.0},
        {"noise_kind": "laplace", "dimension": 1},
        {"steps": 1},
        {"sampling_rate": 0.001},
        {"sampling": "fixed"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_an_event_says_cannot_be_said_otherwise(option: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=f"the event itself says {next(iter(option))}"):
        Run.from_dp_event(released(0.1, 1.0, 10), n=100, release="all", **option)


def test_changes_of_long_events_are_kept_as_blocks() -> None:
    event = dpa.ComposedDpEvent(
        [dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1e4), 10**9), dpa.GaussianDpEvent(200.0)]
    )
    run = Run.from_dp_event(event, n=10, release="all")
    assert run.noise_multiplier == Schedule(((1e4, 10**9), (200.0, 1)))
    exact = dpa.get_epsilon_gaussian(1 / (10**9 / 1e8 + 1 / 200.0**2) ** 0.5, 1e-5)
    assert certify(run, 1e-5).claimed_epsilon == pytest.approx(exact, rel=1e-6)


def test_what_an_event_does_not_say_is_asked_for() -> None:
    event = released(0.01, 1.0, 10)
    with pytest.raises(InvalidInput, match=r"learning_rate=\.\.\. and loss=\.\.\."):
        Run.from_dp_event(event, n=100, release="last")
    with pytest.raises(
        InvalidInput, match=r"does not say loss=\.\.\., which release='checkpoints'"
    ):
        Run.from_dp_event(event, n=100, release=Checkpoints(every=2), learning_rate=0.1)
    with pytest.raises(InvalidInput, match="releases nothing"):
        Run.from_dp_event(dpa.NoOpDpEvent(), n=100, release="all")


def test_mixed_kinds_of_batches_are_refused() -> None:
    sized = dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(2.0))
    with pytest.raises(NotApplicable, match="one kind of batches"):
        Run.from_dp_event(dpa.ComposedDpEvent([sized, released(0.1, 1.0, 1)]), n=100, release="all")


def test_a_domain_may_take_the_place_of_the_ridge() -> None:
    run = Run.from_dp_event(
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(50.0), 400),
        n=100,
        release="last",
        learning_rate=0.1,
        loss=LOGISTIC,
        domain=Ball(0.5),
    )
    assert run.diameter == 1.0
