"""Tasks whose truth is known: to learn from, and to judge decisions by.

Example:
    >>> from forestall import tasks
    >>> bank = tasks.get("bank")
    >>> sorted(bank.history(100, seed=0))[:2]
    ['credit_score', 'debt_to_income']
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from forestall.errors import TaskError, nearest

if TYPE_CHECKING:
    from forestall.tasks.task import Task

__all__ = ["get", "names"]

MODULES = {
    "lin-syn1": "lin_syn1",
    "bermuda": "bermuda",
    "bank": "bank",
    "non-syn1": "non_syn1",
    "non-syn2": "non_syn2",
}


def names() -> tuple[str, ...]:
    """The tasks that :func:`get` knows."""
    return tuple(MODULES)


@cache
def get(name: str) -> Task:
    """Get a task by its name.

    Example:
        >>> get("non-syn1").problem.context
        ('X',)
    """
    if name == "nhanes":
        raise TaskError(
            f"Expected a task that is built in, {', '.join(names())}; got 'nhanes', "
            f"which is not available yet. Use one of the others."
        )
    if name not in MODULES:
        raise TaskError(
            f"Expected one of the tasks {', '.join(names())}; got {name!r}."
            f"{nearest(name, names())}"
        )
    module = import_module(f"forestall.tasks.{MODULES[name]}")
    task: Task = module.TASK
    return task
