"""certify and compare: which bound wins, what the table says, what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from dplateau import (
    Body,
    InvalidInput,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    calibrate,
    certify,
    compare,
    epsilon_over_steps,
    noise_needed,
    per_record,
)
from dplateau.bounds.registry import BOUNDS, HISTORICAL, bound_named
from dplateau.certificates.certify import ask

LOSS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
RIDGE = NoisyGD(
    n=1000, steps=400, learning_rate=0.5, l2=0.1, noise_std=0.02, loss=LOSS, release="last"
)


def test_the_smallest_sound_epsilon_wins() -> None:
    found = compare(RIDGE, 1e-5)
    values = [row.epsilon for row in found.rows if row.epsilon is not None]
    assert values == sorted(values)
    assert found.best.epsilon == values[0]
    assert found.best.hidden_state
    certificate = certify(RIDGE, 1e-5)
    assert (certificate.bound, certificate.claimed_epsilon) == (found.best.bound, values[0])


def test_every_bound_answers_or_says_why_not() -> None:
    for run in (RIDGE, RIDGE.replace(release="all")):
        found = compare(run, 1e-5)
        assert {row.bound for row in found.rows} == {b.name for b in BOUNDS}
        for row in found.rows:
            assert (row.epsilon is None) != (row.reason is None)
            assert row.citation
            assert row.epsilon is None or 0 <= row.epsilon < math.inf
        empty = [row.epsilon is None for row in found.rows]
        assert empty == sorted(empty), "refusals come last"


def test_bounds_that_refuse_for_the_same_reason_are_grouped() -> None:
    found = compare(RIDGE.replace(release="all"), 1e-5)
    hidden = "needs hidden iterates (release='last'); yours releases all of them"
    assert set(found.refusals[hidden]) == {row.bound for row in found.rows if row.hidden_state}
    refused = [row for row in found.rows if row.reason is not None]
    assert sum(map(len, found.refusals.values())) == len(refused)
    assert all(row.bound in found.refusals[str(row.reason)] for row in refused)
    assert str(found).count(hidden) == 1


def test_releasing_everything_leaves_only_released_bounds() -> None:
    found = compare(RIDGE.replace(release="all"), 1e-5)
    for row in found.rows:
        if row.hidden_state:
            assert row.reason == (
                "needs hidden iterates (release='last'); yours releases all of them"
            )
    assert not found.best.hidden_state


def test_bounds_with_a_gap_are_shown_on_request_and_never_chosen() -> None:
    shown = compare(RIDGE, 1e-5, historical=True)
    assert {row.bound for row in shown.rows} == {b.name for b in (*BOUNDS, *HISTORICAL)}
    assert shown.best.sound
    for bound in HISTORICAL:
        assert bound.name not in {row.bound for row in compare(RIDGE, 1e-5).rows}


def test_only_the_bounds_asked_for() -> None:
    naive = bound_named("naive_composition")
    certificate = certify(RIDGE, 1e-5, bounds=[naive])
    assert certificate.bound == "naive_composition"
    assert certificate.claimed_epsilon == compare(RIDGE, 1e-5).epsilon("naive_composition")


def test_unknown_bounds_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no bound is named 'magic'; known are naive_comp"):
        bound_named("magic")


@pytest.mark.parametrize("delta", [1.0, -1e-5, 1.5, math.nan, math.inf, True, "1e-5", None])
def test_refused_deltas(delta: Any) -> None:
    for asked in (certify, compare):
        with pytest.raises(InvalidInput, match=r"^delta must be (a real number|at least 0 and)"):
            asked(RIDGE, delta)


def test_the_table_as_data_and_text() -> None:
    found = compare(RIDGE, 1e-5)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["claimed_epsilon"] == found.best.epsilon
    assert data["claimed_delta"] == 1e-5
    assert data["bound"] == found.best.bound
    assert [row["bound"] for row in data["bounds"]] == [row.bound for row in found.rows]
    text = str(found)
    answers = [row for row in found.rows if row.reason is None]
    assert len(text.splitlines()) == 1 + len(answers) + 2 + len(found.refusals)
    assert f"{found.best.epsilon:.6g}" in text.splitlines()[1]
    page = found._repr_html_()
    answers = [row for row in found.rows if row.reason is None]
    assert page.count("<tr>") == len(answers) + len(found.refusals) + 2  # and two heads
    assert "'last'" not in page, "quotes are escaped"
    frame = found.to_frame()
    assert frame.loc[found.best.bound, "epsilon"] == found.best.epsilon


def test_a_run_without_loss_is_accounted_by_composition() -> None:
    run = NoisySGD(n=100, batch_size=10, steps=5, noise_multiplier=1.0, release="last")
    assert certify(run, 1e-5).bound == "pld_composition"
    assert certify(run, 1e-5).claimed_epsilon == pytest.approx(
        certify(run.replace(release="all"), 1e-5).claimed_epsilon
    )


def test_what_is_no_run_is_refused_in_words() -> None:
    from dplateau.audit import lower_bound, search_adversary, worst_case_pair

    wrong: Any = {}
    asked: list[Callable[[], object]] = [
        lambda: certify(wrong, 1e-5),
        lambda: compare(wrong, 1e-5),
        lambda: calibrate(wrong, 1.0, 1e-5),
        lambda: noise_needed(wrong, 1.0, 1e-5),
        lambda: per_record(wrong, 1e-5),
        lambda: epsilon_over_steps(wrong, 1e-5, [1, 2]),
        lambda: lower_bound(wrong, 1e-5),
        lambda: search_adversary(wrong, 1e-5),
        lambda: worst_case_pair(wrong),
    ]
    for question in asked:
        with pytest.raises(InvalidInput, match=r"a run is needed, such as NoisyGD\(\.\.\.\).*dict"):
            question()


def test_long_sampled_runs_take_no_memory_for_their_steps() -> None:
    run = NoisySGD(n=1000, batch_size=10, steps=10**18, noise_multiplier=1.0, release="last")
    assert run.epochs == 1e16
    assert run.stated_rate == 0.01
    assert bound_named("gdp_composition").refusal(run) is not None
    # Steps that differ are gone through one by one, and only so many.
    rough = run.replace(
        learning_rate=1.0, domain=Body(1.0), loss=LossGeometry(lipschitz=1.0, convex=True)
    )
    reason = ask(bound_named("every_batch"), rough, 1e-5).reason
    assert reason is not None
    assert "one by one, up to 10000000; yours: 1000000000000000000" in reason
