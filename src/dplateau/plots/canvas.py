"""The door to matplotlib: figures without pyplot, files written whole, titles in few words."""

from __future__ import annotations

import io
import math
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    Cyclic,
    FixedSize,
    FullBatch,
    LastIterate,
    OnePass,
    Poisson,
    RandomStop,
    Release,
    Run,
    Schedule,
    refuse_batches,
    refuse_release,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.files import write_whole
from dplateau.ground.shown import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
_RESOLUTION = 160
# Without these a file would change with the day on which it is drawn.
_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": None}


def require_matplotlib() -> None:
    """Refuse in one line where the drawing library is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise NotApplicable(
            "drawing needs the extra plots: pip install 'dplateau[plots]'"
        ) from None


def checked_suffix(path: Path) -> str:
    """Return the suffix of a picture's path, or refuse one that cannot be drawn."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise InvalidInput(f"cannot draw {path}: it {ending}; use {', '.join(SUFFIXES)}")
    return suffix


def new_axes(size: tuple[float, float]) -> Axes:
    """Return the axes of a new figure that belongs to nobody else; ``size`` is in inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes are part of, or refuse axes that were taken out of theirs."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise InvalidInput("these axes belong to no figure; take those of plt.subplots()")
    return figure


class Display(ABC):
    """Data with a way to draw it. Subclasses are frozen dataclasses with a :meth:`plot`."""

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return 9.5, 5.2

    @abstractmethod
    def draw(self, ax: Axes) -> None:
        """Draw the data into ``ax``."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into ``ax``, or into the axes of a new figure, and return them."""
        require_matplotlib()
        axes = new_axes(self.size) if ax is None else ax
        self.draw(axes)
        return axes

    def figure(self) -> Figure:
        """Return a new figure with the picture."""
        axes = new_axes(self.size)
        self.draw(axes)
        return figure_of(axes)

    def to_bytes(self, suffix: str = ".png") -> bytes:
        """Return the picture as a file's content; the same data gives the same bytes."""
        kind = checked_suffix(Path(f"picture{suffix}"))
        figure = self.figure()
        import matplotlib as mpl

        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "dplateau"}):
            figure.savefig(buffer, format=kind[1:], dpi=_RESOLUTION, metadata=_NO_DATE[kind])
        return buffer.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the picture (.png, .svg or .pdf); no reader ever sees half a file."""
        place = Path(path)
        content = self.to_bytes(checked_suffix(place))
        write_whole(place, content)
        return place


# ---- runs in few words, for titles and labels ----------------------------------------------------


_ORDERS = {
    "cyclic": "Cyclic SGD",
    "shuffle_once": "SGD shuffled once",
    "reshuffle": "SGD reshuffled every epoch",
}
_NOISES = {
    "noise_multiplier": "noise multiplier",
    "noise_std": "noise std",
    "iterate_std": "iterate noise std",
}


def in_short(run: Run, *, length: bool = False) -> str:
    """Return the run in one line; ``length`` adds its number of steps."""
    parts = [_kind(run), f"n = {run.n}"]
    if not isinstance(run.batches, FullBatch):
        parts.append(f"batches of {run.batch_size:g}")
    if isinstance(run.batches, Poisson) and run.has_own_rate:
        parts.append(f"sampling rate {_value(run.batches.rate)}")
    if length:
        parts.append(counted(run.steps, "step"))
    parts += _geometry(run)
    if run.momentum > 0:
        parts.append(f"momentum {run.momentum:g}")
    if run.noise.name in run.parameters():
        parts.append(noise_in_short(run))
    if run.neighbors == "replace":
        several = run.group_size > 1
        parts.append(f"{f'up to {run.group_size} records' if several else 'one record'} replaced")
    return f"{', '.join(parts)}; {_released(run.release)}"


def noise_in_short(run: Run) -> str:
    """Return how much noise there is, in the unit in which it was stated."""
    return f"{_NOISES[run.noise.name]} {_value(run.noise.value)}"


def _released(release: Release) -> str:
    match release:
        case LastIterate():
            return "last iterate released"
        case AllIterates():
            return "every iterate released"
        case RandomStop():
            return "released after a random step"
        case Checkpoints(every=int(every)):
            return f"an iterate released every {counted(every, 'step')}"
        case Checkpoints(last=int(last)):
            return f"last {counted(last, 'iterate')} released"
        case Checkpoints():
            return "a few iterates released"
        case _ as unknown:
            refuse_release(unknown)


def _kind(run: Run) -> str:
    laplace = " with Laplace noise" if run.noise_kind == "laplace" else ""
    match run.batches:
        case FullBatch():
            full = "Noisy GD" if run.inverse_temperature is None else "Projected Langevin"
            return f"{full}{laplace}"
        case Poisson():
            return "Noisy SGD (Poisson batches)"
        case FixedSize():
            return "Noisy SGD (fixed-size batches)"
        case Cyclic(order=order):
            return _ORDERS[order]
        case OnePass():
            return f"One-pass SGD{laplace}"
        case _ as unknown:
            refuse_batches(unknown)


def _geometry(run: Run) -> list[str]:
    words = []
    if run.learning_rate is not None:
        words.append(f"learning rate {_value(run.learning_rate)}")
    if run.l2 > 0:
        words.append(f"l2 = {run.l2:g}")
    if math.isfinite(run.diameter):
        words.append(f"diameter {run.diameter:g}")
    return words


def _value(value: float | Schedule) -> str:
    return "by schedule" if isinstance(value, Schedule) else f"{value:g}"


def wrapped(text: str, width: int = 96) -> str:
    r"""Break a title after commas and semicolons only, into lines that fit above the axes.

    >>> wrapped("Noisy GD, n = 10, l2 = 0.1; last iterate released", 26)
    'Noisy GD, n = 10,\nl2 = 0.1;\nlast iterate released'
    """
    lines: list[str] = [""]
    for piece in re.split(r"(?<=[,;]) ", text):
        longer = f"{lines[-1]} {piece}".strip()
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(piece)
    return "\n".join(lines)
