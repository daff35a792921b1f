"""The recursion of the shift program, walked step by step or in closed form over equal steps.

u <- min(D, max(0, phi(u) + s - a)) from the distance at the start of the plan; the plan is a proof
if the last distance is zero, and the sum of a^2 / nu^2 is what it costs.

How far one noise-free step can drive two states apart, from the constants of the losses.

With d the difference of two states, g that of the averaged data gradients and k = 1 - eta l2, a
step maps d to k d - eta g. Each class of losses bounds |k d - eta g| in its own way; f = |B| / b
scales what is known of one record's gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dplateau.algorithms import LossGeometry
from dplateau.ground.types import FloatArray
from dplateau.verify.precise import MP
from dplateau.verify.report import Ledger

ShiftBlocks = list[tuple[int, float, float]]
_SHORT = 24
_CHUNK = 1 << 19
# Longer walks that have no closed form are not attempted.
_MOST_SINGLE_STEPS = 3 * 10**7


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
        if self.repeats * len(self.period) > _MOST_SINGLE_STEPS:
            raise ArithmeticError("the run has too many epochs to walk through")
        length = self.steps // self.repeats
        turns, skipped = divmod(step, length)
        for _ in range(turns, self.repeats):
            for stretch in self.period:
                dropped = min(skipped, stretch.count)
                skipped -= dropped
                if dropped < stretch.count:
                    left = stretch.count - dropped
                    yield Stretch(left, stretch.modulus, stretch.reach, stretch.nu)


@dataclass(frozen=True)
class Outcome:
    """What a plan leaves over, the largest distance on its way, and its sum of squares.

    The sum counts the leftover as absorbed by the last shift.
    """

    leftover: float
    scale: float
    sum_of_squares: float


def forward_distance(program: Program, step: int) -> float:
    """Return u_step when nothing is absorbed: u <- min(D, phi(u) + s) from zero."""
    u, done = 0.0, 0
    budget = _Budget()
    for stretch in program.stretches_from(0):
        count = min(stretch.count, step - done)
        u = _drift(stretch, count, u, program.diameter, budget)
        done += count
        if done == step:
            break
    return u


def absorb(program: Program, start_step: int, start: float, blocks: ShiftBlocks) -> Outcome:
    """Walk a plan that ends with the program."""
    u = scale = start
    squares: list[float] = []
    leftover, last, last_nu = start, 0.0, 1.0
    budget = _Budget()
    left = sum(count for count, _, _ in blocks)
    for stretch, first, ratio in _pieces(program, start_step, blocks):
        scale = max(scale, u, stretch.reach)
        left -= stretch.count
        squares.append(_squares(stretch, first, ratio))
        last = first * ratio ** (stretch.count - 1)
        last_nu = stretch.nu
        if left > 0:
            u = _shifted(stretch, first, ratio, u, program.diameter, budget)
        else:
            # The noise acts before the last projection, which hence does not help.
            before = Stretch(stretch.count - 1, stretch.modulus, stretch.reach, stretch.nu)
            u = _shifted(before, first, ratio, u, program.diameter, budget)
            leftover = max(0.0, stretch.modulus(u) + stretch.reach - last)
    extra = leftover * (2 * last + leftover) / last_nu**2
    return Outcome(leftover, scale, math.fsum([*squares, extra]))


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
            shift = first * ratio**done if done else first
            yield Stretch(n, stretch.modulus, stretch.reach, stretch.nu), shift, ratio
            done, used = done + n, used + n


@dataclass
class _Budget:
    """How many single steps may still be walked."""

    left: int = _MOST_SINGLE_STEPS

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ArithmeticError("the run is too long to walk step by step")


def _squares(stretch: Stretch, first: float, ratio: float) -> float:
    """Return sum_j (first ratio^j / nu)^2."""
    n = stretch.count
    if first == 0:
        return 0.0
    if ratio == 1:
        return n * (first / stretch.nu) ** 2
    if ratio == 0 or n == 1:
        return (first / stretch.nu) ** 2
    # Sum from the larger end, so that nothing overflows.
    log = abs(math.log(ratio))
    largest = max(first, first * ratio ** (n - 1))
    return (largest / stretch.nu) ** 2 * (math.expm1(-2 * log * n) / math.expm1(-2 * log))


def _drift(stretch: Stretch, n: int, u: float, diameter: float, budget: _Budget) -> float:
    """Take n steps without shifts."""
    if n == 0:
        return u
    if stretch.modulus.jump == 0 and stretch.modulus.slope > 0:
        # The cap commutes with an increasing affine map: the orbit is monotone.
        return min(diameter, _affine(stretch, float(n), u))
    return _singly(stretch, 0.0, 1.0, n, u, diameter, budget)


def _affine(stretch: Stretch, n: float, u: float) -> float:
    """Return c^n u + s (1 + c + ... + c^(n-1))."""
    c = stretch.modulus.slope
    log = math.log(c)
    if n * log > 700:
        return math.inf if u > 0 or stretch.reach > 0 else 0.0
    total = n if c == 1 else math.expm1(n * log) / math.expm1(log)
    return math.exp(n * log) * u + stretch.reach * total


def _shifted(
    stretch: Stretch, first: float, ratio: float, u: float, diameter: float, budget: _Budget
) -> float:
    """Take the steps of a stretch with geometric shifts."""
    n, c = stretch.count, stretch.modulus.slope
    if n == 0:
        return u
    if n <= _SHORT or stretch.modulus.jump > 0 or c == 0 or ratio == 0:
        return _singly(stretch, first, ratio, n, u, diameter, budget)
    if stretch.reach == 0 and c <= 1:
        # Once at zero it stays there, and it never grows: only the end can be cut off.
        return _decayed(c, first, ratio, u, n)
    for begin in range(0, n, _CHUNK):
        size = min(_CHUNK, n - begin)
        shift = first * ratio**begin
        path = _orbit(stretch, shift, ratio, u, np.arange(1.0, size + 1))
        slack = 1e-11 * max(u, stretch.reach * size, shift, float(np.abs(path).max()))
        if path.min() >= -slack and path.max() <= diameter + slack:
            u = min(diameter, max(0.0, float(path[-1])))
        else:
            u = _singly(stretch, shift, ratio, size, u, diameter, budget)
    return u


def _decayed(c: float, first: float, ratio: float, u: float, n: int) -> float:
    """Return max(0, c^n u - a (rho^n - c^n)/(rho - c)): steps in which the record is not used."""
    if u == 0 or c == 0:
        return 0.0
    left = math.exp(n * math.log(c)) * u
    if first == 0:
        return left
    # The larger of rho and c in front, so that the rest is at most the number of steps.
    log_c, log_ratio = math.log(c), math.log(ratio)
    front, gap = max(log_c, log_ratio), abs(log_ratio - log_c)
    rest = n if gap == 0 else math.expm1(-gap * n) / math.expm1(-gap)
    return max(0.0, left - first * math.exp((n - 1) * front) * rest)


def _orbit(stretch: Stretch, first: float, ratio: float, u: float, steps: FloatArray) -> FloatArray:
    """Return the distances after each number of steps as long as nothing cuts them off.

    c^k u + s (1 - c^k)/(1 - c) - a (rho^k - c^k)/(rho - c), each in a form without cancellation.
    """
    log_c, log_ratio = math.log(stretch.modulus.slope), math.log(ratio)
    powers = np.exp(steps * log_c)
    sums = steps if log_c == 0 else np.expm1(steps * log_c) / math.expm1(log_c)
    # The larger of rho and c in front, so that the rest is at most the number of steps.
    front, gap = max(log_c, log_ratio), abs(log_ratio - log_c)
    rest = steps if gap == 0 else np.expm1(-gap * steps) / math.expm1(-gap)
    absorbed = first * np.exp((steps - 1) * front) * rest
    found: FloatArray = powers * u + stretch.reach * sums - absorbed
    return found


def _singly(
    stretch: Stretch, first: float, ratio: float, n: int, u: float, diameter: float, budget: _Budget
) -> float:
    """Take n steps one by one, leaving early where nothing changes any more."""
    budget.spend(min(n, 1000))
    modulus, reach, shift = stretch.modulus, stretch.reach, first
    still = ratio == 1 or first == 0
    for i in range(n):
        after = min(diameter, max(0.0, modulus(u) + reach - shift))
        if still and after == u:
            return u
        u = after
        shift *= ratio
        if i % 1000 == 999:
            budget.spend(1000)
    return u


CONTRACTION = "convex and smooth"
SMOOTH = "smooth"


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

    def modulus(self, losses: str, eta: float, ledger: Ledger) -> Modulus:
        """Return the modulus of a class of losses, after checking that it was declared."""
        found = {
            CONTRACTION: self._contraction,
            "convex and Lipschitz": self._lipschitz,
            "convex and weakly smooth": self._weakly_smooth,
            SMOOTH: self._smooth,
            "strongly dissipative": self._dissipative,
            "convex-concave and Lipschitz": self._saddle_lipschitz,
            "convex-concave and smooth": self._saddle_smooth,
            "convex-concave, Lipschitz and smooth": self._saddle_both,
        }
        ledger.require("class of losses", losses in found, f"{losses!r}")
        modulus = found[losses](eta)
        detail = f"the description does not justify {losses!r}"
        if modulus is None:
            ledger.require("class of losses", False, detail)
        assert modulus is not None
        return modulus

    def _contraction(self, eta: float) -> Modulus | None:
        # The averaged Hessian lies between l2 + m f and l2 + M f.
        if not self.loss.convex or math.isinf(self.loss.smoothness):
            return None
        return Modulus(self._largest(eta, self.loss.strong_convexity, self.least))

    def _largest(self, eta: float, flattest: float, share: float) -> float:
        """Return the largest |1 - eta h|, h from l2 + flattest * share to l2 + M f, rounded up."""
        ends = ((flattest, share), (self.loss.smoothness, self.most))
        # Fifty digits hold such a product of doubles, unless their sizes differ enormously.
        slopes = [abs(1 - MP.mpf(eta) * (MP.mpf(self.l2) + MP.mpf(h) * f)) for h, f in ends]
        found = float(max(slopes))
        return found if MP.mpf(found) >= max(slopes) else math.nextafter(found, math.inf)

    def _lipschitz(self, eta: float) -> Modulus | None:
        # Monotone gradients: <d, g> >= 0; and |g| <= 2 L f.
        k = 1 - eta * self.l2
        if not self.loss.convex or k <= 0 or math.isinf(self.loss.lipschitz):
            return None
        return Modulus(k, (2 * eta * self.loss.lipschitz * self.most) ** 2)

    def _weakly_smooth(self, eta: float) -> Modulus | None:
        # <d, g> >= (2p/(1+p)) M^(-1/p) |g|^(1+1/p); the worst |g| satisfies
        # eta' |g| = 2 (eta' M / 2)^(1/(1-p)) for the step size eta' = eta / k.
        k = 1 - eta * self.l2
        if not self.loss.convex or k <= 0 or not self.loss.holders:
            return None
        jumps = []
        for p, constant in self.loss.holders:
            push = 2 * (eta / k * constant * self.most / 2) ** (1 / (1 - p))
            jumps.append(k * k * push * push * (1 - p) / (1 + p))
        return Modulus(k, min(jumps))

    def _saddle_lipschitz(self, eta: float) -> Modulus | None:
        # Descent and ascent step along a monotone field: <d, g> >= 0 again; and |g| <= 2 L f.
        k = 1 - eta * self.l2
        if not self.loss.saddle or k <= 0 or math.isinf(self.loss.lipschitz):
            return None
        return Modulus(k, (2 * eta * self.loss.lipschitz * self.most) ** 2)

    def _saddle_smooth(self, eta: float) -> Modulus | None:
        # The same with |g| <= M f |d|.
        k = 1 - eta * self.l2
        if not self.loss.saddle or k <= 0 or math.isinf(self.loss.smoothness):
            return None
        return Modulus(math.hypot(k, eta * self.loss.smoothness * self.most))

    def _saddle_both(self, eta: float) -> Modulus | None:
        flat, steep = self._saddle_lipschitz(eta), self._saddle_smooth(eta)
        if flat is None or steep is None or self.l2 > 0:
            return None
        return Modulus(steep.slope, flat.jump, lesser=True)

    def _smooth(self, eta: float) -> Modulus | None:
        if math.isinf(self.loss.smoothness):
            return None
        # |k| + eta M f, the larger of k + eta M f and -k + eta M f.
        return Modulus(self._largest(eta, -self.loss.smoothness, self.most))

    def _dissipative(self, eta: float) -> Modulus | None:
        # |d|^2 - 2 eta <d, G> + eta^2 |G|^2 with G = g + l2 d; convex in f, so an end is largest.
        if math.isinf(self.loss.smoothness) or self.loss.dissipativity is None:
            return None
        offset, rate = self.loss.dissipativity
        squares = [
            1 - 2 * eta * (self.l2 + rate * f) + (eta * (self.l2 + self.loss.smoothness * f)) ** 2
            for f in (self.least, self.most)
        ]
        return Modulus(math.sqrt(max(*squares, 1e-300)), 2 * eta * offset * self.most)
