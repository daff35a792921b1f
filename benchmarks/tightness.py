"""Set claims against the exact adversary, regime by regime, and draw some of them over T.

python benchmarks/tightness.py            # print the table
python benchmarks/tightness.py --write    # and put it, with the pictures, into docs/
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from dplateau import (
    Ball,
    CyclicSGD,
    LossGeometry,
    NoisyGD,
    NoisySGD,
    OnePassSGD,
    ProjectedLangevin,
    certify,
)
from dplateau.algorithms import Run
from dplateau.audit import tightness_over_steps
from dplateau.audit.against_claims import Tightness, tightness
from dplateau.audit.problems import WalkProblem
from dplateau.certificates import step_counts
from dplateau.plots import TightnessDisplay

DELTA = 1e-5
DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"
SMOOTH = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)


def poisson(c: float, q: float, z: float, steps: int) -> Run:
    return NoisySGD(
        n=60_000,
        sampling_rate=q,
        steps=steps,
        learning_rate=2.0,
        l2=(1 - c) / 2,
        noise_multiplier=z,
        loss=SMOOTH,
        release="last",
    )


def full(**changes: Any) -> Run:
    return NoisyGD(
        **{"n": 1000, "steps": 1000, "learning_rate": 1.0, "loss": SMOOTH, "release": "last"}
        | changes
    )


def cycle(**changes: Any) -> Run:
    return CyclicSGD(
        **{"n": 1000, "batch_size": 25, "learning_rate": 2.0, "noise_multiplier": 3.0}
        | {"loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5), "release": "last"}
        | changes
    )


def one_pass(**changes: Any) -> Run:
    return OnePassSGD(
        **{"n": 1000, "batch_size": 25, "learning_rate": 2.0, "noise_multiplier": 1.5}
        | {"loss": LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5), "release": "last"}
        | changes
    )


# Regime, setting, run, and whether others are taken in the limit of many records.
ROWS: list[tuple[str, str, Run, bool]] = [
    ("full batch, ridge", "c .98, T 1000", full(l2=0.02, noise_multiplier=40.0), False),
    ("full batch, ridge", "c .5, T 20", full(l2=0.5, steps=20, noise_multiplier=10.0), False),
    ("full batch, every iterate out", "T 100", full(steps=100, noise_multiplier=40.0,
     release="all"), False),
    ("full batch, ball", "D 100 noises, T 1000", full(noise_multiplier=20.0, domain=Ball(1.0)),
     False),
    ("full batch, ball", "D 20 noises, T 10000", full(steps=10_000, noise_multiplier=20.0,
     domain=Ball(0.2)), False),
    ("full batch, ball, nonsmooth", "D 20 noises, T 100", full(noise_multiplier=20.0, steps=100,
     domain=Ball(0.2), loss=LossGeometry(lipschitz=1.0, convex=True)), False),
    ("full batch, ball, nonconvex", "D 20 noises, T 100", full(noise_multiplier=20.0, steps=100,
     domain=Ball(0.2), loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=0.1)), False),
    ("full batch, ball, strongly convex losses", "m .02, T 1000", full(noise_multiplier=20.0,
     domain=Ball(1.0), loss=LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25,
     strong_convexity=0.02)), False),
    ("Langevin, ball", "T 1000", ProjectedLangevin(n=100, steps=1000, learning_rate=0.01,
     domain=Ball(1.0), loss=SMOOTH, release="last"), False),
    ("one pass, last record", "40 batches", one_pass(), False),
    ("one pass, last record", "1000 batches of 1", one_pass(batch_size=1), False),
    ("one pass, random stop", "10 batches", one_pass(batch_size=100, release="random_stop"), False),
    ("one pass, ball", "40 batches, D 5 noises", one_pass(domain=Ball(0.3)), False),
    ("cyclic", "40 batches, 5 epochs", cycle(epochs=5), False),
    ("cyclic, ridge", "c .99, 10 batches, 20 epochs", cycle(batch_size=100, epochs=20, l2=0.005),
     False),
    ("shuffled once", "10 batches, 5 epochs", cycle(batch_size=100, epochs=5,
     order="shuffle_once"), False),
    ("reshuffled", "4 batches, 5 epochs", cycle(batch_size=250, epochs=5, order="reshuffle"),
     False),
    ("fixed-size batches, ridge", "c .95, q .05, T 500", NoisySGD(n=1000, batch_size=50, steps=500,
     learning_rate=0.5, l2=0.1, noise_multiplier=4.0, loss=SMOOTH, sampling="fixed",
     neighbors="replace", release="last"), False),
    ("Poisson, ball", "q .02, D 20 noises, T 2000", NoisySGD(n=50_000, batch_size=1000, steps=2000,
     learning_rate=1.0, noise_multiplier=2.0, loss=SMOOTH, domain=Ball(0.02), release="last"),
     True),
    *(("Poisson, ridge", f"c {c:g}, q {q:g}, z {z:g}, T {t}", poisson(c, q, z, t), False)
      for c, q, z, t in [(0.99, 0.01, 1.0, 5_000), (0.99, 0.01, 2.0, 20_000),
                         (0.95, 0.05, 2.0, 2_000), (0.995, 0.02, 4.0, 20_000),
                         (0.9, 0.1, 2.0, 1_000), (0.98, 0.1, 5.0, 5_000),
                         (0.999, 0.01, 4.0, 50_000)]),
]  # fmt: skip

PICTURES: dict[str, tuple[Run, int, bool]] = {
    "tightness-ridge": (full(l2=0.02, noise_multiplier=40.0), 10_000, False),
    "tightness-ball": (full(noise_multiplier=20.0, domain=Ball(0.6)), 10_000, False),
    "tightness-cyclic": (cycle(epochs=1), 4_000, False),
    "tightness-poisson": (poisson(0.99, 0.01, 2.0, 1), 20_000, False),
}


def in_words(problem: WalkProblem) -> str:
    """Say what the other records do in the worst problem found."""
    found = []
    if problem.is_pulled:
        pull = max(problem.pull) if isinstance(problem.pull, tuple) else problem.pull
        found.append("repelled" if pull < 0 else "curved")
    if any(problem.drift) if isinstance(problem.drift, tuple) else problem.drift:
        found.append("sloped")
    return " and ".join(found) or "zero"


def row(regime: str, setting: str, run: Run, limit: bool) -> str:
    found: Tightness = tightness(certify(run, DELTA), effort="normal", limit=limit)
    others = in_words(found.problem) + (" (limit)" if limit else "")
    cells = (regime, setting, f"`{found.bound}`", f"{found.upper:.4f}")
    return "| " + " | ".join(
        (*cells, f"{found.lower.epsilon:.4f}", others, f"{found.ratio:.2f}")
    ) + " |"  # fmt: skip


def table() -> str:
    lines = [
        "| regime | setting | bound | claim | needed | other losses | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in ROWS:
        began = time.perf_counter()
        lines.append(row(*entry))
        print(f"{lines[-1]}  {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return "\n".join(lines)


def write(found: str) -> None:
    page = DOCS / "tightness.md"
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{found}\n{END}{after}", encoding="utf-8")


def draw() -> None:
    for name, (run, longest, limit) in PICTURES.items():
        curve = tightness_over_steps(run, DELTA, step_counts(run, 1, longest, 22), limit=limit)
        TightnessDisplay.from_curve(curve).save(DOCS / "images" / f"{name}.png")


def main() -> None:
    if "--pictures" not in sys.argv[1:]:
        found = table()
        print(found)
        if "--write" not in sys.argv[1:]:
            return
        write(found)
    draw()


if __name__ == "__main__":
    main()
