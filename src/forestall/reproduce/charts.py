"""The figures that are drawn from results, each a function of the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forestall import ink
from forestall.reproduce import main_table, sensitivity, small_tables, theory
from forestall.reproduce.paper import printed
from forestall.reproduce.pictures import save
from forestall.reproduce.plans import TASKS
from forestall.reproduce.sheet import read_either, read_sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# As many colours as there are methods, the main ones of the house first.
COLOURS = {
    "staged": ("#009E73", "o"),
    "nested": ("#0072B2", "s"),
    "nested-auto": ("#56B4E9", "s"),
    "conditional": ("#D55E00", "^"),
    "qwz23": ("#CC79A7", "v"),
    "micns": ("#a6761d", "<"),
    "care": ("#E69F00", ">"),
    "linear-optimal": ("#222222", "x"),
    "grad": ("#7570b3", "D"),
}
LEAST = -0.5

Draw = Callable[[Path], "Figure | None"]


def draw(folder: Path, images: Path) -> list[Path]:
    """Draw every figure whose results are there.

    Args:
        folder: Where the results are.
        images: Where the figures go.
    """
    made = {name: make(folder) for name, make in CHARTS.items()}
    return [save(f, images / f"{name}.png") for name, f in made.items() if f]


def lift_shares(folder: Path) -> Figure | None:
    """Every method on every task, as a share of what could be gained."""
    told = main_table.summaries(folder, "table1")
    if not told:
        return None
    figure = ink.panels(1, width=8.4, height=4.6)
    axes = figure.axes[0]
    present = [task for task in TASKS if (task, main_table.OURS) in told]
    for k, (method, (colour, marker)) in enumerate(COLOURS.items()):
        at = [
            (i, told[t, method]) for i, t in enumerate(present) if (t, method) in told
        ]
        across = [i + 0.07 * (k - 4) for i, _ in at]
        shares = [max(each.lift_share, LEAST) for _, each in at]
        label = main_table.NAMES[method].replace("*", "").replace("`", "")
        axes.plot(across, shares, marker, color=colour, ms=6, label=label)
    axes.axhline(0.0, color=ink.INK, lw=1)
    axes.axhline(1.0, color=ink.INK, lw=1, ls="--")
    axes.set_xticks(range(len(present)), present)
    axes.set_ylabel(f"lift share (below {LEAST:g} drawn there)")
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.1),
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    return figure


def eta(folder: Path) -> Figure | None:
    """Success by sharpness, ours and the paper's."""
    told = sensitivity.of_task(folder, "eta")
    if not told:
        return None
    figure = ink.panels(1, width=5.2)
    axes, names = figure.axes[0], sensitivity.ETAS
    values = [float(name) for name in names]
    ours, spread = (
        [getattr(told[name], field) for name in names]
        for field in ("success", "success_se")
    )
    axes.errorbar(
        values,
        ours,
        yerr=spread,
        color=ink.colour("nested"),
        marker="o",
        capsize=3,
        label="the paper's method, here",
    )
    theirs = [printed("eta", name, "success").value for name in names]
    axes.plot(values, theirs, "--^", color=ink.colour("single"), label="as printed")
    axes.axhline(told["10"].oracle, color=ink.INK, lw=1, ls=":", label="oracle, here")
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(values, names)
    axes.set(xlabel=r"$\eta$", ylabel="success on non-syn1", ylim=(0, None))
    ink.legend(axes)
    return figure


def regularisation(folder: Path) -> Figure | None:
    """Both penalties, ours beside the paper's."""
    told = sensitivity.of_task(folder, "regularisation")
    if not told:
        return None
    figure = ink.panels(2, width=4.4, height=3.9)
    names = sensitivity.FACTORS
    ours = [[told[f"{h}x{x}"].success for x in names] for h in names]
    theirs = [[printed("regularisation", h, x).value for x in names] for h in names]
    for axes, grid, title in zip(
        figure.axes, (ours, theirs), ("here", "as printed"), strict=True
    ):
        _heat(axes, grid, names)
        axes.set_title(title)
    return figure


def _heat(axes: Axes, grid: Sequence[Sequence[float]], names: Sequence[str]) -> None:
    axes.imshow(grid, cmap="YlGn", vmin=0.0, vmax=0.8)
    axes.grid(False)
    for i, row in enumerate(grid):
        for j, value in enumerate(row):
            axes.text(j, i, f"{value:.3f}", ha="center", va="center", fontsize=8)
    ticks = [f"{name}×" for name in names]
    axes.set_xticks(range(len(names)), ticks)
    axes.set_yticks(range(len(names)), ticks)
    axes.set(xlabel=r"$\lambda_x$", ylabel=r"$\lambda_h$")


def theorem1(folder: Path) -> Figure | None:
    """The gap of every case under its bound."""
    groups = small_tables.by(read_sheet(folder, theory.SURROGATE), "case")
    if not groups:
        return None
    figure = ink.panels(1, width=5.6, height=4.6)
    axes = figure.axes[0]
    for (case, lines), colour in zip(groups.items(), _palette(), strict=False):
        etas, gaps, bounds = (
            small_tables.column(lines, name) for name in ("eta", "gap", "bound")
        )
        rate = theory.slope(etas[-3:], gaps[-3:])
        axes.loglog(etas, gaps, "o-", color=colour, ms=4, label=f"{case}: {rate:.2f}")
        axes.loglog(etas, bounds, ":", color=colour, lw=1.2)
    axes.set(xlabel=r"$\eta$", ylabel="gap (lines), bound of the proof (dotted)")
    axes.set_title("Theorem 1, with fitted exponents")
    ink.legend(axes)
    return figure


def theorem2(folder: Path) -> Figure | None:
    """The error of both estimators by the number of records."""
    groups = small_tables.by(read_either(folder, theory.ESTIMATOR), "estimator")
    if not groups:
        return None
    figure = ink.panels(1, width=5.6, height=4.6)
    axes = figure.axes[0]
    for (name, lines), colour in zip(groups.items(), _palette(), strict=False):
        sizes, errors = small_tables.mean_errors(lines)
        label = f"{small_tables.NAMES[name]}: {theory.slope(sizes, errors):.2f}"
        axes.loglog(sizes, errors, "o-", color=colour, ms=4, label=label)
        if name == theory.PACED:
            order = theory.order_of_bound(np.array(sizes))
            # The constant of the bound is free: the least that holds at all sizes.
            scaled = order * np.max(errors / order)
            label = f"order of the bound: {theory.slope(sizes, order.tolist()):.2f}"
            axes.loglog(sizes, scaled, ":", color=colour, label=label)
    axes.set(xlabel="records N", ylabel="mean error of the objective")
    axes.set_title("Theorem 2, with fitted exponents")
    ink.legend(axes)
    return figure


def subsets(folder: Path) -> Figure | None:
    """What altering so many actions is worth: every subset a point."""
    told = {task: sensitivity.ranked(folder, task) for task in TASKS}
    shown = {task: each for task, each in told.items() if each}
    if not shown:
        return None
    figure = ink.panels(len(shown), width=2.6, height=3.2)
    for axes, (task, each) in zip(figure.axes, shown.items(), strict=True):
        sizes = [sensitivity.size(one) for one in each]
        axes.plot(sizes, [one.success for one in each], "o", color=COLOURS["staged"][0])
        axes.axhline(each[0].no_action, color=ink.colour("no action"), lw=1.2)
        axes.axhline(each[0].oracle, color=ink.INK, lw=1, ls="--")
        axes.set_xticks(sorted(set(sizes)))
        axes.set(title=task, xlabel="actions altered", ylim=(0, 1))
    figure.axes[0].set_ylabel("success")
    return figure


def _palette() -> list[str]:
    return [ink.colour(name) for name in ("nested", "region", "single", "third")]


CHARTS: dict[str, Draw] = {
    "lift-shares": lift_shares,
    "eta": eta,
    "regularisation": regularisation,
    "theorem1": theorem1,
    "theorem2": theorem2,
    "subsets": subsets,
}
