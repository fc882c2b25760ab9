"""What the speed benchmarks share: the clock, the truth, and where results go."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from forestall.tasks.task import Task

RESULTS = Path(__file__).resolve().parents[1] / "results" / "speed"


def least(work: Callable[[], object], repeats: int) -> float:
    """The least of several measurements, in seconds of this process's own time.

    Processor time of one thread: what others do on the machine does not count.
    """
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def rows_of(contexts: Mapping[str, np.ndarray], n: int) -> list[dict[str, float]]:
    """The first contexts of a table, one by one."""
    return [{k: float(v[i]) for k, v in contexts.items()} for i in range(n)]


def success(
    task: Task,
    contexts: Sequence[dict[str, float]],
    actions: Sequence[object],
    draws: int = 4000,
) -> float:
    """The true success of decisions, the mean over contexts, by Monte Carlo."""
    pairs = zip(contexts, actions, strict=True)
    return float(np.mean([task.success(x, a, draws, seed=7) for x, a in pairs]))


def write(name: str, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows of one kind to the results."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
