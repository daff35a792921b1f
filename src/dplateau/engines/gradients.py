"""Training by any per-record gradient: networks, factorizations, whatever has one.

The user's function gives the gradients of some records, one by one; the engine cuts each to the
length that the run declares, adds them exactly, and takes the very steps of the linear engine. The
function sees arrays of whatever library it was written for: weights in the type of ``start``, rows
in the type of the records. Two things are asked of an array, and none of a library:

* records are picked by ``array[index]`` with NumPy integers (NumPy, PyTorch and JAX arrays can),
* weights are made by ``array.new_tensor(values)`` (PyTorch) or by the namespace that the array
  itself names (``__array_namespace__``: NumPy, JAX and all others of the array API standard).

**What a record can do to a sum.** Batches are drawn among the n declared places. A place keeps its
position in its block whether its record is there or not (an absent one is computed with another
row, and its gradient dropped), and blocks have one shape. So if a function gives each record a
gradient that does not depend on the *values* of its companions, a record changes no gradient but
its own, to the last bit. Its own is at most L (1 + (p + 4) u) long after the cut, p the number of
weights and u = 2^-53; a gradient that is not finite counts as zero. From there on it is step 2 and
3 of the proof in ``ruler``, whose slack covers all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dplateau.algorithms import Run
from dplateau.algorithms.stated import loss_of
from dplateau.engines.randomness import Randomness
from dplateau.engines.records import Records
from dplateau.engines.ruler import ruler_for
from dplateau.engines.sources import Rows
from dplateau.engines.training import Leaving, check_dimension, check_runs, take_steps
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.progress import Progress
from dplateau.ground.types import FloatArray, IntArray

# Entries of a block of gradients, and the most records in one.
BLOCK_ENTRIES, BLOCK_ROWS = 1 << 21, 256
# Two computations of one gradient may differ by so much of its length: more than rounding does.
_SAME = 1e-4


# An array, or a tuple, list or dict of trees.
Tree = Any
PerRecordGradient = Callable[[Tree, Tree], Tree]


def train_gradient(
    run: Run,
    gradient: PerRecordGradient,
    records: Tree,
    *,
    start: Tree,
    at_most: bool = False,
    never_clips: bool = False,
    block_rows: int | None = None,
    randomness: Randomness | None = None,
    progress: Progress | None = None,
    on_checkpoint: Callable[[int, Tree], object] | None = None,
) -> Tree:
    """Run the described algorithm with a gradient of the user's own, and return what it releases.

    Parameters
    ----------
    run
        What runs, and what is accounted for. ``run.loss.lipschitz`` is the norm that every record's
        gradient is cut to. The other constants are the user's word, about the gradients as they are
        *after* the cut: one Lipschitz or Hölder constant of the gradient survives it (cutting is a
        projection, which does not expand), convexity and dissipativity do not.
    gradient
        A function of (weights, batch): the gradients of some records at some weights, one for each
        record along a first axis, and otherwise shaped as the weights. ``batch`` has the form of
        ``records``. Each record's gradient may depend on that record and the weights alone: batch
        normalization, for one, is refused. With PyTorch ``torch.func.vmap(torch.func.grad(f),
        (None, 0))`` is such a function, with JAX ``jax.vmap(jax.grad(f), (None, 0))``. It is tried
        on two blocks of made-up records first.
    records
        An array with a record in every row, or a tuple, list or dict of such arrays (of such, ...).
    start
        Public weights to start from: an array, or a tuple, list or dict of them. The ridge pulls
        towards zero, and covers all of them.
    at_most
        Whether there may be fewer records than ``run.n``; the others count as absent.
    never_clips
        A promise that no gradient is ever longer than ``run.loss.lipschitz``, so that the loss is
        what it was declared to be. Runs that declare a convex, saddle or dissipative loss need it.
    block_rows
        How many records the function gets at a time (the last ones are filled up, so that compiled
        functions see one shape); by default up to 256, fewer for large models.
    randomness, progress, on_checkpoint
        As for :func:`dplateau.train`; weights are handed out in the form of ``start``.

    Returns
    -------
    Tree
        The weights in the form, library and precision of ``start``; inside they are doubles. Of a
        run that releases checkpoints all of them, in order, along a first axis of each array.

    Raises
    ------
    InvalidInput
        If the run cannot be executed on these records, or rests on what the cut destroys.

    Examples
    --------
    The mean of private numbers between -1 and 1, by gradients of (w - x)^2 / 2:

    >>> import numpy as np
    >>> from dplateau import LossGeometry, NoisyGD, train_gradient
    >>> run = NoisyGD(n=1000, steps=50, learning_rate=0.2, noise_multiplier=5.0, release="last",
    ...               loss=LossGeometry(lipschitz=1.0, convex=False, smoothness=1.0))
    >>> numbers = np.linspace(0.0, 0.6, 1000)
    >>> mean = train_gradient(run, lambda w, x: w - x[:, None], numbers, start=np.zeros(1))
    >>> bool(abs(mean[0] - 0.3) < 0.1)
    True
    """
    _check_run(run, never_clips)
    form = _Form(start, block_rows)
    _check_sizes(run, records, at_most)
    check_dimension(run, form.size)
    _check_apart(gradient, form, records)
    look = on_checkpoint and (lambda step, weights: on_checkpoint(step, form.tree(weights)))
    leaving = Leaving(run, (form.size,), look)
    held = _GradientRecords(run, gradient, records, form)
    return form.tree(take_steps(run, held, form.flat(start), leaving, randomness, progress))


class _GradientRecords(Records):
    """Records whose gradients are the user's: cut, rounded to units and added, block by block."""

    def __init__(self, run: Run, gradient: PerRecordGradient, records: Tree, form: _Form) -> None:
        self.n, self.n_features = run.n, form.size
        self.cut = loss_of(run).lipschitz
        self.ruler = ruler_for(self.cut, self.n, form.size, 1)
        self.gradient_of, self.records, self.form = gradient, records, form
        self.held = _count(records)

    def units(self, weights: FloatArray, rows: Rows) -> IntArray:
        """Return the sum of the cut gradients of some records."""
        index = np.arange(self.n)[rows] if isinstance(rows, slice) else rows
        handed = self.form.tree(weights)
        total = np.zeros(self.n_features, dtype=np.int64)
        for first in range(0, index.size, self.form.rows):
            places = np.full(self.form.rows, self.n)
            block = index[first : first + self.form.rows]
            places[: block.size] = block
            total += self._block(handed, places)
        return total

    def _block(self, weights: Tree, places: IntArray) -> IntArray:
        """Return the sum over the places that hold a record."""
        there = places < self.held
        batch = _picked(self.records, np.where(there, places, 0))
        failed = None
        try:
            gradients = self.form.gradients(self.gradient_of(weights, batch))
        except Exception as error:
            failed = type(error).__name__
        if failed is not None:
            # What it said, and at which step, may tell of the records; so do its frames.
            raise InvalidInput(
                f"the gradient function raised {failed} during the run; it answered for made-up "
                "records, so look for values that it cannot take"
            )
        gradients[~there] = 0.0
        total: IntArray = self.ruler.units(cut(gradients, self.cut)).sum(axis=0)
        return total


def cut(gradients: FloatArray, length: float) -> FloatArray:
    """Return the rows, each shortened to the length if it is longer; zero if it is not finite."""
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = np.where(finite, gradients, 0.0)
    # A row of zeros keeps its length; squares that overflow shorten a row to nothing.
    with np.errstate(all="ignore"):
        lengths = rows / length
        shares = np.minimum(1.0, 1 / np.sqrt(np.einsum("ij,ij->i", lengths, lengths)))
    shortened: FloatArray = rows * shares[:, None]
    return shortened


# --- trees of arrays, of any library -------------------------------------------------------------


class _Form:
    """The shapes of the weights: between a flat vector of doubles and the user's arrays."""

    def __init__(self, start: Tree, block_rows: int | None) -> None:
        self.start = start
        self.leaves = list(_leaves(start))
        if not self.leaves or any(not _is_floating(leaf) for leaf in self.leaves):
            raise InvalidInput(
                "start is an array of floating-point weights, or a tuple, list or dict of them; "
                f"got {type(start).__name__}"
            )
        self.shapes = [tuple(int(side) for side in leaf.shape) for leaf in self.leaves]
        self.size = sum(math.prod(shape) for shape in self.shapes)
        fits = max(1, min(BLOCK_ROWS, BLOCK_ENTRIES // max(self.size, 1)))
        self.rows = fits if block_rows is None else checks.whole("block_rows", block_rows)

    def flat(self, tree: Tree) -> FloatArray:
        """Return the weights as one vector."""
        return np.concatenate([_numpy(leaf).ravel() for leaf in _leaves(tree)])

    def tree(self, weights: FloatArray) -> Tree:
        """Return a vector, or vectors along a first axis, in the form of the start."""
        lead = weights.shape[:-1]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = np.split(weights, ends, axis=-1)
        values = iter(
            _like(leaf, part.reshape(lead + shape))
            for leaf, part, shape in zip(self.leaves, parts, self.shapes, strict=True)
        )
        return _rebuilt(self.start, values)

    def gradients(self, given: Tree) -> FloatArray:
        """Return what the function gave as a matrix with a row for every record."""
        leaves = [_numpy(leaf) for leaf in _leaves(given)]
        wanted = [(self.rows, *shape) for shape in self.shapes]
        got = [leaf.shape for leaf in leaves]
        if got != wanted:
            raise InvalidInput(
                f"the gradient function must give arrays of the shapes {wanted} for "
                f"{self.rows} records; got {got}"
            )
        return np.concatenate([leaf.reshape(self.rows, -1) for leaf in leaves], axis=1)


def _leaves(tree: Tree) -> Iterator[Any]:
    """Yield the arrays of a tree; dicts in the order of their own keys as sorted."""
    match tree:
        case dict():
            for name in sorted(tree):
                yield from _leaves(tree[name])
        case tuple() | list():
            for part in tree:
                yield from _leaves(part)
        case _:
            yield tree


def _rebuilt(tree: Tree, values: Iterator[Any]) -> Tree:
    """Return a tree of the same form with other arrays."""
    match tree:
        case dict():
            rebuilt = {name: _rebuilt(tree[name], values) for name in sorted(tree)}
            return {name: rebuilt[name] for name in tree}
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(_rebuilt(part, values) for part in tree))
        case tuple() | list():
            return type(tree)(_rebuilt(part, values) for part in tree)
        case _:
            return next(values)


def _picked(tree: Tree, index: IntArray) -> Tree:
    return _rebuilt(tree, iter([leaf[index] for leaf in _leaves(tree)]))


def _numpy(leaf: Any) -> FloatArray:
    """Return any library's array as doubles."""
    plain = leaf.detach().cpu().double() if hasattr(leaf, "detach") else leaf
    return np.asarray(plain, dtype=np.float64)


def _like(leaf: Any, values: FloatArray) -> Any:
    """Return values in the library and precision of an array."""
    if hasattr(leaf, "new_tensor"):
        return leaf.new_tensor(values)
    if hasattr(leaf, "__array_namespace__"):
        return leaf.__array_namespace__().asarray(values, dtype=leaf.dtype, copy=True)
    return np.array(values, dtype=leaf.dtype)


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and "float" in str(getattr(leaf, "dtype", ""))


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and len(leaf.shape) > 0


def _count(records: Tree) -> int:
    return int(next(_leaves(records)).shape[0])


# --- what is refused -----------------------------------------------------------------------------


def _check_run(run: Run, never_clips: bool) -> None:
    """Refuse a run that could not be executed, or that rests on what the cut destroys."""
    check_runs(run)
    if run.loss is None or math.isinf(run.loss.lipschitz):
        raise InvalidInput(
            "the run declares no length to cut gradients to; describe it with "
            "loss=LossGeometry(lipschitz=<clip norm>, convex=False)"
        )
    lost = {
        "convex": run.loss.convex,
        "convex-concave": run.loss.saddle,
        "dissipative": run.loss.dissipativity is not None,
    }
    if any(lost.values()) and not never_clips:
        kind = next(name for name, declared in lost.items() if declared)
        raise InvalidInput(
            f"the run declares {kind} losses, but gradients that are cut belong to none; describe "
            "it with convex=False and no more than smoothness, or promise by never_clips=True that "
            f"no gradient is ever longer than lipschitz={run.loss.lipschitz:g}"
        )


def _check_sizes(run: Run, records: Tree, at_most: bool) -> None:
    leaves = list(_leaves(records))
    if not leaves or not all(map(_is_array, leaves)):
        raise InvalidInput(
            "records are an array with a record in every row, or a tuple, list or dict of such "
            f"arrays; got {type(records).__name__}"
        )
    counts = {int(leaf.shape[0]) for leaf in leaves}
    if len(counts) > 1:
        raise InvalidInput(f"every array must have as many rows; got {sorted(counts)}")
    (count,) = counts
    if count > run.n or (count < run.n and not at_most) or count == 0:
        raise InvalidInput(
            f"the run is described for n={run.n} records, but there are {count}; with at_most=True "
            "missing ones count as absent"
        )


def _check_apart(gradient: PerRecordGradient, form: _Form, records: Tree) -> None:
    """Refuse a function whose gradients depend on the records beside: two made-up blocks tell.

    The blocks share their first record. Nothing of the private records is looked at but shapes and
    types, so whatever goes wrong here may be said.
    """
    rng = np.random.default_rng(0)
    made = _rebuilt(records, iter([_made_up(leaf, form.rows, rng) for leaf in _leaves(records)]))
    weights = form.tree(form.flat(form.start))
    first = np.arange(form.rows)
    with np.errstate(all="ignore"):
        alone, beside = (
            form.gradients(gradient(weights, _picked(made, index)))[0]
            for index in (first, np.r_[0, form.rows + first[1:]])
        )
        gap = float(np.abs(np.nan_to_num(alone - beside)).max(initial=0.0))
    if gap > _SAME * float(np.abs(np.nan_to_num(alone)).max(initial=0.0)):
        raise InvalidInput(
            "the gradient of a made-up record changes with the records beside it, or from call to "
            "call: each may depend on its own record and the weights alone (batch normalization, "
            "means over the batch and random layers do not)"
        )


def _made_up(leaf: Any, rows: int, rng: np.random.Generator) -> Any:
    """Return twice as many rows of random reals, or of zeros where the array holds none."""
    shape = (2 * rows, *(int(side) for side in leaf.shape[1:]))
    return _like(leaf, rng.normal(size=shape) if _is_floating(leaf) else np.zeros(shape))
