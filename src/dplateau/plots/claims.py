"""Pictures of one claim: every bound as bars, trade-offs, epsilon over delta, audits."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplateau.audit.monte_carlo import AuditReport
from dplateau.audit.monte_carlo_rates import Audited
from dplateau.certificates import Certificate, Comparison, ComparisonRow, Composition
from dplateau.errors import InvalidInput
from dplateau.ground.shown import counted, rounded_down, rounded_up
from dplateau.ground.types import BoolArray, FloatArray
from dplateau.plots.canvas import Display, in_short, wrapped
from dplateau.plots.lines import (
    FORBIDDEN_AREA,
    HOLDS_HIDDEN,
    HOLDS_RELEASED,
    LOWER,
    QUIET,
    draw_frame,
    looks,
    place_key,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- every bound on one run as bars --------------------------------------------------------------


_HIDDEN, _RELEASED, _HISTORICAL = "#0072B2", "#E69F00", "#BBBBBB"
_REASON_WIDTH = 150
_BAR_HEIGHT, _TEXT_LINE_HEIGHT = 0.34, 0.165
_FRAME_HEIGHT = 1.7


@dataclass(frozen=True, eq=False)
class ComparisonDisplay(Display):
    """Bars of epsilon on a logarithmic axis, the tightest on top; refusals as text below."""

    rows: tuple[ComparisonRow, ...]
    refused: tuple[ComparisonRow, ...]
    delta: float
    title: str

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> ComparisonDisplay:
        """Take what ``compare`` returned."""
        return cls(
            tuple(row for row in comparison.rows if row.epsilon is not None),
            tuple(row for row in comparison.rows if row.epsilon is None),
            comparison.delta,
            in_short(comparison.run, length=True),
        )

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches: as high as its rows need."""
        text = _TEXT_LINE_HEIGHT * (len(self._refusal_lines()) + 1)
        return 9.5, _FRAME_HEIGHT + _BAR_HEIGHT * max(1, len(self.rows)) + text

    def draw(self, ax: Axes) -> None:
        """Draw bars, their values and the refusals."""
        values = [row.epsilon for row in self.rows if row.epsilon is not None]
        least = min([value for value in values if value > 0], default=1.0)
        most = max([*values, least])
        start, end = least / (most / least * 10) ** 0.12, most * (most / least * 10) ** 0.12
        ax.set_xscale("log")
        ax.set_xlim(start, end)
        for place, (row, value) in enumerate(zip(self.rows, values, strict=True)):
            self._draw_bar(ax, place, row, value, start)
        ax.set_yticks(range(len(self.rows)), [_name(row) for row in self.rows])
        ax.set_ylim(len(self.rows) - 0.4, -0.6)
        draw_frame(ax, wrapped(self.title, 74), f"epsilon at delta = {rounded_up(self.delta)}", "")
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
        self._draw_key(ax)
        self._write_refusals(ax)

    def _draw_bar(
        self, ax: Axes, place: int, row: ComparisonRow, value: float, start: float
    ) -> None:
        first = place == 0
        ax.barh(place, max(value - start, 0.0), left=start, height=0.66, color=_color(row))
        ax.annotate(
            rounded_up(value, 4, padded=True),
            xy=(max(value, start), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if first else "normal",
        )

    def _draw_key(self, ax: Axes) -> None:
        from matplotlib.patches import Patch

        used = {_color(row) for row in self.rows}
        names = {
            _HIDDEN: HOLDS_HIDDEN,
            _RELEASED: HOLDS_RELEASED,
            _HISTORICAL: "historical, not a claim",
        }
        place_key(ax, [Patch(color=c, label=text) for c, text in names.items() if c in used])

    def _write_refusals(self, ax: Axes) -> None:
        lines = self._refusal_lines()
        if not lines:
            return
        ax.annotate(
            "\n".join(lines),
            xy=(0.0, 0.0),
            xycoords=("figure fraction", "axes fraction"),
            xytext=(10, -62),
            textcoords="offset points",
            va="top",
            ha="left",
            fontsize=8,
            color=QUIET,
            annotation_clip=False,
        )

    def _refusal_lines(self) -> list[str]:
        if not self.refused:
            return []
        lines = ["Say nothing about this run:"]
        alike: dict[str, list[str]] = {}
        for row in self.refused:
            alike.setdefault(str(row.reason), []).append(_name(row))
        for reason, names in alike.items():
            text = f"\N{BULLET} {' / '.join(names)}: {reason}"
            lines += textwrap.wrap(text, _REASON_WIDTH, subsequent_indent="   ")
        return lines


def _name(row: ComparisonRow) -> str:
    return row.title if row.sound else f"{row.title} (historical)"


def _color(row: ComparisonRow) -> str:
    if not row.sound:
        return _HISTORICAL
    return _HIDDEN if row.hidden_state else _RELEASED


# ---- trade-offs and audits -----------------------------------------------------------------------


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
    def from_certificate(
        cls, certificate: Certificate | Composition, points: int = 65
    ) -> TradeoffDisplay:
        """Evaluate the certificate's own curve, more densely towards its steep end."""
        if points < 3:
            raise InvalidInput(f"a curve needs at least 3 points; got {points}")
        # Quadratic spacing: half of the points lie in the first quarter.
        alpha = np.linspace(0.0, 1.0, points) ** 2
        beta = np.array([certificate.tradeoff(float(rate)) for rate in alpha])
        epsilon = rounded_up(certificate.claimed_epsilon, 4, padded=True)
        claim = f"epsilon {epsilon} at delta {rounded_up(certificate.claimed_delta)}"
        return cls(alpha, beta, f"{_proof(certificate)}\n({claim})", _subject(certificate))

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches: square axes."""
        return 5.8, 6.2

    def draw(self, ax: Axes) -> None:
        """Draw the curve, the diagonal and the region that no attack reaches."""
        _draw_claim(ax, self.alpha, self.beta, self.label)
        _draw_rates(ax, wrapped(self.title, 66))
        if float(np.interp(0.36, self.alpha, self.beta)) > 0.1:
            ax.text(0.04, 0.04, "no attack reaches here", fontsize=8.5, style="italic", color=QUIET)


def _draw_claim(ax: Axes, alpha: FloatArray, beta: FloatArray, label: str) -> None:
    """Draw what a claim leaves to attacks, and the diagonal of those that learn nothing."""
    look = looks([True], [0.0])[0]
    ax.fill_between(alpha, 0.0, beta, color=FORBIDDEN_AREA, linewidth=0, zorder=0.5)
    ax.plot([0.0, 1.0], [1.0, 0.0], color=QUIET, ls="--", lw=1.2, label="nothing is learned")
    ax.plot(alpha, beta, color=look.color, lw=2.4, label=label)


def _draw_rates(ax: Axes, title: str) -> None:
    """Draw the frame of error rates, and the key where the claim's curve never is."""
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    rates = (f"false-{kind} rate of the attack" for kind in ("positive", "negative"))
    draw_frame(ax, title, *rates)
    ax.legend(loc="upper right", frameon=False, fontsize=8.5)


def _proof(claimed: Certificate | Composition) -> str:
    return claimed.theorem.title if isinstance(claimed, Certificate) else claimed.method


def _subject(claimed: Certificate | Composition) -> str:
    if isinstance(claimed, Certificate):
        return in_short(claimed.run, length=True)
    return f"{counted(claimed.releases, 'release')} together"


@dataclass(frozen=True, eq=False)
class EpsilonOverDeltaDisplay(Display):
    """The epsilon that one proof gives at every delta, and the one that is claimed."""

    deltas: FloatArray
    epsilons: FloatArray
    claim: tuple[float, float]
    title: str

    @classmethod
    def from_certificate(
        cls, certificate: Certificate | Composition, points: int = 41
    ) -> EpsilonOverDeltaDisplay:
        """Evaluate the certificate's own curve around the claimed delta."""
        delta = certificate.claimed_delta
        low = min(delta, 1e-5) * 1e-5 if delta > 0 else 1e-10
        deltas = np.geomspace(low, max(1e-2, min(0.5, 10 * delta)), points)
        epsilons = np.array([certificate.curve.epsilon(float(value)) for value in deltas])
        claim = (certificate.claimed_epsilon, delta)
        return cls(deltas, epsilons, claim, _subject(certificate))

    def draw(self, ax: Axes) -> None:
        """Draw the curve and mark the claim."""
        look = looks([True], [0.0])[0]
        ax.set_xscale("log")
        ax.plot(self.deltas, self.epsilons, color=look.color, lw=2.4)
        epsilon, delta = self.claim
        if delta > 0:
            ax.plot([delta], [epsilon], "o", color=look.color, markersize=7)
            ax.annotate(
                f"claimed: {rounded_up(epsilon, 4, padded=True)} at {rounded_up(delta)}",
                xy=(delta, epsilon),
                xytext=(10, 8),
                textcoords="offset points",
                fontsize=9,
            )
        ax.set_ylim(bottom=0)
        draw_frame(ax, wrapped(self.title), "delta", "epsilon")


_ALARM = "#D55E00"


@dataclass(frozen=True, eq=False)
class AuditDisplay(Display):
    """The claimed trade-off curve, and the error rates at each threshold of an audit.

    ``false_alarms`` and ``misses`` are the shares seen. With the audit's confidence the true rates
    are at most ``most_false_alarms`` and ``most_misses``, at all thresholds together. A claim is
    refuted where even that corner lies below the curve.
    """

    alpha: FloatArray
    beta: FloatArray
    false_alarms: FloatArray
    misses: FloatArray
    most_false_alarms: FloatArray
    most_misses: FloatArray
    violated: BoolArray
    label: str
    title: str

    @classmethod
    def from_report(
        cls, report: AuditReport, certificate: Audited, points: int = 49
    ) -> AuditDisplay:
        """Take rates from the report and the curve from the certificate that was audited."""
        claim = (certificate.claimed_epsilon, certificate.claimed_delta)
        if claim != (report.claimed_epsilon, report.claimed_delta):
            raise InvalidInput(
                f"the report is about a claim of epsilon {rounded_up(report.claimed_epsilon)} at "
                f"delta {rounded_up(report.claimed_delta)}; the certificate claims "
                f"{rounded_up(claim[0])} at {rounded_up(claim[1])}"
            )
        alpha = np.linspace(0.0, 1.0, points) ** 2
        return cls(
            alpha=alpha,
            beta=np.array([certificate.curve.tradeoff(float(rate)) for rate in alpha]),
            false_alarms=np.array([p.hits_neighbor / report.tested for p in report.points]),
            misses=np.array([1 - p.hits_data / report.tested for p in report.points]),
            most_false_alarms=np.array([p.most_neighbor for p in report.points]),
            most_misses=np.array([1 - p.least_data for p in report.points]),
            violated=np.array([p.violated for p in report.points]),
            label=f"claim: epsilon {rounded_up(claim[0], 4, padded=True)} at delta "
            f"{rounded_up(claim[1])}",
            title=f"Claim {report.verdict}: {report.runs} runs on each of two neighbors, "
            f"confidence {report.confidence:g}\n"
            f"epsilon is at least {rounded_down(report.epsilon_lower_bound, 3, padded=True)} "
            f"at delta {rounded_up(claim[1])}",
        )

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches: square axes."""
        return 5.8, 6.2

    def draw(self, ax: Axes) -> None:
        """Draw the claim's curve, what no attack may reach, and every threshold."""
        _draw_claim(ax, self.alpha, self.beta, self.label)
        self._draw_thresholds(ax, ~self.violated, LOWER, "rates seen, and their upper bounds")
        self._draw_thresholds(ax, self.violated, _ALARM, "rates that refute the claim")
        _draw_rates(ax, self.title)

    def _draw_thresholds(self, ax: Axes, chosen: BoolArray, color: str, label: str) -> None:
        if not np.any(chosen):
            return
        x, y = self.false_alarms[chosen], self.misses[chosen]
        right, up = self.most_false_alarms[chosen] - x, self.most_misses[chosen] - y
        ax.errorbar(
            x,
            y,
            xerr=[np.zeros_like(right), right],
            yerr=[np.zeros_like(up), up],
            fmt="o",
            color=color,
            markersize=3.6,
            elinewidth=1.1,
            clip_on=False,
            label=label,
            zorder=3,
        )
