"""The door to matplotlib: figures without pyplot, and pictures written whole or not at all."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground.files import write_whole

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
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise InvalidInput(f"cannot draw {path}: it {found}; use {', '.join(SUFFIXES)}")
    return suffix


def new_axes(size: tuple[float, float]) -> Axes:
    """Return the axes of a new figure that belongs to nobody else; ``size`` is in inches."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").add_subplot()


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
        figure = axes.get_figure(root=True)
        assert figure is not None
        return figure

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
