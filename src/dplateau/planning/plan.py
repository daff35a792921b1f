"""A plan: what runs, why, and what it costs, from public sizes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from dplateau.algorithms import Run
from dplateau.algorithms.base import NEIGHBORS, Neighbors
from dplateau.certificates import Calibration, Certificate, Composition, compose
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.progress import counting
from dplateau.ground.shown import Shown, rounded_up
from dplateau.losses import ClassWeighted, Loss
from dplateau.planning.forecast import (
    Forecast,
    Model,
    forecast,
    model_of,
    residual_cuts,
    weighted,
)
from dplateau.planning.recipes import (
    RECIPES,
    Candidate,
    Task,
    quickest,
    with_noise,
    worth_trying,
)
from dplateau.planning.whitening import (
    FULL,
    RANGES_SHARE,
    WHITENING,
    Lengths,
    in_words,
    lengths_for,
    moments_for,
    on_white_rows,
    ranges_for,
    rounds_worthwhile,
)

# Scores that miss by more of their spread explain less than half of what could be explained.
POOR_SHARE = 0.75
# Beyond these, products of them are no numbers in double precision.
LARGEST_SIZE, LARGEST_SCALE = 10**15, 1e18


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """``run`` on ``loss`` meets the target, as ``certificate`` proves; no data were seen.

    ``intercept`` is the size of the constant feature to append to rows that were scaled down to
    ``data_norm`` (0.0: none), which gives rows of at most ``row_norm``. ``feature_norm`` bounds the
    rows that ``run`` sees: those, or what whitening by each of the noisy second moments in
    ``moments`` makes of them, which are then shortened and bent as ``lengths`` says. ``gradients``
    is the certificate of the run alone, ``certificate`` that of all that leaves. ``ranges`` is the
    search for bounds of columns of which none are known.
    """

    run: Run
    loss: Loss
    data_norm: float
    intercept: float
    row_norm: float
    feature_norm: float
    clip: float | None
    gradients: Certificate
    moments: tuple[Certificate, ...]
    ranges: Certificate | None
    lengths: Lengths | None
    chosen: Candidate | None
    rejected: tuple[Candidate, ...]
    expected: Forecast | None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return why the plan promises little, from public sizes alone; nothing if it is sound."""
        claim = self.certificate
        doubts = checks.weak_claim(claim.claimed_epsilon, claim.claimed_delta, self.run.n)
        if self.expected is None or self.expected.share < POOR_SHARE:
            return doubts
        return (
            *doubts,
            f"the model will hardly work: with n = {self.run.n} records at epsilon = "
            f"{rounded_up(claim.claimed_epsilon, 3)} its scores are expected to miss by "
            f"{min(1.0, self.expected.share):.0%} of their spread (a constant misses by 100%); it "
            "takes more records, a larger epsilon or fewer features",
        )

    @cached_property
    def certificate(self) -> Certificate | Composition:
        """What is proved about all that leaves."""
        return released(self.before, self.gradients)

    @property
    def before(self) -> tuple[Certificate, ...]:
        """Return what is released before the run: ranges and moments."""
        return self.moments if self.ranges is None else (self.ranges, *self.moments)

    @property
    def summary(self) -> str:
        """Return a few lines: what was chosen, why, and the alternatives."""
        lines = [str(self.certificate)]
        if self.lengths is not None:
            lines.insert(0, in_words(len(self.moments), self.lengths))
        if self.ranges is not None:
            lines.insert(
                0,
                "bounds are found by noisy bisection, which takes "
                f"{RANGES_SHARE:.0%} of the budget (of mu squared)",
            )
        if isinstance(self.loss, ClassWeighted):
            shown = ", ".join(f"{weight:.3g}" for weight in self.loss.weights)
            lines.insert(0, f"classes count by public weights, in their order: {shown}")
        if self.chosen is not None:
            lines.insert(0, f"chosen: {self.chosen}")
            lines += [f"rejected: {other}" for other in self.rejected]
        return "\n".join(lines)

    def __str__(self) -> str:
        """Show the summary."""
        return self.summary


def plan(
    n: int,
    d: int,
    n_classes: int = 2,
    loss: str | Loss = "logistic",
    epsilon: float = 1.0,
    delta: float = 1e-5,
    compute_budget: float | None = None,
    *,
    data_norm: float = 1.0,
    fit_intercept: bool = True,
    target_bound: float = 1.0,
    neighbors: str = "add_remove",
    max_records_per_person: int = 1,
    algorithm: str | Run = "auto",
    whitening: str = "auto",
    private_ranges: int = 0,
    class_weight: tuple[float, ...] | None = None,
) -> Plan:
    """Choose algorithm, step size, length, batch and noise for a target, without seeing data.

    Parameters
    ----------
    n, d
        Public numbers of records and of features (without the constant one).
    n_classes
        2 for one score per record (regression too), more for a softmax.
    loss
        "logistic", "hinge" (smoothed), "squared" (its residuals cut at ``target_bound``), "huber",
        or a loss object.
    epsilon, delta
        The target.
    compute_budget
        Most passes over the data; by default what an ordinary machine does in about ten seconds.
    data_norm, fit_intercept, target_bound
        Public bound on rows, whether a constant feature is appended, and on targets.
    neighbors
        "add_remove" or "replace".
    max_records_per_person
        Most records that one person has: the target then holds for all of them together. Nothing
        checks it; whoever states it vouches for it.
    algorithm
        "auto", the name of a recipe ("momentum", "gd", "sgd_momentum", "sgd", and "one_pass" for
        streams), or a run whose noise is calibrated.
    whitening
        "auto": with enough records rows are first whitened by noisy second moments, where a recipe
        of full batches runs. "never": they are not.
    private_ranges
        Number of columns (and targets) whose bounds are not known, and found with noise first; a
        recipe of full batches then runs.
    class_weight
        Public positive numbers, one for each class: by how much its records' losses count. They are
        divided by the largest, so that the constants of the loss stay.

    Returns
    -------
    Plan
        The run, its certificate, and what the forecast expects.

    Raises
    ------
    InvalidInput
        If a number cannot be what it stands for.
    NotApplicable
        If no noise meets the target.

    Examples
    --------
    >>> chosen = plan(n=30_000, d=100, epsilon=1.0)
    >>> chosen.run.kind, chosen.certificate.claimed_epsilon <= 1.0
    ('NoisyGD', True)
    """
    for name, scale in {"data_norm": data_norm, "target_bound": target_bound}.items():
        # Constants of losses are products of these; numbers that are refused here never get there.
        if not 1 / LARGEST_SCALE <= checks.positive(name, scale) <= LARGEST_SCALE:
            raise InvalidInput(
                f"{name} must lie between {1 / LARGEST_SCALE:g} and {LARGEST_SCALE:g}; got "
                f"{scale:g}: use other units"
            )
    task = Task(
        n=_size("n", n),
        d=_size("d", d),
        epsilon=checks.positive("epsilon", epsilon),
        delta=checks.probability("delta", delta),
        neighbors=cast(Neighbors, checks.choice("neighbors", neighbors, NEIGHBORS)),
        max_records_per_person=records_per_person(max_records_per_person, n),
        passes=None
        if compute_budget is None
        else checks.positive("compute_budget", compute_budget),
        model=weighted(
            model_of(
                loss,
                n_classes,
                data_norm=data_norm,
                fit_intercept=fit_intercept,
                target_bound=target_bound,
            ),
            class_weight,
        ),
    )
    columns = checks.whole("private_ranges", private_ranges, least=0)
    if isinstance(algorithm, Run):
        if columns:
            raise InvalidInput(
                'bounds="private" needs a planner\'s recipe of full batches, whose noise it '
                "shares; state public bounds, or leave the run out"
            )
        calibration = with_noise(_about_persons(algorithm, task.max_records_per_person), task)
        # A run that declares convex losses is about gradients that nothing cuts.
        declared = calibration.run.loss is not None and calibration.run.loss.convex
        model = task.model.convex if declared else task.model
        return _plan(model, model, calibration, None, (), _forecast(calibration.run, task))
    known = ("auto", *RECIPES)
    if algorithm not in known:
        raise InvalidInput(
            f"algorithm must be one of {', '.join(known)} or a run; got {algorithm!r}"
        )
    names = [algorithm] if algorithm in RECIPES else list(RECIPES)
    checks.choice("whitening", whitening, WHITENING)
    ranges = None
    if columns:
        names = [name for name in names if name in FULL]
        if not names:
            raise InvalidInput(
                f"algorithm={algorithm!r} with private bounds: use one of {', '.join(sorted(FULL))}"
            )
        ranges, task = ranges_for(task, columns)
    rounds = rounds_worthwhile(task) if whitening == "auto" and set(names) & FULL else 0
    tried = [n for n in names if (n in FULL if rounds else algorithm == n or worth_trying(n, task))]
    lengths, left = None, task
    moments: tuple[Certificate, ...] = ()
    if rounds:
        moments, rest = moments_for(task, rounds)
        lengths = lengths_for(task)
        left = on_white_rows(task, rest, lengths)
    best, others = _chosen(tried, _cuts(left, loss, target_bound))
    best = quickest(best, left)
    calibration = with_noise(best.run, left)
    expected = best.expected
    made = _plan(task.model, best.model, calibration, best, others, expected, moments, lengths)
    return replace(made, ranges=ranges)


def _size(name: str, value: object) -> int:
    size = checks.whole(name, value)
    if size > LARGEST_SIZE:
        raise InvalidInput(f"{name} must be at most {LARGEST_SIZE:g}; got {float(size):g}")
    return size


def _cuts(task: Task, loss: str | Loss, target_bound: float) -> list[Task]:
    """Return the task with every cut of residuals to choose from."""
    if loss != "squared":
        return [task]
    return [replace(task, model=model) for model in residual_cuts(task.model, target_bound)]


def _chosen(names: list[str], tasks: list[Task]) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Return the best candidate, and the best ones of the other recipes.

    Ridge that learns less than momentum, for less noise, is not better: real tables can be learned
    better than the references (Ames and simulated lines of 1000 features at epsilon 8 and 16).
    """
    best_of = {}
    with counting("recipes", len(names)) as advance:
        for name in names:
            best_of[name] = min((RECIPES[name](task) for task in tasks), key=_error)
            advance(1)
    best = min(best_of.values(), key=_error)
    charged = best_of.get("momentum", best)
    if best.name == "gd" and best.expected.bias > charged.expected.bias:
        best = charged
    others = (other for other in best_of.values() if other is not best)
    return best, tuple(sorted(others, key=_error))


def _error(candidate: Candidate) -> float:
    return candidate.expected.error


def released(before: tuple[Certificate, ...], gradients: Certificate) -> Certificate | Composition:
    """Return what is proved about all that leaves: what came before, and what the run makes."""
    if not before:
        return gradients
    return compose([*before, gradients], gradients.claimed_delta)


def _forecast(run: Run, task: Task) -> Forecast | None:
    """Return what to expect of a user's run, if it says enough to tell."""
    if run.loss is None or run.learning_rate is None or not np.isfinite(run.loss.smoothness):
        return None
    return forecast(run, task.width, task.model)


def records_per_person(stated: object, n: int) -> int:
    """Return the most records that a person has, refusing what cannot be."""
    most = checks.whole("max_records_per_person", stated)
    if most > n:
        raise InvalidInput(
            f"max_records_per_person={most}, but there are {n} records; use at most {n}"
        )
    return most


def _about_persons(run: Run, most: int) -> Run:
    """Return the user's run with persons as the unit of privacy, unless it states another one."""
    if run.group_size not in (1, most):
        raise InvalidInput(
            f"max_records_per_person={most}, but algorithm={run.kind} was described with "
            f"group_size={run.group_size}; make them the same"
        )
    return run.replace(group_size=most)


def _plan(
    rows: Model,
    model: Model,
    calibration: Calibration,
    chosen: Candidate | None,
    rejected: tuple[Candidate, ...],
    expected: Forecast | None,
    moments: tuple[Certificate, ...] = (),
    lengths: Lengths | None = None,
) -> Plan:
    return Plan(
        run=calibration.run,
        loss=model.loss,
        data_norm=rows.data_norm,
        intercept=rows.intercept,
        row_norm=rows.feature_norm,
        feature_norm=model.feature_norm,
        clip=model.clip,
        gradients=calibration.certificate,
        moments=moments,
        ranges=None,
        lengths=lengths,
        chosen=chosen,
        rejected=rejected,
        expected=expected,
    )
