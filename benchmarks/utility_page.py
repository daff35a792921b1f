"""The table and the pictures of docs/utility.md, from the results of utility.py and run_length.py.

python benchmarks/utility_page.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import run_length
from utility import EPSILONS, METHODS, RESULTS, ROOT, Results

PAGE = ROOT / "docs" / "utility.md"
IMAGES = ROOT / "docs" / "images"
START, END = "<!-- table: made by benchmarks/utility_page.py -->\n", "<!-- end of table -->\n"
NAMES = {
    "mnist": "MNIST, 60000 x 784, ten classes",
    "adult": "Adult, 32561 x 108",
    "imdb_hash4096": "IMDB, 20000 x 4096",
    "digits": "digits, 1438 x 64, ten classes",
    "breast_cancer": "breast cancer, 455 x 30",
    "casp_protein_regression": "CASP, 36584 x 9 (R squared)",
}
# Colors that remain distinct for color-blind readers (Okabe and Ito), and a marker for print.
STYLES = {
    "ours": ("dplateau, no tuning", "#0072B2", "o"),
    "momentum GD, tuned": ("momentum GD, tuned on test", "#E69F00", "s"),
    "DP-SGD (PLD), tuned": ("DP-SGD with PLD, tuned on test", "#009E73", "^"),
    "diffprivlib, best C": ("diffprivlib, best C on test", "#CC79A7", "D"),
}


def cell(scores: list[float], best: float) -> str:
    if not scores:
        return ""
    mean = float(np.mean(scores))
    shown = f"**{mean:.3f}**" if mean == best else f"{mean:.3f}"
    return f"{shown} ± {np.std(scores):.3f}"


def table(results: Results) -> str:
    heads = ["data", "epsilon", *(STYLES[method][0] for method in METHODS), "difference"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for data, title in NAMES.items():
        free = results.scores(data, "not private", "")[0]
        for epsilon in EPSILONS:
            found = [results.scores(data, method, epsilon) for method in METHODS]
            ours, *others = (float(np.mean(scores)) for scores in found if scores)
            cells = [cell(scores, max(ours, *others)) for scores in found]
            name = f"{title}; not private {free:.3f}" if epsilon == EPSILONS[0] else ""
            ahead = f"{100 * (ours - max(others)):+.1f}"
            lines.append("| " + " | ".join([name, f"{epsilon:g}", *cells, ahead]) + " |")
    return "\n".join(lines) + "\n"


def utility_picture(results: Results, path: Path) -> None:
    figure, all_axes = plt.subplots(2, 3, figsize=(10, 6), sharex=True, layout="constrained")
    for axes, (data, title) in zip(all_axes.flat, NAMES.items(), strict=True):
        lowest = 1.0
        for method, (label, color, marker) in STYLES.items():
            found = {e: results.scores(data, method, e) for e in EPSILONS}
            found = {e: scores for e, scores in found.items() if scores}
            if not found:
                continue
            means = [np.mean(scores) for scores in found.values()]
            errors = [np.std(scores) for scores in found.values()]
            axes.errorbar(list(found), means, errors, label=label, color=color, marker=marker,
                          markersize=4, linewidth=1.4, capsize=2)  # fmt: skip
            if method != "diffprivlib, best C":
                lowest = min(lowest, *means)
        free = results.scores(data, "not private", "")[0]
        axes.axhline(free, color="0.4", linestyle=":", linewidth=1, label="not private")
        # The peer that falls far below would flatten all other curves.
        gap = free - lowest
        axes.set_ylim(lowest - 0.35 * gap, free + 0.1 * gap)
        axes.set_title(title, fontsize=10)
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axes.minorticks_off()
    for axes in all_axes[1]:
        axes.set_xlabel("epsilon (delta = 1e-5)")
    for axes in all_axes[:, 0]:
        axes.set_ylabel("test accuracy")
    all_axes[1, 2].set_ylabel("R squared")
    handles, labels = all_axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    figure.savefig(path, dpi=150)


def length_picture(results: Results, planned: float, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    colors = {"every iterate charged": "#E69F00", "only the last iterate leaves": "#0072B2"}
    for method, color in colors.items():
        found = {
            epochs: [float(r["score"]) for r in results.rows
                     if (r["method"], r["setting"]) == (method, f"{epochs} epochs")]
            for epochs in run_length.EPOCHS
        }  # fmt: skip
        means = [np.mean(scores) for scores in found.values()]
        errors = [np.std(scores) for scores in found.values()]
        axes.errorbar(list(found), means, errors, label=method, color=color, marker="o",
                      markersize=4, capsize=2)  # fmt: skip
    axes.axhline(planned, color="0.4", linestyle=":", label="planned (momentum, averaged)")
    axes.set_xscale("log")
    axes.set_xticks(run_length.EPOCHS, [f"{e:g}" for e in run_length.EPOCHS])
    axes.minorticks_off()
    axes.set_xlabel("epochs")
    axes.set_ylabel("test accuracy")
    axes.set_title(f"Adult, DP-SGD with ridge {run_length.RIDGE:g} at epsilon "
                   f"{run_length.EPSILON:g}", fontsize=10)  # fmt: skip
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    mpl.use("agg")
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    results = Results(RESULTS)
    utility_picture(results, IMAGES / "utility.png")
    planned = float(np.mean(results.scores("adult", "ours", run_length.EPSILON)))
    length_picture(Results(run_length.RESULTS), planned, IMAGES / "run-length.png")
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    PAGE.write_text(before + START + "\n" + table(results) + "\n" + END + after)


if __name__ == "__main__":
    main()
