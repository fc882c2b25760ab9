"""Rehearsal graphs: who influences whom, and what an alteration cuts.

The definitions are those of the paper's appendix on graph-based rehearsal models. A
vertex is a variable; ``a -> b`` says that ``a`` influences ``b``; ``a <-> b`` has one
of two stated meanings, the field ``bidirected`` of :class:`RehearsalGraph`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from forestall.errors import GraphError, MissingExtraError, nearest

Pair = tuple[str, str]
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
        names = {_name(v) for v in _names(nodes)}.union(*arrows, *mates)
        object.__setattr__(self, "edges", tuple(sorted(arrows)))
        object.__setattr__(self, "bidirected_edges", tuple(sorted(mates)))
        object.__setattr__(self, "nodes", tuple(sorted(names)))
        object.__setattr__(self, "bidirected", bidirected)
        self.check()

    def __str__(self) -> str:
        """Write the edges in one line, isolated vertices last."""
        joined = set().union(*self.edges, *self.bidirected_edges)
        parts = [f"{u} -> {v}" for u, v in self.edges]
        parts += [f"{u} <-> {v}" for u, v in self.bidirected_edges]
        return ", ".join(parts + [v for v in self.nodes if v not in joined])

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
        if isinstance(source, str):
            return _read_text(source)
        if isinstance(source, nx.Graph):
            return _read_networkx(source)
        raise GraphError(
            f"Expected a graph as a RehearsalGraph, a networkx.DiGraph, or DOT or GML "
            f"text; got {type(source).__name__}. Edges in a list make a graph by "
            f"RehearsalGraph(edges=[('x', 'a'), ...])."
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
        for edge, text, kind in self._described():
            if edge[0] == edge[1]:
                raise GraphError(
                    f"Expected edges between two distinct vertices; got {text}. Remove "
                    f"it; a variable's own past is a vertex of its own."
                )
            key = (*_sorted(edge), kind if self.bidirected == "latent" else "")
            if key in known:
                raise GraphError(
                    f"Expected at most one edge between two vertices; got "
                    f"{known[key]} and {text}. {_ONE_EDGE[kind]}"
                )
            known[key] = text

    def _described(self) -> Iterator[tuple[Pair, str, str]]:
        for u, v in self.edges:
            yield (u, v), f"{u} -> {v}", "directed"
        for u, v in self.bidirected_edges:
            yield (u, v), f"{u} <-> {v}", "bidirected"

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
            for u, v in self.bidirected_edges:
                arrows += [(u, v)] * (u in altered and v not in altered)
                arrows += [(v, u)] * (v in altered and u not in altered)
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
        lines += [f"{_quoted(v)};" for v in self.nodes]
        lines += [f"{_quoted(u)} -> {_quoted(v)};" for u, v in self.edges]
        both = "[dir=both, style=dashed]"
        lines += [
            f"{_quoted(u)} -> {_quoted(v)} {both};" for u, v in self.bidirected_edges
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
        return _draw(self, ax, self._checked_roles(roles or {}))

    def _checked_roles(self, roles: Mapping[str, str]) -> dict[str, str]:
        self.known(roles)
        for name, role in roles.items():
            if role not in _COLOURS:
                raise GraphError(
                    f"Expected a role among {', '.join(_COLOURS)}; got {role!r} for "
                    f"{name!r}.{nearest(role, _COLOURS)}"
                )
        return dict(roles)


_ONE_EDGE = {
    "directed": "Keep one; if the two influence each other, put the pair into "
    "bidirected_edges.",
    "bidirected": "Keep one, or set bidirected='latent' if the bi-directed edge stands "
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
    if lacks or adds:
        parts = [f"lacks {', '.join(lacks)}"] * bool(lacks)
        parts += [f"adds {', '.join(adds)}"] * bool(adds)
        raise GraphError(
            f"Expected the graphs of all time steps to have the same vertices; got "
            f"step {step}, which {' and '.join(parts)} compared with step 0. A vertex "
            f"without edges is given by name, nodes=[...] or 'v;' in DOT."
        )


def _names(nodes: object) -> Iterable[object]:
    if isinstance(nodes, str) or not isinstance(nodes, Iterable):
        raise GraphError(
            f"Expected nodes as a list of names; got {nodes!r}. Write [{nodes!r}]."
        )
    return nodes


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise GraphError(
            f"Expected vertex names that are non-empty text; got {name!r} "
            f"({type(name).__name__}). Rename it, in networkx by "
            f"nx.relabel_nodes(graph, str)."
        )
    return name


def _pair(edge: object, what: str) -> Pair:
    if not isinstance(edge, list | tuple) or len(edge) != 2:
        raise GraphError(
            f"Expected {what} as pairs of names; got {edge!r}. Write ('x', 'a')."
        )
    return _name(edge[0]), _name(edge[1])


def _sorted(pair: Pair) -> Pair:
    u, v = pair
    return (u, v) if u <= v else (v, u)


def _braces(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"


@dataclass
class _Draft:
    """What a source says, before it is checked as a graph."""

    nodes: set[str] = field(default_factory=set)
    arrows: set[Pair] = field(default_factory=set)
    mates: set[Pair] = field(default_factory=set)
    meaning: str = "mutual"

    def connect(self, u: str, v: str, attributes: Mapping[str, object]) -> None:
        direction = str(attributes.get("dir", "forward")).lower()
        if str(attributes.get("bidirected", "")).lower() in {"true", "1"}:
            direction = "both"
        if direction not in {"forward", "back", "both"}:
            raise GraphError(
                _UNDIRECTED.format(f"an edge {u} -> {v} [dir={direction}]")
            )
        edge = (v, u) if direction == "back" else (u, v)
        (self.mates if direction == "both" else self.arrows).add(edge)

    def finish(self) -> RehearsalGraph:
        twice = {(u, v) for u, v in self.arrows if (v, u) in self.arrows and u != v}
        arrows, mates = self.arrows - twice, self.mates | twice
        return RehearsalGraph(arrows, mates, self.nodes, self.meaning)


_UNDIRECTED = (
    "Expected directed and bi-directed edges; got {}. An influence has a direction: "
    "write a -> b, or a <-> b where both influence each other or share a hidden cause."
)


def _read_networkx(source: Any) -> RehearsalGraph:
    if not source.is_directed():
        raise GraphError(
            _UNDIRECTED.format(f"an undirected {type(source).__name__} of networkx")
        )
    nodes = {_name(v) for v in source.nodes}
    draft = _Draft(nodes, meaning=str(source.graph.get("bidirected", "mutual")))
    for u, v, attributes in source.edges(data=True):
        draft.connect(u, v, attributes)
    return draft.finish()


_GML = re.compile(
    r"\s*(?:(?:creator|version|comment)\b[^\n]*\n\s*|#[^\n]*\n\s*)*graph\s*\[",
    re.IGNORECASE,
)


def _read_text(text: str) -> RehearsalGraph:
    return _read_gml(text) if _GML.match(text) else _DotReader(text).read()


def _read_gml(text: str) -> RehearsalGraph:
    try:
        parsed = nx.parse_gml(text)
    except (nx.NetworkXException, ValueError) as error:
        raise GraphError(
            f"Expected GML text with a label for each node; got text that cannot be "
            f"read: {error}. Compare it with what networkx.generate_gml writes."
        ) from error
    if not parsed.is_directed():
        raise GraphError(
            _UNDIRECTED.format("an undirected GML graph") + " Put 'directed 1' into it."
        )
    return _read_networkx(parsed)


_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^\#[^\n]*)
    |(?P<quoted>"(?:\\.|[^"\\])*")
    |(?P<edge><->|->|<-|--)
    |(?P<mark>[{}\[\];,=:])
    |(?P<html><(?:[^<>]|<[^<>]*>)*>)
    |(?P<word>[^\W\d][\w.]*|(?<![\w.])-?(?:\.\d+|\d+(?:\.\d*)?)(?!\w))""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = {"graph", "digraph", "subgraph", "node", "edge", "strict"}


def _quoted(name: str) -> str:
    if _BARE.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def _tokens(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(repr(text[at : at + 20]), line)
        kind, found = str(match.lastgroup), match.group()
        if kind == "quoted":
            yield _Token(kind, re.sub(r'\\(["\\])', r"\1", found[1:-1]), line)
        elif kind != "skip":
            yield _Token(kind, found, line)
        at, line = match.end(), line + found.count("\n")
    yield _Token("end", "", line)


def _unreadable(what: str, line: int) -> GraphError:
    return GraphError(
        f"Expected DOT text such as 'digraph {{ a -> b; c -> d [dir=both] }}', or GML "
        f"text; got {what} on line {line}. Put names with spaces or signs into double "
        f"quotes; of a file, give the content and not its name."
    )


class _DotReader:
    """The part of the DOT language that says something about a graph's structure.

    Own code and not pydot's parser, because dagitty's ``<->`` and ``<-`` are to be
    understood in chains and between groups, and a mistake is to be named by its line.
    """

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._draft = _Draft()

    def read(self) -> RehearsalGraph:
        self._header()
        self._statements({})
        if self._next.kind != "end":
            raise self._error()
        return self._draft.finish()

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _error(self) -> GraphError:
        token = self._next
        what = "the end of the text" if token.kind == "end" else repr(token.text)
        return _unreadable(what, token.line)

    def _pop(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1].text

    def _take(self, mark: str) -> bool:
        found = self._next.kind == "mark" and self._next.text == mark
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._error()

    def _id(self) -> str:
        if self._next.kind not in {"word", "quoted", "html"}:
            raise self._error()
        return self._pop()

    def _header(self) -> None:
        if self._next.keyword == "strict":
            self._pop()
        kind = self._next.keyword
        if kind == "graph":
            raise GraphError(_UNDIRECTED.format("an undirected DOT graph, 'graph {'"))
        if kind not in {"digraph", "dag"}:
            raise self._error()
        self._draft.meaning = "latent" if kind == "dag" else "mutual"
        self._pop()
        if self._next.kind != "mark":
            self._id()

    def _statements(self, defaults: Mapping[str, str]) -> list[str]:
        inherited = dict(defaults)
        mentioned: list[str] = []
        self._expect("{")
        while not self._take("}"):
            mentioned += self._statement(inherited)
        return mentioned

    def _statement(self, defaults: dict[str, str]) -> list[str]:
        if self._take(";"):
            return []
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if following.kind == "mark" and following.text == "=":
            return self._assignment()
        if self._next.keyword in {"graph", "node", "edge"}:
            return self._default(defaults)
        return self._chain(defaults)

    def _assignment(self) -> list[str]:
        key = self._id()
        self._expect("=")
        self._set({key: self._id()})
        return []

    def _set(self, attributes: Mapping[str, str]) -> None:
        self._draft.meaning = attributes.get("bidirected", self._draft.meaning)

    def _default(self, defaults: dict[str, str]) -> list[str]:
        kind = self._pop().lower()
        attributes = self._attributes()
        if kind == "graph":
            self._set(attributes)
        if kind == "edge":
            defaults.update(attributes)
        return []

    def _chain(self, defaults: Mapping[str, str]) -> list[str]:
        groups, signs = [self._group(defaults)], []
        while self._next.kind == "edge":
            signs.append(self._pop())
            groups.append(self._group(defaults))
        attributes = {**defaults, **self._attributes()}
        for (left, right), sign in zip(pairwise(groups), signs, strict=True):
            for u in left:
                for v in right:
                    self._connect(u, sign, v, attributes)
        return [v for group in groups for v in group]

    def _connect(self, u: str, sign: str, v: str, attributes: dict[str, str]) -> None:
        if sign == "--":
            raise GraphError(_UNDIRECTED.format(f"the undirected edge {u} -- {v}"))
        if sign == "<->":
            attributes = {**attributes, "dir": "both"}
        if sign == "<-":
            u, v = v, u
        self._draft.connect(u, v, attributes)

    def _group(self, defaults: Mapping[str, str]) -> list[str]:
        if self._next.keyword == "subgraph":
            self._pop()
            if self._next.kind != "mark":
                self._id()
        if self._next.kind == "mark" and self._next.text == "{":
            return self._statements(defaults)
        name = self._id()
        while self._take(":"):
            self._id()
        self._draft.nodes.add(name)
        return [name]

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._take("["):
            while not self._take("]"):
                key = self._id()
                attributes[key] = self._id() if self._take("=") else "true"
                self._take(",") or self._take(";")
        return attributes


_COLOURS = {
    "context": "#cfe2f3",
    "covariate": "#e7e6e6",
    "action": "#d9ead3",
    "outcome": "#fce5cd",
}
_DARK, _RED = "#444444", "#b03a2e"
_HEIGHT, _PADDING, _ROW, _GAP, _FONT = 24.0, 9.0, 44.0, 64.0, 11.0

# In a column stands a vertex, or the place where edges of a vertex pass together.
_Slot = str | tuple[str, int]
_Columns = list[list[_Slot]]


def _layout(graph: RehearsalGraph) -> tuple[_Columns, _Columns]:
    """Give the columns, and for each edge the slots that it runs through."""
    columns: _Columns = [list(tier) for tier in graph.tiers()]
    at = {v: i for i, tier in enumerate(graph.tiers()) for v in tier}
    routes: _Columns = []
    for u, v in graph.edges:
        passed: list[_Slot] = [(u, i) for i in range(at[u] + 1, at[v])]
        for i, slot in enumerate(passed, start=at[u] + 1):
            columns[i] += [slot] * (slot not in columns[i])
        routes.append([u, *passed, v])
    return _untangled(graph, columns, routes), routes


def _untangled(graph: RehearsalGraph, columns: _Columns, routes: _Columns) -> _Columns:
    """Order each column by the mean height of its neighbours, to and fro."""
    links = [link for route in routes for link in pairwise(route)]
    before, after = nx.DiGraph(links), nx.DiGraph([link[::-1] for link in links])
    for _ in range(6):
        columns = _swept(graph, columns, before)
        columns = _swept(graph, columns[::-1], after)[::-1]
    return _swept(graph, columns, before)


def _swept(graph: RehearsalGraph, columns: _Columns, links: Any) -> _Columns:
    height = _heights(columns)

    def key(slot: _Slot) -> tuple[float, str, str]:
        mates = graph.clique_of(slot) if isinstance(slot, str) else (slot,)
        near = [height[w] for v in mates if v in links for w in links.pred[v]]
        level = near or [height[v] for v in mates]
        return (-sum(level) / len(level), str(mates), str(slot))

    swept: _Columns = []
    for column in columns:
        swept.append(sorted(column, key=key))
        height.update(_heights(swept[-1:]))
    return swept


def _heights(columns: _Columns) -> dict[_Slot, float]:
    """Stack each column about the middle line; a passing edge needs half a row."""
    heights: dict[_Slot, float] = {}
    for column in columns:
        sizes = [1.0 if isinstance(slot, str) else 0.5 for slot in column]
        above = [sum(sizes[:i]) + size / 2 for i, size in enumerate(sizes)]
        heights |= {v: sum(sizes) / 2 - a for v, a in zip(column, above, strict=True)}
    return heights


class _Box(NamedTuple):
    """Where a slot stands, in points: its middle, and half of its width."""

    x: float
    y: float
    half: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x - self.half, self.y

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.half, self.y

    @property
    def top(self) -> tuple[float, float]:
        return self.x, self.y + _HEIGHT / 2


def _boxes(columns: _Columns, widths: Mapping[str, float]) -> dict[_Slot, _Box]:
    """Give every slot of a column the same width, so that no edge crosses a box."""
    boxes, x = {}, 0.0
    for column in columns:
        widest = max(widths[slot] for slot in column if isinstance(slot, str))
        half = widest / 2 + _PADDING
        for slot, height in _heights([column]).items():
            boxes[slot] = _Box(x + half, height * _ROW, half)
        x += 2 * half + _GAP
    return boxes


def _draw(graph: RehearsalGraph, ax: Any, roles: Mapping[str, str]) -> Any:
    try:
        from matplotlib.textpath import TextPath
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots") from error
    # Names are outlines in data units, so that they fit their boxes at any size.
    texts = {v: TextPath((0, 0), v.replace("$", r"\$"), _FONT) for v in graph.nodes}
    widths = {v: text.get_extents().width for v, text in texts.items()}
    columns, routes = _layout(graph)
    boxes = _boxes(columns, widths)
    ax = _axes(ax, boxes)
    for route in routes:
        ax.add_patch(_arrow(_route([boxes[slot] for slot in route]), both=False))
    for u, v in graph.bidirected_edges:
        ax.add_patch(_arrow(_arc(boxes[u], boxes[v]), both=True))
    for v, text in texts.items():
        _write(ax, boxes[v], text, _COLOURS.get(roles.get(v, ""), "white"))
    _legend(graph, ax, roles)
    return ax


def _axes(ax: Any, boxes: Mapping[_Slot, _Box]) -> Any:
    from matplotlib import pyplot

    wide = max((box.right[0] for box in boxes.values()), default=0.0) + 30
    tall = max((box.top[1] for box in boxes.values()), default=0.0) + 30
    if ax is None:
        size = (max(wide, 460) / 72, (2 * tall + 40) / 72)
        ax = pyplot.figure(figsize=size, layout="constrained").add_subplot()
    ax.set(xlim=(-10, wide), ylim=(-tall, tall), aspect="equal")
    ax.set_axis_off()
    return ax


def _write(ax: Any, box: _Box, text: Any, fill: str) -> None:
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.transforms import Affine2D

    corner, style = (box.left[0], box.y - _HEIGHT / 2), "round,pad=0,rounding_size=6"
    size = (2 * box.half, _HEIGHT)
    ax.add_patch(FancyBboxPatch(corner, *size, style, fc=fill, ec=_DARK, zorder=3))
    extents = text.get_extents()
    start = box.x - extents.width / 2 - extents.x0
    move = Affine2D().translate(start, box.y - 0.36 * _FONT)
    ax.add_patch(PathPatch(move.transform_path(text), fc="black", lw=0, zorder=4))


def _route(boxes: Sequence[_Box]) -> Any:
    """Run from right side to left side, level across every column that is passed."""
    from matplotlib.path import Path

    points, codes = [boxes[0].right], [Path.MOVETO]
    for box in boxes[1:]:
        (x0, y0), (x1, y1) = points[-1], box.left
        points += [((x0 + x1) / 2, y0), ((x0 + x1) / 2, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
        if box is not boxes[-1]:
            points.append(box.right)
            codes.append(Path.LINETO)
    return Path(points, codes)


def _arc(one: _Box, other: _Box) -> Any:
    """Bow out beside the column for mates of one tier, over the top otherwise."""
    from matplotlib.path import Path

    if one.x == other.x:
        start, end = one.right, other.right
        reach = max(start[0], end[0]) + 14 + abs(one.y - other.y) / 4
        bends = [(reach, start[1]), (reach, end[1])]
    else:
        start, end = one.top, other.top
        peak = max(start[1], end[1]) + 30
        bends = [(start[0], peak), (end[0], peak)]
    return Path([start, *bends, end], [Path.MOVETO] + [Path.CURVE4] * 3)


def _arrow(path: Any, both: bool) -> Any:
    from matplotlib.patches import FancyArrowPatch

    style, colour = ("<|-|>", _RED) if both else ("-|>", _DARK)
    arrow = FancyArrowPatch(path=path, arrowstyle=style, color=colour, zorder=2)
    arrow.set(mutation_scale=11, linestyle="--" if both else "-")
    return arrow


def _legend(graph: RehearsalGraph, ax: Any, roles: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = [role for role in _COLOURS if role in roles.values()]
    handles: list[Any] = [Patch(fc=_COLOURS[r], ec=_DARK, label=r) for r in used]
    if graph.bidirected_edges:
        mutual = graph.bidirected == "mutual"
        label = "influence each other" if mutual else "hidden common cause"
        handles.append(Line2D([], [], color=_RED, ls="--", label=label))
    if handles:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
        ax.legend(handles=handles, ncols=3, frameon=False, **place)
