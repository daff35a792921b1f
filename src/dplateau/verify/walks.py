"""The shift program: how far one step drives two runs apart, and what it costs to hide that.

With d the difference of two states, g that of the averaged data gradients and k = 1 - eta l2, a
step maps d to k d - eta g. Each class of losses bounds |k d - eta g| by a modulus phi(|d|). The
program is u <- min(D, max(0, phi(u) + s - a)) from the distance at the start of a plan of shifts a;
what is left at the end is absorbed by the last shift, and the sum of a^2 / nu^2 is the cost.

Every plan is a proof. Rounding is too: a distance that came out too small by a slip is the distance
of a plan whose shift was larger by that slip, so slips are charged like shifts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dplateau.algorithms import LossGeometry
from dplateau.algorithms.stated import loss_of
from dplateau.ground.types import FloatArray
from dplateau.verify.cases import Case
from dplateau.verify.precise import MP, Precise, up
from dplateau.verify.reading import Entry
from dplateau.verify.report import Examination, go_on

CONTRACTION = "convex and smooth"
SMOOTH = "smooth"
# [count, first shift, ratio]
ShiftBlocks = list[tuple[int, float, float]]
_SHORT = 24
_CHUNK = 1 << 19
# Longer walks that have no closed form are not attempted.
_MOST_SINGLE_STEPS = 10**7
_MOST_PIECES = 5 * 10**5
# More than a step, and than a closed form, can lose of the distances in it; and than sums can.
_OF_STEP, _OF_FORM, _OF_SUMS = 5e-16, 5e-15, 1e-12
# What is left of a power is rounded as often as its logarithm is long, up to where nothing is left.
_LONGEST_LOG = 750.0
# Where a modulus jumps, plans may be out by this much and still absorb all: the roundings of some
# thousand steps taken in another way would else be a large distance at the end.
_LARGER = 1e-10


# --- one step ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modulus:
    """phi(u) = slope u, or sqrt(slope^2 u^2 + jump) for u > 0 if there is a jump; phi(0) = 0.

    With ``lesser``: the lesser of slope u and sqrt(u^2 + jump).
    """

    slope: float
    jump: float = 0.0
    lesser: bool = False

    def __call__(self, u: float) -> float:
        """Return phi(u)."""
        if u == 0:
            return 0.0
        if self.lesser:
            return min(self.slope * u, math.sqrt(u * u + self.jump))
        if self.jump == 0:
            return self.slope * u
        return math.sqrt(self.slope * self.slope * u * u + self.jump)


@dataclass(frozen=True)
class StepLosses:
    """One record's constants, the ridge, and the smallest and largest share |B| / b of a batch."""

    loss: LossGeometry
    l2: float
    least: float
    most: float
    examination: Examination

    def modulus(self, losses: str, eta: float) -> Modulus:
        """Return the modulus of a class of losses, after checking that it was declared."""
        go_on()  # a schedule may ask a million times
        loss, e = self.loss, MP.mpf(eta)
        smooth, bounded = math.isfinite(loss.smoothness), math.isfinite(loss.lipschitz)
        k = 1 - e * self.l2
        match losses:
            case "convex and smooth" if loss.convex and smooth:
                # The averaged Hessian lies between l2 + m f and l2 + M f.
                return Modulus(self._largest(eta, loss.strong_convexity, self.least))
            case "smooth" if smooth:
                # |k| + eta M f, the larger of k + eta M f and -k + eta M f.
                return Modulus(self._largest(eta, -loss.smoothness, self.most))
            case "convex and Lipschitz" if loss.convex and bounded and k > 0:
                return Modulus(up(k), self._jump(e))
            case "convex and weakly smooth" if loss.convex and loss.holders and k > 0:
                return Modulus(
                    up(k), min(self._weak_jump(e / k, k, *pair) for pair in loss.holders)
                )
            case "strongly dissipative" if smooth and loss.dissipativity is not None:
                # |d|^2 - 2 eta <d, G> + eta^2 |G|^2 with G = g + l2 d; convex in f: an end counts.
                offset, rate = loss.dissipativity
                squares = [
                    1 - 2 * e * (self.l2 + MP.mpf(rate) * f)
                    + (e * (self.l2 + MP.mpf(loss.smoothness) * f)) ** 2
                    for f in (self.least, self.most)
                ]  # fmt: skip
                return Modulus(up(MP.sqrt(max(*squares, 0))), up(2 * e * offset * self.most))
            case "convex-concave and Lipschitz" if loss.saddle and bounded and k > 0:
                # Descent and ascent step along a monotone field.
                return Modulus(up(k), self._jump(e))
            case "convex-concave and smooth" if loss.saddle and smooth and k > 0:
                return Modulus(self._turned(e))
            case "convex-concave, Lipschitz and smooth" if (
                loss.saddle and smooth and bounded and self.l2 == 0
            ):
                return Modulus(self._turned(e), self._jump(e), lesser=True)
        detail = f"the description does not justify {losses!r}"
        self.examination.require("class of losses", False, detail)
        raise AssertionError(detail)

    def slope(self, losses: str, eta: float) -> float:
        """Return the Lipschitz constant of a class of losses that has no jump."""
        modulus = self.modulus(losses, eta)
        self.examination.require("linear modulus", modulus.jump == 0, f"{losses!r}")
        return modulus.slope

    def _largest(self, eta: float, flattest: float, share: float) -> float:
        """Return the largest |1 - eta h|, h from l2 + flattest * share to l2 + M f, rounded up."""
        ends = ((flattest, share), (self.loss.smoothness, self.most))
        return max(_distance_from_one(eta, self.l2, h, f) for h, f in ends)

    def _jump(self, eta: Precise) -> float:
        # Monotone gradients, <d, g> >= 0, and |g| <= 2 L f.
        return up((2 * eta * self.loss.lipschitz * self.most) ** 2)

    def _turned(self, eta: Precise) -> float:
        # Monotone gradients, and |g| <= M f |d|.
        return up(MP.hypot(1 - eta * self.l2, eta * self.loss.smoothness * self.most))

    def _weak_jump(self, eta: Precise, k: Precise, exponent: float, constant: float) -> float:
        # <d, g> >= (2p/(1+p)) M^(-1/p) |g|^(1+1/p); the worst |g| satisfies
        # eta' |g| = 2 (eta' M / 2)^(1/(1-p)) for the step size eta' = eta / k.
        p = MP.mpf(exponent)
        push = 2 * (eta * MP.mpf(constant) * self.most / 2) ** (1 / (1 - p))
        return up((k * push) ** 2 * (1 - p) / (1 + p))


def step_losses(case: Case, least: float, most: float = 1.0) -> StepLosses:
    """Return the losses of a run whose batches hold such shares of b."""
    return StepLosses(loss_of(case.run), case.run.l2, least, most, case.examination)


def _distance_from_one(eta: float, l2: float, h: float, f: float) -> float:
    """Return |1 - eta (l2 + h f)|, in whole numbers and then rounded up.

    A schedule may ask for it a million times, and many steps would add up what each rounds.
    """
    (a, b), (c, d), (p, q), (r, s) = (float(x).as_integer_ratio() for x in (eta, l2, h, f))
    below = b * d * q * s
    above = abs(below - a * (c * q * s + p * r * d))
    distance = above / below  # to the nearest double
    number, unit = distance.as_integer_ratio()
    return distance if number * below >= above * unit else math.nextafter(distance, math.inf)


# --- many steps ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """``count`` equal steps: modulus, reach s of the record, noise nu."""

    count: int
    modulus: Modulus
    reach: float
    nu: float


@dataclass(frozen=True)
class Program:
    """A period of stretches, repeated; D is the diameter of the domain (infinite without one)."""

    period: tuple[Stretch, ...]
    repeats: int
    diameter: float

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return self.repeats * sum(stretch.count for stretch in self.period)

    def stretches_from(self, step: int) -> Iterator[Stretch]:
        """Yield what is left of the program from a step on."""
        if self.repeats * len(self.period) > _MOST_PIECES:
            raise ArithmeticError("the run has too many epochs to walk through")
        length = self.steps // self.repeats
        turns, skipped = divmod(step, length)
        for _ in range(turns, self.repeats):
            for stretch in self.period:
                dropped = min(skipped, stretch.count)
                skipped -= dropped
                if dropped < stretch.count:
                    go_on()
                    yield replace(stretch, count=stretch.count - dropped)


def forward_distance(program: Program, step: int, start: float = 0.0) -> float:
    """Return u_step, rounded up, when nothing is absorbed: u <- min(D, phi(u) + s)."""
    distance, rounding = _drifted(program, step, start)
    return min(program.diameter, distance * (1 + rounding))


def _drifted(program: Program, step: int, start: float) -> tuple[float, float]:
    """Return u_step as computed, and which share of it rounding may have taken off."""
    walk, done = _Walk(program.diameter, start), 0
    for stretch in program.stretches_from(0):
        if done == step:
            break
        count = min(stretch.count, step - done)
        walk.drift(replace(stretch, count=count))
        done += count
    return walk.u, _OF_SUMS + _OF_STEP * walk.singles + walk.rounded


def absorbed_squares(
    program: Program, start_step: int, start: float, blocks: ShiftBlocks
) -> tuple[float, float]:
    """Walk a plan that ends with the program; return its cost, rounded up, and what it left over.

    The cost counts what is left over as absorbed by the last shift. Shifts are taken a little
    larger than they are written: a plan may absorb each of its steps exactly, and where the modulus
    jumps a rounding left over would be a large distance.
    """
    jumps = any(stretch.modulus.jump > 0 for stretch in program.period)
    larger = 1 + (_LARGER if jumps else _OF_SUMS)
    blocks = [(count, first * larger, ratio) for count, first, ratio in blocks]
    walk = _Walk(program.diameter, start)
    last_shift, last_nu = 0.0, 1.0
    left = sum(count for count, _, _ in blocks)
    for stretch, first, ratio in _pieces(program, start_step, blocks):
        left -= stretch.count
        walk.charge(stretch, first, ratio)
        if left > 0:
            walk.absorb(stretch, first, ratio)
            continue
        # The noise acts before the last projection, which hence does not help.
        walk.absorb(replace(stretch, count=stretch.count - 1), first, ratio)
        last_shift, last_nu = first * ratio ** (stretch.count - 1), stretch.nu
        walk.slip((stretch.modulus(walk.u) + stretch.reach + last_shift) * _OF_STEP, stretch.nu)
        walk.u = max(0.0, stretch.modulus(walk.u) + stretch.reach - last_shift)
    extra = walk.u * (2 * last_shift + walk.u) / last_nu**2
    total = math.sqrt(math.fsum([*walk.squares, extra])) + math.sqrt(math.fsum(walk.slips))
    return total**2 * (1 + _OF_SUMS), walk.u


def _pieces(
    program: Program, start_step: int, blocks: ShiftBlocks
) -> Iterator[tuple[Stretch, float, float]]:
    """Yield stretches over which steps are equal and shifts geometric."""
    ahead = program.stretches_from(start_step)
    stretch = next(ahead)
    used = 0
    for count, first, ratio in blocks:
        done = 0
        while done < count:
            if used == stretch.count:
                stretch, used = next(ahead), 0
            n = min(count - done, stretch.count - used)
            yield replace(stretch, count=n), first * ratio**done if done else first, ratio
            done, used = done + n, used + n


def plan_squares(
    case: Case, program: Program, plan: Entry, where: str = "", start: float = 0.0, ahead: int = 0
) -> float:
    """Walk a stored plan, which must end with the program; what it leaves over is charged.

    The plan counts from the program's step ``ahead``.
    """
    start_step, shifts = ahead + plan["start_step"].whole(), plan["blocks"].shift_blocks()
    covered = start_step + sum(count for count, _, _ in shifts)
    ends = covered == program.steps and start_step < program.steps
    case.require(f"plan length{where}", ends, f"ends at step {covered} of {program.steps}")
    apart, rounding = _drifted(program, start_step, start)
    squares, left = absorbed_squares(program, start_step, apart, shifts)
    # No modulus turns (1 + x) u into more than (1 + x) phi(u): shifts that are larger by as much
    # as the start may be leave at most (1 + x) times as much over.
    squares *= (1 + rounding) ** 2
    detail = f"sum of squares {squares:.9g}, with {left:.3g} left for the last shift"
    case.require(f"plan{where}", math.isfinite(squares), detail)
    return squares


class _Walk:
    """A distance on its way, what its shifts cost, and what its roundings cost."""

    def __init__(self, diameter: float, start: float) -> None:
        self.diameter, self.u, self.singles, self.rounded = diameter, start, 0, 0.0
        self.squares: list[float] = []
        self.slips: list[float] = []

    def slip(self, size: float, nu: float, times: int = 1) -> None:
        """Charge so many shifts that were larger than they are written."""
        self.slips.append(times * (size / nu) ** 2)

    def charge(self, stretch: Stretch, first: float, ratio: float) -> None:
        """Charge sum_j (first ratio^j / nu)^2, j < n."""
        n = stretch.count
        if first == 0:
            return
        square = (first / stretch.nu) ** 2
        if ratio == 1:
            square *= n
        elif ratio > 0 and n > 1:
            # Sum from the larger end, so that nothing overflows.
            log = abs(math.log(ratio))
            square = (max(first, first * ratio ** (n - 1)) / stretch.nu) ** 2
            square *= math.expm1(-2 * log * n) / math.expm1(-2 * log)
        self.squares.append(square)

    def drift(self, stretch: Stretch) -> None:
        """Take steps without shifts."""
        c, jump, n = stretch.modulus.slope, stretch.modulus.jump, stretch.count
        if c > 0:
            self.rounded += _OF_STEP * (2 + min(n * abs(math.log(c)), _LONGEST_LOG))
        if jump > 0 and stretch.reach == 0 and 0 < c < 1 and self.u > 0:
            # u^2 <- c^2 u^2 + h: towards the fixed point from either side.
            fixed, log = jump / -math.expm1(2 * math.log(c)), 2 * n * math.log(c)
            gained = fixed * -math.expm1(log)  # 1 - e^log would lose the digits of a slow start
            self.u = min(self.diameter, math.sqrt(gained + self.u**2 * math.exp(log)))
        elif jump > 0 or c == 0:
            self._singly(stretch, 0.0, 1.0)
        elif n * math.log(c) > 700:
            self.u = self.diameter if self.u > 0 or stretch.reach > 0 else 0.0
        else:
            # The cap commutes with an increasing affine map: the orbit is monotone.
            log = math.log(c)
            total = n if c == 1 else math.expm1(n * log) / math.expm1(log)
            self.u = min(self.diameter, math.exp(n * log) * self.u + stretch.reach * total)

    def absorb(self, stretch: Stretch, first: float, ratio: float) -> None:
        """Take steps with geometric shifts."""
        n, c = stretch.count, stretch.modulus.slope
        if n <= _SHORT or stretch.modulus.jump > 0 or c == 0 or ratio == 0:
            self._singly(stretch, first, ratio)
            return
        # Where distances grow, so does what was cut off or rounded before: a chunk lets them double
        # at most.
        size = _CHUNK if c <= 1 else min(_CHUNK, int(0.7 / math.log(c)))
        if size <= _SHORT:
            self._singly(stretch, first, ratio)
            return
        for begin in range(0, n, size):
            part = replace(stretch, count=min(size, n - begin))
            shift = first * ratio**begin
            if not self._in_closed_form(part, shift, ratio):
                self._singly(part, shift, ratio)

    def _in_closed_form(self, stretch: Stretch, first: float, ratio: float) -> bool:
        """Take all steps at once, if nothing is cut off on the way but what rounding makes.

        c^k u + s (1 - c^k)/(1 - c) - a (rho^k - c^k)/(rho - c), each in a form without
        cancellation.
        """
        # Without a record's steps distances never grow: once at zero they stay there.
        falls = stretch.reach == 0 and stretch.modulus.slope <= 1
        ends = [stretch.count] if falls else range(1, stretch.count + 1)
        steps = np.array(ends, dtype=np.float64)
        log_c, log_ratio = math.log(stretch.modulus.slope), math.log(ratio)
        sums = steps if log_c == 0 else np.expm1(steps * log_c) / math.expm1(log_c)
        # The larger of rho and c in front, so that the rest is at most the number of steps.
        front, gap = max(log_c, log_ratio), abs(log_ratio - log_c)
        rest = steps if gap == 0 else np.expm1(-gap * steps) / math.expm1(-gap)
        with np.errstate(over="ignore", invalid="ignore"):
            arrived = np.exp(steps * log_c) * self.u + stretch.reach * sums
            absorbed: FloatArray = first * np.exp((steps - 1) * front) * rest
            path = arrived - absorbed
            # A power loses its exponent's roundings, and so does the gap between two logarithms.
            most = 1 / gap if gap else math.inf
            blurred = max(abs(log_c), abs(log_ratio)) * np.minimum(steps / 2, most)
            of_absorbed = 1 + blurred + max(0.0, -front) * steps
            of_start = abs(log_c) * steps * np.exp(steps * log_c) * self.u
            lost = arrived + of_start + of_absorbed * absorbed
        growth = max(0.0, front * stretch.count)
        slip = _OF_FORM * (1 + growth) * float(np.max(lost))
        if not falls and not (path.min() >= -slip and path.max() <= self.diameter * (1 + 1e-9)):
            return False
        if not math.isfinite(slip):
            return False
        self.slip(slip, stretch.nu)
        self.u = min(self.diameter, max(0.0, float(path[-1])))
        return True

    def _singly(self, stretch: Stretch, first: float, ratio: float) -> None:
        """Take steps one by one, leaving early where nothing changes any more."""
        self.singles += min(stretch.count, 1000)
        square, jump = stretch.modulus.slope**2, stretch.modulus.jump
        slope, reach, diameter = stretch.modulus.slope, stretch.reach, self.diameter
        lesser = stretch.modulus.lesser
        u, shift, largest = self.u, first, first
        still, root = ratio == 1 or first == 0, math.sqrt
        for i in range(stretch.count):
            if jump == 0:
                before = slope * u + reach
            elif lesser:
                before = min(slope * u, root(u * u + jump)) + reach
            else:
                before = root(square * u * u + jump) + reach if u > 0 else reach
            after = before - shift
            if before > largest:
                largest = before
            after = 0.0 if after < 0 else min(diameter, after)
            if still and after == u:
                # What is too little to move u at all adds up all the same, unless a domain ends it.
                if u < diameter:
                    forgets = 1 / (1 - slope) if slope < 1 else math.inf
                    self.rounded += _OF_STEP * min(stretch.count - i, forgets)
                break
            u = after
            shift *= ratio
            if i % 1000 == 999:
                shift = first * ratio ** (i + 1)  # without the roundings of all the products
                self.singles += 1000
                go_on()
                if self.singles > _MOST_SINGLE_STEPS:
                    raise ArithmeticError("the run is too long to walk step by step")
        self.u = u
        self.slip(largest * _OF_STEP, stretch.nu, stretch.count)
