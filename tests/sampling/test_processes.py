"""Chains in processes: the same draws whoever makes them, keys of their own, a clean end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from dplateau import Ball, InvalidInput, LangevinSampler, Potential, certify, compose, sample
from dplateau.losses import Logistic
from dplateau.sampling.sampler import LangevinState


def records(n: int = 300) -> Potential:
    generator = np.random.default_rng(11)
    features = generator.standard_normal((n, 3))
    targets = np.where(features @ [2.0, -1.0, 0.0] > 0, 1, -1)
    return Potential.from_loss(Logistic(), features, targets, feature_norm=1.5)


def drawn(jobs: int | None, **more: Any) -> Any:
    asked: dict[str, Any] = {"learning_rate": 0.1, "chains": 3, "warmup": 7, "thin": 2, "seed": 5}
    return sample(records(), Ball(1.0), 6, jobs=jobs, **{**asked, **more})


@pytest.mark.parametrize("more", [{}, {"batch_size": 12}], ids=["full", "Poisson"])
def test_any_number_of_processes_gives_the_same_draws(more: dict[str, Any]) -> None:
    one, two = drawn(1, **more), drawn(2, **more)
    assert np.array_equal(one.draws, two.draws)
    assert np.array_equal(one.last.position, two.last.position)
    assert one.draws.shape == (3, 6, 3)
    assert one.last.step == two.last.step == 7 + 12
    assert np.array_equal(one.last.position, one.draws[:, -1])
    assert not np.array_equal(one.draws, drawn(1, seed=6, **more).draws)


def test_a_chain_is_a_chain_of_its_own_generator() -> None:
    start = np.array([[0.1, 0.2, 0.0], [0.0, 0.0, -0.5], [0.3, 0.3, 0.3]])
    found = drawn(1, start=start)
    generators = np.random.default_rng(5).spawn(3)
    for row, generator, draws in zip(start, generators, found.draws, strict=True):
        state = found.sampler.advance(generator, LangevinState(row[None]), 7)
        _, alone = found.sampler.collect(generator, state, 6, thin=2)
        assert np.array_equal(alone[0], draws)


def test_progress_counts_the_steps_of_all_chains() -> None:
    for jobs in (1, 2):
        seen: list[tuple[int, int]] = []
        drawn(jobs, progress=lambda *counts: seen.append(counts))  # noqa: B023
        assert seen[-1] == (3 * 19, 3 * 19)
        assert all(done <= total == 3 * 19 for done, total in seen)


def test_private_draws_have_keys_of_their_own_and_are_releases_of_their_own() -> None:
    made = LangevinSampler.of(
        records(), Ball(1.0), steps=40, learning_rate=0.2, inverse_temperature=20.0, l2=0.1,
        release="last",
    )  # fmt: skip
    start = [0.0, 0.0, 0.0]
    rows = [made.draws(start, 4, jobs=jobs) for jobs in (1, 2, 2)]
    assert all(one.shape == (4, 3) for one in rows)
    # No two chains share noise: not in one process, in two, nor in two calls.
    assert len(np.unique(np.concatenate(rows).round(12), axis=0)) == 12
    one = certify(made.run, 1e-5)
    together = compose([one] * 4, 1e-5)
    assert together.verify().ok
    assert one.claimed_epsilon < together.claimed_epsilon <= 4 * one.claimed_epsilon
    with pytest.raises(InvalidInput, match=r"release of its own; draws\(start, count\)"):
        made.draw(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="one point"):
        made.draws(np.zeros((2, 3)), 2)


@pytest.mark.parametrize("jobs", [-1, 1.5])
def test_a_number_of_processes_is_whole(jobs: Any) -> None:
    with pytest.raises(InvalidInput, match="jobs"):
        drawn(jobs)


FOREVER = """
import os, time, numpy as np
from dplateau import Ball, LossGeometry, Potential, sample

def slow(x):
    print(os.getpid(), flush=True)
    time.sleep(0.05)
    return x

bowl = Potential(slow, LossGeometry(lipschitz=np.inf, convex=True, smoothness=1.0))
print("start", flush=True)
sample(bowl, Ball(1.0), 10**6, learning_rate=0.1, dimension=2, warmup=0, chains=2, jobs=2)
"""


def test_an_interrupt_ends_every_process() -> None:
    running = subprocess.Popen(
        [sys.executable, "-c", FOREVER], stdout=subprocess.PIPE, text=True, start_new_session=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert running.stdout is not None
    seen: set[int] = set()
    for line in running.stdout:
        seen |= {int(line)} - {running.pid} if line.strip().isdigit() else set()
        if len(seen) == 2:
            break
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=60) != 0
    running.stdout.close()
    for _ in range(600):
        if not any(map(alive, seen)):
            return
        time.sleep(0.1)
    raise AssertionError("a process went on")


def alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
