"""Certificates: written, read back, cited, and refused when anything about them is off."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from typing import Any

import pytest

import dplateau
from dplateau import (
    Ball,
    Certificate,
    Composition,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    certify,
    compose,
    foreign,
)
from dplateau.algorithms import Run
from dplateau.curves import GaussianCurve
from dplateau.ground.sealed import Stamp, resealed
from forging import changed, forged

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
RUNS: list[Run] = [
    NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"),
    NoisyGD(
        n=500, steps=90, learning_rate=0.5, l2=0.1, noise_std=0.05, loss=LOSS, release="last"
    ),
    NoisySGD(n=6000, batch_size=60, epochs=2, noise_multiplier=1.0, release="all"),
    NoisySGD(
        n=50, batch_size=5, steps=3, sampling="fixed", neighbors="replace",
        noise_multiplier=[2.0, 3.0, 3.0], release="all",
    ),
    CyclicSGD(
        n=60, batch_size=6, epochs=5, learning_rate=0.5, noise_multiplier=2.0, loss=LOSS,
        domain=Ball(1.0), release="last",
    ),
    OnePassSGD(
        n=30, learning_rate=0.5, noise_multiplier=2.0, loss=LOSS, release="random_stop",
    ),
]  # fmt: skip
PLAIN = certify(RUNS[0], 1e-5)
SAMPLED = certify(RUNS[2], 1e-5)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.kind}-{run.release.name}")
def test_certificates_survive_json(run: Run) -> None:
    certificate = certify(run, 1e-5)
    text = certificate.to_json()
    again = Certificate.from_json(text)
    assert again == certificate
    assert again.to_json() == text
    assert again.run == run
    # The proof is in the witness: another epsilon follows from the text alone.
    followed = again.theorem.claim(again.curve.epsilon(1e-5))
    assert followed == pytest.approx(certificate.claimed_epsilon, rel=1e-9)
    assert again.epsilon(1e-7) > again.claimed_epsilon


def test_fields_and_digest() -> None:
    found = PLAIN.to_dict()
    assert found["kind"] == "dplateau/certificate"
    assert found["format"] == 2
    assert found["library"] == dplateau.__version__
    assert found["content"]["claim"] == {"epsilon": PLAIN.claimed_epsilon, "delta": 1e-5}
    assert found["content"]["no_claim"] is None
    assert found["content"]["bound"] == "gdp_composition"
    assert found["content"]["run"] == RUNS[0].to_dict()
    assert resealed(found) == found
    assert json.loads(PLAIN.to_json()) == found


def test_the_date_is_when_it_was_made_and_stays() -> None:
    before = Stamp.now().date
    made = certify(RUNS[0], 1e-5)
    assert before <= made.stamp.date <= Stamp.now().date
    older = replace(made, stamp=Stamp("2026-01-31T12:00:00Z", "0.1.0"))
    again = Certificate.from_json(older.to_json())
    assert again.stamp == older.stamp != made.stamp
    assert again.to_json() == older.to_json()
    # When it was made is no part of what is claimed.
    assert again == made


def test_files_are_named_under_the_digest() -> None:
    model = b"weights"
    about = PLAIN.with_files({"model.json": model})
    assert about.files == {"model.json": hashlib.sha256(model).hexdigest()}
    assert Certificate.from_json(about.to_json()) == about != PLAIN
    assert about.verify().ok
    other = changed(about.to_dict(), files={"model.json": "0" * 64})
    with pytest.raises(InvalidInput, match="altered"):
        Certificate.from_dict(other)


def test_a_certificate_may_claim_nothing_and_say_why() -> None:
    seeded = SAMPLED.without_claim("not private (seeded run)")
    assert seeded.claim is None
    assert str(seeded) == seeded.headline == "not private (seeded run)"
    assert Certificate.from_json(seeded.to_json()) == seeded
    assert seeded.to_dict()["content"]["claim"] is None
    for read in (
        lambda: seeded.claimed_epsilon,
        lambda: seeded.claimed_delta,
        lambda: seeded.curve,
        lambda: seeded.epsilon(1e-5),
        lambda: seeded.tradeoff(0.1),
    ):
        with pytest.raises(NotApplicable, match=r"nothing is claimed: not private \(seeded run\)"):
            read()
    assert not seeded.verify().ok
    with pytest.raises(NotApplicable, match=r"a part claims nothing.*seeded run"):
        compose([PLAIN, seeded], 1e-5)
    for claim, reason in ((None, None), (PLAIN.claim, "a reason")):
        with pytest.raises(InvalidInput, match="state a claim, or in no_claim the reason"):
            replace(PLAIN, claim=claim, no_claim=reason)


def test_a_composition_without_a_claim_has_no_claim_inside_either() -> None:
    query = foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove", name="a query")
    released = compose([SAMPLED, query], 1e-5).with_files({"model.json": b"weights"})
    assert Composition.from_json(released.to_json()) == released
    seeded = released.without_claim("not private (seeded run)")
    assert Composition.from_json(seeded.to_json()) == seeded
    assert seeded.files == released.files
    assert all(part.claim is None for part in seeded.certificates)
    assert str(seeded).startswith("2 releases: not private (seeded run)\n")
    assert not seeded.verify().ok


@pytest.mark.parametrize(
    "change",
    [
        {"claimed_epsilon": 0.1},
        {"claimed_delta": 1e-9},
        {"bound": "pld_composition"},
        {"run": {**RUNS[0].to_dict(), "steps": 1}},
        {"witness": {"orders": [2.0]}},
        {"assumptions": []},
        {"citation": "none"},
        {"digest": "0" * 64},
        {"digest": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_altered_text_is_refused(change: dict[str, Any]) -> None:
    text = json.dumps(changed(PLAIN.to_dict(), **change))
    with pytest.raises(InvalidInput, match="altered after it was made: its digest differs"):
        Certificate.from_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is no JSON"),
        ("{", "the text is no JSON"),
        ("[]", "a dict is needed"),
        ("3", "a dict is needed"),
        ("null", "a dict is needed"),
        ('{"kind": "other"}', "lacks 'kind'"),
        ('{"kind": "dplateau/certificate"}', "of format None; dplateau .* reads format 2"),
        (PLAIN.to_json()[:-30], "the text is no JSON"),
    ],
)
def test_foreign_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Certificate.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"claimed_epsilon": "1"},
        {"claimed_epsilon": -1.0},
        {"claimed_epsilon": True},
        {"claimed_delta": 2.0},
        {"claim": [1.0, 1e-5]},
        {"no_claim": 3},
        {"files": ["model.json"]},
        {"bound": "magic"},
        {"assumptions": [{"text": "x"}]},
        {"run": {"algorithm": "Adam"}},
        {"run": []},
    ],
)
def test_nonsense_under_a_fresh_digest_is_refused(change: dict[str, Any]) -> None:
    found = forged(PLAIN.to_dict(), **change)
    with pytest.raises(InvalidInput, match=r"must (be|lie|map)|no bound|unknown algorithm"):
        Certificate.from_dict(found)


# --- using a certificate -----------------------------------------------------------------------


def test_the_whole_curve_follows() -> None:
    exact = GaussianCurve(1.0)
    assert PLAIN.epsilon(1e-5) == PLAIN.claimed_epsilon
    assert PLAIN.epsilon(1e-9) == pytest.approx(exact.epsilon(1e-9), rel=1e-9)
    assert PLAIN.delta(1.0) == pytest.approx(exact.delta(1.0), rel=1e-9)
    assert PLAIN.tradeoff(0.1) == pytest.approx(exact.tradeoff(0.1), rel=1e-9)
    assert PLAIN.rdp(3.0) == pytest.approx(1.5, rel=1e-9)


def test_groups() -> None:
    assert PLAIN.group(3).epsilon(1e-5) == pytest.approx(GaussianCurve(3.0).epsilon(1e-5), rel=1e-9)
    three = SAMPLED.group(3).epsilon(1e-5)
    assert 2 * SAMPLED.claimed_epsilon < three < math.inf


def test_refusals_name_what_is_possible() -> None:
    with pytest.raises(NotApplicable, match=r"use epsilon\(delta\), delta\(epsilon\) or tradeoff"):
        SAMPLED.rdp(2.0)
    with pytest.raises(InvalidInput, match=r"delta must lie in \[0, 1\]"):
        SAMPLED.epsilon(-0.1)
    assert SAMPLED.epsilon(0.0) == math.inf


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.kind}-{run.release.name}")
def test_citations_are_bibtex(run: Run) -> None:
    certificate = certify(run, 1e-5)
    entry = certificate.citation()
    assert entry.startswith("@misc{")
    assert entry.endswith("\n}")
    assert entry.count("{") == entry.count("}")
    for field in ("author", "title", "year", "howpublished", "note"):
        assert f"\n  {field} = {{" in entry
    assert certificate.theorem.citation.short() in str(certificate)


def test_assumptions_say_who_answers_for_them() -> None:
    texts = {a.text: a.status for a in certify(RUNS[4], 1e-5).assumptions}
    assert set(texts.values()) <= {"checked", "by construction", "declared"}
    assert any("only the last iterate leaves" in text for text in texts)
    assert texts["an absent record keeps its slot with a zero gradient"] == "by construction"
    assert any("exactly b records" in a.text for a in certify(RUNS[3], 1e-5).assumptions)
    assert any("independently with probability b / n" in a.text for a in SAMPLED.assumptions)
    assert not any("only the last iterate" in a.text for a in SAMPLED.assumptions)


def test_certificates_are_values() -> None:
    assert certify(RUNS[0], 1e-5) == PLAIN
    with pytest.raises(AttributeError, match="cannot assign"):
        PLAIN.claimed_epsilon = 0.0
