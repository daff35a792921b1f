"""Which bound wins where: every bound on a list of representative runs, as a page of the docs.

python benchmarks/winners.py             # print the tables
python benchmarks/winners.py --write     # and write docs/which-bound-wins.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dplateau import (
    Ball,
    Comparison,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    compare,
    per_record,
)
from dplateau.algorithms import Run
from dplateau.ground.files import write_whole

DELTA = 1e-5
PAGE = Path(__file__).resolve().parents[1] / "docs" / "which-bound-wins.md"
SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
NONSMOOTH = LossGeometry(lipschitz=1.0, convex=True)
WEAKLY = LossGeometry(lipschitz=1.0, convex=True, holder=(0.5, 0.01))
NONCONVEX = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.02)
BARELY = LossGeometry(lipschitz=1.0, convex=False, smoothness=1e-4)
DISSIPATIVE = LossGeometry(lipschitz=1.0, convex=False, smoothness=0.05, dissipativity=(1e-6, 0.04))
LIPSCHITZ = LossGeometry(lipschitz=1.0, convex=False)

FULL: dict[str, Any] = {
    "n": 1000,
    "steps": 2000,
    "learning_rate": 1.0,
    "noise_multiplier": 30.0,
    "loss": SMOOTH,
    "release": "last",
}
SAMPLED: dict[str, Any] = {
    "n": 60_000,
    "batch_size": 600,
    "epochs": 50,
    "learning_rate": 2.0,
    "noise_multiplier": 1.0,
    "loss": SMOOTH,
    "release": "last",
}
SMALL: dict[str, Any] = {
    "n": 400,
    "batch_size": 8,
    "steps": 3000,
    "learning_rate": 0.4,
    "noise_multiplier": 4.0,
    "domain": Ball(0.05),
    "neighbors": "replace",
    "release": "last",
}
WIDER = {**SMALL, "domain": Ball(0.4), "steps": 30_000}
CYCLIC: dict[str, Any] = {
    "n": 400,
    "batch_size": 10,
    "epochs": 50,
    "learning_rate": 0.5,
    "l2": 1e-3,
    "noise_multiplier": 3.0,
    "loss": SMOOTH,
    "release": "last",
}
PASS: dict[str, Any] = {
    "n": 40,
    "learning_rate": 0.5,
    "noise_std": 2.0,
    "domain": Ball(0.5),
    "loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=1.0),
    "release": "last",
}
NARROW = Ball(0.002)

RUNS: dict[str, dict[str, Run]] = {
    "Full batch": {
        "ridge, c = .98": NoisyGD(**FULL, l2=0.02),
        "bounded, no ridge": NoisyGD(**FULL, domain=Ball(0.1)),
        "bounded, five steps": NoisyGD(**{**FULL, "steps": 5}, domain=Ball(0.1)),
        "nonsmooth, bounded": NoisyGD(**{**FULL, "loss": NONSMOOTH}, domain=Ball(0.1)),
        "weakly smooth, bounded": NoisyGD(**{**FULL, "loss": WEAKLY}, domain=Ball(0.1)),
        "nonconvex, bounded": NoisyGD(**{**FULL, "loss": BARELY}, domain=Ball(0.1)),
        "Langevin, bounded": ProjectedLangevin(
            n=5, steps=20_000, learning_rate=0.02, loss=SMOOTH, domain=Ball(0.1), release="last"
        ),
        "iterates released": NoisyGD(**{**FULL, "release": "all"}, l2=0.02),
    },
    "Poisson batches": {
        "ridge c = .99, q = .01": NoisySGD(**SAMPLED, l2=0.005),
        "ridge c = .9, q = .1, z = 2": NoisySGD(
            **{**SAMPLED, "batch_size": 6000, "noise_multiplier": 2.0}, l2=0.05
        ),
        "ridge, q = .7, z = 8": NoisySGD(
            **{**SAMPLED, "n": 1000, "batch_size": 700, "noise_multiplier": 8.0}, l2=0.05
        ),
        "bounded, no ridge": NoisySGD(
            **{**SAMPLED, "noise_multiplier": 4.0, "epochs": 500}, domain=Ball(0.05)
        ),
        "narrow domain": NoisySGD(**{**SAMPLED, "noise_multiplier": 4.0}, domain=NARROW),
        "ridge, a short run": NoisySGD(**{**SAMPLED, "epochs": 0.2}, l2=0.005),
        "weakly smooth, bounded": NoisySGD(
            **{**SMALL, "neighbors": "add_remove", "loss": WEAKLY, "noise_multiplier": 2.0}
        ),
        "nonconvex, bounded": NoisySGD(
            **{**SMALL, "neighbors": "add_remove", "loss": BARELY, "noise_multiplier": 2.0}
        ),
        "replace, ridge": NoisySGD(**{**SAMPLED, "noise_multiplier": 2.0}, l2=0.005).replace(
            neighbors="replace"
        ),
        "replace, weakly smooth, bounded": NoisySGD(**SMALL, loss=WEAKLY),
        "replace, weakly smooth, wider domain": NoisySGD(**WIDER, loss=WEAKLY),
        "iterates released": NoisySGD(**{**SAMPLED, "release": "all"}),
        "iterates released, replace": NoisySGD(
            **{**SAMPLED, "release": "all"}, neighbors="replace"
        ),
    },
    "Fixed-size batches": {
        "ridge": NoisySGD(**{**SMALL, "domain": None}, loss=SMOOTH, l2=0.05, sampling="fixed"),
        "bounded, no ridge": NoisySGD(**SMALL, loss=SMOOTH, sampling="fixed"),
        "weakly smooth, bounded": NoisySGD(**SMALL, loss=WEAKLY, sampling="fixed"),
        "nonconvex, bounded": NoisySGD(**SMALL, loss=NONCONVEX, sampling="fixed"),
        "dissipative, bounded": NoisySGD(**SMALL, loss=DISSIPATIVE, sampling="fixed"),
        "nonsmooth, bounded": NoisySGD(**SMALL, loss=NONSMOOTH, sampling="fixed"),
        "weakly smooth, wider domain": NoisySGD(**WIDER, loss=WEAKLY, sampling="fixed"),
        "dissipative, wider domain": NoisySGD(**WIDER, loss=DISSIPATIVE, sampling="fixed"),
        "any Lipschitz loss, narrow domain": NoisySGD(
            **{**SMALL, "noise_multiplier": 60.0, "domain": Ball(0.2)},
            loss=LIPSCHITZ,
            sampling="fixed",
        ),
        "ridge, ten steps": NoisySGD(
            **{**SMALL, "steps": 10, "domain": None}, loss=SMOOTH, l2=0.05, sampling="fixed"
        ),
    },
    "Batches in turn": {
        "cyclic, ridge": CyclicSGD(**CYCLIC),
        "shuffled once, ridge": CyclicSGD(**CYCLIC, order="shuffle_once"),
        "reshuffled, ridge": CyclicSGD(**CYCLIC, order="reshuffle"),
        "cyclic, weakly smooth, bounded": CyclicSGD(
            **{**CYCLIC, "loss": WEAKLY, "l2": 0.0}, domain=Ball(0.05)
        ),
        "cyclic, one epoch": CyclicSGD(**{**CYCLIC, "epochs": 1}),
        "shuffled, one epoch, bounded": CyclicSGD(
            **{**CYCLIC, "epochs": 1}, order="reshuffle", domain=Ball(0.05)
        ),
        "cyclic, iterates released": CyclicSGD(**{**CYCLIC, "release": "all"}),
    },
    "One pass": {
        "last record": OnePassSGD(**PASS),
        "last record, nonconvex": OnePassSGD(**{**PASS, "loss": NONCONVEX}),
        "random stop": OnePassSGD(**{**PASS, "release": "random_stop"}),
        "random stop, long": OnePassSGD(
            **{**PASS, "release": "random_stop", "n": 1000, "domain": Ball(0.1)}
        ),
        "random stop, Lipschitz losses": OnePassSGD(
            **{**PASS, "release": "random_stop", "n": 1000, "domain": Ball(0.1), "loss": LIPSCHITZ}
        ),
    },
}

INTRO = """# Which bound wins where

Every bound on a list of representative runs, at delta = 1e-5, as `benchmarks/winners.py --write`
found them: the smallest proved epsilon and its bound, the next best bound, and the best of the
bounds that hide nothing (what an accountant for released iterates would report). The last column
is the share of that which is left. The runs are listed in the script.
"""

OUTRO = """## How to read them

- *Ridge makes steps contract.* Full batch: `gd_contraction` is exact. Poisson: `poisson_blocks`,
  with replaced records `poisson_blocks_replace`. Batches of one size: `fixed_size_averaged`.
  Sampling rates near 1: `every_batch`.
- *A bounded domain caps the distance.* With little noise beside the domain the shift plans win.
  Where one step's noise covers the domain, a step nearly forgets where it came from, and the
  recursions of the hockey stick win, whatever the losses.
- *Weakly smooth, mildly nonconvex or dissipative losses* still have a plateau on a bounded domain
  (`modulus`, `poisson_modulus`, `fixed_size_modulus`, `poisson_replace_modulus`). Nonsmooth losses
  jump by `2 eta L` at each step, which little noise cannot hide: composition mostly remains.
- *Short runs* and *released iterates*: composition. PLD composition is the best of its kind.
- *One pass*: early records are hidden by the steps after them; neither the shifts nor the
  contraction of the hockey stick wins everywhere.

`compare(run, delta)` makes the same table for your own run, with the reason why each other bound
says nothing.
"""


def rows() -> Iterator[tuple[str, str, Comparison]]:
    for section, runs in RUNS.items():
        for name, run in runs.items():
            yield section, name, compare(run, DELTA)


def line(name: str, found: Comparison) -> str:
    said = [row for row in found.rows if row.epsilon is not None and row.sound]
    best = said[0]
    second = next((row for row in said[1:] if row.bound != best.bound), None)
    shown = next(row for row in said if not row.hidden_state)
    assert best.epsilon is not None
    assert shown.epsilon is not None
    other = "-" if second is None else f"`{second.bound}` {second.epsilon:.4g}"
    left = best.epsilon / shown.epsilon
    composed = f"{shown.epsilon:.4g}"
    return f"| {name} | `{best.bound}` | {best.epsilon:.4g} | {other} | {composed} | {left:.0%} |"


def records() -> list[str]:
    """Show single records of one pass, where the order is known."""
    found = per_record(OnePassSGD(**PASS), delta=DELTA)
    turns = (20, 25, 30, 34, 37, 39, 40)
    shown = [
        ["turn", *map(str, turns)],
        ["---"] * (len(turns) + 1),
        ["epsilon", *(f"{found.epsilons[turn - 1]:.3g}" for turn in turns)],
        ["wins", *(f"`{found.bounds[turn - 1]}`" for turn in turns)],
    ]
    title = "Single records of the first of these runs, by their turn:"
    return ["", title, "", *(f"| {' | '.join(cells)} |" for cells in shown)]


def tables() -> str:
    lines: list[str] = []
    shown = ""
    for section, name, found in rows():
        if section != shown:
            shown = section
            lines += ["", f"## {section}", ""]
            lines.append("| run | wins | epsilon | next best | released | left |")
            lines.append("|---|---|---|---|---|---|")
        lines.append(line(name, found))
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join([*lines, *records()]).strip()


def main() -> None:
    page = f"{INTRO}\n{tables()}\n\n{OUTRO}"
    print(page)
    if "--write" in sys.argv[1:]:
        write_whole(PAGE, page)


if __name__ == "__main__":
    main()
