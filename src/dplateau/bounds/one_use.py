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

from dplateau.algorithms import OnePass, RandomStop, Run
from dplateau.algorithms.stated import equal_steps
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.conditions import (
    AboutBatches,
    Asks,
    BoundedDomain,
    ConstantSteps,
    GaussianNoise,
    HiddenIterates,
    KnownSteps,
    LaplaceNoise,
    Needs,
    OrderIs,
)
from dplateau.bounds.iteration import step_map
from dplateau.bounds.ordered import SHUFFLED
from dplateau.bounds.step_maps import CONTRACTION, SMOOTH, StepMap, geometry_assumptions
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
STOPPED = Assumption(
    "the stopping step is uniform and independent of the data; only its iterate leaves", "declared"
)


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
        apart = self.step * math.sqrt(one_pass_factor(self.slope, later + 1, 1))
        if self.diameter < self.step:
            square = bounded_sum_of_squares(self.slope, 0.0, 1.0, self.diameter, later)
            apart = min(apart, math.sqrt(square))
        return apart * _ROUND_UP

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
    places = list(range(min(count, _EXACT_KNOTS)))
    while places and (following := math.ceil(places[-1] * _KNOT_RATIO + 1e-9)) < count:
        places.append(max(following, places[-1] + 1))
    return [age for age in places if age < count]


def _check_knots(ages: Sequence[int], count: int) -> None:
    inside = len(ages) > 0 and ages[0] == 0 and ages[-1] < count
    # The first iterate has a share of its own, so it stands alone.
    alone = count == 1 or (len(ages) > 1 and ages[1] == 1)
    if not (inside and alone and all(a < b for a, b in pairwise(ages))):
        raise InvalidInput(f"knots must rise from 0, 1 to below {count}; the witness has {ages!r}")


def common_map(run: Run) -> StepMap:
    """Return the step map of batches that both neighbors share: whole, the last one shorter."""
    return step_map(run, used=False)


def reaches(maps: StepMap, learning_rate: float, diameter: float) -> dict[str, float]:
    """Return how far apart a common step leaves two states of the domain, by class of losses."""
    moduli = maps.moduli(learning_rate)
    if math.isinf(diameter):
        return dict.fromkeys((*moduli, LIPSCHITZ), math.inf)
    jump = 2 * learning_rate * maps.loss.lipschitz * maps.most_fraction
    furthest = (abs(1 - learning_rate * maps.l2) * diameter + jump) * _UP
    return {name: modulus(diameter) * _UP for name, modulus in moduli.items()} | {
        LIPSCHITZ: furthest
    }


def noise_unit(run: Run) -> float:
    """Return the noise in parameter space: its standard deviation, or the Laplace scale."""
    nu = equal_steps(run).nu
    return nu if run.noise_kind == "gaussian" else nu / math.sqrt(2.0)


def reach_witness(run: Run, maps: StepMap, among: Sequence[str] | None = None) -> Witness:
    """Return the class of losses with the smallest reach (of some classes), and that reach."""
    known = reaches(maps, equal_steps(run).eta, run.diameter)
    losses = min(known if among is None else among, key=lambda name: known[name])
    # A reach without end says nothing, and JSON has no number for it.
    return {"losses": losses, "reach": known[losses] if math.isfinite(known[losses]) else None}


def checked_reach(run: Run, maps: StepMap, losses: str) -> float:
    """Return the reach of a witness's class of losses, anew and in units of the noise."""
    known = reaches(maps, equal_steps(run).eta, run.diameter)
    if losses not in known:
        raise InvalidInput(f"the run does not justify {losses!r}; it has {', '.join(known)}")
    return known[losses] / noise_unit(run) * _UP


def one_use(run: Run, witness: Witness) -> OneUse:
    """Return the run of a record that is used once, by the witness's classes of losses."""
    steps, maps, unit = equal_steps(run), common_map(run), noise_unit(run)
    return OneUse(
        noise_kind=run.noise_kind,
        step=steps.reach / unit * _UP,
        reach=checked_reach(run, maps, str(witness["losses"])),
        slope=_slope(maps, steps.eta, witness.get("shifts_by")),
        diameter=run.diameter / unit * _UP,
    )


def shifts_by(run: Run) -> str | None:
    """Return the class of losses whose linear modulus serves the shift program, if there is one."""
    if run.noise_kind != "gaussian":
        return None
    moduli = common_map(run).moduli(equal_steps(run).eta)
    return next((name for name in _LINEAR if isinstance(moduli.get(name), Linear)), None)


def _slope(maps: StepMap, eta: float, losses: object) -> float:
    if losses is None:
        return math.inf
    match maps.moduli(eta).get(str(losses)):
        case Linear(c=slope):
            return slope
        case _:
            raise InvalidInput(
                f"the shift program needs a linear modulus; {losses!r} has none here"
            )


# ---- one pass -----------------------------------------------------------------------------------

# Laplace noise is as good here, but for the shift program.
_ONE_PASS: Needs = (AboutBatches((OnePass,)), ConstantSteps(), BoundedDomain(), KnownSteps())


class OneUseBound(Bound):
    """A bound for a record that is used once, by the classes of losses in its witness."""

    note = "docs/theory/one_use.md"
    release = HiddenIterates()
    also = tuple[Assumption, ...]()

    def assumptions(self, run: Run) -> tuple[Assumption, ...]:
        witness = self.plan(run, 0.5)
        classes = {witness["losses"], witness.get("shifts_by")} - {None}
        return (*geometry_assumptions(run, sorted(classes), contracts=False), *self.also)


class OnePassHockeyStick(OneUseBound):
    """delta_i(eps) = theta_eps(s / nu) * theta_eps(phi(D) / nu)^(n - i) for record i.

    s = eta Delta / b, and phi(D) is how far apart the step of a common batch leaves two points of
    the domain. The claim for the whole data set is that of the last record, which no later step
    hides; :meth:`record_curve` is where this bound pays.
    """

    name = "one_pass_hockey_stick"
    title = "Hockey-stick contraction, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 4, any modulus")
    dominated_by: ClassVar[tuple[str, ...]] = ("one_pass_hybrid",)
    needs: ClassVar[Needs] = (
        *_ONE_PASS,
        GaussianNoise("one_pass_laplace covers it"),
    )

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


class OnePassHybrid(OnePassHockeyStick):
    """delta_i(eps) = min over k <= n - i of theta_eps(mu_k) * theta_eps(phi(D) / nu)^(n - i - k).

    mu_k is the shift program's, k steps after the record's own. k = 0 is the contraction of the
    hockey stick alone, k = n - i the shift program alone; the best k may differ from eps to eps.
    """

    name = "one_pass_hybrid"
    title = "Shifts then contraction, last record"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 3")
    dominated_by = ()

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses that serve the contraction and the shift program."""
        return {**super().plan(run, delta), "shifts_by": shifts_by(run)}

    def record_curve(self, run: Run, position: int) -> PrivacyCurve:
        return one_use(run, self.plan(run, 0.5)).record_curve(run.steps - 1 - position)


class OnePassLaplace(OnePassHockeyStick):
    """delta_i(eps) = [1 - e^{eps/2 - s/(2v)}]_+ * [1 - e^{eps/2 - phi(D)/(2v)}]_+^(n - i).

    v = nu / sqrt(2) is the scale of Laplace noise of standard deviation nu; one dimension.
    """

    name = "one_pass_laplace"
    title = "Hockey-stick contraction, Laplace, last record"
    citation = literature.asoodeh_diaz_calmon("Theorem 3, any modulus")
    dominated_by = ()
    needs = (*_ONE_PASS, LaplaceNoise("one_pass_hybrid covers it"))


# ---- a random stop, or a random order -----------------------------------------------------------


def _beyond_lipschitz(run: Run) -> tuple[str, ...]:
    return tuple(common_map(run).moduli(equal_steps(run).eta))


def _why_no_class(run: Run) -> str | None:
    if _beyond_lipschitz(run):
        return None
    return (
        "needs a class of losses beyond lipschitz=...: say convex=True, smoothness=..., "
        "holder=... or dissipativity=... (random_stop_lipschitz needs none)"
    )


class RandomStopContraction(OneUseBound):
    """delta(eps) = theta_eps(s / nu) / T / (1 - theta_eps(phi(D) / nu)).

    The published closed form: the whole geometric series of later steps, for every record.
    """

    name = "random_stop_contraction"
    title = "Random stop, hockey-stick contraction"
    citation = literature.asoodeh_diaz_calmon("Theorem 5, any modulus")
    dominated_by = ("random_stop_mean",)
    release = HiddenIterates(RandomStop())
    needs: ClassVar[Needs] = (*_ONE_PASS, Asks(_why_no_class))
    also = (STOPPED,)

    def classes(self, run: Run) -> tuple[str, ...]:
        """Return the classes of losses that may bound the reach."""
        return _beyond_lipschitz(run)

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the class of losses whose steps leave two states least apart."""
        return reach_witness(run, common_map(run), self.classes(run))

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
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
    needs = _ONE_PASS

    def classes(self, run: Run) -> tuple[str, ...]:
        return (LIPSCHITZ,)


def _why_nothing_hides(run: Run) -> str | None:
    """Return why neither the domain nor a contraction hides a record after its use, or None."""
    if math.isfinite(run.diameter) or shifts_by(run) is not None:
        return None
    return (
        "needs a bounded domain (domain=Ball(radius=...)), or Gaussian noise and smooth losses "
        "(smoothness=...)"
    )


_HIDDEN_LATER: Needs = (ConstantSteps(), KnownSteps(), Asks(_why_nothing_hides))


class AverageOverSteps(OneUseBound):
    """The average of d_j(eps), the best bound j steps after the record's own, over some law of j.

    d_j is the minimum of shift program, contraction and hybrid (:class:`OnePassHybrid`).
    """

    def plan(self, run: Run, delta: float) -> Witness:
        """Return the classes of losses, and the numbers of later steps that are told apart."""
        reach = reach_witness(run, common_map(run))
        return {**reach, "shifts_by": shifts_by(run), "knots": knots(run.steps)}


class RandomStopMean(AverageOverSteps):
    """delta(eps) = (1/T) sum_{j<T} d_j(eps), of the first record: every iterate depends on it."""

    name = "random_stop_mean"
    title = "Random stop, average over the steps"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 4")
    release = HiddenIterates(RandomStop())
    needs = (AboutBatches((OnePass,)), *_HIDDEN_LATER)
    also = (STOPPED,)

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


def _why_not_one_epoch(run: Run) -> str | None:
    if run.steps <= run.batches_per_epoch:
        return None
    return (
        f"is about one epoch ({run.batches_per_epoch} steps); yours has {run.steps} steps "
        "(shuffle_once_average and reshuffle_average cover more)"
    )


class ShuffledPass(AverageOverSteps):
    """delta(eps) = sum_j (share of the records that j steps follow) * d_j(eps), one epoch.

    Up to short batches it is the average of :class:`RandomStopMean`: stopping at random and
    shuffling treat the records alike.
    """

    name = "shuffled_pass"
    title = "One shuffled pass, average over places"
    citation = literature.this_library("docs/theory/one_use.md, Theorem 5")
    needs = (
        OrderIs(("shuffle_once", "reshuffle")),
        Asks(_why_not_one_epoch),
        *_HIDDEN_LATER,
    )
    also = (SHUFFLED,)

    def curve(self, run: Run, witness: Witness) -> PrivacyCurve:
        """Return the average over places; records whose turn does not come add nothing."""
        share = run.batch_size / run.n
        whole = run.steps == run.batches_per_epoch
        # Only the epoch's last batch may be shorter, and no step follows it.
        last = 1 - (run.steps - 1) * share if whole else share
        use = one_use(run, witness)
        return use.average_curve(witness["knots"], run.steps, last * (1 + 1e-12), share)
