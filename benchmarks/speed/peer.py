"""Decisions per second beside the package ``rehearsal`` (0.1.5, method ``cme-rh``).

Run: python benchmarks/speed/peer.py [small] [large]
The peer is called as its own documentation says and is a black box: it decides for one
context at a time, so it is measured on a few contexts and counted per decision. Ours
decides for all contexts in one call; reading the table, assessing intervals and support
and wording the reasons are all counted. Fitting is not counted on either side. One
BLAS thread, least of several, both in one run, on non-syn1; true success by Monte Carlo
of the peer, of ours and of ours with the paper's plain ascent, on the same contexts.

small: N = 1,000, exact. large: N = 5,000, Nystrom of rank 200.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

from common import least, rows_of, success, write
from threadpoolctl import threadpool_limits

from forestall import Ascent, NestedRehearsal, Problem, tasks
from forestall.nested import KernelRehearsal

TASK, CONTEXTS, REPEATS = "non-syn1", 2000, 15
PLAIN = Ascent(halve_every=None, stride=1)


@dataclass(frozen=True)
class Case:
    name: str
    n: int
    method: KernelRehearsal
    # Decisions of the peer that are timed, and more that are judged by the truth.
    timed: int
    judged: int
    goal: float


def cases() -> dict[str, Case]:
    from forestall.lowrank import Nystrom

    thin = NestedRehearsal(approximation=Nystrom(rank=200))
    return {
        "small": Case("exact", 1000, NestedRehearsal(), 20, 64, 500.0),
        "large": Case("Nystrom-200", 5000, thin, 3, 8, 20_000.0),
    }


def asked(problem: Problem) -> Any:
    """Put a problem to the peer in its own terms."""
    from rehearsal import AlterationDomain, AUFTask, DesiredRegion

    order = [name for tier in problem.to_dict()["order"] for name in tier]
    return AUFTask(
        observed_variables=list(problem.context),
        alterable_variables=list(problem.actions),
        outcome_variables=list(problem.outcomes),
        desired_region=DesiredRegion(
            M=problem.region.normals, d=problem.region.offsets
        ),
        alteration_domain=AlterationDomain(bounds=dict(problem.actions)),
        candidate_alteration_sets=[list(problem.actions)],
        variable_order=order,
    )


def measured(case: Case) -> dict[str, object]:
    from rehearsal.methods import CMERehearsal

    task = tasks.get(TASK)
    history, table = task.history(case.n, seed=0), task.contexts(CONTEXTS, seed=0)
    rows, question = rows_of(table, case.judged), asked(task.problem)
    peer = CMERehearsal(seed=0).fit(history, question)
    policy = case.method.fit(task.problem, history)
    each = min(
        least(lambda row=row: peer.suggest(row, question), 1)
        for row in rows[: case.timed]
    )
    together = least(lambda: policy.recommend(table), REPEATS)
    theirs = [peer.suggest(row, question).alterations for row in rows]
    plain = NestedRehearsal(ascent=PLAIN, approximation=case.method.approximation)
    reference = plain.fit(task.problem, history).recommend(table)
    return {
        "task": TASK,
        "n": case.n,
        "fit": case.name,
        "contexts": CONTEXTS,
        "ours_ms": round(1e3 * together / CONTEXTS, 4),
        "peer_ms": round(1e3 * each, 2),
        "ratio": round(CONTEXTS * each / together),
        "goal": case.goal,
        "judged": case.judged,
        "ours_success": success(
            task, rows, policy.recommend(table).actions[: len(rows)]
        ),
        "plain_success": success(task, rows, reference.actions[: len(rows)]),
        "peer_success": success(task, rows, theirs),
    }


def main(chosen: list[str]) -> None:
    results = []
    with threadpool_limits(limits=1):
        for key, case in cases().items():
            if chosen and key not in chosen:
                continue
            row = measured(case)
            results.append(row)
            print(
                f"N={row['n']} {row['fit']}: ours {row['ours_ms']} ms a decision, peer "
                f"{row['peer_ms']} ms, ratio {row['ratio']} (goal {case.goal:.0f}); "
                f"success {row['ours_success']:.3f}, plain ascent "
                f"{row['plain_success']:.3f}, peer {row['peer_success']:.3f} "
                f"({case.judged} contexts)",
                flush=True,
            )
    write("peer" if not chosen else f"peer-{'-'.join(chosen)}", results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
