"""An exact fit against bare LAPACK and against scikit-learn.

Run: python benchmarks/speed/exact.py [TASK ...] [--quick] [--out FOLDER]
Prints, for each task, two ratios of measurements of this run, the least of several, in
seconds of the processor, with one BLAS thread. The first yardstick is what the textbook
needs for a problem with covariates: two bare Cholesky factorisations in place and three
bare blocked Gram matrices. The second is scikit-learn's KernelRidge, one system, on
contexts, covariates and actions together. Ours counts everything, from the table to the
policy. Contexts of one or two dimensions need no factorisation of their own
(`thin.py`); a made-up history with five contexts shows what it costs where they do: two
Cholesky factorisations. What two bare ones take alone is told beside KernelRidge.
Writes benchmarks/results/speed/exact.csv.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from common import folder, options, timed, write
from scipy.linalg import cho_factor
from sklearn.kernel_ridge import KernelRidge
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, Problem, tasks
from forestall.nested import KernelPolicy

N, REPEATS, ROWS, WIDE = 5000, 7, 256, "five-contexts"
TASKS = ("lin-syn1", "bank", "non-syn1", WIDE)


def bare_gram(v: np.ndarray) -> np.ndarray:
    K, squares = np.empty((len(v), len(v))), 0.5 * (v**2).sum(axis=1)
    for i in range(0, len(v), ROWS):
        part = slice(i, i + ROWS)
        np.matmul(v[part], v.T, out=K[part])
        K[part] -= squares[part, None]
        K[part] -= squares
        np.exp(K[part], out=K[part])
    return K


def bare(policy: KernelPolicy) -> float:
    """Do what the textbook needs; give the seconds of the factorisations alone."""
    blocks = (
        (policy.records.h, policy.setting.k_h),
        (policy.data.x, policy.k_e),
        (policy.u, policy.k_u),
    )
    K_hh, K_xx, _ = [bare_gram(v / k.bandwidth) for v, k in blocks]
    n, lam = len(K_hh), policy.setting.outcome_penalty
    return sum(timed(lambda K=K: factor(K, n * lam)) for K in (K_hh, K_xx))


def factor(K: np.ndarray, ridge: float) -> None:
    K[np.diag_indices(len(K))] += ridge
    cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)


def sklearn_fit(policy: KernelPolicy) -> None:
    h = policy.records.h / policy.setting.k_h.bandwidth
    alpha = len(h) * policy.setting.outcome_penalty
    KernelRidge(alpha=alpha, kernel="rbf", gamma=0.5).fit(h, policy.data.good)


def question(name: str, n: int) -> tuple[Problem, dict[str, np.ndarray]]:
    if name != WIDE:
        task = tasks.get(name)
        return task.problem, dict(task.history(n, seed=0))
    rng = np.random.default_rng(0)
    x, contexts = rng.normal(size=(n, 5)), [f"x{k}" for k in range(5)]
    u = x[:, :2] + rng.normal(size=(n, 2))
    a = 0.5 * u[:, 0] + rng.normal(size=n)
    y = 0.3 * x.sum(axis=1) + u[:, 0] + a + rng.normal(size=n)
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


def ratios(name: str, n: int) -> dict[str, object]:
    problem, history = question(name, n)
    method, choleskys = NestedRehearsal(), []
    policy = method.fit(problem, history)
    works = (
        lambda: method.fit(problem, history),
        lambda: choleskys.append(bare(policy)),
        lambda: sklearn_fit(policy),
    )
    # In turns, so that a busy moment of the machine meets all of them.
    times = [[timed(work) for work in works] for _ in range(REPEATS)]
    ours, lapack, sklearn = np.min(times, axis=0).tolist()
    two = min(choleskys)
    print(
        f"{name}: fit {ours:.2f} s; two bare Choleskys and three Grams {lapack:.2f} s, "
        f"ratio {ours / lapack:.2f}; KernelRidge {sklearn:.2f} s, ratio "
        f"{ours / sklearn:.2f}; two bare Choleskys alone {two:.2f} s"
    )
    found = {
        "fit_seconds": ours,
        "lapack_seconds": lapack,
        "ratio": ours / lapack,
        "sklearn_seconds": sklearn,
        "ratio_sklearn": ours / sklearn,
        "cholesky_seconds": two,
        "cholesky_sklearn": two / sklearn,
    }
    return {"task": name, "n": n} | {k: f"{v:.3f}" for k, v in found.items()}


def main(asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    n = 1000 if asked.quick else N
    with threadpool_limits(limits=1):
        found = [ratios(name, n) for name in asked.tasks or TASKS]
    write("exact", found, folder(asked))


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("tasks", nargs="*", help=f"of these: {', '.join(TASKS)}")
    main(parser.parse_args())
