"""Fits inside a ledger are paid for before they train, whatever becomes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from dplateau import InvalidInput, Ledger, PrivateRidge, SpendRefused
from dplateau.ledger.heirs import INHERITED

pytestmark = pytest.mark.filterwarnings("ignore::dplateau.PoorPlanWarning")

X = np.random.default_rng(1).uniform(-1, 1, size=(200, 2))
Y = X[:, 0] / 2
QUICK: dict[str, Any] = {"delta": 1e-5, "compute_budget": 5, "algorithm": "momentum"}


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "survey.ledger", epsilon=2.0, delta=1e-5)


def statuses(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.statement().entries]


def test_fits_are_paid_for_until_the_budget_is_spent(book: Ledger) -> None:
    PrivateRidge(epsilon=1.0, **QUICK).fit(X, Y)  # not inside: not paid for
    with book:
        first = PrivateRidge(epsilon=1.0, **QUICK).fit(X, Y)
        thread = Thread(target=PrivateRidge(epsilon=0.5, **QUICK).fit, args=(X, Y))
        thread.start()
        thread.join()
        late = PrivateRidge(epsilon=1.9, **QUICK)
        with pytest.raises(SpendRefused, match=r"PrivateRidge.*is left"):
            late.fit(X, Y)
        assert not hasattr(late, "coef_")
        PrivateRidge(epsilon=0.3, **QUICK).fit(X, Y)
    assert statuses(book) == ["spent", "spent", "refused", "spent"]
    entry = book.statement().entries[0]
    assert entry.name == "PrivateRidge"
    assert f"{first.certificate_.claimed_delta:g}" in entry.what


def test_one_fit_may_take_it_all(book: Ledger) -> None:
    with book:
        PrivateRidge(epsilon=2.0, **QUICK).fit(X, Y)
    assert statuses(book) == ["spent"]


def test_a_fit_that_crashes_stays_reserved(book: Ledger) -> None:
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    model = PrivateRidge(epsilon=1.0, verbose=interrupted, **QUICK)
    with book, pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")
    assert statuses(book) == ["reserved"]
    assert book.statement().left < 1


def test_what_never_trained_costs_nothing(book: Ledger) -> None:
    bad = X.copy()
    bad[3, 1] = np.nan
    with book:
        with pytest.raises(InvalidInput, match="row"):
            PrivateRidge(epsilon=1.0, **QUICK).fit(bad, Y)
        with (
            pytest.warns(UserWarning, match="random_state"),
            pytest.raises(SpendRefused, match="known seed is not private at any price"),
        ):
            PrivateRidge(epsilon=1.0, random_state=3, **QUICK).fit(X, Y)
    assert statuses(book) == []
    assert book.statement().left == 1


def test_another_unit_is_refused_before_training(book: Ledger) -> None:
    with book, pytest.raises(SpendRefused, match="by replace"):
        PrivateRidge(epsilon=1.0, neighbors="replace", **QUICK).fit(X, Y)
    assert statuses(book) == ["refused"]


def test_worker_processes_pay_too_and_old_ones_do_not_go_on(book: Ledger) -> None:
    from joblib import Parallel, delayed

    model = PrivateRidge(epsilon=0.3, **QUICK)
    Parallel(n_jobs=2)(delayed(model.fit)(X, Y) for _ in range(2))  # processes that stay
    with book:
        Parallel(n_jobs=2)(delayed(model.fit)(X, Y) for _ in range(2))
    assert statuses(book) == ["spent", "spent"]
    # Those that are started now find no ledger any more.
    assert INHERITED not in os.environ


STARTED = """
import multiprocessing, os, sys, warnings
from dplateau import Ledger, PrivacyLeakWarning

def in_force(_=None):
    from dplateau.ledger import ledgers_in_force
    return [str(ledger) for ledger in ledgers_in_force()]

def asked(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(in_force, [0])[0]

if __name__ == "__main__":
    first, second = map(Ledger, sys.argv[1:])
    for method in ("fork", "spawn", "forkserver"):
        with first:  # where the server of forks starts
            assert asked(method) == [str(first)], method
        with second:
            assert asked(method) == [str(second)], method
            with first:
                assert asked(method) == [str(first), str(second)], method
            assert asked(method) == [str(second)], method
        if method != "forkserver":
            assert asked(method) == [], method
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(in_force, [0])
        with warnings.catch_warnings(record=True) as said, first:
            assert pool.map(in_force, [0]) == [[]]
        assert [one.category for one in said] == [PrivacyLeakWarning], said
        assert "SpawnPoolWorker" in str(said[0].message)
        warnings.simplefilter("error")
        try:
            with first:
                raise AssertionError("not reached")
        except PrivacyLeakWarning:
            assert in_force() == []
    print("done")
"""


def test_every_way_to_start_a_process_tells_it(book: Ledger, tmp_path: Path) -> None:
    other = Ledger.create(tmp_path / "other.ledger", epsilon=1.0, delta=1e-5)
    script = tmp_path / "started.py"
    script.write_text(STARTED)
    command = [sys.executable, str(script), str(book.path), str(other.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_a_ledger_stays_where_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Ledger.create("a.ledger", epsilon=1.0, delta=1e-5)
    monkeypatch.chdir(tmp_path / "here")
    with Ledger("a.ledger") as ledger:
        monkeypatch.chdir(tmp_path / "there")
        PrivateRidge(epsilon=0.3, **QUICK).fit(X, Y)
    assert statuses(ledger) == ["spent"]
    assert statuses(Ledger("a.ledger")) == []
    assert str(ledger.path) == "a.ledger"
