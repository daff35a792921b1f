"""What the page asks, answered piece by piece: each answer yields JSON-ready messages.

They run in the worker processes. Whatever is shown as an epsilon is a claim of the library: a
preview has fewer points, and each of them is proved.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dplateau.algorithms import Run
from dplateau.audit.lower_curves import lower_count, lower_over_steps
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Certificate, calibrate, certify, epsilon_over_steps, step_counts
from dplateau.certificates.certify import ComparisonRow, ask, candidates, certificate_of, survey
from dplateau.errors import DplateauError, InvalidInput, NotApplicable
from dplateau.explore.settings import MOST_STEPS, Setting, setting_of
from dplateau.ground.shown import rounded_down, rounded_up
from dplateau.ground.types import IntArray
from dplateau.plots.lines import looks
from dplateau.report import report_page, sign_off, words_of
from dplateau.verify import read_certificate

Message = dict[str, Any]

# Points of a preview, and what it may take beyond one point of every bound (processor seconds).
PREVIEW_POINTS = 40
_PREVIEW_SECONDS = 0.25
_POINTS = 80
# A picture of a proof over deltas or false alarms starts with every so many of its points.
_COARSE = 8


def claim(query: str) -> Iterator[Message]:
    """Yield the claim, then what every bound says, then the whole curve of the same proof."""
    setting = Setting.read(query)
    run, delta = setting.run(), setting.delta
    findings = survey(run, delta, candidates(run))
    certificate = certificate_of(run, delta, findings)
    asked = {finding.bound.name for finding in findings}
    rest = [bound for bound in BOUNDS if bound.sound and bound.name not in asked]
    charged = [f.epsilon for f in findings if not f.bound.hidden_state and f.epsilon is not None]
    yield {
        "kind": "claim",
        "epsilon": certificate.claimed_epsilon,
        "shown": rounded_up(certificate.claimed_epsilon, 3),
        "delta": rounded_up(delta),
        "bound": certificate.bound,
        "title": certificate.theorem.title,
        "hidden_state": certificate.theorem.hidden_state,
        "steps": run.steps,
        "python": setting.python(),
        "command": setting.command(),
        **_beside_composition(certificate, min(charged, default=math.inf)),
    }
    rows = [f.row() for f in (*findings, *(ask(bound, run, delta) for bound in rest))]
    best = min((r.epsilon for r in rows if not r.hidden_state and r.epsilon), default=math.inf)
    yield {"kind": "bounds", **_beside_composition(certificate, best), **_table(rows)}
    yield {"kind": "words", **_words(certificate)}
    papers = {paper.bound: paper for paper in (certificate, *_best_composition(run, delta, rows))}
    for step in (_COARSE, 1):
        for paper in papers.values():
            yield from _whole_curve(paper, step)


def _beside_composition(certificate: Certificate, composed: float) -> Message:
    """Return the best claim that charges for every step, and how much larger it is."""
    if math.isinf(composed):
        return {"composition": None, "composition_shown": None, "ratio": None}
    ratio = composed / certificate.claimed_epsilon if certificate.claimed_epsilon else math.inf
    return {
        "composition": composed,
        "composition_shown": rounded_up(composed, 3),
        # Rounded down: how much is gained is not overstated.
        "ratio": rounded_down(ratio, 3) if ratio > 1.005 else None,
    }


def _table(rows: Sequence[ComparisonRow]) -> Message:
    applying = sorted((r for r in rows if r.epsilon is not None), key=lambda r: r.epsilon or 0.0)
    return {
        "applying": [
            {
                "bound": row.bound,
                "title": row.title,
                "epsilon": rounded_up(row.epsilon or 0.0, 4),
                "hidden_state": row.hidden_state,
                "citation": row.citation,
            }
            for row in applying
        ],
        "silent": [
            {"bound": row.bound, "title": row.title, "reason": row.reason}
            for row in rows
            if row.epsilon is None
        ],
    }


def _words(certificate: Certificate) -> Message:
    words = words_of(certificate)
    return {
        "sentence": words.sentence,
        "attack": str(words.attack),
        "neighbors": words.neighbors,
        "released": list(words.released),
        "doubts": list(words.doubts),
        "assumptions": [{"who": who, "texts": list(texts)} for who, texts in words.assumptions],
    }


def _best_composition(
    run: Run, delta: float, rows: Sequence[ComparisonRow]
) -> Iterator[Certificate]:
    """Yield the claim of the best theorem that counts every step, if one speaks."""
    charged = [row for row in rows if not row.hidden_state and row.epsilon is not None]
    if charged:
        best = min(charged, key=lambda row: row.epsilon or 0.0)
        yield certify(run, delta, bounds=[bound_named(best.bound)])


def _whole_curve(certificate: Certificate, step: int) -> Iterator[Message]:
    """Yield epsilon over delta and the trade-off curve of one proof, at every so many places."""
    theorem, curve, delta = certificate.theorem, certificate.curve, certificate.claimed_delta
    least, most = min(delta, 1e-5) * 1e-5, max(1e-2, min(0.5, 10 * delta))
    deltas = np.geomspace(least, most, 33)
    rates = np.linspace(0.0, 1.0, 41) ** 2

    def epsilon(value: float) -> float:
        return theorem.claim(curve.epsilon(value))

    for name, places, of in (
        ("over_delta", deltas[::step], epsilon),
        ("tradeoff", rates[::step], curve.tradeoff),
    ):
        yield {
            "kind": name,
            "bound": certificate.bound,
            "title": theorem.title,
            "hidden": theorem.hidden_state,
            "x": places.tolist(),
            "y": [_finite(of(float(place))) for place in places],
            "preview": step > 1,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- over the number of steps -------------------------------------------------------------------


class _Line(NamedTuple):
    """What is known so far of one bound: epsilon by the number of steps, and how long one took."""

    bound: Bound
    known: dict[int, float]
    seconds: float


def curves(query: str) -> Iterator[Message]:
    """Yield all bounds over the number of steps: a preview, then each in full, then the truth."""
    setting = Setting.read(query)
    run, delta = setting.run(), setting.delta
    last = farthest(run.steps)
    coarse, fine = (_lengths(run, last, points) for points in (PREVIEW_POINTS, _POINTS))
    longest = run.replace(steps=last)
    lines = _preview(
        run, delta, coarse, [b for b in BOUNDS if b.sound and b.refusal(longest) is None]
    )
    ends = [line.known.get(last, math.inf) for line in lines]
    styles = looks([line.bound.hidden_state for line in lines], ends)
    yield {
        "kind": "preview",
        "last": last,
        "lines": [
            {
                "bound": line.bound.name,
                "title": line.bound.title,
                "hidden": line.bound.hidden_state,
                "color": look.color,
                "width": look.width,
                **_points(line.known),
            }
            for line, look in zip(lines, styles, strict=True)
        ],
    }
    for line in sorted(lines, key=lambda line: line.seconds):
        yield {
            "kind": "line",
            "bound": line.bound.name,
            **_points(_over(run, delta, fine, line.bound)),
        }
    yield from _lower(run, delta, fine)


def farthest(steps: int) -> int:
    """Return where the curve ends: a power of ten well beyond the run, so that it seldom moves.

    >>> farthest(5000), farthest(1), farthest(4_000_000)
    (100000, 1000, 10000000)
    """
    digits: int = math.ceil(math.log10(3 * steps))
    return min(int(10 ** max(3, digits)), MOST_STEPS)


def _lengths(run: Run, last: int, points: int) -> IntArray:
    return np.unique(np.append(step_counts(run, 1, last, points), [run.steps, last]))


def _preview(run: Run, delta: float, lengths: IntArray, bounds: Sequence[Bound]) -> list[_Line]:
    """Return one point of every bound, then as many more as a short time allows."""
    lines = []
    for bound in bounds:
        start = time.process_time()
        known = _over(run, delta, lengths[-1:], bound)
        lines.append(_Line(bound, known, time.process_time() - start))
    left = _PREVIEW_SECONDS
    order = _spread_out(lengths)
    for line in sorted(lines, key=lambda line: line.seconds):
        quick = line.seconds * lengths.size < left
        for group in [lengths] if quick else [np.array([length]) for length in order]:
            start = time.process_time()
            line.known.update(_over(run, delta, group, line.bound))
            left -= time.process_time() - start
            if left < 0 and len(line.known) > 2:
                break
    return lines


def _spread_out(lengths: IntArray) -> list[int]:
    """Return the lengths so that any first few of them lie far apart, the ends first."""
    order = [0, lengths.size - 1]
    step = lengths.size - 1
    while step > 1:
        step = -(-step // 2)
        order += [place for place in range(0, lengths.size, step) if place not in order]
    return [int(lengths[place]) for place in order]


def _over(run: Run, delta: float, lengths: IntArray, bound: Bound) -> dict[int, float]:
    try:
        epsilons = epsilon_over_steps(run, delta, lengths, bounds=[bound]).bounds[0].epsilon
    except InvalidInput:  # it speaks of longer runs only
        return {}
    return {int(t): float(e) for t, e in zip(lengths, epsilons, strict=True) if math.isfinite(e)}


def _points(known: dict[int, float]) -> Message:
    lengths = sorted(known)
    return {"x": lengths, "y": [known[length] for length in lengths]}


def _lower(run: Run, delta: float, lengths: IntArray) -> Iterator[Message]:
    """Yield what no claim may undercut, point by point; then why there is nothing elsewhere."""
    count = lower_count(run, lengths)
    chosen = _spread_out(lengths)[: max(2, count)]
    notes: dict[str, None] = {}
    for length in dict.fromkeys([run.steps, *chosen]):
        curve = lower_over_steps(run, delta, [length])
        for at, epsilon in zip(curve.at.tolist(), curve.epsilon.tolist(), strict=True):
            yield {"kind": "lower", "x": at, "y": epsilon, "shown": rounded_down(epsilon, 3)}
        notes |= dict.fromkeys(note.partition(": ")[2] for note in curve.notes)
    yield {"kind": "lower_done", "notes": list(notes)}


# --- the two questions --------------------------------------------------------------------------


def noise(query: str) -> Iterator[Message]:
    """Yield the smallest noise that reaches the target."""
    setting = Setting.read(query)
    calibration = calibrate(setting.run(), setting.target, setting.delta, vary="noise")
    shown = rounded_up(calibration.value, 4)
    target = rounded_up(setting.target, 4)
    yield {
        "kind": "found",
        "field": "noise_multiplier",
        "value": shown,
        "text": f"Noise {shown} reaches epsilon {target}: the claim is then "
        f"{rounded_up(calibration.certificate.claimed_epsilon, 3)}.",
    }


def length(query: str) -> Iterator[Message]:
    """Yield for how many epochs one may train, within the target."""
    setting = Setting.read(query)
    run, target = setting.run(), rounded_up(setting.target, 4)
    try:
        longest = certify(run.replace(steps=MOST_STEPS), setting.delta)
        if longest.claimed_epsilon <= setting.target:
            yield {
                "kind": "found",
                "field": None,
                "value": None,
                "text": "As long as you like: the plateau lies below. "
                f"Even {MOST_STEPS} steps cost {rounded_up(longest.claimed_epsilon, 3)}.",
            }
            return
    except NotApplicable:
        pass  # the search says so
    calibration = calibrate(run, setting.target, setting.delta, vary="steps")
    epochs = rounded_down(calibration.run.epochs, 6)
    yield {
        "kind": "found",
        "field": "epochs",
        "value": epochs,
        "text": f"{epochs} epochs ({calibration.run.steps} steps) stay within epsilon {target}; "
        "one step more does not.",
    }


# --- papers -------------------------------------------------------------------------------------


def certificate(query: str) -> Iterator[Message]:
    """Yield the certificate's file."""
    setting = Setting.read(query)
    yield {"kind": "text", "text": certify(setting.run(), setting.delta).to_json()}


def report(query: str) -> Iterator[Message]:
    """Yield the report's page."""
    setting = Setting.read(query)
    yield {"kind": "text", "text": report_page(certify(setting.run(), setting.delta))}


def verify(text: str) -> Iterator[Message]:
    """Yield the verdict on a file that somebody brought, with its run if the page can show it."""
    document = read_certificate(text)
    page = sign_off(document)
    yield {"kind": "verdict", "query": _shown_by(document), "page": page.page(), **page.to_dict()}


def _shown_by(document: Any) -> str | None:
    try:
        paper = Certificate.from_dict(document)
        setting = setting_of(paper.run, paper.claimed_delta)
    except (DplateauError, ArithmeticError, RecursionError):
        return None
    return None if setting is None else setting.query()


ANSWERS: dict[str, Callable[[str], Iterator[Message]]] = {
    answer.__name__: answer
    for answer in (claim, curves, noise, length, certificate, report, verify)
}
