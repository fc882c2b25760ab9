"""Does the support score tell where an estimate is wrong?

Run: python benchmarks/support.py (some minutes; a copy of it goes into the README)
For random feasible actions of many contexts on every task, an estimate is wrong when it
is off by more than .2. Prints how many are, and the area under the curve with which the
support score, and each of its halves, finds them: .5 is chance, 1 is perfect. Writes
benchmarks/results/support.csv.
"""

from __future__ import annotations

import csv
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

import forestall
from forestall import tasks

NAMES = [*tasks.names(), *(f"random-{k}" for k in range(10))]
RESULTS = Path(__file__).parent / "results" / "support.csv"
N, CONTEXTS, DRAWS, WRONG, SEED, JOBS = 1000, 400, 1000, 0.2, 11, 2


def area(score: np.ndarray, wrong: np.ndarray) -> float:
    ranks, hits = rankdata(-score), wrong.sum()
    return (ranks[wrong].sum() - hits * (hits + 1) / 2) / (hits * (~wrong).sum())


@threadpool_limits.wrap(limits=1)
def evaluated(name: str) -> tuple[np.ndarray, ...]:
    warnings.simplefilter("ignore")
    task = tasks.get(name)
    policy = forestall.fit(task.problem, task.history(N, SEED))
    contexts = task.contexts(CONTEXTS, SEED)
    lower, upper = np.array(list(task.problem.actions.values())).T
    rng = np.random.default_rng(SEED)
    actions = rng.uniform(lower, upper, size=(CONTEXTS, len(lower)))
    told = policy.evaluate(contexts, actions)
    rows = [{k: float(v[i]) for k, v in contexts.items()} for i in range(CONTEXTS)]
    truth = [
        task.success(row, dict(zip(task.problem.actions, a, strict=True)), DRAWS, SEED)
        for row, a in zip(rows, actions, strict=True)
    ]
    known = 1.0 - (told.upper - told.lower)
    return np.abs(told.probability - truth), told.support, known


def main() -> None:
    parts = []
    with ProcessPoolExecutor(JOBS) as pool:
        for name, part in zip(NAMES, pool.map(evaluated, NAMES), strict=True):
            parts.append(part)
            wrong, mean = (part[0] > WRONG).sum(), part[0].mean()
            print(f"{name}: {wrong} wrong, mean error {mean:.3f}", flush=True)
    error, support, known = map(np.concatenate, zip(*parts, strict=True))
    wrong = error > WRONG
    scores = {
        "support": support,
        "how usual alone": 2.0 * support - known,
        "how much is known alone": known,
    }
    print(f"{wrong.sum()} of {len(wrong)} estimates are off by more than {WRONG}.")
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["score", "area", "wrong", "estimates"])
        for name, score in scores.items():
            found = f"{area(score, wrong):.3f}"
            print(name, found)
            writer.writerow([name, found, wrong.sum(), len(wrong)])


if __name__ == "__main__":
    main()
