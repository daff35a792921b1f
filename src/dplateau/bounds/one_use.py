"""A record that takes part in one step, and the steps after it, in units of the noise.

Both runs take the same steps once the record's turn is over, so each later step multiplies the
hockey stick between them by a factor below one (docs/theory/one_use.md). First what these bounds
share: how far the step of a common batch leaves two states apart, how well the shift program hides
the use, and the curves made of both. Then one pass, a random stop, and a pass in random order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from dplateau.algorithms import Cyclic, OnePass, RandomStop, Run, Scheme
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness, why_not_about
from dplateau.bounds.iteration import CONTRACTION, has_schedule, step_map
from dplateau.bounds.step_maps import SMOOTH, StepMap, why_no_geometry
from dplateau.curves import (
    GaussianCurve,
    LaplaceCurve,
    NoiseKind,
    PrivacyCurve,
    Stretch,
    UsedOnceCurve,
)
from dplateau.errors import InvalidInput
from dplateau.numerics.solve import geometric_sum
from dplateau.shifts import Linear
from dplateau.shifts.closed_forms import bounded_sum_of_squares, decay_rate, one_pass_factor

LIPSCHITZ = "Lipschitz"
# Classes of losses whose modulus is linear, the smaller one first: they feed the shift program.
_LINEAR = (CONTRACTION, SMOOTH)
# Up to here every number of later steps is told apart; beyond, only about every twentieth part.
_EXACT_KNOTS, _KNOT_RATIO = 32, 1.05
_ROUND_UP = 1 + 1e-12
_UP = 1 + 1e-15


@dataclass(frozen=True)
class OneUse:
    """One use of a record and the steps after it; lengths in units of the noise.

    ``step`` is how far the record moves its step, ``reach`` how far apart the step of a common
    batch leaves two states of the domain at most, ``slope`` the Lipschitz constant of such a step
    (infinite if none is known).
    """

    noise_kind: NoiseKind
    step: float
    reach: float
    slope: float
    diameter: float

    def first(self) -> PrivacyCurve:
        """Return the curve of the iterate that the record's own step makes."""
        family = GaussianCurve if self.noise_kind == "gaussian" else LaplaceCurve
        return family(self.step)

    def distance(self, later: int) -> float:
        """Return mu of the shift program after ``later`` more steps (infinite if it has none).

        The shift is spread over all steps from the use on; if the use can move further than the
        domain is wide, it may also be spread over the later steps alone.
        """
        if later == 0:
            return self.step
        if self.noise_kind != "gaussian" or math.isinf(self.slope):
            return math.inf
        if self.slope > 1:
            weights = geometric_sum(-2 * decay_rate(self.slope), later + 1)
            return self.step / math.sqrt(weights) * _ROUND_UP
        found = self.step * math.sqrt(one_pass_factor(self.slope, later + 1, 1))
        if self.diameter < self.step:
            square = bounded_sum_of_squares(self.slope, 0.0, 1.0, self.diameter, later)
            found = min(found, math.sqrt(square))
        return found * _ROUND_UP

    def record_curve(self, later: int, *, shifts: bool = True) -> PrivacyCurve:
        """Return the curve of a record that ``later`` more steps follow."""
        if later == 0:
            return self.first()
        ages = [*knots(later), later] if shifts else [0, later]
        parts = [Stretch(age, self._known(age, shifts), 1, float(age == later)) for age in ages]
        return UsedOnceCurve(self.noise_kind, self.reach, tuple(parts))

    def average_curve(
        self, ages: Sequence[int], count: int, first_share: float, share: float
    ) -> UsedOnceCurve:
        """Return the curve of an iterate drawn among ``count``, by the given knots.

        The iterate of the use itself is drawn with probability ``first_share``, each later one
        with ``share``.
        """
        _check_knots(ages, count)
        parts = [
            Stretch(age, self.distance(age), end - age, share if age else first_share)
            for age, end in pairwise([*ages, count])
        ]
        return UsedOnceCurve(self.noise_kind, self.reach, tuple(parts))

    def _known(self, age: int, shifts: bool) -> float:
        return self.distance(age) if shifts or age == 0 else math.inf


def knots(count: int) -> list[int]:
    """Return the numbers of later steps, below ``count``, that are told apart."""
    found = list(range(min(count, _EXACT_KNOTS)))
    while found and (following := math.ceil(found[-1] * _KNOT_RATIO + 1e-9)) < count:
        found.append(max(following, found[-1] + 1))
    return [age for age in found if age < count]


def _check_knots(ages: Sequence[int], count: int) -> None:
    inside = len(ages) > 0 and ages[0] == 0 and ages[-1] < count
    # The first iterate has a share of its own, so it stands alone.
    alone = count == 1 or (len(ages) > 1 and ages[1] == 1)
    if not (inside and alone and all(a < b for a, b in pairwise(ages))):
        raise InvalidInput(f"knots must rise from 0, 1 to below {count}; the witness has {ages!r}")


def common_map(run: Run) -> StepMap:
    """Return the step map of batches that both neighbours share: whole, the last one shorter."""
    assert run.loss is not None
    return step_map(run, used=False)


def reaches(maps: StepMap, learning_rate: float, diameter: float) -> dict[str, float]:
    """Return how far apart a common step leaves two states of the domain, by class of losses."""
    if math.isinf(diameter):
        return dict.fromkeys((*maps.moduli(learning_rate), LIPSCHITZ), math.inf)
    found = {
        losses: modulus(diameter) * _UP for losses, modulus in maps.moduli(learning_rate).items()
    }
    jump = 2 * learning_rate * maps.loss.lipschitz * maps.most_fraction
    found[LIPSCHITZ] = (abs(1 - learning_rate * maps.l2) * diameter + jump) * _UP
    return found


def noise_unit(run: Run) -> float:
    """Return the noise in parameter space: its standard deviation, or the Laplace scale."""
    nu = run.iterate_std
    assert isinstance(nu, float)
    return nu if run.noise_kind == "gaussian" else nu / math.sqrt(2.0)


def reach_witness(run: Run, maps: StepMap, among: Sequence[str] | None = None) -> Witness:
    """Return the class of losses with the smallest reach (of some classes), and that reach."""
    eta = run.learning_rate
    assert isinstance(eta, float)
    found = reaches(maps, eta, run.diameter)
    losses = min(found if among is None else among, key=lambda name: found[name])
    # A reach without end says nothing, and JSON has no number for it.
    return {"losses": losses, "reach": found[losses] if math.isfinite(found[losses]) else None}


def checked_reach(run: Run, maps: StepMap, witness: Witness) -> float:
    """Return the reach of the witness's class of losses, anew and in units of the noise."""
    eta = run.learning_rate
    assert isinstance(eta, float)
    found = reaches(maps, eta, run.diameter)
    if witness["losses"] not in found:
        raise InvalidInput(
            f"the run does not justify {witness['losses']!r}; it has {', '.join(found)}"
        )
    return found[str(witness["losses"])] / noise_unit(run) * _UP


def one_use(run: Run, witness: Witness) -> OneUse:
    """Return the run of a record that is used once, by the witness's classes of losses."""
    eta = run.learning_rate
    assert isinstance(eta, float)
    assert run.loss is not None
    maps, unit = common_map(run), noise_unit(run)
    step = run.neighbor_factor * eta * run.loss.lipschitz / run.batch_size
    return OneUse(
        noise_kind=run.noise_kind,
        step=step / unit * _UP,
        reach=checked_reach(run, maps, witness),
        slope=_slope(maps, eta, witness.get("shifts_by")),
        diameter=run.diameter / unit * _UP,
    )


def shifts_by(run: Run) -> str | None:
    """Return the class of losses whose linear modulus serves the shift program, if there is one."""
    if run.noise_kind != "gaussian":
        return None
    assert isinstance(run.learning_rate, float)
    found = common_map(run).moduli(run.learning_rate)
    return next((name for name in _LINEAR if isinstance(found.get(name), Linear)), None)


def _slope(maps: StepMap, eta: float, losses: object) -> float:
    if losses is None:
        return math.inf
    modulus = maps.moduli(eta).get(str(losses))
    if not isinstance(modulus, Linear):
        raise InvalidInput(f"the shift program needs a linear modulus; {losses!r} has none here")
    return modulus.c


def why_not_one_use(run: Run, scheme: Scheme = OnePass, *, bounded: bool = True) -> str | None:
    """Return why the run does not use each record once with known constants, or None."""
    about = why_not_about(run, scheme)
    if about is not None:
        return about
    if has_schedule(run):
        return "needs the same learning rate and noise at every step; yours has a schedule"
    if bounded and math.isinf(run.diameter):
        return "needs a bounded domain: pass domain=Ball(radius=...) and project every iterate"
    # Laplace noise is as good here, but for the shift program.
    return why_no_geometry(run if run.noise_kind == "gaussian" else _as_gaussian(run))


def why_nothing_hides(run: Run) -> str | None:
    """Return why neither the domain nor a contraction hides a record after its use, or None."""
    if math.isfinite(run.diameter) or shifts_by(run) is not None:
        return None
    return (
        "needs a bounded domain (domain=Ball(radius=...)), or Gaussian noise and smooth losses "
        "(smoothness=...)"
    )


def _as_gaussian(run: Run) -> Run:
    return run.replace(noise_kind="gaussian")


def one_use_assumptions(run: Run, losses: Sequence[str]) -> tuple[Assumption, ...]:
    """Return what these bounds add to the usual assumptions."""
    named = " or ".join(losses)
    found = [
        Assumption(f"every record's loss is {named}, as declared", "declared"),
        Assumption("the ridge term covers every coordinate, the intercept included", "declared"),
    ]
    if run.domain is not None:
        found.append(Assumption("every iterate is projected onto the convex domain", "declared"))
    return tuple(found)


class OnePassHockeyStick(Bound):
    """delta_i(eps) = theta_eps(s / nu) * theta_eps(phi(D) / nu)^(n - i) for record i.

    s = eta Delta / b, and phi(D) is how far apart the step of a common batch leaves two points of
    the domain. The claim for the whole data set is that of the last record, which no later step
    hides; :meth:`record_curve` is where this bound pays.
    """

    name = "one_pass_hockey_stick"
    note = "docs/theory/one_use.md"
    title = "Hockey-stick contraction, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 4, any modulus")
    dominated_by: ClassVar[tuple[str, ...]] = ("one_pass_hybrid",)
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Gaussian noise on a bounded domain, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (one_pass_laplace covers it)"
        return reason

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the class of losses whose steps leave two states least apart."""
        return reach_witness(run, common_map(run))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the last record's curve: that of its own step."""
        return one_use(run, witness).first()

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        use = one_use(run, self.plan(run, 0.5))
        return use.record_curve(run.steps - 1 - position, shifts=False)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses and the domain."""
        return one_use_assumptions(run, (self.plan(run, 0.5)["losses"],))


class OnePassHybrid(OnePassHockeyStick):
    """delta_i(eps) = min over k <= n - i of theta_eps(mu_k) * theta_eps(phi(D) / nu)^(n - i - k).

    mu_k is the shift program's, k steps after the record's own. k = 0 is the contraction of the
    hockey stick alone, k = n - i the shift program alone; the best k may differ from eps to eps.
    """

    name = "one_pass_hybrid"
    title = "Shifts then contraction, last record"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 3")
    dominated_by = ()

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Gaussian noise on a bounded domain, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "gaussian":
            return "needs Gaussian noise; yours is Laplace (one_pass_laplace covers it)"
        return reason

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses that serve the contraction and the shift program."""
        return {**reach_witness(run, common_map(run)), "shifts_by": shifts_by(run)}

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the curve of a record in the batch ``position`` (from 0)."""
        return one_use(run, self.plan(run, 0.5)).record_curve(run.steps - 1 - position)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses and the domain."""
        witness = self.plan(run, 0.5)
        classes = {witness["losses"], witness["shifts_by"]} - {None}
        return one_use_assumptions(run, sorted(classes))


class OnePassLaplace(OnePassHockeyStick):
    """delta_i(eps) = [1 - e^{eps/2 - s/(2v)}]_+ * [1 - e^{eps/2 - phi(D)/(2v)}]_+^(n - i).

    v = nu / sqrt(2) is the scale of Laplace noise of standard deviation nu; one dimension.
    """

    name = "one_pass_laplace"
    title = "Hockey-stick contraction, Laplace, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 3, any modulus")
    dominated_by = ()

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass with Laplace noise on an interval, if so."""
        reason = why_not_one_use(run)
        if reason is None and run.noise_kind != "laplace":
            return "is about noise_kind='laplace'; yours is Gaussian (one_pass_hybrid covers it)"
        return reason


class RandomStopBound(Bound):
    """What bounds for random stopping share: the average over the iterate that is released."""

    note = "docs/theory/one_use.md"
    hidden_state = True
    hides = RandomStop()

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the class of losses, and how the run stops."""
        losses = {self.plan(run, 0.5)["losses"], self.plan(run, 0.5).get("shifts_by")} - {None}
        return (
            *one_use_assumptions(run, sorted(losses)),
            Assumption(
                "the stopping step is uniform and independent of the data; only its iterate leaves",
                "declared",
            ),
        )


class RandomStopContraction(RandomStopBound):
    """delta(eps) = theta_eps(s / nu) / T / (1 - theta_eps(phi(D) / nu)).

    The published closed form: the whole geometric series of later steps, for every record.
    """

    name = "random_stop_contraction"
    title = "Random stop, hockey-stick contraction"
    citation = literature.asoodeh_diaz_calmon("Theorem 5, any modulus")
    dominated_by = ("random_stop_mean",)

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass on a bounded domain with a modulus, if so."""
        reason = why_not_one_use(run)
        if reason is None and not self.classes(run):
            return (
                "needs a class of losses beyond lipschitz=...: say convex=True, smoothness=..., "
                "holder=... or dissipativity=... (random_stop_lipschitz needs none)"
            )
        return reason

    def classes(self, run: Run) -> Sequence[str]:
        """Return the classes of losses that may bound the reach."""
        assert isinstance(run.learning_rate, float)
        return tuple(common_map(run).moduli(run.learning_rate))

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the class of losses whose steps leave two states least apart."""
        return reach_witness(run, common_map(run), self.classes(run))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the closed form."""
        if witness["losses"] not in self.classes(run):
            raise InvalidInput(f"this theorem is not about losses that are {witness['losses']!r}")
        use = one_use(run, witness)
        series = Stretch(after=0, distance=use.step, steps=math.inf, share=1 / run.steps)
        return UsedOnceCurve(use.noise_kind, use.reach, (series,))


class RandomStopLipschitz(RandomStopContraction):
    """The same with |1 - eta l2| D + 2 eta L in place of phi(D): any losses, convex or not."""

    name = "random_stop_lipschitz"
    title = "Random stop, Lipschitz losses"
    citation = literature.asoodeh_online("Corollary on randomly stopped SGD, any diameter")

    def classes(self, run: Run) -> Sequence[str]:
        """Return the one class of this theorem."""
        return (LIPSCHITZ,)


class RandomStopMean(RandomStopBound):
    """delta(eps) = (1/T) sum_{j<T} d_j(eps), d_j the best bound j steps after the record's own.

    d_j is the minimum of shift program, contraction and hybrid (:class:`OnePassHybrid`). The first
    record is the most exposed one: every iterate depends on it.
    """

    name = "random_stop_mean"
    title = "Random stop, average over the steps"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 4")

    def missing(self, run: Run) -> str | None:
        """Return why neither a domain nor a contraction hides a record, if so."""
        return why_not_one_use(run, bounded=False) or why_nothing_hides(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses, and the steps that are told apart."""
        reach = reach_witness(run, common_map(run))
        return {**reach, "shifts_by": shifts_by(run), "knots": knots(run.steps)}

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the first record's average."""
        return self._average(run, witness, run.steps)

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        """Return the average of a record in the batch ``position`` (from 0)."""
        witness = self.plan(run, 0.5)
        count = run.steps - position
        return self._average(run, {**witness, "knots": knots(count)}, count)

    def _average(self, run: Run, witness: Witness, count: int) -> UsedOnceCurve:
        share = 1 / run.steps
        return one_use(run, witness).average_curve(witness["knots"], count, share, share)


class ShuffledPass(Bound):
    """delta(eps) = sum_j (share of the records that j steps follow) * d_j(eps).

    d_j is the best of shift program, contraction and hybrid. Up to short batches it is the average
    of :class:`RandomStopMean`: stopping at random and shuffling treat the records alike.
    """

    name = "shuffled_pass"
    note = "docs/theory/one_use.md"
    title = "One shuffled pass, average over places"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 5")
    hidden_state = True

    def missing(self, run: Run) -> str | None:
        """Return why the run is no single pass in random order, if so."""
        if not isinstance(run.batches, Cyclic) or run.batches.order == "cyclic":
            return f"is about CyclicSGD with a random order; yours is {run.described}"
        if run.steps > run.batches_per_epoch:
            return (
                f"is about one epoch ({run.batches_per_epoch} steps); yours has {run.steps} steps "
                "(shuffle_once_average and reshuffle_average cover more)"
            )
        return why_not_one_use(run, Cyclic, bounded=False) or why_nothing_hides(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses, and the places that are told apart."""
        reach = reach_witness(run, common_map(run))
        return {**reach, "shifts_by": shifts_by(run), "knots": knots(run.steps)}

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the average over places; records whose turn does not come add nothing."""
        share = run.batch_size / run.n
        whole = run.steps == run.batches_per_epoch
        # Only the epoch's last batch may be shorter, and no step follows it.
        last = 1 - (run.steps - 1) * share if whole else share
        use = one_use(run, witness)
        return use.average_curve(witness["knots"], run.steps, last * (1 + 1e-12), share)

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        """Return the classes of losses, and the shuffle."""
        witness = self.plan(run, 0.5)
        classes = {witness["losses"], witness["shifts_by"]} - {None}
        return (
            *one_use_assumptions(run, sorted(classes)),
            Assumption("the shuffle is uniform, secret and independent of the data", "declared"),
        )
