"""Compiled loops over rows: forward and backward pass on a tile while it is in the cache.

Rows are taken a tile at a time. A tile's scores, its slopes and its share of the gradient are
computed before the next tile is touched, so the features are read from memory once per step. Tables
hold columns, and transposing them would take longer than all the rest: ``columns_gradient`` does
the same on a matrix with a row per column. Scores
and slopes have the precision of the features (doubles where there is one score per class). Products
of a slope and an entry are rounded to whole units and added exactly (see ``ruler``), in doubles for
up to 256 rows, then in integers.

A link (see ``dplateau.losses.Link``) arrives as a shape and the numbers (low, high, scale, most)
and, if classes have them, their weights, which multiply slopes last; ``limits`` holds the most that
every row's slopes may be before that, or nothing if that is ``most`` for all.
Weights that overflowed give no score: the record's slope is then 0, so that it can tell nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dplateau.ground.compiled import compiled, compiled_in_any_order
from dplateau.ground.types import FloatArray, IntArray

Reals = npt.NDArray[np.floating[Any]]
Indices = npt.NDArray[np.integer[Any]]
# The number of a link's shape, by its name and whether it is mirrored.
SHAPES = {
    ("logistic", True): 0,
    ("ramp", False): 1,
    ("ramp", True): 2,
    ("step", False): 3,
    ("step", True): 4,
}
SOFTMAX = 5
# Where the weights of classes begin among the numbers.
WEIGHTS = 4
# log 2 in two parts, the first short enough that its multiples are exact.
LOG2_E, LN_2_HIGH, LN_2_LOW = 1.4426950408889634, 0.693147180369123816490, 1.90821492927058770e-10
LARGEST = float(np.finfo(np.float64).max)
# So many units are added and taken away to round a double to whole units.
SHIFT = 1.5 * 2.0**52
# Sums of so many gradients are exact in doubles: 2^8 of them, of at most 2^44 units each.
EXACT_ROWS = 256
# A column's products are added in so many lanes, of which eight together are still exact.
LANES, TALLEST = 64, 2048


@compiled
def exponentials(values: FloatArray, room: FloatArray) -> None:
    """Replace every value x by exp(x), right to a few units in the last place, at full speed.

    x = k log 2 + r with a whole k and |r| <= log(2) / 2. A large constant rounds x / log 2 to k and
    leaves k in the last bits of the sum, from where it moves into the exponent of 2^k.
    """
    bits = room.view(np.int64)
    for i in range(values.size):
        x = min(max(values[i], -708.0), 709.0)
        room[i] = x * LOG2_E + SHIFT
        k = room[i] - SHIFT
        r = (x - k * LN_2_HIGH) - k * LN_2_LOW
        # The Taylor series to r^13 / 13!, off by less than 1e-17.
        series = 1 / 6227020800 * r + 1 / 479001600
        series = series * r + 1 / 39916800
        series = series * r + 1 / 3628800
        series = series * r + 1 / 362880
        series = series * r + 1 / 40320
        series = series * r + 1 / 5040
        series = series * r + 1 / 720
        series = series * r + 1 / 120
        series = series * r + 1 / 24
        series = series * r + 1 / 6
        series = series * r + 1 / 2
        values[i] = (series * r + 1) * r + 1
    for i in range(values.size):
        bits[i] = (bits[i] << 52) + (1023 << 52)
    for i in range(values.size):
        values[i] *= room[i]


@compiled_in_any_order
def slope(score: float, target: Any, shape: int, numbers: FloatArray) -> float:
    """Return the link at one score."""
    derivative = 0.0
    if shape == 0:
        derivative = -target / (1.0 + np.exp(target * score))
    else:
        low, high = numbers[0], numbers[1]
        if (shape == 2 or shape == 4) and target < 0:
            low, high = -high, -low
        residual = score - target
        if shape < 3:
            derivative = min(max(numbers[2] * residual, low), high)
        elif residual > 0:
            derivative = high
        elif residual < 0:
            derivative = low
    return derivative if derivative == derivative else 0.0


@compiled_in_any_order
def slopes_of_scores(
    slopes: FloatArray,
    targets: Reals,
    limits: FloatArray,
    shape: int,
    numbers: FloatArray,
    room: FloatArray,
) -> None:
    """Turn scores into slopes within their limits, in place."""
    if shape == 0:
        for i in range(slopes.size):
            slopes[i] *= targets[i]
        exponentials(slopes, room)
        for i in range(slopes.size):
            slopes[i] = -targets[i] / (1.0 + slopes[i])
    else:
        for i in range(slopes.size):
            slopes[i] = slope(slopes[i], targets[i], shape, numbers)
    for i in range(limits.size):
        slopes[i] = min(max(slopes[i], -limits[i]), limits[i])
    if numbers.size > WEIGHTS:
        for i in range(slopes.size):
            slopes[i] *= numbers[WEIGHTS + (targets[i] > 0)]


@compiled_in_any_order
def tile_slopes(
    tile: Reals,
    targets: Reals,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    slopes: FloatArray,
    room: FloatArray,
) -> None:
    """Put the slopes of a tile of rows into ``slopes``; ``room`` is to work in."""
    height, width = tile.shape
    for i in range(height):
        score = weights.dtype.type(0)
        for j in range(width):
            score += tile[i, j] * weights[j]
        slopes[i] = score
    slopes_of_scores(slopes[:height], targets, limits, shape, numbers, room)


@compiled
def add_products(tile: Reals, slopes: FloatArray, shift: float, total: FloatArray) -> None:
    """Add slope times row to ``total`` for every row of a tile, each product in whole units.

    ``shift`` is 1.5 * 2^52 units: a double plus the shift has no bits below one unit. Of two
    products one is rounded above the shift and one below it (ties to even both times), so that
    the shifts cancel without an error.
    """
    height, width = tile.shape
    # Four rows at a time: the total is loaded and stored a quarter as often.
    whole = height - height % 4
    for i in range(0, whole, 4):
        first, second, third, fourth = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
        for j in range(width):
            total[j] += (
                (first * np.float64(tile[i, j]) + shift)
                + (second * np.float64(tile[i + 1, j]) - shift)
            ) + (
                (third * np.float64(tile[i + 2, j]) + shift)
                + (fourth * np.float64(tile[i + 3, j]) - shift)
            )
    for i in range(whole, height):
        for j in range(width):
            total[j] += rounded(slopes[i], tile[i, j], shift)


@compiled
def products(tile: Reals, slopes: FloatArray, unit: float) -> IntArray:
    """Return the sum of slopes times rows in whole units, a row for each row of ``slopes``."""
    classes, height = slopes.shape
    total, part = np.zeros((classes, tile.shape[1]), np.int64), np.zeros(tile.shape[1])
    for c in range(classes):
        for first in range(0, height, EXACT_ROWS):
            last = min(height, first + EXACT_ROWS)
            add_products(tile[first:last], slopes[c, first:last], SHIFT * unit, part)
            put_away(part, unit, total[c])
    return total


@compiled
def sparse_products(
    data: Reals, columns: Indices, starts: Indices, slopes: FloatArray, unit: float, width: int
) -> IntArray:
    """Do the same with CSR rows of so many columns."""
    total = np.zeros((slopes.shape[0], width), np.int64)
    shift, per_unit = SHIFT * unit, 1.0 / unit
    for i in range(slopes.shape[1]):
        for k in range(starts[i], starts[i + 1]):
            for c in range(slopes.shape[0]):
                product = rounded(slopes[c, i], data[k], shift)
                total[c, columns[k]] += np.int64(product * per_unit)
    return total


@compiled_in_any_order
def scores_of(rows: Reals, weights: FloatArray) -> FloatArray:
    """Return the scores of rows, one for each row of ``weights``.

    Matrix products of libraries choose their order by the size of the matrix and by where in it a
    row stands. Here a row has the same scores wherever it stands, and whoever stands beside it.
    """
    scores = np.empty((rows.shape[0], weights.shape[0]))
    for i in range(rows.shape[0]):
        for c in range(weights.shape[0]):
            score = 0.0
            for j in range(weights.shape[1]):
                score += rows[i, j] * weights[c, j]
            scores[i, c] = score
    return scores


@compiled
def rounded(slope: float, entry: Any, shift: float) -> float:
    """Return the product, rounded to whole units."""
    product: float = (slope * np.float64(entry) + shift) - shift
    return product


@compiled
def put_away(part: FloatArray, unit: float, total: IntArray) -> None:
    """Move a sum in doubles to the total in whole units; ``unit`` is a power of two."""
    per_unit = 1.0 / unit
    for j in range(part.size):
        total[j] += np.int64(part[j] * per_unit)
        part[j] = 0.0


@compiled_in_any_order
def range_gradient(
    features: Reals,
    targets: Reals,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    start: int,
    stop: int,
    height: int,
) -> IntArray:
    """Return the sum of the gradients of the rows ``start`` ... ``stop`` - 1."""
    total = np.zeros(features.shape[1], np.int64)
    part = np.zeros(features.shape[1])
    slopes, room = np.empty(height), np.empty(height)
    shift, held = SHIFT * unit, 0
    for first in range(start, stop, height):
        last = min(stop, first + height)
        tile, near = features[first:last], limits[first:last]
        tile_slopes(tile, targets[first:last], near, weights, shape, numbers, slopes, room)
        if held + height > EXACT_ROWS:
            put_away(part, unit, total)
            held = 0
        add_products(tile, slopes, shift, part)
        held += height
    put_away(part, unit, total)
    return total


@compiled_in_any_order
def rows_gradient(
    features: Reals,
    targets: Reals,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    rows: IntArray,
    height: int,
) -> IntArray:
    """Return the sum of the gradients of the listed rows, copied tile by tile."""
    width = features.shape[1]
    total = np.zeros(width, np.int64)
    part = np.zeros(width)
    shift, held = SHIFT * unit, 0
    slopes, room = np.empty(height), np.empty(height)
    tile = np.empty((height, width), features.dtype)
    answers = np.empty(height, features.dtype)
    near = np.empty(height if limits.size else 0)
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
        chosen, known = tile[:count], answers[:count]
        tile_slopes(chosen, known, near[:count], weights, shape, numbers, slopes, room)
        if held + height > EXACT_ROWS:
            put_away(part, unit, total)
            held = 0
        add_products(chosen, slopes, shift, part)
        held += height
    put_away(part, unit, total)
    return total


@compiled
def column_scores(
    features: Reals, first: int, weights: Reals, scores: Reals, squares: FloatArray
) -> None:
    """Put <x, w> and |x|^2 of some records into ``scores`` and ``squares``, from the first one on.

    Both are added in the columns' order, so a record's numbers are the same wherever it stands.
    """
    width, last = features.shape[0], first + squares.size
    scores[:] = 0
    squares[:] = 0.0
    # Four columns at a time: the sums are loaded and stored a quarter as often.
    whole = width - width % 4
    for j in range(0, whole, 4):
        # Taken one by one: of a slice of all columns nobody knows that entries stand side by side.
        one, two = features[j, first:last], features[j + 1, first:last]
        three, four = features[j + 2, first:last], features[j + 3, first:last]
        a, b, c, d = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        for i in range(squares.size):
            scores[i] = (((scores[i] + one[i] * a) + two[i] * b) + three[i] * c) + four[i] * d
        add_squares(one, two, three, four, squares)
    for j in range(whole, width):
        column = features[j, first:last]
        for i in range(squares.size):
            scores[i] += column[i] * weights[j]
            squares[i] += np.float64(column[i]) * np.float64(column[i])


@compiled
def add_squares(one: Reals, two: Reals, three: Reals, four: Reals, squares: FloatArray) -> None:
    """Add the squares of the entries of four columns."""
    for i in range(squares.size):
        first, second = np.float64(one[i]), np.float64(two[i])
        third, fourth = np.float64(three[i]), np.float64(four[i])
        squares[i] += (first * first + second * second) + (third * third + fourth * fourth)


@compiled
def column_product(
    column: Reals, slopes: FloatArray, shift: float, per_unit: float, lanes: FloatArray
) -> np.int64:
    """Return the sum of slopes times entries in whole units, for at most ``TALLEST`` of them.

    Rounded as in ``add_products``. A lane holds 32 gradients at most, eight lanes together 256,
    which is still exact.
    """
    height = column.size
    whole = height - height % (4 * LANES)
    lanes[:] = 0.0
    for start in range(0, whole, 4 * LANES):
        for i in range(LANES):
            k = start + i
            lanes[i] += (
                (slopes[k] * np.float64(column[k]) + shift)
                + (slopes[k + LANES] * np.float64(column[k + LANES]) - shift)
            ) + (
                (slopes[k + 2 * LANES] * np.float64(column[k + 2 * LANES]) + shift)
                + (slopes[k + 3 * LANES] * np.float64(column[k + 3 * LANES]) - shift)
            )
    for k in range(whole, height):
        lanes[k % LANES] += rounded(slopes[k], column[k], shift)
    total = np.int64(0)
    for i in range(0, LANES, 8):
        eight = 0.0
        for k in range(i, i + 8):
            eight += lanes[k]
        total += np.int64(eight * per_unit)
    return total


@compiled
def columns_gradient(
    features: Reals,
    targets: Reals,
    longest: float,
    clip: float,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    height: int,
) -> tuple[IntArray, bool]:
    """Return the sum of all gradients of a matrix with a row per column, and whether rows fit.

    They do if all are finite and at most ``longest``, to a few units in the last place. With a
    ``clip`` (0: none) every slope is cut to what the length of its row leaves.
    """
    width, count = features.shape
    total, fits = np.zeros(width, np.int64), True
    most = min(longest * longest, LARGEST)
    shift, per_unit, height = SHIFT * unit, 1.0 / unit, min(height, TALLEST)
    scores = np.empty(height, features.dtype)
    slopes, room, lanes = np.empty(height), np.empty(height), np.empty(LANES)
    squares, limits = np.empty(height), np.empty(height if clip > 0 else 0)
    for first in range(0, count, height):
        last = min(count, first + height)
        size = last - first
        column_scores(features, first, weights, scores[:size], squares[:size])
        over = 0
        for i in range(size):
            # Written so that what is no number does not pass.
            over += 0 if squares[i] <= most else 1
        fits = fits and over == 0
        if clip > 0:
            for i in range(size):
                limits[i] = clip / max(np.sqrt(squares[i]), 1e-300)
        slopes[:size] = scores[:size]
        near = limits[:size]
        slopes_of_scores(slopes[:size], targets[first:last], near, shape, numbers, room)
        for j in range(width):
            column = features[j, first:last]
            total[j] += column_product(column, slopes[:size], shift, per_unit, lanes)
    return total, fits


@compiled_in_any_order
def sparse_gradient(
    data: Reals,
    columns: Indices,
    starts: Indices,
    targets: Reals,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    rows: IntArray,
    start: int,
    stop: int,
) -> IntArray:
    """Return the sum over the listed CSR rows; if none are, over ``start`` ... ``stop`` - 1."""
    total = np.zeros(weights.size, np.int64)
    shift, per_unit = SHIFT * unit, 1.0 / unit
    for i in range(start, stop):
        row = rows[i] if rows.size else i
        score = weights.dtype.type(0)
        for k in range(starts[row], starts[row + 1]):
            score += data[k] * weights[columns[k]]
        size = slope(np.float64(score), targets[row], shape, numbers)
        if limits.size:
            size = min(max(size, -limits[row]), limits[row])
        if numbers.size > WEIGHTS:
            size *= numbers[WEIGHTS + (targets[row] > 0)]
        for k in range(starts[row], starts[row + 1]):
            total[columns[k]] += np.int64(rounded(size, data[k], shift) * per_unit)
    return total


@compiled_in_any_order
def class_slopes(
    scores: FloatArray, targets: Indices, shape: int, numbers: FloatArray, room: FloatArray
) -> None:
    """Turn scores (a row per class) into slopes: probabilities less one, or every class's link."""
    classes, height = scores.shape
    if shape != 5:
        for c in range(classes):
            for i in range(height):
                scores[c, i] = slope(scores[c, i], 1.0 if c == targets[i] else -1.0, shape, numbers)
        return
    highest, total = scores[0].copy(), np.zeros(height)
    for c in range(1, classes):
        for i in range(height):
            highest[i] = max(highest[i], scores[c, i])
    for c in range(classes):
        for i in range(height):
            scores[c, i] -= highest[i]
        exponentials(scores[c], room)
        for i in range(height):
            total[i] += scores[c, i]
    for c in range(classes):
        for i in range(height):
            scores[c, i] /= total[i]
    for i in range(height):
        scores[targets[i], i] -= 1.0


@compiled
def shorten(slopes: FloatArray, limits: FloatArray, most: float) -> None:
    """Scale records' slopes (a row per class) down to their limits; no number counts as 0."""
    classes, height = slopes.shape
    square = np.zeros(height)
    for c in range(classes):
        for i in range(height):
            square[i] += slopes[c, i] * slopes[c, i]
    for i in range(height):
        limit = limits[i] if limits.size else most
        # Also where the square is infinite or no number: the scores overflowed.
        if not square[i] <= limit * limit:
            cut = limit / np.sqrt(square[i])
            for c in range(classes):
                slopes[c, i] = slopes[c, i] * cut if cut > 0 else 0.0


@compiled
def weigh(slopes: FloatArray, targets: Indices, numbers: FloatArray) -> None:
    """Multiply records' slopes (a row per class) by the weights of their classes, if any."""
    if numbers.size > WEIGHTS:
        for c in range(slopes.shape[0]):
            for i in range(slopes.shape[1]):
                slopes[c, i] *= numbers[WEIGHTS + targets[i]]


@compiled_in_any_order
def class_gradient(
    features: Reals,
    targets: Indices,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    rows: IntArray,
    start: int,
    stop: int,
    height: int,
) -> IntArray:
    """Return the sum over the listed rows, or ``start`` ... ``stop`` - 1; a row for each class."""
    classes, width = weights.shape
    total, part = np.zeros((classes, width), np.int64), np.zeros((classes, width))
    shift, held = SHIFT * unit, 0
    tile, slopes = np.empty((height, width)), np.empty((classes, height))
    answers, near, room = np.empty(height, np.int64), np.empty(height), np.empty(height)
    for first in range(start, stop, height):
        count = min(stop, first + height) - first
        for i in range(count):
            row = rows[first + i] if rows.size else first + i
            for j in range(width):
                tile[i, j] = features[row, j]
            answers[i] = targets[row]
            near[i] = limits[row] if limits.size else numbers[3]
        for c in range(classes):
            for i in range(count):
                score = 0.0
                for j in range(width):
                    score += tile[i, j] * weights[c, j]
                slopes[c, i] = score
        slopes[:, count:] = 0
        answers[count:] = 0
        class_slopes(slopes, answers, shape, numbers, room)
        shorten(slopes, near, numbers[3])
        weigh(slopes, answers, numbers)
        if held + height > EXACT_ROWS:
            put_away(part.ravel(), unit, total.ravel())
            held = 0
        for c in range(classes):
            add_products(tile[:count], slopes[c], shift, part[c])
        held += height
    put_away(part.ravel(), unit, total.ravel())
    return total


@compiled_in_any_order
def sparse_class_gradient(
    data: Reals,
    columns: Indices,
    starts: Indices,
    targets: Indices,
    limits: FloatArray,
    weights: Reals,
    shape: int,
    numbers: FloatArray,
    unit: float,
    rows: IntArray,
    start: int,
    stop: int,
) -> IntArray:
    """Return the sum over CSR rows, chosen as in ``sparse_gradient``; a column for each class."""
    classes = weights.shape[1]
    total = np.zeros(weights.shape, np.int64)
    shift, per_unit = SHIFT * unit, 1.0 / unit
    slopes, room = np.empty((classes, 1)), np.empty(1)
    answer, near = np.empty(1, np.int64), np.empty(1)
    for i in range(start, stop):
        row = rows[i] if rows.size else i
        answer[0] = targets[row]
        near[0] = limits[row] if limits.size else numbers[3]
        slopes[:] = 0
        for k in range(starts[row], starts[row + 1]):
            for c in range(classes):
                slopes[c, 0] += data[k] * weights[columns[k], c]
        class_slopes(slopes, answer, shape, numbers, room)
        shorten(slopes, near, numbers[3])
        weigh(slopes, answer, numbers)
        for k in range(starts[row], starts[row + 1]):
            for c in range(classes):
                product = rounded(slopes[c, 0], data[k], shift)
                total[columns[k], c] += np.int64(product * per_unit)
    return total


@compiled_in_any_order
def squared_norms(features: Reals) -> FloatArray:
    """Return the squared norm of every row, summed in doubles."""
    norms = np.empty(features.shape[0])
    for i in range(features.shape[0]):
        total = 0.0
        for j in range(features.shape[1]):
            entry = np.float64(features[i, j])
            total += entry * entry
        norms[i] = total
    return norms


@compiled
def squared_norms_by_column(features: Reals, height: int) -> FloatArray:
    """Return the squared norm of every record of a matrix with a row per column.

    ``height`` records at a time: their sums stay in the cache while the columns pass by.
    """
    width, count = features.shape
    total = np.zeros(count)
    whole = width - width % 4
    for start in range(0, count, height):
        stop = min(count, start + height)
        for j in range(0, whole, 4):
            one, two = features[j, start:stop], features[j + 1, start:stop]
            three, four = features[j + 2, start:stop], features[j + 3, start:stop]
            add_squares(one, two, three, four, total[start:stop])
        for j in range(whole, width):
            for i in range(start, stop):
                total[i] += np.float64(features[j, i]) * np.float64(features[j, i])
    return total


@compiled
def within_bounds(value: float, low: float, high: float, center: float, per_half: float) -> float:
    """Return (x - center) / half for a value x cut to [low, high]; no number stays none."""
    cut = low if value < low else value
    cut = high if cut > high else cut
    mapped: float = (cut - center) * per_half
    return mapped


@compiled
def share_within(longest: float, norm: float) -> float:
    """Return by how much a row of this norm shrinks; a quotient that no product is taken into."""
    share: float = longest / norm if norm > longest else 1.0
    return share


@compiled_in_any_order
def bring_rows_to_bounds(
    features: Reals,
    bounds: FloatArray,
    longest: float,
    mapped: Reals,
) -> bool:
    """Map the columns of rows, scale rows down to ``longest``; return whether all were finite.

    ``bounds`` has rows of what ``within_bounds`` takes: low, high, center and 1 / half. The
    length of a row is that of what is stored. ``mapped`` may have more columns.
    """
    count, width = features.shape
    low, high, center, per_half = bounds[0], bounds[1], bounds[2], bounds[3]
    fine = True
    for i in range(count):
        before, after = features[i], mapped[i, :width]
        square = 0.0
        for j in range(width):
            value = np.float64(before[j])
            after[j] = within_bounds(value, low[j], high[j], center[j], per_half[j])
            # The first term adds nothing, unless a value is not finite: bounds must not hide that.
            square += value * 0.0 + np.float64(after[j]) * np.float64(after[j])
        norm = np.sqrt(square)
        fine = fine and norm == norm
        if norm > longest:
            share = share_within(longest, norm)
            for j in range(width):
                after[j] = np.float64(after[j]) * share
    return fine


@compiled
def bring_columns_to_bounds(
    features: Reals,
    bounds: FloatArray,
    longest: float,
    height: int,
    mapped: Reals,
) -> bool:
    """Do the same to matrices with a row per column, ``height`` records at a time."""
    width, count = features.shape
    low, high, center, per_half = bounds[0], bounds[1], bounds[2], bounds[3]
    squares, fine = np.empty(height), True
    for start in range(0, count, height):
        size = min(count - start, height)
        squares[:] = 0.0
        for j in range(width):
            before, after = features[j, start : start + size], mapped[j, start : start + size]
            for i in range(size):
                value = np.float64(before[i])
                after[i] = within_bounds(value, low[j], high[j], center[j], per_half[j])
                squares[i] += value * 0.0
            for i in range(size):
                squares[i] += np.float64(after[i]) * np.float64(after[i])
        over = 0
        for i in range(size):
            norm = np.sqrt(squares[i])
            over += 0 if norm <= longest else 1
            fine = fine and norm == norm
            squares[i] = share_within(longest, norm)
        for j in range(width if over else 0):
            after = mapped[j, start : start + size]
            for i in range(size):
                after[i] = np.float64(after[i]) * squares[i]
    return fine


@compiled
def advance(
    weights: FloatArray,
    velocity: FloatArray,
    ahead: FloatArray,
    units: IntArray,
    noise: FloatArray,
    scales: tuple[float, float, float, float, float, float],
) -> FloatArray:
    """Renew the velocity in place and return w + v, the next point before its projection.

    ``ahead`` is where the sum of gradients was taken, in whole ``units``; ``scales`` are
    (m, eta, b, l2, nu b / eta, one unit). Noise comes first: all other arithmetic then only
    processes what composition lets out.
    """
    momentum, rate, size, l2, std, unit = scales
    point = np.empty_like(weights)
    for j in range(weights.size):
        noisy = units[j] * unit - std * noise[j]
        velocity[j] = momentum * velocity[j] - rate * (noisy / size + l2 * ahead[j])
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
