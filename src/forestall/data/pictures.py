"""Generated records beside real ones: every variable alone, and all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from forestall import ink
from forestall.arrays import Array
from forestall.data.likeness import correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Columns = Mapping[str, Array]

ACROSS = 6
BINS = 30
# A column with fewer values than this is drawn as bars of its own.
FEW = 12


def validation(real: Columns, generated: Columns) -> Figure:
    """Draw the marginals of every variable and three heat maps of correlations.

    Args:
        real: The records, by the name of the variable.
        generated: Generated ones, with the same names.
    """
    rows = -(-len(real) // ACROSS)
    figure = ink.matplotlib().figure.Figure(
        figsize=(14.0, 1.9 * rows + 5.0),
        dpi=160,
        layout="constrained",
        facecolor="white",
    )
    above, below = figure.subfigures(2, 1, height_ratios=[1.9 * rows, 5.0])
    marginals(above, real, generated)
    heat_maps(below, real, generated)
    return figure


def marginals(
    figure: Figure | SubFigure, real: Columns, generated: Columns
) -> list[Axes]:
    """Draw a histogram of each variable, real and generated."""
    rows = -(-len(real) // ACROSS)
    grid = np.ravel(figure.subplots(rows, ACROSS))
    for axes, name in zip(grid, real, strict=False):
        ink.style(axes)
        marginal(axes, real[name], generated[name])
        axes.set_title(ink.words(name))
    for axes in grid[len(real) :]:
        axes.set_axis_off()
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", frameon=False, fontsize=10)
    return list(grid[: len(real)])


def marginal(axes: Axes, real: Array, generated: Array) -> Axes:
    """Draw one variable: two histograms over the same bins, as densities."""
    edges = _edges(real)
    for values, colour, label in (
        (real, "nested", "real"),
        (generated, "single", "generated"),
    ):
        shown = np.clip(values, edges[0], edges[-1])
        axes.hist(
            shown,
            bins=edges.tolist(),
            density=True,
            color=ink.colour(colour),
            alpha=0.5,
            label=label,
        )
    axes.set_yticks([])
    return axes


def _edges(values: Array) -> Array:
    levels = np.unique(values)
    if len(levels) <= FEW:
        between = (levels[:-1] + levels[1:]) / 2
        return np.array([levels[0] - 0.5, *between, levels[-1] + 0.5])
    # A straggler must not squeeze the rest; what lies beyond is in the last bins.
    low, high = np.quantile(values, [0.002, 0.998])
    return np.linspace(low, high, BINS + 1)


def heat_maps(
    figure: Figure | SubFigure, real: Columns, generated: Columns
) -> list[Axes]:
    """Draw the correlations of real and generated records, and their difference."""
    names = list(real)
    truth, made = correlations(real, names), correlations(generated, names)
    titles = ("real", "generated", "generated minus real")
    grid = list(np.ravel(figure.subplots(1, 3)))
    for axes, title, r in zip(grid, titles, (truth, made, made - truth), strict=True):
        heat_map(axes, r, names)
        axes.set_title(title, fontsize=11, color=ink.INK)
    figure.colorbar(grid[0].images[0], ax=grid, shrink=0.7)
    return grid


def heat_map(axes: Axes, r: Array, names: Sequence[str]) -> Axes:
    """Draw one matrix of correlations, all on the same scale."""
    axes.imshow(r, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    words = [ink.words(name) for name in names]
    axes.set_xticks(range(len(names)), words, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), words, fontsize=7)
    return axes
