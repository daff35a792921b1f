"""Tables and pictures of docs/scoreboard.md and README's summary, from benchmarks/results/*.json.

python benchmarks/scoreboard_page.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
PAGE, README = ROOT / "docs" / "scoreboard.md", ROOT / "README.md"
FAMILIES = ("tightness", "accounting", "training", "utility", "robustness", "sampling")
OURS = "dplateau"
# Colors that remain distinct for color-blind readers (Okabe and Ito).
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#E69F00", "#009E73", "0.55"
Found = dict[str, Any]


def results(folder: Path = RESULTS) -> dict[str, Found]:
    """Return what was measured, by family."""
    return {
        family: json.loads((folder / f"{family}.json").read_text(encoding="utf-8"))
        for family in FAMILIES
    }


# ---- numbers in words ---------------------------------------------------------------------------


def up(value: Any) -> str:
    """Show an upper bound, rounded up."""
    if not isinstance(value, int | float):
        return "–" if value is None else str(value).partition(":")[0]
    if value > 1000:
        return f"{math.ceil(value):,}"
    digits = 3 if value < 10 else 1
    return f"{math.ceil(value * 10**digits - 1e-6) / 10**digits:.{digits}f}"


def down(value: float) -> str:
    """Show a lower bound, rounded down."""
    return f"{math.floor(value * 1000) / 1000:.3f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2g} s" if value < 10 else f"{value:,.0f} s"


def count(value: float) -> str:
    """Show a large number by two or three digits and its size."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            share = value / size
            return f"{share:.1f}{letter}" if share < 10 else f"{share:.0f}{letter}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def table(heads: list[str], rows: list[list[str]], left: int = 1) -> str:
    line = "|" + "---|" * left + "---:|" * (len(heads) - left)
    cells = [heads, *rows]
    shown = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([shown[0], line, *shown[1:]]) + "\n"


# ---- the page's tables --------------------------------------------------------------------------


def best_peer(row: Found) -> tuple[str, float]:
    """Return the smallest number among the peers that claim a bound (the GDP limit does not)."""
    known = {
        name: value
        for name, value in row["peers"].items()
        if isinstance(value, int | float) and name != "opacus gdp"
    }
    # Numbers that are shown alike are a tie, which goes to the first in the list.
    name = min(known, key=lambda one: float(up(known[one]).replace(",", "")))
    return name, known[name]


def tightness_table(found: Found) -> str:
    rows = []
    for row in found["rows"]:
        name, value = best_peer(row)
        rows.append(
            [
                row["regime"],
                down(row["lower"]),
                f"**{up(row['hidden'])}**",
                up(row["released"]),
                f"{up(value)} ({name})",
                f"{row['hidden'] / row['lower']:.2f}",
            ]
        )
    heads = ["run", "no less than", "dplateau, hidden", "dplateau, released", "best peer"]
    return table([*heads, "hidden / no less than"], rows)


def accounting_table(found: Found) -> str:
    rows = []
    for row in found["rows"]:
        cells = [f"{row['accountant']} {row['version'] or ''}".strip()]
        for task in ("epsilon", "noise", "curve"):
            answer = row.get(task, {})
            if "error" in answer or not answer:
                said = answer.get("error", "–").partition(":")[0]
                cells += [said, "", ""] if task != "curve" else [said]
                continue
            spent = f"{seconds(answer['warm_cpu'])} ({seconds(answer['warm_wall'])})"
            if task == "curve":
                cells.append(("~" if "estimated_from" in answer else "") + spent)
            else:
                cold = f"{seconds(answer['cold_cpu'])} ({seconds(answer['cold_wall'])})"
                cells += [f"{answer['value']:.4f}", cold, spent]
        rows.append(cells)
    heads = ["accountant", "epsilon", "cold", "warm", "noise for 1", "cold", "warm"]
    return table([*heads, f"{found['points']} lengths"], rows)


def training_table(found: Found) -> str:
    rows = []
    for row in found["rows"]:
        sizes = f"n={row['n']:,}, d={row['d']}, b={row['batch']}"
        name = f"{row['trainer']} {row.get('version', '')}".strip()
        if "error" in row:
            rows.append([sizes, name, row["error"].partition(":")[0], "", "", "", ""])
            continue
        rows.append(
            [
                sizes,
                name,
                count(row["examples_per_cpu_second"]),
                count(row["examples_per_second"]),
                seconds(row["first_seconds"]),
                f"{row['memory']:,.0f} MB",
                f"{row['accuracy']:.3f}",
            ]
        )
    heads = ["sizes", "trainer", "examples / CPU s", "examples / s", "first call", "peak memory"]
    return table([*heads, "accuracy"], rows, left=2)


def utility_table(found: Found) -> str:
    rows = []
    for row in found["rows"]:
        ahead = 100 * (row["ours"] - row["theirs"])
        rows.append(
            [
                row["data"],
                f"{row['epsilon']:g}",
                f"{row['ours']:.3f}",
                f"{row['theirs']:.3f} ({row['best_peer']})",
                f"{ahead:+.1f}" + (" **peer ahead**" if row["peer_ahead"] else ""),
            ]
        )
    return table(["data", "epsilon", "dplateau, no tuning", "best other", "difference"], rows)


MARKS = {"right": "", "loose": " loose", "wrong": " **wrong**", "negative": " *negative*"}


def robustness_table(found: Found) -> str:
    names = list(found["rows"][0]["answers"])
    rows = []
    for row in found["rows"]:
        told = f"{row['q']:.4g}, {row['sigma']:g}, {row['steps']:,}, {row['delta']:g}"
        cells = [told, down(row["lower"])]
        for name in names:
            answer = row["answers"][name]
            verdict = answer["verdict"]
            cells.append(
                f"{up(answer['value'])}{MARKS[verdict]}" if verdict in MARKS else f"*{verdict}*"
            )
        rows.append(cells)
    tally = [
        f"{sum(row['answers'][name]['verdict'] == 'right' for row in found['rows'])}"
        for name in names
    ]
    rows.append(["right answers", "", *tally])
    return table(["q, sigma, steps, delta", "no less than", *names], rows)


def mixing_table(found: Found) -> str:
    rows = [
        [
            row["potential"].replace("|", "\\|"),
            row["body"],
            f"{row['learning_rate']:g}",
            str(row["truth"]),
            str(row["certified"]),
            f"{row['certified'] / row['truth']:.2f}",
            "–" if row["theorem_4_2"] is None else str(row["theorem_4_2"]),
        ]
        for row in found["mixing"]
    ]
    heads = ["potential", "body", "learning rate", "true steps", "certified", "ratio"]
    return table([*heads, "theorem 4.2"], rows, left=2)


def drawing_table(found: Found) -> str:
    rows = []
    for row in found["drawing"]:
        name = f"{row['sampler']} {row.get('version', '')}".strip()
        if "error" in row:
            rows.append([name, row["error"], "", "", ""])
            continue
        rows.append(
            [
                name,
                count(row["steps_per_cpu_second"]),
                count(row["steps_per_second"]),
                count(row["effective_per_cpu_second"]),
                count(row["effective_per_second"]),
            ]
        )
    heads = ["sampler", "steps / CPU s", "steps / s", "effective draws / CPU s"]
    return table([*heads, "effective draws / s"], rows)


# Processors that others may keep busy on a machine that is called idle.
QUIET = 0.2


def machine_line(found: dict[str, Found]) -> str:
    """Say on what the numbers were measured, and what else went on there."""
    measured = [family["machine"] for name, family in found.items() if name != "utility"]
    one = measured[0]
    said = (
        f"{OURS} {one['dplateau']}, Python {one['python']}, NumPy {one['numpy']}, "
        f"{one['processors']} processors"
    )
    loads = [where["load"] for where in measured if "load" in where]
    busy = [where["others"] for where in measured if "others" in where]
    if not loads and max(busy) <= QUIET:
        minutes = sum(where["seconds"] for where in measured) / 60
        return f"{said}, otherwise idle; {minutes:.0f} minutes in all.\n"
    # Earlier files hold the load average when a family began instead.
    shared = [f"load {min(loads):g} to {max(loads):g} when families began"] if loads else []
    if busy:
        shared.append(f"other work kept {min(busy):.1f} to {max(busy):.1f} of them busy")
    return (
        f"{said}, shared with other work ({'; '.join(shared)}): seconds on the clock are longer "
        "than on a quiet machine, for everybody.\n"
    )


def certified_line(found: dict[str, Found]) -> str:
    """Say which accountants are below the truth."""
    accounting = found["accounting"]
    lower = accounting["lower"]
    below = [
        row["accountant"]
        for row in accounting["rows"]
        if isinstance(row.get("epsilon", {}).get("value"), float)
        and row["epsilon"]["value"] < lower
    ]
    said = f"No correct epsilon is below {down(lower)} (`benchmarks/referee.py` proves it)"
    if not below:
        return said + ".\n"
    return f"{said}: {', '.join(below)} is, so it is no upper bound.\n"


# ---- README's summary ---------------------------------------------------------------------------


def summary(found: dict[str, Found]) -> str:
    rows = [
        *_summed_tightness(found["tightness"]),
        *_summed_accounting(found["accounting"]),
        *_summed_training(found["training"]),
        _summed_utility(found["utility"]),
        _summed_robustness(found["robustness"]),
        *_summed_sampling(found["sampling"]),
    ]
    return table(["measured", "dplateau", "best peer"], rows)


def _summed_tightness(found: Found) -> list[list[str]]:
    rows = []
    for row in found["rows"]:
        if row["regime"] in ("full batch, ridge", "Poisson batches, ridge"):
            name, value = best_peer(row)
            rows.append(
                [
                    f"epsilon, {row['regime']} (truth at least {down(row['lower'])})",
                    f"**{up(row['hidden'])}**",
                    f"{up(value)} ({name})",
                ]
            )
    return rows


def _summed_accounting(found: Found) -> list[list[str]]:
    ours = next(row for row in found["rows"] if row["accountant"] == OURS)
    peers = [
        row
        for row in found["rows"]
        if row["accountant"] != OURS and row.get("epsilon", {}).get("value", 0) >= found["lower"]
    ]

    # Divergences add up over steps, so by hand many lengths cost what one does: beside our curve
    # stand the accountants that are as tight.
    tight = [row for row in peers if row["epsilon"]["value"] <= 1.01 * found["lower"]]

    def pair(
        task: str, key: str, show: Callable[[Any], str], peers: list[Found] = peers
    ) -> list[str]:
        known = [row for row in peers if key in row.get(task, {})]
        if not known:
            return [show(ours[task][key]), "not measured"]
        best = min(known, key=lambda row: round(row[task][key], 4))
        mine, theirs = ours[task][key], best[task][key]
        cells = [show(mine), f"{show(theirs)} ({best['accountant']})"]
        winner = 0 if mine <= theirs else 1
        cells[winner] = _bold(cells[winner])
        return cells

    lengths = f"CPU time of epsilon at {found['points']} lengths, call by call, to 1 percent"
    return [
        ["epsilon, every iterate released", *pair("epsilon", "value", up)],
        ["CPU time of one epsilon, warm", *pair("epsilon", "warm_cpu", seconds)],
        ["CPU time of noise for epsilon 1, warm", *pair("noise", "warm_cpu", seconds)],
        [lengths, *pair("curve", "warm_cpu", seconds, tight)],
    ]


def _bold(text: str) -> str:
    number, space, rest = text.partition(" (")
    return f"**{number}**{space}{rest}"


def _summed_training(found: Found) -> list[list[str]]:
    first = found["rows"][0]
    base = [
        row
        for row in found["rows"]
        if all(row[key] == first[key] for key in ("n", "d", "batch")) and "error" not in row
    ]
    speed = {row["trainer"]: row["examples_per_cpu_second"] for row in base}
    ours = speed.pop(OURS)
    rows = []
    for title, names in (
        ("DP-SGD library", ("Opacus", "jax-privacy")),
        ("hand-written loop", ("NumPy", "JAX scan")),
    ):
        known = {name: speed[name] for name in names if name in speed}
        if not known:
            continue
        best = max(known, key=lambda name: known[name])
        cells = [count(ours), f"{count(known[best])} ({best})"]
        winner = 0 if ours >= known[best] else 1
        cells[winner] = _bold(cells[winner])
        rows.append([f"private training beside a {title}, examples per CPU s", *cells])
    return rows


def _summed_utility(found: Found) -> list[str]:
    rows = found["rows"]
    ahead, behind = (
        sum(row["ours"] > row["theirs"] for row in rows),
        sum(row["peer_ahead"] for row in rows),
    )
    title = "accuracy at equal privacy (peers tuned on the test set)"
    return [
        title,
        f"ahead in {ahead} of {len(rows)}",
        f"ahead in {len(rows) - ahead}, beyond the standard error in {behind}",
    ]


def _summed_robustness(found: Found) -> list[str]:
    names = list(found["rows"][0]["answers"])
    right = {
        name: sum(row["answers"][name]["verdict"] == "right" for row in found["rows"])
        for name in names
    }
    wrong = sum(
        row["answers"][name]["verdict"] == "wrong" for row in found["rows"] for name in names
    )
    best = max((name for name in names if name != OURS), key=lambda name: right[name])
    total = len(found["rows"])
    return [
        f"right answers in extreme settings ({wrong} wrong ones by peers)",
        f"**{right[OURS]} of {total}**",
        f"{right[best]} of {total} ({best})",
    ]


def _summed_sampling(found: Found) -> list[list[str]]:
    ratios = [row["certified"] / row["truth"] for row in found["mixing"]]
    published = [row["theorem_4_2"] / row["truth"] for row in found["mixing"] if row["theorem_4_2"]]
    rows = [
        [
            "certified over true mixing time, median",
            f"**{sorted(ratios)[len(ratios) // 2]:.2g}**",
            f"{sorted(published)[len(published) // 2]:.2g} (theorem 4.2, where it speaks)",
        ]
    ]
    known = {row["sampler"]: row for row in found["drawing"] if "error" not in row}
    ours, *others = known.values()
    if others:
        best = max(others, key=lambda row: row["effective_per_cpu_second"])
        cells = [
            count(ours["effective_per_cpu_second"]),
            f"{count(best['effective_per_cpu_second'])} ({best['sampler']})",
        ]
        winner = 0 if ours["effective_per_cpu_second"] >= best["effective_per_cpu_second"] else 1
        cells[winner] = _bold(cells[winner])
        rows.append(["effective draws per CPU s", *cells])
    return rows


# ---- putting them where they belong -------------------------------------------------------------

TABLES: dict[str, Callable[[dict[str, Found]], str]] = {
    "machine": machine_line,
    "certified": certified_line,
    "tightness": lambda found: tightness_table(found["tightness"]),
    "accounting": lambda found: accounting_table(found["accounting"]),
    "training": lambda found: training_table(found["training"]),
    "utility": lambda found: utility_table(found["utility"]),
    "robustness": lambda found: robustness_table(found["robustness"]),
    "mixing": lambda found: mixing_table(found["sampling"]),
    "drawing": lambda found: drawing_table(found["sampling"]),
    "scoreboard": summary,
}


def filled(text: str, found: dict[str, Found]) -> str:
    """Return a page with every table between its markers made anew."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name}: from benchmarks/results -->\n\n{TABLES[name](found)}\n<!-- end -->"

    return re.sub(
        r"<!-- (\w+): from benchmarks/results -->\n.*?<!-- end -->", put, text, flags=re.DOTALL
    )


# ---- pictures -----------------------------------------------------------------------------------


def tightness_picture(found: Found, path: Path) -> None:
    import matplotlib.pyplot as plt

    rows = found["rows"][::-1]
    figure, axes = plt.subplots(figsize=(8.5, 0.55 * len(rows) + 1.4), layout="constrained")
    for place, row in enumerate(rows):
        peers = [
            value
            for name, value in row["peers"].items()
            if isinstance(value, int | float) and name != "opacus gdp"
        ]
        axes.plot([row["lower"], max(peers)], [place, place], color="0.85", linewidth=5, zorder=0)
        axes.plot(peers, [place] * len(peers), "|", color=ORANGE, markersize=13, mew=2)
        axes.plot(row["released"], place, "s", color=GRAY, markersize=5)
        axes.plot(row["hidden"], place, "o", color=BLUE, markersize=9)
        axes.plot(row["lower"], place, ">", color=GREEN, markersize=7)
    handles = [
        plt.Line2D([], [], linestyle="", marker=mark, color=color, label=label)
        for mark, color, label in (
            (">", GREEN, "no bound can be below"),
            ("o", BLUE, "dplateau, hidden state"),
            ("s", GRAY, "dplateau, every iterate released"),
            ("|", ORANGE, "peers"),
        )
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    axes.set_yticks(range(len(rows)), [row["regime"] for row in rows])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"epsilon at delta = {found['delta']:g}")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def speed_picture(accounting: Found, training: Found, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, sides = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axes, task, title in (
        (sides[0], "epsilon", "one epsilon, warm"),
        (sides[1], "noise", "noise for epsilon 1, warm"),
    ):
        known = [row for row in accounting["rows"] if "warm_cpu" in row.get(task, {})][::-1]
        spent = [row[task]["warm_cpu"] for row in known]
        dots([row["accountant"] for row in known], spent, axes, seconds)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("CPU seconds, less is better", fontsize=9)
    first = training["rows"][0]
    base = [
        row
        for row in training["rows"]
        if all(row[key] == first[key] for key in ("n", "d", "batch")) and "error" not in row
    ][::-1]
    speeds = [row["examples_per_cpu_second"] for row in base]
    dots([row["trainer"] for row in base], speeds, sides[2], count)
    sides[2].set_title("private logistic regression", fontsize=10)
    sides[2].set_xlabel("examples per CPU s, more is better", fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def dots(names: list[str], values: list[float], axes: Any, show: Callable[[float], str]) -> None:
    """Draw one dot with its number for each name; the axis is logarithmic, so no bars."""
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        ours = name == OURS
        axes.plot(value, place, "o", color=BLUE if ours else "0.5", markersize=9 if ours else 7)
        axes.annotate(
            show(value), (value, place), xytext=(8, -3), textcoords="offset points", fontsize=8
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 2, max(values) * 6)
    axes.minorticks_off()
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)


def main() -> None:
    found = results()
    for path in (PAGE, README):
        path.write_text(filled(path.read_text(encoding="utf-8"), found), encoding="utf-8")
    tightness_picture(found["tightness"], IMAGES / "scoreboard-tightness.png")
    speed_picture(found["accounting"], found["training"], IMAGES / "scoreboard-speed.png")


if __name__ == "__main__":
    main()
