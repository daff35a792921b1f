"""The table and the pictures of docs/utility.md, from the results of utility.py and run_length.py.

python benchmarks/utility_page.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import run_length
from utility import EPSILONS, RESULTS, Results, compared, standard_error
from utility_data import ROOT
from utility_peers import ADASSP, MOMENTUM, OBJECTIVE, PEERLIB, SGD

PAGE = ROOT / "docs" / "utility.md"
IMAGES = ROOT / "docs" / "images"
START, END = "<!-- table: made by benchmarks/utility_page.py -->\n", "<!-- end of table -->\n"
NAMES = {
    "mnist": "MNIST, 60000 x 784, ten classes",
    "adult": "Adult, 32561 x 108",
    "imdb_hash4096": "IMDB, 20000 x 4096",
    "credit_status": "credit status, 3563 x 150",
    "digits": "digits, 1438 x 64, ten classes",
    "attrition": "attrition, 1176 x 494",
    "breast_cancer": "breast cancer, 455 x 30",
    "casp_protein_regression": "CASP, 36584 x 9 (R squared)",
    "ames_housing": "Ames, 2344 x 1386 (R squared)",
    "diabetes": "diabetes, 354 x 10 (R squared)",
}
FEW = {
    "adult_2000": "Adult, 2000 records",
    "adult_1000": "Adult, 1000 records",
    "adult_500": "Adult, 500 records",
    "casp_protein_regression_2000": "CASP, 2000 records (R squared)",
    "casp_protein_regression_1000": "CASP, 1000 records (R squared)",
    "casp_protein_regression_500": "CASP, 500 records (R squared)",
}
SHOWN, BETWEEN = (0.1, 1.0, 8.0), (0.5, 2.0, 4.0)
# Colors that remain distinct for color-blind readers (Okabe and Ito), and a marker for print.
STYLES = {
    "ours": ("dplateau, no tuning", "#0072B2", "o"),
    MOMENTUM: ("momentum GD", "#E69F00", "s"),
    SGD: ("DP-SGD with PLD", "#009E73", "^"),
    OBJECTIVE: ("objective perturbation", "#56B4E9", "v"),
    ADASSP: ("AdaSSP", "#D55E00", "P"),
    PEERLIB: ("diffprivlib", "#CC79A7", "D"),
}


def cell(scores: list[float], best: float) -> str:
    if not scores:
        return ""
    mean = float(np.mean(scores))
    shown = f"**{mean:.3f}**" if mean == best else f"{mean:.3f}"
    return f"{shown} ± {standard_error(scores):.3f}"


def verdict(results: Results, data: str, epsilon: float) -> str:
    """Return how far ours is from the best of the others, and whether that is beyond chance."""
    found = compared(results, data, epsilon)
    if found is None:
        return "no tuned peer"
    return f"{100 * found.gap:+.1f}" + (" **peer ahead**" if found.peer_ahead else "")


def table(results: Results, names: dict[str, str], epsilons: tuple[float, ...]) -> str:
    heads = ["data", "epsilon", *(title for title, _, _ in STYLES.values()), "difference"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for data, title in names.items():
        free = results.scores(data, "not private", "")[0]
        for epsilon in epsilons:
            found = {method: results.scores(data, method, epsilon) for method in STYLES}
            if not found["ours"]:
                continue
            best = max(float(np.mean(scores)) for scores in found.values() if scores)
            cells = [cell(scores, best) for scores in found.values()]
            name = f"{title}; not private {free:.3f}" if epsilon == epsilons[0] else ""
            row = [name, f"{epsilon:g}", *cells, verdict(results, data, epsilon)]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def summary(results: Results) -> str:
    """Return in how many cells a peer is ahead, and where beyond chance."""
    pairs = list(itertools.product({**NAMES, **FEW}.items(), EPSILONS))
    found = [(title, e, compared(results, data, e)) for (data, title), e in pairs]
    known = [(title, e, one) for title, e, one in found if one is not None]
    ahead = sum(one.gap > 0 for _, _, one in known)
    behind = [
        f"{title.removesuffix(' (R squared)') if 'records' in title else title.partition(',')[0]}"
        f" at {epsilon:g} ({100 * one.gap:+.1f}, {one.best.removesuffix(', tuned')})"
        for title, epsilon, one in known
        if one.peer_ahead
    ]
    where = "in none" if not behind else f"in {len(behind)}: {'; '.join(behind)}"
    return (
        f"Over all data sets, numbers of records and epsilons, ours is ahead in {ahead} of "
        f"{len(known)} cells; a peer is ahead beyond the standard error {where}.\n"
    )


def ranking(results: Results) -> str:
    """Return the areas under the curve where there are two classes, and how long fits take."""
    heads = ["data", "epsilon", "AUC", "best AUC of a peer", "seconds of a fit"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for data, title in NAMES.items():
        for epsilon in SHOWN:
            own = results.values(data, "ours", epsilon, "auc")
            peers = [results.values(data, method, epsilon, "auc") for method in STYLES]
            best = [float(np.mean(one)) for one in peers[1:] if one]
            seconds = np.median(results.values(data, "ours", epsilon, "seconds"))
            row = [
                title.partition(",")[0] if epsilon == SHOWN[0] else "",
                f"{epsilon:g}",
                f"{np.mean(own):.3f}" if own else "",
                f"{max(best):.3f}" if best and own else "",
                f"{seconds:.1f}",
            ]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def filled(text: str, results: Results) -> str:
    """Return the page with its tables made anew."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    parts = {
        "": table(results, NAMES, SHOWN),
        "## Few records\n\n": table(results, FEW, SHOWN),
        "## Ranking, and time\n\n": ranking(results),
        "## Epsilons between\n\n": table(results, {**NAMES, **FEW}, BETWEEN),
    }
    tables = [summary(results), *(title + part for title, part in parts.items())]
    return before + START + "\n" + "\n".join(tables) + "\n" + END + after


def utility_picture(results: Results, path: Path) -> None:
    figure, all_axes = plt.subplots(2, 5, figsize=(15, 6), sharex=True, layout="constrained")
    shown = {}
    for axes, (data, title) in zip(all_axes.flat, NAMES.items(), strict=True):
        lowest = 1.0
        for method, (label, color, marker) in STYLES.items():
            found = {e: results.scores(data, method, e) for e in EPSILONS}
            found = {e: scores for e, scores in found.items() if scores}
            if not found:
                continue
            means = [np.mean(scores) for scores in found.values()]
            errors = [standard_error(scores) for scores in found.values()]
            shown[label] = axes.errorbar(list(found), means, errors, color=color, marker=marker,
                                         markersize=4, linewidth=1.4, capsize=2)  # fmt: skip
            if method in ("ours", MOMENTUM, SGD):
                lowest = min(lowest, *means)
        free = results.scores(data, "not private", "")[0]
        shown["not private, a line"] = axes.axhline(free, color="0.4", linestyle=":", linewidth=1)
        # Peers that fall far below would flatten all other curves.
        own = [results.scores(data, "ours", epsilon) for epsilon in EPSILONS]
        highest = max(free, *(float(np.mean(scores)) for scores in own if scores))
        lowest = max(lowest, free - 0.6)
        room = 0.15 * (highest - lowest)
        axes.set_ylim(lowest - room, highest + room)
        axes.set_title(title.replace(" (R squared)", ""), fontsize=10)
        axes.set_ylabel("R squared" if "R squared" in title else "test accuracy")
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axes.minorticks_off()
    for axes in all_axes[1]:
        axes.set_xlabel("epsilon (delta = 1e-5)")
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=7, fontsize=9,
                  frameon=False)  # fmt: skip
    figure.savefig(path, dpi=130)


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
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
