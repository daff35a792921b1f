"""The three starts of the main theorem, from the simplest to the tightest."""

from __future__ import annotations

import numpy as np

from dplateau.bounds import literature
from dplateau.bounds.poisson import Detail, PoissonBound, Setting, Start, averaged_start

# Chances at which an averaged start is cut into buckets, down to a small share of delta.
_USUAL_LEVELS = (0.8, 0.6, 0.42, 0.28, 0.18, 0.11, 0.06, 0.03, 0.015)
_RARE_LEVELS = 8
_SHARE_BEYOND = 1e-3
# Share of delta given up for a start that holds with high probability.
_FAILURE_SHARE = 0.05


class PoissonPlain(PoissonBound):
    """The largest distance possible at step T - R: no randomness of the start is used."""

    name = "poisson_plain"
    dominated_by = ("poisson_averaged",)
    note = "docs/theory/poisson.md"
    title = "Hidden-state Poisson SGD, largest start"
    citation = literature.this_library("docs/theory/poisson.md, Theorem 1")

    def start(self, setting: Setting, last_steps: int, delta: float, detail: Detail) -> Start:
        """Return the forward distance, surely."""
        return averaged_start(setting, last_steps, (setting.largest_start(last_steps),))


class PoissonHighProbability(PoissonBound):
    """A distance that is exceeded with a probability charged to delta."""

    name = "poisson_high_probability"
    dominated_by = ("poisson_averaged",)
    note = "docs/theory/poisson.md"
    title = "Hidden-state Poisson SGD, likely start"
    citation = literature.this_library("docs/theory/poisson.md, Corollary 2")

    def start(self, setting: Setting, last_steps: int, delta: float, detail: Detail) -> Start:
        """Return the edge at a small share of delta."""
        return cut_start(setting, last_steps, (delta * _FAILURE_SHARE,))


class PoissonAveraged(PoissonBound):
    """The average over the law of the distance: each start with its own plan."""

    name = "poisson_averaged"
    note = "docs/theory/poisson.md"
    title = "Hidden-state Poisson SGD, averaged start"
    citation = literature.this_library("docs/theory/poisson.md, Theorem 3")

    def start(self, setting: Setting, last_steps: int, delta: float, detail: Detail) -> Start:
        """Return buckets at falling tail levels."""
        return cut_start(setting, last_steps, start_levels(delta, detail))


def start_levels(delta: float, detail: Detail) -> tuple[float, ...]:
    """Return the tail levels at which starts are cut into buckets; the last is always kept."""
    rare = np.geomspace(_USUAL_LEVELS[-1], delta * _SHARE_BEYOND, _RARE_LEVELS + 1)[1:]
    levels = (*_USUAL_LEVELS, *(float(level) for level in rare))
    return levels[:: -detail.buckets_skipped][::-1]


def cut_start(setting: Setting, last_steps: int, levels: tuple[float, ...]) -> Start:
    """Return the start cut where the tail falls to each level."""
    largest = setting.largest_start(last_steps)
    law = setting.start_tail(last_steps)
    if law is None or largest == 0:
        return averaged_start(setting, last_steps, (largest,))
    edges = {min(largest, law.edge(level) * setting.step * (1 + 1e-12)) for level in levels}
    return averaged_start(setting, last_steps, tuple(sorted(edges)))
