"""One method on all tasks of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forestall.bench.summary import Summary


@dataclass(frozen=True)
class Extreme:
    """A figure of the task in which it is worst.

    Args:
        value: The figure; NaN when no task has one.
        task: The task's name; empty when there is none.
    """

    value: float
    task: str


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """One method on all tasks.

    Shares of what can be gained are averaged over tasks, each counting the same;
    coverage, width and bias are of all rows in which the method acts.

    Args:
        method: The method's label.
        n_tasks: How many tasks.
        lift_share: The mean over the tasks in which something can be gained.
        lowest_lift_share: The lowest of them.
        supported_lift_share: The mean against the supported oracle.
        verdict_lift_share: The mean when the verdicts are followed.
        coverage: Share of acted rows whose interval holds the true success.
        width: The mean width of these intervals.
        bias: The mean of (probability - true success) over acted rows.
        claimed: The mean over the tasks of what the method claims to improve.
        regret_of_verdict: The largest of no action minus success by verdict.
    """

    method: str
    n_tasks: int
    lift_share: float
    lowest_lift_share: Extreme
    supported_lift_share: float
    verdict_lift_share: float
    coverage: float
    width: float
    bias: float
    claimed: float
    regret_of_verdict: Extreme


def pool(summaries: Sequence[Summary]) -> list[Pooled]:
    """Pool the tasks of each method, in the order in which methods come."""
    groups: dict[str, list[Summary]] = {}
    for each in summaries:
        groups.setdefault(each.method, []).append(each)
    return [_pooled(group) for group in groups.values()]


def _pooled(group: Sequence[Summary]) -> Pooled:
    acted = [each.act * (each.n_rows - each.n_failed) for each in group]
    return Pooled(
        method=group[0].method,
        n_tasks=len(group),
        lift_share=_mean([each.lift_share for each in group]),
        lowest_lift_share=_least(group, lambda each: each.lift_share),
        supported_lift_share=_mean([each.supported_lift_share for each in group]),
        verdict_lift_share=_mean([each.verdict_lift_share for each in group]),
        coverage=_mean([each.coverage for each in group], acted),
        width=_mean([each.width for each in group], acted),
        bias=_mean([each.bias for each in group], acted),
        claimed=_mean([each.claimed for each in group]),
        regret_of_verdict=_most(group, lambda each: each.regret_of_verdict),
    )


def _mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The mean of what is known."""
    v = np.array(values, dtype=float)
    w = np.ones(len(v)) if weights is None else np.array(weights, dtype=float)
    known = ~np.isnan(v) & (w > 0)
    return float(np.average(v[known], weights=w[known])) if known.any() else math.nan


def _least(group: Sequence[Summary], figure: Callable[[Summary], float]) -> Extreme:
    known = [Extreme(figure(s), s.task) for s in group if not math.isnan(figure(s))]
    return min(known, key=lambda each: each.value, default=Extreme(math.nan, ""))


def _most(group: Sequence[Summary], figure: Callable[[Summary], float]) -> Extreme:
    least = _least(group, lambda each: -figure(each))
    return Extreme(-least.value, least.task)
