"""The run that a plan takes: the quickest of those that are expected to be as good as the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from dplateau.algorithms import FullBatch, Run
from dplateau.bounds.base import Bound, for_one_record
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Calibration, Certificate, Composition, calibrate, compose
from dplateau.certificates.certify import candidates
from dplateau.planning.forecast import forecast
from dplateau.planning.recipes import RECIPES, Candidate, Task, error_of

# A run may be expected to miss by so much more of the scores' spread than the best one, if it takes
# less time; times below this, in seconds, are nobody's concern.
TOLERANCE = 0.005
SHORT = 0.1
# Certificates of random batches take tenths of a second: so many runs are certified at most.
MOST_CERTIFIED = 4
# Takes seconds at each noise level for a group, and is far above PLD and RDP composition.
SLOW_FOR_GROUPS = "advanced_composition"
# A composition may stay so far below its target; squares of Gaussian parameters add up exactly, so
# the first guess for other curves is a few percent off, and the second nearly right.
_SLACK = 4e-3
_MOST_TRIES = 6


def with_noise(run: Run, task: Task) -> Calibration:
    """Return the run with the least noise that meets the target, by the best bound there is."""
    # Without sampling and hidden state the Gaussian composition is exact: nothing else can win.
    full = isinstance(run.batches, FullBatch)
    exact = full and not run.is_plain and run.noise_kind == "gaussian"
    bounds = [bound_named("gdp_composition")] if exact else _of_groups(run)
    return calibrate(run, task.epsilon, task.delta, bounds=bounds)


def _of_groups(run: Run) -> list[Bound] | None:
    """Return the bounds to ask about several records of a person; None: those of one record.

    A group's claim follows from that about one record, where many bounds cannot win, or from a
    theorem about groups. To ask the others too would take half a minute and gain nothing much.
    """
    if run.group_size == 1:
        return None
    for_one = candidates(for_one_record(run))
    useful = [bound for bound in BOUNDS if bound in for_one or bound.knows_groups]
    return [bound for bound in useful if bound.name != SLOW_FOR_GROUPS]


def released(before: tuple[Certificate, ...], gradients: Certificate) -> Certificate | Composition:
    """Return what is proved about all that leaves: what came before, and what the run makes."""
    if not before:
        return gradients
    return compose([*before, gradients], gradients.claimed_delta)


def after(before: tuple[Certificate, ...], run: Run, task: Task, target: float) -> Certificate:
    """Return the run's certificate with the least noise that meets the target after all before.

    ``task.epsilon`` is what Gaussian parts leave for it. Other curves compose a little differently,
    so their share is moved until the composition meets the target.
    """
    left, found = task, with_noise(run, task).certificate
    if not before or isinstance(run.batches, FullBatch):
        return found
    best = None
    for _ in range(_MOST_TRIES):
        whole = released(before, found).claimed_epsilon
        if whole <= target:
            best = found
            if whole >= (1 - _SLACK) * target:
                break
        left = replace(left, epsilon=left.epsilon * (1 - _SLACK / 3) * target / whole)
        found = with_noise(found.run, left).certificate
    return found if best is None else best


def choose(
    found: Iterable[Candidate], certificate: Callable[[Candidate], Certificate], task: Task
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Return the quickest candidate within the tolerance of the best, certified, and the others.

    The noise of random batches is a guess until it is certified, so what wins by a guess is
    certified and compared again.
    """
    known = list(found)
    for _ in range(MOST_CERTIFIED):
        winner = quickest(known)
        if known[winner].certificate is not None:
            return _compared(known[winner], known)
        known[winner] = _certified(known[winner], certificate(known[winner]), task)
    sure = [candidate for candidate in known if candidate.certificate is not None]
    return _compared(sure[quickest(sure)], known)


def _certified(candidate: Candidate, found: Certificate, task: Task) -> Candidate:
    expected = forecast(found.run, task.width, candidate.model)
    return replace(candidate, run=found.run, expected=expected, certificate=found)


def quickest(known: list[Candidate]) -> int:
    """Return the position of the quickest candidate that is nearly as good as the best."""
    best = min(known, key=error_of).expected
    limit = best.error + TOLERANCE * best.spread
    near = [i for i, candidate in enumerate(known) if error_of(candidate) <= limit]
    # Of short runs those come first that stand first among the recipes, and are simpler.
    order = list(RECIPES)
    return min(
        near,
        key=lambda i: (
            max(SHORT, known[i].seconds),
            order.index(known[i].name),
            error_of(known[i]),
        ),
    )


def _compared(chosen: Candidate, known: list[Candidate]) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Return the chosen candidate, the best one and the nearest of every recipe, with reasons."""
    best = min(known, key=error_of)
    others = [] if best is chosen else [best]
    for name in dict.fromkeys(candidate.name for candidate in known):
        mine = [candidate for candidate in known if candidate.name == name]
        if name not in (chosen.name, best.name):
            others.append(mine[quickest(mine)])
    told = [replace(other, why=_reason(other, chosen, best)) for other in others]
    why = "the best forecast"
    if best is not chosen:
        why = "the quickest within half a percent of the best forecast"
    return replace(chosen, why=why), tuple(sorted(told, key=error_of))


def _reason(other: Candidate, chosen: Candidate, best: Candidate) -> str:
    """Return why another candidate was not chosen."""
    more = other.expected.share - best.expected.share
    if more > TOLERANCE:
        return f"misses by {100 * more:.1f} points more than the best"
    longer = other.seconds / max(SHORT, chosen.seconds)
    return f"takes {longer:.2g} times as long" if longer > 1 else "as good, and no quicker"
