"""Low rank against exact, as in the paper's table: time to fit and true success.

Run: python benchmarks/speed/lowrank.py [--quick] [--out FOLDER]
On non-syn1, with the same contexts and the same draws for every method, one BLAS
thread, seconds of the processor, the least of several fits and of several times that
all contexts were decided for, after a first one. Success is the true probability under
the recommended action, by Monte Carlo, averaged over contexts and seeds; the ratio is
the time of the exact fit over that of the approximate one in the same run. The column
``landmarks`` tells how they are chosen, and which way is the default.

A second ratio is to scikit-learn, on contexts, covariates and actions together, with
the same widths, penalty and number of landmarks: ``Nystroem.fit_transform`` and
``Ridge``. That is one system of ours, which has two, from records that are already
encoded; ours counts everything, from the table to the policy. In turns, in one run.
Writes benchmarks/results/speed/lowrank.csv.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from common import folder, least, options, timed, write
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, tasks
from forestall.lowrank import Approximation, Nystrom, RandomFourier
from forestall.nested import KernelPolicy

TASK, CONTEXTS, DRAWS = "non-syn1", 128, 20_000
DECIDED = 5
METHODS: dict[str, Approximation | None] = {
    "exact": None,
    "Nystrom-100": Nystrom(rank=100),
    "Nystrom-100 kmeans": Nystrom(rank=100, landmarks="kmeans"),
    "Nystrom-100 leverage": Nystrom(rank=100, landmarks="leverage"),
    "Nystrom-200": Nystrom(rank=200),
    "RandomFourier-500": RandomFourier(n_features=500),
}


def successes(actions: np.ndarray, contexts: dict[str, np.ndarray]) -> float:
    task = tasks.get(TASK)
    rows = np.column_stack([contexts[name] for name in task.problem.context])
    found = [
        task.success(x, a, DRAWS, seed=0) for x, a in zip(rows, actions, strict=True)
    ]
    return float(np.mean(found))


@dataclass(frozen=True)
class Found:
    """What one method took and gave on one history; scikit-learn where it has it."""

    fit: float
    sklearn: float
    decide: float
    success: float
    width: float


def sklearn_fit(policy: KernelPolicy, rank: int) -> None:
    """Fit the first of our two systems, with as many landmarks."""
    h, good = policy.records.h / policy.setting.k_h.bandwidth, policy.data.good
    features = Nystroem(kernel="rbf", gamma=0.5, n_components=rank, random_state=0)
    alpha = len(h) * policy.setting.outcome_penalty
    Ridge(alpha=alpha).fit(features.fit_transform(h), good)


def measured(
    approximation: Approximation | None, n: int, seed: int, repeats: int
) -> Found:
    task, method = tasks.get(TASK), NestedRehearsal(approximation=approximation)
    history, contexts = task.history(n, seed), task.contexts(CONTEXTS, seed)
    policy = method.fit(task.problem, history)
    works = [lambda: method.fit(task.problem, history)]
    if isinstance(approximation, Nystrom):
        works.append(lambda: sklearn_fit(policy, approximation.rank))
    times = np.min([[timed(work) for work in works] for _ in range(repeats)], axis=0)
    told = policy.recommend(contexts)
    decide = 1e3 * least(lambda: policy.recommend(contexts), DECIDED) / CONTEXTS
    return Found(
        fit=times[0],
        sklearn=times[1] if len(works) > 1 else np.nan,
        decide=decide,
        success=successes(told.actions, contexts),
        width=float((told.upper - told.lower).mean()),
    )


def landmarks(approximation: Approximation | None) -> str:
    if not isinstance(approximation, Nystrom):
        return ""
    default = approximation.landmarks == Nystrom().landmarks
    return approximation.landmarks + " (default)" * default


def rows(n: int, seeds: int, repeats: int) -> Iterator[dict[str, object]]:
    exact_fit = exact_success = 0.0
    for name, approximation in METHODS.items():
        found = [measured(approximation, n, seed, repeats) for seed in range(seeds)]
        fit = min(each.fit for each in found)
        sklearn = min(each.sklearn for each in found)
        share = float(np.mean([each.success for each in found]))
        if approximation is None:
            exact_fit, exact_success = fit, share
        row = {
            "method": name,
            "landmarks": landmarks(approximation),
            "n": n,
            "seeds": seeds,
            "fit_seconds": f"{fit:.4f}",
            "times_faster": f"{exact_fit / fit:.1f}",
            "sklearn_seconds": "" if np.isnan(sklearn) else f"{sklearn:.4f}",
            "ratio_sklearn": "" if np.isnan(sklearn) else f"{fit / sklearn:.2f}",
            "decide_ms": f"{min(each.decide for each in found):.3f}",
            "success": f"{share:.4f}",
            "minus_exact": f"{share - exact_success:+.4f}",
            "mean_width": f"{np.mean([each.width for each in found]):.3f}",
        }
        print(", ".join(f"{k} {v}" for k, v in row.items() if v != ""), flush=True)
        yield row


def main(asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    sizes = [(1000, 1, 1)] if asked.quick else [(1000, 4, 3), (5000, 2, 2)]
    with threadpool_limits(limits=1):
        found = [row for size in sizes for row in rows(*size)]
    write("lowrank", found, folder(asked))


if __name__ == "__main__":
    main(options(__doc__).parse_args())
