"""Poisson sampling with steps that do not contract: nonsmooth or nonconvex losses."""

from __future__ import annotations

import math

import numpy as np

from dplateau.algorithms import Poisson, Run
from dplateau.bounds import literature
from dplateau.bounds.base import COMPOSED_MARGIN, Assumption, Bound, Witness, why_not_about
from dplateau.bounds.batch_cap import BatchCap, batch_cap, cap_of, capped_step_map, tail_cap
from dplateau.bounds.iteration import CONTRACTION, geometry_assumptions, has_schedule
from dplateau.bounds.step_maps import why_no_contraction, why_no_geometry
from dplateau.curves import AveragedLossCurve, PoissonPair
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.shifts import Chain, Modulus, ShiftPlan, evaluate, forward_distance, solve

_MOST_LAST_STEPS = 4096
_LEVELS = 32
# A start this much wider than the noise is not worth a plan (expanding steps without a domain).
_HOPELESS = 1e6


class PoissonModulus(Bound):
    """The main theorem with any modulus, from the largest distance possible at step T - R."""

    name = "poisson_modulus"
    note = "docs/theory/poisson.md"
    title = "Hidden-state Poisson SGD, general losses"
    citation = literature.this_library("docs/theory/poisson.md, Theorem 1, with any modulus")
    hidden_state = True
    claim_margin = COMPOSED_MARGIN

    def missing(self, run: Run) -> str | None:
        """Return why no modulus is known, if so."""
        reason = why_not_poisson(run)
        if reason is not None:
            return reason
        if run.neighbors != "add_remove":
            return "is about neighbors='add_remove'; yours is 'replace'"
        if not moduli_of(run, tail_cap(run, 1e-9)):
            return (
                "is for losses whose steps do not contract, or for a bounded domain; here lagged "
                "blocks are never worse, or nothing but lipschitz=... was declared (say "
                "convex=True, smoothness=..., holder=... or dissipativity=...)"
            )
        return None

    def plan(self, run: Run, delta: float) -> Witness:
        """Try classes of losses and numbers of last steps; keep the smallest epsilon."""
        cap = tail_cap(run, delta)
        found: list[tuple[float, Witness]] = []
        most = min(run.steps, _MOST_LAST_STEPS)
        for losses in moduli_of(run, cap):
            rough = [
                (self._rough(run, cap, losses, int(count)), int(count))
                for count in np.unique(np.r_[np.geomspace(1, most, 20).round(), run.steps])
                if _start_distance(run, cap, losses, int(count)) <= _HOPELESS * _scales(run)[0]
            ]
            for _, count in sorted(rough)[:3]:
                witness = self._witness(run, cap, losses, count)
                found.append((self.curve(run, witness).epsilon(delta), witness))
        return min(found, key=lambda item: item[0])[1]

    def _rough(self, run: Run, cap: BatchCap, losses: str, last_steps: int) -> float:
        """Return the surrogate's second-order cost."""
        nu, step = _scales(run)
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
        nu, step = _scales(run)
        shifts = sorted({shift for _, shift in blocks})
        counts = [sum(count for count, at in blocks if at == shift) for shift in shifts]
        return AveragedLossCurve(
            pairs=tuple(PoissonPair(run.sampling_rate, step / nu, a / nu) for a in shifts),
            counts=(tuple(counts),),
            weights=(1.0,),
            extra_delta=cap.extra_delta,
        )

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses, and the cap on batches."""
        classes = tuple(moduli_of(run, tail_cap(run, 1e-9)))
        capped = Assumption("batches above a cap are charged to delta", "checked")
        return (*geometry_assumptions(run, classes, bounded=True), capped)


def why_not_poisson(run: Run) -> str | None:
    """Return why the run is no Poisson-sampled descent with known constants, or None."""
    about = why_not_about(run, Poisson)
    if about is not None:
        return about
    if has_schedule(run):
        return "needs the same learning rate and noise at every step; yours has a schedule"
    return why_no_geometry(run)


def why_no_capped_contraction(run: Run) -> str | None:
    """Return why batches of likely size make the step expand, or None."""
    reason = why_no_contraction(run)
    if reason is not None:
        return reason
    # The cap at a delta far below any that is asked for: what must contract for a clean refusal.
    cap = batch_cap(run, 1e-9)
    return why_no_contraction(run, max(1.0, cap.records / run.batch_size))


def moduli_of(run: Run, cap: BatchCap) -> dict[str, Modulus]:
    """Return the moduli of the capped step map that lagged blocks do not cover better.

    A contraction stays where there is a domain: starting a diameter apart and charging each later
    step for its own use is the better plan in a narrow one.
    """
    eta = run.learning_rate
    assert isinstance(eta, float)
    found = capped_step_map(run, cap).moduli(eta)
    if math.isinf(run.diameter) and why_no_capped_contraction(run) is None:
        found.pop(CONTRACTION, None)
    return found


def _scales(run: Run) -> tuple[float, float]:
    nu, step = run.iterate_std, run.record_step
    assert isinstance(nu, float)
    assert isinstance(step, float)
    return nu, step


def _start_distance(run: Run, cap: BatchCap, losses: str, last_steps: int) -> float:
    """Return the forward distance at step T - R, u <- min(D, phi(u) + r)."""
    before = run.steps - last_steps
    if before == 0:
        return 0.0
    nu, step = _scales(run)
    modulus = moduli_of(run, cap)[losses]
    chain = Chain.homogeneous(before, modulus, step, nu, diameter=run.diameter)
    return forward_distance(chain, before)


def _absorbing_chain(run: Run, cap: BatchCap, losses: str, last_steps: int) -> Chain:
    """Return the last R steps, in which both runs take the record's step alike."""
    return Chain.homogeneous(
        last_steps,
        moduli_of(run, cap)[losses],
        0.0,
        _scales(run)[0],
        diameter=run.diameter,
        initial_distance=_start_distance(run, cap, losses, last_steps),
    )


def _shifts(run: Run, cap: BatchCap, losses: str, last_steps: int) -> FloatArray:
    plan = solve(_absorbing_chain(run, cap, losses, last_steps)).plan
    shifts: FloatArray = np.r_[np.zeros(last_steps - plan.steps), plan.shifts()]
    return shifts
