"""Draw docs/images/per-record.png: delta over epsilon for single records of one pass.

    python benchmarks/per_record.py [FILE]

The settings are those of figures 2 and 3 of Asoodeh, Diaz and Calmon (ISIT 2020): forty records,
one per step, a domain of diameter one; the strong convexity is a ridge here. Colors tell records
apart, dashes tell arguments apart, and the black line holds for every record if the pass stops at a
random step (or goes in random order).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dplateau import Ball, LossGeometry, OnePassSGD
from dplateau.algorithms import Run
from dplateau.bounds.registry import bound_named
from dplateau.curves import PrivacyCurve

TARGET = Path(__file__).parents[1] / "docs" / "images" / "per-record.png"
SHARED: dict[str, Any] = {"n": 40, "domain": Ball(0.5), "neighbors": "replace", "release": "last"}
CONVEX = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5)
LESS = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.3)
PANELS = (
    (
        "convex losses, noise 2, step 0.5",
        OnePassSGD(learning_rate=0.5, noise_std=2.0, loss=CONVEX, **SHARED),
        1.5,
    ),
    (
        "convex losses and a ridge of 0.2, noise 1, step 0.7",
        OnePassSGD(learning_rate=0.7, l2=0.2, noise_std=1.0, loss=LESS, **SHARED),
        4.0,
    ),
)
RECORDS = {20: "#0072B2", 35: "#D55E00", 39: "#009E73", 40: "#CC79A7"}
ARGUMENTS = {
    "one_pass_hybrid": ("best of all", "-", 2.2),
    "one_pass_contraction": ("shift program alone", "--", 1.2),
    "mixing_rdp": ("Balle et al. 2019", ":", 1.4),
}
LOWEST = 1e-12


def delta_curve(curve: PrivacyCurve, epsilons: np.ndarray) -> np.ndarray:
    """Return delta at each epsilon; what leaves the picture is left out."""
    found = np.array([curve.delta(float(epsilon)) for epsilon in epsilons])
    return np.where(found < LOWEST / 100, np.nan, found)


def draw(ax: Any, title: str, run: Run, most: float) -> None:
    """Draw every argument for every record, and what all records share."""
    epsilons = np.linspace(0.0, most, 121)
    for name, (_, dashes, width) in ARGUMENTS.items():
        bound: Any = bound_named(name)
        for record, color in RECORDS.items():
            values = delta_curve(bound.record_curve(run, record - 1), epsilons)
            ax.plot(epsilons, values, color=color, linestyle=dashes, linewidth=width)
    stop, mean = run.replace(release="random_stop"), bound_named("random_stop_mean")
    values = delta_curve(mean.curve(stop, mean.plan(stop, 1e-5)), epsilons)
    ax.plot(epsilons, values, color="black", linestyle="-.", linewidth=2.2)
    ax.set(yscale="log", ylim=(LOWEST, 1.5), xlim=(0.0, most), xlabel="epsilon")
    ax.set_title(title, fontsize=10)
    ax.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def figure() -> Figure:
    """Return both panels with one key."""
    found = Figure(figsize=(9.6, 4.6), layout="constrained")
    axes = found.subplots(1, 2, sharey=True)
    for ax, (title, run, most) in zip(axes, PANELS, strict=True):
        draw(ax, title, run, most)
    axes[0].set_ylabel("delta")
    colors = [
        Line2D([], [], color=color, linewidth=2.2, label=f"record {record} of 40")
        for record, color in RECORDS.items()
    ]
    styles = [
        Line2D([], [], color="#444444", linestyle=dashes, linewidth=width, label=label)
        for label, dashes, width in ARGUMENTS.values()
    ]
    alike = Line2D(
        [],
        [],
        color="black",
        linestyle="-.",
        linewidth=2.2,
        label="any record, random stop or order",
    )
    found.legend(
        handles=[*colors, *styles, alike], loc="outside lower center", ncols=4, frameon=False
    )
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    figure().savefig(place, dpi=130)
    print(place)
