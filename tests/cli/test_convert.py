"""The command ``convert`` as a user runs it."""

from __future__ import annotations

import json

import pytest

from command_line import here, process


def test_four_conversions_beside_each_other() -> None:
    """Golden: closed forms, and the primal problem of the exact one minimized to 1e-12."""
    done = process("convert", "--alpha", "10", "--zeta", "1", "--delta", "1e-5")
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    for way, epsilon in {
        "classic": "2.279214",
        "balle": "1.918011",
        "linearized": "2.023358",  # 2.0233574, rounded up
        "optimal": "1.917997",
    }.items():
        assert words[words.index(way) + 1] == epsilon


def test_each_of_the_three_can_be_asked_for() -> None:
    asked = {
        "epsilon": "--zeta 1 --delta 1e-5",
        "delta": "--zeta 1 --epsilon 1.9179969358147804",
        "zeta": "--epsilon 1.9179969358147804 --delta 1e-5",
    }
    values = {"epsilon": 1.9179969358147804, "delta": 1e-5, "zeta": 1.0}
    for name, options in asked.items():
        done = here(*f"convert --alpha 10 {options} --json".split())
        found = json.loads(done.stdout)
        assert found["asked"] == name
        assert found[name]["optimal"] == pytest.approx(values[name], rel=1e-6)


def test_nothing_follows_is_no_number() -> None:
    done = here("convert", "--alpha", "2", "--zeta", "1", "--delta", "0", "--json")
    assert json.loads(done.stdout)["epsilon"]["classic"] is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--zeta one --delta 1e-5", "'--zeta': 'one' is not a number"),
        ("--zeta 1", "needs two of --zeta, --epsilon and --delta and gives the third; got --zeta"),
        ("", "got none of them"),
        ("--zeta 1 --epsilon 1 --delta 1", "got --zeta and --epsilon and --delta"),
        ("--zeta -1 --delta 1e-5", "a Rényi divergence is zero or positive; got zeta down to -1"),
        ("--zeta 1 --delta 2", "delta is a probability, from 0 to 1; got 2"),
    ],
)
def test_refusals_are_one_line(options: str, text: str) -> None:
    done = here(*f"convert --alpha 10 {options}".split())
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
