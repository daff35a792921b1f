"""Ways to train, each tuned on public sizes: the candidates that a plan chooses from.

A recipe is tried at several lengths. Its noise comes from a formula (exact for full batches, near
what a bound certifies for random ones), so that hundreds of runs can be ranked in the time that one
certificate of a random one takes. Only the winner's noise is then certified
(:mod:`dplateau.planning.choice`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dplateau.algorithms import CyclicSGD, FullBatch, NoisyGD, NoisySGD, OnePassSGD, Poisson, Run
from dplateau.algorithms.base import Neighbors
from dplateau.certificates import Certificate
from dplateau.errors import InvalidInput
from dplateau.numerics.normal import gaussian_mu
from dplateau.planning.forecast import Forecast, Model, forecast
from dplateau.shifts.closed_forms import full_batch_factor

# Multiply-adds that an ordinary machine does in about ten seconds of training. Reading
# a number from memory takes as long as several of them, where the next one may be anywhere longer.
OPERATIONS = 6e10
OPERATIONS_PER_SECOND = OPERATIONS / 10
OPERATIONS_PER_READ = 4
OPERATIONS_PER_FAR_READ = 12
# What a step takes besides: the loop itself, and each number of the noise.
OPERATIONS_PER_STEP = 1.2e5
OPERATIONS_PER_NOISE = 400
MOST_PASSES = 1500
FEWEST_PASSES = 40
# Composition charges for time, not for steps: beyond so many, more of them change nothing.
MOST_CHARGED = 10_000
# Full batches: lengths to try, in units of the longest.
LENGTHS = (1.0, 0.6, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.025)
# Random batches: passes and steps to try. Beyond so many passes full batches are as good.
SAMPLED_PASSES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SAMPLED_STEPS = (100, 400, 1600)
MOST_SAMPLED = 0.5
FEWEST_IN_BATCH = 10
ORDERED_STEPS = (10, 30, 100, 300, 1000)
# The released model averages the last part of the iterates, which cancels noise.
TAILS = (0.5, 0.2)
# Averages under a hidden state cost about one step for each iterate: the last one alone, or as many
# as the ridge remembers, or some more.
HIDDEN_TAILS = (0.0, 0.5, 1.0, 3.0)
MOMENTA = (0.9, 0.95, 0.97, 0.98)
# Training times (learning rate * steps) to try, in units of mu / (distance * feature norm): after
# a time of 1 the noise in a score that no data point determines has a deviation of about 1.
# Shorter ones look better on the references and are worse on tables with many columns (Ames).
TIMES = tuple(float(time) for time in np.geomspace(0.15, 6.0, 19))


@dataclass(frozen=True)
class Task:
    """What a plan is asked for; all of it public."""

    n: int
    d: int
    epsilon: float
    delta: float
    neighbors: Neighbors
    max_records_per_person: int
    passes: float | None
    model: Model

    @property
    def most_passes(self) -> int:
        """Return how often the run may read the data."""
        if self.passes is not None:
            return max(1, int(self.passes))
        width = (self.d + 1) * max(self.model.loss.n_outputs, OPERATIONS_PER_READ)
        return int(min(MOST_PASSES, max(FEWEST_PASSES, OPERATIONS / (2.0 * self.n * width))))

    @cached_property
    def mu(self) -> float:
        """Return the Gaussian parameter that the target leaves for each record of a person.

        Of m records that are mu-GDP each, all together are m mu-GDP.
        """
        return gaussian_mu(self.epsilon, self.delta) / self.max_records_per_person

    @property
    def factor(self) -> int:
        """Return how many contributions of a record a changed record moves a sum by."""
        return 2 if self.neighbors == "replace" else 1

    @property
    def width(self) -> int:
        """Return the number of features, the constant one included."""
        return self.d + (self.model.intercept > 0)

    def distance(self, model: Model) -> float:
        """Return how far one changed record moves the averaged gradient of all records."""
        return self.factor * model.geometry.lipschitz / self.n

    def unit(self, model: Model) -> float:
        """Return the training time after which the noise in a score has a deviation of about 1."""
        return self.mu / (self.distance(model) * model.feature_norm)

    def sampled_std(self, model: Model, rate: float, steps: float) -> float:
        """Return about the noise that so many sampled gradients need together.

        By the central limit theorem mu^2 is near steps * rate^2 (e^(1/z^2) - 1), z being the noise
        multiplier (Bu et al. 2020, "Deep learning with Gaussian differential privacy"). Only the
        ranking of runs rests on it.
        """
        z = 1 / math.sqrt(math.log1p(self.mu**2 / (steps * rate**2)))
        return z * self.distance(model) / rate

    def seconds(self, run: Run) -> float:
        """Return about how long an ordinary machine trains."""
        outputs = self.model.loss.n_outputs
        far = OPERATIONS_PER_FAR_READ if isinstance(run.batches, Poisson) else 0
        row = 2.0 * (self.d + 1) * (max(outputs, OPERATIONS_PER_READ) + far)
        step = OPERATIONS_PER_STEP + OPERATIONS_PER_NOISE * self.width * outputs
        return run.steps * (run.batch_size * row + step) / OPERATIONS_PER_SECOND


@dataclass(frozen=True)
class Candidate:
    """A run with noise near what the target needs, what to expect of it, and how long it takes.

    ``certificate`` says that the noise is what the target needs, ``why`` what it was chosen or
    rejected for.
    """

    name: str
    run: Run
    model: Model
    expected: Forecast
    seconds: float
    certificate: Certificate | None = field(default=None, repr=False, compare=False)
    why: str = field(default="", compare=False)

    @property
    def certified(self) -> Certificate:
        """Return the certificate of the run, which a winner has."""
        if self.certificate is None:
            raise InvalidInput(f"the noise of {self.name} has not been certified")
        return self.certificate

    @property
    def passes(self) -> float:
        """Return how often the run reads the data."""
        return self.run.steps * self.run.batch_size / self.run.n

    def to_dict(self) -> dict[str, object]:
        """Return the row of a table, as plain data."""
        return {
            "recipe": self.name,
            "steps": self.run.steps,
            "passes": self.passes,
            "expected_error": self.expected.share,
            "seconds": self.seconds,
            "remark": self.why,
        }

    def __str__(self) -> str:
        """Show the choice in one line."""
        run, parts = self.run, []
        if not isinstance(run.batches, FullBatch):
            parts.append(f"batches of about {run.batch_size:.4g}")
        parts.append(f"{self.passes:.4g} passes")
        parts.append(f"learning rate {run.learning_rate:.4g}")
        if run.l2:
            parts.append(f"ridge {run.l2:.3g}")
        if run.momentum:
            parts.append(f"momentum {run.momentum:g}")
        if run.average_last > 1:
            parts.append(f"last {run.average_last} iterates averaged")
        return (
            f"{self.name}, {run.steps} steps, {', '.join(parts)}: expected score error "
            f"{self.expected.error:.3g} (unlearned {self.expected.bias:.3g}, "
            f"noise {self.expected.noise:.3g}) in about {self.seconds:.2g} s"
        )


@dataclass(frozen=True)
class Shape:
    """So many steps, each of which sees this share of the records."""

    steps: int
    share: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """A way to train: ``run`` makes one of it from shape, training time and averaged tail.

    ``hides`` says that only what leaves is charged, which convex losses allow. The order of records
    is nobody's choice: recipes ``in_order`` are used where a stream leaves no other.
    """

    runs: str
    run: Callable[[Task, Model, Shape, float, float], Run]
    shapes: Callable[[Task], Iterator[Shape]]
    tails: tuple[float, ...] = TAILS
    hides: bool = False
    in_order: bool = False

    def candidates(self, name: str, task: Task) -> list[Candidate]:
        """Return the best run of every shape, by its expected error."""
        return [self.best(name, task, shape) for shape in self.shapes(task)]

    def best(self, name: str, task: Task, shape: Shape) -> Candidate:
        """Return the best run of this shape."""
        model = task.model.convex if self.hides else task.model
        unit, known = task.unit(model), dict[tuple[float, float], Candidate]()

        def candidate(time: float, tail: float) -> Candidate:
            if (time, tail) not in known:
                run = self.run(task, model, shape, time * unit, tail)
                known[time, tail] = Candidate(
                    name, run, model, forecast(run, task.width, model), task.seconds(run)
                )
            return known[time, tail]

        return min((_in_time(candidate, tail) for tail in self.tails), key=error_of)


def error_of(candidate: Candidate) -> float:
    """Return the error that is expected."""
    return candidate.expected.error


def _in_time(candidate: Callable[[float, float], Candidate], tail: float) -> Candidate:
    """Return the best over times: those of a coarse grid, then those beside the best of them."""
    coarse = range(0, len(TIMES), 3)
    best = min(coarse, key=lambda i: error_of(candidate(TIMES[i], tail)))
    near = TIMES[max(0, best - 2) : best + 3]
    return min((candidate(time, tail) for time in near), key=error_of)


def _common(task: Task, model: Model) -> dict[str, Any]:
    return {
        "n": task.n,
        "loss": model.geometry,
        "neighbors": task.neighbors,
        "group_size": task.max_records_per_person,
        "release": "last",
    }


def _full(task: Task) -> Iterator[Shape]:
    """Yield lengths of runs with full batches."""
    most = min(task.most_passes, MOST_CHARGED)
    return (Shape(steps) for steps in sorted({math.ceil(most * part) for part in LENGTHS}))


def _sampled(task: Task) -> Iterator[Shape]:
    """Yield sampling rates and numbers of steps, up to the passes that are allowed."""
    allowed = sorted({*(p for p in SAMPLED_PASSES if p < task.most_passes), task.most_passes})
    for passes in allowed[: len(SAMPLED_PASSES)]:
        for steps in SAMPLED_STEPS:
            share = passes / steps
            last = steps == SAMPLED_STEPS[-1] and passes == allowed[0]
            if last or (share <= MOST_SAMPLED and share * task.n >= FEWEST_IN_BATCH):
                yield Shape(steps, min(MOST_SAMPLED, share))


def _one_pass(task: Task) -> Iterator[Shape]:
    return (Shape(steps, 1 / steps) for steps in ORDERED_STEPS if steps == 10 or steps < task.n)


def _in_order(task: Task) -> Iterator[Shape]:
    """Yield passes and batches in each: a few passes, or all that are allowed."""
    allowed = sorted({*(p for p in SAMPLED_PASSES if p < task.most_passes), task.most_passes})
    for passes in allowed[: len(SAMPLED_PASSES)]:
        for shape in _one_pass(task):
            yield Shape(passes * shape.steps, shape.share)


def _momentum(task: Task, model: Model, shape: Shape, time: float, tail: float) -> Run:
    """Full batches with Nesterov's momentum and an averaged tail, every gradient charged.

    Composition does not care how long the steps are, so the noise in the model depends on the total
    time learning_rate * steps alone. Averaging the tail brings the noise in directions that the
    data determine down to what perturbing the objective itself would cost.
    """
    rate, inertia = _fast_enough(time, shape.steps, 1 / model.geometry.smoothness)
    return NoisyGD(
        steps=shape.steps,
        learning_rate=rate,
        noise_std=task.distance(model) * math.sqrt(shape.steps) / task.mu,
        momentum=inertia,
        average_last=max(1, int(tail * shape.steps)),
        **_common(task, model),
    )


def _sgd_momentum(task: Task, model: Model, shape: Shape, time: float, tail: float) -> Run:
    """Poisson batches with momentum and an averaged tail, every gradient charged."""
    # Batches vary, and a larger one is steeper: half of what the mean batch would bear.
    rate, inertia = _fast_enough(time, shape.steps, 0.5 / model.geometry.smoothness)
    return NoisySGD(
        sampling_rate=shape.share,
        steps=shape.steps,
        learning_rate=rate,
        noise_std=task.sampled_std(model, shape.share, shape.steps),
        momentum=inertia,
        average_last=max(1, int(tail * shape.steps)),
        **_common(task, model),
    )


def _gd(task: Task, model: Model, shape: Shape, time: float, tail: float) -> Run:
    """Full batches with ridge, of which the last iterate leaves, or the mean of the last few.

    Its length costs nothing.
    """
    ridge = 1 / time
    rate = _largest_rate(model, ridge)
    averaged = _tail_of(tail, rate * ridge, shape.steps)
    factor = _hidden_factor(1 - rate * ridge, shape.steps, averaged)
    return NoisyGD(
        steps=shape.steps,
        learning_rate=rate,
        l2=ridge,
        noise_std=task.distance(model) * math.sqrt(factor) / task.mu,
        average_last=averaged,
        **_common(task, model),
    )


def _sgd(task: Task, model: Model, shape: Shape, time: float, tail: float) -> Run:
    """Poisson batches with ridge, of which the last iterate leaves, or the mean of the last few."""
    ridge = 1 / time
    rate = _largest_rate(model, ridge) / 2  # as above: batches vary
    averaged = _tail_of(tail, rate * ridge, shape.steps)
    factor = _hidden_factor(1 - rate * ridge, shape.steps, averaged)
    return NoisySGD(
        sampling_rate=shape.share,
        steps=shape.steps,
        learning_rate=rate,
        l2=ridge,
        noise_std=task.sampled_std(model, shape.share, factor),
        average_last=averaged,
        **_common(task, model),
    )


def _ordered(task: Task, model: Model, shape: Shape, time: float, tail: float) -> Run:
    """Batches in the order of the records, every gradient charged.

    A record's use costs what one step of full batches does, and its noise is divided by a batch
    alone: the fewer steps, the less noise, and the less is learned.
    """
    size = math.ceil(task.n * shape.share)
    in_pass = math.ceil(task.n / size)
    passes = max(1, round(shape.steps * shape.share))
    rate, inertia = _fast_enough(time, passes * in_pass, 0.5 / model.geometry.smoothness)
    one = task.factor * model.geometry.lipschitz / size / task.mu
    shared: dict[str, Any] = {
        "batch_size": size,
        "learning_rate": rate,
        "noise_std": one * math.sqrt(passes),
        "momentum": inertia,
        "average_last": max(1, int(tail * passes * in_pass)),
        **_common(task, model),
    }
    return OnePassSGD(**shared) if passes == 1 else CyclicSGD(steps=passes * in_pass, **shared)


def _fast_enough(time: float, steps: int, fastest: float) -> tuple[float, float]:
    """Return learning rate and the least momentum that make up the time with a stable step."""
    reach = [m for m in MOMENTA if time * (1 - m) / steps <= fastest]
    m = reach[0] if reach else MOMENTA[-1]
    return min(time * (1 - m) / steps, fastest), m


def _largest_rate(model: Model, ridge: float) -> float:
    return 1 / (model.geometry.smoothness + ridge)


def _tail_of(memories: float, forgetting: float, steps: int) -> int:
    """Return how many last iterates to average: so many times what a step remembers."""
    return max(1, min(steps // 2, round(memories / forgetting)))


def _hidden_factor(contraction: float, steps: int, tail: int) -> float:
    """Return mu^2 of the last iterates in units of one step: a hidden stretch, then single steps.

    Exact for full batches (docs/theory/checkpoints.md), a guess for random ones, whose noise is
    calibrated afterwards.
    """
    return full_batch_factor(contraction, steps - tail + 1) + tail - 1


RECIPES: dict[str, Recipe] = {
    "momentum": Recipe("full batches, momentum, the mean of the last iterates", _momentum, _full),
    "gd": Recipe(
        "full batches, ridge, the last iterate or the mean of the last few",
        _gd,
        _full,
        tails=HIDDEN_TAILS,
        hides=True,
    ),
    "sgd_momentum": Recipe(
        "random batches, momentum, the mean of the last iterates",
        _sgd_momentum,
        _sampled,
    ),
    "sgd": Recipe(
        "random batches, ridge, the last iterate or the mean of the last few",
        _sgd,
        _sampled,
        tails=HIDDEN_TAILS,
        hides=True,
    ),
    "cyclic": Recipe(
        "batches in the order of the records, momentum, the mean of the last iterates",
        _ordered,
        _in_order,
        in_order=True,
    ),
    "one_pass": Recipe(
        "the same, each record used once",
        _ordered,
        _one_pass,
        in_order=True,
    ),
}


def offered() -> list[str]:
    """Return the recipes that a plan chooses from by itself."""
    return [name for name, recipe in RECIPES.items() if not recipe.in_order]
