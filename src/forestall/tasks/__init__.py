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
from typing import TYPE_CHECKING, Any

from forestall.errors import DataError, TaskError, nearest

if TYPE_CHECKING:
    from forestall.tasks.task import Task
    from forestall.tasks.typed import TypedGenerator, from_data

__all__ = ["get", "names", "from_data", "TypedGenerator"]

MODULES = {
    "lin-syn1": "lin_syn1",
    "bermuda": "bermuda",
    "bank": "bank",
    "non-syn1": "non_syn1",
    "non-syn2": "non_syn2",
    "dosing": "dosing",
    "placebo": "placebo",
    "readmission": "readmission",
}
FROM_DATA = "nhanes"
RANDOM = re.compile(r"random-(0|[1-9][0-9]*)")


def names() -> tuple[str, ...]:
    """The tasks that are built in: not ``nhanes``, made of data, nor random ones."""
    return tuple(MODULES)


@cache
def get(name: str) -> Task:
    """Get a task by its name; ``random-17`` is the random one with the seed 17.

    ``nhanes`` is fitted to published data, which takes some seconds and needs them:
    ``forestall data fetch nhanes`` gets them.

    Example:
        >>> get("non-syn1").problem.context
        ('X',)
    """
    check(name)
    if seed := RANDOM.fullmatch(name):
        from forestall.tasks.random_model import random_task

        return random_task(int(seed[1]))
    if name == FROM_DATA:
        from forestall.tasks.nhanes import load

        return load()
    module = import_module(f"forestall.tasks.{MODULES[name]}")
    task: Task = module.TASK
    return task


def check(name: str) -> None:
    """Raise unless :func:`get` knows the name, and has the data it needs."""
    if name == FROM_DATA:
        _check_data()
    elif name not in MODULES and not RANDOM.fullmatch(name):
        raise TaskError(
            f"Expected one of the tasks {', '.join(names())}, {FROM_DATA}, or "
            f"random-0, random-1 and so on; got {name!r}."
            f"{nearest(name, (*names(), FROM_DATA))}"
        )


def _check_data() -> None:
    from forestall.data.nhanes import require_files

    try:
        require_files()
    except DataError as error:
        raise TaskError(
            f"Expected the data that the task {FROM_DATA!r} is made of. {error}"
        ) from error


def __getattr__(name: str) -> Any:
    """Load what makes tasks of data when it is first asked for."""
    if name in ("from_data", "TypedGenerator"):
        return getattr(import_module("forestall.tasks.typed"), name)
    raise AttributeError(f"module 'forestall.tasks' has no attribute {name!r}")
