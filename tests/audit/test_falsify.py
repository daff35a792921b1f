"""The campaign: what it attacks, that it catches, and that it can be stopped and taken up again."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import falsify
from dplateau import Ball, CyclicSGD, LossGeometry, NoisyGD, NoisySGD, OnePassSGD
from dplateau.algorithms import Checkpoints, Run, run_from_dict
from dplateau.audit import lower_bound, lower_epsilon, problems_of
from dplateau.bounds.base import Bound, Witness
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.curves import GaussianCurve, PrivacyCurve
from falsify_settings import KINDS, LOSSES, setting, settings

SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.1)
FULL: dict[str, Any] = {"n": 10, "learning_rate": 0.5, "noise_std": 0.5, "loss": SMOOTH}
FULL |= {"release": "last", "l2": 0.1}


# --- settings ------------------------------------------------------------------------------------


def test_a_setting_is_its_two_numbers() -> None:
    for one, other in zip(settings(3, 40), settings(3, 40), strict=True):
        assert str(one) == str(other)
    assert str(setting(3, 0)) != str(setting(4, 0))


def test_a_setting_is_one_line_that_replays_it() -> None:
    for chosen in settings(8, 60):
        (line,) = str(chosen).splitlines()
        found = json.loads(line)
        assert run_from_dict(found["run"]) == chosen.run
        assert (found["seed"], found["index"], found["delta"]) == (8, chosen.index, chosen.delta)


def test_settings_reach_every_algorithm_and_option() -> None:
    found = list(settings(1, 700))
    runs = [chosen.run for chosen in found]
    described = [chosen.run.to_dict() for chosen in found]
    assert {chosen.kind for chosen in found} == set(KINDS)
    assert {run["algorithm"] for run in described} >= {
        "NoisyGD",
        "NoisySGD",
        "CyclicSGD",
        "OnePassSGD",
        "ProjectedLangevin",
    }
    releases = [run["release"] for run in described]
    assert {kind for kind in releases if isinstance(kind, str)} == {"last", "all", "random_stop"}
    assert any(isinstance(run.release, Checkpoints) for run in runs)
    assert {run["noise_kind"] for run in described if "noise_kind" in run} == {
        "gaussian",
        "laplace",
    }
    assert {run["neighbors"] for run in described} == {"add_remove", "replace"}
    assert any(isinstance(run.get("learning_rate"), list) for run in described)
    assert any(isinstance(run.get("noise_std"), list) for run in described)
    assert any(isinstance(run.get("sampling_rate"), list) for run in described)
    assert any(run.has_own_rate and not run.has_schedule for run in runs)
    assert {run.group_size for run in runs} == {1, 2, 3, 4}
    assert {1, 100_000} <= {run.steps for run in runs}
    assert {run["domain"]["kind"] for run in described if "domain" in run} == {
        "ball",
        "box",
        "body",
    }
    assert any("holder" in run["loss"] for run in described)
    assert any("dissipativity" in run["loss"] for run in described)
    assert any(not run["loss"]["convex"] for run in described)
    assert {"saddle" in run["loss"] for run in described} == {True, False}
    assert {len(run.loss.holders) for run in runs if run.loss is not None} == {0, 1, 2}
    assert min(chosen.delta for chosen in found) < 1e-7
    assert max(chosen.delta for chosen in found) > 1e-4


def test_settings_straddle_the_largest_learning_rate() -> None:
    levels = [
        float(np.max(np.asarray(run.learning_rate))) * (run.loss.smoothness + 2 * run.l2)
        for run in (chosen.run for chosen in settings(1, 400))
        if run.loss is not None
        and isinstance(run.learning_rate, float)
        and math.isfinite(run.loss.smoothness)
    ]
    assert sum(level < 1.9 for level in levels) > 50
    assert sum(abs(level - 2) < 1e-9 for level in levels) > 3
    assert sum(level > 2.01 for level in levels) > 10


def test_a_class_of_losses_can_be_asked_for() -> None:
    for losses in set(LOSSES):
        assert setting(1, 1, losses=losses).run.loss is not None


# --- one attack ----------------------------------------------------------------------------------


class Stated(Bound):
    """A bound that says what it is told."""

    name, title = "stated", "Anything"

    def __init__(self, mu: float, *, breaks: bool = False) -> None:
        self.mu, self.breaks = mu, breaks

    def refusal(self, run: Run) -> str | None:
        return None

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        if self.breaks:
            raise ZeroDivisionError("a bound that breaks down")
        return GaussianCurve(self.mu)


def test_a_claim_just_below_is_a_violation() -> None:
    run = NoisyGD(**FULL, steps=40)
    exact = bound_named("gd_contraction")
    mu = exact.curve(run, exact.plan(run, 1e-5))
    assert isinstance(mu, GaussianCurve)
    above = falsify.attack(run, 1e-5, bounds=(Stated(mu.mu * (1 + 1e-9)),))
    below = falsify.attack(run, 1e-5, bounds=(Stated(mu.mu * (1 - 1e-9)),))
    assert above.violations() == []
    assert len(below.violations()) == 1
    assert above.best_ratio(1e-5) == pytest.approx(1.0, abs=1e-8)


def test_other_deltas_are_attacked_too() -> None:
    run = NoisyGD(**FULL, steps=40)
    found = falsify.attack(run, 1e-5, bounds=(Stated(1e-3),), other_deltas=(1e-7, 1e-3))
    assert len(found.violations()) == 3


def test_a_bound_that_breaks_down_is_reported() -> None:
    run = NoisyGD(**FULL, steps=2)
    (line,) = falsify.attack(run, 1e-5, bounds=(Stated(9.0, breaks=True),)).violations()
    assert "broke down: ZeroDivisionError" in line


def test_every_bound_that_applies_is_attacked() -> None:
    run = NoisySGD(**{**FULL, "n": 100}, batch_size=5, steps=30)
    found = falsify.attack(run, 1e-5)
    assert set(found.claims) == {b.name for b in BOUNDS if b.sound and b.refusal(run) is None}
    assert found.violations() == []


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("steps", [3, 4, 5, 40])
def test_reshuffled_walks_against_simulation(neighbors: Any, steps: int) -> None:
    """The bracket by enumeration holds for the laws that sampling orders shows."""
    run = CyclicSGD(
        **{**FULL, "n": 3, "noise_std": 1.0},
        batch_size=1,
        steps=steps,
        order="reshuffle",
        neighbors=neighbors,
    )
    found = lower_bound(run, 1e-3).epsilon
    assert found > 0
    draw = np.random.default_rng(0)
    epochs = -(-steps // 3)
    places = draw.integers(0, 3, (20_000, epochs)) + 3 * np.arange(epochs)
    uses = np.where(places < steps, 0.95 ** (steps - 1.0 - places), 0.0).sum(axis=1) * 0.5
    spread = 0.5 * math.sqrt(sum(0.95 ** (2 * t) for t in range(steps)))
    best = 0.0
    for share in (0.0, -1.0):
        own, other = 1 - share, (0.0 if neighbors == "add_remove" else -1.0) - share
        for point in np.linspace(0.0, 12.0, 121):
            likely = float(np.mean(norm.sf((point - own * uses) / spread)))
            rare = float(np.mean(norm.sf((point - other * uses) / spread)))
            if likely > 1e-3:
                best = max(best, math.log((likely - 1e-3) / rare))
    # Epochs before the last few are charged at their least, which costs a little.
    assert (0.93 if steps > 20 else 0.98) * best <= found <= 1.02 * best


def test_one_reshuffled_batch_is_the_full_batch() -> None:
    """An epoch of one batch: nothing is left to chance, and the full batch's value is met."""
    run = CyclicSGD(**FULL, batch_size=10, steps=25, order="reshuffle")
    exact = bound_named("gd_contraction")
    full = NoisyGD(**FULL, steps=25)
    value = exact.curve(full, exact.plan(full, 1e-5)).epsilon(1e-5)
    assert falsify.needed(run, [1e-5])[repr(1e-5)] == pytest.approx(value, rel=1e-4)


# --- bounds that are wrong -----------------------------------------------------------------------


class Shrunk(Bound):
    """Another bound's curve at a part of its epsilon."""

    name, title = "shrunk", "Ten percent off"

    def __init__(self, bound: Bound, part: float = 0.9) -> None:
        self.bound, self.part = bound, part

    def refusal(self, run: Run) -> str | None:
        return self.bound.refusal(run)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        inner = self.bound.curve(run, self.bound.plan(run, 1e-5))
        return GaussianCurve(mu_at(self.part * inner.epsilon(1e-5), 1e-5))


class Formula(Bound):
    """mu from a formula that somebody might write down."""

    name, title = "formula", "A formula"

    def __init__(self, mu: Callable[[Any], float]) -> None:
        self.mu = mu

    def refusal(self, run: Run) -> str | None:
        return None

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        return GaussianCurve(self.mu(run))


def mu_at(epsilon: float, delta: float) -> float:
    return float(brentq(lambda mu: GaussianCurve(mu).epsilon(delta) - epsilon, 1e-9, 1e3))


def alone(run: Run) -> float:
    """What the record loses if nobody else moves the walk."""
    return lower_epsilon(problems_of(run, 1e-5)[0], 1e-5).epsilon


CYCLE = CyclicSGD(n=400, batch_size=40, steps=30, learning_rate=2.0, noise_multiplier=2.0,
                  loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5),
                  release="last")  # fmt: skip
PASS = OnePassSGD(n=400, batch_size=40, learning_rate=2.0, noise_multiplier=2.0, loss=CYCLE.loss,
                  release="last")  # fmt: skip
WALLED = NoisyGD(n=100, steps=4000, learning_rate=1.0, noise_multiplier=10.0, domain=Ball(0.5),
                 loss=SMOOTH, release="last")  # fmt: skip


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (NoisyGD(**FULL, steps=40), "gd_contraction"),
        (NoisyGD(**FULL, steps=40).replace(release="all"), "gdp_composition"),
        (PASS, "one_pass_contraction"),
        (CYCLE, "cyclic_contraction"),
    ],
    ids=["ridge", "released", "one-pass", "cyclic"],
)
def test_ten_percent_are_noticed(run: Run, name: str) -> None:
    bound = bound_named(name)
    assert falsify.attack(run, 1e-5, bounds=(bound,)).violations() == []
    assert len(falsify.attack(run, 1e-5, bounds=(Shrunk(bound),)).violations()) == 1


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        # Earlier noise is taken to hide the record, as if no other loss were curved.
        (PASS, lambda run: 1 / (run.noise_multiplier * math.sqrt(run.steps))),
        (CYCLE, lambda run: 3 / (run.noise_multiplier * math.sqrt(run.steps))),
        # A walk is taken to mix over the whole domain, as if others never pushed it to a wall.
        (WALLED, lambda run: mu_at(1.02 * alone(run), 1e-5)),
        # One record step where a replaced record makes two.
        (NoisyGD(**FULL, steps=40, neighbors="replace"),
         lambda run: math.sqrt((1.95 - 1.95 * 0.95**40) / (0.05 + 0.05 * 0.95**40)) / 5),
        # Shuffling is taken to divide the loss by the number of batches.
        (CYCLE.replace(order="reshuffle", steps=30, batch_size=200),
         lambda run: 1 / (2 * run.noise_multiplier)),
    ],
    ids=["one-pass", "cyclic", "walls", "replace", "reshuffle"],
)  # fmt: skip
def test_formulas_that_forget_something_are_caught(run: Run, wrong: Any) -> None:
    assert len(falsify.attack(run, 1e-5, bounds=(Formula(wrong),)).violations()) == 1


# --- the campaign --------------------------------------------------------------------------------


def test_a_campaign_counts_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    tally, finished = falsify.campaign(4, 26, falsify.State(path, 26), jobs=1)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert finished
    assert (tally.settings, len(lines)) == (4, 4)
    assert [json.loads(line)["index"] for line in lines] == list(range(4))
    # A line that was cut off is dropped and done again; the others are not.
    path.write_text("\n".join(lines[:2]) + "\n" + lines[2][:50], encoding="utf-8")
    shown = io.StringIO()
    again, _ = falsify.campaign(4, 26, falsify.State(path, 26), jobs=1, show=shown)
    assert str(again) == str(tally)
    assert shown.getvalue().count("settings") == 2
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


def test_a_changed_library_starts_afresh(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    state = falsify.State(path, 26)
    state.library = "an earlier one"
    falsify.campaign(2, 26, state, jobs=1)
    assert falsify.State(path, 26).finished() == {}
    assert falsify.State(path, 27).finished() == {}
    assert set(state.finished()) == {0, 1}


def test_violations_are_printed_and_end_in_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(falsify, "attack_setting", lambda place: record(claim=0.5))
    assert falsify.main(["--settings", "1", "--jobs", "1"]) == 1
    shown = capsys.readouterr()
    assert (
        "VIOLATION gdp_composition claims 0.5 at delta 1e-05, at least 1.0 is needed" in shown.out
    )
    assert "violations: 1" in shown.out
    assert "VIOLATION" in shown.err
    monkeypatch.setattr(falsify, "attack_setting", lambda place: record(claim=1.5))
    assert falsify.main(["--settings", "1", "--jobs", "1"]) == 0
    shown = capsys.readouterr()
    assert "best claim below twice the lower bound: 100.0%" in shown.out
    assert "1.5000000" in shown.out
    (row,) = [line for line in shown.out.splitlines() if line.startswith("full_batch")]
    assert row.split()[1:] == ["1", "0", "1", "100.0%", "1.500"]


def record(claim: float) -> dict[str, Any]:
    return {
        **setting(1, 0).to_dict(),
        "delta": 1e-5,
        "kind": "full_batch",
        "lowers": {"1e-05": 1.0},
        "claims": {"gdp_composition": {"1e-05": claim}},
        "failures": {},
        "seconds": 0.0,
    }


def test_workers_and_an_interrupt(tmp_path: Path) -> None:
    """Stopped in the middle, a campaign keeps what it has and says how to go on."""
    path = tmp_path / "folder" / "state.jsonl"
    command = [sys.executable, falsify.__file__, "--settings", "100000"]
    running = subprocess.Popen(
        [*command, "--seed", "5", "--jobs", "2", "--state", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    # However slow the machine is, it comes to its second setting.
    while running.poll() is None:
        if path.exists() and path.read_text(encoding="utf-8").count("\n") >= 2:
            break
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate()
    assert running.returncode == 130, err
    assert "stopped early" in out
    assert "Traceback" not in err
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 2
    assert all(json.loads(line)["seed"] == 5 for line in lines)
