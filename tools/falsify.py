"""The long attack: every bound's claim on random runs against proved lower bounds.

    python tools/falsify.py --settings 500 --seed 1 --state FILE --jobs 2

Each setting is described once, every sound bound that applies to it states its own epsilon, and the
largest epsilon that an exact adversary proves to be needed for the same description is set against
all of them. A claim below it is a violation, and so is a bound that breaks down. The
state file gets one line per setting as it is finished; a second call with the same file goes on
where the first one stopped, as long as the library has not changed in between.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import dplateau
from dplateau.algorithms import Poisson, Run
from dplateau.audit.adversary import Effort, search_adversary
from dplateau.audit.lower_bounds import lower_bound, rounding
from dplateau.audit.problems import lower_epsilon
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.curves import PrivacyCurve
from dplateau.errors import NotApplicable
from falsify_settings import KINDS, setting

DEFAULT_SETTINGS = 2400
# One setting in so many also attacks the same curves at other deltas than they were planned for.
_CURVE_EVERY = 4
_OTHER_DELTAS = (0.03, 30.0)


@dataclass(frozen=True)
class Attack:
    """What was claimed about one run and what was proved to be needed.

    ``claims`` and ``lowers`` are keyed by bound and by delta, both as text, so that the attack is
    JSON-ready; ``failures`` holds bounds that broke down instead of answering or refusing.
    """

    lowers: dict[str, float]
    claims: dict[str, dict[str, float]]
    failures: dict[str, str] = field(default_factory=dict)

    def ratios(self) -> Iterator[tuple[str, str, float]]:
        """Yield (bound, delta, claim / lower bound) wherever the lower bound says something."""
        for name, values in self.claims.items():
            for delta, claim in values.items():
                lower = self.lowers.get(delta, 0.0)
                if lower > 0:
                    yield name, delta, claim / lower

    def violations(self) -> list[str]:
        """Return a line for each claim below a lower bound, and for each failure."""
        found = [
            f"{name} claims {self.claims[name][delta]!r} at delta {delta}, "
            f"at least {self.lowers[delta]!r} is needed"
            for name, delta, ratio in self.ratios()
            if ratio < 1
        ]
        return found + [f"{name} broke down: {text}" for name, text in self.failures.items()]

    def best_ratio(self, delta: float) -> float | None:
        """Return the smallest claim over the lower bound, or None if there is no lower bound."""
        found = [ratio for _, at, ratio in self.ratios() if at == repr(delta)]
        return min(found) if found else None


def attack(
    run: Run, delta: float, *, bounds: Sequence[Bound] = BOUNDS, other_deltas: Sequence[float] = ()
) -> Attack:
    """Set every bound's own claim about ``run`` against what is proved to be needed.

    ``other_deltas``: further points at which the same curves, planned for ``delta``, are attacked.

    >>> from dplateau.algorithms import NoisyGD
    >>> found = attack(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5)
    >>> found.violations(), found.best_ratio(1e-5) < 1.0001
    ([], True)
    """
    curves: dict[str, PrivacyCurve] = {}
    claims: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    deltas = (delta, *other_deltas)
    for bound in bounds:
        if not bound.sound or bound.refusal(run) is not None:
            continue
        try:
            curves[bound.name] = bound.curve_for(run, bound.plan_for(run, delta))
            claims[bound.name] = {repr(at): curves[bound.name].epsilon(at) for at in deltas}
        except Exception as error:  # whatever it is, a bound that applies has to answer
            failures[bound.name] = f"{type(error).__name__}: {error}"
    return Attack(needed(run, deltas), claims, failures)


def needed(run: Run, deltas: Sequence[float], effort: Effort = "quick") -> dict[str, float]:
    """Return the largest epsilon that an exact problem proves at each delta; 0 if there is none.

    The adversary searches at the first delta; at the others its problem and the usual ones count.
    Under Poisson sampling what the other records add is taken in the limit of many records. No
    bound claims less for more records at the same rate and record step (n enters through the cap on
    batches only, which is then closer to the mean), so the limit counts against every one.
    """
    limit = isinstance(run.batches, Poisson) and not run.has_own_rate
    try:
        found = search_adversary(run, deltas[0], effort=effort, limit=limit)
    except NotApplicable:
        return {repr(delta): 0.0 for delta in deltas}
    lowers = {repr(deltas[0]): found.epsilon}
    for delta in deltas[1:]:
        again = lower_epsilon(found.problem, delta).epsilon * (1 - rounding(found.problem))
        lowers[repr(delta)] = max(again, lower_bound(run, delta, limit_drift=limit).epsilon)
    return lowers


# --- the campaign ------------------------------------------------------------------------------


def fingerprint() -> str:
    """Return a checksum of all sources at work: a changed library starts a campaign afresh."""
    found = hashlib.sha256()
    sources = (Path(dplateau.__file__).parent, "**/*.py"), (Path(__file__).parent, "falsify*.py")
    for folder, pattern in sources:
        for path in sorted(folder.glob(pattern)):
            found.update(path.relative_to(folder).as_posix().encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def attack_setting(place: tuple[int, int]) -> dict[str, Any]:
    """Attack the setting of (seed, index) and return a JSON-ready record."""
    chosen = setting(*place)
    other = _OTHER_DELTAS if chosen.index % _CURVE_EVERY == 0 else ()
    began = time.process_time()
    found = attack(
        chosen.run, chosen.delta, other_deltas=[chosen.delta * factor for factor in other]
    )
    return {
        **chosen.to_dict(),
        "kind": chosen.kind,
        "lowers": found.lowers,
        "claims": found.claims,
        "failures": found.failures,
        "seconds": round(time.process_time() - began, 2),
    }


@dataclass
class Group:
    """The settings of one kind: how many, and the best claim over the lower bound of each."""

    settings: int = 0
    claims: int = 0
    ratios: list[float] = field(default_factory=list)

    @property
    def tight(self) -> float:
        """Share of the settings with a lower bound whose best claim is below twice that bound."""
        below = sum(ratio < 2 for ratio in self.ratios)
        return below / len(self.ratios) if self.ratios else 0.0

    def row(self, name: str) -> str:
        """Show one line of the table by kind."""
        middle = f"{median(self.ratios):.3f}" if self.ratios else "-"
        none = self.settings - len(self.ratios)
        return (
            f"{name:<28}  {self.settings:>8}  {none:>8}  {self.claims:>7}  {self.tight:>7.1%}"
            f"  {middle:>12}"
        )


@dataclass
class Tally:
    """What a campaign has found so far."""

    total: Group = field(default_factory=Group)
    kinds: dict[str, Group] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    tightest: dict[str, tuple[float, int]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def settings(self) -> int:
        """How many settings were attacked."""
        return self.total.settings

    def add(self, record: dict[str, Any]) -> list[str]:
        """Count one setting; return what is wrong with it."""
        found = Attack(record["lowers"], record["claims"], record["failures"])
        ratios = list(found.ratios())
        for name, _, ratio in ratios:
            self.claims[name] = self.claims.get(name, 0) + 1
            self.tightest[name] = min(
                self.tightest.get(name, (math.inf, -1)), (ratio, record["index"])
            )
        best = found.best_ratio(record["delta"])
        for group in (self.total, self.kinds.setdefault(record["kind"], Group())):
            group.settings += 1
            group.claims += len(ratios)
            group.ratios += [] if best is None else [best]
        self.seconds += record["seconds"]
        place = {key: record[key] for key in ("seed", "index", "delta", "run")}
        lines = [f"{text}: {json.dumps(place)}" for text in found.violations()]
        self.violations += lines
        return lines

    def __str__(self) -> str:
        """Show a line for each bound and for each kind of run, the counts, and every violation."""
        lines = [f"{'bound':<28}  {'claims':>8}  {'least claim / lower bound':>26}  index"]
        for bound in BOUNDS:
            if bound.name in self.claims:
                ratio, index = self.tightest[bound.name]
                lines.append(
                    f"{bound.name:<28}  {self.claims[bound.name]:>8}  {ratio:>26.7f}  {index}"
                )
        lines += [
            "",
            f"{'kind of run':<28}  {'settings':>8}  {'no lower':>8}  {'claims':>7}  "
            f"{'below 2':>7}  {'median ratio':>12}",
        ]
        lines += [self.kinds[k].row(k) for k in dict.fromkeys(KINDS) if k in self.kinds]
        lines += [self.total.row("all")]
        lines += [
            "",
            f"settings: {self.settings}, of which {self.settings - len(self.total.ratios)} without "
            "a lower bound above 0",
            f"best claim below twice the lower bound: {self.total.tight:.1%} of the others",
            f"claims attacked: {self.total.claims}",
            f"violations: {len(self.violations)}",
        ]
        return "\n".join(lines + [f"VIOLATION {line}" for line in self.violations])


class State:
    """One JSON line per finished setting; a line that was cut off is dropped."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.path, self.seed, self.library = path, seed, fingerprint()
        self._file: TextIO | None = None

    def finished(self) -> dict[int, dict[str, Any]]:
        """Return the records of this seed and this library, by index."""
        if self.path is None or not self.path.exists():
            return {}
        found, kept = {}, []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                record = json.loads(line)
                kept.append(line + "\n")
                if record.get("library") == self.library and record["seed"] == self.seed:
                    found[int(record["index"])] = record
        self.path.write_text("".join(kept), encoding="utf-8")
        return found

    def write(self, record: dict[str, Any]) -> None:
        """Append one record at once."""
        if self.path is None:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        self._file.write(json.dumps({**record, "library": self.library}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def campaign(
    count: int, seed: int, state: State, jobs: int, show: TextIO | None = None
) -> tuple[Tally, bool]:
    """Attack ``count`` settings; return the tally, and whether all of them were finished."""
    tally, done = Tally(), state.finished()
    for index in sorted(index for index in done if index < count):
        tally.add(done[index])
    places = [(seed, index) for index in range(count) if index not in done]
    began = time.perf_counter()
    try:
        for record in _records(places, jobs):
            state.write(record)
            wrong = tally.add(record)
            if show is not None:
                _progress(show, tally, count, time.perf_counter() - began, wrong)
    except KeyboardInterrupt:
        return tally, False
    finally:
        state.close()
    return tally, True


def _progress(show: TextIO, tally: Tally, count: int, seconds: float, wrong: Iterable[str]) -> None:
    for line in wrong:
        print(f"\nVIOLATION {line}", file=show)
    found = f"{tally.settings}/{count} settings, {len(tally.violations)} violations"
    print(f"\r{found}, {seconds:.0f} s ", end="", file=show, flush=True)


def _records(places: Sequence[tuple[int, int]], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield records as they are finished, from worker processes if there is more than one job."""
    if jobs <= 1 or len(places) <= 1:
        yield from map(attack_setting, places)
        return
    # One thread for each worker: they share the processors among themselves.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    pool: Pool
    with get_context("spawn").Pool(jobs, initializer=_ignore_interrupts) as pool:
        yield from pool.imap_unordered(attack_setting, places)


def _ignore_interrupts() -> None:
    """Leave it to the parent process to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print its tally; 0 if nothing was found, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python tools/falsify.py",
        description="Set every bound's claims on random runs against proved lower bounds.",
    )
    parser.add_argument("--settings", type=int, default=DEFAULT_SETTINGS, help="how many runs")
    parser.add_argument("--seed", type=int, default=1, help="which runs")
    parser.add_argument("--state", type=Path, default=None, help="file to go on from")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    chosen = parser.parse_args(arguments)
    state = State(chosen.state, chosen.seed)
    tally, finished = campaign(chosen.settings, chosen.seed, state, chosen.jobs, sys.stderr)
    print(file=sys.stderr)
    print(tally)
    each = tally.seconds / max(1, tally.settings)
    print(f"processor time: {tally.seconds:.0f} s, {each:.2f} s for each setting")
    if not finished:
        print("stopped early; the same command goes on from here if it names a state file")
        return 130
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
