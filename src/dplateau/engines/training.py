"""The training loop: the update rule of a run, on real records, with nothing shown on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.algorithms import Body, Box, Checkpoints, LossGeometry, Run
from dplateau.algorithms.schedule import values_over
from dplateau.engines.batches import batches
from dplateau.engines.kernels import advance
from dplateau.engines.randomness import Randomness, SecureRandomness
from dplateau.engines.records import ArrayRecords, ChunkRecords, Chunks, Records
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.losses import Loss

Progress = Callable[[int, int], None]
OnCheckpoint = Callable[[int, FloatArray], object]
SECONDS_BETWEEN_REPORTS = 0.3


def train(
    run: Run,
    loss: Loss,
    features: Any,
    targets: npt.NDArray[Any] | None = None,
    *,
    feature_norm: float,
    clip: float | None = None,
    randomness: Randomness | None = None,
    progress: Progress | None = None,
    on_checkpoint: OnCheckpoint | None = None,
) -> FloatArray:
    """Run the described algorithm on these records and return the weights it releases.

    The weights start at zero (or at the point of the domain nearest to it). An intercept is a
    column of ones that the caller appends; ridge and projection treat it like every other column.

    Parameters
    ----------
    run
        What runs, and what is accounted for: every number of the update rule comes from it. Its
        ``loss`` must be ``loss.geometry(feature_norm, clip)`` or weaker constants.
    loss
        The loss of one record.
    features, targets
        A matrix of float32 or float64 (memory-mapped or in memory), a CSR matrix, or a
        :class:`Chunks` object that brings its own targets. Scores are computed in the precision of
        the features, weights and noise in double precision.
    feature_norm
        Public bound on the norm of every row, a column of ones included; see :func:`scale_rows`.
    clip
        Cut every record's gradient to this norm.
    randomness
        Source of noise and batches; a fresh :class:`SecureRandomness` if none is given.
    progress
        Called with (steps done, steps in all) a few times per second, and with nothing else. A run
        that stops at random reports nothing: its length stays secret.
    on_checkpoint
        For runs that release checkpoints: called with (steps done, weights) at each of them. It may
        look, validate and keep what it likes, and stops the run by returning True. The certificate
        stays that of the steps planned: stopping saves time, not epsilon.

    Returns
    -------
    FloatArray
        One weight per column; for a softmax a matrix with a row per column and a column per class.
        Of a run that releases checkpoints all of them, in order, along a first axis.
    """
    if run.stops_at_random:
        progress = None
    if on_checkpoint is not None and not run.has_checkpoints:
        raise InvalidInput(
            f"nothing of a run with release={run.release.name!r} is handed out on its way; for "
            "on_checkpoint=... describe and certify it with release=Checkpoints(every=...)"
        )
    _check_run(run, loss, feature_norm, clip)
    records = _records(features, targets, loss, feature_norm, clip)
    _check_sizes(run, records, loss)
    weights = np.zeros(records.n_features * loss.n_outputs)
    shape = (records.n_features,) if loss.n_outputs == 1 else (records.n_features, loss.n_outputs)
    # A warning about overflow would tell something of the data.
    with np.errstate(all="ignore"):
        try:
            left = _Leaving(run, shape, on_checkpoint)
            _walk(run, records, weights, left, randomness or SecureRandomness(), progress)
        except BaseException as error:
            # An interrupted run releases nothing, not even to a debugger: neither the weights nor
            # the frames of the loop, whose variables a traceback would keep.
            weights.fill(0)
            raise error.with_traceback(None) from None
    return np.stack(left.checkpoints) if run.has_checkpoints else weights.reshape(shape)


class _Leaving:
    """What leaves a run on its way: copies of the weights at its checkpoints, and nothing else."""

    def __init__(
        self, run: Run, shape: tuple[int, ...], on_checkpoint: OnCheckpoint | None
    ) -> None:
        self.shape, self.on_checkpoint = shape, on_checkpoint
        self.times = (
            frozenset(run.release.times(run.steps))
            if isinstance(run.release, Checkpoints)
            else frozenset()
        )
        self.checkpoints: list[FloatArray] = []

    def after(self, step: int, weights: FloatArray) -> bool:
        """Hand out the weights if this is a checkpoint, and return whether to stop."""
        if step not in self.times:
            return False
        self.checkpoints.append(weights.reshape(self.shape).copy())
        if self.on_checkpoint is None:
            return False
        return bool(self.on_checkpoint(step, self.checkpoints[-1].copy()))


def _walk(
    run: Run,
    records: Records,
    weights: FloatArray,
    leaving: _Leaving,
    randomness: Randomness,
    progress: Progress | None,
) -> None:
    """Take the run's steps, changing the weights in place."""
    assert run.learning_rate is not None
    # Plain numbers: NumPy's own scalars would make every product several times as slow.
    rates = values_over(run.learning_rate, run.steps).tolist()
    # On the sum of gradients, and more of it by what arithmetic may add to a record's share.
    room = 1 + records.ruler.slack
    stds = (values_over(run.noise_std, run.steps) * (run.batch_size * room)).tolist()
    size, l2, momentum, domain = float(run.batch_size), run.l2, run.momentum, run.domain
    looks_ahead = momentum > 0 and run.momentum_kind == "nesterov"
    draw = randomness.laplace if run.noise_kind == "laplace" else randomness.gaussian
    chosen = batches(run, randomness)
    report = _reporter(progress, run.steps)
    if domain is not None:
        weights[:] = domain.project(weights)
    velocity, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(steps := _steps_taken(run, randomness)):
        ahead = weights + momentum * velocity if looks_ahead else weights
        units = records.units(ahead.reshape(leaving.shape), next(chosen)).ravel()
        scales = (momentum, rates[step], size, l2, stds[step], records.ruler.unit)
        point = advance(weights, velocity, ahead, units, draw(weights.size), scales)
        weights[:] = point if domain is None else domain.project(point)
        if step >= steps - run.average_last:
            total += weights
        report(step + 1)
        if leaving.after(step + 1, weights):
            break
    weights[:] = total / run.average_last
    if progress is not None:
        progress(run.steps, run.steps)


def _steps_taken(run: Run, randomness: Randomness) -> int:
    """Return the length of the run: as described, or uniform on 1 ... T for a random stop."""
    if not run.stops_at_random:
        return run.steps
    return 1 + int(randomness.below(run.steps, 1)[0])


def _reporter(progress: Progress | None, steps: int) -> Callable[[int], None]:
    """Return what tells the progress, seldom enough not to slow the run down."""
    if progress is None:
        return lambda done: None
    last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS and done < steps:
            last = now
            progress(done, steps)

    return report


def _records(
    features: Any,
    targets: npt.NDArray[Any] | None,
    loss: Loss,
    feature_norm: float,
    clip: float | None,
) -> Records:
    if targets is not None:
        return ArrayRecords(features, targets, loss, feature_norm, clip)
    if not isinstance(features, Chunks):
        raise InvalidInput("targets are missing; only a Chunks object brings its own")
    return ChunkRecords(features, loss, feature_norm, clip)


def _check_run(run: Run, loss: Loss, feature_norm: float, clip: float | None) -> None:
    """Refuse a run that could not be executed, or whose constants this loss does not obey."""
    if run.learning_rate is None:
        raise InvalidInput("training needs learning_rate=... in the run")
    if isinstance(run.domain, Body) and run.domain.projection is None:
        raise NotApplicable(
            f"Body(diameter={run.domain.diameter:g}) has no projection, so the run cannot be "
            "trained: pass project=..., or use Ball or Box"
        )
    _check_domain(run, loss)
    held = loss.geometry(feature_norm, clip)
    if run.loss is None:
        raise InvalidInput(
            "the run declares no loss; pass loss=...geometry(feature_norm, clip) to it, here "
            f"loss={held!r}"
        )
    relies = run.loss.convex or run.loss.dissipativity is not None
    if relies and not held.convex:
        raise InvalidInput(
            f"the run declares convex losses, but clipped gradients of {loss!r} belong to none; "
            "describe the run with loss.geometry(feature_norm, clip), or leave the clip out"
        )
    for name, promised, true in _promises(run.loss, held, run.diameter):
        if not true <= promised:
            raise InvalidInput(
                f"the run declares {name}={promised:g}, but {loss!r} with "
                f"feature_norm={feature_norm:g} and clip={clip} has {true:g}; describe the run "
                "with loss.geometry(feature_norm, clip)"
            )


def _check_domain(run: Run, loss: Loss) -> None:
    """Refuse a domain that the loss's constants do not cover."""
    loss.check_domain(run.domain)
    if not run.momentum or run.momentum_kind == "heavy_ball":
        return
    try:
        loss.check_domain(None)
    except InvalidInput:
        raise NotApplicable(
            f"momentum={run.momentum:g} takes gradients ahead of the iterate, outside the domain "
            f"that the constants of {loss!r} hold on; use momentum_kind='heavy_ball', or Huber"
        ) from None


def _promises(
    said: LossGeometry, held: LossGeometry, diameter: float
) -> list[tuple[str, float, float]]:
    """Return (name, declared, true) of every constant that the run relies on; true <= declared."""
    found = [
        ("lipschitz", said.lipschitz, held.lipschitz),
        ("smoothness", said.smoothness, held.smoothness),
        ("strong_convexity", -said.strong_convexity, -held.strong_convexity),
    ]
    if said.holder is not None:
        found.append(("holder constant", said.holder[1], _holder_constant(held, said.holder[0])))
    if said.dissipativity is not None:
        # A convex loss has <...> >= 0, which is at least rate * distance^2 - offset on the domain.
        offset, rate = said.dissipativity
        found.append(("dissipativity offset", offset, rate * diameter**2))
    return found


def _holder_constant(held: LossGeometry, exponent: float) -> float:
    """Return H with |grad f(x) - grad f(y)| <= H |x - y|^exponent: two bounds, interpolated."""
    spread = 2 * held.lipschitz if held.holder is None else held.holder[1]
    if math.isinf(held.smoothness):
        return spread if exponent == 0 else math.inf
    return float(held.smoothness**exponent * spread ** (1 - exponent))


def _check_sizes(run: Run, records: Records, loss: Loss) -> None:
    if records.n != run.n:
        raise InvalidInput(
            f"the run is described for n={run.n} records, but there are {records.n}; an absent "
            "record of a public n is a row of zeros"
        )
    size = records.n_features * loss.n_outputs
    declared = run.domain.dimension if isinstance(run.domain, Box) else run.dimension
    if declared not in (None, size):
        raise InvalidInput(f"the run has dimension={declared}, but the model has {size} weights")
