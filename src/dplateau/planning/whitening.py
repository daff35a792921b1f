"""Whether to whiten rows before training, from public sizes alone, and what that costs.

Noisy second moments are released first, in one or two rounds, and rows are turned and stretched by
them (estimators/whitening.py). Each round is a Gaussian mechanism, described as a run of one step,
so the whole release is a composition that was fixed before the first of its parts ran.

The constants were chosen on breast cancer, diabetes, digits, CASP (3000 rows and all), and Adult
(3000, 10000 rows and all), at epsilon 0.1, 1 and 8; MNIST served to check. How much noise is too
much was chosen later, on training rows alone (others of them held out): 354 to 2000 of CASP, as
numbers and cut into classes, diabetes, digits, credit status, Adult, and simulated columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dplateau.bounds.registry import bound_named
from dplateau.certificates import Certificate, certify
from dplateau.engines.moments import MOST_ROWS, moments_run
from dplateau.engines.ranges import ROUNDS, ranges_run
from dplateau.losses import ClassWeighted, Logistic, Loss, OneVersusRest, SmoothedHinge, Softmax
from dplateau.numerics.normal import gaussian_epsilon, gaussian_mu
from dplateau.planning.recipes import FEW_PASSES, FEWEST_PASSES, Task

# What the moments may use of the squared Gaussian parameter.
SHARE = 0.1
# What the search for ranges may use of it, where none are known.
RANGES_SHARE = 0.1
# Noise in the moments, in units of the rows' squared norm, above which they tell nothing.
MOST_NOISE = 0.3
# The same in units of the average direction: above it few directions stand out, which is enough to
# tell classes but not to predict numbers; far below it a second round, on rows that the first has
# made nearly white, sees the weak ones better.
MOST_NOISE_EACH = 10.0
MOST_NOISE_EACH_FOR_CLASSES = 20.0
NOISE_EACH_FOR_TWO = 2.0
# With fewer records the weak directions that whitening brings out are learned by heart, unless
# there are so many for each feature. (The latter was chosen on training rows of CASP
# and diabetes, 283 to 800 of them with the others held out, and on simulated lines of 500.)
FEWEST_RECORDS = 1000
RECORDS_FOR_EACH = 25
# White rows are shortened to the root of their typical squared norm, times this. Shortening a row
# leaves the order of its scores, so classes are told apart as well.
RADIUS_FOR_CLASSES = 1.0
# A number may grow with the row. The more records there are for the noise (n mu, the inverse of the
# noise in an averaged gradient of length 1), the longer rows may stay, and from some point on what
# is longer than BEND times the typical norm has a slope of its own. (Chosen on CASP, whole, 3000
# and 1000 rows, and on simulated lines with uniform, normal and lognormal columns or targets.)
BEND = 0.75
SHORTEST_FOR_NUMBERS = 1.5
RADII_FOR_NUMBERS = {700.0: 1.5, 4000.0: 2.0, 16000.0: 3.0}
# Room for the margins of the parts' claims and of their composition.
_ROOM = 1e-7


WHITENING = ("auto", "never")
# Recipes whose proofs are Gaussian, so that squared parameters add up without loss.
FULL = {"momentum", "gd"}


@dataclass(frozen=True)
class Lengths:
    """Where white rows are shortened, in units of their typical norm, and where they are bent.

    Without a bend scores have one slope along a row. With one the row is given twice as wide: what
    lies before the bend, and what lies beyond.
    """

    radius: float
    bend: float | None = None

    @property
    def bound(self) -> float:
        """Return the norm of the longest row."""
        bend = self.radius if self.bend is None else self.bend
        return math.hypot(bend, self.radius - bend)

    @property
    def bend_of_longest(self) -> float | None:
        """Return the bend in units of the longest row's length."""
        return None if self.bend is None else self.bend / self.radius

    @property
    def slopes(self) -> int:
        """Return how many slopes scores have along a row."""
        return 1 if self.bend is None else 2


def in_words(rounds: int, lengths: Lengths) -> str:
    """Say what is spent on what, and what becomes of the rows."""
    times = "once" if rounds == 1 else f"{rounds} times"
    bent = (
        "" if lengths.bend is None else f"; beyond {lengths.bend:g} of it they have another slope"
    )
    return (
        f"rows are whitened {times} by noisy second moments, which take {SHARE:.0%} of the budget "
        "(of mu squared; the gradients take the rest), and shortened to "
        f"{'' if lengths.radius == 1 else f'{lengths.radius:g} of '}their typical length{bent}"
    )


def tells_classes(loss: Loss) -> bool:
    """Return whether only the order of a row's scores matters."""
    return isinstance(loss, ClassWeighted | Logistic | SmoothedHinge | Softmax | OneVersusRest)


def lengths_for(task: Task) -> Lengths:
    """Return what becomes of white rows."""
    if tells_classes(task.model.loss):
        return Lengths(RADIUS_FOR_CLASSES)
    weight = task.n * task.mu / task.factor
    reached = [radius for least, radius in RADII_FOR_NUMBERS.items() if weight >= least]
    return Lengths(reached[-1], BEND) if reached else Lengths(SHORTEST_FOR_NUMBERS)


def rounds_worthwhile(task: Task) -> int:
    """Return how often to whiten: 0, 1 or 2."""
    # With few passes for many directions random batches learn more than full ones, and only full
    # ones are whitened.
    p = task.width
    few = task.n < min(FEWEST_RECORDS, RECORDS_FOR_EACH * p)
    if few or task.n > MOST_ROWS or task.most_passes < max(FEWEST_PASSES, min(FEW_PASSES, p)):
        return 0
    noise = math.sqrt(2 * p) * task.factor / (task.n * task.mu * math.sqrt(SHARE))
    each = MOST_NOISE_EACH_FOR_CLASSES if tells_classes(task.model.loss) else MOST_NOISE_EACH
    if noise > MOST_NOISE or p * noise > each:
        return 0
    return 2 if p * noise <= NOISE_EACH_FOR_TWO else 1


def moments_for(task: Task, rounds: int) -> tuple[tuple[Certificate, ...], float]:
    """Return what the moments release, and the epsilon that they leave for the gradients."""
    whole = gaussian_mu(task.epsilon, task.delta) * (1 - _ROOM)
    each = whole * math.sqrt(SHARE / rounds)
    moments = tuple(
        certify(
            moments_run(
                n=task.n,
                feature_norm=norm,
                noise_multiplier=task.factor * task.max_records_per_person / each,
                neighbors=task.neighbors,
                group_size=task.max_records_per_person,
            ),
            task.delta,
        ).named("the noisy second moments of the rows, by which they were whitened")
        for norm in (task.model.feature_norm, 1.0)[:rounds]
    )
    return moments, gaussian_epsilon(task.delta, whole * math.sqrt(1 - SHARE))


def ranges_for(task: Task, columns: int) -> tuple[Certificate, Task]:
    """Return what the search for ranges of so many columns releases, and the task that is left."""
    whole = gaussian_mu(task.epsilon, task.delta) * (1 - _ROOM)
    each = whole * math.sqrt(RANGES_SHARE / ROUNDS)
    search = ranges_run(
        n=task.n,
        columns=columns,
        noise_multiplier=task.factor * task.max_records_per_person / each,
        neighbors=task.neighbors,
        group_size=task.max_records_per_person,
    )
    certificate = certify(search, task.delta, bounds=[bound_named("gdp_composition")])
    rest = gaussian_epsilon(task.delta, whole * math.sqrt(1 - RANGES_SHARE))
    return certificate.named("the noisy bisection for the ranges"), replace(task, epsilon=rest)


def on_white_rows(task: Task, epsilon: float, lengths: Lengths) -> Task:
    """Return the same task on white rows, whose norm is 1 at most, with another epsilon."""
    model = replace(
        task.model,
        data_norm=1.0,
        intercept=0.0,
        white=not tells_classes(task.model.loss),
        bent=lengths.bend is not None,
        typical=min(1.0, lengths.bound**-2),
    )
    return replace(task, d=lengths.slopes * task.width, epsilon=epsilon, model=model)
