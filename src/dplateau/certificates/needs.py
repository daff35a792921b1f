"""The noise that each classical accountant asks for, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplateau.algorithms import Run, require_run
from dplateau.bounds.base import Bound
from dplateau.bounds.registry import BOUNDS
from dplateau.certificates.calibrate import calibrate
from dplateau.errors import NotApplicable
from dplateau.ground.shown import rounded_up

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class NoiseNeed:
    """One bound's smallest noise for the target, and its ratio to the least of all."""

    bound: str
    title: str
    noise: float | None
    ratio: float | None
    reason: str | None


@dataclass(frozen=True)
class NoiseNeeds:
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

    >>> from dplateau import NoisyGD
    >>> run = NoisyGD(n=100, steps=10, noise_multiplier=1.0, release="all")
    >>> needs = noise_needed(run, epsilon=1.0, delta=1e-5)
    >>> needs.noise("naive_composition") > needs.noise("gdp_composition")
    True
    """
    found: list[tuple[str, str, float | None, str | None]] = []
    for bound in BOUNDS:
        reason = bound.refusal(require_run(run))
        if bound.sound and reason is None:
            found.append((bound.name, bound.title, *_need(run, epsilon, delta, bound)))
        elif bound.sound:
            found.append((bound.name, bound.title, None, reason))
    least = min((value for _, _, value, _ in found if value is not None), default=None)
    if least is None:
        raise NotApplicable("no bound applies to this run; compare(run, delta) says why")
    rows = [
        NoiseNeed(name, title, value, None if value is None else value / least, reason)
        for name, title, value, reason in found
    ]
    rows.sort(key=lambda row: float("inf") if row.noise is None else row.noise)
    return NoiseNeeds(run.noise.name, epsilon, delta, tuple(rows))


def _need(run: Run, epsilon: float, delta: float, bound: Bound) -> tuple[float | None, str | None]:
    try:
        return calibrate(run, epsilon, delta, bounds=(bound,)).value, None
    except NotApplicable as reason:
        return None, str(reason)
