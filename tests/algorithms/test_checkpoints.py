"""Checkpoints as a promise: how they are stated, cut a run into stretches, and survive JSON."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplateau import Checkpoints, InvalidInput, NoisyGD
from dplateau.algorithms import run_from_dict
from dplateau.algorithms.release import release_of

RUN = NoisyGD(n=10, steps=20, noise_multiplier=3.0, release="last")


@st.composite
def stated(draw: st.DrawFn) -> tuple[int, Checkpoints]:
    steps = draw(st.integers(1, 60))
    match draw(st.sampled_from(["every", "at", "last"])):
        case "every":
            return steps, Checkpoints(every=draw(st.integers(1, 80)))
        case "last":
            return steps, Checkpoints(last=draw(st.integers(1, steps)))
        case _:
            times = draw(st.sets(st.integers(1, steps), min_size=1))
            return steps, Checkpoints(at=sorted(times))


@given(stated())
def test_stretches_fill_the_run_between_its_releases(case: tuple[int, Checkpoints]) -> None:
    steps, release = case
    times = release.times(steps)
    assert times == sorted(set(times))
    assert times[-1] == steps
    lengths = [length for length, count in release.segments(steps) for _ in range(count)]
    assert [sum(lengths[: i + 1]) for i in range(len(lengths))] == times
    if release.every is not None:
        assert set(times) == {*range(release.every, steps + 1, release.every), steps}
    if release.last is not None:
        assert times == list(range(steps - release.last + 1, steps + 1))
    if release.at is not None:
        assert set(times) == {*release.at, steps}


@given(stated())
def test_a_run_with_checkpoints_survives_json(case: tuple[int, Checkpoints]) -> None:
    steps, release = case
    run = RUN.replace(steps=steps, release=release)
    found = run.to_dict()
    assert found["release"]["kind"] == "checkpoints"
    again = run_from_dict(found)
    assert again == run
    assert again.to_dict() == found
    assert eval(repr(release), {"Checkpoints": Checkpoints}) == release


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "state the checkpoints once: every=k, at=.* got none"),
        ({"every": 3, "last": 2}, "got every and last"),
        ({"every": 0}, "every must be at least 1; got 0"),
        ({"every": 2.5}, "every must be a whole number; got 2.5"),
        ({"last": True}, "last must be a real number; got True"),
        ({"at": []}, "at is a list of numbers of steps"),
        ({"at": "12"}, "at is a list of numbers of steps"),
        ({"at": [3, 3]}, r"checkpoints must rise; got at=\[3, 3\]"),
        ({"at": [0, 3]}, "a checkpoint must be at least 1; got 0"),
    ],
)
def test_checkpoints_that_say_nothing_are_refused(options: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Checkpoints(**options)


@pytest.mark.parametrize(
    ("release", "text"),
    [
        (Checkpoints(at=[5, 21]), "a checkpoint at step 21 of a run of 20 steps"),
        (Checkpoints(last=21), "the last 21 iterates of a run of 20 steps"),
        ("checkpoints", r"which checkpoints\? say release=Checkpoints\(every=100\)"),
        ({"kind": "checkpoints", "each": 3}, "a release is a name or checkpoints; got"),
        ({"every": 3}, "a release is a name or checkpoints; got"),
    ],
)
def test_releases_that_no_run_can_have_are_refused(release: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        RUN.replace(release=release)


def test_checkpoints_are_no_averages() -> None:
    with pytest.raises(InvalidInput, match="checkpoints are iterates, not averages"):
        RUN.replace(release=Checkpoints(every=5), average_last=2)


def test_plain_names_stay_what_they_were() -> None:
    assert RUN.to_dict()["release"] == "last"
    assert release_of("all").name == "all"
    assert release_of(Checkpoints(every=2)) == Checkpoints(every=2)
