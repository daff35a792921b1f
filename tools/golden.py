"""Golden certificates: what every bound says about every run of the shared catalogue.

    python tools/golden.py            write them anew (the diff shows which numbers moved)
    python tools/golden.py --check    compare only, and say what differs

The files of ``tests/golden`` map a bound to its certificates by run (an epsilon at a delta, a delta
at an epsilon, and the witness) and to the runs it refuses, by reason.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "golden"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from catalogue import RUNS  # noqa: E402
from dplateau.bounds.registry import BOUNDS, HISTORICAL, bound_named  # noqa: E402

Found = dict[str, Any]

DELTA = 1e-5
# The second question asks for delta at about this share of the claimed epsilon.
SHARE = 0.7
# Evaluating a theorem at given choices is arithmetic; searching for the choices is not quite.
EVALUATION, PLANNING = 1e-9, 1e-6


def refused(bound: str) -> set[str]:
    """Return the names of the runs that the bound refuses today."""
    theorem = bound_named(bound)
    return {name for name in RUNS if theorem.refusal(RUNS[name]) is not None}


# ---- making -------------------------------------------------------------------------------------


def golden_of(bound: str) -> Found:
    """Return the certificates and refusals of one bound."""
    theorem = bound_named(bound)
    certificates: dict[str, Found] = {}
    refusals: dict[str, list[str]] = {}
    for name in RUNS:
        reason = theorem.refusal(RUNS[name])
        if reason is None:
            certificates[name] = certificate_of(bound, name)
        else:
            refusals.setdefault(reason, []).append(name)
    return {"certificates": certificates, "refusals": refusals}


def certificate_of(bound: str, run: str) -> Found:
    """Plan afresh and return both answers with the witness."""
    theorem = bound_named(bound)
    witness = json.loads(json.dumps(theorem.plan(RUNS[run], DELTA), allow_nan=False))
    curve = theorem.curve(RUNS[run], witness)
    epsilon = curve.epsilon(DELTA)
    if not math.isfinite(epsilon):
        raise ValueError(f"{bound} has no finite epsilon for {run!r}: choose a run with more noise")
    asked = float(f"{SHARE * epsilon:.3g}")
    return {
        "at_delta": DELTA,
        "epsilon": epsilon,
        "at_epsilon": asked,
        "delta": curve.delta(asked),
        "witness": witness,
    }


# ---- comparing ----------------------------------------------------------------------------------


def evaluation_changes(bound: str, run: str, stored: Found) -> Iterator[str]:
    """Say where the theorem, at the stored witness, gives other numbers than the stored ones."""
    curve = bound_named(bound).curve(RUNS[run], stored["witness"])
    now = {
        "epsilon": curve.epsilon(stored["at_delta"]),
        "delta": curve.delta(stored["at_epsilon"]),
    }
    for name, value in now.items():
        if not math.isclose(value, stored[name], rel_tol=EVALUATION):
            yield f"{bound}, {run!r}: the witness gives {name} {value!r}, not {stored[name]!r}"


def planning_changes(bound: str, run: str, stored: Found) -> Iterator[str]:
    """Say whether planning afresh claims another epsilon than the stored one, more or less."""
    theorem, delta = bound_named(bound), stored["at_delta"]
    epsilon = theorem.curve(RUNS[run], theorem.plan(RUNS[run], delta)).epsilon(delta)
    if not math.isclose(epsilon, stored["epsilon"], rel_tol=PLANNING):
        yield f"{bound}, {run!r}: planning gives epsilon {epsilon!r}, not {stored['epsilon']!r}"


def refusal_changes(bound: str, stored: Found) -> Iterator[str]:
    """Say which runs are refused that were not, or no longer are; the wording may change."""
    before, now = {name for names in stored["refusals"].values() for name in names}, refused(bound)
    yield from (f"{bound}, {run!r}: is refused now" for run in sorted(now - before))
    yield from (f"{bound}, {run!r}: is no longer refused" for run in sorted(before - now))
    asked = before | set(stored["certificates"])
    yield from (f"{bound}, {run!r}: not stored" for run in sorted(set(RUNS) - asked))
    yield from (f"{bound}, {run!r}: no such run" for run in sorted(asked - set(RUNS)))


def changes(golden: Found) -> Iterator[str]:
    """Say everything that differs from the stored files."""
    names = [bound.name for bound in (*BOUNDS, *HISTORICAL)]
    yield from (f"{bound}: not stored" for bound in names if bound not in golden)
    yield from (f"{bound}: no such bound" for bound in golden if bound not in names)
    for bound in (name for name in names if name in golden):
        found = list(refusal_changes(bound, golden[bound]))
        yield from found
        if not found:
            for run, stored in golden[bound]["certificates"].items():
                yield from evaluation_changes(bound, run, stored)
                yield from planning_changes(bound, run, stored)


# ---- files --------------------------------------------------------------------------------------


def read() -> Found:
    """Return what is stored, by bound."""
    found: Found = {}
    for path in sorted(FOLDER.glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def write(golden: Found) -> None:
    """Replace the stored files, one for each bound."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, found in golden.items():
        (FOLDER / f"{name}.json").write_text(text_of({name: found}), encoding="utf-8")


def text_of(content: Found) -> str:
    """Return JSON with one line for each certificate and each refusal, so that changes are seen."""
    bounds = (
        block(bound, (block(part, lines(items), " ") for part, items in found.items()), "")
        for bound, found in content.items()
    )
    return "{\n" + ",\n".join(bounds) + "\n}\n"


def block(name: str, items: Iterable[str], indent: str) -> str:
    """Return ``"name": {items}``, an item per line."""
    body = ",\n".join(items)
    return f"{indent}{json.dumps(name)}: {{" + (f"\n{body}\n{indent}" if body else "") + "}"


def lines(items: Found) -> Iterator[str]:
    """Return ``"name": value`` for each item, every digit kept."""
    for name, value in items.items():
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        yield f"  {json.dumps(name, ensure_ascii=False)}: {text}"


def main() -> int:
    """Write or check, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only; write nothing")
    if parser.parse_args().check:
        found = list(changes(read()))
        print("\n".join(found) or "every certificate is as stored")
        return 1 if found else 0
    write({bound.name: golden_of(bound.name) for bound in (*BOUNDS, *HISTORICAL)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
