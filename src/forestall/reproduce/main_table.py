"""The main table, by both protocols, with the paper's numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from forestall.bench import Row, Summary, to_markdown
from forestall.bench.summary import summarise_rows
from forestall.bench.table import figure, markdown
from forestall.reproduce.paper import printed
from forestall.reproduce.plans import TASKS, found_parts

OURS = "staged"
PAPERS = "nested"
NONE = "none"
NAMES = {
    "staged": "**forestall** (`StagedRehearsal`)",
    "nested": "the paper's, median heuristic",
    "nested-auto": "the paper's, `auto`",
    "conditional": "single estimator",
    "qwz23": "QWZ23",
    "micns": "MICNS",
    "care": "CARE",
    "linear-optimal": "LinearOptimal",
    "grad": "Grad-Rh",
    "none": "no action",
}
LEFT = "method"

Cell = Callable[[str, str], str]
# By task and method.
Summaries = dict[tuple[str, str], Summary]


def summaries(folder: Path, name: str) -> Summaries:
    """Summarise the results of a plan, all its tasks together."""
    return summarised(all_rows(folder, name))


def summarised(rows: Iterable[Row]) -> Summaries:
    """Summarise rows, by task and method."""
    return {key: summarise_rows(each) for key, each in _grouped(rows)}


def all_rows(folder: Path, name: str) -> list[Row]:
    """Read the rows of a plan, all its tasks together."""
    return [row for part in found_parts(folder, name) for row in part.rows]


def _grouped(rows: Iterable[Row]) -> Iterable[tuple[tuple[str, str], list[Row]]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.task, row.method), []).append(row)
    return groups.items()


def lift_shares(folder: Path) -> str:
    """The share of what could be gained that each method gains."""
    told = summaries(folder, "table1")
    best = {task: best_of(told, task) for task in TASKS}

    def cell(method: str, task: str) -> str:
        if (task, method) not in told:
            return "–"
        each = told[task, method]
        if each.n_failed == each.n_rows:
            return "refused"
        text = figure(each.lift_share, each.lift_share_se, digits=2)
        return f"**{text}**" if method == best[task] else text

    return _matrix(told, cell)


def successes(folder: Path) -> str:
    """The true success of every method, and of the yardsticks."""
    told = summaries(folder, "table1")

    def cell(method: str, task: str) -> str:
        each = told.get((task, method))
        return "–" if each is None else figure(each.success, each.success_se)

    yardsticks = [
        [name, *(_yardstick(told, task, field) for task in TASKS)]
        for name, field in (
            ("oracle", "oracle"),
            ("supported oracle", "supported_oracle"),
        )
    ]
    return _matrix(told, cell, yardsticks)


def _yardstick(told: Summaries, task: str, field: str) -> str:
    each = told.get((task, NONE))
    return "–" if each is None else figure(getattr(each, field))


def in_full(folder: Path) -> str:
    """Everything that is known of every method on every task."""
    columns = [
        "success",
        "lift share",
        "supp. share",
        "by verdict",
        "harm",
        "claimed",
        "act/leave/abstain %",
        "cover",
        "fit s",
        "decide ms",
        "rows",
    ]
    told = list(summaries(folder, "table1").values())
    return to_markdown(told, columns) if told else ""


def papers_protocol(folder: Path) -> str:
    """Mean and deviation of one context for each seed, the paper's in brackets."""
    groups = dict(_grouped(all_rows(folder, "table1-paper")))

    def cell(method: str, task: str) -> str:
        rows = [row for row in groups.get((task, method), []) if not row.error]
        theirs = printed("main", task, method)
        beside = "" if math.isnan(theirs.value) else f" ({figure(theirs.value)})"
        return _mean_and_deviation([row.success for row in rows]) + beside

    oracle = [
        _mean_and_deviation([row.oracle for row in groups.get((task, NONE), [])])
        for task in TASKS
    ]
    return _matrix(groups, cell, [["oracle", *oracle]])


def _mean_and_deviation(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return figure(float(np.mean(values)), spread)


def spread_of_contexts(folder: Path) -> str:
    """Say how much the few contexts decide that no method has a hand in."""
    groups = dict(_grouped(all_rows(folder, "table1-paper")))
    here = [groups[task, NONE] for task in TASKS if (task, NONE) in groups]
    if not here:
        return ""
    told = []
    for field in ("no_action", "oracle"):
        values = [[getattr(row, field) for row in rows] for rows in here]
        spread = [float(np.std(each, ddof=1)) for each in values if len(each) > 1]
        told.append(
            f"{figure(min(spread))} to {figure(max(spread))}" if spread else "–"
        )
    n = len(here[0])
    return (
        f"{n} contexts are few. What no method has a hand in, the rows of no action "
        f"and of the oracle, deviates by {told[0]} and by {told[1]} from context to "
        f"context, by task; the standard error of a mean of {n} is "
        f"{1 / math.sqrt(n):.2f} of that."
    )


def _matrix(
    told: Iterable[tuple[str, str]], cell: Cell, more: Sequence[Sequence[str]] = ()
) -> str:
    """A row for each method that was run, a column for each task."""
    run = {method for _, method in told}
    rows = [
        [name, *(cell(method, task) for task in TASKS)]
        for method, name in NAMES.items()
        if method in run
    ]
    return markdown([LEFT, *TASKS], [*rows, *more])


def best_of(told: Summaries, task: str) -> str | None:
    """The method with the highest lift share."""
    known = {
        method: each.lift_share
        for (where, method), each in told.items()
        if where == task and not math.isnan(each.lift_share)
    }
    return max(known, key=lambda method: known[method], default=None)


def plain(method: str) -> str:
    """What a method is called within a sentence."""
    return NAMES[method].replace("*", "")


def refusals(folder: Path) -> str:
    """Quote every refusal; a method that could not be run is not passed over."""
    told: dict[str, tuple[Row, int]] = {}
    for name in ("table1-paper", "table1"):
        for row in all_rows(folder, name):
            if row.error:
                key = f"{row.task} {row.method} {row.error}"
                told[key] = (row, told.get(key, (row, 0))[1] + 1)
    if not told:
        return "No method refused a task, and none failed in any row."
    return "\n".join(
        f"* {plain(row.method)} on `{row.task}`, {count} rows: {row.error}"
        for row, count in told.values()
    )
