"""What the speed benchmarks share: the clock, the truth, and where results go."""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from forestall.tasks.task import Task

RESULTS = Path(__file__).resolve().parents[1] / "results" / "speed"
STATUS = Path("/proc/self/status")


def options(about: str | None) -> argparse.ArgumentParser:
    """What every benchmark can be asked for."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="try it with small sizes")
    parser.add_argument("--out", type=Path, help="another folder for the results")
    return parser


def folder(asked: argparse.Namespace) -> Path | None:
    """Where results go; those of small sizes, nowhere unless told."""
    return asked.out or (None if asked.quick else RESULTS)


def peak_megabytes() -> float:
    """The most memory that this process ever held.

    A process that was started by a large one inherits its ``ru_maxrss``; what the
    system says of the process itself is its own.
    """
    if STATUS.exists():
        (line,) = [s for s in STATUS.read_text().splitlines() if s.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def least(work: Callable[[], object], repeats: int) -> float:
    """The least of several measurements, in seconds of this process's own time.

    Processor time of one thread: what others do on the machine does not count.
    """
    return min(timed(work) for _ in range(repeats))


def timed(work: Callable[[], object]) -> float:
    """Measure once, in seconds of this process's own time."""
    start = time.process_time()
    work()
    return time.process_time() - start


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


def write(
    name: str, rows: Sequence[Mapping[str, object]], place: Path | None = RESULTS
) -> None:
    """Write rows of one kind to the results, if they are to be written."""
    if place is None:
        return
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
