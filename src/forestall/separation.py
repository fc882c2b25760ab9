"""Separation in graphs with directed and bi-directed edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from forestall.errors import GraphError
from forestall.graph import Names, RehearsalGraph


def m_separated(graph: RehearsalGraph, xs: Names, ys: Names, given: Names = ()) -> bool:
    """Whether ``given`` blocks every path between ``xs`` and ``ys``.

    Bi-directed edges count as hidden common causes, whatever their stated meaning: as
    a statement about records, not about alterations, the two meanings are the same.
    """
    return open_path(graph, xs, ys, given) is None


def open_path(
    graph: RehearsalGraph, xs: Names, ys: Names, given: Names = ()
) -> list[str] | None:
    """Find a shortest path between ``xs`` and ``ys`` that ``given`` leaves open.

    Returns:
        Vertices and edges in turn, to be joined by spaces; None if all are blocked.

    Example:
        >>> graph = RehearsalGraph.read("digraph { u -> a; u -> y }")
        >>> open_path(graph, "a", "y")
        ['a', '<-', 'u', '->', 'y']
        >>> open_path(graph, "a", "y", given="u")
    """
    start, goal, known = (graph.known(names) for names in (xs, ys, given))
    _check_disjoint(start, goal, known)
    return _search(graph, start, set(goal), set(known))


def colliders(path: list[str]) -> list[str]:
    """List the vertices at which two arrowheads of an open path meet.

    Example:
        >>> colliders("a <- u -> m <-> y".split())
        ['m']
    """
    names, signs = path[::2], path[1::2]
    heads = [(a.endswith(">"), b.startswith("<")) for a, b in pairwise(signs)]
    return [v for v, both in zip(names[1:-1], heads, strict=True) if all(both)]


def without_edges_from(graph: RehearsalGraph, names: Names) -> RehearsalGraph:
    """Remove what ``names`` influence, so that only other ties of theirs are left."""
    tails = set(graph.known(names))
    arrows = [(u, v) for u, v in graph.edges if u not in tails]
    return RehearsalGraph(arrows, graph.bidirected_edges, graph.nodes, graph.bidirected)


def _check_disjoint(*groups: tuple[str, ...]) -> None:
    names = [name for group in groups for name in set(group)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GraphError(
            f"Expected vertices in one of xs, ys and given; got {', '.join(twice)} "
            f"in two of them. Remove it from one."
        )


# A vertex, and whether the edge by which it was reached has its arrowhead there.
_State = tuple[str, bool]


def _search(
    graph: RehearsalGraph, start: Iterable[str], goal: set[str], given: set[str]
) -> list[str] | None:
    # A shortest open walk visits no vertex twice: where it did, leaving out the
    # detour would leave it open, since colliders may lie anywhere above ``given``.
    steps, above = _steps(graph), graph.ancestors(given)
    came: dict[_State, tuple[_State, str] | None]
    came = {(v, False): None for v in sorted(start)}
    queue = deque(came)
    while queue:
        v, head = state = queue.popleft()
        if v in goal:
            return _traced(came, state)
        for sign, w in steps[v]:
            collides = head and sign.startswith("<")
            passes = v in above if collides else v not in given
            after = (w, sign.endswith(">"))
            if passes and after not in came:
                came[after] = (state, sign)
                queue.append(after)
    return None


def _steps(graph: RehearsalGraph) -> dict[str, list[tuple[str, str]]]:
    steps: dict[str, list[tuple[str, str]]] = {v: [] for v in graph.nodes}
    for u, v in graph.edges:
        steps[u].append(("->", v))
        steps[v].append(("<-", u))
    for u, v in graph.bidirected_edges:
        steps[u].append(("<->", v))
        steps[v].append(("<->", u))
    return steps


def _traced(came: dict[_State, tuple[_State, str] | None], state: _State) -> list[str]:
    path, link = [state[0]], came[state]
    while link is not None:
        (v, _), sign = link
        path += [sign, v]
        link = came[link[0]]
    return path[::-1]
