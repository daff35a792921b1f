"""Ways to train, each tuned on public sizes: the candidates that a plan chooses from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dplateau.algorithms import FullBatch, NoisyGD, NoisySGD, OnePassSGD, Run
from dplateau.algorithms.base import Neighbors
from dplateau.algorithms.stated import learning_rates
from dplateau.bounds.base import Bound, for_one_record
from dplateau.bounds.registry import BOUNDS, bound_named
from dplateau.certificates import Calibration, calibrate
from dplateau.certificates.certify import candidates
from dplateau.numerics.normal import gaussian_mu
from dplateau.planning.forecast import Forecast, Model, forecast
from dplateau.shifts.closed_forms import full_batch_factor

# Multiply-adds that an ordinary machine does in about ten seconds of training. Reading
# a number from memory takes as long as several of them.
OPERATIONS = 6e10
OPERATIONS_PER_READ = 4
MOST_PASSES = 1500
# What is asked for is a limit: longer runs learn nothing more, and no forecast holds their steps.
MOST_ASKED = 10**6
FEWEST_PASSES = 40
# Composition charges for time, not for steps: beyond so many, more of them change nothing.
MOST_CHARGED = 10_000
# So a run is shortened to the first of these shares of its steps with which neither what is left
# unlearned nor the noise grows by more than this share of the expected error; a run of few
# operations is short as it is. (Chosen on Ames and Adult, where shorter ones began to lose, and
# checked on the other data of docs/utility.md.)
LENGTHS = (0.04, 0.06, 0.1, 0.15, 0.25, 0.4, 0.6)
AS_GOOD = 0.01
SHORT = 0.01 * OPERATIONS
# Below so many passes full batches take too few steps, and random batches are worth a look.
FEW_PASSES = 500
SAMPLED_STEPS = (100, 400, 1600)
MOST_SAMPLED = 0.5
ONE_PASS_STEPS = (10, 30, 100, 300, 1000)
# The released model averages the last part of the iterates, which cancels noise.
TAILS = (0.5, 0.2)
# Averages under a hidden state cost about one step for each iterate: the last one alone, or as many
# as the ridge remembers, or some more.
HIDDEN_TAILS = (0.0, 0.5, 1.0, 3.0)
MOMENTA = (0.9, 0.95, 0.97, 0.98)
# Training times (learning rate * steps) to try, in units of mu / (distance * feature norm): after
# a time of 1 the noise in a score that no data point determines has a deviation of about 1.
_TIMES = tuple(float(time) for time in np.geomspace(0.15, 6.0, 19))
# Batches are noisy themselves, which can make much shorter times the best.
_SAMPLED_TIMES = tuple(float(time) for time in np.geomspace(0.003, 6.0, 26))

# Takes seconds at each noise level for a group, and is far above PLD and RDP composition.
SLOW_FOR_GROUPS = "advanced_composition"


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
            return max(1, int(min(self.passes, MOST_ASKED)))
        return int(min(MOST_PASSES, max(FEWEST_PASSES, OPERATIONS / self.operations_of_pass)))

    @property
    def operations_of_pass(self) -> float:
        """Return about how many operations one pass over the data takes."""
        return 2.0 * self.n * (self.d + 1) * max(self.model.loss.n_outputs, OPERATIONS_PER_READ)

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

    def times(self, model: Model, units: Sequence[float] = _TIMES) -> Iterator[float]:
        """Yield the training times to try."""
        unit = self.mu / (self.distance(model) * model.feature_norm)
        return (time * unit for time in units)

    def batches(self) -> Iterator[tuple[float, int]]:
        """Yield sampling rates and numbers of steps that use the passes up."""
        return (
            (min(MOST_SAMPLED, self.most_passes / steps), steps)
            for steps in SAMPLED_STEPS
            if self.most_passes <= MOST_SAMPLED * steps or steps == SAMPLED_STEPS[-1]
        )

    def sampled_std(self, model: Model, rate: float, steps: float) -> float:
        """Return about the noise that so many sampled gradients need together.

        By the central limit theorem mu^2 is near steps * rate^2 (e^(1/z^2) - 1), z being the noise
        multiplier (Bu et al. 2020, "Deep learning with Gaussian differential privacy"). Only the
        ranking of runs rests on it.
        """
        z = 1 / math.sqrt(math.log1p(self.mu**2 / (steps * rate**2)))
        return z * self.distance(model) / rate


@dataclass(frozen=True)
class Candidate:
    """A run with noise near what the target needs, and what to expect of it."""

    name: str
    run: Run
    model: Model
    expected: Forecast

    def __str__(self) -> str:
        """Show the choice in one line."""
        run, parts = self.run, []
        if not isinstance(run.batches, FullBatch):
            parts.append(f"batches of about {run.batch_size:.4g}")
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
            f"noise {self.expected.noise:.3g})"
        )


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


def momentum(task: Task) -> Candidate:
    """Full batches with Nesterov's momentum and an averaged tail, every gradient charged.

    Composition does not care how long the steps are, so the noise in the model depends on the total
    time learning_rate * steps alone. Averaging the tail brings the noise in directions that the
    data determine down to what perturbing the objective itself would cost.
    """
    steps = min(task.most_passes, MOST_CHARGED)
    tries = (
        _with_momentum(task, time, tail, steps) for time in task.times(task.model) for tail in TAILS
    )
    return min(tries, key=lambda candidate: candidate.expected.error)


def _with_momentum(task: Task, time: float, tail: float, steps: int) -> Candidate:
    """Return the run with momentum of this length, training time and averaged tail."""
    model = task.model
    rate, inertia = _fast_enough(time, steps, 1 / model.geometry.smoothness)
    run = NoisyGD(
        n=task.n,
        steps=steps,
        learning_rate=rate,
        noise_std=task.distance(model) * math.sqrt(steps) / task.mu,
        momentum=inertia,
        average_last=max(1, int(tail * steps)),
        loss=model.geometry,
        neighbors=task.neighbors,
        group_size=task.max_records_per_person,
        release="last",
    )
    return Candidate("momentum", run, model, forecast(run, task.width, model))


def quickest(best: Candidate, task: Task) -> Candidate:
    """Return the shortest run that is expected to be as good as the best one.

    Only momentum is shortened: the time of the other recipes is not free of their steps.
    """
    run = best.run
    if best.name != "momentum" or run.steps * task.operations_of_pass <= SHORT:
        return best
    task = replace(task, model=best.model)
    tail = run.average_last / run.steps
    (rate,) = learning_rates(run)
    reach = rate / (1 - run.momentum) * _pulled(run.steps, tail, run.momentum)
    if reach <= 0:  # so few steps that the lag is longer than the run: nothing is to be shortened
        return best

    def shorter(steps: int) -> Iterator[Candidate]:
        # The momentum follows from the time, and a slower one reaches less in the same time.
        for inertia in MOMENTA:
            time = reach / max(1.0, _pulled(steps, tail, inertia)) * steps
            candidate = _with_momentum(task, time, tail, steps)
            if candidate.run.momentum == inertia:
                yield candidate

    tries = (short for part in LENGTHS for short in shorter(math.ceil(part * run.steps)))
    return next((short for short in tries if _as_good(short.expected, best.expected)), best)


def _pulled(steps: int, tail: float, inertia: float) -> float:
    """Return how many steps' worth of a steady pull the mean of the tail has: momentum lags."""
    return steps * (1 - tail / 2) - inertia / (1 - inertia)


def _as_good(short: Forecast, best: Forecast) -> bool:
    """Return whether a shorter run learns as much, and is as little noisy, as the best.

    Both are asked for, not their sum: real tables can be learned better than the references, and a
    run that learns less for less noise would lose on them.
    """
    room = AS_GOOD * best.error
    return short.bias <= best.bias + room and short.noise <= best.noise + room


def sgd_momentum(task: Task) -> Candidate:
    """Poisson batches with momentum and an averaged tail, every gradient charged."""
    model = task.model

    def run(time: float, tail: float, sampled: float, steps: int) -> Run:
        # Batches vary, and a larger one is steeper: half of what the mean batch would bear.
        rate, inertia = _fast_enough(time, steps, 0.5 / model.geometry.smoothness)
        return NoisySGD(
            n=task.n,
            sampling_rate=sampled,
            steps=steps,
            learning_rate=rate,
            noise_std=task.sampled_std(model, sampled, steps),
            momentum=inertia,
            average_last=max(1, int(tail * steps)),
            loss=model.geometry,
            neighbors=task.neighbors,
            group_size=task.max_records_per_person,
            release="last",
        )

    runs = (
        run(time, tail, *batch)
        for time in task.times(model, _SAMPLED_TIMES)
        for tail in TAILS
        for batch in task.batches()
    )
    return _best("sgd_momentum", runs, model, task)


def _fast_enough(time: float, steps: int, fastest: float) -> tuple[float, float]:
    """Return learning rate and the least momentum that make up the time with a stable step."""
    reach = [m for m in MOMENTA if time * (1 - m) / steps <= fastest]
    m = reach[0] if reach else MOMENTA[-1]
    return min(time * (1 - m) / steps, fastest), m


def gd(task: Task) -> Candidate:
    """Full batches with ridge, of which the last iterate leaves, or the mean of the last few.

    Its length costs nothing.
    """
    model, steps = task.model.convex, task.most_passes

    def run(time: float, memories: float) -> Run:
        ridge = 1 / time
        rate = _largest_rate(model, ridge)
        tail = _tail_of(memories, rate * ridge, steps)
        factor = _hidden_factor(1 - rate * ridge, steps, tail)
        return NoisyGD(
            n=task.n,
            steps=steps,
            learning_rate=rate,
            l2=ridge,
            noise_std=task.distance(model) * math.sqrt(factor) / task.mu,
            average_last=tail,
            loss=model.geometry,
            neighbors=task.neighbors,
            group_size=task.max_records_per_person,
            release="last",
        )

    runs = (run(time, memories) for time in task.times(model) for memories in HIDDEN_TAILS)
    return _best("gd", runs, model, task)


def _tail_of(memories: float, forgetting: float, steps: int) -> int:
    """Return how many last iterates to average: so many times what a step remembers."""
    return max(1, min(steps // 2, round(memories / forgetting)))


def _hidden_factor(contraction: float, steps: int, tail: int) -> float:
    """Return mu^2 of the last iterates in units of one step: a hidden stretch, then single steps.

    Exact for full batches (docs/theory/checkpoints.md), a guess for random ones, whose noise is
    calibrated afterwards.
    """
    return full_batch_factor(contraction, steps - tail + 1) + tail - 1


def sgd(task: Task) -> Candidate:
    """Poisson batches with ridge, of which the last iterate leaves, or the mean of the last few."""
    model = task.model.convex

    def run(time: float, memories: float, sampled: float, steps: int) -> Run:
        ridge = 1 / time
        rate = _largest_rate(model, ridge) / 2  # as above: batches vary
        tail = _tail_of(memories, rate * ridge, steps)
        factor = _hidden_factor(1 - rate * ridge, steps, tail)
        return NoisySGD(
            n=task.n,
            sampling_rate=sampled,
            steps=steps,
            learning_rate=rate,
            l2=ridge,
            noise_std=task.sampled_std(model, sampled, factor),
            average_last=tail,
            loss=model.geometry,
            neighbors=task.neighbors,
            group_size=task.max_records_per_person,
            release="last",
        )

    runs = (
        run(time, memories, *batch)
        for time in task.times(model, _SAMPLED_TIMES)
        for memories in HIDDEN_TAILS
        for batch in task.batches()
    )
    return _best("sgd", runs, model, task)


def one_pass(task: Task) -> Candidate:
    """Batches in the order of the records, each record used once: for streams.

    One use costs what one step of full batches does, and its noise is divided by a batch alone: the
    fewer steps, the less noise, and the less is learned.
    """
    model = task.model

    def run(time: float, tail: float, steps: int) -> Run:
        size = math.ceil(task.n / steps)
        taken = math.ceil(task.n / size)
        rate, inertia = _fast_enough(time, taken, 0.5 / model.geometry.smoothness)
        return OnePassSGD(
            n=task.n,
            batch_size=size,
            learning_rate=rate,
            noise_std=task.factor * model.geometry.lipschitz / size / task.mu,
            momentum=inertia,
            average_last=max(1, int(tail * taken)),
            loss=model.geometry,
            neighbors=task.neighbors,
            group_size=task.max_records_per_person,
            release="last",
        )

    runs = (
        run(time, tail, steps)
        for time in task.times(model, _SAMPLED_TIMES)
        for tail in TAILS
        for steps in ONE_PASS_STEPS
    )
    return _best("one_pass", runs, model, task)


def _largest_rate(model: Model, ridge: float) -> float:
    return 1 / (model.geometry.smoothness + ridge)


def _best(name: str, runs: Iterator[Run], model: Model, task: Task) -> Candidate:
    """Return the run with the smallest expected error."""
    d = task.d + (model.intercept > 0)
    candidates = (Candidate(name, run, model, forecast(run, d, model)) for run in runs)
    return min(candidates, key=lambda candidate: candidate.expected.error)


RECIPES: dict[str, Callable[[Task], Candidate]] = {
    "momentum": momentum,
    "gd": gd,
    "sgd_momentum": sgd_momentum,
    "sgd": sgd,
    "one_pass": one_pass,
}


def worth_trying(name: str, task: Task) -> bool:
    """Return whether a recipe can win: sampling pays only where full batches are few.

    One pass is never better than the same passes in random batches; a stream leaves no choice.
    """
    return name != "one_pass" and (not name.startswith("sgd") or task.most_passes < FEW_PASSES)
