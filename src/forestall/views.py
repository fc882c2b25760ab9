"""Figures of a fitted policy: where it would act, what history allows, how it fits.

No record is shown, only what was learned from many: records may be about persons.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from forestall import ink
from forestall.arrays import Array
from forestall.decisions import Decision, Decisions, percent
from forestall.diagnostics import contexts_at, leeways_of, left_out_predictions
from forestall.errors import SpecError, nearest
from forestall.method import Policy
from forestall.observations import Observations
from forestall.overlap import REACH_SDS
from forestall.quality import Learned, learned
from forestall.rehearsal import Rehearsal
from forestall.simulate import brisk, one_context, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Points along one action, and along each of two.
LINE, SIDE = 49, 21
# Records that a band or a dot stands for at least: none is about one of them.
TOGETHER = 10
BINS = 20
LINES = ("-", "--", "-.", ":")
HATCH = "////"
UNLIKE = "extrapolation: hardly any record is like this"
# Differences of chances that count as none.
SLIGHT = 1e-3
SURE = "inside: credibly better than no action"
ALL_SURE = "everywhere credibly better than no action"


def landscape(
    policy: Policy,
    context: Any,
    actions: Sequence[str] | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how likely a good outcome is over one action or two.

    What history hardly supports is hatched. Over one action the band is the 90 %
    interval; over two a line surrounds what is credibly better than no action. Actions
    that are not shown are held at what the policy recommends.

    Args:
        policy: A fitted policy.
        context: One context, as a mapping or a table of one row.
        actions: One or two actions; by default the first two.
        ax: Where to draw; by default new axes.
    """
    x = one_context(policy, context)
    shown = _shown(policy, actions)
    advice = policy.recommend(context)[0]
    axes = ax if ax is not None else ink.panels(1, width=5.2, height=4.6).axes[0]
    if len(shown) == 1:
        _draw_line(axes, policy, x, advice, shown[0])
    else:
        _draw_map(axes, policy, x, advice, (shown[0], shown[1]))
        _draw_usual(axes, policy, context, (shown[0], shown[1]))
    held = {k: v for k, v in advice.actions.items() if k not in shown}
    if held:
        told = ", ".join(f"{ink.words(k)} {v:.3g}" for k, v in held.items())
        axes.set_title(f"with {told}", fontsize=10)
    return ink.legend(axes)


def overlap(policy: Policy, action: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw how far history let an action stray from what was usual.

    Records are put in order of what was usual for them; a band holds nine of ten
    actions that were taken there, a wider one what three deviations reach.

    Args:
        policy: A fitted policy that keeps its records.
        action: The action; by default the first.
        ax: Where to draw; by default new axes.
    """
    (name,) = _shown(policy, action or next(iter(policy.problem.actions)))
    told = next(each for each in leeways_of(policy) if each.action == name)
    axes = ax if ax is not None else ink.panels(1, width=5.0, height=4.6).axes[0]
    order = np.argsort(told.usual)
    groups = np.array_split(order, max(1, min(BINS, len(order) // TOGETHER)))
    counts = np.array([len(group) for group in groups])
    place = (np.cumsum(counts) - counts / 2) / len(order)
    usual = np.array([told.usual[g].mean() for g in groups])
    taken = [np.quantile(told.values[told.rows[g]], [0.05, 0.95]) for g in groups]
    low, high = np.array(taken).T
    reach = REACH_SDS * told.overlap().deviation
    blue = ink.colour("nested")
    axes.axhspan(
        told.lower,
        told.upper,
        color=ink.colour("region"),
        alpha=0.12,
        lw=0,
        zorder=0,
        label="feasible",
    )
    for end in (told.lower, told.upper):
        axes.axhline(end, color=ink.colour("region"), lw=1.4, zorder=1)
    axes.fill_between(
        place,
        usual - reach,
        usual + reach,
        color=blue,
        alpha=0.15,
        lw=0,
        label="within reach: three deviations from the usual",
    )
    axes.fill_between(
        place, low, high, color=blue, alpha=0.35, lw=0, label="nine of ten actions"
    )
    axes.plot(place, usual, color=blue, lw=2, label="usual, given what was known")
    axes.set(xlim=(place[0], place[-1]))
    axes.xaxis.set_major_formatter(_percent)
    axes.set_xlabel("contexts, in order of what was usual")
    axes.set_ylabel(ink.words(name))
    share = told.overlap().reach
    axes.set_title(f"history reaches {share:.0%} of the feasible interval", fontsize=10)
    return ink.legend(axes)


def calibration(policy: Policy, ax: Axes | None = None) -> Axes:
    """Draw where left-out records lie in the laws that were learned for them.

    On the diagonal as many lie below each level as should; the shade is what chance
    allows. A dotted line is a part of the records for which a law is clearly wrong. For
    a policy without mechanisms, what it predicted against how often it came true.

    Args:
        policy: A fitted policy that keeps its records.
        ax: Where to draw; by default new axes.
    """
    axes = ax if ax is not None else ink.panels(1, width=4.8, height=5.2).axes[0]
    axes.plot([0, 1], [0, 1], color=ink.INK, lw=1, zorder=1)
    system = getattr(policy, "system", None)
    if isinstance(system, Rehearsal):
        data: Observations = policy.data  # type: ignore[attr-defined]
        _draw_levels(axes, learned(system, data), data.n)
    else:
        _draw_reliability(axes, policy)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.xaxis.set_major_formatter(_percent)
    axes.yaxis.set_major_formatter(_percent)
    return ink.legend(axes, handlelength=4.2)


def _draw_line(
    axes: Axes, policy: Policy, x: Float[Array, "1 d_x"], advice: Decision, name: str
) -> None:
    lower, upper = policy.problem.actions[name]
    grid = np.linspace(lower, upper, LINE)
    told = _evaluated(brisk(policy, 64, 32), x, advice, {name: grid})
    blue = ink.colour("nested")
    _shade_runs(axes, grid, np.asarray(told.extrapolates, dtype=bool))
    if not np.isnan(told.lower).all():
        axes.fill_between(
            grid,
            told.lower,
            told.upper,
            color=blue,
            alpha=0.2,
            lw=0,
            label="90 % interval",
        )
    axes.plot(grid, told.probability, color=blue, lw=2, label="with this action")
    axes.axhline(
        advice.no_action,
        color=ink.colour("no action"),
        ls="--",
        lw=1.6,
        label=f"without action: {percent(advice.no_action)}",
    )
    ink.mark(axes, (advice.actions[name], advice.probability), ink.colour("single"))
    axes.lines[-1].set_label(_advice_text(advice, [name]))
    axes.set(xlim=(grid[0], grid[-1]), ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(_percent)
    axes.set_xlabel(ink.words(name))
    axes.set_ylabel("chance of a good outcome")


def _draw_map(
    axes: Axes,
    policy: Policy,
    x: Float[Array, "1 d_x"],
    advice: Decision,
    names: tuple[str, str],
) -> None:
    bounds = [policy.problem.actions[name] for name in names]
    first, second = (np.linspace(low, high, SIDE) for low, high in bounds)
    A, B = np.meshgrid(first, second)
    given = {names[0]: A.ravel(), names[1]: B.ravel()}
    told = _evaluated(brisk(policy, 16, 16), x, advice, given)
    filled = axes.contourf(
        A,
        B,
        told.probability.reshape(A.shape),
        levels=np.linspace(0.0, 1.0, 11),
        cmap="cividis",
    )
    bar = axes.figure.colorbar(filled, ax=axes, shrink=0.9)
    bar.set_label("chance of a good outcome", fontsize=10, color=ink.INK)
    bar.ax.yaxis.set_major_formatter(_percent)
    bar.ax.tick_params(labelsize=9, length=3)
    bar.outline.set_visible(False)
    _draw_break_even(axes, A, B, told.probability.reshape(A.shape), advice)
    _draw_sure(axes, A, B, told)
    _hatch(axes, A, B, np.asarray(told.extrapolates, dtype=bool).reshape(A.shape))
    axes.plot(
        *([advice.actions[name]] for name in names),
        "o",
        color=ink.colour("single"),
        ms=9,
        mec="white",
        mew=1.5,
        zorder=6,
        clip_on=False,
        ls="none",
        label=_advice_text(advice, names),
    )
    axes.grid(False)
    axes.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
    axes.set_xlabel(ink.words(names[0]))
    axes.set_ylabel(ink.words(names[1]))


def _draw_break_even(
    axes: Axes,
    A: Float[Array, "m m"],
    B: Float[Array, "m m"],
    p: Float[Array, "m m"],
    advice: Decision,
) -> None:
    level = advice.no_action
    if p.min() < level < p.max():
        axes.contour(
            A, B, p, levels=[level], colors="white", linewidths=1.6, linestyles="--"
        )
        without = f"as likely as without action: {percent(level)}"
        axes.plot([], [], "--", color=ink.colour("no action"), lw=1.6, label=without)


def _draw_sure(
    axes: Axes, A: Float[Array, "m m"], B: Float[Array, "m m"], told: Decisions
) -> None:
    """Surround the actions whose gain over no action is above zero, with 95 %."""
    sure = np.array([verdict == "act" for verdict in told.verdict])
    # The verdict tells the sides; the interval, where between two points the line is.
    above = np.nan_to_num(told.lower - told.no_action)
    height = np.where(sure, np.maximum(above, SLIGHT), np.minimum(above, -SLIGHT))
    colour = ink.colour("third")
    if sure.all():
        axes.plot([], [], " ", label=ALL_SURE)
    elif sure.any():
        z = height.reshape(A.shape)
        axes.contour(A, B, z, levels=[0.0], colors=colour, linewidths=2)
        axes.plot([], [], color=colour, lw=2, label=SURE)


def _draw_usual(
    axes: Axes, policy: Policy, context: Any, names: tuple[str, str]
) -> None:
    """Outline what is usually done here, by the mechanisms of the actions."""
    if not isinstance(getattr(policy, "system", None), Rehearsal):
        return
    # Loading scipy.stats takes longer than most figures: only where needed.
    from scipy.stats import gaussian_kde

    columns = [policy.schema.actions.names.index(name) for name in names]
    points = simulate(policy, context).actions[:, columns].T
    if np.linalg.matrix_rank(np.cov(points)) < 2:
        return
    kde = gaussian_kde(points)
    level = float(np.quantile(kde(points), 0.1))
    left, right, bottom, top = *axes.get_xlim(), *axes.get_ylim()
    A, B = np.meshgrid(np.linspace(left, right, 80), np.linspace(bottom, top, 80))
    height = kde(np.stack([A.ravel(), B.ravel()])).reshape(A.shape)
    if not height.min() < level < height.max():
        return
    axes.contour(A, B, height, levels=[level], colors="white", linewidths=3.0)
    axes.contour(A, B, height, levels=[level], colors=ink.INK, linewidths=1.4)
    axes.plot([], [], color=ink.INK, lw=1.4, label="usual here: nine of ten actions")


def _hatch(
    axes: Axes,
    A: Float[Array, "m m"],
    B: Float[Array, "m m"],
    unlike: Bool[Array, "m m"],
) -> None:
    if not unlike.any():
        return
    drawn = axes.contourf(
        A, B, unlike.astype(float), levels=[0.5, 1.5], colors="none", hatches=[HATCH]
    )
    drawn.set_edgecolor("#ffffff")
    drawn.set_linewidth(0.0)
    # What contourf fills has no entry in a legend; this has nothing but one.
    axes.fill_between(
        [], [], facecolor="#9a9a9a", edgecolor="white", hatch=HATCH, lw=0, label=UNLIKE
    )


def _shade_runs(
    axes: Axes, grid: Float[Array, " m"], unlike: Bool[Array, " m"]
) -> None:
    """Shade each run of actions that history does not support."""
    half = (grid[1] - grid[0]) / 2
    edges = np.flatnonzero(np.diff(np.r_[False, unlike, False]))
    for i, (start, stop) in enumerate(edges.reshape(-1, 2).tolist()):
        axes.axvspan(
            max(grid[start] - half, grid[0]),
            min(grid[stop - 1] + half, grid[-1]),
            facecolor="#f0f0f0",
            edgecolor="#c4c4c4",
            hatch=HATCH,
            lw=0,
            zorder=0,
            label=UNLIKE if i == 0 else None,
        )


def _draw_levels(axes: Axes, all_: Sequence[Learned], n: int) -> None:
    levels = np.linspace(0.0, 1.0, 201)
    # Kolmogorov and Smirnov: nineteen of twenty lines stay within this distance.
    slack = 1.36 / np.sqrt(n)
    axes.fill_between(
        levels,
        levels - slack,
        levels + slack,
        color=ink.FAINT,
        lw=0,
        zorder=0,
        label="what chance allows",
    )
    colours = [ink.colour(c) for c in ("nested", "single", "region", "third")]
    for k, each in enumerate(all_):
        colour = colours[k % len(colours)]
        style = LINES[k // len(colours) % len(LINES)]
        share = np.searchsorted(np.sort(each.levels), levels) / len(each.levels)
        label = ink.words(each.name)
        axes.plot(levels, share, color=colour, ls=style, lw=1.8, label=label)
        odd = each.odd_part()
        # What is wrong everywhere is the line itself.
        if odd is not None and odd.where:
            part = np.sort(each.levels[odd.rows])
            share = np.searchsorted(part, levels) / len(part)
            label = f"{ink.words(each.name)}, where {ink.words(odd.where)}"
            axes.plot(levels, share, color=colour, ls=":", lw=2.2, label=label)
    axes.set_xlabel("level of the learned law")
    axes.set_ylabel("left-out records below it")


def _draw_reliability(axes: Axes, policy: Policy) -> None:
    found = left_out_predictions(policy)
    if found is None:
        raise SpecError(
            f"Expected a policy that can leave records out; got "
            f"{type(policy).__name__}, which cannot. Fit with StagedRehearsal()."
        )
    predicted, good = np.clip(found[0], 0.0, 1.0), found[1]
    order = np.argsort(predicted)
    groups = np.array_split(order, max(1, min(10, len(order) // TOGETHER)))
    said = np.array([predicted[g].mean() for g in groups])
    came = np.array([good[g].mean() for g in groups])
    count = np.array([len(g) for g in groups])
    doubt = 1.645 * np.sqrt(np.maximum(came * (1 - came), 0.01) / count)
    axes.errorbar(
        said,
        came,
        yerr=doubt,
        fmt="o",
        color=ink.colour("nested"),
        ms=6,
        capsize=0,
        elinewidth=1.4,
        label="a tenth of the records, with 90 % interval",
    )
    axes.set_xlabel("predicted chance of a good outcome")
    axes.set_ylabel("left-out records that were good")


def _evaluated(
    policy: Policy,
    x: Float[Array, "1 d_x"],
    advice: Decision,
    given: dict[str, Array],
) -> Decisions:
    """Assess a grid of actions, the others as advised."""
    n = len(next(iter(given.values())))
    columns = {k: given.get(k, np.full(n, v)) for k, v in advice.actions.items()}
    with warnings.catch_warnings():
        # The recommendation for this context has said it already.
        warnings.simplefilter("ignore")
        contexts = contexts_at(policy.schema, np.repeat(x, n, axis=0))
        return policy.evaluate(contexts, columns)


def _shown(policy: Policy, actions: Sequence[str] | str | None) -> list[str]:
    known = list(policy.problem.actions)
    if actions is None:
        return known[:2]
    names = [actions] if isinstance(actions, str) else list(actions)
    for name in names:
        if name not in known:
            raise SpecError(
                f"Expected actions of the problem ({', '.join(known)}); got {name!r}."
                f"{nearest(name, known)}"
            )
    if len(set(names)) not in (1, 2) or len(set(names)) != len(names):
        raise SpecError(
            f"Expected one action to show, or two different ones; got "
            f"{', '.join(names) or 'none'}. Name one or two of {', '.join(known)}."
        )
    return names


def _advice_text(advice: Decision, names: Sequence[str]) -> str:
    told = ", ".join(f"{ink.words(name)} {advice.actions[name]:.3g}" for name in names)
    head = "advice" if advice.verdict == "act" else f"best ({advice.verdict})"
    return f"{head}: {told}, {percent(advice.probability)} likely"


def _percent(value: float, _: object) -> str:
    return f"{value:.0%}"
