"""The house style of figures: colours, axes, legends, without any global state."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers, and in grey by lightness.
COLOURS = {
    "no action": "#7a7a7a",
    "single": "#D55E00",
    "nested": "#0072B2",
    "truth": "#222222",
    "region": "#009E73",
    "third": "#CC79A7",
}
INK = "#222222"
FAINT = "#d9d9d9"
MARKERS = ("o", "^", "s", "D")


def matplotlib() -> ModuleType:
    """Load matplotlib, or say what to install."""
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.patches
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    return matplotlib


def panels(n: int, *, width: float = 4.2, height: float = 3.9) -> Figure:
    """Make a figure of ``n`` axes side by side, in the house style.

    Args:
        n: How many axes.
        width: The width of each, in inches.
        height: The height of the figure, in inches.
    """
    figure = matplotlib().figure.Figure(
        figsize=(n * width, height), dpi=160, layout="constrained", facecolor="white"
    )
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08, wspace=0.04)
    for axes in np.ravel(figure.subplots(1, n)):
        style(axes)
    return figure


def style(axes: Axes) -> None:
    """Give axes the house style."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#9a9a9a")
    axes.tick_params(colors=INK, labelsize=9, length=3, color="#9a9a9a")
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.title.set(fontsize=11, color=INK)
    axes.xaxis.label.set(fontsize=10, color=INK)
    axes.yaxis.label.set(fontsize=10, color=INK)


def legend(axes: Axes, handlelength: float = 1.6) -> Axes:
    """Put a legend below the axes: nothing is hidden, whatever the data.

    Args:
        axes: Where to put it.
        handlelength: How long its lines are; long enough to tell dashes apart.
    """
    drawn = axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        fontsize=9,
        frameon=False,
        handlelength=handlelength,
        markerscale=1.8,
        labelspacing=0.35,
    )
    for handle in filter(None, drawn.legend_handles):
        alpha = handle.get_alpha()
        if alpha is not None:
            handle.set_alpha(max(0.3, alpha))
    return axes


def mark(axes: Axes, peak: tuple[float, float], colour: str) -> None:
    """Mark a point, and where it stands on the axis below."""
    a, value = peak
    axes.axvline(a, color=colour, lw=1, ls=":", zorder=1)
    axes.plot([a], [value], "o", color=colour, ms=7, mec="white", mew=1.2, zorder=5)


def density(points: Float[Array, " n"], grid: Float[Array, " m"]) -> Float[Array, " m"]:
    """Estimate a density, by a Gaussian kernel of Silverman's width."""
    low, high = np.quantile(points, [0.25, 0.75])
    deviation = float(points.std())
    # Of a yes or a no most may be the same.
    spread = min(deviation, float(high - low) / 1.349) or deviation or 1e-12
    width = 0.9 * spread * len(points) ** -0.2
    apart = (grid[:, None] - points) / width
    return np.exp(-0.5 * apart**2).mean(axis=1) / (width * np.sqrt(2 * np.pi))


def colour(name: str) -> str:
    """Look up a colour of the house; any other stays as it is."""
    return COLOURS.get(name, name)


def words(name: str) -> str:
    """Write a name as words."""
    return name.replace("_", " ")
