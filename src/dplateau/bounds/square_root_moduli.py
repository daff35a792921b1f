"""Random batches whose steps do not contract: nonsmooth or nonconvex losses, any modulus.

Both theorems of docs/theory/square_root_moduli.md start from the largest distance possible at step
T - R and absorb it by u <- max(0, phi(u) - a). A record that is added or removed lets the
interpolating run take its step along; for a replaced one the noise is split between shift and swap,
and since distances may grow on the way, each step's swap is charged at its own distance: G(sqrt(sum
a^2 / nu1^2)) composed with C_q(G(d(u_t) / nu2)).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dplateau.algorithms import FixedSize, LossGeometry, Poisson, Run
from dplateau.algorithms.stated import equal_steps, loss_of
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    GEOMETRY,
    AboutBatches,
    Asks,
    ConstantSteps,
    Contractive,
    HiddenIterates,
    Needs,
    NeighborsAre,
    holds,
)
from dplateau.bounds.iteration import NO_MODULUS
from dplateau.bounds.step_maps import (
    CAPPED,
    CONTRACTION,
    BatchCap,
    StepMap,
    batch_cap,
    cap_of,
    capped_step_map,
    geometry_assumptions,
    tail_cap,
)
from dplateau.curves import AveragedLossCurve, PoissonPair, SubsampledGaussianPair
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.types import FloatArray
from dplateau.shifts import Chain, Modulus, ShiftPlan, evaluate, forward_distance, solve

_MOST_LAST_STEPS = 4096
_LEVELS = 32
# A start this much wider than the noise is not worth a plan (expanding steps without a domain).
_HOPELESS = 1e6
_HOPELESS_COST = 1e12


_POISSON_STEPS: Needs = (AboutBatches((Poisson,)), ConstantSteps(), *GEOMETRY)
_NO_MODULUS_OR_DOMAIN = (
    "is for losses whose steps do not contract, or for a bounded domain; here lagged blocks are "
    "never worse, or nothing but lipschitz=... was declared (say convex=True, smoothness=..., "
    "holder=... or dissipativity=...)"
)


def contracts_when_capped(run: Run) -> bool:
    """Return whether batches of likely size contract, at a delta far below any asked for."""
    if not holds(Contractive(), run):
        return False
    cap = batch_cap(run, 1e-9)
    return holds(Contractive(max(1.0, cap.records / run.batch_size)), run)


def moduli_of(run: Run, cap: BatchCap) -> dict[str, Modulus]:
    """Return the moduli of the capped step map that lagged blocks do not cover better.

    A contraction stays where there is a domain: starting a diameter apart and charging each later
    step for its own use is the better plan in a narrow one.
    """
    moduli = capped_step_map(run, cap).moduli(equal_steps(run).eta)
    if math.isinf(run.diameter) and contracts_when_capped(run):
        moduli.pop(CONTRACTION, None)
    return moduli


class PoissonModulus(Bound):
    """The main theorem with any modulus, from the largest distance possible at step T - R."""

    name = "poisson_modulus"
    note = "docs/theory/square_root_moduli.md"
    title = "Hidden-state Poisson SGD, general losses"
    citation = literature.this_library("docs/theory/square_root_moduli.md, Theorem 1")
    release = HiddenIterates()
    needs = (
        *_POISSON_STEPS,
        NeighborsAre("add_remove"),
        Asks(lambda run: None if moduli_of(run, tail_cap(run, 1e-9)) else _NO_MODULUS_OR_DOMAIN),
    )
    claim_margin = COMPOSED_MARGIN

    def plan(self, run: Run, delta: float) -> Witness:
        """Try classes of losses and numbers of last steps; keep the smallest epsilon."""
        cap, nu = tail_cap(run, delta), equal_steps(run).nu
        tried: list[tuple[float, Witness]] = []
        most = min(run.steps, _MOST_LAST_STEPS)
        for losses in moduli_of(run, cap):
            rough = [
                (self._rough(run, cap, losses, int(count)), int(count))
                for count in np.unique(np.r_[np.geomspace(1, most, 20).round(), run.steps])
                if count == run.steps
                or _start_distance(run, cap, losses, int(count)) <= _HOPELESS * nu
            ]
            # Shifts beyond all noise are no proof; all steps without any always are one.
            sane = [(c, n) for c, n in sorted(rough) if c < _HOPELESS_COST or n == run.steps]
            for _, count in sane[:3]:
                witness = self._witness(run, cap, losses, count)
                tried.append((self.curve(run, witness).epsilon(delta), witness))
        if not tried:  # what the cap at this delta leaves is covered by lagged blocks
            raise NotApplicable(_NO_MODULUS_OR_DOMAIN)
        return min(tried, key=lambda item: item[0])[1]

    def _rough(self, run: Run, cap: BatchCap, losses: str, last_steps: int) -> float:
        """Return the surrogate's second-order cost."""
        nu, step = equal_steps(run).nu, equal_steps(run).step
        sampling = last_steps * run.sampling_rate**2 * math.expm1(min((step / nu) ** 2, 50.0))
        if last_steps == run.steps:
            return sampling
        shifts = _shifts(run, cap, losses, last_steps)
        drift = 2 * run.sampling_rate * step * shifts.sum() / nu**2
        return float((shifts**2).sum() / nu**2 + drift) + sampling

    def _witness(self, run: Run, cap: BatchCap, losses: str, last_steps: int) -> Witness:
        # All steps from equal states: plain composition, with nothing to absorb.
        whole = last_steps == run.steps
        shifts = np.zeros(1) if whole else _shifts(run, cap, losses, last_steps)
        level = shifts.max() / _LEVELS if shifts.max() > 0 else 1.0
        # Rounding a shift up keeps the plan feasible.
        rounded = np.ceil(shifts / level * (1 - 1e-12)) * level * (1 + 1e-12)
        blocks = ShiftPlan.from_shifts(0, 0.0, rounded).to_dict()["blocks"]
        return {
            "losses": losses,
            "batch_cap": cap.records,
            "extra_delta": cap.extra_delta,
            "last_steps": last_steps,
            "start_distance": _start_distance(run, cap, losses, last_steps),
            "blocks": [[last_steps if whole else count, shift] for count, shift, _ in blocks],
        }

    def curve(self, run: Run, witness: Witness) -> AveragedLossCurve:
        """Check that the plan absorbs the start, and compose."""
        cap = cap_of(run, int(witness["batch_cap"]))
        losses, last_steps = str(witness["losses"]), int(witness["last_steps"])
        blocks = [(int(count), float(shift)) for count, shift in witness["blocks"]]
        chain = _absorbing_chain(run, cap, losses, last_steps)
        if sum(count for count, _ in blocks) != last_steps:
            raise InvalidInput(f"the plan must cover {last_steps} steps")
        plan = ShiftPlan.from_dict(
            {
                "start_step": 0,
                "start_distance": chain.initial_distance,
                "blocks": [[count, shift, 1.0] for count, shift in blocks],
            }
        )
        apart = chain.initial_distance > 0  # equal states stay equal: nothing to walk
        if apart and evaluate(plan, chain).final_distance > 0:
            raise InvalidInput("the plan does not absorb its start")
        nu, step = equal_steps(run).nu, equal_steps(run).step
        shifts = sorted({shift for _, shift in blocks})
        counts = [sum(count for count, at in blocks if at == shift) for shift in shifts]
        return AveragedLossCurve(
            pairs=tuple(PoissonPair(run.sampling_rate, step / nu, a / nu) for a in shifts),
            counts=(tuple(counts),),
            weights=(1.0,),
            extra_delta=cap.extra_delta,
        )

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return (*geometry_assumptions(run, moduli_of(run, tail_cap(run, 1e-9))), CAPPED)


def _start_distance(run: Run, cap: BatchCap, losses: str, last_steps: int) -> float:
    """Return the forward distance at step T - R, u <- min(D, phi(u) + r)."""
    before = run.steps - last_steps
    if before == 0:
        return 0.0
    steps, modulus = equal_steps(run), moduli_of(run, cap)[losses]
    chain = Chain.homogeneous(before, modulus, steps.step, steps.nu, diameter=run.diameter)
    return forward_distance(chain, before)


def _absorbing_chain(run: Run, cap: BatchCap, losses: str, last_steps: int) -> Chain:
    """Return the last R steps, in which both runs take the record's step alike."""
    return Chain.homogeneous(
        last_steps,
        moduli_of(run, cap)[losses],
        0.0,
        equal_steps(run).nu,
        diameter=run.diameter,
        initial_distance=_start_distance(run, cap, losses, last_steps),
    )


def _shifts(run: Run, cap: BatchCap, losses: str, last_steps: int) -> FloatArray:
    plan = solve(_absorbing_chain(run, cap, losses, last_steps)).plan
    shifts: FloatArray = np.r_[np.zeros(last_steps - plan.steps), plan.shifts()]
    return shifts


# Shares of the noise variance that may hide the swap; the best is chosen for each run.
SHARES = (0.2, 0.3, 0.4, 0.5, 0.58, 0.66, 0.73, 0.79, 0.84, 0.88, 0.91, 0.94, 0.965, 0.985, 0.995)
# How finely epsilon is resolved while plans are compared.
_COARSE = 2e-2
# Swaps are rounded up to this many values, or to steps of this size if those are fewer.
_SWAP_VALUES, _SWAP_STEP = 40, 5e-4
_UP = 1 + 1e-15


@dataclass(frozen=True)
class Swapped:
    """A run under one class of losses; ``step`` is 2 eta L / b, the reach of a replacement."""

    run: Run
    modulus: Modulus
    bend: LossGeometry | None
    step: float
    nu: float

    def start(self, last_steps: int) -> float:
        """Return the forward distance at step T - R: u <- min(D, phi(u) + 2 eta L / b)."""
        before = self.run.steps - last_steps
        if before == 0:
            return 0.0
        diameter = self.run.diameter
        chain = Chain.homogeneous(before, self.modulus, self.step, self.nu, diameter=diameter)
        return forward_distance(chain, before)

    def shifts(self, start: float, last_steps: int) -> FloatArray:
        """Return shifts that absorb the start, rounded up beyond the errors of a walk."""
        chain = Chain.homogeneous(
            last_steps,
            self.modulus,
            0.0,
            self.nu,
            diameter=self.run.diameter,
            initial_distance=start,
        )
        plan = solve(chain).plan
        shifts: FloatArray = np.r_[np.zeros(last_steps - plan.steps), plan.shifts()]
        return shifts * (1 + 1e-11)

    def distances(self, start: float, shifts: FloatArray) -> FloatArray:
        """Return upper bounds on u before each step and after the last one."""
        apart = np.empty(shifts.size + 1)
        u = apart[0] = start
        diameter = self.run.diameter
        for t, shift in enumerate(shifts.tolist(), start=1):
            left = self.modulus(u) * _UP - shift
            # The last projection comes after the noise, and so does not help.
            cap = diameter if t < shifts.size else math.inf
            u = apart[t] = min(cap, left * _UP) if left > 0 else 0.0
        return apart

    def swaps(self, distances: FloatArray) -> FloatArray:
        """Return d(u) over nu: two swaps differ by that much at distance u."""
        apart = np.zeros_like(distances)
        if self.bend is not None:
            per_gradient = self.step / (2 * self.bend.lipschitz)
            apart = per_gradient * _gradients_apart(self.bend, distances) * (1 + 1e-12)
        return (self.step + np.minimum(self.step, apart)) / self.nu


def _gradients_apart(loss: LossGeometry, distances: FloatArray) -> FloatArray:
    """Return how far one record's gradients at two states of this distance may lie apart."""
    apart = np.where(distances > 0, 2 * loss.lipschitz, 0.0)
    if math.isfinite(loss.smoothness):
        apart = np.minimum(apart, loss.smoothness * distances)
    for exponent, constant in loss.holders:
        apart = np.minimum(apart, np.where(distances > 0, constant * distances**exponent, 0.0))
    return apart


def swapped_runs(run: Run, cap: BatchCap) -> dict[str, Swapped]:
    """Return what is known under each class of losses that no contraction bound covers."""
    match run.batches:
        case FixedSize():
            maps = StepMap(loss_of(run), run.l2, least_fraction=1.0, most_fraction=1.0)
            contracts, bend = holds(Contractive(), run), run.loss
        case Poisson():
            maps, bend = capped_step_map(run, cap), None
            # In a narrow domain a start a diameter apart is better than lagged blocks.
            contracts = math.isinf(run.diameter) and contracts_when_capped(run)
        case _:
            return {}
    steps = equal_steps(run)
    return {
        losses: Swapped(run, modulus, bend, 2 * steps.step, steps.nu)
        for losses, modulus in maps.moduli(steps.eta).items()
        if losses != CONTRACTION or not contracts  # the contraction bounds are about these
    }


def _why_nothing_known(run: Run) -> str | None:
    return None if swapped_runs(run, tail_cap(run, 1e-9)) else NO_MODULUS


class SplitModulusBound(Bound):
    """The split form for any modulus, from the largest distance possible at step T - R."""

    release = HiddenIterates()
    claim_margin = COMPOSED_MARGIN
    note = "docs/theory/square_root_moduli.md"

    def plan(self, run: Run, delta: float) -> Witness:
        """Try classes of losses, numbers of last steps and splits; keep the smallest epsilon."""
        cap = tail_cap(run, delta)
        tried: list[tuple[float, Witness]] = []
        for losses, swapped in swapped_runs(run, cap).items():
            named = {"losses": losses, "batch_cap": cap.records, "extra_delta": cap.extra_delta}

            def coarse(witness: Witness, named: Witness = named) -> float:
                curve = self.curve(run, {**named, **witness})
                return replace(curve, resolution=_COARSE).epsilon(delta)

            for plan in (candidate(swapped, run.steps)[1], _downhill(swapped, coarse)):
                if plan is not None:
                    witness = {**named, **plan}
                    tried.append((self.curve(run, witness).epsilon(delta), witness))
        return min(tried, key=lambda item: item[0])[1]

    def curve(self, run: Run, witness: Witness) -> AveragedLossCurve:
        """Check that the plan absorbs the start, and compose shifts and swaps."""
        cap = cap_of(run, int(witness["batch_cap"]))
        swapped = swapped_runs(run, cap).get(str(witness["losses"]))
        if swapped is None:
            raise InvalidInput(f"no modulus is known for losses={witness['losses']!r}")
        last_steps, share = int(witness["last_steps"]), float(witness["swap_share"])
        if not (1 <= last_steps <= run.steps and 0 < share < 1):
            raise InvalidInput(f"no split of the last steps: {last_steps} with a share of {share}")
        start = swapped.start(last_steps)
        if start == 0:
            swap = float(swapped.swaps(np.zeros(1))[0])
            return _composed(swapped, 0.0, Counter({swap: last_steps}), cap)
        shifts = _read_shifts(witness, last_steps)
        distances = swapped.distances(start, shifts)
        if distances[-1] > 0:
            raise InvalidInput("the plan does not absorb its start")
        gaussian = math.sqrt(float(np.sum((shifts / swapped.nu) ** 2)) / (1 - share)) * (1 + 1e-12)
        # Steps that absorb nothing hide the swap with all their noise.
        hiding = np.where(shifts > 0, math.sqrt(share), 1.0)
        swaps = _rounded_up(swapped.swaps(distances[:-1])) / hiding * (1 + 1e-15)
        return _composed(swapped, gaussian, Counter(swaps.tolist()), cap)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return geometry_assumptions(run, swapped_runs(run, tail_cap(run, 1e-9)))


def _downhill(swapped: Swapped, coarse: Callable[[Witness], float]) -> Witness | None:
    """Walk from the least second-order cost to a small epsilon: every plan and split is valid."""
    most = min(swapped.run.steps, _MOST_LAST_STEPS)
    counts = sorted(set(np.geomspace(1, most, 24).round().astype(int).tolist()))
    _, plan = min((candidate(swapped, count) for count in counts), key=lambda item: item[0])
    if plan is None:
        return None
    best = (int(plan["last_steps"]), SHARES.index(plan["swap_share"]))
    tried: dict[tuple[int, int], tuple[float, Witness | None]] = {best: (coarse(plan), plan)}
    for factor in (1.3, 1.1):
        moved = True
        while moved:
            moved = False
            for near in _neighbors(*best, factor, most):
                if near not in tried:
                    tried[near] = _tried(swapped, coarse, *near)
                if tried[near][0] < tried[best][0]:
                    best, moved = near, True
                    break
    return tried[best][1]


def _neighbors(count: int, share: int, factor: float, most: int) -> list[tuple[int, int]]:
    """Return fewer or more steps, another split, or both: more steps go with a larger share."""
    fewer, more = max(1, math.floor(count / factor)), min(most, math.ceil(count * factor))
    less, rest = max(share - 1, 0), min(share + 1, len(SHARES) - 1)
    around = [(fewer, share), (more, share), (count, less), (count, rest)]
    return [*around, (fewer, less), (more, rest)]


def _tried(
    swapped: Swapped, coarse: Callable[[Witness], float], last_steps: int, share: int
) -> tuple[float, Witness | None]:
    plan = candidate(swapped, last_steps)[1]
    if plan is None:
        return math.inf, None
    plan = {**plan, "swap_share": SHARES[share]}
    return coarse(plan), plan


def candidate(swapped: Swapped, last_steps: int) -> tuple[float, Witness | None]:
    """Return the second-order cost of that many last steps, and the plan with its best split."""
    start, rate = swapped.start(last_steps), swapped.run.sampling_rate
    if start == 0:
        cost = last_steps * _sampled(swapped.swaps(np.zeros(1)), rate, 1.0)
        return cost, _witness(last_steps, 0.0, 0.5, np.zeros(0))
    if start > _HOPELESS * swapped.nu:
        return math.inf, None
    shifts = swapped.shifts(start, last_steps)
    swaps = swapped.swaps(swapped.distances(start, shifts)[:-1])
    squares = float(np.sum((shifts / swapped.nu) ** 2))
    cost, share = min((squares / (1 - s) + _sampled(swaps, rate, s), s) for s in SHARES)
    return cost, _witness(last_steps, start, share, shifts)


def _sampled(swaps: FloatArray, rate: float, share: float) -> float:
    return float(rate**2 * np.sum(np.expm1(np.minimum(swaps**2 / share, 50.0))))


def _witness(last_steps: int, start: float, share: float, shifts: FloatArray) -> Witness:
    blocks = [[last_steps, 0.0]]
    if shifts.size:
        rows = ShiftPlan.from_shifts(0, start, shifts).to_dict()["blocks"]
        blocks = [[count, shift] for count, shift, _ in rows]
    return {
        "last_steps": last_steps,
        "start_distance": start,
        "swap_share": share,
        "blocks": blocks,
    }


def _read_shifts(witness: Witness, last_steps: int) -> FloatArray:
    counts = [int(count) for count, _ in witness["blocks"]]
    values = np.array([float(shift) for _, shift in witness["blocks"]])
    if sum(counts) != last_steps or not np.all((values >= 0) & np.isfinite(values)):
        raise InvalidInput(f"the plan must hold {last_steps} shifts, each at least 0")
    shifts: FloatArray = np.repeat(values, counts)
    return shifts


def _rounded_up(values: FloatArray) -> FloatArray:
    """Round up to a geometric grid of few values."""
    least = float(values.min())
    step = max(_SWAP_STEP, math.log(float(values.max()) / least) / _SWAP_VALUES)
    places = np.ceil(np.log(values / least) / step - 1e-9)
    rounded: FloatArray = least * np.exp(places * step) * (1 + 1e-11)
    return np.maximum(rounded, values)


def _composed(
    swapped: Swapped, gaussian: float, swaps: Counter[float], cap: BatchCap
) -> AveragedLossCurve:
    pairs: list[PoissonPair | SubsampledGaussianPair] = [
        SubsampledGaussianPair(swapped.run.sampling_rate, swap) for swap in sorted(swaps)
    ]
    counts = [swaps[swap] for swap in sorted(swaps)]
    if gaussian > 0:
        pairs, counts = [*pairs, PoissonPair(1.0, gaussian)], [*counts, 1]
    return AveragedLossCurve(tuple(pairs), (tuple(counts),), (1.0,), cap.extra_delta)


class FixedSizeModulus(SplitModulusBound):
    """Batches of exactly b records: d(u) = (eta / b)(2L + min(2L, what gradients differ by at u)).

    All batches hold b records, so the moduli are those of one record's loss, curvature from below
    included.
    """

    name = "fixed_size_modulus"
    title = "Hidden-state fixed-size SGD, general losses"
    citation = literature.this_library("docs/theory/square_root_moduli.md, Theorem 2")
    needs = (AboutBatches((FixedSize,)), ConstantSteps(), *GEOMETRY, Asks(_why_nothing_known))


class PoissonReplaceModulus(SplitModulusBound):
    """Poisson batches: a swap moves a step by at most twice the record's step."""

    name = "poisson_replace_modulus"
    title = "Hidden-state Poisson SGD, replace, general losses"
    citation = literature.this_library("docs/theory/square_root_moduli.md, Theorem 2")
    needs = (*_POISSON_STEPS, NeighborsAre("replace"), Asks(_why_nothing_known))

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        return (*super().assumptions(run), CAPPED)
