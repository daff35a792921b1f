"""The rules of a ledger: what is paid for, what is refused and why, and what is written down."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dplateau import (
    Certificate,
    Composition,
    InvalidInput,
    Ledger,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    NotApplicable,
    SpendRefused,
    certify,
    compose,
    foreign,
)
from dplateau.bounds.registry import bound_named
from dplateau.certificates.certificate import Claim
from dplateau.certificates.composition import Part
from dplateau.ground.files import forget_written, written_so_far
from dplateau.ledger import ledger_in_force, paid_for, released_with
from dplateau.numerics.normal import gaussian_mu
from forging import forged


def gaussian(mu: float, *, neighbors: str = "add_remove", group_size: int = 1) -> Certificate:
    """A certificate of full-batch descent that is ``mu``-GDP (for one record added or removed)."""
    run = NoisyGD(
        n=100,
        steps=1,
        noise_multiplier=1 / mu,
        release="all",
        neighbors=neighbors,
        group_size=group_size,
    )
    return certify(run, 1e-5, bounds=[bound_named("gdp_composition")])


def hidden(noise: float = 1.0) -> Certificate:
    """A certificate whose curve is no Gaussian one."""
    run = NoisySGD(
        n=6000,
        batch_size=60,
        steps=400,
        noise_multiplier=noise,
        learning_rate=1.0,
        l2=0.02,
        loss=LossGeometry(lipschitz=1.0, smoothness=0.25, convex=True),
        release="last",
    )
    return certify(run, 1e-5)


def statuses(ledger: Ledger) -> list[str]:
    return [entry.status for entry in ledger.statement().entries]


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "survey.ledger", epsilon=3.0, delta=1e-5)


def test_squares_of_mu_add_up_to_the_budget_and_no_further(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=3.0, delta=1e-5, delta_share=0.0)
    whole = gaussian_mu(3.0, 1e-5)
    part = gaussian(whole / 3 * (1 - 1e-6))
    for count in range(1, 10):
        entry = ledger.spend(part)
        assert entry.left == pytest.approx(1 - count / 9, abs=1e-4)
    with pytest.raises(SpendRefused, match=r"needs mu 0\.2398, and mu 0\.00"):
        ledger.spend(part)
    assert statuses(ledger) == ["spent"] * 9 + ["refused"]
    together = compose([part] * 9, 1e-5)
    assert 2.999 < together.claimed_epsilon <= 3.0


def test_a_refusal_names_what_does_not_fit_and_no_more(book: Ledger) -> None:
    """The rest of delta, asked for in full, read as 2.06e-07 needed and 2.05e-07 left."""
    book.spend(gaussian(0.2))
    assert book.statement().slack_left == 1e-6, "a tenth of 1e-5, as people write it"
    needs = r"it needs mu [0-9.]+, and mu [0-9.]+ is left \("
    with pytest.raises(SpendRefused, match=needs):  # noqa: PT012
        for _ in range(9):
            book.spend(hidden())


def test_one_release_may_take_the_whole_budget(tmp_path: Path) -> None:
    certificate = hidden()
    limit = certificate.claimed_epsilon
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=limit, delta=1e-5)
    assert ledger.spend(certificate).left == 0
    with pytest.raises(SpendRefused, match="nothing of the budget is left"):
        ledger.spend(foreign(mu=1e-6, neighbors="add_remove"))
    tight = Ledger.create(tmp_path / "b.ledger", epsilon=limit * (1 - 1e-9), delta=1e-5)
    with pytest.raises(SpendRefused, match="and the whole budget is"):
        tight.spend(certificate)
    # Nothing was released, so a smaller first release still finds the ledger empty.
    assert tight.spend(gaussian(0.01)).left > 0.9


def test_what_is_accepted_in_any_order_is_within_the_numerical_composition(book: Ledger) -> None:
    spent = []
    for part in [hidden(), gaussian(0.2), hidden(2.0), gaussian(0.3), hidden(), gaussian(0.4)] * 2:
        try:
            book.spend(part)
            spent.append(part)
        except SpendRefused:
            continue
    assert len(spent) >= 4
    # A filter may refuse what composition in advance would allow, never the reverse.
    assert compose(spent, 1e-5).claimed_epsilon <= 3.0


def test_planned_parts_are_paid_in_any_order_and_once_each(tmp_path: Path) -> None:
    first, second = hidden(), gaussian(0.3)
    ledger = Ledger.create(
        tmp_path / "a.ledger", epsilon=3.0, delta=1e-5, planned=[first, second, first]
    )
    statement = ledger.statement()
    assert statement.planned_left == 3
    assert 0 < statement.left < 1
    ledger.spend(second)
    ledger.spend(first)
    # The same run by another claim is the part that was planned.
    again = certify(first.run, 1e-6)
    assert again.claimed_epsilon != first.claimed_epsilon
    entry = ledger.spend(again)
    assert entry.amount is None
    assert entry.left == statement.left
    assert ledger.statement().planned_left == 0
    # A fourth time it was not planned, and is paid out of what the plan left.
    assert ledger.spend(first).left < statement.left


def test_a_plan_that_does_not_fit_makes_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    with pytest.raises(SpendRefused, match=r"cost epsilon 6\.\d+ together .* budget is 3"):
        Ledger.create(path, epsilon=3.0, delta=1e-5, planned=[gaussian(1.0), gaussian(1.0)])
    assert list(tmp_path.iterdir()) == []
    exact = compose([gaussian(0.5)] * 2, 1e-5).claimed_epsilon
    Ledger.create(path, epsilon=exact, delta=1e-5, planned=[gaussian(0.5)] * 2)


def test_a_plan_leaves_more_than_a_filter_would(tmp_path: Path) -> None:
    parts = [hidden()] * 3
    planned = Ledger.create(
        tmp_path / "a.ledger", epsilon=3.0, delta=1e-5, planned=parts, filter="gdp"
    )
    adaptive = Ledger.create(tmp_path / "b.ledger", epsilon=3.0, delta=1e-5, filter="gdp")
    for part in parts:
        adaptive.spend(part)
    assert planned.statement().left > adaptive.statement().left + 0.01


def test_other_neighbors_and_smaller_units_are_refused_and_larger_units_cover(
    tmp_path: Path,
) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, max_records_per_person=2)
    with pytest.raises(SpendRefused, match=r"by replace, and the ledger of add_remove"):
        ledger.spend(gaussian(0.1, neighbors="replace"))
    with pytest.raises(SpendRefused, match=r"protects a record, and the ledger a group of 2"):
        ledger.spend(gaussian(0.1))
    with pytest.raises(SpendRefused, match=r"protects a household, .* never the reverse"):
        ledger.spend(foreign(mu=0.1, neighbors="add_remove", unit="household"))
    ledger.spend(gaussian(0.1, group_size=2))
    ledger.spend(gaussian(0.1, group_size=3))
    ledger.spend(foreign(mu=0.1, neighbors="add_remove", unit="group of 2 records"))
    assert statuses(ledger) == ["refused"] * 3 + ["spent"] * 3


def test_a_claim_that_does_not_verify_is_refused(book: Ledger) -> None:
    honest = gaussian(0.3)
    boasting = replace(honest, claim=Claim(honest.claimed_epsilon * 0.9, honest.claimed_delta))
    with pytest.raises(SpendRefused, match="not verified"):
        book.spend(boasting, name="too good")
    entry = book.statement().entries[0]
    assert (entry.name, entry.status, entry.left) == ("too good", "refused", 1.0)


def test_what_claims_nothing_is_refused_with_its_reason(book: Ledger) -> None:
    seeded = gaussian(0.3).without_claim("not private (seeded run)")
    with pytest.raises(SpendRefused, match=r"not private \(seeded run\)"):
        book.spend(seeded)
    assert statuses(book) == ["refused"]


def test_a_ledger_pays_for_claims_only(book: Ledger) -> None:
    for part in (gaussian(0.1), compose([gaussian(0.1)], 1e-5)):
        with pytest.raises(SpendRefused, match=r"claims nothing: not private \(seeded run\)"):
            book.spend(part.without_claim("not private (seeded run)"))
    assert statuses(book) == ["refused", "refused"]
    with pytest.raises(InvalidInput, match="got NoneType"):
        book.spend(None)  # type: ignore[arg-type]


def test_compositions_and_declared_parts_are_paid_for(book: Ledger) -> None:
    together = compose(
        [gaussian(0.1), foreign(epsilon=0.1, delta=1e-7, neighbors="add_remove")], 1e-5
    )
    book.spend(together, name="a survey and a count")
    book.spend(foreign(epsilon=0.1, delta=1e-8, neighbors="add_remove", name="a count"))
    words = [entry.what for entry in book.statement().entries]
    assert words[0].startswith("(0.")
    assert words[1] == "(0.1, 1e-08)-DP (declared)"


@pytest.mark.parametrize("bound", ["gdp_composition", "rdp_composition"])
def test_a_file_that_states_more_releases_than_memory_holds_is_refused(
    book: Ledger, bound: str
) -> None:
    """They were listed one by one before anything was verified: eight gigabytes, minutes."""
    one = certify(gaussian(0.1).run, 1e-5, bounds=[bound_named(bound)])
    found = json.loads(compose([one] * 2, 1e-5).to_json())
    parts = [{**part, "count": 10**12} for part in found["content"]["parts"]]
    many = Composition.from_dict(forged(found, parts=parts))
    with pytest.raises(SpendRefused, match=r"not verified \(1000000000000 parts\)"):
        book.spend(many)
    entry = book.statement().entries[0]
    assert (entry.name, entry.status) == ("1000000000000 parts", "refused")
    if bound == "rdp_composition":
        with pytest.raises(NotApplicable, match="too many to be added up one by one"):
            _ = many.curve


def test_what_is_reserved_counts_until_it_is_settled_and_after(book: Ledger) -> None:
    number = book.reserve(gaussian(0.3), name="a fit")
    left = book.statement().left
    assert left < 1
    assert statuses(book) == ["reserved"]
    book.settle(number)
    assert statuses(book) == ["spent"]
    assert book.statement().left == left
    with pytest.raises(InvalidInput, match="is not reserved"):
        book.settle(number)
    with pytest.raises(InvalidInput, match="is not reserved"):
        book.settle(99)


def test_pure_budgets_add_up_epsilons(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=1.0, delta=0.0)
    for _ in range(4):
        ledger.spend(foreign(epsilon=0.25, delta=0.0, neighbors="add_remove"))
    with pytest.raises(SpendRefused, match="nothing of the budget is left"):
        ledger.spend(foreign(epsilon=0.01, delta=0.0, neighbors="add_remove"))
    other = Ledger.create(tmp_path / "b.ledger", epsilon=1.0, delta=0.0)
    with pytest.raises(SpendRefused, match="no epsilon covers it at delta 0"):
        other.spend(gaussian(0.1))
    for _ in range(10):
        other.spend(foreign(epsilon=0.1, delta=0.0, neighbors="add_remove"))
    with pytest.raises(InvalidInput, match="use filter='pure'"):
        Ledger.create(tmp_path / "c.ledger", epsilon=1.0, delta=0.0, filter="gdp")


def test_pure_releases_stay_pure_together_and_in_a_plan(tmp_path: Path) -> None:
    run = NoisyGD(
        n=50, steps=3, noise_multiplier=30.0, noise_kind="laplace", dimension=1, release="all"
    )
    one = certify(run, 0.0)
    together = compose([one] * 2, 0.0)
    planned = Ledger.create(tmp_path / "a.ledger", epsilon=1.0, delta=0.0, planned=[one])
    assert planned.statement().amount_left == pytest.approx(1 - one.claimed_epsilon, rel=1e-6)
    for part in (one, together, together):
        planned.spend(part)
    spent = 5 * one.claimed_epsilon
    assert planned.statement().amount_left == pytest.approx(1 - spent, rel=1e-5)
    assert planned.statement().amount_left <= 1 - 5 * one.curve.epsilon(0.0)
    with pytest.raises(SpendRefused):
        planned.spend(compose([one, gaussian(0.1)], 1e-5))


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be finite and above 0"),
        ({"delta": 1.0}, "delta must be at least 0 and below 1"),
        ({"delta_share": 1.0}, "delta_share must be at least 0 and below 1"),
        ({"neighbors": "friends"}, "neighbors must be one of"),
        ({"max_records_per_person": 0}, "must be at least 1"),
        ({"filter": "hope"}, "filter must be one of"),
        ({"order": 3.0}, "pass filter='renyi' with it"),
        ({"filter": "renyi", "order": 1.0}, "order must be finite and above 1"),
        ({"filter": "gdp", "order": 2.0}, "order is about the Rényi filter"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, stated: dict[str, float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Ledger.create(tmp_path / "a.ledger", **{"epsilon": 1.0, "delta": 1e-5, **stated})
    assert list(tmp_path.iterdir()) == []


def test_a_spend_that_is_interrupted_at_the_disk_is_said_to_be_written(
    book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python hears Ctrl-C when the commit has returned: the spend is on record by then."""

    class Interrupted(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
            done = super().execute(sql, *values)
            if sql == "COMMIT":
                raise KeyboardInterrupt
            return done

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Interrupted))
    forget_written()
    with pytest.raises(KeyboardInterrupt):
        book.spend(gaussian(0.1))
    assert statuses(book) == ["spent"]
    assert written_so_far() == (str(book.path),)


def test_a_ledger_is_never_written_anew(book: Ledger) -> None:
    head = book.statement().head
    with pytest.raises(InvalidInput, match="exists already"):
        Ledger.create(book.path, epsilon=3.0, delta=1e-5)
    assert book.statement().head == head


def test_the_rows_refuse_to_be_changed(book: Ledger) -> None:
    book.spend(gaussian(0.3))
    with closing(sqlite3.connect(book.path)) as connection:
        for statement in (
            "DELETE FROM entries WHERE sequence = 2",
            "UPDATE entries SET content = '{}' WHERE sequence = 2",
            "INSERT OR REPLACE INTO entries VALUES (2, '', '', '{}', '', '')",
            "INSERT INTO entries VALUES (9, '', '', '{}', '', '')",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
                connection.execute(statement)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_head_that_was_written_down_shows_a_cut_tail(book: Ledger) -> None:
    before = book.statement().head
    book.spend(gaussian(0.3))
    after = book.statement().head
    assert before != after
    assert book.contains_head(before)
    assert book.contains_head(after)
    with closing(sqlite3.connect(book.path)) as connection:
        connection.execute("DROP TRIGGER entries_are_not_deleted")
        connection.execute("DELETE FROM entries WHERE sequence = 2")
        connection.execute(
            "CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries\n"
            "BEGIN SELECT RAISE(ABORT, 'a ledger is only ever added to'); END"
        )
        connection.commit()
    # The chain itself is whole: only the head tells.
    assert book.statement().left == 1.0
    assert not book.contains_head(after)


def test_the_next_noise_uses_what_is_left_and_is_paid(book: Ledger) -> None:
    wanted = hidden().run
    everything = book.plan_next(wanted)
    assert everything.certificate.claimed_epsilon <= 3.0
    book.spend(gaussian(0.4))
    found = book.plan_next(wanted)
    assert found.run.replace(noise_multiplier=1.0) == wanted.replace(noise_multiplier=1.0)
    quieter = certify(found.run.replace(noise_multiplier=found.value / 1.05), 1e-5)
    with pytest.raises(SpendRefused, match="plan-next"):
        book.spend(quieter)
    assert book.spend(found.certificate).left < 0.01
    with pytest.raises(SpendRefused, match="by replace"):
        book.plan_next(gaussian(0.1, neighbors="replace").run)


@pytest.mark.parametrize("filter", ["gdp", "renyi"])
def test_what_is_said_to_be_left_can_be_spent(tmp_path: Path, filter: str) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", epsilon=2.0, delta=1e-5, filter=filter)
    for mu in (0.1, 0.4, 0.05):
        ledger.spend(gaussian(mu))
    # At a tiny remainder too, where all that one divergence allows would be a far larger epsilon.
    for share in (0.9, 0.95, 0.999):
        left = ledger.statement().left_epsilon
        mu = gaussian_mu(left, 1e-5) * share
        ledger.spend(gaussian(mu))
    assert ledger.statement().left < 1e-4


def test_a_ledger_in_force_is_seen_by_every_thread(book: Ledger, tmp_path: Path) -> None:
    inner = Ledger.create(tmp_path / "inner.ledger", epsilon=1.0, delta=1e-5)
    assert ledger_in_force() is None
    seen: list[Ledger | None] = []
    with book:
        thread = threading.Thread(target=lambda: seen.append(ledger_in_force()))
        thread.start()
        thread.join()
        with inner:
            assert ledger_in_force() is inner
        assert ledger_in_force() is book
    assert seen == [book]
    assert ledger_in_force() is None
    with pytest.raises(InvalidInput, match="there is no ledger"), Ledger(tmp_path / "none"):
        pass
    assert ledger_in_force() is None


def test_every_ledger_in_force_pays_once(book: Ledger, tmp_path: Path) -> None:
    inner = Ledger.create(tmp_path / "inner.ledger", epsilon=1.0, delta=1e-5)
    with book, inner, Ledger(book.path):
        with paid_for(gaussian(0.2), name="model"):
            assert statuses(book) == statuses(inner) == ["reserved"]
        assert statuses(book) == statuses(inner) == ["spent"]
        with pytest.raises(SpendRefused, match=r"inner\.ledger"), paid_for(gaussian(0.5), name="x"):
            pass  # not reached: one of them has too little left
    assert statuses(inner) == ["spent", "refused"]


def test_processes_started_inside_two_blocks_find_both(book: Ledger, tmp_path: Path) -> None:
    inner = Ledger.create(tmp_path / "inner.ledger", epsilon=1.0, delta=1e-5)
    names = "ledger_in_force, ledgers_in_force"
    code = f"from dplateau.ledger import {names}; print(*ledgers_in_force(), ledger_in_force())"
    command = [sys.executable, "-c", code]
    with book, inner:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == [repr(inner), repr(book), repr(inner)]


def test_what_leaves_together_is_paid_for_at_once(book: Ledger) -> None:
    model, score = gaussian(0.3), foreign(epsilon=0.2, delta=0.0, neighbors="add_remove")
    with book, released_with(lambda part: compose([part, score], 1e-5, records="disjoint")):
        with paid_for(model, name="model and score"):
            assert statuses(book) == ["reserved"]
        assert statuses(book) == ["spent"]
    entry = book.statement().entries[0]
    assert "2 parts by worst part" in entry.what
    with paid_for(model, name="outside"):
        pass
    assert len(statuses(book)) == 1


def test_what_leaves_together_is_a_matter_of_each_thread(book: Ledger) -> None:
    model, score = gaussian(0.3), foreign(epsilon=0.2, delta=0.0, neighbors="add_remove")

    def both(part: Certificate) -> Part:
        return compose([part, score], 1e-5)

    def alone(part: Certificate) -> Part:
        return part

    with book, ThreadPoolExecutor(1) as other:
        first = released_with(alone)
        first.__enter__()
        second = released_with(both)
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        with paid_for(model, name="here"):
            pass

        def pay_there() -> None:
            with paid_for(model, name="there"):
                pass

        other.submit(pay_there).result()
        other.submit(second.__exit__, None, None, None).result()
    here, there = book.statement().entries
    assert "2 parts" not in here.what
    assert "2 parts" in there.what


def test_a_statement_is_plain_data(book: Ledger) -> None:
    book.spend(gaussian(0.2), name="first")
    book.spend(gaussian(0.2), name="second")
    found = book.statement().to_dict()
    assert found["settings"]["epsilon"] == 3.0
    assert [entry["name"] for entry in found["entries"]] == ["first", "second"]
    assert found["entries"][1]["amount"] == pytest.approx(0.04, rel=1e-6)
    assert found["terms"]["filter"] == "gdp"
    spent = 0.04 + found["entries"][1]["amount"]
    left = math.sqrt(found["terms"]["whole"] - spent)
    assert found["amount_left"] == pytest.approx(left**2, rel=1e-6)
