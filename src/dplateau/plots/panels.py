"""Figures of papers: one or several panels of lines, points or contours side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dplateau.ground.types import FloatArray
from dplateau.plots.canvas import Display, require_matplotlib
from dplateau.plots.lines import LOWER, draw_frame, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale = Literal["linear", "log"]


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a panel. ``kind`` says whose it is, and so how it is drawn."""

    label: str
    x: FloatArray
    y: FloatArray
    kind: Literal["ours", "paper", "lower", "points"] = "paper"


@dataclass(frozen=True, eq=False)
class Surface:
    """The height over a grid, drawn as contours, with the lowest point that is known."""

    x: FloatArray
    y: FloatArray
    height: FloatArray
    lowest: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes with what is drawn in it."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...] = ()
    surface: Surface | None = None
    x_scale: Scale = "linear"
    y_scale: Scale = "log"
    y_limits: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class PanelsDisplay(Display):
    """Panels side by side: ours solid, the papers' dashed, lower bounds dotted."""

    panels: tuple[Panel, ...]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return (9.5 if len(self.panels) == 1 else 5.2 * len(self.panels)), 4.6

    def draw(self, ax: Axes) -> None:
        """Draw the first panel into ``ax``."""
        draw_panel(ax, self.panels[0])

    def figure(self) -> Figure:
        """Return a new figure with all panels."""
        require_matplotlib()
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, layout="constrained")
        axes = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for ax, panel in zip(axes, self.panels, strict=True):
            draw_panel(ax, panel)
        return figure


def draw_panel(ax: Axes, panel: Panel) -> None:
    """Draw one panel."""
    drawn = [line for line in panel.lines if line.kind in ("ours", "paper")]
    hidden = [line.kind == "ours" for line in drawn]
    ends = [float(line.y[-1]) for line in drawn]
    chosen = dict(zip(map(id, drawn), looks(hidden, ends), strict=True))
    for line in panel.lines:
        match line.kind:
            case "lower":
                ax.plot(line.x, line.y, color=LOWER, linestyle=":", linewidth=1.6, label=line.label)
            case "points":
                ax.plot(line.x, line.y, ".", color="#BBBBBB", markersize=2, label=line.label)
            case _:
                look = chosen[id(line)]
                ax.plot(
                    line.x,
                    line.y,
                    color=look.color,
                    linestyle=look.style,
                    linewidth=look.width,
                    zorder=look.layer,
                    label=line.label,
                )
    if panel.surface is not None:
        _draw_surface(ax, panel.surface)
    ax.set_xscale(panel.x_scale)
    ax.set_yscale(panel.y_scale)
    if panel.y_limits is not None:
        ax.set_ylim(*panel.y_limits)
    draw_frame(ax, panel.title, panel.x_label, panel.y_label)
    if panel.lines:
        ax.legend(fontsize=8, frameon=False)


def _draw_surface(ax: Axes, surface: Surface) -> None:
    shown = ax.contourf(surface.x, surface.y, surface.height, levels=24, cmap="cividis")
    ax.contour(
        surface.x, surface.y, surface.height, levels=24, colors="white", linewidths=0.3, alpha=0.6
    )
    figure = ax.get_figure(root=True)
    if figure is not None:
        figure.colorbar(shown, ax=ax, label="sum of squares (log10)")
    ax.plot(*surface.lowest, marker="o", color="#D55E00", markersize=8, linestyle="none")
    ax.annotate(
        "closed form: the global minimum",
        surface.lowest,
        xytext=(8, 8),
        textcoords="offset points",
        color="white",
        fontsize=8.5,
    )
