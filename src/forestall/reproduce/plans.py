"""The committed plans as they are run: task by task, whole or in a hurry."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forestall import tasks
from forestall.bench import Plan, Row, read_rows
from forestall.bench.record import read_record
from forestall.errors import PlanError
from forestall.files import read_toml
from forestall.reproduce.sheet import QUICK

TASKS = ("lin-syn1", "bermuda", "bank", "non-syn1", "non-syn2", "nhanes")


def read(folder: Path, name: str, *, quick: bool) -> list[Plan]:
    """Read a plan, as one for each of its tasks where there are several.

    A task that needs published data is left out where they are not here, and need not
    be run again because of the others, nor they because of it. What a table
    ``[differs.task]`` says holds for that task alone.

    Args:
        folder: Where the plans are.
        name: Which of them.
        quick: Whether to take its short version.
    """
    values = read_toml(folder / f"{name}.toml", "plan", PlanError)
    differs = values.pop("differs", {})
    every = values.get("tasks", ())
    here = [task for task in every if task != tasks.FROM_DATA or data_are_here()]
    named = {task: part_of(name, task) if len(every) > 1 else name for task in here}
    made = [
        Plan.from_dict(
            {**values, **differs.get(task, {}), "name": own, "tasks": [task]}
        )
        for task, own in named.items()
    ]
    return [plan.quickened() for plan in made] if quick else made


def part_of(name: str, task: str) -> str:
    """Name one task of a plan of several."""
    return f"{name}-{task}"


def data_are_here() -> bool:
    """Whether the published data that a task is made of are here."""
    from forestall.data.nhanes import available

    return available()


@dataclass(frozen=True)
class Found:
    """The results of a plan, as far as they are there.

    Args:
        path: The CSV file.
        quick: Whether they are of the short version.
        without: Tasks whose rows are taken from elsewhere.
    """

    path: Path
    quick: bool
    without: frozenset[str] = frozenset()

    @property
    def rows(self) -> list[Row]:
        """The rows of the file."""
        return [row for row in read_rows(self.path) if row.task not in self.without]

    @property
    def told(self) -> str:
        """Say how much was run, from the record beside the file."""
        plan, several = self.record["plan"], len(self.record["runs"]) > 1
        length = " (the short version)" if self.quick else ""
        often = f", in {len(self.record['runs'])} runs" if several else ""
        return (
            f"{_many(len(plan['seeds']), 'seed')}, {_many(plan['contexts'], 'context')}"
            f" each, {plan['draws']:,} draws, {plan['n']:,} records; "
            f"{times([self])}{often}{length}"
        )

    @property
    def record(self) -> dict[str, Any]:
        """The record beside the file."""
        return json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))


def times(parts: Iterable[Found]) -> str:
    """Say how long some results took, runs with as many jobs together."""
    spent: dict[int, float] = {}
    for run in (run for part in parts for run in part.record["runs"]):
        spent[run["jobs"]] = spent.get(run["jobs"], 0.0) + run["seconds"]
    said = [f"{_time(spent[n])} with {_many(n, 'job')}" for n in sorted(spent)]
    return " and ".join(said)


def found(folder: Path, name: str) -> Found | None:
    """Find the results of a plan: all of them, else those of the short version."""
    for quick in (False, True):
        path = folder / f"{name}{QUICK * quick}.csv"
        record = read_record(path.with_suffix(".json")) if path.exists() else None
        if record is not None and record.get("complete"):
            return Found(path, quick)
    return None


def found_parts(folder: Path, name: str) -> list[Found]:
    """Find the results of a plan: of each task by itself, else of all together.

    A plan that was run as a whole has one file, and that counts for the tasks which
    have none of their own.
    """
    own = {task: found(folder, part_of(name, task)) for task in TASKS}
    parts = [part for part in own.values() if part is not None]
    whole = found(folder, name)
    if whole is not None:
        known = frozenset(task for task, part in own.items() if part is not None)
        whole = replace(whole, without=known)
        parts += [whole] if whole.rows else []
    return parts


def _time(seconds: float) -> str:
    few = seconds < 100
    return f"{seconds:.0f} seconds" if few else f"{seconds / 60:.0f} minutes"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"
