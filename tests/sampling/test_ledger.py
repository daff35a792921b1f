"""Private draws inside a ledger are paid for before their first step, whatever becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplateau import (
    Ball,
    LangevinSampler,
    Ledger,
    Potential,
    SpendRefused,
    certify,
    compose,
    sample,
)
from dplateau.losses import Logistic

START = [0.0, 0.0]
DELTA = 1e-5


def potential(n: int = 400) -> Potential:
    features = np.random.default_rng(3).uniform(-0.7, 0.7, size=(n, 2))
    return Potential.from_loss(Logistic(), features, np.sign(features[:, 0]), feature_norm=1.0)


def sampler(**more: Any) -> LangevinSampler:
    asked: dict[str, Any] = {
        "steps": 30, "learning_rate": 0.2, "inverse_temperature": 30.0, "l2": 0.1,
        "release": "last", **more,
    }  # fmt: skip
    return LangevinSampler.of(potential(), Ball(1.0), **asked)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "survey.ledger", epsilon=2.0, delta=DELTA)


def statuses(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.statement().entries]


def test_draws_cost_what_their_certificates_cost(book: Ledger, tmp_path: Path) -> None:
    made = sampler()
    one = certify(made.run, DELTA)
    made.draw(START)  # outside: not paid for
    with book:
        assert made.draw(START).shape == (2,)
        assert made.draws(START, 3, jobs=2).shape == (3, 2)
    assert statuses(book) == ["spent", "spent"]
    assert {entry.name for entry in book.statement().entries} == {"LangevinSampler"}
    by_hand = Ledger.create(tmp_path / "by-hand.ledger", epsilon=2.0, delta=DELTA)
    by_hand.spend(one)
    by_hand.spend(compose([one] * 3, DELTA))
    assert book.statement().left == by_hand.statement().left < 1


def test_a_draw_beyond_the_budget_takes_no_step(book: Ledger) -> None:
    steps: list[tuple[int, int]] = []
    hot = sampler(inverse_temperature=10000.0)
    assert certify(hot.run, DELTA).claimed_epsilon < 2 < 2 * certify(hot.run, DELTA).claimed_epsilon
    with book:
        with pytest.raises(SpendRefused, match="LangevinSampler"):
            hot.draws(START, 20, progress=lambda *counts: steps.append(counts))
        assert steps == []
        hot.draw(START)  # alone it fits
        with pytest.raises(SpendRefused, match="LangevinSampler"):
            hot.draw(START)
    assert statuses(book) == ["refused", "spent", "refused"]


def test_a_draw_that_crashes_stays_reserved(book: Ledger) -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with book, pytest.raises(KeyboardInterrupt):
        sampler().draws(START, 2, progress=interrupted)
    assert statuses(book) == ["reserved"]
    assert book.statement().left < 1


def test_draws_without_a_claim_are_refused(book: Ledger) -> None:
    with book:
        with pytest.raises(SpendRefused, match="leave generator out"):
            sampler().draw(START, generator=np.random.default_rng(0))
        with pytest.raises(SpendRefused, match=r"draws\(start, count\)"):
            sample(potential(), Ball(1.0), 5, learning_rate=0.1)
        with pytest.raises(SpendRefused, match="by replace"):
            sampler(batch_size=20, sampling="fixed", steps=5).draw(START)
    assert statuses(book) == ["refused"]  # only what could have been paid for is on record
    assert book.statement().left == 1
