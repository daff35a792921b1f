"""Compiled loops over rows: forward and backward pass on a tile while it is in the cache.

Rows are taken a tile at a time. A tile's scores, its slopes and its share of the gradient are
computed before the next tile is touched, so the features are read from memory once per step. Inside
a tile sums run in the precision of the features; the totals of the tiles are added in doubles.

A link (see ``dplateau.losses.Link``) arrives as a shape and the numbers (low, high, scale), and
``limits`` holds clip / |x| of every row, or nothing if there is no clip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.ground.compiled import compiled, compiled_in_any_order
from dplateau.ground.types import FloatArray, IntArray

Reals = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.integer[Any]]
LOGISTIC, RAMP, MIRRORED_RAMP = 0, 1, 2


@compiled_in_any_order
def slope(score: Any, target: Any, shape: int, numbers: Reals) -> Any:
    """Return the link at one score."""
    if shape == 0:
        return -target / (numbers.dtype.type(1) + np.exp(target * score))
    low, high = numbers[0], numbers[1]
    if shape == 2 and target < 0:
        low, high = -high, -low
    return min(max(numbers[2] * (score - target), low), high)


@compiled_in_any_order
def tile_gradient(
    tile: Reals,
    targets: Reals,
    limits: Reals,
    weights: Reals,
    shape: int,
    numbers: Reals,
    slopes: Reals,
    total: Reals,
) -> None:
    """Add the gradients of a tile of rows to ``total``; ``slopes`` is room to work in."""
    height, width = tile.shape
    for i in range(height):
        score = numbers.dtype.type(0)
        for j in range(width):
            score += tile[i, j] * weights[j]
        slopes[i] = score
    for i in range(height):
        slopes[i] = slope(slopes[i], targets[i], shape, numbers)
    for i in range(limits.size):
        slopes[i] = min(max(slopes[i], -limits[i]), limits[i])
    # Four rows at a time: the total is loaded and stored a quarter as often.
    whole = height - height % 4
    for i in range(0, whole, 4):
        first, second, third, fourth = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
        for j in range(width):
            total[j] += (first * tile[i, j] + second * tile[i + 1, j]) + (
                third * tile[i + 2, j] + fourth * tile[i + 3, j]
            )
    for i in range(whole, height):
        for j in range(width):
            total[j] += slopes[i] * tile[i, j]


@compiled_in_any_order
def range_gradient(
    features: Reals,
    targets: Reals,
    limits: Reals,
    weights: Reals,
    shape: int,
    numbers: Reals,
    start: int,
    stop: int,
    height: int,
) -> FloatArray:
    """Return the sum of the gradients of the rows ``start`` ... ``stop`` - 1."""
    total = np.zeros(features.shape[1])
    part = np.zeros(features.shape[1], features.dtype)
    slopes = np.empty(height, features.dtype)
    for first in range(start, stop, height):
        last = min(stop, first + height)
        near = limits[first:last]
        tile_gradient(
            features[first:last], targets[first:last], near, weights, shape, numbers, slopes, part
        )
        for j in range(part.size):
            total[j] += part[j]
            part[j] = 0
    return total


@compiled_in_any_order
def rows_gradient(
    features: Reals,
    targets: Reals,
    limits: Reals,
    weights: Reals,
    shape: int,
    numbers: Reals,
    rows: IntArray,
    height: int,
) -> FloatArray:
    """Return the sum of the gradients of the listed rows, copied tile by tile."""
    width = features.shape[1]
    total = np.zeros(width)
    part = np.zeros(width, features.dtype)
    slopes = np.empty(height, features.dtype)
    tile = np.empty((height, width), features.dtype)
    answers = np.empty(height, features.dtype)
    near = np.empty(height if limits.size else 0, features.dtype)
    for first in range(0, rows.size, height):
        last = min(rows.size, first + height)
        for i in range(first, last):
            row = rows[i]
            for j in range(width):
                tile[i - first, j] = features[row, j]
            answers[i - first] = targets[row]
            if limits.size:
                near[i - first] = limits[row]
        count = last - first
        tile_gradient(
            tile[:count], answers[:count], near[:count], weights, shape, numbers, slopes, part
        )
        for j in range(width):
            total[j] += part[j]
            part[j] = 0
    return total


@compiled_in_any_order
def sparse_gradient(
    data: Reals,
    columns: Indices,
    starts: Indices,
    targets: Reals,
    limits: Reals,
    weights: Reals,
    shape: int,
    numbers: Reals,
    rows: IntArray,
    start: int,
    stop: int,
) -> FloatArray:
    """Return the sum over the listed CSR rows; if none are, over ``start`` ... ``stop`` - 1."""
    total = np.zeros(weights.size)
    for i in range(start, stop):
        row = rows[i] if rows.size else i
        score = numbers.dtype.type(0)
        for k in range(starts[row], starts[row + 1]):
            score += data[k] * weights[columns[k]]
        size = slope(score, targets[row], shape, numbers)
        if limits.size:
            size = min(max(size, -limits[row]), limits[row])
        for k in range(starts[row], starts[row + 1]):
            total[columns[k]] += size * data[k]
    return total


@compiled_in_any_order
def softmax_slopes(scores: Reals, targets: Indices, limits: Reals) -> None:
    """Turn scores into probabilities less one at the target, no row longer than its limit."""
    height, classes = scores.shape
    one = scores.dtype.type(1)
    for i in range(height):
        row = scores[i]
        highest = row[0]
        for j in range(1, classes):
            highest = max(highest, row[j])
        total = scores.dtype.type(0)
        for j in range(classes):
            row[j] = np.exp(row[j] - highest)
            total += row[j]
        share = one / total
        for j in range(classes):
            row[j] *= share
        row[targets[i]] -= one
        if limits.size:
            # In doubles: the room for rounding in the limits is then enough.
            square = 0.0
            for j in range(classes):
                square += np.float64(row[j]) * np.float64(row[j])
            size = np.sqrt(square)
            if size > limits[i]:
                cut = np.float64(limits[i]) / size
                for j in range(classes):
                    row[j] = np.float64(row[j]) * cut


@compiled_in_any_order
def squared_norms(features: Reals) -> FloatArray:
    """Return the squared norm of every row, summed in doubles."""
    found = np.empty(features.shape[0])
    for i in range(features.shape[0]):
        total = 0.0
        for j in range(features.shape[1]):
            entry = np.float64(features[i, j])
            total += entry * entry
        found[i] = total
    return found


@compiled
def advance(
    weights: FloatArray,
    velocity: FloatArray,
    ahead: FloatArray,
    gradient: FloatArray,
    noise: FloatArray,
    scales: tuple[float, float, float, float, float],
) -> FloatArray:
    """Renew the velocity in place and return w + v, the next point before its projection.

    ``ahead`` is where the gradient was taken; ``scales`` are (m, eta, b, l2, nu).
    """
    momentum, rate, size, l2, std = scales
    point = np.empty_like(weights)
    for j in range(weights.size):
        pull = gradient[j] / size + l2 * ahead[j]
        velocity[j] = momentum * velocity[j] - rate * pull + std * noise[j]
        point[j] = weights[j] + velocity[j]
    return point


@compiled
def distinct_sets(
    words: npt.NDArray[np.uint64], shift: int, bound: int, sizes: IntArray
) -> tuple[IntArray, int]:
    """Return sets of distinct numbers below ``bound``, one after the other, and how many there are.

    Words are used up in order; the sets that they do not suffice for are left out.
    """
    length = 2
    while length < 2 * sizes.max():
        length *= 2
    table = np.empty(length, np.int64)  # open addressing, at most half full
    chosen = np.empty(sizes.sum(), np.int64)
    place, total = 0, 0
    for done in range(sizes.size):
        table[:] = -1
        wanted = total + sizes[done]
        while total < wanted:
            if place == words.size:
                return chosen, done
            number = np.int64(words[place] >> np.uint64(shift))
            place += 1
            if number >= bound:
                continue
            slot = number & (length - 1)
            while table[slot] >= 0 and table[slot] != number:
                slot = (slot + 1) & (length - 1)
            if table[slot] < 0:
                table[slot] = number
                chosen[total] = number
                total += 1
    return chosen, sizes.size
