"""Figures: what happens without action, what each estimator sees, what comes of it.

Every function draws on axes that it is given and returns them; :func:`panels` makes
axes in the house style without touching any global state of matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import MissingExtraError, RegionError
from forestall.region import Polytope, ProbitDesirability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "Cloud",
    "Curve",
    "curves",
    "limits_of",
    "outcomes",
    "panels",
    "smoothing",
]

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


@dataclass(frozen=True, eq=False)
class Cloud:
    """Outcomes to scatter.

    Args:
        label: What the legend calls them.
        points: The outcomes, one row each.
        share: The probability of the desired region, shown beside the label.
        colour: A key of :data:`COLOURS`, or any colour of matplotlib.
    """

    label: str
    points: Array
    share: float
    colour: str


@dataclass(frozen=True, eq=False)
class Curve:
    """A function of one action, and where somebody believes that it is best.

    Args:
        label: What the legend calls it.
        values: Its values on the common grid of actions.
        colour: A key of :data:`COLOURS`, or any colour of matplotlib.
        dashed: Whether the line is dashed.
        peak: The action and the value to mark; None marks nothing.
    """

    label: str
    values: Array
    colour: str
    dashed: bool = False
    peak: tuple[float, float] | None = None


def _matplotlib() -> ModuleType:
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
    figure = _matplotlib().figure.Figure(
        figsize=(n * width, height), dpi=160, layout="constrained", facecolor="white"
    )
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08, wspace=0.04)
    for axes in np.ravel(figure.subplots(1, n)):
        _style(axes)
    return figure


def outcomes(
    axes: Axes,
    region: Polytope,
    clouds: Sequence[Cloud],
    limits: tuple[Array, Array] | None = None,
) -> Axes:
    """Scatter two outcomes with the desired region shaded.

    Args:
        axes: Where to draw.
        region: The desired region, of two outcomes.
        clouds: What to scatter, each with its share inside.
        limits: The lower left and upper right corner to show; by default what
            :func:`limits_of` finds.
    """
    _check_two_dimensional(region)
    (left, bottom), (right, top) = limits or limits_of(region, clouds)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    for cloud, marker in zip(clouds, MARKERS * len(clouds), strict=False):
        axes.scatter(
            cloud.points[:, 0],
            cloud.points[:, 1],
            s=9,
            marker=marker,
            color=_colour(cloud.colour),
            alpha=0.45,
            linewidths=0,
            label=f"{cloud.label}: {cloud.share:.1%} inside",
        )
    shade(axes, region)
    axes.set_xlabel(_words(region.names[0]))
    axes.set_ylabel(_words(region.names[1]))
    return _legend(axes)


def limits_of(region: Polytope, clouds: Sequence[Cloud]) -> tuple[Array, Array]:
    """Find corners that show nearly all points and the edges of the region."""
    points = np.concatenate([cloud.points for cloud in clouds])
    # A straggler must not squeeze the rest.
    low, high = np.quantile(points, [0.002, 0.998], axis=0)
    for m, b in zip(region.normals, region.offsets, strict=True):
        j = int(np.abs(m).argmax())
        if np.isclose(abs(m[j]), 1.0):
            low[j], high[j] = min(low[j], b / m[j]), max(high[j], b / m[j])
    pad = 0.06 * (high - low)
    return low - pad, high + pad


def shade(axes: Axes, region: Polytope) -> Axes:
    """Shade the part of a region of two outcomes that the axes show."""
    _check_two_dimensional(region)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    corners = clip(box, region)
    if len(corners):
        patch = _matplotlib().patches.Polygon(
            corners,
            facecolor=_colour("region"),
            alpha=0.12,
            linewidth=0,
            zorder=0,
            label="desired region",
        )
        axes.add_patch(patch)
        _draw_edges(axes, corners, region)
    return axes


def _draw_edges(axes: Axes, corners: Float[Array, "k 2"], region: Polytope) -> None:
    """Draw the sides that a constraint makes, not those where the axes end."""
    on = np.isclose(region.slack(corners), 0.0, atol=1e-9)
    for i in range(len(corners)):
        if (on[i - 1] & on[i]).any():
            side = corners[[i - 1, i]]
            axes.plot(*side.T, color=_colour("region"), lw=1.4, zorder=1)


def clip(corners: Float[Array, "m 2"], region: Polytope) -> Float[Array, "k 2"]:
    """Cut a convex polygon, given by its corners in turn, by a region.

    Example:
        >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> clip(square, Polytope.parse(["a >= 0.5"], ["a", "b"])).tolist()
        [[0.5, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5, 1.0]]
    """
    for k in range(len(region)):
        slack = region.slack(corners)[:, k]
        corners = _cut(corners, slack)
    return corners


def curves(axes: Axes, grid: Float[Array, " m"], lines: Sequence[Curve]) -> Axes:
    """Draw functions of one action, with what each believes to be best.

    Args:
        axes: Where to draw.
        grid: The actions.
        lines: The functions on that grid.
    """
    for line in lines:
        colour = _colour(line.colour)
        style = "--" if line.dashed else "-"
        axes.plot(grid, line.values, style, color=colour, lw=2, label=line.label)
        if line.peak is not None:
            _mark(axes, line.peak, colour)
    axes.set_xlim(float(grid[0]), float(grid[-1]))
    return _legend(axes)


def smoothing(axes: Axes, sharpness: Sequence[float] = (5.0, 10.0, 20.0)) -> Axes:
    r"""Draw the smooth stand-in :math:`w_\eta` of an interval for several eta.

    Args:
        axes: Where to draw.
        sharpness: The values of :math:`\eta`, in units of the outcome drawn.
    """
    region = Polytope.parse(["0 <= y <= 1"], ["y"])
    y = np.linspace(-0.6, 1.6, 441)[:, None]
    colours = [_colour(c) for c in ("third", "single", "nested", "region")]
    hard = ProbitDesirability(region).indicator(y)
    axes.step(y[:, 0], hard, color=INK, lw=1.4, where="mid", label="indicator of S")
    for eta, colour in zip(sharpness, colours * len(sharpness), strict=False):
        w = ProbitDesirability(region, eta)(y)
        axes.plot(y[:, 0], w, color=colour, lw=1.8, label=rf"$\eta$ = {eta:g}")
    axes.set_xlabel("outcome y, desired between 0 and 1")
    axes.set_ylabel(r"desirability $w_\eta(y)$")
    return _legend(axes)


def _style(axes: Axes) -> None:
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


def _legend(axes: Axes) -> Axes:
    # Below the axes: nothing is hidden, whatever the data.
    legend = axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.17),
        fontsize=9,
        frameon=False,
        handlelength=1.6,
        markerscale=1.8,
        labelspacing=0.35,
    )
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(max(0.3, handle.get_alpha() or 1.0))
    return axes


def _mark(axes: Axes, peak: tuple[float, float], colour: str) -> None:
    a, value = peak
    axes.axvline(a, color=colour, lw=1, ls=":", zorder=1)
    axes.plot([a], [value], "o", color=colour, ms=7, mec="white", mew=1.2, zorder=5)


def _cut(
    corners: Float[Array, "m 2"], slack: Float[Array, " m"]
) -> Float[Array, "k 2"]:
    kept: list[Array] = []
    for i in range(len(corners)):
        p, q, s, t = corners[i - 1], corners[i], slack[i - 1], slack[i]
        if (s >= 0) != (t >= 0):
            kept.append(p + (q - p) * (s / (s - t)))
        if t >= 0:
            kept.append(q)
    return np.array(kept).reshape(-1, 2)


def _check_two_dimensional(region: Polytope) -> None:
    if region.dim != 2:
        raise RegionError(
            f"Expected a region of two outcomes to draw; got {region.dim}: "
            f"{', '.join(region.names)}. Choose two of them."
        )


def _colour(name: str) -> str:
    return COLOURS.get(name, name)


def _words(name: str) -> str:
    return name.replace("_", " ")
