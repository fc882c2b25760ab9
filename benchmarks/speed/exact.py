"""An exact fit against bare LAPACK and against scikit-learn.

Run: python benchmarks/speed/exact.py [TASK ...]
Prints, for each task, two ratios of measurements of this run, the least of several,
with one BLAS thread. The first yardstick is what the textbook needs for a problem with
covariates: two bare Cholesky factorisations in place and three bare blocked Gram
matrices. The second is scikit-learn's KernelRidge, one system, on contexts, covariates
and actions together. Ours counts everything, from the table to the policy. Writes
benchmarks/results/speed/exact.csv.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor
from sklearn.kernel_ridge import KernelRidge
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, tasks
from forestall.nested import KernelPolicy

N, REPEATS, ROWS = 5000, 3, 256
OUT = Path(__file__).parents[1] / "results" / "speed" / "exact.csv"
HEAD = ("task", "n", "fit_seconds", "lapack_seconds", "ratio", "sklearn_seconds")


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def bare_gram(v: np.ndarray) -> np.ndarray:
    K, squares = np.empty((len(v), len(v))), 0.5 * (v**2).sum(axis=1)
    for i in range(0, len(v), ROWS):
        part = slice(i, i + ROWS)
        np.matmul(v[part], v.T, out=K[part])
        K[part] -= squares[part, None]
        K[part] -= squares
        np.exp(K[part], out=K[part])
    return K


def bare(policy: KernelPolicy) -> None:
    blocks = (
        (policy.records.h, policy.setting.k_h),
        (policy.data.x, policy.k_e),
        (policy.u, policy.k_u),
    )
    K_hh, K_xx, _ = [bare_gram(v / k.bandwidth) for v, k in blocks]
    for K in (K_hh, K_xx):
        K[np.diag_indices(N)] += N * policy.setting.outcome_penalty
        cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)


def sklearn_fit(policy: KernelPolicy) -> None:
    h = policy.records.h / policy.setting.k_h.bandwidth
    alpha = N * policy.setting.outcome_penalty
    KernelRidge(alpha=alpha, kernel="rbf", gamma=0.5).fit(h, policy.data.good)


def ratios(name: str) -> tuple[object, ...]:
    task = tasks.get(name)
    history, method = task.history(N, seed=0), NestedRehearsal()
    policy = method.fit(task.problem, history)
    works = (
        lambda: method.fit(task.problem, history),
        lambda: bare(policy),
        lambda: sklearn_fit(policy),
    )
    # In turns, so that a busy moment of the machine meets all of them.
    times = [[timed(work) for work in works] for _ in range(REPEATS)]
    ours, lapack, sklearn = np.min(times, axis=0).tolist()
    print(
        f"{name}: fit {ours:.2f} s; two bare Choleskys and three Grams {lapack:.2f} s, "
        f"ratio {ours / lapack:.2f}; KernelRidge {sklearn:.2f} s, ratio "
        f"{ours / sklearn:.2f}"
    )
    return (
        name,
        N,
        *(f"{v:.3f}" for v in (ours, lapack, ours / lapack, sklearn, ours / sklearn)),
    )


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    with threadpool_limits(limits=1):
        found = [ratios(name) for name in names]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("w", newline="", encoding="utf-8") as file:
        head = (*HEAD, "ratio_sklearn")
        csv.writer(file, lineterminator="\n").writerows([head, *found])


if __name__ == "__main__":
    main(sys.argv[1:] or ["bank", "non-syn1"])
