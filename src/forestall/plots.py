"""Figures: what happens without action, what each estimator sees, what comes of it.

Every function draws on axes that it is given and returns them; :func:`panels` makes
axes in the house style without touching any global state of matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from forestall import ink
from forestall.arrays import Array
from forestall.errors import RegionError, SpecError, nearest, warn
from forestall.ink import COLOURS, panels
from forestall.method import Policy
from forestall.region import Polytope, ProbitDesirability
from forestall.simulate import checked_actions, simulate
from forestall.views import calibration, landscape, overlap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "Cloud",
    "Curve",
    "before_after",
    "calibration",
    "curves",
    "landscape",
    "limits_of",
    "outcomes",
    "overlap",
    "panels",
    "smoothing",
]

# Simulated systems, and paths through each, for a cloud of outcomes.
WORLDS, PATHS = 48, 16


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
    for cloud, marker in zip(clouds, ink.MARKERS * len(clouds), strict=False):
        axes.scatter(
            cloud.points[:, 0],
            cloud.points[:, 1],
            s=9,
            marker=marker,
            color=ink.colour(cloud.colour),
            alpha=0.45,
            linewidths=0,
            label=f"{cloud.label}: {cloud.share:.1%} inside",
        )
    shade(axes, region)
    axes.set_xlabel(ink.words(region.names[0]))
    axes.set_ylabel(ink.words(region.names[1]))
    return ink.legend(axes)


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
        patch = ink.matplotlib().patches.Polygon(
            corners,
            facecolor=ink.colour("region"),
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
            axes.plot(*side.T, color=ink.colour("region"), lw=1.4, zorder=1)


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
        colour = ink.colour(line.colour)
        style = "--" if line.dashed else "-"
        axes.plot(grid, line.values, style, color=colour, lw=2, label=line.label)
        if line.peak is not None:
            ink.mark(axes, line.peak, colour)
    axes.set_xlim(float(grid[0]), float(grid[-1]))
    return ink.legend(axes)


def smoothing(axes: Axes, sharpness: Sequence[float] = (5.0, 10.0, 20.0)) -> Axes:
    r"""Draw the smooth stand-in :math:`w_\eta` of an interval for several eta.

    Args:
        axes: Where to draw.
        sharpness: The values of :math:`\eta`, in units of the outcome drawn.
    """
    region = Polytope.parse(["0 <= y <= 1"], ["y"])
    y = np.linspace(-0.6, 1.6, 441)[:, None]
    colours = [ink.colour(c) for c in ("third", "single", "nested", "region")]
    hard = ProbitDesirability(region).indicator(y)
    axes.step(y[:, 0], hard, color=ink.INK, lw=1.4, where="mid", label="indicator of S")
    for eta, colour in zip(sharpness, colours * len(sharpness), strict=False):
        w = ProbitDesirability(region, eta)(y)
        axes.plot(y[:, 0], w, color=colour, lw=1.8, label=rf"$\eta$ = {eta:g}")
    axes.set_xlabel("outcome y, desired between 0 and 1")
    axes.set_ylabel(r"desirability $w_\eta(y)$")
    return ink.legend(axes)


def before_after(
    policy: Policy,
    context: Any,
    actions: Mapping[str, Any] | None = None,
    *,
    outcomes: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what comes of one context without action and with it, beside what is wanted.

    Outcomes are simulated from the fitted mechanisms; no record is shown.

    Args:
        policy: A policy with mechanisms.
        context: One context, as a mapping or a table of one row.
        actions: The action; by default what the policy recommends. One that is not
            named comes by itself. Outside its feasible interval it is drawn with a
            warning.
        outcomes: One or two outcomes to show; by default the first two.
        ax: Where to draw; by default new axes.
    """
    before = _simulated(policy, context, None)
    shown = _shown(policy, outcomes)
    label = "as advised"
    if actions is None:
        actions = policy.recommend(context)[0].actions
    else:
        actions = checked_actions(policy, actions)
        _warn_infeasible(policy, actions)
        label = ", ".join(f"{ink.words(k)} {v:.3g}" for k, v in actions.items())
    after = _simulated(policy, context, actions)
    wanted = policy.problem.region
    clouds = [
        Cloud(name, y[:, shown], float(wanted.contains(y).mean()), colour)
        for name, y, colour in (
            ("without action", before, "no action"),
            (label, after, "nested"),
        )
    ]
    axes = ax if ax is not None else panels(1).axes[0]
    region = _shown_region(policy.problem.region, shown)
    if len(shown) == 1:
        return _densities(axes, policy.problem.outcomes[shown[0]], region, clouds)
    return _clouds(axes, [policy.problem.outcomes[k] for k in shown], region, clouds)


def _warn_infeasible(policy: Policy, actions: Mapping[str, Any]) -> None:
    """Say of what is set outside its interval that nothing is known with confidence."""
    for name, (lower, upper) in policy.problem.actions.items():
        value = actions.get(name, lower)
        if not lower <= value <= upper:
            warn(
                f"Expected {name!r} in its feasible interval [{lower:g}, {upper:g}]; "
                f"got {value:g}. What is drawn of it cannot be relied on."
            )


def _simulated(
    policy: Policy, context: Any, actions: Mapping[str, Any] | None
) -> Float[Array, "n d_y"]:
    told = simulate(policy, context, actions, n_worlds=WORLDS, n_paths=PATHS)
    return told.outcomes


def _shown(policy: Policy, names: Sequence[str] | None) -> list[int]:
    known = list(policy.problem.outcomes)
    if names is None:
        return list(range(min(2, len(known))))
    for name in names:
        if name not in known:
            raise SpecError(
                f"Expected outcomes of the problem ({', '.join(known)}); got {name!r}."
                f"{nearest(name, known)}"
            )
    if len(names) not in (1, 2):
        raise SpecError(f"Expected one or two outcomes to show; got {len(names)}.")
    return [known.index(name) for name in names]


def _shown_region(region: Polytope, shown: list[int]) -> Polytope | None:
    """Keep the constraints that speak of the shown outcomes alone."""
    hidden = np.delete(region.normals, shown, axis=1)
    rows = ~hidden.any(axis=1)
    if not rows.any():
        return None
    names = tuple(region.names[k] for k in shown)
    return Polytope(region.normals[rows][:, shown], region.offsets[rows], names=names)


def _clouds(
    axes: Axes, names: Sequence[str], region: Polytope | None, clouds: Sequence[Cloud]
) -> Axes:
    if region is None:
        # Without a constraint to show, one that everything meets shades it all.
        far = 10 * np.abs(np.concatenate([c.points for c in clouds])).max() + 1.0
        region = Polytope(np.array([[1.0, 0.0]]), np.array([far]), names=tuple(names))
    return outcomes(axes, region, clouds)


def _densities(
    axes: Axes, name: str, region: Polytope | None, clouds: Sequence[Cloud]
) -> Axes:
    points = np.concatenate([cloud.points[:, 0] for cloud in clouds])
    low, high = np.quantile(points, [0.002, 0.998])
    ends = _interval(region)
    finite = [end for end in ends if np.isfinite(end)]
    low, high = min([low, *finite]), max([high, *finite])
    grid = np.linspace(low - 0.08 * (high - low), high + 0.08 * (high - low), 300)
    for cloud in clouds:
        colour = ink.colour(cloud.colour)
        height = ink.density(cloud.points[:, 0], grid)
        axes.fill_between(grid, height, color=colour, alpha=0.25, linewidth=0)
        label = f"{cloud.label}: {cloud.share:.1%} inside"
        axes.plot(grid, height, color=colour, lw=2, label=label)
    if region is not None:
        inside = np.clip(ends, grid[0], grid[-1])
        green = ink.colour("region")
        axes.axvspan(
            *inside, color=green, alpha=0.12, lw=0, zorder=0, label="desired region"
        )
        for end in finite:
            axes.axvline(end, color=green, lw=1.4, zorder=1)
    axes.set(xlim=(grid[0], grid[-1]), ylim=(0, None), yticks=[])
    axes.set_xlabel(ink.words(name))
    axes.set_ylabel("how likely")
    return ink.legend(axes)


def _interval(region: Polytope | None) -> tuple[float, float]:
    if region is None:
        return -np.inf, np.inf
    bound = region.offsets / region.normals[:, 0]
    above = region.normals[:, 0] > 0
    return (
        max(bound[~above].tolist(), default=-np.inf),
        min(bound[above].tolist(), default=np.inf),
    )


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
