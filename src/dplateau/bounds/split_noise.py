"""Replaced records, Poisson batches: part of the noise absorbs the start, part hides the swap.

A replaced record sits in the batches of both neighbours or of neither, so the two runs' own steps
differ by a swap. Split nu^2 = nu1^2 + nu2^2: the shifts use nu1, the swap uses nu2 and is amplified
by sampling. The pair is G(sqrt(sum a^2 / nu1^2)) composed with C_q(G(d / nu2)) for each step, with
C_q the symmetric subsampling operator (docs/theory/split_noise.md). The start is averaged as for
added or removed records, with twice the record's step.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace

import numpy as np

from dplateau.algorithms import NoisySGD, Run
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.batch_cap import BatchCap, batch_cap, cap_of
from dplateau.bounds.iteration import CONTRACTION, geometry_assumptions
from dplateau.bounds.poisson import (
    COARSE,
    FINE,
    Detail,
    Setting,
    Start,
    averaged_start,
    best_last_steps,
    setting_of,
    shortened,
    why_no_capped_contraction,
    why_not_poisson,
)
from dplateau.bounds.poisson_forms import cut_start, start_levels
from dplateau.curves import AveragedLossCurve
from dplateau.errors import InvalidInput
from dplateau.numerics.normal import gaussian_delta
from dplateau.numerics.pairs import PoissonPair, SubsampledGaussianPair

# Shares of the noise variance that may hide the swap; the best is chosen for each run.
SHARES = (0.2, 0.3, 0.4, 0.5, 0.58, 0.66, 0.73, 0.79, 0.84, 0.88, 0.91, 0.94, 0.965, 0.985, 0.995)


class SplitNoiseBound(Bound):
    """The split form; subclasses say how batches are drawn and how far a swap reaches."""

    hidden_state = True

    @abstractmethod
    def cap(self, run: NoisySGD, delta: float) -> BatchCap:
        """Return the largest batch."""

    @abstractmethod
    def swap(self, run: NoisySGD, setting: Setting, start: float) -> float:
        """Return how far two runs' swaps differ from a start on, in units of the noise."""

    def plan(self, run: Run, delta: float) -> Witness:
        """Search the number of last steps and the split."""
        assert isinstance(run, NoisySGD)
        cap = self.cap(run, delta)
        setting = doubled(setting_of(run, cap))

        def split(last_steps: int) -> tuple[float, float]:
            start = cut_start(setting, last_steps, start_levels(delta, COARSE))
            return min(
                (self._surrogate(run, setting, last_steps, start, share, delta), share)
                for share in SHARES
            )

        def witness(last_steps: int, detail: Detail) -> Witness:
            start = cut_start(setting, last_steps, start_levels(delta, detail))
            return {
                "losses": CONTRACTION,
                "contraction": setting.contraction,
                "batch_cap": cap.records,
                "last_steps": last_steps,
                "swap_share": split(last_steps)[1],
                "edges": list(start.edges),
                "weights": list(start.weights),
                "beyond": start.beyond,
                "extra_delta": setting.extra_delta,
            }

        def coarse(last_steps: int) -> float:
            curve = self.curve(run, witness(last_steps, COARSE))
            return replace(curve, resolution=COARSE.resolution).epsilon(delta)

        def fine(last_steps: int) -> tuple[float, Witness]:
            planned = witness(last_steps, FINE)
            return self.curve(run, planned).epsilon(delta), planned

        best = best_last_steps(setting, lambda last_steps: split(last_steps)[0], coarse)
        return shortened(setting, best, fine)

    def _surrogate(
        self,
        run: NoisySGD,
        setting: Setting,
        last_steps: int,
        start: Start,
        share: float,
        delta: float,
    ) -> float:
        """Return about the epsilon, every row taken for a Gaussian."""
        mus = []
        for edge in start.edges:
            swap = self.swap(run, setting, edge) ** 2 / share
            sampled = last_steps * setting.sampling_rate**2 * math.expm1(min(swap, 50.0))
            mus.append(math.sqrt(absorbing_cost(setting, last_steps, edge, share) + sampled))
        weights, fixed = np.array(start.weights), start.beyond + setting.extra_delta
        low, high = 0.0, 64.0
        for _ in range(30):
            middle = (low + high) / 2
            deltas = gaussian_delta(np.full(len(mus), middle), np.array(mus))
            over = float(weights @ deltas) + fixed > delta
            low, high = (middle, high) if over else (low, middle)
        return high

    def curve(self, run: Run, witness: Witness) -> AveragedLossCurve:
        """Return the composition of every start's Gaussian with the sampled swaps."""
        assert isinstance(run, NoisySGD)
        setting = doubled(setting_of(run, cap_of(run, int(witness["batch_cap"]))))
        last_steps, share = int(witness["last_steps"]), float(witness["swap_share"])
        start = averaged_start(setting, last_steps, tuple(witness["edges"]))
        if setting.contraction > 1 and start.edges[-1] > 0:
            raise InvalidInput("a start is absorbed only by steps that do not expand")
        pairs: list[PoissonPair | SubsampledGaussianPair] = []
        counts = np.zeros((len(start.edges), 2 * len(start.edges)), dtype=int)
        for k, edge in enumerate(start.edges):
            swap = self.swap(run, setting, edge)
            absorbed = math.sqrt(absorbing_cost(setting, last_steps, edge, share)) * (1 + 1e-12)
            used = share if absorbed > 0 else 1.0
            pairs.append(SubsampledGaussianPair(setting.sampling_rate, swap / math.sqrt(used)))
            pairs.append(PoissonPair(1.0, absorbed))
            counts[k, 2 * k], counts[k, 2 * k + 1] = last_steps, 1
        return AveragedLossCurve(
            pairs=tuple(pairs),
            counts=tuple(tuple(row) for row in counts.tolist()),
            weights=start.weights,
            extra_delta=start.beyond + setting.extra_delta,
        )

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the geometry of the steps."""
        return geometry_assumptions(run, (CONTRACTION,), bounded=True)


def doubled(setting: Setting) -> Setting:
    """Return the setting in which one inclusion drives the two runs apart by two record steps."""
    return Setting(
        contraction=setting.contraction,
        sampling_rate=setting.sampling_rate,
        step=2 * setting.step,
        diameter=setting.diameter,
        steps=setting.steps,
        extra_delta=setting.extra_delta,
    )


def absorbing_cost(setting: Setting, last_steps: int, start: float, share: float) -> float:
    """Return the least sum of a^2 / nu1^2 that absorbs the start: (c^R u)^2 / (S2 (1 - share))."""
    if start == 0:
        return 0.0
    steps = setting.last(last_steps)
    squares = float(steps.sum_of_weights(np.array(float(last_steps)), 2))
    return steps.decayed(start) ** 2 / (squares * (1 - share))


class PoissonReplaceSplit(SplitNoiseBound):
    """Poisson batches: a swap moves a step by at most twice the record's step."""

    name = "poisson_replace_split"
    note = "docs/theory/split_noise.md"
    title = "Hidden-state Poisson SGD, replace, split noise"
    citation = literature.this_library("docs/theory/split_noise.md, Theorem 1")

    def missing(self, run: Run) -> str | None:
        """Return why the run is no contractive Poisson descent with replaced records, if so."""
        reason = why_not_poisson(run)
        if reason is not None:
            return reason
        assert isinstance(run, NoisySGD)
        if run.neighbors != "replace":
            return "is about neighbors='replace'; yours is 'add_remove'"
        return why_no_capped_contraction(run)

    def cap(self, run: NoisySGD, delta: float) -> BatchCap:
        """Return the cap of Poisson batches."""
        return batch_cap(run, delta)

    def swap(self, run: NoisySGD, setting: Setting, start: float) -> float:
        """Return twice the record's step (``setting`` is doubled already)."""
        return setting.step
