"""Certificates: written, read back, cited, and refused when anything about them is off."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dplateau import (
    Ball,
    Certificate,
    CyclicSGD,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    OnePassSGD,
    certify,
)
from dplateau.algorithms import Run
from dplateau.curves import GaussianCurve
from dplateau.ground.sealed import resealed

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
    assert found["schema"] == "dplateau/certificate"
    assert found["schema_version"] == 1
    assert found["claimed_epsilon"] == PLAIN.claimed_epsilon
    assert found["claimed_delta"] == 1e-5
    assert found["bound"] == "gdp_composition"
    assert found["run"] == RUNS[0].to_dict()
    assert resealed(found) == found
    # A larger report may carry the certificate along.
    assert Certificate.from_dict({**found, "bounds": [1, 2, 3]}) == PLAIN
    assert json.loads(PLAIN.to_json()) == found


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
    text = json.dumps({**PLAIN.to_dict(), **change})
    with pytest.raises(InvalidInput, match="altered after it was made: its digest differs"):
        Certificate.from_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is no JSON"),
        ("{", "the text is no JSON"),
        ("[]", "lacks 'schema': 'dplateau/certificate'"),
        ("3", "lacks 'schema'"),
        ("null", "lacks 'schema'"),
        ('{"schema": "other"}', "lacks 'schema'"),
        ('{"schema": "dplateau/certificate"}', "schema version None; this release reads 1"),
        (PLAIN.to_json()[:-30], "the text is no JSON"),
    ],
)
def test_foreign_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Certificate.from_json(text)


@pytest.mark.parametrize("version", [0, 2, "1", 1.5, None])
def test_other_schema_versions_are_refused(version: Any) -> None:
    found = {**PLAIN.to_dict(), "schema_version": version}
    found = resealed(found)
    with pytest.raises(InvalidInput, match=r"schema version .*; this release reads 1"):
        Certificate.from_dict(found)


@pytest.mark.parametrize("field", ["run", "witness", "assumptions", "bound", "claimed_epsilon"])
def test_missing_fields_are_refused_even_under_a_fresh_digest(field: str) -> None:
    found = PLAIN.to_dict()
    del found[field]
    found = resealed(found)
    with pytest.raises(InvalidInput, match=f"not a whole certificate: it lacks {field!r}"):
        Certificate.from_dict(found)


@pytest.mark.parametrize(
    "change",
    [
        {"claimed_epsilon": "1"},
        {"claimed_epsilon": -1.0},
        {"claimed_epsilon": True},
        {"claimed_delta": 2.0},
        {"bound": "magic"},
        {"assumptions": [{"text": "x"}]},
        {"run": {"algorithm": "Adam"}},
        {"run": []},
    ],
)
def test_nonsense_under_a_fresh_digest_is_refused(change: dict[str, Any]) -> None:
    found = {**PLAIN.to_dict(), **change}
    found = resealed(found)
    with pytest.raises(InvalidInput, match=r"must (be|lie)|no bound|unknown algorithm"):
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
