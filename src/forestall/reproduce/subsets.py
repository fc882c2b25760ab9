"""Every subset of the actions altered alone, the others left to their own course."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from forestall import tasks
from forestall.bench import Plan
from forestall.errors import PlanError
from forestall.method import Method
from forestall.problem import Problem
from forestall.staged import StagedPolicy, StagedRehearsal

TOGETHER = " + "


@dataclass(frozen=True, kw_only=True)
class Only(Method):
    """Our method, which may alter some of the actions.

    Args:
        method: How it learns.
        only: The actions that may be altered.
    """

    method: StagedRehearsal
    only: tuple[str, ...]

    def fit(self, problem: Any, history: Any) -> StagedPolicy:
        """Learn a policy that leaves the other actions alone."""
        columns = ((name, tuple(v.tolist())) for name, v in history.items())
        policy = learned(self.method, problem, tuple(columns))
        altered = tuple(name in self.only for name in problem.actions)
        return replace(policy, subsets=(altered,))


@lru_cache(maxsize=1)
def learned(
    method: StagedRehearsal,
    problem: Problem,
    columns: tuple[tuple[str, tuple[float, ...]], ...],
) -> StagedPolicy:
    """Fit once for all subsets of the actions."""
    return method.fit(problem, {name: np.array(values) for name, values in columns})


def spelt_out(plan: Plan, *, quick: bool) -> Plan:
    """Put a method for each subset of the actions in place of the one there is.

    Args:
        plan: A plan of one task and one method, ours.
        quick: Whether to take single actions and all of them only.
    """
    if len(plan.methods) != 1:
        raise PlanError(
            f"Expected one method in the plan of subsets; got "
            f"{', '.join(plan.methods)}. Leave one of them."
        )
    (method,) = plan.methods.values()
    if not isinstance(method, StagedRehearsal):
        raise PlanError(
            f"Expected StagedRehearsal in the plan of subsets, because it can leave "
            f"actions alone; got {type(method).__name__}."
        )
    (task,) = plan.tasks
    altered = subsets(actions_of(task), quick=quick)
    methods = {TOGETHER.join(only): Only(method=method, only=only) for only in altered}
    return replace(plan, methods=methods)


def actions_of(task: str) -> tuple[str, ...]:
    """The actions of a task, without making it of its data."""
    if task == tasks.FROM_DATA:
        from forestall.tasks.nhanes import ACTIONS

        return ACTIONS
    return tuple(tasks.get(task).problem.actions)


def subsets(actions: Sequence[str], *, quick: bool) -> Iterator[tuple[str, ...]]:
    """Go through the subsets, small ones first; in a hurry single ones and all.

    Example:
        >>> list(subsets(["a", "b"], quick=False))
        [('a',), ('b',), ('a', 'b')]
    """
    sizes = sorted({1, len(actions)}) if quick else range(1, len(actions) + 1)
    for size in sizes:
        yield from combinations(actions, size)
