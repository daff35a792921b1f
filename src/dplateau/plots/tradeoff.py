"""What a claim leaves to an attacker: missed records over false alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.certificates import Certificate
from dplateau.errors import InvalidInput
from dplateau.ground.types import FloatArray
from dplateau.plots.canvas import Display
from dplateau.plots.palette import FORBIDDEN_AREA, QUIET, looks
from dplateau.plots.strokes import draw_frame
from dplateau.plots.words import in_short, rounded_up, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class TradeoffDisplay(Display):
    """The trade-off curve that a certificate guarantees, against perfect privacy (the diagonal).

    At false-positive rate ``alpha`` every test for one record misses it with probability at least
    ``beta``.
    """

    alpha: FloatArray
    beta: FloatArray
    label: str
    title: str

    @classmethod
    def from_certificate(cls, certificate: Certificate, points: int = 65) -> TradeoffDisplay:
        """Evaluate the certificate's own curve, more densely towards its steep end."""
        if points < 3:
            raise InvalidInput(f"a curve needs at least 3 points; got {points}")
        # Quadratic spacing: half of the points lie in the first quarter.
        alpha = np.linspace(0.0, 1.0, points) ** 2
        beta = np.array([certificate.tradeoff(float(rate)) for rate in alpha])
        epsilon = rounded_up(certificate.claimed_epsilon, 4)
        claim = f"epsilon {epsilon} at delta {certificate.claimed_delta:g}"
        label = f"{certificate.theorem.title}\n({claim})"
        return cls(alpha, beta, label, in_short(certificate.run, length=True))

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches: square axes."""
        return 5.8, 6.2

    def draw(self, ax: Axes) -> None:
        """Draw the curve, the diagonal and the region that no attack reaches."""
        look = looks([True], [0.0])[0]
        ax.fill_between(self.alpha, 0.0, self.beta, color=FORBIDDEN_AREA, linewidth=0, zorder=0.5)
        ax.plot([0.0, 1.0], [1.0, 0.0], color=QUIET, ls="--", lw=1.2, label="nothing is learnt")
        ax.plot(self.alpha, self.beta, color=look.colour, lw=2.4, label=self.label)
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1)
        ax.set_aspect("equal")
        draw_frame(
            ax,
            wrapped(self.title, 66),
            "false-positive rate of the attack",
            "false-negative rate of the attack",
        )
        # The curve and the diagonal never enter the upper right half.
        ax.legend(loc="upper right", frameon=False, fontsize=8.5)
        if float(np.interp(0.36, self.alpha, self.beta)) > 0.1:
            ax.text(0.04, 0.04, "no attack reaches here", fontsize=8.5, style="italic", color=QUIET)
