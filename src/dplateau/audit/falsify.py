"""The long attack: every bound's claim on random runs against proved lower bounds.

    python -m dplateau.audit.falsify --settings 500 --seed 1 --state FILE --jobs 2

Each setting is described once, every sound bound that applies to it states its own epsilon, and the
largest epsilon that an exact one-dimensional run of the same description proves to be needed is
set against all of them. A claim below it is a violation, and so is a bound that breaks down. The
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
from typing import Any, TextIO

import numpy as np

from dplateau.algorithms import CyclicSGD, NoisySGD, Run, Schedule
from dplateau.audit.lower_bounds import lower_bound
from dplateau.audit.settings import setting
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.curves.base import PrivacyCurve
from dplateau.errors import NotApplicable
from dplateau.numerics.types import FloatArray

DEFAULT_SETTINGS = 600
# One setting in so many also attacks the same curves at other deltas than they were planned for.
_CURVE_EVERY = 4
_OTHER_DELTAS = (0.03, 30.0)
_MOST_PATTERNS = 4096


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
            curves[bound.name] = bound.curve(run, bound.plan(run, delta))
            claims[bound.name] = {repr(at): curves[bound.name].epsilon(at) for at in deltas}
        except Exception as error:  # whatever it is, a bound that applies has to answer
            failures[bound.name] = f"{type(error).__name__}: {error}"
    lowers = {repr(at): needed(run, at) for at in deltas}
    return Attack(lowers, claims, failures)


def needed(run: Run, delta: float) -> float:
    """Return the largest epsilon that a known exact problem proves; 0 if there is none.

    Under Poisson sampling a constant drift of the other records is the limit of many records. No
    bound claims less for more records at the same rate and record step (n enters through the cap on
    batches only, which is then closer to the mean), so the limit counts against every one.
    """
    limit = isinstance(run, NoisySGD) and run.sampling == "poisson"
    try:
        return lower_bound(run, delta, limit_drift=limit).epsilon
    except NotApplicable:
        return _reshuffled(run, delta)


def _reshuffled(run: Run, delta: float) -> float:
    """Return what a run on linear losses, reshuffled every epoch and without walls, must lose.

    Given the record's places the final law is Gaussian. The places in the last few epochs are
    enumerated; in each earlier epoch the record is put where it helps the attack least.
    """
    if not isinstance(run, CyclicSGD) or run.order != "reshuffle" or run.domain is not None:
        return 0.0
    scales = (run.learning_rate, run.iterate_std, run.record_step)
    if run.noise_kind != "gaussian" or any(s is None or isinstance(s, Schedule) for s in scales):
        return 0.0
    eta, noise, step = (float(s) for s in scales if s is not None and not isinstance(s, Schedule))
    ratio = 1.0 - eta * run.l2
    if not 0 <= ratio <= 1:
        return 0.0
    weights, reach, slack = _places(run, ratio)
    # Means in units of the noise of the last state; the variance is rounded the safe way below.
    squares = float(np.sum(ratio ** (2.0 * np.arange(run.steps))))
    unit = step / (noise * math.sqrt(squares))
    found = 0.0
    for share in (0.0, -1.0):  # the other records: of zero gradient, or all of opposite slope
        present, absent = 1.0 - share, (0.0 if run.neighbors == "add_remove" else -1.0) - share
        first = unit * present * reach
        second = unit * (absent * reach + max(absent * slack, 0.0))
        found = max(found, _mixture_epsilon(weights, first, second, delta))
    return found * (1 - 1e-9)


def _places(run: CyclicSGD, ratio: float) -> tuple[FloatArray, FloatArray, float]:
    """Return probabilities and weighted uses of the record's places, and what is left open.

    The uses count the earliest place of every epoch that is not enumerated, which weighs least;
    the open part is how much more these epochs could weigh.
    """
    length, size = run.batches_per_epoch, int(run.batch_size)
    shares = np.full(length, size / run.n)
    shares[-1] = 1 - (length - 1) * size / run.n
    epochs = -(-run.steps // length)
    weights, reach, slack = np.ones(1), np.zeros(1), 0.0
    for epoch in reversed(range(epochs)):
        steps = epoch * length + np.arange(length)
        # Places beyond the end of the run are no uses at all.
        used = np.where(steps < run.steps, ratio ** np.maximum(run.steps - 1.0 - steps, 0.0), 0.0)
        if weights.size * length <= _MOST_PATTERNS:
            weights = np.multiply.outer(weights, shares).ravel()
            reach = np.add.outer(reach, used).ravel()
        else:
            reach, slack = reach + used.min(), slack + float(used.max() - used.min())
    return weights, reach, slack


def _mixture_epsilon(
    weights: FloatArray, first: FloatArray, second: FloatArray, delta: float
) -> float:
    """Return the best log((P - delta) / Q) over half-lines, for mixtures of unit Gaussians."""
    from scipy.special import ndtr

    points = np.linspace(float(second.min()), float(first.max()) + 12.0, 1501)[:, None]
    likely = ndtr(first - points) @ weights * (1 - 1e-10)
    rare = ndtr(second - points) @ weights * (1 + 1e-10) + 1e-300
    usable = likely > delta
    scores = np.log((likely[usable] - delta) / rare[usable])
    return max(0.0, float(np.max(scores, initial=0.0)))


# --- the campaign ------------------------------------------------------------------------------


def fingerprint() -> str:
    """Return a checksum of the library's sources: a changed library starts a campaign afresh."""
    folder = Path(__file__).parents[1]
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def attack_setting(place: tuple[int, int]) -> dict[str, Any]:
    """Attack the setting of (seed, index) and return a JSON-ready record."""
    chosen = setting(*place)
    other = _OTHER_DELTAS if chosen.index % _CURVE_EVERY == 0 else ()
    began = time.perf_counter()
    found = attack(
        chosen.run, chosen.delta, other_deltas=[chosen.delta * factor for factor in other]
    )
    return {
        **chosen.to_dict(),
        "kind": chosen.kind,
        "lowers": found.lowers,
        "claims": found.claims,
        "failures": found.failures,
        "seconds": round(time.perf_counter() - began, 2),
    }


@dataclass
class Tally:
    """What a campaign has found so far."""

    settings: int = 0
    without: int = 0
    tight: int = 0
    claims: dict[str, int] = field(default_factory=dict)
    tightest: dict[str, tuple[float, int]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> list[str]:
        """Count one setting; return what is wrong with it."""
        found = Attack(record["lowers"], record["claims"], record["failures"])
        self.settings += 1
        for name, _, ratio in found.ratios():
            self.claims[name] = self.claims.get(name, 0) + 1
            self.tightest[name] = min(
                self.tightest.get(name, (math.inf, -1)), (ratio, record["index"])
            )
        best = found.best_ratio(record["delta"])
        self.without += best is None
        self.tight += best is not None and best < 2
        place = {key: record[key] for key in ("seed", "index", "delta", "run")}
        lines = [f"{text}: {json.dumps(place)}" for text in found.violations()]
        self.violations += lines
        return lines

    def __str__(self) -> str:
        """Show the counts, a line for each bound, and every violation."""
        lines = [f"{'bound':<28}  {'claims':>7}  {'least claim / lower bound':>26}  index"]
        for bound in BOUNDS:
            if bound.name in self.claims:
                ratio, index = self.tightest[bound.name]
                lines.append(
                    f"{bound.name:<28}  {self.claims[bound.name]:>7}  {ratio:>26.7f}  {index}"
                )
        compared = self.settings - self.without
        share = self.tight / compared if compared else 0.0
        lines += [
            f"settings: {self.settings}, of which {self.without} without a lower bound above 0",
            f"best claim below twice the lower bound: {share:.1%} of the others",
            f"claims attacked: {sum(self.claims.values())}",
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
        prog="python -m dplateau.audit.falsify",
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
    if not finished:
        print("stopped early; the same command goes on from here if it names a state file")
        return 130
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
