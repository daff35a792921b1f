"""Hold mixing certificates against the exact law of small chains, and print a table.

    python benchmarks/mixing_evidence.py [--quick] [--markdown]

Every chain is computed twice, on a grid and on a finer one; the table shows by how much the two
differ. The certificate must lie above the truth at every number of steps up to its own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dplateau import Ball, Box, LossGeometry, ProjectedLangevin, certify_mixing, tv_over_steps
from dplateau.algorithms import Domain, Run
from dplateau.ground.types import FloatArray, IntArray
from dplateau.sampling import theorem_4_2

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from mixing_truth import GridChain, extreme_nodes, grid_chain

LEVEL = 0.01
# Truths below this are rounding errors, and chains longer than this are not followed.
ROUNDING, MOST_STEPS = 1e-9, 4000
INTERVAL = Box(-1.0, 1.0)
SQUARE = Box([-0.7, -0.7], [0.7, 0.7])
EDGE = Box(-0.5, 0.5)


@dataclass(frozen=True)
class Case:
    """A potential with its true constants on a body, and how finely to compute its chain."""

    name: str
    body: Domain
    learning_rate: float
    loss: LossGeometry
    gradient: Callable[[FloatArray], FloatArray]
    corners: tuple[float, ...] = ()
    panels: tuple[int, int] = (20, 40)
    copies: int = 1

    @property
    def run(self) -> Run:
        """The chain; of a product, with all of its coordinates."""
        body = self.body
        if isinstance(body, Box) and self.copies > 1:
            body = Box(np.repeat(body.lower, self.copies), np.repeat(body.upper, self.copies))
        return self._run_on(body)

    @property
    def one(self) -> Run:
        """One coordinate's chain."""
        return self._run_on(self.body)

    def _run_on(self, body: Domain) -> Run:
        return ProjectedLangevin(
            steps=1,
            learning_rate=self.learning_rate,
            domain=body,
            loss=self.loss,
            dimension=None if isinstance(body, Box) else 2,
            release="last",
        )


@dataclass(frozen=True)
class Finding:
    """What the exact chain says about one certificate."""

    case: Case
    losses: str
    certified: int
    truth: int
    published: int | None
    least_ratio: float
    grid_error: float
    shortfall: float


def geometry(**known: object) -> LossGeometry:
    return LossGeometry(**{"lipschitz": math.inf, "convex": True, **known})  # type: ignore[arg-type]


def flat(x: FloatArray) -> FloatArray:
    return np.zeros_like(x)


def root(x: FloatArray) -> FloatArray:
    return 2 * np.sign(x) * np.sqrt(np.abs(x))


def wells(x: FloatArray) -> FloatArray:
    """Gradient of (4 x^2 - 1)^2 / 32: two wells at 1/2 and -1/2 (curvature from -0.5 to 5.5)."""
    return x * (4 * x**2 - 1) / 2


def waves(x: FloatArray) -> FloatArray:
    """Gradient of 1.5 x^2 + (2/3) cos(3 x): curvature from -3 to 9.

    The waves change by at most 4, so <g(x) - g(y), d> >= 3 d^2 - 4 d >= 1.5 d^2 - 8/3.
    """
    return 3 * x - 2 * np.sin(3 * x)


def posterior(x: FloatArray) -> FloatArray:
    """Gradient of 6 log(1 + e^-x) + 2 log(1 + e^x): six records of one class, two of the other."""
    return (2 * np.exp(x) - 6) / (1 + np.exp(x))


def well_and_bowl(x: FloatArray) -> FloatArray:
    """Gradient of a double well in the first coordinate and 2 x^2 in the second."""
    return np.stack([wells(x[:, 0]), 4 * x[:, 1]], axis=1)


CASES = (
    Case("uniform", INTERVAL, 0.02, geometry(smoothness=1e-9), flat),
    Case("uniform", INTERVAL, 0.002, geometry(smoothness=1e-9), flat, panels=(30, 60)),
    Case(
        "Gaussian 2 x^2",
        INTERVAL,
        0.02,
        geometry(smoothness=4.0, strong_convexity=4.0),
        lambda x: 4 * x,
    ),
    Case("2 |x|", INTERVAL, 0.02, geometry(lipschitz=2.0), lambda x: 2 * np.sign(x), (0.0,)),
    Case("|x| / 2", INTERVAL, 0.02, geometry(lipschitz=0.5), lambda x: np.sign(x) / 2, (0.0,)),
    Case(
        "(4/3) |x|^1.5",
        INTERVAL,
        0.02,
        geometry(holder=(0.5, 2 * math.sqrt(2))),
        root,
        (0.0,),
    ),
    Case("double well", INTERVAL, 0.02, geometry(convex=False, smoothness=5.5), wells),
    Case(
        "double well, narrow",
        Box(-0.6, 0.6),
        0.02,
        geometry(convex=False, smoothness=1.66),
        wells,
    ),
    Case(
        "dissipative waves",
        INTERVAL,
        0.02,
        geometry(convex=False, smoothness=9.0, dissipativity=(8 / 3, 1.5)),
        waves,
    ),
    Case("5 x", INTERVAL, 0.02, geometry(lipschitz=5.0, smoothness=1e-9), lambda x: 0 * x + 5),
    Case("x^4", INTERVAL, 0.02, geometry(smoothness=12.0), lambda x: 4 * x**3),
    Case(
        "Gaussian x^2 / 2",
        INTERVAL,
        0.02,
        geometry(smoothness=1.0, strong_convexity=1.0),
        lambda x: x,
    ),
    Case("logistic posterior", Box(-3.0, 3.0), 0.1, geometry(smoothness=2.0), posterior),
    Case("logistic posterior", INTERVAL, 0.02, geometry(smoothness=2.0), posterior),
    Case(
        "Gaussian 2 x^2",
        INTERVAL,
        0.002,
        geometry(smoothness=4.0, strong_convexity=4.0),
        lambda x: 4 * x,
        panels=(30, 60),
    ),
    Case("uniform", SQUARE, 0.02, geometry(smoothness=1e-9), flat, panels=(3, 4)),
    Case(
        "x_1^2 + 4 x_2^2",
        SQUARE,
        0.02,
        geometry(smoothness=8.0, strong_convexity=2.0),
        lambda x: x * np.array([2.0, 8.0]),
        panels=(3, 4),
    ),
    Case(
        "double well and bowl",
        SQUARE,
        0.02,
        geometry(convex=False, smoothness=4.0),
        well_and_bowl,
        panels=(3, 4),
    ),
    Case("uniform", Ball(1.0), 0.02, geometry(smoothness=1e-9), flat, panels=(3, 4)),
    Case(
        "Gaussian |x|^2",
        Ball(1.0),
        0.02,
        geometry(smoothness=2.0, strong_convexity=2.0),
        lambda x: 2 * x,
        panels=(3, 4),
    ),
    Case(
        "|x_1| + |x_2|",
        SQUARE,
        0.02,
        geometry(lipschitz=math.sqrt(2)),
        lambda x: np.sign(x),
        (0.0,),
        (4, 6),
    ),
    Case("uniform", EDGE, 0.02, geometry(smoothness=1e-9), flat, panels=(4, 6), copies=3),
    Case(
        "Gaussian 2 |x|^2",
        EDGE,
        0.02,
        geometry(smoothness=4.0, strong_convexity=4.0),
        lambda x: 4 * x,
        panels=(4, 6),
        copies=3,
    ),
    Case(
        "|x_1| + |x_2| + |x_3|",
        EDGE,
        0.02,
        geometry(lipschitz=math.sqrt(3)),
        lambda x: np.sign(x),
        (0.0,),
        (4, 6),
        copies=3,
    ),
)


class ProductChain:
    """Independent coordinates that all start at the same place, as laws of one of them."""

    def __init__(self, one: GridChain, copies: int) -> None:
        self.one, self.copies = one, copies

    def _apart(self, laws: FloatArray) -> float:
        """Return the largest total variation between two of the joint laws."""
        joint = laws
        for _ in range(self.copies - 1):
            joint = (joint[:, :, None] * laws[:, None, :]).reshape(len(laws), -1)
        return float(max(np.abs(joint - law).sum(axis=1).max() for law in joint) / 2)

    def apart(self, steps: IntArray, starts: IntArray) -> tuple[FloatArray, ...]:
        """Return worst total variations after each number of steps (which must rise)."""
        laws, done, found = np.eye(len(self.one.kernel))[starts], 0, []
        for count in steps:
            while done < count:
                laws, done = laws @ self.one.kernel, done + 1
            found.append(self._apart(laws))
        return (np.array(found),)

    def first_below(self, level: float, starts: IntArray, most: int) -> int:
        """Return the first number of steps after which all starts are within ``level``."""
        laws = np.eye(len(self.one.kernel))[starts]
        for step in range(1, most + 1):
            laws = laws @ self.one.kernel
            if self._apart(laws) <= level:
                return step
        return most + 1


def chain_of(case: Case, panels: int) -> tuple[GridChain | ProductChain, IntArray]:
    """Return the exact chain and the starts to compare."""
    one = grid_chain(case.one, case.gradient, panels=panels, corners=case.corners)
    if case.copies == 1:
        return one, extreme_nodes(one, 8)
    return ProductChain(one, case.copies), extreme_nodes(one, 3)


def examine(case: Case) -> Finding:
    certificate = certify_mixing(case.run, tv=LEVEL)
    last = min(certificate.steps, MOST_STEPS)
    steps = np.unique(np.geomspace(1, last, 25).round().astype(np.int64))
    claims = tv_over_steps(case.run, steps)
    (coarse, their_starts), (fine, starts) = (chain_of(case, panels) for panels in case.panels)
    truths, others = fine.apart(steps, starts)[0], coarse.apart(steps, their_starts)[0]
    seen = truths > ROUNDING
    return Finding(
        case=case,
        losses=certificate.witness["blocks"][0]["losses"],
        certified=certificate.steps,
        truth=fine.first_below(LEVEL, starts, last),
        published=theorem_4_2(case.run, LEVEL).steps,
        least_ratio=float(np.min(claims[seen] / truths[seen])),
        grid_error=float(np.max(np.abs(truths - others))),
        shortfall=float(np.max(truths - claims)),
    )


def body_name(case: Case) -> str:
    """Return the body in words."""
    if isinstance(case.body, Box):
        sides = " x ".join(
            f"[{low:g}, {high:g}]"
            for low, high in zip(
                np.atleast_1d(case.body.lower), np.atleast_1d(case.body.upper), strict=True
            )
        )
        return sides if case.copies == 1 else f"{sides}^{case.copies}"
    return f"disc of radius {case.body.diameter / 2:g}"


def rows(findings: list[Finding]) -> list[tuple[str, ...]]:
    return [
        (
            found.case.name,
            body_name(found.case),
            f"{found.case.learning_rate:g}",
            found.losses,
            str(found.truth),
            str(found.certified),
            f"{found.certified / found.truth:.2f}",
            "-" if found.published is None else str(found.published),
            f"{found.least_ratio:.3f}",
            f"{found.grid_error:.0e}",
        )
        for found in findings
    ]


HEADER = (
    "potential",
    "body",
    "eta",
    "proved by",
    "true steps",
    "certified",
    "ratio",
    "Theorem 4.2",
    "least claim / truth",
    "grid error",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one dimension only")
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    cases = [c for c in CASES if not chosen.quick or c.body in (INTERVAL,)]
    findings = [examine(case) for case in cases]
    table = rows(findings)
    if chosen.markdown:
        for line in (HEADER, ("---",) * len(HEADER), *table):
            print(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |")
    else:
        widths = [max(len(line[i]) for line in (HEADER, *table)) for i in range(len(HEADER))]
        for line in (HEADER, *table):
            print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    # After one step the bound is attained, so the truth may seem above it by its own grid error.
    broken = [f.case.name for f in findings if not f.shortfall <= 2 * f.grid_error + 1e-12]
    if broken:
        raise SystemExit(f"a certificate lies below the truth: {', '.join(broken)}")


if __name__ == "__main__":
    main()
