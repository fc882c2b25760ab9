"""Low rank against exact, as in the paper's table: time to fit and true success.

Run: python benchmarks/speed/lowrank.py [--quick]
On non-syn1, with the same contexts and the same draws for every method, one BLAS
thread, the least of several fits. Success is the true probability under the
recommended action, by Monte Carlo, averaged over contexts and seeds; the ratio is the
time of the exact fit over that of the approximate one in the same run. Writes
benchmarks/results/speed/lowrank.csv.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, tasks
from forestall.lowrank import Approximation, Nystrom, RandomFourier

TASK, CONTEXTS, DRAWS = "non-syn1", 128, 20_000
OUT = Path(__file__).parents[1] / "results" / "speed" / "lowrank.csv"
METHODS: dict[str, Approximation | None] = {
    "exact": None,
    "Nystrom-100": Nystrom(rank=100),
    "Nystrom-100 kmeans": Nystrom(rank=100, landmarks="kmeans"),
    "Nystrom-100 leverage": Nystrom(rank=100, landmarks="leverage"),
    "Nystrom-200": Nystrom(rank=200),
    "RandomFourier-500": RandomFourier(n_features=500),
}
HEAD = (
    "method",
    "n",
    "seeds",
    "fit_seconds",
    "times_faster",
    "decide_ms",
    "success",
    "minus_exact",
    "mean_width",
)


def successes(actions: np.ndarray, contexts: dict[str, np.ndarray]) -> float:
    task = tasks.get(TASK)
    rows = np.column_stack([contexts[name] for name in task.problem.context])
    found = [
        task.success(x, a, DRAWS, seed=0) for x, a in zip(rows, actions, strict=True)
    ]
    return float(np.mean(found))


def measured(
    approximation: Approximation | None, n: int, seed: int, repeats: int
) -> tuple[float, float, float, float]:
    task, times = tasks.get(TASK), []
    history, contexts = task.history(n, seed), task.contexts(CONTEXTS, seed)
    for _ in range(repeats):
        start = time.perf_counter()
        policy = NestedRehearsal(approximation=approximation).fit(task.problem, history)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    told = policy.recommend(contexts)
    decide = 1e3 * (time.perf_counter() - start) / CONTEXTS
    width = float((told.upper - told.lower).mean())
    return min(times), decide, successes(told.actions, contexts), width


def rows(n: int, seeds: int, repeats: int) -> Iterator[tuple[object, ...]]:
    exact_fit = exact_success = 0.0
    for name, approximation in METHODS.items():
        found = [measured(approximation, n, seed, repeats) for seed in range(seeds)]
        fits, decide, success, width = np.array(found).T
        fit, share = float(fits.min()), float(success.mean())
        if approximation is None:
            exact_fit, exact_success = fit, share
        row = (
            name,
            n,
            seeds,
            f"{fit:.4f}",
            f"{exact_fit / fit:.1f}",
            f"{decide.min():.3f}",
            f"{share:.4f}",
            f"{share - exact_success:+.4f}",
            f"{width.mean():.3f}",
        )
        print(*row)
        yield row


def main(quick: bool) -> None:
    warnings.simplefilter("ignore")
    sizes = [(1000, 1, 1)] if quick else [(1000, 4, 3), (5000, 2, 2)]
    with threadpool_limits(limits=1):
        found = [row for size in sizes for row in rows(*size)]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *found])


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
