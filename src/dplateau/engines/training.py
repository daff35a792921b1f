"""The training loop: the update rule of a run, on real records, with nothing shown on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dplateau.algorithms import (
    AllIterates,
    Body,
    Box,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    LossGeometry,
    OnePass,
    Poisson,
    RandomStop,
    Run,
    Schedule,
    refuse_batches,
    refuse_release,
)
from dplateau.algorithms.schedule import PerStep, values_over
from dplateau.algorithms.stated import learning_rate_of
from dplateau.engines.cluster import ClusterRecords, Ray, engine_of
from dplateau.engines.kernels import advance
from dplateau.engines.randomness import Randomness, SecureRandomness
from dplateau.engines.records import ALL, ArrayRecords, Records, SourceRecords, Terms
from dplateau.engines.sources import (
    CHUNK_BYTES,
    ArraySource,
    ChunkSource,
    Rows,
    Source,
    is_mapped,
    reads_once,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.progress import Advance, Progress, counting, untold
from dplateau.ground.types import FloatArray, IntArray
from dplateau.losses import Loss

OnCheckpoint = Callable[[int, FloatArray], object]
AHEAD, ROWS_AHEAD = 32, 1 << 15


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
    engine: str | Ray | None = None,
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
        A matrix of float32 or float64 (memory-mapped or in memory) or a CSR matrix with an array of
        targets; or, without targets, a source (see ``dplateau.engines.sources``) or an iterable of
        pairs (features, targets). Scores are computed in the precision of the features (with
        several classes in double precision), weights and noise in double precision. Arrays in
        memory and mapped files of at most 128 MB are copied first, so that what happens to them
        meanwhile changes no step; all other rows are checked whenever they are read.
    feature_norm
        Public bound on the norm of every row, a column of ones included; see :func:`scale_rows`.
    clip
        Cut every record's gradient to this norm.
    randomness
        Source of noise and batches; a fresh :class:`SecureRandomness` if none is given.
    progress
        Called with (steps done, steps in all) a few times per second, and with nothing else, in
        place of a bar. A run that stops at random reports nothing: its length stays secret.
    on_checkpoint
        For runs that release checkpoints: called with (steps done, weights) at each of them. It may
        look, validate and keep what it likes, and stops the run by returning True. The certificate
        stays that of the steps planned: stopping saves time, not epsilon.
    engine
        None sums gradients in this process; "ray" or a :class:`Ray` has workers do so that load
        files of their own (Parquet, or memory-mapped arrays), for full and Poisson batches.

    Returns
    -------
    FloatArray
        One weight per column; for a softmax a matrix with a row per column and a column per class.
        Of a run that releases checkpoints all of them, in order, along a first axis.

    Raises
    ------
    InvalidInput
        If the run cannot be executed on these records, or declares constants that they break.
    NotApplicable
        If the domain has no projection, or the loss no constants where gradients are taken.
    """
    options: dict[str, Any] = {
        "feature_norm": feature_norm,
        "clip": clip,
        "randomness": randomness,
        "progress": progress,
        "on_checkpoint": on_checkpoint,
        "engine": engine,
    }
    if targets is not None and engine is None:
        features = _copied(features)
    return train_kept(run, loss, features, targets, **options)


def train_kept(
    run: Run,
    loss: Loss,
    features: Any,
    targets: npt.NDArray[Any] | None,
    *,
    feature_norm: float,
    clip: float | None,
    randomness: Randomness | None,
    progress: Progress | None,
    on_checkpoint: OnCheckpoint | None,
    engine: str | Ray | None,
) -> FloatArray:
    """Do the same with features that nobody else can change meanwhile, without a copy."""
    _check_run(run, loss, feature_norm, clip)
    terms, cluster = Terms(loss, feature_norm, clip), engine_of(engine)
    randomness = randomness or SecureRandomness()
    if cluster is None:
        records = _records(run, features, targets, terms)
    else:
        source = _source(features, targets)
        records = ClusterRecords(source, terms, run, cluster, randomness)
    try:
        _check_sizes(run, records, loss)
        width, scores = records.n_features, loss.n_outputs
        shape = (width,) if scores == 1 else (width, scores)
        leaving = Leaving(run, shape, on_checkpoint)
        return take_steps(run, records, np.zeros(shape), leaving, randomness, progress)
    finally:
        records.close()


class Leaving:
    """What leaves a run on its way: copies of the weights at its checkpoints, and nothing else."""

    def __init__(
        self, run: Run, shape: tuple[int, ...], on_checkpoint: OnCheckpoint | None
    ) -> None:
        if on_checkpoint is not None and not run.has_checkpoints:
            raise InvalidInput(
                f"nothing of a run with release={run.release.name!r} is handed out on its way; for "
                "on_checkpoint=... describe and certify it with release=Checkpoints(every=...)"
            )
        self.shape, self.on_checkpoint = shape, on_checkpoint
        self.times = _times_of_leaving(run)
        self.checkpoints: list[FloatArray] = []

    def after(self, step: int, weights: FloatArray) -> bool:
        """Hand out the weights if this is a checkpoint, and return whether to stop."""
        if step not in self.times:
            return False
        self.checkpoints.append(weights.reshape(self.shape).copy())
        if self.on_checkpoint is None:
            return False
        return bool(self.on_checkpoint(step, self.checkpoints[-1].copy()))


def take_steps(
    run: Run,
    records: Records,
    start: FloatArray,
    leaving: Leaving,
    randomness: Randomness | None,
    progress: Progress | None,
) -> FloatArray:
    """Return what the run releases, from public weights to start with; secure if not said else."""
    weights = start.ravel().copy()
    # Where a run stops at a random step, the last number shown would give the step away.
    silent = run.stops_at_random
    counted = nullcontext(untold) if silent else counting("steps", run.steps, progress)
    # A warning about overflow would tell something of the data.
    with np.errstate(all="ignore"):
        try:
            with counted as report:
                _walk(run, records, weights, leaving, randomness or SecureRandomness(), report)
        except BaseException as error:
            # An interrupted run releases nothing, not even to a debugger: neither the weights nor
            # the frames of the loop, whose variables a traceback would keep, be it of an error
            # that this one took the place of.
            weights.fill(0)
            error.__context__ = None
            raise error.with_traceback(None) from None
    return np.stack(leaving.checkpoints) if run.has_checkpoints else weights.reshape(leaving.shape)


def _walk(
    run: Run,
    records: Records,
    weights: FloatArray,
    leaving: Leaving,
    randomness: Randomness,
    report: Advance,
) -> None:
    """Take the run's steps, changing the weights in place."""
    # Plain numbers: NumPy's own scalars would make every product several times as slow.
    rates = values_over(learning_rate_of(run), run.steps).tolist()
    # On the sum of gradients, and more of it by what arithmetic may add to a record's share.
    room = 1 + records.ruler.slack
    stds = (values_over(run.noise_std, run.steps) * (run.batch_size * room)).tolist()
    size, l2, momentum, domain = float(run.batch_size), run.l2, run.momentum, run.domain
    looks_ahead = momentum > 0 and run.momentum_kind == "nesterov"
    draw = randomness.laplace if run.noise_kind == "laplace" else randomness.gaussian
    sums = records.in_turn(islice(batches(run, randomness.for_batches()), run.steps))
    if domain is not None:
        weights[:] = domain.project(weights)
    velocity, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(steps := _steps_taken(run, randomness)):
        ahead = weights + momentum * velocity if looks_ahead else weights
        units = next(sums)(ahead.reshape(leaving.shape)).ravel()
        scales = (momentum, rates[step], size, l2, stds[step], records.ruler.unit)
        point = advance(weights, velocity, ahead, units, draw(weights.size), scales)
        weights[:] = point if domain is None else domain.project(point)
        if step >= steps - run.average_last:
            total += weights
        report(1)
        if leaving.after(step + 1, weights):
            break
    weights[:] = total / run.average_last


def _times_of_leaving(run: Run) -> frozenset[int]:
    """Return after how many steps an iterate leaves on the way."""
    match run.release:
        case Checkpoints() as checkpoints:
            return frozenset(checkpoints.times(run.steps))
        case LastIterate() | AllIterates() | RandomStop():
            return frozenset()
        case _ as unknown:
            refuse_release(unknown)


def _steps_taken(run: Run, randomness: Randomness) -> int:
    """Return the length of the run: as described, or uniform on 1 ... T for a random stop."""
    if not run.stops_at_random:
        return run.steps
    return 1 + int(randomness.below(run.steps, 1)[0])


def _records(run: Run, features: Any, targets: npt.NDArray[Any] | None, terms: Terms) -> Records:
    """Return the records: in memory, or read from where they are when that is needed."""
    if targets is not None and not _stays(features):
        return ArrayRecords(features, targets, terms)
    source = _source(features, targets)
    _check_passes(run, source)
    return SourceRecords(source, terms, run.n)


def _stays(features: Any) -> bool:
    """Return whether these are rows in a file that are read from there at every step."""
    return is_mapped(features) and features.nbytes > 2 * CHUNK_BYTES


def _copied(features: Any) -> Any:
    """Return rows that only the caller has: what was checked once must not change later."""
    if issparse(features):
        return cast(Any, features).copy()
    if isinstance(features, np.ndarray) and not _stays(features):
        return np.array(features, order="C")
    return features


def _source(features: Any, targets: npt.NDArray[Any] | None) -> Source:
    """Return the source that features and targets stand for."""
    if targets is not None:
        return ArraySource(features, targets)
    if isinstance(features, Source):
        return features
    if isinstance(features, Iterable) and not hasattr(features, "shape"):
        return ChunkSource(features)
    raise InvalidInput("targets are missing; only a source of chunks brings its own")


def _check_passes(run: Run, source: Source) -> None:
    """Refuse a stream for a run that reads records more than once, or not in their order."""
    if not reads_once(source):
        return
    match run.batches:
        case OnePass():
            return
        case FullBatch() if run.steps == 1:
            return
        case Cyclic(order="cyclic") if run.steps <= run.batches_per_epoch:
            return
        case FullBatch() | Cyclic() | Poisson() | FixedSize():
            raise InvalidInput(
                f"a stream can be read once, and in order; {run.described} with {run.steps} steps "
                "needs more. Use OnePassSGD, or a source that can be read again (a list of "
                "chunks, files, in_scratch_file)"
            )
        case _ as unknown:
            refuse_batches(unknown)


def check_runs(run: Run) -> None:
    """Refuse a description that is enough for a claim, but not to take steps."""
    if run.learning_rate is None:
        raise InvalidInput("training needs learning_rate=... in the run")
    if isinstance(run.domain, Body) and run.domain.projection is None:
        raise NotApplicable(
            f"Body(diameter={run.domain.diameter:g}) has no projection, so the run cannot be "
            "trained: pass project=..., or use Ball or Box"
        )


def check_dimension(run: Run, size: int) -> None:
    """Refuse a model with another number of weights than the run declares."""
    declared = run.domain.dimension if isinstance(run.domain, Box) else run.dimension
    if declared not in (None, size):
        raise InvalidInput(f"the run has dimension={declared}, but the model has {size} weights")


def _check_run(run: Run, loss: Loss, feature_norm: float, clip: float | None) -> None:
    """Refuse a run that could not be executed, or whose constants this loss does not obey."""
    check_runs(run)
    _check_domain(run, loss)
    held = loss.geometry(feature_norm, clip)
    if run.loss is None:
        raise InvalidInput(
            "the run declares no loss; pass loss=...geometry(feature_norm, clip) to it, here "
            f"loss={held!r}"
        )
    relies = run.loss.convex or run.loss.saddle or run.loss.dissipativity is not None
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
    promises = [
        ("lipschitz", said.lipschitz, held.lipschitz),
        ("smoothness", said.smoothness, held.smoothness),
        ("strong_convexity", -said.strong_convexity, -held.strong_convexity),
    ]
    promises += [("holder constant", h, _holder_constant(held, p)) for p, h in said.holders]
    if said.dissipativity is not None:
        # A convex loss has <...> >= 0, which is at least rate * distance^2 - offset on the domain.
        offset, rate = said.dissipativity
        promises.append(("dissipativity offset", offset, rate * diameter**2))
    return promises


def _holder_constant(held: LossGeometry, exponent: float) -> float:
    """Return H with |grad f(x) - grad f(y)| <= H |x - y|^exponent: two bounds, interpolated.

    The losses of linear models declare at most one pair, of exponent 0.
    """
    spread = next((constant for _, constant in held.holders), 2 * held.lipschitz)
    if math.isinf(held.smoothness):
        return spread if exponent == 0 else math.inf
    return float(held.smoothness**exponent * spread ** (1 - exponent))


def _check_sizes(run: Run, records: Records, loss: Loss) -> None:
    if records.n != run.n:
        raise InvalidInput(
            f"the run is described for n={run.n} records, but there are {records.n}; an absent "
            "record of a public n is a row of zeros"
        )
    check_dimension(run, records.n_features * loss.n_outputs)


def batches(run: Run, randomness: Randomness) -> Iterator[Rows]:
    """Yield the batch of every step, at least as many as the run has."""
    match run.batches:
        case FullBatch():
            return _everything()
        case Poisson(rate=rate):
            return _poisson(run, rate, randomness)
        case FixedSize(size=size):
            return _fixed(run, size, randomness)
        case OnePass(size=size) | Cyclic(size=size, order="cyclic"):
            return _in_order(run, size)
        case Cyclic():
            return _shuffled(run, run.batches, randomness)
        case _ as unknown:
            refuse_batches(unknown)


def _everything() -> Iterator[Rows]:
    while True:
        yield ALL


def _poisson(run: Run, rate: PerStep, randomness: Randomness) -> Iterator[Rows]:
    for value, count in rate.blocks if isinstance(rate, Schedule) else ((rate, run.steps),):
        for first in range(0, count, ahead := _ahead(count, value * run.n)):
            yield from randomness.poisson_subsets(run.n, value, min(ahead, count - first))


def _fixed(run: Run, size: int, randomness: Randomness) -> Iterator[Rows]:
    while True:
        yield from randomness.subsets(run.n, [size] * _ahead(run.steps, size))


def _ahead(steps: int, rows: float) -> int:
    """Return how many batches to draw at once: many small ones, or one that is large."""
    return max(1, min(AHEAD, steps, int(ROWS_AHEAD / rows)))


def _in_order(run: Run, size: int) -> Iterator[Rows]:
    while True:
        yield from _one_epoch(run, size)


def _shuffled(run: Run, cycle: Cyclic, randomness: Randomness) -> Iterator[Rows]:
    order: IntArray = randomness.permutation(run.n)
    while True:
        for part in _one_epoch(run, cycle.size):
            yield order[part]
        if cycle.order == "reshuffle":
            order = randomness.permutation(run.n)


def _one_epoch(run: Run, size: int) -> Iterator[slice]:
    for start in range(0, run.n, size):
        yield slice(start, min(run.n, start + size))
