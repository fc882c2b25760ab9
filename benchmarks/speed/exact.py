"""An exact fit against bare LAPACK and against scikit-learn.

Run: python benchmarks/speed/exact.py [TASK ...]
Prints, for each task, two ratios of measurements of this run, the least of several,
with one BLAS thread. The first yardstick is what the textbook needs for a problem with
covariates: two bare Cholesky factorisations in place and three bare blocked Gram
matrices. The second is scikit-learn's KernelRidge, one system, on contexts, covariates
and actions together. Ours counts everything, from the table to the policy. Contexts of
one or two dimensions need no factorisation of their own (`thin.py`); a made-up history
with five contexts shows what it costs where they do: two Cholesky factorisations, which
alone take longer than KernelRidge. Writes benchmarks/results/speed/exact.csv.
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

from forestall import NestedRehearsal, Problem, tasks
from forestall.nested import KernelPolicy

N, REPEATS, ROWS, WIDE = 5000, 3, 256, "five-contexts"
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


def question(name: str) -> tuple[Problem, dict[str, np.ndarray]]:
    if name != WIDE:
        task = tasks.get(name)
        return task.problem, dict(task.history(N, seed=0))
    rng = np.random.default_rng(0)
    x, contexts = rng.normal(size=(N, 5)), [f"x{k}" for k in range(5)]
    u = x[:, :2] + rng.normal(size=(N, 2))
    a = 0.5 * u[:, 0] + rng.normal(size=N)
    y = 0.3 * x.sum(axis=1) + u[:, 0] + a + rng.normal(size=N)
    problem = Problem(
        context=contexts,
        covariates=["u0", "u1"],
        actions={"a": (-3.0, 3.0)},
        outcomes=["y"],
        desired=["y >= 1"],
        order=[contexts, ["u0", "u1"], "a", "y"],
    )
    columns = dict(zip(contexts, x.T, strict=True))
    return problem, columns | {"u0": u[:, 0], "u1": u[:, 1], "a": a, "y": y}


def ratios(name: str) -> tuple[object, ...]:
    problem, history = question(name)
    method = NestedRehearsal()
    policy = method.fit(problem, history)
    works = (
        lambda: method.fit(problem, history),
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
    main(sys.argv[1:] or ["lin-syn1", "bank", "non-syn1", WIDE])
