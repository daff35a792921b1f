"""Several releases on the same data."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from dplateau import (
    Ball,
    Composition,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    certify,
    compose,
    foreign,
)
from dplateau.bounds.base import COMPOSED_MARGIN
from dplateau.bounds.registry import bound_named
from dplateau.curves import BasicCompositionCurve, GaussianCurve, LossCurve, tabulate
from dplateau.ground.shown import rounded_up
from dplateau.verify import verify
from forging import changed, forged

DELTA = 1e-5
# What a claim leaves for a second derivation on grids of its own.
MARGIN = 1 + COMPOSED_MARGIN
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
FULL = certify(NoisyGD(n=9, steps=4, noise_multiplier=4.0, release="all"), DELTA)
HIDDEN = certify(
    NoisyGD(
        n=1000, steps=400, learning_rate=0.5, l2=0.1, noise_std=0.04, loss=LOSS, release="last"
    ),
    DELTA,
)
SAMPLED_RUN = NoisySGD(n=6000, batch_size=60, steps=300, noise_multiplier=1.0, release="all")
SAMPLED = certify(SAMPLED_RUN, DELTA)
RIDGE = certify(
    NoisySGD(
        n=60_000,
        batch_size=600,
        epochs=50,
        learning_rate=2.0,
        l2=0.005,
        noise_multiplier=1.0,
        loss=LOSS,
        release="last",
    ),
    DELTA,
)
# A proof without pairs: an average over the place of a record in the order.
SHUFFLED = certify(
    CyclicSGD(
        n=40,
        batch_size=10,
        epochs=5,
        order="shuffle_once",
        learning_rate=0.5,
        noise_std=0.2,
        loss=LOSS,
        domain=Ball(1.0),
        release="last",
    ),
    DELTA,
    bounds=[bound_named("shuffle_once_average")],
)
# A proof by pairs in which batches above a cap are charged to delta.
CAPPED_RUN = NoisySGD(
    n=60_000,
    batch_size=600,
    steps=500,
    learning_rate=5.8,
    l2=0.005,
    noise_multiplier=1.0,
    loss=LOSS,
    release="last",
)
CAPPED = certify(CAPPED_RUN, DELTA, bounds=[bound_named("poisson_blocks")])
QUERY = foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove", name="a query")


def test_gaussian_certificates_compose_exactly() -> None:
    mus = [certificate.curve.mu for certificate in (FULL, HIDDEN, FULL)]
    found = compose([FULL, HIDDEN, FULL], DELTA)
    exact = GaussianCurve(math.hypot(*mus)).epsilon(DELTA)
    assert exact <= found.claimed_epsilon <= exact * (1 + 1e-8)
    assert found.method == "GDP composition"
    assert found.delta(found.claimed_epsilon) <= DELTA * (1 + 1e-9)
    assert found.epsilon(1e-8) > found.claimed_epsilon
    assert found.verify().ok


@pytest.mark.parametrize("count", [1, 3, 50, 1000])
def test_equal_gaussian_parts_cost_the_root_of_their_number(count: int) -> None:
    part = foreign(mu=0.2, neighbors="add_remove")
    exact = GaussianCurve(0.2 * math.sqrt(count)).epsilon(DELTA)
    assert exact <= compose([part] * count, DELTA).claimed_epsilon <= exact * 1.001


def test_a_table_of_a_gaussian_costs_hardly_more() -> None:
    pld = privacy_loss_distribution.from_gaussian_mechanism(2.0)
    part = foreign(pld=pld, neighbors="add_remove", name="noisy mean")
    for count in (1, 4, 25):
        exact = GaussianCurve(0.5 * math.sqrt(count)).epsilon(DELTA)
        found = compose([part] * count, DELTA)
        assert exact <= found.claimed_epsilon <= exact * 1.004
    assert found.verify().ok


def test_privacy_losses_compose_as_one_longer_run() -> None:
    found = compose([SAMPLED, SAMPLED], DELTA)
    longer = certify(SAMPLED_RUN.replace(steps=600), DELTA).claimed_epsilon
    assert found.method == "PLD composition"
    assert longer * (1 - 1e-3) <= found.claimed_epsilon <= longer * 1.003
    assert SAMPLED.claimed_epsilon < found.claimed_epsilon < 2 * SAMPLED.claimed_epsilon


def test_hidden_state_certificates_compose_by_their_pairs() -> None:
    """The cost of two and of eight, by the verifier's own blocks on dp-accounting's masses."""
    for count, golden, added_up in ((2, 0.86906, 1.404), (8, 1.70873, 6.845)):
        found = compose([RIDGE] * count, DELTA)
        assert found.method == "PLD composition"
        assert golden <= found.claimed_epsilon <= golden * 1.007
        assert found.claimed_epsilon < added_up / 1.5
        assert len(found.entries) == 1, "equal parts share one law"
        assert isinstance(found.entries[0].law, LossCurve)
        assert found.verify().ok


def test_what_fails_outright_is_added_to_delta() -> None:
    assert 0 < CAPPED.curve.extra_delta < DELTA
    found = compose([CAPPED] * 3, DELTA)
    assert Composition.from_json(found.to_json()) == found
    assert found.verify().ok
    law = found.entries[0].law
    assert isinstance(law, LossCurve)
    assert law.extra_delta == CAPPED.curve.extra_delta
    certain = LossCurve(tuple((pair, 3 * n) for pair, n in law.parts))
    # The symmetric table of the same curve is valid, and never better than the pairs.
    table = LossCurve(((tabulate(CAPPED.curve, DELTA / 3), 3),)).epsilon(DELTA)
    assert certain.epsilon(DELTA) <= found.curve.epsilon(DELTA) <= table * (1 + 1e-3)
    # The same with failures that are not rare.
    entry = replace(found.entries[0], law=replace(law, extra_delta=1e-6))
    failing = replace(found, entries=(entry,)).curve
    for epsilon in (0.5, 1.0, 9.0):
        assert failing.delta(epsilon) == pytest.approx(certain.delta(epsilon) + 3e-6, rel=1e-4)
    assert failing.epsilon(DELTA) == pytest.approx(certain.epsilon(7e-6), rel=2e-3)
    assert math.isinf(failing.epsilon(2e-6))


@pytest.mark.parametrize(
    "parts",
    [
        [SAMPLED, FULL, HIDDEN],
        [RIDGE, QUERY],
        [SHUFFLED, SAMPLED, foreign(mu=0.3, neighbors="add_remove")],
        [CAPPED, SHUFFLED],
        [QUERY, foreign(epsilon=0.1, delta=0.0, neighbors="add_remove"), FULL],
    ],
    ids=["three proofs", "pairs and row", "table, pairs, Gaussian", "pairs and table", "rows"],
)
def test_mixed_parts(parts: list[Any]) -> None:
    found = compose(parts, DELTA)
    assert found.method == "PLD composition"
    alone = [part.curve.epsilon(DELTA) for part in parts]
    assert max(alone) * (1 - 1e-3) <= found.claimed_epsilon
    old = BasicCompositionCurve(tuple(part.curve for part in parts)).epsilon(DELTA)
    assert found.claimed_epsilon <= old * MARGIN
    backwards = compose(parts[::-1], DELTA)
    assert backwards.claimed_epsilon == pytest.approx(found.claimed_epsilon, rel=1e-4)
    again = Composition.from_json(found.to_json())
    assert again == found
    assert again.epsilon(1e-6) == found.epsilon(1e-6)
    verdict = again.verify()
    assert verdict.ok, str(verdict)
    assert verdict.rederived_epsilon is not None
    assert verdict.rederived_epsilon <= found.claimed_epsilon


def test_a_table_is_never_below_the_pairs_it_stands_for() -> None:
    exact = LossCurve(SAMPLED.curve.loss_parts() * 2).epsilon(DELTA)
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.01, value_discretization_interval=1e-3
    )
    part = foreign(pld=pld.self_compose(300), neighbors="add_remove")
    assert compose([part, part], DELTA).claimed_epsilon >= exact * (1 - 2e-3)


def test_renyi_certificates_add_up() -> None:
    rdp = certify(SAMPLED_RUN, DELTA, bounds=[bound_named("rdp_composition")])
    found = compose([rdp, rdp], DELTA)
    longer = certify(
        SAMPLED_RUN.replace(steps=600), DELTA, bounds=[bound_named("rdp_composition")]
    ).claimed_epsilon
    assert found.claimed_epsilon <= longer * 1.01
    # Whatever method wins, it must not undercut the exact composition of the same two runs.
    exact_below = compose([SAMPLED, SAMPLED], DELTA).claimed_epsilon * (1 - 2e-3)
    assert found.claimed_epsilon >= exact_below
    assert Composition.from_json(found.to_json()).epsilon(1e-6) == found.epsilon(1e-6)


def test_naive_certificates_still_compose() -> None:
    naive = certify(SAMPLED_RUN, DELTA, bounds=[bound_named("naive_composition")])
    found = compose([naive, FULL], DELTA)
    assert naive.claimed_epsilon < found.claimed_epsilon < math.inf
    assert found.claimed_epsilon <= naive.epsilon(DELTA / 2) + FULL.epsilon(DELTA / 2) + 1e-9


def test_one_certificate_is_itself() -> None:
    for certificate in (FULL, SAMPLED, HIDDEN, RIDGE):
        found = compose([certificate], DELTA)
        assert found.claimed_epsilon == pytest.approx(certificate.claimed_epsilon, rel=2e-3)


def test_compositions_are_parts_too() -> None:
    flat = compose([SAMPLED, FULL, SAMPLED], DELTA)
    nested = compose([compose([SAMPLED, FULL], DELTA), SAMPLED], DELTA)
    assert nested.claimed_epsilon == pytest.approx(flat.claimed_epsilon, rel=1e-9)
    assert sorted(entry.count for entry in nested.entries) == [1, 2]


def test_disjoint_records_cost_the_worst_part() -> None:
    worst = compose([SAMPLED, FULL], DELTA, records="disjoint")
    assert worst.claimed_epsilon == max(SAMPLED.claimed_epsilon, FULL.claimed_epsilon)
    assert worst.delta(1.0) == max(SAMPLED.delta(1.0), FULL.delta(1.0))
    assert worst.tradeoff(0.1) == min(SAMPLED.tradeoff(0.1), FULL.tradeoff(0.1))
    assert worst.verify().ok
    assert any("disjoint" in assumption.text for assumption in worst.assumptions)
    assert str(worst).startswith("2 releases on disjoint records: (")


def test_a_release_of_ranges_moments_and_gradients_on_two_halves() -> None:
    halves = compose([RIDGE, SAMPLED], DELTA / 2, records="disjoint")
    release = compose([QUERY, FULL, halves], DELTA)
    sequential = compose([QUERY, FULL, RIDGE, SAMPLED], DELTA)
    alone = compose([QUERY, FULL, SAMPLED], DELTA)
    assert alone.claimed_epsilon * (1 - 1e-3) <= release.claimed_epsilon
    assert release.claimed_epsilon < sequential.claimed_epsilon
    again = Composition.from_json(release.to_json())
    assert again == release
    verdict = again.verify()
    assert verdict.ok, str(verdict)


def test_gaussian_halves_stay_gaussian() -> None:
    halves = compose([FULL, HIDDEN], DELTA, records="disjoint")
    release = compose([halves, FULL], DELTA)
    most = max(FULL.curve.mu, HIDDEN.curve.mu)
    exact = GaussianCurve(math.hypot(most, FULL.curve.mu)).epsilon(DELTA)
    assert release.method == "GDP composition"
    assert exact <= release.claimed_epsilon <= exact * (1 + 1e-7)
    assert release.verify().ok


def test_the_claim_in_words() -> None:
    found = compose([FULL, FULL, QUERY], DELTA)
    lines = str(found).split("\n")
    claim = f"3 releases: ({rounded_up(found.claimed_epsilon)}, 1e-05)-DP by PLD composition"
    assert lines[0] == claim
    assert lines[1].startswith(f"  2 x ({rounded_up(FULL.claimed_epsilon)}, 1e-05)-DP by ")
    assert lines[2] == "  a query: (0.5, 1e-06)-DP (declared)"
    assert found.certificates == (FULL, FULL)
    assert found.parts == (FULL, FULL, QUERY)
    assert found.claimed_delta == DELTA


def test_assumptions_are_those_of_all_parts_and_one_more() -> None:
    both = compose([FULL, QUERY], DELTA)
    found = {assumption.text: assumption.status for assumption in both.assumptions}
    assert {assumption.text for assumption in FULL.assumptions} < set(found)
    assert found["a query: (0.5, 1e-06)-DP (add_remove record)"] == "declared"
    assert found["the parts and their settings were fixed before the first release"] == "declared"


def test_lowered_claims_are_rejected() -> None:
    for parts in ([SAMPLED, QUERY], [FULL, HIDDEN], [SAMPLED, SAMPLED]):
        found = compose(parts, DELTA)
        proved = found.verify().rederived_epsilon
        assert proved is not None
        lower = forged(found.to_dict(), claimed_epsilon=proved * (1 - 2e-3))
        verdict = Composition.from_dict(lower).verify()
        assert not verdict.ok
        assert verdict.checks[-1].name == "epsilon is proved"


def test_tampered_parts_are_rejected() -> None:
    found = compose([SHUFFLED, FULL], DELTA).to_dict()
    with pytest.raises(InvalidInput, match="altered after it was made"):
        Composition.from_dict(changed(found, claimed_epsilon=0.1))
    table, gaussian = found["content"]["parts"]

    def fails(name: str, **changes: Any) -> None:
        verdict = verify(forged(found, **changes))
        assert not verdict.ok
        assert name in verdict.checks[-1].name, str(verdict)

    # A table that says less than is proved is raised, and then a claim made by it is too low.
    law = {**table["law"], "deltas": [delta * 0.9 for delta in table["law"]["deltas"]]}
    lower = [{**table, "law": law}, gaussian]
    trusting = replace(Composition.from_dict(forged(found, parts=lower)), read=False)
    claim = trusting.curve.epsilon(DELTA)
    fails("epsilon is proved", parts=lower, claimed_epsilon=claim)
    fails("table of part 1", parts=[{**table, "law": {**law, "deltas": [2.0]}}, gaussian])
    less = {"kind": "gaussian", "mu": gaussian["law"]["mu"] * 0.999}
    fails("law of part 2", parts=[table, {**gaussian, "law": less}])
    fails("law of part 2", parts=[table, {**gaussian, "law": {"kind": "pairs"}}])
    fails("epsilon is proved", parts=[{**table, "count": 2}, gaussian])
    fails("assumptions", assumptions=found["content"]["assumptions"][:-1])
    with pytest.raises(InvalidInput, match="must state what its parts rest on"):
        Composition.from_dict(forged(found, assumptions=found["content"]["assumptions"][:-1]))
    fails("method", method="RDP composition")
    cheaper = json.loads(json.dumps(gaussian))
    cheaper["part"]["content"]["claim"]["epsilon"] *= 0.9
    with pytest.raises(InvalidInput, match="certificate was altered"):
        Composition.from_dict(forged(found, parts=[table, cheaper]))


def test_laws_of_a_file_are_not_trusted_at_other_deltas() -> None:
    """A table cut where the claim does not look, and a Gaussian law that is too small."""
    honest = compose([SHUFFLED, SHUFFLED], DELTA)
    found = honest.to_dict()
    law = found["content"]["parts"][0]["law"]
    assert law["kind"] == "table"
    cut = [delta if delta > DELTA / 100 else delta * 1e-6 for delta in law["deltas"]]
    parts = [{**found["content"]["parts"][0], "law": {**law, "deltas": cut}}]
    read = Composition.from_dict(forged(found, parts=parts))
    small = DELTA / 1000
    assert read.epsilon(small) == pytest.approx(honest.epsilon(small), rel=1e-9)
    gaussian = compose([FULL, FULL], DELTA)
    found = gaussian.to_dict()
    item = found["content"]["parts"][0]
    parts = [{**item, "law": {"kind": "gaussian", "mu": item["law"]["mu"] / 2}}]
    read = Composition.from_dict(forged(found, parts=parts))
    assert read.epsilon(small) == gaussian.epsilon(small)
    mixed = compose([SAMPLED, SAMPLED], DELTA).to_dict()
    other = Composition.from_dict(forged(mixed, method="GDP composition"))
    with pytest.raises(InvalidInput, match="no Gaussian curve"):
        other.epsilon(small)


def test_text_that_is_no_composition() -> None:
    for text, reason in (
        ("{", "the text is no JSON"),
        ("[]", "a dict is needed"),
        (FULL.to_json(), "not a composition: it says that it is 'dplateau/certificate'"),
        (json.dumps({"kind": "dplateau/composition", "format": 9}), "of format 9; dplateau"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            Composition.from_json(text)


def test_pairs_of_numbers_need_a_relation() -> None:
    with pytest.raises(InvalidInput, match=r"which neighbors .*foreign\(epsilon=0.5, delta=1e-06"):
        compose([FULL, (0.5, 1e-6)], DELTA)  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="compositions and what foreign"):
        compose([FULL, 0.5], DELTA)  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"put this one into \[ \]"):
        compose(FULL, DELTA)  # type: ignore[arg-type]


def test_different_neighbors_and_units_are_refused() -> None:
    replaced = certify(FULL.run.replace(neighbors="replace"), DELTA)
    with pytest.raises(InvalidInput, match=r"different neighbors .*certify all runs with the"):
        compose([FULL, replaced], DELTA)
    with pytest.raises(InvalidInput, match="different neighbors"):
        compose([replaced, QUERY], DELTA)
    user = foreign(mu=1.0, neighbors="add_remove", unit="user")
    with pytest.raises(InvalidInput, match=r"different units \(record, user\)"):
        compose([FULL, user], DELTA)


def test_a_coin_for_every_row_is_attacked_exactly() -> None:
    """Rows are held out with probability 0.1; an adversary sees the coins and both releases."""
    model, score = (
        NoisyGD(n=n, steps=1, noise_multiplier=noise, release="last")
        for n, noise in ((900, 2.0), (100, 3.0))
    )
    shares, mus = (0.9, 0.1), (1 / 2.0, 1 / 3.0)

    def truth(laws: list[tuple[float, float]], epsilon: float) -> float:
        return sum(share * GaussianCurve(mu).delta(epsilon) for share, mu in laws)

    one = compose([certify(run, DELTA) for run in (model, score)], DELTA, records="disjoint")
    two = compose([certify(run, DELTA, group_size=2) for run in (model, score)], DELTA)
    alone = list(zip(shares, mus, strict=True))
    both = [
        (p * q, abs(complex(a, b)) if first != second else a + b)
        for first, (p, a) in enumerate(alone)
        for second, (q, b) in enumerate(alone)
    ]
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert 0.8 * one.delta(epsilon) < truth(alone, epsilon) <= one.delta(epsilon)
        assert truth(both, epsilon) <= two.delta(epsilon)
        # The worse part alone would not cover a person with two rows.
        assert truth(both, epsilon) > one.delta(epsilon)


def test_groups_are_units() -> None:
    run = NoisyGD(n=90, steps=4, noise_multiplier=8.0, release="all")
    blocks = [bound_named("poisson_blocks")]
    pairs = [
        certify(run, DELTA, group_size=2),
        certify(CAPPED_RUN, DELTA, bounds=blocks, group_size=2),
    ]
    with pytest.raises(InvalidInput, match=r"different units \(group of 2 records, record\)"):
        compose([FULL, pairs[0]], DELTA)
    with pytest.raises(InvalidInput, match="a group of 2 records may be spread over several"):
        compose(pairs, DELTA, records="disjoint")
    both = compose(pairs, DELTA)
    assert both.claimed_epsilon > max(part.claimed_epsilon for part in pairs)
    assert both.verify().ok
    body = both.to_dict()
    disjoint = forged(body, records="disjoint", method="worst part")
    assert verify(disjoint).checks[-1].name == "units"
    mixed = [
        both.to_dict()["content"]["parts"][0],
        compose([FULL], DELTA).to_dict()["content"]["parts"][0],
    ]
    assert verify(forged(body, parts=mixed)).checks[-1].name == "neighbors"


def test_foreign_parts_state_one_thing() -> None:
    with pytest.raises(InvalidInput, match="foreign takes one of"):
        foreign(neighbors="replace", mu=1.0, epsilon=1.0, delta=0.0)
    with pytest.raises(InvalidInput, match="needs both epsilon and delta"):
        foreign(neighbors="replace", epsilon=1.0)
    with pytest.raises(InvalidInput, match=r"epsilon = 3333 protects nobody; .* at most 700"):
        foreign(epsilon=3333.0, delta=0.0, neighbors="replace")
    with pytest.raises(InvalidInput, match="neighbors must be one of"):
        foreign(neighbors="swap", mu=1.0)
    with pytest.raises(InvalidInput, match="must be a PrivacyLossDistribution"):
        foreign(neighbors="replace", pld=3)
    hopeful = privacy_loss_distribution.from_gaussian_mechanism(1.0, pessimistic_estimate=False)
    with pytest.raises(InvalidInput, match="rounds optimistically"):
        foreign(neighbors="replace", pld=hopeful)


def test_a_numerical_budget_is_no_filter() -> None:
    """docs/theory/releases.md: each path costs 1e-5, choosing by the outcome almost twice that."""
    first = foreign(mu=0.15, neighbors="add_remove")
    gaussian = foreign(mu=0.2222, neighbors="add_remove")
    response = foreign(epsilon=0.4886, delta=0.0, neighbors="add_remove")
    paths = [compose([first, second], 1e-5).delta(1.0) for second in (gaussian, response)]
    assert paths == pytest.approx([1e-5, 1e-5], rel=0.02)
    loss = np.linspace(0.15**2 / 2 - 1.8, 0.15**2 / 2 + 1.8, 20001)
    law = np.exp(-(((loss - 0.15**2 / 2) / 0.15) ** 2) / 2)
    law /= law.sum()
    left = [
        part.curve.loss_parts()[0][0].delta(1.0 - loss, "remove") for part in (gaussian, response)
    ]
    apart = [float(law @ one) for one in left]
    assert apart == pytest.approx(paths, rel=0.02)
    assert float(law @ np.maximum(*left)) == pytest.approx(1.9e-5, rel=0.02)


def test_nothing_to_compose_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one part"):
        compose([], DELTA)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="delta must"):
            compose([FULL], delta)
    with pytest.raises(InvalidInput, match="records must be one of"):
        compose([FULL], DELTA, records="other")  # type: ignore[arg-type]
    with pytest.raises(NotApplicable, match=r"no finite epsilon together at delta = 0;"):
        compose([FULL], 0.0)
    with pytest.raises(NotApplicable, match="no finite epsilon together at delta = 1e-09"):
        compose([QUERY, FULL], 1e-9)
