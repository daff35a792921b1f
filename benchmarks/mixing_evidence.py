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
from dplateau.ground.types import FloatArray
from dplateau.sampling import theorem_4_2

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from mixing_truth import extreme_nodes, grid_chain

LEVEL = 0.01
# Truths below this are rounding errors, and chains longer than this are not followed.
ROUNDING, MOST_STEPS = 1e-9, 4000
INTERVAL = Box(-1.0, 1.0)
SQUARE = Box([-0.7, -0.7], [0.7, 0.7])


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

    @property
    def run(self) -> Run:
        """The chain."""
        return ProjectedLangevin(
            steps=1,
            learning_rate=self.learning_rate,
            domain=self.body,
            loss=self.loss,
            dimension=None if isinstance(self.body, Box) else 2,
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
    Case("uniform", SQUARE, 0.02, geometry(smoothness=1e-9), flat, panels=(3, 4)),
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
)


def examine(case: Case) -> Finding:
    certificate = certify_mixing(case.run, tv=LEVEL)
    last = min(certificate.steps, MOST_STEPS)
    steps = np.unique(np.geomspace(1, last, 25).round().astype(np.int64))
    claims = tv_over_steps(case.run, steps)
    coarse, fine = (
        grid_chain(case.run, case.gradient, panels=panels, corners=case.corners)
        for panels in case.panels
    )
    truths, _ = fine.apart(steps, extreme_nodes(fine, 8))
    others, _ = coarse.apart(steps, extreme_nodes(coarse, 8))
    seen = truths > ROUNDING
    return Finding(
        case=case,
        losses=certificate.witness["blocks"][0]["losses"],
        certified=certificate.steps,
        truth=fine.first_below(LEVEL, extreme_nodes(fine, 8), last),
        published=theorem_4_2(case.run, LEVEL).steps,
        least_ratio=float(np.min(claims[seen] / truths[seen])),
        grid_error=float(np.max(np.abs(truths - others))),
        shortfall=float(np.max(truths - claims)),
    )


def body_name(body: Domain) -> str:
    if isinstance(body, Box):
        sides = " x ".join(
            f"[{low:g}, {high:g}]"
            for low, high in zip(np.atleast_1d(body.lower), np.atleast_1d(body.upper), strict=True)
        )
        return sides
    return f"disc of radius {body.diameter / 2:g}"


def rows(findings: list[Finding]) -> list[tuple[str, ...]]:
    return [
        (
            found.case.name,
            body_name(found.case.body),
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
