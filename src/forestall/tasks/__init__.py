"""Tasks whose truth is known: to learn from, and to judge decisions by.

Example:
    >>> from forestall import tasks
    >>> bank = tasks.get("bank")
    >>> sorted(bank.history(100, seed=0))[:2]
    ['credit_score', 'debt_to_income']
"""

from __future__ import annotations

import re
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
    "dosing": "dosing",
    "placebo": "placebo",
}
RANDOM = re.compile(r"random-(0|[1-9][0-9]*)")


def names() -> tuple[str, ...]:
    """The tasks that :func:`get` knows, without the random ones."""
    return tuple(MODULES)


@cache
def get(name: str) -> Task:
    """Get a task by its name; ``random-17`` is the random one with the seed 17.

    Example:
        >>> get("non-syn1").problem.context
        ('X',)
    """
    check(name)
    if seed := RANDOM.fullmatch(name):
        from forestall.tasks.random_model import random_task

        return random_task(int(seed[1]))
    module = import_module(f"forestall.tasks.{MODULES[name]}")
    task: Task = module.TASK
    return task


def check(name: str) -> None:
    """Raise unless :func:`get` knows the name."""
    if name == "nhanes":
        raise TaskError(
            f"Expected a task that is built in, {', '.join(names())}; got 'nhanes', "
            f"which is not available yet. Use one of the others."
        )
    if name not in MODULES and not RANDOM.fullmatch(name):
        raise TaskError(
            f"Expected one of the tasks {', '.join(names())}, or random-0, random-1 "
            f"and so on; got {name!r}.{nearest(name, names())}"
        )
