"""Who is ahead in the main table, by how much, and what was seen before it was run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forestall.bench import Row, Summary
from forestall.bench.summary import clustered_error
from forestall.bench.table import figure
from forestall.reproduce.main_table import (
    OURS,
    Summaries,
    all_rows,
    best_of,
    plain,
    summarised,
)
from forestall.reproduce.plans import TASKS

NEAR = 0.02
# Where true scores were seen first while our method was built, and of which histories.
SEEN = {"nhanes": (0, 1, 2)}


@dataclass(frozen=True)
class Lag:
    """How far one method is behind another in lift share.

    Args:
        gap: The other's lift share minus its own.
        error: The standard error of that, context by context, seeds as clusters.
    """

    gap: float
    error: float

    def __str__(self) -> str:
        """Write it with its error."""
        return figure(self.gap, self.error)


def lag(behind: Sequence[Row], before: Sequence[Row]) -> Lag:
    """Compare two methods in the contexts that both decided.

    Args:
        behind: The rows of the one.
        before: The rows of the other, of the same task.
    """
    own = {(row.seed, row.context): row for row in behind if not row.error}
    both = [
        (own[row.seed, row.context], row)
        for row in before
        if not row.error and (row.seed, row.context) in own
    ]
    more = np.array([other.success - one.success for one, other in both])
    reach = np.array([other.oracle - other.no_action for _, other in both])
    seeds = np.array([other.seed for _, other in both], dtype=int)
    gap = float(more.mean() / reach.mean())
    error = clustered_error(more - gap * reach, seeds) / float(reach.mean())
    return Lag(gap, error)


def _lag(rows: Sequence[Row], behind: str, before: str) -> Lag:
    named = (
        [row for row in rows if row.method == method] for method in (behind, before)
    )
    return lag(*named)


def ahead(folder: Path) -> str:
    """Say task by task who is ahead, and how far our default is behind."""
    rows = all_rows(folder, "table1")
    told, lines = summarised(rows), []
    for task in TASKS:
        if (task, OURS) in told:
            here = [row for row in rows if row.task == task]
            reached = told[task, OURS].success / told[task, OURS].oracle
            lines.append(
                f"* `{task}`: {_ahead(here, told, task)}; its success is "
                f"{reached:.0%} of the oracle's."
            )
    return "\n".join(lines)


def _ahead(rows: Sequence[Row], told: Summaries, task: str) -> str:
    best, ours = best_of(told, task), _share(told[task, OURS])
    assert best is not None, "a task without lift shares has no row here"
    if best != OURS:
        gap = _lag(rows, OURS, best)
        near = ", within .02 of it" if gap.gap <= NEAR else ""
        theirs = _share(told[task, best])
        return f"ahead is {plain(best)}, {theirs}; forestall {ours}, {gap} behind{near}"
    others = {key: each for key, each in told.items() if key[1] != OURS}
    second = best_of(others, task)
    if second is None:
        return f"forestall is ahead, {ours}"
    gap = _lag(rows, second, OURS)
    return f"forestall is ahead, {ours}, of {plain(second)} by {gap}"


def _share(each: Summary) -> str:
    return figure(each.lift_share, each.lift_share_se)


def unlooked(folder: Path) -> str:
    """Say how it stands in the histories whose truth was not seen at first."""
    lines = []
    for task, seen in SEEN.items():
        rows = [row for row in all_rows(folder, "table1") if row.task == task]
        rest = [row for row in rows if row.seed not in seen]
        told = summarised(rest)
        if (task, OURS) in told and not math.isnan(told[task, OURS].lift_share):
            seeds = sorted({row.seed for row in rest})
            lines.append(
                f"`{task}` without the seeds seen first, on seeds {seeds[0]} to "
                f"{seeds[-1]} alone: {_ahead(rest, told, task)}."
            )
    return "\n".join(lines)
