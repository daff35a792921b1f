"""Measure us and the peers side by side, in one run, and write benchmarks/results/*.json.

    python benchmarks/scoreboard.py [--quick] [--only tightness,accounting,...]

Peers run in environments of their own (`make bench-peers`); one that could not be installed is
reported as such. Times are given twice: seconds on the clock, which other work on the machine
lengthens, and seconds of the processor. `make scoreboard` then writes page, pictures and README's
table from the files (scoreboard_page.py). QUICK measures the same with fewer points.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import queue
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from referee import lower_epsilon

ROOT = Path(__file__).resolve().parents[1]
HERE, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks" / "results"
DELTA = 1e-5
# The environment of each peer; ours has dp-accounting too.
PLACES = {
    "opacus": "torch",
    "jax-privacy": "jax-privacy",
    "prv-accountant": "prv-accountant",
    "autodp": "autodp",
    "riskcal": "riskcal",
}
ACCOUNTANTS = (
    *("dplateau", "dp-accounting PLD", "dp-accounting RDP", "opacus prv", "opacus rdp"),
    *("opacus gdp", "jax-privacy PLD", "prv-accountant", "autodp RDP", "riskcal CTD"),
)
FEW = ("dplateau", "dp-accounting PLD", "opacus prv", "prv-accountant")
Answer = dict[str, Any]


def python_of(place: str | None) -> Path | None:
    """Return the interpreter of an environment, ours if it is None; None if it is not there."""
    if place is None:
        return Path(sys.executable)
    found = ROOT / f".venv-peers-{place}" / "bin" / "python"
    return found if found.exists() else None


def environment() -> dict[str, str]:
    """Return an environment in which nobody uses more than one thread for linear algebra."""
    single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {**os.environ, **single, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")}


# ---- accountants, each in a process that may be killed ------------------------------------------


def ask(accountant: str, tasks: list[Answer], limit: float) -> tuple[str | None, list[Answer]]:
    """Return the accountant's version and an answer to every task.

    A task that takes more than ``limit`` CPU seconds is answered by "hangs"; the others go on in a
    new process.
    """
    python = python_of(PLACES.get(accountant.split()[0]))
    if python is None:
        return None, [{"error": "not installed"} for _ in tasks]
    version, answers = None, []
    while len(answers) < len(tasks):
        version, found, last = _ask_once(python, accountant, tasks[len(answers) :], limit)
        answers += found
        if len(answers) < len(tasks):
            answers.append(last)
    return version, answers


def _ask_once(
    python: Path, accountant: str, tasks: list[Answer], limit: float
) -> tuple[str | None, list[Answer], Answer]:
    command = [str(python), "-W", "ignore", str(HERE / "peers" / "accountants.py"), accountant]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(tasks))
    process.stdin.close()
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    version, found, last = None, [], {"error": "stopped without a word"}
    try:
        while True:
            line = _next_line(lines, process.pid, limit)
            if line is None:
                break
            row = json.loads(line)
            if "package" in row:
                version = row["version"]
            elif "import" not in row:
                found.append(row)
                if len(found) == len(tasks):
                    break
    except TimeoutError:
        last = {"error": f"hangs: more than {limit:g} s"}
    process.kill()
    process.wait()
    return version, found, last


def _next_line(lines: queue.Queue[str | None], process: int, limit: float) -> str | None:
    """Return the next line; give up when the process has spent ``limit`` CPU seconds on it."""
    begun, used = time.perf_counter(), _spent(process)
    while True:
        try:
            return lines.get(timeout=1.0)
        except queue.Empty:
            waited = time.perf_counter() - begun
            if _spent(process) - used > limit or waited > 20 * limit:
                raise TimeoutError from None


def _spent(process: int) -> float:
    """Return the CPU seconds of a running process; where the system does not tell, of the clock."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.perf_counter()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- families -----------------------------------------------------------------------------------


def tightness(quick: bool) -> Answer:
    """Epsilon by everyone, ours hidden and released, and an exact lower bound, by regime."""
    from dplateau import (
        Ball,
        CyclicSGD,
        LossGeometry,
        NoisyGD,
        NoisySGD,
        OnePassSGD,
        certify,
        search_adversary,
    )

    smooth = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.25)
    steep = LossGeometry(lipschitz=1.0, convex=True, smoothness=0.5)
    common = {"learning_rate": 2.0, "loss": smooth, "release": "last"}
    regimes = {
        "full batch, ridge": NoisyGD(n=1000, steps=1000, noise_multiplier=40.0, l2=0.02, **common),
        "Poisson batches, ridge": NoisySGD(
            n=60_000, sampling_rate=0.01, steps=5000, noise_multiplier=1.0, l2=0.005, **common
        ),
        "Poisson batches, ridge, longer": NoisySGD(
            n=60_000, sampling_rate=0.01, steps=20_000, noise_multiplier=2.0, l2=0.005, **common
        ),
        "batches of one size, ridge (replace)": NoisySGD(
            n=1000, batch_size=50, steps=500, noise_multiplier=4.0, l2=0.1, sampling="fixed",
            neighbors="replace", **{**common, "learning_rate": 0.5},
        ),
        "cyclic batches, 20 epochs, ridge": CyclicSGD(
            n=1000, batch_size=100, epochs=20, noise_multiplier=3.0, l2=0.005,
            **{**common, "loss": steep},
        ),
        "one pass, last record": OnePassSGD(
            n=1000, batch_size=25, noise_multiplier=1.5, l2=0.1, **{**common, "loss": steep}
        ),
        "full batch on a ball": NoisyGD(
            n=1000, steps=10_000, noise_multiplier=20.0, domain=Ball(0.2),
            **{**common, "learning_rate": 1.0},
        ),
    }  # fmt: skip
    chosen = dict(list(regimes.items())[: 2 if quick else None])
    rows = []
    for name, run in chosen.items():
        hidden, shown = certify(run, DELTA), certify(run.replace(release="all"), DELTA)
        lower = search_adversary(run, DELTA, effort="quick" if quick else "normal")
        rows.append(
            {
                "regime": name,
                "lower": lower.epsilon,
                "hidden": hidden.claimed_epsilon,
                "bound": hidden.bound,
                "released": shown.claimed_epsilon,
                "peers": {},
            }
        )
    tasks = {name: _told_to_peers(run) for name, run in chosen.items()}
    known = {name: task for name, task in tasks.items() if task is not None}
    for accountant in (FEW if quick else ACCOUNTANTS)[1:]:
        _, answers = ask(accountant, [dict(task) for task in known.values()], 60.0)
        found = dict(zip(known, answers, strict=True))
        for row in rows:
            if row["regime"] in found:
                answer = found[row["regime"]]
                row["peers"][accountant] = answer.get("value", answer.get("error"))
    for row, run in zip(rows, chosen.values(), strict=True):
        if tasks[row["regime"]] is None:
            epsilon = _without_replacement(
                run.n, int(run.batch_size), run.noise_multiplier, run.steps
            )
            row["peers"]["dp-accounting RDP"] = epsilon
    return {"delta": DELTA, "rows": rows}


def _told_to_peers(run: Any) -> Answer | None:
    """Return the run as accountants of released iterates know it: Poisson batches, or full ones.

    With batches in order each record is used once an epoch, which a user may tell an accountant as
    that many full batches. Batches of one size are known to dp-accounting's RDP alone (None).
    """
    from dplateau.algorithms import Cyclic, FixedSize, FullBatch, OnePass, Poisson

    match run.batches:
        case Poisson():
            q, steps = run.sampling_rate, run.steps
        case FullBatch():
            q, steps = 1.0, run.steps
        case Cyclic():
            q, steps = 1.0, run.steps // run.batches_per_epoch
        case OnePass():
            q, steps = 1.0, 1
        case FixedSize():
            return None
    sigma = run.noise_multiplier
    return {"asked": "epsilon", "q": q, "sigma": sigma, "steps": steps, "delta": DELTA}


def _without_replacement(n: int, size: int, noise: float, steps: int) -> float:
    import dp_accounting as dpa

    replace_one = dpa.NeighboringRelation.REPLACE_ONE
    # Its noise is in units of the sensitivity, which is two gradients when one is replaced.
    inner = dpa.GaussianDpEvent(noise / 2)
    event = dpa.SelfComposedDpEvent(dpa.SampledWithoutReplacementDpEvent(n, size, inner), steps)
    accountant = dpa.rdp.RdpAccountant(neighboring_relation=replace_one).compose(event)
    return float(accountant.get_epsilon(DELTA))


def accounting(quick: bool) -> Answer:
    """One epsilon, one calibration and a curve, cold and warm."""
    repeats = 2 if quick else 3
    base = {"q": 256 / 60_000, "delta": DELTA}
    # Rounding makes equal ones of the shortest; so many of them leave a thousand.
    lengths = np.unique(np.geomspace(1, 10**6, 1351).round().astype(int)).tolist()
    few = [lengths[i] for i in np.linspace(0, len(lengths) - 1, 4 if quick else 6).astype(int)]
    rows = []
    for name in FEW if quick else ACCOUNTANTS:
        ours = name == "dplateau"
        tasks = [
            {"asked": "epsilon", "sigma": 1.1, "steps": 14_062, "repeats": repeats, **base},
            {"asked": "noise", "steps": 14_062, "epsilon": 1.0, "repeats": repeats, **base},
            {"asked": "curve", "sigma": 1.1, "points": lengths if ours else few, **base},
        ]
        if quick and not ours:
            tasks = tasks[:2]
        version, answers = ask(name, tasks, 30.0 if quick else 240.0)
        row: Answer = {"accountant": name, "version": version}
        for task, answer in zip(("epsilon", "noise", "curve"), answers, strict=False):
            row[task] = _times(answer)
        if "curve" in row and "warm_cpu" in row["curve"] and not ours:
            share = len(lengths) / len(few)
            row["curve"]["estimated_from"] = len(few)
            for key in ("warm_wall", "warm_cpu"):
                row["curve"][key] *= share
        rows.append(row)
    lower = lower_epsilon(sigma=1.1, steps=14_062, **base)
    return {"points": len(lengths), "lower": lower, "rows": rows}


def _times(answer: Answer) -> Answer:
    """Return the value, and the first and the median of the later times."""
    if "error" in answer:
        return answer
    value = answer["value"]
    found: Answer = {"value": value[-1] if isinstance(value, list) else value}
    for kind in ("wall", "cpu"):
        first, *rest = answer[kind]
        found |= {f"cold_{kind}": first, f"warm_{kind}": statistics.median(rest or [first])}
    return found


EXTREMES = (
    {"q": 0.2, "sigma": 1.0, "steps": 500, "delta": 1e-5},
    {"q": 0.125, "sigma": 0.8, "steps": 1000, "delta": 1e-6},
    {"q": 1.0, "sigma": 1.1, "steps": 1000, "delta": 1e-5},
    {"q": 256 / 60_000, "sigma": 1.1, "steps": 14_062, "delta": 1e-15},
    {"q": 1e-4, "sigma": 50.0, "steps": 10, "delta": 1e-5},
    {"q": 0.01, "sigma": 0.3, "steps": 100, "delta": 1e-5},
    {"q": 0.01, "sigma": 4.0, "steps": 10, "delta": 0.5},
    {"q": 256 / 60_000, "sigma": 1.1, "steps": 10**6, "delta": 1e-5},
    {"q": 0.01, "sigma": 0.01, "steps": 1, "delta": 1e-5},
)
LIMIT = 40.0


def robustness(quick: bool) -> Answer:
    """Ask about settings far from the usual: who is right, wrong, crashes or hangs."""
    chosen = [EXTREMES[i] for i in ((4, 6) if quick else range(len(EXTREMES)))]
    rows = [{**task, "lower": lower_epsilon(**task), "answers": {}} for task in chosen]
    for name in FEW if quick else ACCOUNTANTS:
        _, answers = ask(name, [{"asked": "epsilon", **task} for task in chosen], LIMIT)
        for row, answer in zip(rows, answers, strict=True):
            row["answers"][name] = {
                "value": answer.get("value"),
                "error": answer.get("error"),
                "verdict": verdict(answer, row["lower"]),
            }
    return {"limit": LIMIT, "rows": rows}


def verdict(answer: Answer, lower: float) -> str:
    """Say what an answer is worth, given a lower bound on the truth, which is tight."""
    stated = answer.get("error")
    if stated is not None:
        if stated.startswith("not installed"):
            return "not installed"
        return "hangs" if stated.startswith("hangs") else "crashes"
    value = float(answer["value"])
    if not math.isfinite(value):
        return "no answer"
    if value < 0:
        return "negative"
    if value < lower:
        return "wrong"
    return "right" if value <= 1.1 * lower + 0.02 else "loose"


TRAINERS = {
    "dplateau": None,
    "NumPy": None,
    "JAX scan": "jax-privacy",
    "Opacus": "torch",
    "jax-privacy": "jax-privacy",
}


def training(quick: bool) -> Answer:
    """Speed and memory of one private logistic regression over n, d and batch size."""
    base = {"n": 60_000, "d": 100, "batch": 256}
    grown = [base]
    if not quick:
        grown += [{**base, **one} for one in ({"n": 300_000}, {"d": 1000}, {"batch": 4096})]
    rows = []
    for sizes in grown:
        settings = {"batch": sizes["batch"], "rate": 4.0, "ridge": 1e-3, "noise": 1.0}
        settings |= {"steps": 100 if quick else 200, "repeats": 1 if quick else 3}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            np.savez(path, **_records(sizes["n"], sizes["d"]))
            for name, place in TRAINERS.items():
                rows.append({**sizes, "trainer": name, **_trained(name, place, path, settings)})
    return {"steps": settings["steps"], "rows": rows}


def _records(n: int, d: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d), dtype=np.float32) / np.float32(d**0.5)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1) * np.float32(1 + 1e-6)
    scores = rows @ rng.standard_normal(d, dtype=np.float32)
    signs = np.where(scores + 0.5 * rng.standard_normal(n, dtype=np.float32) > 0, 1, -1)
    return {"rows": rows, "signs": signs}


def _trained(name: str, place: str | None, path: Path, settings: Answer) -> Answer:
    python = python_of(place)
    if python is None:
        return {"error": "not installed"}
    command = [str(python), "-W", "ignore", str(HERE / "peers" / "trainers.py")]
    try:
        done = subprocess.run(
            [*command, name, str(path), json.dumps(settings)],
            capture_output=True, text=True, check=False, env=environment(), timeout=900,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": "hangs: more than 900 s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"error": lines[-1][:80]}
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    examples = settings["batch"] * settings["steps"]
    return {
        "version": answer["version"],
        "examples_per_second": examples / statistics.median(answer["wall"]),
        "examples_per_cpu_second": examples / statistics.median(answer["cpu"]),
        "first_seconds": answer["first"],
        "memory": answer["memory"],
        "accuracy": answer["accuracy"],
    }


def utility(quick: bool) -> Answer:
    """Read what is stored of benchmarks/utility.py: our mean score, and the best of the others."""
    from utility import EPSILONS, RESULTS, Results, compared

    results, rows = Results(RESULTS), []
    for data in dict.fromkeys(row["data"] for row in results.rows):
        for epsilon in EPSILONS:
            found = compared(results, data, epsilon)
            if found is not None:
                rows.append(
                    {
                        "data": data,
                        "epsilon": epsilon,
                        "ours": found.ours,
                        "best_peer": found.best,
                        "theirs": found.theirs,
                        "peer_ahead": found.peer_ahead,
                    }
                )
    return {"rows": rows}


def sampling(quick: bool) -> Answer:
    """Mixing certificates against the exact chains, and effective samples beside blackjax."""
    import mixing_evidence

    mixing = []
    for case in mixing_evidence.CASES[: 3 if quick else None]:
        found = mixing_evidence.examine(case)
        mixing.append(
            {
                "potential": case.name,
                "body": mixing_evidence.body_name(case),
                "learning_rate": case.learning_rate,
                "truth": found.truth,
                "certified": found.certified,
                "theorem_4_2": found.published,
            }
        )
    return {"mixing": mixing, "drawing": list(_drawing(quick))}


# Multiples of the learning rate that every sampler may choose from; the best one is shown.
RATES = (1.0, 4.0, 16.0)


def _drawing(quick: bool) -> Iterator[Answer]:
    import sampling as setting

    size, chains, steps = 10, 64, 400 if quick else 2000
    rows, labels = setting.problem(size)
    rates = [setting.RATE * one for one in RATES[1:2] if quick] or [
        setting.RATE * one for one in RATES
    ]
    ours = [_langevin(rows, labels, rate, steps, chains) for rate in rates]
    best = max(ours, key=lambda row: row["effective_per_cpu_second"])
    yield {"sampler": "dplateau, projected Langevin", **best}
    python = python_of("blackjax")
    if python is None:
        yield {"sampler": "blackjax", "error": "not installed"}
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "draws.npz"
        sent = [rows.tolist(), labels.tolist(), steps, chains, rates, setting.RIDGE]
        sent += [setting.HEAT, str(path)]
        done = subprocess.run(
            [str(python), "-W", "ignore", str(HERE / "peers" / "blackjax_draws.py")],
            input=json.dumps(sent), capture_output=True, text=True, check=False,
            env={**environment(), "JAX_ENABLE_X64": "1"},
        )  # fmt: skip
        if done.returncode:
            yield {"sampler": "blackjax", "error": done.stderr.strip().splitlines()[-1][:80]}
            return
        draws, answers = np.load(path), json.loads(done.stdout)
        for kind in ("MALA", "NUTS"):
            found = [
                {
                    "version": answer["version"],
                    "rate": answer["rate"],
                    **_effective(draws[name], answer["wall"], answer["cpu"]),
                }
                for name, answer in answers.items()
                if name.startswith(kind)
            ]
            best = max(found, key=lambda row: row["effective_per_cpu_second"])
            yield {"sampler": f"blackjax {kind}", **best}


def _langevin(rows: Any, labels: Any, rate: float, steps: int, chains: int) -> Answer:
    import sampling as setting
    from dplateau import Ball, LangevinSampler, Potential
    from dplateau.losses import Logistic

    sampler = LangevinSampler.of(
        Potential.from_loss(Logistic(), rows, labels, feature_norm=1.0),
        Ball(setting.RADIUS), steps=steps, learning_rate=rate, l2=setting.RIDGE,
        inverse_temperature=setting.HEAT, release="all",
    )  # fmt: skip
    state = sampler.init(np.zeros((chains, rows.shape[1])))
    sampler.collect(np.random.default_rng(1), state, 10)
    begin, used = time.perf_counter(), time.process_time()
    _, draws = sampler.collect(np.random.default_rng(0), state, steps)
    spent = time.perf_counter() - begin, time.process_time() - used
    return {"rate": rate, **_effective(draws, *spent)}


def _effective(draws: Any, wall: float, cpu: float) -> Answer:
    """Return effective draws per second: the smallest over coordinates, a fifth thrown away."""
    import arviz_stats

    kept = draws[:, draws.shape[1] // 5 :]  # chains, steps, coordinates
    sizes = [
        float(arviz_stats.ess(kept[:, :, i], method="mean", chain_axis=0, draw_axis=1))
        for i in range(kept.shape[2])
    ]
    least, steps = min(sizes), draws.shape[0] * draws.shape[1]
    return {
        "steps_per_second": steps / wall,
        "steps_per_cpu_second": steps / cpu,
        "effective_per_second": least / wall,
        "effective_per_cpu_second": least / cpu,
    }


FAMILIES: dict[str, Callable[[bool], Answer]] = {
    "tightness": tightness,
    "accounting": accounting,
    "training": training,
    "utility": utility,
    "robustness": robustness,
    "sampling": sampling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few points of each family")
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, comma-separated")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the files go")
    chosen = parser.parse_args()
    chosen.results.mkdir(parents=True, exist_ok=True)
    unknown = [family for family in chosen.only.split(",") if family not in FAMILIES]
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    for family in chosen.only.split(","):
        begun, used = time.perf_counter(), _used_by_others()
        found = FAMILIES[family](chosen.quick)
        spent = time.perf_counter() - begun
        others = max(0.0, _used_by_others() - used) / spent
        where = {**machine(), "seconds": round(spent), "others": round(others, 2)}
        found = {"family": family, "quick": chosen.quick, "machine": where, **found}
        text = json.dumps(found, indent=1, sort_keys=False) + "\n"
        (chosen.results / f"{family}.json").write_text(text, encoding="utf-8")
        print(f"{family}: {spent:.0f} s", flush=True)


def machine() -> dict[str, Any]:
    from dplateau import __version__

    return {
        "dplateau": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processors": os.cpu_count(),
    }


def _used_by_others() -> float:
    """Return the CPU seconds that the machine spent on what is not ours, where it tells."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[:3])
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return user + nice + system - own


if __name__ == "__main__":
    main()
