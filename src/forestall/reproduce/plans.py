"""The committed plans as they are run: whole or in a hurry, with data or without."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from forestall import tasks
from forestall.bench import Plan, Row, read_rows
from forestall.bench.record import read_record
from forestall.errors import PlanError
from forestall.files import read_toml

QUICK = "-quick"


def read(folder: Path, name: str, *, quick: bool) -> list[Plan]:
    """Read a plan, in two where a part of it needs published data.

    The part that needs data is a plan of its own, so that the other runs without
    them, and neither has to be run again because of the other.

    Args:
        folder: Where the plans are.
        name: Which of them.
        quick: Whether to take its short version.
    """
    path = folder / f"{name}.toml"
    values = read_toml(path, "plan", PlanError)
    needy = [task for task in values.get("tasks", ()) if task == tasks.FROM_DATA]
    rest = [task for task in values.get("tasks", ()) if task not in needy]
    parts = [(name, rest)] if rest else []
    if needy and data_are_here():
        parts.append((f"{name}-{tasks.FROM_DATA}", needy))
    plans = [
        Plan.from_dict({**values, "name": part, "tasks": names})
        for part, names in parts
    ]
    return [plan.quickened() for plan in plans] if quick else plans


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
    """

    path: Path
    quick: bool

    @property
    def rows(self) -> list[Row]:
        """The rows of the file."""
        return read_rows(self.path)

    @property
    def told(self) -> str:
        """Say how much was run, from the record beside the file."""
        record = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
        plan, jobs = record["plan"], max(run["jobs"] for run in record["runs"])
        length = " (the short version)" if self.quick else ""
        return (
            f"{_many(len(plan['seeds']), 'seed')}, {_many(plan['contexts'], 'context')}"
            f" each, {plan['draws']:,} draws, {plan['n']:,} records; "
            f"{_time(record['seconds'])} with {_many(jobs, 'job')}{length}"
        )


def found(folder: Path, name: str) -> Found | None:
    """Find the results of a plan: all of them, else those of the short version."""
    for quick in (False, True):
        path = folder / f"{name}{QUICK * quick}.csv"
        record = read_record(path.with_suffix(".json")) if path.exists() else None
        if record is not None and record.get("complete"):
            return Found(path, quick)
    return None


def found_parts(folder: Path, name: str) -> list[Found]:
    """Find the results of a plan in both of its parts."""
    parts = (found(folder, part) for part in (name, f"{name}-{tasks.FROM_DATA}"))
    return [part for part in parts if part is not None]


def _time(seconds: float) -> str:
    few = seconds < 100
    return f"{seconds:.0f} seconds" if few else f"{seconds / 60:.0f} minutes"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"
