"""From a target epsilon to a description: the noise, ridge or length that meets it.

``calibrate`` finds the run for the best bound, ``noise_needed`` the noise that each bound asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dplateau.algorithms import Checkpoints, Run, Schedule, require_run
from dplateau.algorithms.schedule import NOISE_CONVENTIONS, PerStep, extremes
from dplateau.algorithms.stated import learning_rates
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.certificates.certificate import Certificate
from dplateau.certificates.certify import Finding, ask, certificate_of, certify, in_groups
from dplateau.errors import DplateauError, InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.progress import Advance, counting
from dplateau.ground.shown import Shown, rounded_down, rounded_up

if TYPE_CHECKING:
    import pandas as pd

VARIED = ("noise", "l2", "steps", "learning_rate", "batch_size")
# Runs longer than this are never planned; meeting the target here is reported as "unlimited".
MOST_STEPS = 10**9
_NOISE_RTOL = 1e-4
# Planning anew is worth it if epsilon is so much below the target.
_PLAN_RTOL = 4e-4
_MOST_PLANS = 6
_RIDGES = 24


@dataclass(frozen=True, repr=False)
class Calibration(Shown):
    """``run`` meets the target, as ``certificate`` proves.

    ``unlimited`` is True if the number of steps was varied and the plateau lies below the target:
    the certificate is then for a run of 10^9 steps.
    """

    run: Run
    certificate: Certificate
    varied: str
    value: float
    unlimited: bool = False

    @property
    def shown_value(self) -> str:
        """The value in a few digits."""
        # Towards more privacy: whoever types the number shown gets no less than was claimed.
        rounded = rounded_down if self.varied == "learning_rate" else rounded_up
        whole = self.varied in ("steps", "batch_size")
        shown = str(int(self.value)) if whole else rounded(self.value)
        return "unlimited" if self.unlimited else shown

    def __str__(self) -> str:
        """Show the value and the claim."""
        return f"{self.varied} = {self.shown_value}: {self.certificate}"


@dataclass(frozen=True)
class _Search:
    """One parameter varied, all others fixed, epsilon measured by ``certify``."""

    run: Run
    name: str
    delta: float
    bounds: tuple[Bound, ...] | None
    advance: Advance
    seen: dict[PerStep, Certificate] = field(default_factory=dict)

    def at(self, value: PerStep) -> Run:
        return self.run.replace(**{self.name: value})

    def certificate(self, value: PerStep) -> Certificate:
        if value not in self.seen:
            self.advance(1)
            self.seen[value] = certify(self.at(value), self.delta, bounds=self.bounds)
        return self.seen[value]

    def epsilon(self, value: PerStep) -> float:
        try:
            return self.certificate(value).claimed_epsilon
        except DplateauError:  # a value that no bound covers, or that describes no run
            return math.inf

    def near(self, value: PerStep, planned: Certificate) -> Finding:
        """Return what the bound of ``planned`` says, its choices hardly changed."""
        self.advance(1)
        try:
            return ask(planned.theorem, self.at(value), self.delta, planned.witness)
        except DplateauError as error:  # as above
            return Finding(planned.theorem, None, {}, str(error))

    def tightest(self, value: PerStep, planned: Certificate) -> Certificate:
        """Return the best certificate of this value, planned anew or near ``planned``."""
        anew, near = self.certificate(value), self.near(value, planned)
        if anew.claimed_epsilon <= near.order():
            return anew
        return certificate_of(anew.run, self.delta, [near])


def calibrate(
    run: Run,
    epsilon: float,
    delta: float,
    *,
    vary: str = "noise",
    bounds: Iterable[Bound] | None = None,
    group_size: int | None = None,
) -> Calibration:
    """Return the run nearest to ``run`` that is (epsilon, delta)-private, changing one parameter.

    The result is certified afresh and never claims more than ``epsilon``.

    Parameters
    ----------
    run
        The description of what was done, or will be.
    epsilon, delta
        The target.
    vary
        "noise" (smallest; the convention that ``run`` states stays: its own value is only a
        starting point), "l2" (smallest), "steps", "learning_rate" or "batch_size" (largest).
    bounds
        The bounds to ask; by default all that may win.
    group_size
        Certify ``run.replace(group_size=...)``, for neighbors that differ in so many records.

    Returns
    -------
    Calibration
        The run, its certificate and the value found.

    Raises
    ------
    InvalidInput
        If the parameter cannot vary in such a run.
    NotApplicable
        If no value of it meets the target.

    Examples
    --------
    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=10, noise_multiplier=1.0, release="all")
    >>> calibration = calibrate(run, epsilon=1.0, delta=1e-5)
    >>> calibration.certificate.claimed_epsilon <= 1.0
    True
    """
    target = checks.positive("epsilon", epsilon)
    level = checks.level("delta", delta)
    run = in_groups(run, group_size)
    name = _parameter(run, vary)
    asked = None if bounds is None else tuple(bounds)
    with counting("runs tried") as advance:
        search = _Search(run, name, level, asked, advance)
        if name in NOISE_CONVENTIONS:
            return _smallest_noise(search, target)
        if name == "steps":
            return _largest_steps(search, target)
        if name == "l2":
            return _smallest_l2(search, target)
        if name == "learning_rate":
            return _largest_learning_rate(search, target)
        return _largest_batch(search, target)


def _parameter(run: Run, vary: str) -> str:
    if vary in ("noise", run.noise.name):
        if "inverse_temperature" in run.parameters():
            raise InvalidInput(
                "Langevin noise follows from learning_rate; vary 'steps' or 'learning_rate'"
            )
        return run.noise.name
    if vary in NOISE_CONVENTIONS:
        raise InvalidInput(
            f"the run states its noise as {run.noise.name}; vary 'noise', or state it as {vary}"
        )
    if vary == "epochs":
        vary = "steps"
    checks.choice("vary", vary, VARIED)
    held = {"steps": run.duration.name in run.parameters(), "batch_size": _has_batch(run)}
    if not held.get(vary, True):
        raise InvalidInput(f"{run.kind} has no {vary} to vary; vary 'noise' instead")
    if vary == "learning_rate" and run.learning_rate is None:
        raise InvalidInput("the run states no learning_rate to vary; pass one as a starting point")
    if vary == "steps" and isinstance(run.release, Checkpoints) and run.release.every is None:
        raise InvalidInput(
            f"steps cannot vary in a run that releases {run.release!r}: such checkpoints belong to "
            "one length; say Checkpoints(every=...), or vary 'noise' instead"
        )
    if vary == "batch_size" and run.has_own_rate:
        raise InvalidInput(
            "batch_size cannot vary in a run with a sampling_rate of its own; vary 'noise' instead"
        )
    schedules = {
        "steps": tuple(run.stated_per_step.values()),
        "batch_size": (run.learning_rate, run.noise.value) if run.duration.name == "epochs" else (),
        "learning_rate": (run.learning_rate,),
    }
    if any(isinstance(value, Schedule) for value in schedules.get(vary, ())):
        raise InvalidInput(f"{vary} cannot vary in a run with schedules; vary 'noise' instead")
    return vary


def _has_batch(run: Run) -> bool:
    return "batch_size" in run.parameters() or "sampling_rate" in run.parameters()


def _smallest_noise(search: _Search, target: float) -> Calibration:
    """Find the noise by a secant in log-log scale inside a shrinking bracket."""
    stated = search.run.noise.value
    # A schedule keeps its shape and is scaled as a whole.
    first = 1.0 if isinstance(stated, Schedule) else stated

    def place(scale: float) -> PerStep:
        return stated.scaled(scale) if isinstance(stated, Schedule) else scale

    def epsilon(scale: float) -> float:
        return search.epsilon(place(scale))

    low, high = _bracket(epsilon, first, target)
    scale, certificate = high[0], search.certificate(place(high[0]))
    # Planning takes most of the time, and the best choices change little with the noise: keep them
    # while the bracket shrinks, plan anew where it ends, and go on if that still gains something.
    for _ in range(_MOST_PLANS):
        planned = certificate

        def quick(scale: float, planned: Certificate = planned) -> float:
            return search.near(place(scale), planned).order()

        before, scale = scale, _shrink(quick, low, (scale, planned.claimed_epsilon), target)
        if scale > before * (1 - _NOISE_RTOL):
            scale = before
            break
        certificate = search.tightest(place(scale), planned)
        if certificate.claimed_epsilon > target * (1 - _PLAN_RTOL):
            break
    return Calibration(certificate.run, certificate, search.name, scale)


def _bracket(
    epsilon: Callable[[float], float], first: float, target: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (scale, epsilon) above and at or below the target, epsilon falling in the scale."""
    scale, value = first, epsilon(first)
    # Far from the target epsilon is about inversely proportional to the noise.
    for _ in range(200):
        guess = value / target if math.isfinite(value) and value > 0 else 16.0
        factor = min(max(guess, 1 / guess) * 1.05, 16.0)
        other = scale * factor if value > target else scale / factor
        there = epsilon(other)
        if (there > target) != (value > target):
            pairs = sorted([(scale, value), (other, there)])
            return pairs[0], pairs[1]
        if not value > target and other < 1e-12:
            raise NotApplicable(f"epsilon {target:g} is met without noise; nothing to calibrate")
        scale, value = other, there
    raise NotApplicable(
        f"no noise up to {scale:g} meets epsilon {target:g}; take a larger epsilon, or delta > 0 "
        "where it is 0"
    )


def _shrink(
    epsilon: Callable[[float], float],
    low: tuple[float, float],
    high: tuple[float, float],
    target: float,
) -> float:
    """Return a scale that meets the target, within a relative 1e-4 of one that does not."""
    hit = False
    for turn in range(100):
        if high[0] <= low[0] * (1 + _NOISE_RTOL):
            break
        middle = math.sqrt(low[0] * high[0])
        if hit:  # only just met: a little less noise should fail and end the search
            middle = high[0] / (1 + 0.9 * _NOISE_RTOL)
        elif turn % 4 != 3 and math.isfinite(low[1]) and high[1] > 0:
            # Aim just inside the target, so that the safe end is the one that moves.
            slope = math.log(low[1] / high[1]) / math.log(low[0] / high[0])
            guess = low[0] * (target * (1 - _NOISE_RTOL / 4) / low[1]) ** (1 / slope)
            gap = low[0] * _NOISE_RTOL / 3
            middle = min(max(guess, low[0] + gap), high[0] - gap)
        value = epsilon(middle)
        if value > target:
            low, hit = (middle, value), False
        else:
            high, hit = (middle, value), not hit and value > target * (1 - 2 * _NOISE_RTOL)
    return high[0]


def _largest_steps(search: _Search, target: float) -> Calibration:
    if search.epsilon(1) > target:
        raise NotApplicable(f"even one step exceeds epsilon {target:g}; vary 'noise' instead")
    low, high = 1, 2
    while high < MOST_STEPS and search.epsilon(high) <= target:
        low, high = high, high * 4
    if high >= MOST_STEPS and search.epsilon(MOST_STEPS) <= target:
        certificate = search.certificate(MOST_STEPS)
        return Calibration(certificate.run, certificate, "steps", MOST_STEPS, unlimited=True)
    high = min(high, MOST_STEPS)
    while high - low > 1:
        middle = (low + high) // 2 if high < 4 * low else math.isqrt(low * high)
        low, high = (middle, high) if search.epsilon(middle) <= target else (low, middle)
    certificate = search.certificate(low)
    return Calibration(certificate.run, certificate, "steps", low)


def _smallest_l2(search: _Search, target: float) -> Calibration:
    """Scan a grid (epsilon need not be monotone in l2), then bisect next to the best point."""
    if search.epsilon(0.0) <= target:
        certificate = search.certificate(0.0)
        return Calibration(certificate.run, certificate, "l2", 0.0)
    rate = search.run.learning_rate
    if rate is None:
        raise NotApplicable(
            "l2 lowers epsilon only through the contraction; pass learning_rate=..."
        )
    top = 1.0 / extremes(rate)[1]
    low = 0.0
    # A ridge that contracts by less than a few percent over the whole run changes next to nothing.
    least = min(max(0.05 / search.run.steps, 1e-9), 0.5)
    for candidate in top * np.geomspace(least, 1.0, _RIDGES):
        if search.epsilon(float(candidate)) <= target:
            return _bisected(search, target, float(candidate), low, "l2")
        low = float(candidate)
    raise NotApplicable(
        f"no l2 up to 1 / learning_rate = {top:g} meets epsilon {target:g}; vary 'noise' instead"
    )


def _largest_learning_rate(search: _Search, target: float) -> Calibration:
    (rate,) = learning_rates(search.run)
    for candidate in rate * np.geomspace(1e4, 1e-4, 81):
        if search.epsilon(float(candidate)) <= target:
            if candidate == rate * 1e4:
                raise NotApplicable(
                    f"every learning rate up to {candidate:g} meets epsilon {target:g}: "
                    "with this noise it does not matter"
                )
            worse = float(candidate) * 10**0.1
            return _bisected(search, target, float(candidate), worse, "learning_rate")
    raise NotApplicable(f"no learning rate meets epsilon {target:g}; vary 'noise' instead")


def _largest_batch(search: _Search, target: float) -> Calibration:
    # Whole batches only: that is what every sampler can run.
    low, high = 0, search.run.n
    if search.epsilon(high) <= target:
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if search.epsilon(middle) <= target else (low, middle)
    if low == 0:
        raise NotApplicable(f"even batch_size=1 exceeds epsilon {target:g}; vary 'noise' instead")
    certificate = search.certificate(low)
    return Calibration(certificate.run, certificate, "batch_size", low)


def _bisected(search: _Search, target: float, good: float, bad: float, name: str) -> Calibration:
    """Move ``good`` towards ``bad`` while the target is met."""
    for _ in range(40):
        if abs(good - bad) <= _NOISE_RTOL * abs(good):
            break
        middle = (good + bad) / 2
        good, bad = (middle, bad) if search.epsilon(middle) <= target else (good, middle)
    certificate = search.certificate(good)
    return Calibration(certificate.run, certificate, name, good)


# ---- what every bound asks for -------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseNeed:
    """One bound's smallest noise for the target, and its ratio to the least of all."""

    bound: str
    title: str
    noise: float | None
    ratio: float | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class NoiseNeeds(Shown):
    """What every bound asks for, in the convention that the run states, the least first."""

    convention: str
    epsilon: float
    delta: float
    rows: tuple[NoiseNeed, ...]

    def noise(self, bound: str) -> float | None:
        """Return one bound's noise, or None if it does not apply."""
        return next(row.noise for row in self.rows if row.bound == bound)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per bound (needs the extra ``frames``)."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows]).set_index("bound")

    def __str__(self) -> str:
        """Show a plain-text table."""
        width = max(len(row.title) for row in self.rows)
        lines = [f"{'bound':<{width}}  {self.convention:>16}  ratio to the least"]
        for row in self.rows:
            shown = "-" if row.noise is None else rounded_up(row.noise)
            note = row.reason if row.ratio is None else f"{row.ratio:.4g}"
            lines.append(f"{row.title:<{width}}  {shown:>16}  {note}")
        return "\n".join(lines)


def noise_needed(run: Run, epsilon: float, delta: float) -> NoiseNeeds:
    """Return the noise with which each bound on its own would certify (epsilon, delta).

    Parameters
    ----------
    run
        The run whose noise is varied; its own value is only a starting point.
    epsilon, delta
        The target.

    Returns
    -------
    NoiseNeeds
        One row for each bound, the least noise first, in the convention that the run states.

    Raises
    ------
    NotApplicable
        If no bound applies to the run.

    Examples
    --------
    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=10, noise_multiplier=1.0, release="all")
    >>> needs = noise_needed(run, epsilon=1.0, delta=1e-5)
    >>> needs.noise("naive_composition") > needs.noise("gdp_composition")
    True
    """
    asked: list[tuple[str, str, float | None, str | None]] = []
    with counting("bounds", len(BOUNDS)) as advance:
        for bound in BOUNDS:
            reason = bound.refusal(require_run(run))
            if bound.sound and reason is None:
                asked.append((bound.name, bound.title, *_need(run, epsilon, delta, bound)))
            elif bound.sound:
                asked.append((bound.name, bound.title, None, reason))
            advance(1)
    least = min((value for _, _, value, _ in asked if value is not None), default=None)
    if least is None:
        raise NotApplicable("no bound applies to this run; compare(run, delta) says why")
    rows = [
        NoiseNeed(name, title, value, None if value is None else value / least, reason)
        for name, title, value, reason in asked
    ]
    rows.sort(key=lambda row: float("inf") if row.noise is None else row.noise)
    return NoiseNeeds(run.noise.name, epsilon, delta, tuple(rows))


def _need(run: Run, epsilon: float, delta: float, bound: Bound) -> tuple[float | None, str | None]:
    try:
        return calibrate(run, epsilon, delta, bounds=(bound,)).value, None
    except NotApplicable as reason:
        return None, str(reason)
