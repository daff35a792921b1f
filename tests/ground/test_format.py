"""docs/format.schema.json describes what the library writes, every kind of it, and little else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

from catalogue import RUNS as ALL_RUNS
from dplateau import (
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    audit_trainer,
    certify,
    certify_mixing,
    compose,
    foreign,
)
from dplateau.algorithms import Ball
from dplateau.audit.against_claims import findings_against
from dplateau.ground.sealed import KINDS
from forging import forged

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "format.schema.json").read_text(encoding="utf-8"))
LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
FULL = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5)
RUNS = (
    FULL.run,
    NoisyGD(n=500, steps=90, learning_rate=0.5, l2=0.1, noise_std=0.05, loss=LOSS, release="last"),
    NoisySGD(n=6000, batch_size=60, epochs=2, noise_multiplier=[1.0] * 200, release="all"),
    CyclicSGD(
        n=60, batch_size=6, epochs=5, learning_rate=0.5, noise_multiplier=2.0, loss=LOSS,
        domain=Ball(1.0), release="last", group_size=2,
    ),
    OnePassSGD(n=30, learning_rate=0.5, noise_multiplier=2.0, loss=LOSS, release="random_stop"),
)  # fmt: skip
QUERY = foreign(epsilon=0.5, delta=1e-6, neighbors="add_remove", name="a query")


def audits() -> list[dict[str, Any]]:
    report = audit_trainer(
        lambda data, rng, count: data + rng.normal(size=count), FULL, 1.0, 0.0, runs=200,
        at_once=200, seed=1,
    )  # fmt: skip
    found = findings_against(FULL, FULL.verify(), effort="quick")
    return [report.to_dict(), found.to_dict(), replace(found, report=report).to_dict()]


def papers() -> list[dict[str, Any]]:
    chain = ProjectedLangevin(
        steps=1, learning_rate=0.01, loss=LOSS, domain=Ball(1.0), release="last"
    )
    certificates = [certify(run, 1e-5) for run in RUNS]
    both = compose([certificates[2], QUERY], 1e-5)
    claims = [
        *certificates,
        FULL.with_files({"model.json": b"weights"}),
        FULL.without_claim("not private (seeded run)"),
        both,
        both.without_claim("not private (seeded run)"),
        compose([both, FULL], 1e-5, records="disjoint"),
    ]
    mixing = certify_mixing(chain, tv=0.1)
    return [*(c.to_dict() for c in claims), QUERY.to_dict(), mixing.to_dict(), *audits()]


@pytest.fixture(scope="module")
def valid() -> Callable[[Any], bool]:
    check = fastjsonschema.compile(SCHEMA)

    def holds(paper: Any) -> bool:
        try:
            check(json.loads(json.dumps(paper)))
        except fastjsonschema.JsonSchemaValueException:
            return False
        return True

    return holds


@pytest.mark.parametrize("name", ALL_RUNS)
def test_every_kind_of_run_is_valid(name: str, valid: Callable[[Any], bool]) -> None:
    run = ALL_RUNS[name].to_dict()
    assert valid(forged(FULL.to_dict(), run=run))
    for field in ("algorithm", "n", "neighbors", "release"):
        less = {key: value for key, value in run.items() if key != field}
        assert not valid(forged(FULL.to_dict(), run=less)), field
    for field in run:
        assert not valid(forged(FULL.to_dict(), run={**run, field: "much"})), field


def test_parts_say_how_they_are_together_and_foreign_ones_their_numbers(
    valid: Callable[[Any], bool],
) -> None:
    both = compose([FULL, QUERY], 1e-5).to_dict()
    assert valid(both)
    assert not valid(forged(both, records="disjoint"))
    assert not valid(forged(both, method="worst part"))
    assert valid(QUERY.to_dict())
    assert not valid(forged(QUERY.to_dict(), law={"kind": "pairs"}))


def test_every_kind_is_valid(valid: Callable[[Any], bool]) -> None:
    found = papers()
    assert {paper["kind"] for paper in found} == {kind.name for kind in KINDS}
    for paper in found:
        assert valid(paper), paper["kind"]
        # Nothing in the envelope or the content may be missing or added.
        for name in paper:
            assert not valid({key: value for key, value in paper.items() if key != name}), name
        for name in paper["content"]:
            less = {key: value for key, value in paper["content"].items() if key != name}
            assert not valid({**paper, "content": less}), name
        assert not valid({**paper, "total_epsilon": 1.0})
        assert not valid(forged(paper, total_epsilon=1.0))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"format": 3},
        {"kind": "dplateau/composition"},
        {"date": "yesterday"},
        {"digest": "0"},
        {"claim": None},
        {"no_claim": "seeded"},
        {"claimed_epsilon": -1.0},
        {"claimed_delta": 1.0},
        {"claimed_epsilon": "1"},
        {"run": {}},
        {"run": {**FULL.run.to_dict(), "neighbors": "none"}},
        {"run": {**FULL.run.to_dict(), "seed": 3}},
        {"run": {**FULL.run.to_dict(), "noise_std": 1.0}},
        {"run": {**FULL.run.to_dict(), "noise_multiplier": "2"}},
        {"run": {**FULL.run.to_dict(), "noise_multiplier": [[1.0, 0]]}},
        {"run": {**FULL.run.to_dict(), "noise_multiplier": -1.0}},
        {"run": {**FULL.run.to_dict(), "epochs": 4.0}},
        {"run": {**FULL.run.to_dict(), "n": True}},
        {"run": {**FULL.run.to_dict(), "momentum": 1.0}},
        {"run": {**FULL.run.to_dict(), "release": "some"}},
        {"run": {**FULL.run.to_dict(), "release": {"kind": "checkpoints"}}},
        {"run": {**FULL.run.to_dict(), "release": {"kind": "checkpoints", "last": 1, "every": 2}}},
        {"run": {**FULL.run.to_dict(), "loss": {"convex": True, "lipshitz": 1.0}}},
        {"run": {**FULL.run.to_dict(), "domain": {"kind": "ball", "diameter": 1.0}}},
        {"bound": "the best one"},
        {"assumptions": []},
        {"assumptions": [{"text": "hope", "status": "sure"}]},
        {"files": {"model.json": "abc"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_format_does_not_allow_is_invalid(
    change: dict[str, Any], valid: Callable[[Any], bool]
) -> None:
    paper = FULL.to_dict()
    assert valid(paper)
    new = json.loads(json.dumps(paper))
    new = {**new, **change} if set(change) <= set(new) else forged(new, **change)
    assert not valid(new)
