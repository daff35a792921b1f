"""Honest certificates of many random runs: every one of them has to verify.

    python tools/verify_many.py --runs 10000 --seed 1 --state FILE --jobs 2

Each setting of ``falsify_settings.py`` is certified by every sound bound that applies, each
certificate is written as JSON, read again and verified. A verdict that is not "verified" is a
failure, and so is a bound or a verifier that breaks down. The state file gets one line per setting
as it is finished; a second call with the same file goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from dplateau.bounds.registry import BOUNDS
from dplateau.certificates.certify import ask, certificate_of
from dplateau.verify import read_certificate, verify
from falsify_settings import setting

Record = dict[str, Any]
# Neighbors that differ in so many records, for some of the runs.
_GROUPS = {7: 2, 31: 5}


def verified(place: tuple[int, int]) -> Record:
    """Certify and verify the setting of (seed, index) by every bound that applies."""
    chosen = setting(*place)
    run = chosen.run
    for period, size in _GROUPS.items():
        if chosen.index % period == period - 1 and run.n > size:
            run = run.replace(group_size=size)
    claims: dict[str, Record] = {}
    for bound in BOUNDS:
        if not bound.sound or bound.refusal(run) is not None:
            continue
        found = ask(bound, run, chosen.delta)
        if found.epsilon is None:
            continue
        text = certificate_of(run, chosen.delta, [found]).to_json()
        began = time.process_time()
        verdict = verify(read_certificate(text), seconds=math.inf)
        claims[bound.name] = {
            "ok": verdict.ok,
            "claimed": verdict.claimed_epsilon,
            "derived": verdict.rederived_epsilon,
            "seconds": round(time.process_time() - began, 3),
            "why": "" if verdict.ok else f"{verdict.checks[-1].name}: {verdict.checks[-1].detail}",
        }
    return {"seed": chosen.seed, "index": chosen.index, "kind": chosen.kind, "claims": claims}


def attempted(place: tuple[int, int]) -> Record:
    """Return the record, or what broke down on the way to it."""
    try:
        return verified(place)
    except Exception as problem:  # whatever it is, a run that is described has to be answered
        why = f"{type(problem).__name__}: {problem}"
        broken = {"bound": {"ok": False, "why": why, "seconds": 0.0}}
        return {"seed": place[0], "index": place[1], "kind": "", "claims": broken}


@dataclass
class Tally:
    """What a campaign has found so far."""

    runs: int = 0
    certificates: int = 0
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    closest: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, record: Record) -> list[str]:
        """Count one run; return what is wrong with it."""
        self.runs += 1
        lines = []
        for name, claim in record["claims"].items():
            self.certificates += 1
            self.counts[name] = self.counts.get(name, 0) + 1
            slowest = self.slowest.get(name, (0.0, -1))
            self.slowest[name] = max(slowest, (claim["seconds"], record["index"]))
            if not claim["ok"]:
                place = f"seed {record['seed']} index {record['index']}"
                lines.append(f"{place} {name}: {claim['why']}")
            elif claim["claimed"] > 0:
                room = 1 - claim["derived"] / claim["claimed"]
                self.closest[name] = min(self.closest.get(name, 1.0), room)
        self.failures += lines
        return lines

    def __str__(self) -> str:
        """Show a line for each bound, the counts, and every failure."""
        lines = [f"{'bound':<26}{'certificates':>14}{'least room':>13}{'slowest':>10}  index"]
        for name, count in sorted(self.counts.items()):
            seconds, index = self.slowest[name]
            room = self.closest.get(name, float("nan"))
            lines.append(f"{name:<26}{count:>14}{room:>13.2e}{seconds:>9.1f}s  {index}")
        lines += [f"runs: {self.runs}, certificates: {self.certificates}"]
        lines += [f"failures: {len(self.failures)}", *self.failures]
        return "\n".join(lines)


def campaign(
    count: int, seed: int, state: Path | None, jobs: int, show: TextIO | None = None
) -> tuple[Tally, bool]:
    """Verify ``count`` runs; return the tally, and whether all of them were finished."""
    tally, done = Tally(), _finished(state, seed)
    for index in sorted(done):
        if index < count:
            tally.add(done[index])
    places = [(seed, index) for index in range(count) if index not in done]
    try:
        for record in _records(places, jobs):
            if state is not None:
                state.parent.mkdir(parents=True, exist_ok=True)
                with state.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            lines = tally.add(record)
            if show is not None:
                for line in lines:
                    print(f"FAILURE {line}", file=show)
                if tally.runs % 100 == 0:
                    print(f"{tally.runs}/{count}, {len(tally.failures)} failures", file=show)
    except KeyboardInterrupt:
        return tally, False
    return tally, True


def _finished(state: Path | None, seed: int) -> dict[int, Record]:
    found: dict[int, Record] = {}
    if state is not None and state.exists():
        for line in state.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                record = json.loads(line)
                if record["seed"] == seed:
                    found[int(record["index"])] = record
    return found


def _records(places: Sequence[tuple[int, int]], jobs: int) -> Iterator[Record]:
    if jobs <= 1 or len(places) <= 1:
        yield from map(attempted, places)
        return
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    ignoring = (signal.SIGINT, signal.SIG_IGN)
    with get_context("spawn").Pool(jobs, initializer=signal.signal, initargs=ignoring) as pool:
        yield from pool.imap_unordered(attempted, places)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print its tally; 0 if every certificate verified, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python tools/verify_many.py", description="Verify the certificates of random runs."
    )
    parser.add_argument("--runs", type=int, default=10_000, help="how many runs")
    parser.add_argument("--seed", type=int, default=1, help="which runs")
    parser.add_argument("--state", type=Path, default=None, help="file to go on from")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    chosen = parser.parse_args(arguments)
    tally, finished = campaign(chosen.runs, chosen.seed, chosen.state, chosen.jobs, sys.stderr)
    print(tally)
    if not finished:
        print("stopped early; the same command goes on from here if it names a state file")
        return 130
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
