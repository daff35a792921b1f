"""Whether to whiten rows before training, from public sizes alone, and what that costs.

Noisy second moments are released first, in one or two rounds, and rows are turned and stretched by
them (estimators/whitening.py). Each round is a Gaussian mechanism, described as a run of one step,
so the whole release is a composition that was fixed before the first of its parts ran.

The constants were chosen on breast cancer, diabetes, digits, CASP (3000 rows and all), and Adult
(3000, 10000 rows and all), at epsilon 0.1, 1 and 8; MNIST served to check.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dplateau.certificates import Certificate, certify
from dplateau.engines.moments import moments_run
from dplateau.losses import Logistic, Loss, OneVersusRest, SmoothedHinge, Softmax
from dplateau.numerics.normal import gaussian_epsilon, gaussian_mu
from dplateau.planning.recipes import FEWEST_PASSES, Task

# What the moments may use of the squared Gaussian parameter.
SHARE = 0.1
# Noise in the moments, in units of the rows' squared norm, above which they tell nothing.
MOST_NOISE = 0.15
# The same in units of the average direction: above it few directions stand out; far below it a
# second round, on rows that the first has made nearly white, sees the weak ones better.
MOST_NOISE_EACH = 10.0
NOISE_EACH_FOR_TWO = 2.0
# With fewer records the weak directions that whitening brings out are learned by heart.
FEWEST_RECORDS = 1000
# White rows are shortened to the root of their typical squared norm, times this. Shortening a row
# leaves the order of its scores, so classes are told apart as well; a number that grows with the
# row needs most rows whole.
RADIUS_FOR_CLASSES = 1.0
RADIUS_FOR_NUMBERS = 1.5
# Room for the margins of the parts' claims and of their composition.
_ROOM = 1e-7


WHITENING = ("auto", "never")
# Recipes whose proofs are Gaussian, so that squared parameters add up without loss.
FULL = {"momentum", "gd"}


def in_words(rounds: int) -> str:
    """Say what is spent on what."""
    times = "once" if rounds == 1 else f"{rounds} times"
    return (
        f"rows are whitened {times} by noisy second moments, which take {SHARE:.0%} of the squared "
        "Gaussian parameter; the gradients take the rest"
    )


def radius_for(loss: Loss) -> float:
    """Return where to shorten white rows, in units of their typical norm."""
    tells_classes = isinstance(loss, Logistic | SmoothedHinge | Softmax | OneVersusRest)
    return RADIUS_FOR_CLASSES if tells_classes else RADIUS_FOR_NUMBERS


def rounds_worthwhile(task: Task) -> int:
    """Return how often to whiten: 0, 1 or 2."""
    if task.n < FEWEST_RECORDS or task.most_passes < FEWEST_PASSES:
        return 0
    p = task.width
    noise = math.sqrt(2 * p) * task.factor / (task.n * task.mu * math.sqrt(SHARE))
    if noise > MOST_NOISE or p * noise > MOST_NOISE_EACH:
        return 0
    return 2 if p * noise <= NOISE_EACH_FOR_TWO else 1


def whitened(task: Task, rounds: int) -> tuple[tuple[Certificate, ...], Task]:
    """Return what the moments release, and the same task on white rows with what they leave."""
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
        )
        for norm in (task.model.feature_norm, 1.0)[:rounds]
    )
    rest = gaussian_epsilon(task.delta, whole * math.sqrt(1 - SHARE))
    model = replace(task.model, data_norm=1.0, intercept=0.0)
    return moments, replace(task, d=task.width, epsilon=rest, model=model)
