"""Forged certificates, sealed anew so that only the mathematics can tell: what verifies is true.

``tools/forge.py`` alters every field of many certificates; here one certificate of each bound
meets a few of its values, and some forgeries are made by hand.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

import forge
import forge_papers
from catalogue import RUNS
from dplateau.algorithms import Ball, LossGeometry, NoisyGD, NoisySGD
from dplateau.audit.lower_bounds import lower_bound
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Certificate, certify, compose, foreign
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground.sealed import CERTIFICATE, Stamp, digest_of, resealed, seal
from dplateau.sampling import certify_mixing
from dplateau.verify import read_certificate, releases, verify, verify_mixing
from dplateau.verify.verdict import examined
from forging import forged

Found = dict[str, Any]
CERTIFICATES = [pair for pair in forge.applicable() if pair not in forge.papers()]
ONE_OF_EACH = {bound: run for run, bound in reversed(CERTIFICATES) if run != "random stop"}


def test_every_bound_is_forged() -> None:
    assert set(ONE_OF_EACH) == {bound.name for bound in BOUNDS if bound.sound}


def test_a_forgery_that_overflows_has_a_verdict_without_warnings() -> None:
    run = NoisySGD(n=6000, batch_size=60, steps=40, noise_multiplier=2.0, release="all")
    found = json.loads(certify(run, 1e-5).to_json())
    loud = {**found["content"]["run"], "noise_multiplier": 1e-3}
    verdict = verify(forged(found, run=loud, claimed_epsilon=1e6))
    assert not verdict.ok
    assert verdict.checks[-1].name == "epsilon is proved"


def test_groups_are_forged() -> None:
    assert {run for run, _ in CERTIFICATES} >= set(forge_papers.GROUPS)
    for run, bound in forge_papers.grouped():
        assert bound_named(bound).refusal(forge_papers.GROUPS[run]) is None


@pytest.mark.parametrize("bound", ONE_OF_EACH)
def test_an_altered_field_is_noticed_or_leaves_a_true_claim(bound: str) -> None:
    tally = forge.campaign([forge.Subject(ONE_OF_EACH[bound], bound, 7, 1, 12)], state=None, jobs=0)
    assert tally.tried > 8
    assert tally.sound, str(tally)


@pytest.mark.parametrize(("name", "kind"), forge.papers())
def test_an_altered_paper_is_noticed_or_makes_a_true_claim(name: str, kind: str) -> None:
    tally = forge.campaign([forge.Subject(name, kind, 7, 1, 12)], state=None, jobs=0)
    assert tally.tried > 8
    assert tally.sound, str(tally)


@pytest.mark.parametrize(("name", "kind"), forge.papers())
def test_honest_papers_verify_and_are_judged_true(name: str, kind: str) -> None:
    found = forge.honest(name, kind)
    assert forge.accepted(found) == found
    assert forge.judged(found) == "true"


@pytest.mark.parametrize(
    ("name", "kind", "claim"),
    [
        ("whitened, full batch", "composition", "epsilon"),
        ("score, group", "composition", "epsilon"),
        ("Langevin, one block", "mixing", "total_variation"),
        ("mini-batches", "mixing", "total_variation"),
    ],
)
def test_the_judge_would_see_a_false_paper(name: str, kind: str, claim: str) -> None:
    found = forge.honest(name, kind)
    stated = found["content"]["claim"][claim]
    place = ("content", "claim", claim)
    assert forge.judged(forge.altered(found, place, stated * 0.4)) == "false"


def test_the_judge_knows_what_declared_parts_lose_outright() -> None:
    found = forge.honest("declared, often", "composition")
    assert forge.judged(forge.altered(found, ("content", "claim", "delta"), 1e-9)) == "false"


def test_a_part_that_was_altered_is_sealed_anew() -> None:
    found = forge.honest("whitened, full batch", "composition")
    place = ("content", "parts", 0, "part", "content", "run", "n")
    forgery = forge.altered(found, place, 99)
    inner = forgery["content"]["parts"][0]["part"]
    assert inner["digest"] == digest_of(inner) != found["content"]["parts"][0]["part"]["digest"]
    assert forgery["digest"] == digest_of(forgery)


def test_several_fields_are_altered_at_once() -> None:
    tally = forge.campaign(
        [forge.Subject("full batch", "gd_contraction", 7, 1, 6, at_once=3)], state=None, jobs=0
    )
    assert tally.tried == 6
    assert tally.sound, str(tally)
    assert tally.slowest[1].count(" = ") == 3


def test_the_judge_would_see_a_false_claim() -> None:
    found = forge.honest("full batch", "gd_contraction")
    assert forge.judged(found) == "true"
    claimed = found["content"]["claim"]["epsilon"]
    assert forge.judged(forged(found, claimed_epsilon=claimed * 0.1)) == "false"
    assert forge.judged(forged(found, claimed_epsilon=1e300, claimed_delta=0.0)) == "false"


# ---- chains whose noise nobody knows -------------------------------------------------------------


def test_noise_in_units_of_an_unknown_length_forgets_nothing() -> None:
    """Without a Lipschitz constant the noise was infinite: a distance of 0 after any steps."""
    found = forge.honest("mini-batches of one size", "mixing")
    forgery = forge.altered(found, ("content", "run", "loss", "lipschitz"), forge.GONE)
    verdict = verify_mixing(forgery)
    assert not verdict.ok
    assert verdict.checks[-1].name == "noise"
    assert forge.judged(forgery) == "false"


def test_nothing_stands_beside_a_mixing_claim() -> None:
    found = forge.honest("Langevin", "mixing")
    claim = {**found["content"]["claim"], "epsilon": 0.0}
    assert not verify_mixing(forge.altered(found, ("content", "claim"), claim)).ok


def test_chains_that_have_not_met_keep_some_distance() -> None:
    """Halved two thousand times it was no double any more: a distance of 0 verified."""
    loss = LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0, strong_convexity=1.0)
    settings: Found = {"n": 10, "loss": loss, "iterate_std": 1.0, "domain": Ball(1.0)}
    options: Found = {"neighbors": "add_remove", "release": "last"}
    run = NoisyGD(steps=2000, learning_rate=0.5, **settings, **options)
    found = json.loads(certify_mixing(run).to_json())
    assert verify_mixing(found).ok
    nothing = {**found["content"]["claim"], "total_variation": 0.0}
    assert not verify_mixing(forged(found, claim=nothing)).ok


# ---- rare batches, which cost next to nothing of delta only if they are rare ---------------------

RARE = NoisySGD(
    n=10**6,
    batch_size=10,
    steps=1000,
    noise_multiplier=1e-4,
    learning_rate=0.1,
    l2=1.0,
    loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
    release="last",
)


@cache
def needed_by_rare(delta: float) -> float:
    return lower_bound(RARE, delta).epsilon


@pytest.mark.parametrize("delta", [5.27e-4, 1e-2])
@pytest.mark.parametrize(
    ("bound", "witness"),
    [
        (
            "poisson_blocks",
            {"batch_floor": 0, "single_steps": 0, "edges": [[0, 0], [1, 1], [1000, 1000]]},
        ),
        ("poisson_blocks", {"batch_floor": 0, "single_steps": 1000, "edges": [[1000, 1000]]}),
        ("poisson_modulus", {"last_steps": 1, "start_distance": 0.0, "blocks": [[1, 0.0]]}),
        ("poisson_modulus", {"last_steps": 1000, "start_distance": 0.0, "blocks": [[1000, 0.0]]}),
    ],
)
def test_a_record_that_is_rarely_used_is_not_private_for_that(
    bound: str, witness: Found, delta: float
) -> None:
    """A tail that was granted too small once let (0, 5.27e-4) pass where epsilon 131 is needed."""
    needed = needed_by_rare(delta)
    assert delta > 1e-3 or needed > 100
    for cap in (10, 15, 20, 40, 10**6):
        content: Found = {
            "claim": {"epsilon": 0.0, "delta": delta},
            "no_claim": None,
            "bound": bound,
            "run": RARE.to_dict(),
            "witness": {
                "losses": "convex and smooth",
                "batch_cap": cap,
                "extra_delta": 0.0,
                **witness,
            },
            "assumptions": [{"text": "none", "status": "checked"}],
            "citation": "none",
            "files": {},
        }
        verdict = verify(seal(CERTIFICATE, content, Stamp.now()))
        assert not verdict.ok
        assert verdict.rederived_epsilon is None or verdict.rederived_epsilon >= needed * (1 - 1e-6)


# ---- values that are no numbers ------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # as for whoever verifies
@pytest.mark.parametrize("step", [0.6808531610084005, 0.7654219560093865])
def test_shifts_too_small_to_divide_by_prove_nothing(step: float) -> None:
    """A curve of values that are no numbers is not above any delta: (1e-9, 1e-5) once verified."""
    run = RUNS["Poisson"].replace(steps=300, noise_multiplier=1 / step, domain=Ball(50.0))
    found = json.loads(certify(run, 1e-5, bounds=[bound_named("poisson_modulus")]).to_json())
    witness = found["content"]["witness"] | {"last_steps": 299, "blocks": [[299, 5e-324]]}
    verdict = verify(forged(found, witness=witness, claimed_epsilon=1e-9))
    assert not verdict.ok
    assert "invalid value" in verdict.checks[-1].detail


# ---- Gaussian noise without any delta ------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "bound"),
    [
        ("full batch", "gd_contraction"),
        ("full batch", "gdp_composition"),
        ("nonsmooth", "naive_composition"),
        ("reshuffled", "reshuffle_average"),
        ("checkpoints, cyclic", "checkpoints_ordered"),
    ],
)
def test_gaussian_noise_needs_a_delta(run: str, bound: str) -> None:
    """At epsilons of 1e20 and more the terms of a curve once cancelled to nothing."""
    found = forge.honest(run, bound)
    for epsilon in (100.0, 1e30, 1e300):
        assert not verify(forged(found, claimed_epsilon=epsilon, claimed_delta=0.0)).ok


@pytest.mark.parametrize(
    ("run", "bound", "epsilon"),
    [("full batch", "gd_contraction", 700.0), ("reshuffled", "reshuffle_average", 45.0)],
)
def test_a_delta_too_small_for_a_double_is_not_zero(run: str, bound: str, epsilon: float) -> None:
    part = certify(RUNS[run], 1e-5, bounds=[bound_named(bound)])
    found = compose([part, part], 1e-5).to_dict()
    content = found["content"]
    content["parts"][0]["law"] = {"kind": "table", "epsilons": [epsilon], "deltas": [0.0]}
    content |= {"method": "basic composition", "claim": {"epsilon": 3 * epsilon, "delta": 0.0}}
    verdict = verify(resealed(found))
    assert not verdict.ok
    assert verdict.checks[-1].name == "deltas"
    content["claim"]["delta"] = 1e-300
    assert verify(resealed(found)).ok


def test_a_row_that_the_theorem_refuses_is_named() -> None:
    """Batches above the cap cost more than this delta; no line of the verdict had failed."""
    part = certify(RUNS["Poisson, replace, short"], 1e-5, bounds=[bound_named("every_batch")])
    found = compose([part, part], 2e-5).to_dict()
    content = found["content"]
    law = {"kind": "table", "epsilons": [1 + part.claimed_epsilon], "deltas": [1e-300]}
    content["parts"][0]["law"] = law
    content["method"] = "basic composition"
    verdict = verify(resealed(found))
    assert not verdict.ok
    assert not verdict.checks[-1].ok
    assert verdict.checks[-1].name == "table of part 1"


# ---- parts that somebody else answers for --------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "neighbors", "check"),
    [
        ({"kind": "table", "epsilons": [0.3], "deltas": [-0.1]}, "add_remove", "law part 1"),
        ({"kind": "table", "epsilons": [-0.3], "deltas": [0.1]}, "add_remove", "law part 1"),
        ({"kind": "table", "epsilons": [0.3], "deltas": [1e308]}, "add_remove", "law part 1"),
        ({"kind": "cyclic", "epsilons": [0.3], "deltas": [1e-6]}, "add_remove", "law part 1"),
        ({"kind": "gaussian", "mu": -1.0}, "add_remove", "law part 1"),
        ({"kind": "table", "epsilons": [0.3], "deltas": [1e-6]}, "cyclic", "neighbors part 1"),
    ],
)
def test_what_is_declared_is_a_law_about_neighbors(law: Found, neighbors: str, check: str) -> None:
    part = foreign(epsilon=0.3, delta=1e-6, neighbors="add_remove")
    found = compose([part, part], 1e-5).to_dict()
    assert verify(found).ok
    (entry,) = found["content"]["parts"]
    entry["part"] = forged(entry["part"], law=law, neighbors=neighbors)
    verdict = verify(resealed(found))
    assert not verdict.ok
    assert verdict.checks[-1].name == check


@pytest.mark.parametrize(
    ("declared", "stated"),
    [((1e-17, 0.0), (0.0, 0.0)), ((0.0, 5e-17), (0.0, 0.0)), ((0.0, 5e-17), (0.0, 1e-18))],
)
def test_what_is_declared_is_not_rounded_away(
    declared: tuple[float, float], stated: tuple[float, float]
) -> None:
    """The chord through zero came as 1 - 1: a million parts together claimed to lose nothing."""
    part = foreign(epsilon=0.3, delta=1e-9, neighbors="add_remove")
    found = compose([part, part], 1e-5).to_dict()
    (entry,) = found["content"]["parts"]
    tables = [{"kind": "table", "epsilons": [e], "deltas": [d]} for e, d in (declared, stated)]
    entry |= {"part": forged(entry["part"], law=tables[0]), "law": tables[1], "count": 10**6}
    found["content"]["method"] = "basic composition"
    for delta in (0.0, 1e-12, 4e-12):
        found["content"]["claim"] = {"epsilon": 0.0, "delta": delta}
        verdict = verify(resealed(found))
        assert not verdict.ok
        assert verdict.checks[-1].name == "deltas"
    found["content"]["claim"]["delta"] = 1e-9
    assert verify(resealed(found)).ok


@pytest.mark.parametrize("status", ["checked", "by construction"])
def test_nobody_else_answers_for_what_a_composition_assumes(status: str) -> None:
    found = forge.honest("score by coin", "composition")
    place = len(found["content"]["assumptions"]) - 1
    assert "disjoint records" in found["content"]["assumptions"][place]["text"]
    forgery = forge.altered(found, ("content", "assumptions", place, "status"), status)
    verdict = verify(forgery)
    assert not verdict.ok
    assert verdict.checks[-1].name == "assumptions"


# ---- numbers at the ends of double precision -----------------------------------------------------


@pytest.mark.parametrize("bound", ["gdp_composition", "pld_composition", "rdp_composition"])
def test_noise_that_overflows_hides_nothing(bound: str) -> None:
    """A noise of 1e308 times a batch of 100 was infinite: a claim of 0 where 4.37 is needed."""
    found = sealed("full batch", bound)
    run = found["content"]["run"]
    del run["noise_multiplier"]
    run |= {"noise_std": 1e308, "n": 100, "steps": 10**6}
    run["loss"] |= {"lipschitz": 1e307}
    verdict = verify(forged(found, claimed_epsilon=0.0))
    assert not verdict.ok
    assert "beyond double precision" in verdict.checks[-1].detail


@pytest.mark.parametrize("epsilon", [400.0, 711.0, 2000.0, 1e5])
def test_losses_whose_exponentials_overflow_are_losses(epsilon: float) -> None:
    """Above 709.78 the curve of a sampled step was zero: (711, 1e-5) where 170,550 is needed."""
    run = NoisySGD(n=10, sampling_rate=0.4, steps=1, noise_multiplier=1 / 580, release="all")
    found = json.loads(certify(run, 1e-5, bounds=[bound_named("pld_composition")]).to_json())
    assert verify(found).ok
    assert not verify(forged(found, claimed_epsilon=epsilon)).ok


@pytest.mark.parametrize("epsilon", [164.0, 725.0, 1400.0])
def test_divergences_whose_exponentials_overflow_are_divergences(epsilon: float) -> None:
    """Ratios above e^700 counted as e^700: (164, 1e-5) where 1453 is needed."""
    run = NoisySGD(n=10, sampling_rate=0.4, steps=1, noise_multiplier=1 / 50, release="all")
    found = json.loads(certify(run, 1e-5, bounds=[bound_named("rdp_composition")]).to_json())
    assert verify(found).ok
    witness = {"orders": [1.01, 1.1, 1.3, 2.0, 5.0, 40.0]}
    assert not verify(forged(found, claimed_epsilon=epsilon, witness=witness)).ok


@pytest.mark.parametrize("epsilon", [598.0, 599.0, 5000.0])
def test_blocks_that_hardly_ever_move_far_are_no_more_private_than_that(epsilon: float) -> None:
    """A densities' floor of 1e-300 hid half of 1e-40, the delta at every epsilon up to 10^6."""
    run = NoisySGD(
        n=10,
        batch_size=1,
        sampling_rate=1e-40,
        steps=1,
        noise_multiplier=1e-3,
        learning_rate=1.0,
        loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
        neighbors="replace",
        release="last",
    )
    content: Found = {
        "claim": {"epsilon": epsilon, "delta": 6e-41},
        "no_claim": None,
        "bound": "poisson_blocks_replace",
        "run": run.to_dict(),
        "witness": {
            "losses": "convex and smooth",
            "batch_cap": 10,
            "batch_floor": 0,
            "extra_delta": 0.0,
            "single_steps": 0,
            "edges": [[0, 0], [1, 1]],
        },
        "assumptions": [{"text": "none", "status": "checked"}],
        "citation": "none",
        "files": {},
    }
    assert not verify(seal(CERTIFICATE, content, Stamp.now())).ok


@pytest.mark.parametrize("beyond", [2.3e-16, 1e-14, 1e-9, 1e-5])
def test_orders_next_to_one_are_not_summed(beyond: float) -> None:
    """Their sums cancel: at 1 + 1e-14 they gave 835 where the order proves no less than 840."""
    found = sealed("Poisson", "rdp_composition")
    verdict = verify(forged(witnessed(found, orders=[1 + beyond]), claimed_epsilon=837.0))
    assert not verdict.ok
    assert verdict.checks[-1].name == "orders"


# ---- hostile files ------------------------------------------------------------------------------


def sealed(run: str, bound: str) -> Found:
    found: Found = json.loads(certify(RUNS[run], 1e-5, bounds=[bound_named(bound)]).to_json())
    return found


def described(found: Found, **changes: Any) -> Found:
    return forged(found, run={**found["content"]["run"], **changes})


def witnessed(found: Found, **changes: Any) -> Found:
    return forged(found, witness={**found["content"]["witness"], **changes})


def nested(depth: int) -> Any:
    inside: Any = 1
    for _ in range(depth):
        inside = [inside]
    return inside


@pytest.mark.parametrize(
    ("run", "bound"),
    [
        ("Poisson", "pld_composition"),
        ("Poisson", "rdp_composition"),
        ("Poisson, short", "poisson_blocks"),
        ("Poisson, nonconvex", "poisson_modulus"),
        ("fixed size", "fixed_size_averaged"),
        ("cyclic, schedule", "cyclic_contraction"),
        ("reshuffled", "reshuffle_average"),
        ("random stop", "random_stop_mean"),
        ("nonconvex, body", "modulus"),
    ],
)
def test_enormous_numbers_end_with_a_verdict(run: str, bound: str) -> None:
    found = sealed(run, bound)
    for name in ("steps", "n", "learning_rate", "group_size"):
        for size in (1e308, 4_000_000, 10**12, 10**18, 10**400, math.inf, math.nan):
            verdict = verify(described(found, **{name: size}))
            json.dumps(verdict.to_dict(), allow_nan=False)
            if name == "group_size":
                assert not verdict.ok


@pytest.mark.parametrize(
    ("run", "bound", "changes"),
    [
        ("Poisson", "rdp_composition", {"orders": [2.0 + i for i in range(10**5)]}),
        ("Poisson", "rdp_composition", {"orders": [1e300]}),
        ("Poisson, short", "poisson_blocks", {"edges": [[i, i] for i in range(10**5)]}),
        ("Poisson, short", "poisson_blocks", {"edges": nested(500)}),
        ("Poisson, nonconvex", "poisson_modulus", {"blocks": [[1, 1e-3]] * 10**5}),
        ("Poisson, nonconvex", "poisson_modulus", {"blocks": [[10**12, 1e-3]]}),
        ("random stop", "random_stop_mean", {"knots": list(range(10**5))}),
        ("fixed size", "fixed_size_averaged", {"edges": [1e-9 * i for i in range(10**5)]}),
        ("full batch", "gd_contraction", {"plan": {"start_step": 0, "blocks": [[10**12, 1, 1]]}}),
        ("full batch", "gd_contraction", {"plan": {"start_step": 10**400, "blocks": [[1, 1, 1]]}}),
    ],
)
def test_enormous_witnesses_end_with_a_verdict(run: str, bound: str, changes: Found) -> None:
    assert not verify(witnessed(sealed(run, bound), **changes)).ok


def test_schedules_that_never_repeat_meet_the_clock() -> None:
    """The moduli of a million steps took a minute after time was up."""
    found = sealed("nonconvex, body", "modulus")
    count = 80_000
    rates = [[0.01 + 1e-7 * i, 1] for i in range(count)]
    loss = found["content"]["run"]["loss"] | {"dissipativity": [0.1, 0.5]}
    found = described(found, learning_rate=rates, steps=count, loss=loss)
    plan = {"start_step": count - 1, "blocks": [[1, 1.0, 1.0]]}
    forgery = witnessed(found, losses="strongly dissipative", plan=plan)
    began = time.process_time()
    verdict = verify(forgery, seconds=1.5)
    assert verdict.checks[-1].name == "time"
    assert time.process_time() - began < 3


def test_a_schedule_longer_than_any_file_is_not_read() -> None:
    """Three million blocks fit in a file without a space, and took 1.7 gigabytes."""
    found = sealed("full batch", "gd_contraction")
    verdict = verify(described(found, learning_rate=[[0.1, 1]] * 500_001, steps=500_001))
    assert "at most 500000 blocks" in verdict.checks[-1].detail


def test_numbers_that_overflow_are_said_to() -> None:
    """What Python says of them, "Numerical result out of range", does not say of what."""
    found = sealed("full batch", "gd_contraction")
    steps = found["content"]["run"]["steps"]
    plan = {"start_step": 0, "blocks": [[steps, 1e200, 1.0]]}
    verdict = verify(witnessed(found, plan=plan))
    assert "numbers are too large or too small to compute with" in verdict.checks[-1].detail


@pytest.mark.parametrize("bound", ONE_OF_EACH)
def test_a_witness_of_any_shape_is_read_or_refused(bound: str) -> None:
    """`explain`, `report` and `compose` evaluate the proof of a file themselves."""
    found = forge.honest(ONE_OF_EACH[bound], bound)
    for name in found["content"]["witness"]:
        for junk in (10**400, None, "1", [1], {}, -1):
            forgery = witnessed(found, **{name: junk})
            with suppress(DplateauError):
                assert Certificate.from_dict(forgery).curve is not None


def test_equal_certificates_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three thousand copies of one certificate, each an entry of its own, took twenty seconds."""
    found = forge.honest("checkpoints twice", "composition")
    (entry,) = found["content"]["parts"]
    forgery = forge.altered(found, ("content", "parts"), [{**entry, "count": 1}] * 2)
    verified = []

    def counted(document: Any, examination: Any) -> Any:
        verified.append(document["digest"])
        return examined(document, examination)

    monkeypatch.setattr(releases, "examined", counted)
    verdict = verify(forgery)
    assert verdict.ok
    assert verified == [entry["part"]["digest"]]
    assert sum(check.name.startswith("certificate of part") for check in verdict.checks) == 2


def test_deep_nesting_ends_with_a_verdict() -> None:
    found = sealed("Poisson, short", "poisson_blocks")
    content = {**found["content"], "witness": {"edges": nested(5000)}}
    assert not verify({**found, "content": content}).ok


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**6,
        '{"kind": "dplateau/certificate", "content": ' + "[" * 900 + "]" * 900 + "}",
        '{"kind": "dplateau/certificate", "format": 1e999}',
        '{"kind": "dplateau/certificate", "format": ' + "9" * 4000 + "}",
        '{"kind": "dplateau/certificate", "content": [' + "0," * 10**6 + "0]}",
    ],
)
def test_hostile_texts_are_refused_or_not_verified(text: str) -> None:
    with suppress(InvalidInput):
        assert not verify(read_certificate(text)).ok
