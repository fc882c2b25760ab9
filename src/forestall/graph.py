"""Rehearsal graphs: who influences whom, and what an alteration cuts.

The definitions are those of the paper's appendix on graph-based rehearsal models. A
vertex is a variable; ``a -> b`` says that ``a`` influences ``b``; ``a <-> b`` has one
of two stated meanings, the field ``bidirected`` of :class:`RehearsalGraph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import networkx as nx

from forestall.dot import Pair, quoted, read_draft, vertex_name
from forestall.errors import GraphError, nearest

Names = str | Iterable[str]

MEANINGS = ("mutual", "latent")


@dataclass(frozen=True, init=False)
class RehearsalGraph:
    """A graph of directed and bi-directed edges, checked when it is made.

    Two graphs with the same content are equal, whatever the order in which their
    edges were given: names and edges are kept sorted.

    Args:
        edges: Directed edges: ``("x", "a")`` says that ``x`` influences ``a``.
        bidirected_edges: Unordered pairs.
        nodes: Vertices besides those that the edges mention.
        bidirected: What a bi-directed edge means. ``"mutual"``, as in the paper: the
            two influence each other, and one that is altered becomes a parent of the
            other; then the graph must meet the three conditions of a rehearsal graph.
            ``"latent"``: a hidden common cause; then the directed edges must be
            acyclic, and a pair may carry both kinds of edge.

    Example:
        The paper shows a graph and what two alterations make of it. Its drawing is
        not printed in the text; this one has the same parts, a cause of a clique of
        three and an effect of one member.

        >>> cause = [("x", "z1"), ("x", "z2"), ("x", "z3")]
        >>> clique = [("z1", "z2"), ("z1", "z3"), ("z2", "z3")]
        >>> graph = RehearsalGraph([*cause, ("z3", "y")], clique)
        >>> print(graph)
        x -> z1, x -> z2, x -> z3, z3 -> y, z1 <-> z2, z1 <-> z3, z2 <-> z3
        >>> print(graph.alter("z1"))
        x -> z2, x -> z3, z1 -> z2, z1 -> z3, z3 -> y, z2 <-> z3
        >>> print(graph.alter(["z1", "z3"]))
        x -> z2, z1 -> z2, z3 -> y, z3 -> z2
    """

    edges: tuple[Pair, ...]
    bidirected_edges: tuple[Pair, ...]
    nodes: tuple[str, ...]
    bidirected: str

    def __init__(
        self,
        edges: Iterable[Sequence[str]] = (),
        bidirected_edges: Iterable[Sequence[str]] = (),
        nodes: Iterable[str] = (),
        bidirected: str = "mutual",
    ) -> None:
        """Sort the edges and names, and check them."""
        arrows = {_pair(edge, "edges") for edge in edges}
        mates = {_sorted(_pair(edge, "bidirected_edges")) for edge in bidirected_edges}
        names = {vertex_name(v) for v in _names(nodes)}.union(*arrows, *mates)
        object.__setattr__(self, "edges", tuple(sorted(arrows)))
        object.__setattr__(self, "bidirected_edges", tuple(sorted(mates)))
        object.__setattr__(self, "nodes", tuple(sorted(names)))
        object.__setattr__(self, "bidirected", bidirected)
        self.check()

    def __str__(self) -> str:
        """Write the edges in one line, isolated vertices last."""
        joined = set().union(*self.edges, *self.bidirected_edges)
        alone = [v for v in self.nodes if v not in joined]
        return ", ".join([f"{u} {sign} {v}" for (u, v), sign in self._signed()] + alone)

    def _signed(self) -> Iterator[tuple[Pair, str]]:
        yield from ((edge, "->") for edge in self.edges)
        yield from ((edge, "<->") for edge in self.bidirected_edges)

    @staticmethod
    def read(source: object) -> RehearsalGraph:
        """Make a graph of what the user has.

        Args:
            source: A ``RehearsalGraph``; a directed networkx graph, in which two
                opposite edges, or an edge with ``dir="both"`` or ``bidirected=True``,
                are one bi-directed edge, and the graph attribute ``bidirected`` is
                its meaning; DOT text, with the same attributes and also ``a <-> b``;
                GML text. Text that starts with ``dag`` is dagitty's, where ``<->`` is
                defined as a hidden common cause: its meaning is ``"latent"``.

        Example:
            >>> print(RehearsalGraph.read("digraph { {x u} -> a -> y; u -> y }"))
            a -> y, u -> a, u -> y, x -> a
        """
        if isinstance(source, RehearsalGraph):
            return source
        draft = read_draft(source)
        return RehearsalGraph(
            draft.edges, draft.bidirected_edges, draft.nodes, draft.bidirected
        )

    def check(self) -> None:
        """Raise :class:`~forestall.GraphError` unless this is a sound graph."""
        if self.bidirected not in MEANINGS:
            raise GraphError(
                f"Expected bidirected to be 'mutual' or 'latent'; got "
                f"{self.bidirected!r}. Use 'mutual' for variables that influence each "
                f"other, 'latent' for a hidden common cause."
            )
        self._check_one_edge_per_pair()
        if self.bidirected == "mutual":
            self._check_cliques_are_disjoint()
            self._check_cliques_are_entered_whole()
        self._check_order()

    def _check_one_edge_per_pair(self) -> None:
        known: dict[tuple[str, ...], str] = {}
        for (u, v), sign in self._signed():
            text = f"{u} {sign} {v}"
            if u == v:
                raise GraphError(
                    f"Expected edges between two distinct vertices; got {text}. Remove "
                    f"it; a variable's own past is a vertex of its own."
                )
            # A hidden common cause may come on top of an influence.
            key = (*_sorted((u, v)), sign if self.bidirected == "latent" else "")
            if key in known:
                raise GraphError(
                    f"Expected at most one edge between two vertices; got "
                    f"{known[key]} and {text}. {_ONE_EDGE[sign]}"
                )
            known[key] = text

    def _check_cliques_are_disjoint(self) -> None:
        home: dict[str, tuple[str, ...]] = {}
        for clique in self.cliques:
            for v in clique:
                if v in home:
                    raise GraphError(self._overlap(v, home[v], clique))
                home[v] = clique

    def _overlap(self, v: str, one: tuple[str, ...], other: tuple[str, ...]) -> str:
        pairs = [_sorted((u, w)) for u in one for w in other if u != w]
        u, w = next(pair for pair in pairs if pair not in self.bidirected_edges)
        first, second = (" <-> ".join(_sorted((end, v))) for end in (u, w))
        return (
            f"Expected maximal bi-directed cliques that share no vertex; got "
            f"{_braces(one)} and {_braces(other)}, which share {v!r}. Add {u} <-> {w}, "
            f"remove {first} or {second}, or set bidirected='latent'."
        )

    def _check_cliques_are_entered_whole(self) -> None:
        for u, v in self.edges:
            clique = self.clique_of(v)
            left = [w for w in clique if (u, w) not in self.edges]
            if left:
                lacking = ", ".join(f"{u} -> {w}" for w in left)
                raise GraphError(
                    f"Expected a vertex that points into a bi-directed clique to point "
                    f"to all of its members; got {u} -> {v} without {lacking}, in the "
                    f"clique {_braces(clique)}. Add {lacking}, remove {u} -> {v}, or "
                    f"set bidirected='latent'."
                )

    def _check_order(self) -> None:
        try:
            cycle = nx.find_cycle(self._condensed)
        except nx.NetworkXNoCycle:
            return
        edges = [self._condensed.edges[hop]["edge"] for hop in cycle]
        text = ", ".join(f"{u} -> {v}" for u, v in edges)
        joined = [_braces(c) for c, _ in cycle if len(c) > 1]
        through = f", through the clique {' and '.join(joined)}" if joined else ""
        raise GraphError(
            f"Expected directed edges that permit an order of the cliques; got the "
            f"cycle {text}{through}. Remove or turn round one of these edges; give a "
            f"variable that is measured twice a vertex for each time."
        )

    @cached_property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """Maximal bi-directed cliques, with a vertex alone as a clique of one.

        A hidden common cause does not make its effects influence each other, so with
        the meaning ``"latent"`` every vertex is alone.
        """
        if self.bidirected == "latent":
            return tuple((v,) for v in self.nodes)
        mates = nx.Graph(self.bidirected_edges)
        mates.add_nodes_from(self.nodes)
        return tuple(sorted(tuple(sorted(c)) for c in nx.find_cliques(mates)))

    @cached_property
    def _home(self) -> dict[str, tuple[str, ...]]:
        return {v: clique for clique in self.cliques for v in clique}

    @cached_property
    def _arrows(self) -> Any:
        arrows = nx.DiGraph(self.edges)
        arrows.add_nodes_from(self.nodes)
        return arrows

    @cached_property
    def _condensed(self) -> Any:
        condensed = nx.DiGraph()
        condensed.add_nodes_from(self.cliques)
        for u, v in self.edges:
            condensed.add_edge(self._home[u], self._home[v], edge=(u, v))
        return condensed

    def clique_of(self, name: str) -> tuple[str, ...]:
        """Find the maximal bi-directed clique of a vertex."""
        return self._home[self.known(name)[0]]

    def clique_order(self) -> tuple[tuple[str, ...], ...]:
        """Order the cliques so that every directed edge points to a later one."""
        return tuple(nx.lexicographical_topological_sort(self._condensed))

    def topological_order(self) -> tuple[str, ...]:
        """Order the vertices so that every directed edge points to a later one."""
        return tuple(v for clique in self.clique_order() for v in clique)

    def tiers(self) -> tuple[tuple[str, ...], ...]:
        """Topological generations, earliest first; a clique is never split."""
        generations = nx.topological_generations(self._condensed)
        return tuple(tuple(sorted(v for c in g for v in c)) for g in generations)

    def parents(self, names: Names) -> frozenset[str]:
        """Vertices with a directed edge to any of ``names``."""
        heads = set(self.known(names))
        return frozenset(u for u, v in self.edges if v in heads)

    def children(self, names: Names) -> frozenset[str]:
        """Vertices with a directed edge from any of ``names``."""
        tails = set(self.known(names))
        return frozenset(v for u, v in self.edges if u in tails)

    def ancestors(self, names: Names) -> frozenset[str]:
        """All that reaches ``names`` by directed edges, ``names`` included."""
        start = self.known(names)
        return frozenset(start).union(*(nx.ancestors(self._arrows, v) for v in start))

    def descendants(self, names: Names) -> frozenset[str]:
        """All that ``names`` reach by directed edges, ``names`` included."""
        start = self.known(names)
        return frozenset(start).union(*(nx.descendants(self._arrows, v) for v in start))

    def known(self, names: Names) -> tuple[str, ...]:
        """Give back ``names`` as a tuple, or raise where one is no vertex here."""
        found = tuple([names] if isinstance(names, str) else names)
        for name in found:
            if name not in self.nodes:
                raise GraphError(
                    f"Expected vertices of the graph; got {name!r}, which is not among "
                    f"{', '.join(self.nodes) or 'its none'}."
                    f"{nearest(str(name), self.nodes)}"
                )
        return found

    def alter(self, names: Names) -> RehearsalGraph:
        """Perform a rehearsal operation: cut what naturally sets ``names``.

        All edges into an altered vertex are severed. Its bi-directed edges vanish,
        but with the meaning ``"mutual"`` it becomes a parent of those members of its
        clique that are not altered themselves.
        """
        altered = set(self.known(names))
        arrows = [(u, v) for u, v in self.edges if v not in altered]
        mates = [pair for pair in self.bidirected_edges if not altered & set(pair)]
        if self.bidirected == "mutual":
            arrows += [
                (u, v)
                for pair in self.bidirected_edges
                for u, v in (pair, pair[::-1])
                if u in altered and v not in altered
            ]
        return RehearsalGraph(arrows, mates, self.nodes, self.bidirected)

    do = alter

    def to_dot(self) -> str:
        """Write DOT text, which :meth:`read` turns back into an equal graph.

        Example:
            >>> print(RehearsalGraph([("x", "debt ratio")]).to_dot())
            digraph {
              "debt ratio";
              x;
              x -> "debt ratio";
            }
        """
        lines = ["bidirected=latent;"] if self.bidirected == "latent" else []
        lines += [f"{quoted(v)};" for v in self.nodes]
        lines += [f"{quoted(u)} -> {quoted(v)};" for u, v in self.edges]
        lines += [
            f"{quoted(u)} -> {quoted(v)} [dir=both, style=dashed];"
            for u, v in self.bidirected_edges
        ]
        return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}"])

    def to_networkx(self) -> Any:
        """Make a ``networkx.DiGraph``, which :meth:`read` turns back.

        A bi-directed edge is one edge with ``bidirected=True``; where the pair has a
        directed edge too, it runs the other way.
        """
        graph = nx.DiGraph(self.edges, bidirected=self.bidirected)
        graph.add_nodes_from(self.nodes)
        for u, v in self.bidirected_edges:
            u, v = (v, u) if (u, v) in self.edges else (u, v)
            graph.add_edge(u, v, bidirected=True)
        return graph

    def draw(self, ax: Any = None, roles: Mapping[str, str] | None = None) -> Any:
        """Draw the graph from left to right, one column per tier.

        Args:
            ax: The matplotlib axes to draw on; a new figure of fitting size if None.
            roles: Colours by role: name -> ``"context"``, ``"covariate"``,
                ``"action"`` or ``"outcome"``.

        Returns:
            The axes.
        """
        # matplotlib is an extra, and slow to import.
        from forestall.drawing import Scene, draw

        self.known(roles or {})
        scene = Scene(
            self.tiers(),
            self.cliques,
            self.edges,
            self.bidirected_edges,
            self.bidirected,
        )
        return draw(scene, ax, roles or {})


_ONE_EDGE = {
    "->": "Keep one; if the two influence each other, put the pair into "
    "bidirected_edges.",
    "<->": "Keep one, or set bidirected='latent' if the bi-directed edge stands "
    "for a hidden common cause.",
}


def read_graphs(source: object) -> tuple[RehearsalGraph, ...]:
    """Read one graph, or a list of graphs over the same vertices, one per time step."""
    if not isinstance(source, list | tuple):
        return (RehearsalGraph.read(source),)
    if not source:
        raise GraphError(
            "Expected a graph, or one graph per time step; got an empty list. "
            "Leave graph out where none is known."
        )
    graphs = tuple(_read_step(step, each) for step, each in enumerate(source))
    for step, graph in enumerate(graphs):
        _check_same_nodes(graphs[0], graph, step)
    return graphs


def _read_step(step: int, source: object) -> RehearsalGraph:
    try:
        return RehearsalGraph.read(source)
    except GraphError as error:
        raise GraphError(f"In the graph of step {step}: {error}") from error


def _check_same_nodes(first: RehearsalGraph, graph: RehearsalGraph, step: int) -> None:
    lacks = [repr(v) for v in first.nodes if v not in graph.nodes]
    adds = [repr(v) for v in graph.nodes if v not in first.nodes]
    both = {"lacks": lacks, "adds": adds}
    differs = [f"{verb} {', '.join(names)}" for verb, names in both.items() if names]
    if differs:
        raise GraphError(
            f"Expected the graphs of all time steps to have the same vertices; got "
            f"step {step}, which {' and '.join(differs)} compared with step 0. A "
            f"vertex without edges is given by name, nodes=[...] or 'v;' in DOT."
        )


def _names(nodes: object) -> Iterable[object]:
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise GraphError(
            f"Expected nodes as a list of names; got {nodes!r}. Write [{nodes!r}]."
        )
    return nodes


def _pair(edge: object, what: str) -> Pair:
    if not isinstance(edge, list | tuple) or len(edge) != 2:
        raise GraphError(
            f"Expected {what} as pairs of names; got {edge!r}. Write ('x', 'a')."
        )
    return vertex_name(edge[0]), vertex_name(edge[1])


def _sorted(pair: Pair) -> Pair:
    u, v = pair
    return (u, v) if u <= v else (v, u)


def _braces(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"
