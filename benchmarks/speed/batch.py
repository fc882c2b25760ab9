"""500 decisions in one call against solving the Gram systems anew for each.

Run: python benchmarks/speed/batch.py [TASK ...]
Prints and writes, for each task, the ratio of two measurements of this run, the least
of several, with one BLAS thread. The yardstick only builds the Gram matrices, factors
and solves them, which an implementation that keeps nothing between decisions does for
each context; its search for the action is not counted, ours is. The second ratio is
against fitting anew and then deciding for one context, all counted.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from common import least, write
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, Problem, tasks
from forestall.nested import KernelPolicy
from forestall.ridge import Ridge

N, CONTEXTS, REPEATS = 1000, 500, 3


def solve_anew(policy: KernelPolicy) -> None:
    data, u, method = policy.data, policy.u, policy.method
    h = np.concatenate([data.x, u, data.a], axis=1)
    K_hh = (policy.k_x * policy.k_u * policy.k_a)(h, h)
    K_xx = policy.k_e(data.x, data.x)
    Ridge.of(K_hh, method.outcome_penalty).solve(policy.solution.alpha)
    if policy.K_uu is not None:
        k_x = policy.k_e(data.x, data.x[:1])
        policy.k_u(u, u) @ Ridge.of(K_xx, method.context_penalty).solve(k_x)


def decide_anew(problem: Problem, history: object, rows: dict) -> None:
    one = {key: values[:1] for key, values in rows.items()}
    NestedRehearsal().fit(problem, history).recommend(one)


def ratio(
    name: str, contexts: int = CONTEXTS, repeats: int = REPEATS
) -> dict[str, object]:
    task = tasks.get(name)
    history, rows = task.history(N, seed=0), task.contexts(contexts, seed=0)
    policy = NestedRehearsal().fit(task.problem, history)
    with threadpool_limits(limits=1):
        together = least(lambda: policy.recommend(rows), repeats)
        anew = least(lambda: solve_anew(policy), repeats)
        refit = least(lambda: decide_anew(task.problem, history, rows), repeats)
    print(
        f"{name}: one call {1e3 * together / contexts:.2f} ms a decision, anew "
        f"{1e3 * anew:.1f} ms, ratio {contexts * anew / together:.0f}; fitted and "
        f"decided anew {1e3 * refit:.1f} ms, ratio {contexts * refit / together:.0f}"
    )
    return {
        "task": name,
        "n": N,
        "contexts": contexts,
        "together_ms": round(1e3 * together / contexts, 4),
        "anew_ms": round(1e3 * anew, 2),
        "refit_ms": round(1e3 * refit, 2),
        "ratio": round(contexts * anew / together),
        "refit_ratio": round(contexts * refit / together),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write("batch", [ratio(each) for each in sys.argv[1:] or tasks.names()])
