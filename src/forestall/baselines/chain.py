"""In which order the variables come about, and what each of them follows from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from forestall.graph import RehearsalGraph
from forestall.problem import Problem


@dataclass(frozen=True)
class Place:
    """What one variable follows from.

    Args:
        name: The variable; no context.
        inputs: The variables it follows from.
    """

    name: str
    inputs: tuple[str, ...]


def chain(problem: Problem) -> tuple[Place, ...]:
    """Order the variables that are no contexts, each with what it follows from.

    Parents are enough with a graph that has no hidden causes and in which contexts
    follow from contexts only. Otherwise a context tells more than the parents do, and
    every variable follows from the contexts and all that is earlier.
    """
    graph = problem.one_graph()
    if graph is not None and _parents_suffice(problem, graph):
        return tuple(_by_parents(problem, graph))
    return tuple(_by_order(problem, graph))


def _parents_suffice(problem: Problem, graph: RehearsalGraph) -> bool:
    if graph.bidirected != "mutual" and graph.bidirected_edges:
        return False
    contexts = set(problem.context)
    hidden = set(graph.nodes) - set(problem.variables)
    return not hidden and set(graph.parents(contexts)) <= contexts


def _by_parents(problem: Problem, graph: RehearsalGraph) -> Iterable[Place]:
    contexts, actions = set(problem.context), set(problem.actions)
    for clique in graph.clique_order():
        known = [v for v in clique if v in contexts]
        moved = sorted(set(clique) - contexts, key=lambda v: (v not in actions, v))
        for k, name in enumerate(moved):
            parents = sorted(graph.parents([name]))
            yield Place(name, (*parents, *known, *moved[:k]))


def _by_order(problem: Problem, graph: RehearsalGraph | None) -> Iterable[Place]:
    actions = set(problem.actions)
    rank = {v: k for k, tier in enumerate(problem.tiers) for v in tier}
    mutual = graph is not None and graph.bidirected == "mutual"
    mates = {v: {v} for v in problem.variables}
    if graph is not None and mutual:
        mates = {v: set(graph.clique_of(v)) for v in problem.variables}

    def turn(name: str) -> tuple[int, int]:
        """Within a tier: actions that covariates follow from, the rest, outcomes."""
        if name in actions:
            return rank[name], 0 if len(mates[name]) > 1 else 2
        return rank[name], 3 if name in problem.outcomes else 1

    moved = sorted((v for v in problem.variables if v not in problem.context), key=turn)
    for k, name in enumerate(moved):
        # Nothing follows from an action of its own tier that is no mate of it; what
        # goes along with it is an action too.
        earlier = [
            v
            for v in moved[:k]
            if rank[v] < rank[name]
            or name in actions
            or v not in actions
            or v in mates[name]
        ]
        yield Place(name, (*problem.context, *earlier))
