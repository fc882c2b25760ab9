"""An exact fit against bare LAPACK and against scikit-learn.

Run: python benchmarks/speed/exact.py [TASK ...] [--quick] [--out FOLDER]
Prints, for each task, two ratios of measurements of this run, the least of several, in
seconds of the processor, with one BLAS thread. The first yardstick is what the textbook
needs for a problem with covariates: two bare Cholesky factorisations in place and three
bare blocked Gram matrices. The second is scikit-learn's KernelRidge, one system, on
contexts, covariates and actions together. Ours counts everything, from the table to the
policy. Contexts of one or two dimensions need no factorisation of their own
(`thin.py`); a made-up history with five contexts shows what it costs where they do: two
Cholesky factorisations. The least that two such systems can take is told beside
KernelRidge: two triangles of kernel values, factored in place and solved, with nothing
around them; and how near to the speed of a bare matrix product LAPACK factors.
Writes benchmarks/results/speed/exact.csv.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from common import folder, options, timed, write
from scipy.linalg import cho_factor, cho_solve
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


def bare_triangle(v: np.ndarray) -> np.ndarray:
    K, squares = np.zeros((len(v), len(v))), 0.5 * (v**2).sum(axis=1)
    for i in range(0, len(v), ROWS):
        part = K[i : i + ROWS, i:]
        np.matmul(v[i : i + ROWS], v[i:].T, out=part)
        part -= squares[i : i + ROWS, None]
        part -= squares[i:]
        np.exp(part, out=part)
    return K


def bare(policy: KernelPolicy) -> None:
    """Do what the textbook needs."""
    grams = [bare_gram(v) for v in (*systems(policy), policy.u / policy.k_u.bandwidth)]
    for K in grams[:2]:
        factor(K, policy)


def least(policy: KernelPolicy) -> float:
    """Solve two systems, nothing else; give the seconds of the factorisations."""
    seconds = 0.0
    for v in systems(policy):
        K, factors = bare_triangle(v), []
        seconds += timed(lambda K=K, f=factors: f.append(factor(K, policy)))
        cho_solve((factors[0], True), np.ones((len(K), 2)), check_finite=False)
    return seconds


def systems(policy: KernelPolicy) -> tuple[np.ndarray, np.ndarray]:
    return (
        policy.records.h / policy.setting.k_h.bandwidth,
        policy.data.x / policy.k_e.bandwidth,
    )


def factor(K: np.ndarray, policy: KernelPolicy) -> np.ndarray:
    K[np.diag_indices(len(K))] += len(K) * policy.setting.outcome_penalty
    # What is below the diagonal in rows is above it in columns, and the other way.
    return cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)[0]


def product(n: int) -> float:
    """Multiply two matrices; give the operations a second."""
    A, C = np.ones((n, n)), np.empty((n, n))
    return 2.0 * n**3 / timed(lambda: np.matmul(A, A, out=C))


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
    method, choleskys, speeds = NestedRehearsal(), [], []
    policy = method.fit(problem, history)
    works = (
        lambda: method.fit(problem, history),
        lambda: bare(policy),
        lambda: choleskys.append(least(policy)),
        lambda: sklearn_fit(policy),
        lambda: speeds.append(product(n)),
    )
    # In turns, so that a busy moment of the machine meets all of them.
    times = [[timed(work) for work in works] for _ in range(REPEATS)]
    ours, lapack, two, sklearn, _ = np.min(times, axis=0).tolist()
    reached = 2.0 / 3.0 * n**3 / min(choleskys) / max(speeds)
    print(
        f"{name}: fit {ours:.2f} s; two bare Choleskys and three Grams {lapack:.2f} s, "
        f"ratio {ours / lapack:.2f}; KernelRidge {sklearn:.2f} s, ratio "
        f"{ours / sklearn:.2f}; two bare systems {two:.2f} s, ratio "
        f"{two / sklearn:.2f}; LAPACK factors at {reached:.0%} of a product's speed"
    )
    found = {
        "fit_seconds": ours,
        "lapack_seconds": lapack,
        "ratio": ours / lapack,
        "sklearn_seconds": sklearn,
        "ratio_sklearn": ours / sklearn,
        "systems_seconds": two,
        "systems_sklearn": two / sklearn,
        "cholesky_speed": reached,
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
