"""How far one noise-free step can drive two states apart, from the constants of the losses.

With d the difference of two states, g that of the averaged data gradients and k = 1 - eta l2, a
step maps d to k d - eta g. Each class of losses bounds |k d - eta g| in its own way; f = |B| / b
scales what is known of one record's gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dplateau.algorithms import LossGeometry
from dplateau.verify.precise import MP
from dplateau.verify.report import Ledger

CONTRACTION = "convex and smooth"
SMOOTH = "smooth"


@dataclass(frozen=True)
class Modulus:
    """phi(u) = slope u, or sqrt(slope^2 u^2 + jump) for u > 0 if there is a jump; phi(0) = 0."""

    slope: float
    jump: float = 0.0

    def __call__(self, u: float) -> float:
        """Return phi(u)."""
        if u == 0:
            return 0.0
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
        if not self.loss.convex or k <= 0 or self.loss.holder is None:
            return None
        p, constant = self.loss.holder
        push = 2 * (eta / k * constant * self.most / 2) ** (1 / (1 - p))
        return Modulus(k, k * k * push * push * (1 - p) / (1 + p))

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
