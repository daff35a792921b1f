"""Forged certificates: every field of honest ones is altered, and only true claims may verify.

    python tools/forge.py --each 3 --seed 1 --state FILE --jobs 2

Honest certificates of every sound bound on the runs of ``tests/catalogue.py``, compositions of them
and mixing certificates (``forge_papers.py``) are altered one field at a time, or ``--at-once``
several, and sealed anew, so that only the mathematics can tell. A forgery whose claim does not
verify is given the smallest one that may: what the verifier derives. Whatever verifies has to be
true (``forge_judges.py``): no exact adversary proves that more is needed, and the library's own
evaluation of the altered proof, or its best bound for the altered run, claims about as little.
The state file gets one line per certificate; a second call with the same file goes on where the
first one stopped.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import certify
from dplateau.ground.sealed import CERTIFICATE, COMPOSITION, FOREIGN, digest_of
from dplateau.ground.sealed import MIXING as MIXED
from dplateau.verify import verify, verify_mixing
from dplateau.verify.report import Examination
from dplateau.verify.verdict import examined

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from catalogue import RUNS
from forge_judges import judged
from forge_papers import DELTA, GROUPS, grouped, honest_paper, papers

Found = dict[str, Any]
Place = tuple[str | int, ...]
ALL_RUNS = {**RUNS, **GROUPS}
# Texts that mean something in some field.
WORDS = (
    *("convex and smooth", "convex and Lipschitz", "convex and weakly smooth", "smooth"),
    *("strongly dissipative", "Lipschitz", "add_remove", "replace", "last", "all", "random_stop"),
    *("poisson", "fixed", "cyclic", "shuffle_once", "reshuffle", "gaussian", "laplace"),
    *("gd_contraction", "gd_bounded", "cyclic_contraction", "NoisyGD", "NoisySGD", "CyclicSGD"),
    *("GDP composition", "PLD composition", "basic composition", "worst part", "same", "disjoint"),
    *("table", "pairs", "record", "declared", "checked", "ball", "box", "body"),
    "the parts use disjoint records, divided without looking at the data",
)


def places(found: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of every value and of every list."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from places(value, (*place, name))
        return
    if isinstance(found, list):
        for i, value in enumerate(found):
            yield from places(value, (*place, i))
    yield place


def few_of_a_kind(found: Found, rng: random.Random, most: int) -> list[Place]:
    """Return places, of those that differ only in their number in a list a few."""
    kinds: dict[Place, list[Place]] = {}
    content = {name: value for name, value in found["content"].items() if name in ALTERED}
    for place in places({"content": content}):
        kinds.setdefault(tuple(key for key in place if isinstance(key, str)), []).append(place)
    chosen = (rng.sample(alike, min(most, len(alike))) for alike in kinds.values())
    return [place for alike in chosen for place in alike]


ALTERED = ("claim", "bound", "run", "witness", "records", "method", "parts", "assumptions")
# What is no number, or one at an end of double precision.
_ODD = (True, None, "1", [1], {}, -0.0, 5e-324, 1e308, 10**400)


def changes(value: Any, rng: random.Random) -> list[Any]:
    """Return other values for one field."""
    if isinstance(value, bool) or value is None:
        return [not value, None, 1, 0.5]
    if isinstance(value, int):
        whole = [value + 1, value - 1, 2 * value, value // 2, 0, -value, 10 * value + 1, 10**18]
        return [*whole, float(value), float(value) + 0.5, rng.choice(_ODD), rng.choice(_ODD)]
    if isinstance(value, float):
        factors = (1.02, 0.98, 1.3, 0.7, 10.0, 0.1, 1e6, 1e-6, 1 + 1e-7, 1 - 1e-7, -1.0, 0.0)
        near = [value * factor for factor in factors]
        return [*near, value + 0.01, 1e-308, rng.choice(_ODD), rng.choice(_ODD)]
    if isinstance(value, str):
        return [word for word in WORDS if word != value] + [""]
    listed = list(value)
    shuffled = rng.sample(listed, len(listed))
    return [listed[:-1], listed[1:], [*listed, *listed[-1:]], listed[::-1], shuffled, []]


def altered(found: Found, place: Place, value: Any) -> Found:
    """Return a copy with another value at one place, and digests to match, of inner papers too."""
    new = copy.deepcopy(found)
    inside: Any = new
    papers = [new]
    for key in place[:-1]:
        inside = inside[key]
        papers += [inside] if isinstance(inside, dict) and "digest" in inside else []
    if value is GONE:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    for paper in reversed(papers):
        paper["digest"] = digest_of(paper)
    return new


# In place of a value: the field is left out.
GONE = object()
EPSILON: Place = ("content", "claim", "epsilon")
# A verification that takes more than that breaks down; the libraries themselves take a part of it.
_MOST_MEMORY = 2 << 30


def accepted(forgery: Found) -> Found | None:
    """Return the forgery if it verifies, or else with the claims that do, or None."""
    ok, derived, detail, place = _verified(forgery)
    for attempt in range(3):
        if ok:
            return forgery
        if "MemoryError" in detail:
            raise MemoryError(f"more than {_MOST_MEMORY} bytes")
        if derived is None and (attempt > 0 or forgery["kind"] != COMPOSITION.name):
            return None
        if derived is None:
            forgery = _with_proved_parts(forgery)
        else:
            forgery = altered(forgery, place, derived * (1 + 1e-9))
        ok, derived, detail, place = _verified(forgery)
    return None


def _verified(forgery: Found) -> tuple[bool, float | None, str, Place]:
    """Return the verdict, what was derived, the last check, and where the claim stands."""
    if forgery["kind"] == MIXED.name:
        mixing = verify_mixing(forgery)
        place = ("content", "claim", "total_variation")
        return mixing.ok, mixing.rederived_tv, mixing.checks[-1].detail, place
    verdict = verify(forgery)
    return verdict.ok, verdict.rederived_epsilon, verdict.checks[-1].detail, EPSILON


def _with_proved_parts(forgery: Found) -> Found:
    """Return a composition whose parts claim, and have as Gaussian laws, what may verify."""
    parts = forgery["content"].get("parts")
    for i, entry in enumerate(parts if isinstance(parts, list) else []):
        with suppress(Exception):  # a forger who cannot mend a part leaves it as it is
            place: Place = ("content", "parts", i)
            if entry["part"]["kind"] != FOREIGN.name:
                mended = accepted(entry["part"])
                if mended is not None:
                    forgery = altered(forgery, (*place, "part"), mended)
                    entry = forgery["content"]["parts"][i]
            if entry["law"]["kind"] == "gaussian" and entry["part"]["kind"] == CERTIFICATE.name:
                mu = examined(entry["part"], Examination())[2].mu
                forgery = altered(forgery, (*place, "law", "mu"), mu)
    return forgery


@cache
def honest(run: str, bound: str) -> Found:
    """Return an honest certificate, or another honest paper, as JSON data."""
    if (run, bound) in papers():
        return honest_paper(run, bound)
    made = certify(ALL_RUNS[run], DELTA, bounds=[bound_named(bound)])
    found: Found = json.loads(made.to_json())
    return found


def applicable() -> list[tuple[str, str]]:
    """Return every run of the catalogue with every bound that speaks about it, and other papers."""
    certificates = [
        (name, bound.name)
        for bound in BOUNDS
        for name, run in RUNS.items()
        if bound.sound and bound.refusal(run) is None
    ]
    return [*certificates, *grouped(), *papers()]


@dataclass(frozen=True)
class Subject:
    """One certificate to alter: ``each`` values for at most ``most`` fields, drawn by the seed.

    Beside the field whose turn it is, others change too until ``at_once`` have.
    """

    run: str
    bound: str
    seed: int
    each: int
    most: int = 10**6
    at_once: int = 1

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Return what names it in a state file."""
        return self.run, self.bound, self.seed, self.at_once


def forged(subject: Subject) -> Found:
    """Alter one certificate in many ways and return a JSON-ready record of what verified."""
    run, bound, seed, each = subject.run, subject.bound, subject.seed, subject.each
    rng = random.Random(f"{run} {bound} {seed}")
    found = honest(run, bound)
    record: Found = {"run": run, "bound": bound, "seed": seed, "at_once": subject.at_once}
    record |= {"tried": 0, "slowest": [0.0, ""], "true": 0, "false": [], "open": [], "crashed": []}
    donor = honest(*rng.choice([pair for pair in applicable() if pair[1] == bound]))
    kinds = few_of_a_kind(found, rng, 2)
    for place in rng.sample(kinds, min(subject.most, len(kinds))):
        for value in _values(found, donor, place, rng, each):
            changed = {place: value}
            others = [other for other in kinds if other != place]
            for other in rng.sample(others, min(subject.at_once - 1, len(others))):
                changed[other] = _values(found, donor, other, rng, 1)[0]
            forgery, where = found, []
            for at, new in changed.items():
                with suppress(KeyError, IndexError, TypeError):  # another change took it away
                    forgery = altered(forgery, at, new)
                    shown = "nothing" if new is GONE else json.dumps(new)[:80]
                    where.append(f"{'.'.join(map(str, at))} = {shown}")
            _count(record, forgery, " and ".join(where))
    return record


def _values(found: Found, donor: Found, place: Place, rng: random.Random, most: int) -> list[Any]:
    options = changes(_at(found, place), rng) + ([GONE] if isinstance(place[-1], str) else [])
    with suppress(KeyError, IndexError, TypeError):
        options.append(_at(donor, place))  # the same field of another certificate
    return rng.sample(options, min(most, len(options)))


def _count(record: Found, forgery: Found, where: str) -> None:
    """Verify a forgery and write down what came of it."""
    began = time.process_time()
    try:
        passed = accepted(forgery)
    except Exception as problem:  # a verifier must never break down
        record["crashed"].append(f"{where}: {type(problem).__name__}: {problem}")
        return
    seconds = round(time.process_time() - began, 2)
    record["slowest"] = max(record["slowest"], [seconds, where])
    record["tried"] += 1
    if passed is None:
        return
    verdict = judged(passed)
    if verdict == "true":
        record["true"] += 1
    else:
        claim = ", ".join(f"{name} {value:g}" for name, value in passed["content"]["claim"].items())
        record[verdict].append(f"{where}: {claim}")


def _at(found: Any, place: Place) -> Any:
    for key in place:
        found = found[key]
    return found


@dataclass
class Tally:
    """What a campaign has found so far."""

    certificates: int = 0
    tried: int = 0
    true: int = 0
    slowest: tuple[float, str] = (0.0, "")
    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, record: Found) -> None:
        """Count one certificate."""
        self.certificates += 1
        self.tried += record["tried"]
        self.true += record["true"]
        name = f"{record['bound']} on {record['run']!r}"
        self.slowest = max(self.slowest, (record["slowest"][0], f"{name}: {record['slowest'][1]}"))
        for kind in ("false", "open", "crashed"):
            self.lines.setdefault(kind, []).extend(f"{name}: {text}" for text in record[kind])

    def __str__(self) -> str:
        """Show the counts, and every forgery that should not have verified."""
        accepted = self.true + len(self.lines.get("false", [])) + len(self.lines.get("open", []))
        lines = [
            f"certificates: {self.certificates}, forgeries: {self.tried}, verified: {accepted}",
            f"slowest: {self.slowest[0]:.1f} s ({self.slowest[1]})",
        ]
        for kind, found in self.lines.items():
            lines += [f"{kind}: {len(found)}", *(f"  {line}" for line in found)]
        return "\n".join(lines)

    @property
    def sound(self) -> bool:
        """Whether no forgery with a false claim verified, and nothing broke down."""
        return not self.lines.get("false") and not self.lines.get("crashed")


def campaign(
    subjects: Sequence[Subject],
    state: Path | None,
    jobs: int,
    show: TextIO | None = None,
) -> Tally:
    """Alter the certificates of all subjects, and return what was found."""
    tally, done = Tally(), _finished(state)
    left = []
    for subject in subjects:
        if subject.key in done:
            tally.add(done[subject.key])
        else:
            left.append(subject)
    with suppress(KeyboardInterrupt):
        for record in _records(left, jobs):
            if state is not None:
                state.parent.mkdir(parents=True, exist_ok=True)
                with state.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            tally.add(record)
            if show is not None:
                wrong = record["false"] + record["open"] + record["crashed"]
                name = f"{record['bound']} on {record['run']!r}"
                print(f"{tally.certificates}/{len(subjects)} {name}: {wrong or 'sound'}", file=show)
    return tally


def _finished(state: Path | None) -> dict[tuple[str, str, int, int], Found]:
    found: dict[tuple[str, str, int, int], Found] = {}
    if state is not None and state.exists():
        for line in state.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                record = json.loads(line)
                one = record["run"], record["bound"], record["seed"], record.get("at_once", 1)
                found[one] = record
    return found


def _limited() -> None:
    """Leave interrupts to the parent, and take no more memory than a verifier may."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def _records(subjects: Sequence[Subject], jobs: int) -> Iterator[Found]:
    if jobs < 1:  # in this process
        yield from map(forged, subjects)
        return
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with get_context("spawn").Pool(jobs, initializer=_limited) as pool:
        yield from pool.imap_unordered(forged, subjects)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print its tally; 0 if only true claims verified, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python tools/forge.py", description="Alter every field of honest certificates."
    )
    parser.add_argument("--each", type=int, default=3, help="how many values for every field")
    parser.add_argument("--at-once", type=int, default=1, help="how many fields change at once")
    parser.add_argument("--seed", type=int, default=1, help="which values")
    parser.add_argument("--most", type=int, default=math.inf, help="how many certificates")
    parser.add_argument("--only", default="", help="one bound, or composition, or mixing")
    parser.add_argument("--state", type=Path, default=None, help="file to go on from")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (0: this one)"
    )
    chosen = parser.parse_args(arguments)
    subjects = [
        Subject(*pair, chosen.seed, chosen.each, at_once=chosen.at_once)
        for pair in applicable()
        if chosen.only in ("", pair[1])
    ]
    random.Random(chosen.seed).shuffle(subjects)
    tally = campaign(
        subjects[: min(chosen.most, len(subjects))], chosen.state, chosen.jobs, sys.stderr
    )
    print(tally)
    return 0 if tally.sound else 1


if __name__ == "__main__":
    sys.exit(main())
