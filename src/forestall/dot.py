"""Graphs from DOT and GML text and from networkx, read but not yet checked.

A reader here gives a :class:`Draft`, what the source says; whether that is a sound
graph is for :class:`~forestall.RehearsalGraph` to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any, NamedTuple

import networkx as nx

from forestall.errors import GraphError

Pair = tuple[str, str]


@dataclass
class Draft:
    """What a source says, before it is checked as a graph.

    The fields are those of :class:`~forestall.RehearsalGraph`.
    """

    edges: set[Pair] = field(default_factory=set)
    bidirected_edges: set[Pair] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    bidirected: str = "mutual"

    def connect(self, u: str, v: str, attributes: Mapping[str, object]) -> None:
        """Add an edge of the kind that its attributes say."""
        direction = str(attributes.get("dir", "forward")).lower()
        if str(attributes.get("bidirected", "")).lower() in {"true", "1"}:
            direction = "both"
        if direction == "forward":
            self.edges.add((u, v))
        elif direction == "back":
            self.edges.add((v, u))
        elif direction == "both":
            self.bidirected_edges.add((u, v))
        else:
            raise _undirected(f"an edge {u} -> {v} [dir={direction}]")

    def merged(self) -> Draft:
        """Make two opposite edges one bi-directed edge."""
        twice = {(u, v) for u, v in self.edges if (v, u) in self.edges and u != v}
        mates = self.bidirected_edges | twice
        return Draft(self.edges - twice, mates, self.nodes, self.bidirected)


def read_draft(source: object) -> Draft:
    """Read DOT text, GML text or a directed networkx graph.

    Example:
        >>> draft = read_draft("digraph { a -> y; y -> a; u -> a }")
        >>> draft.edges
        {('u', 'a')}
        >>> sorted(draft.nodes)
        ['a', 'u', 'y']
    """
    if isinstance(source, str):
        return _read_text(source).merged()
    if isinstance(source, nx.Graph):
        return _read_networkx(source).merged()
    raise GraphError(
        f"Expected a graph as a RehearsalGraph, a networkx.DiGraph, or DOT or GML "
        f"text; got {type(source).__name__}. Edges in a list make a graph by "
        f"RehearsalGraph(edges=[('x', 'a'), ...])."
    )


def vertex_name(name: object) -> str:
    """Give back the name of a vertex, or raise where it cannot be one."""
    if not isinstance(name, str) or not name:
        raise GraphError(
            f"Expected vertex names that are non-empty text; got {name!r} "
            f"({type(name).__name__}). Rename it, in networkx by "
            f"nx.relabel_nodes(graph, str)."
        )
    return name


def quoted(name: str) -> str:
    """Write a name as DOT reads it, in double quotes where it needs them.

    Example:
        >>> print(quoted("debt_ratio"), quoted("debt ratio"), quoted("node"))
        debt_ratio "debt ratio" "node"
    """
    if _BARE.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = {"graph", "digraph", "subgraph", "node", "edge", "strict"}


def _undirected(what: str, advice: str = "") -> GraphError:
    return GraphError(
        f"Expected directed and bi-directed edges; got {what}. An influence has a "
        f"direction: write a -> b, or a <-> b where both influence each other or share "
        f"a hidden cause.{advice}"
    )


def _read_networkx(source: Any) -> Draft:
    if not source.is_directed():
        raise _undirected(f"an undirected {type(source).__name__} of networkx")
    draft = Draft(nodes={vertex_name(v) for v in source.nodes})
    draft.bidirected = str(source.graph.get("bidirected", draft.bidirected))
    for u, v, attributes in source.edges(data=True):
        draft.connect(u, v, attributes)
    return draft


_GML = re.compile(
    r"\s*(?:(?:creator|version|comment)\b[^\n]*\n\s*|#[^\n]*\n\s*)*graph\s*\[",
    re.IGNORECASE,
)


def _read_text(text: str) -> Draft:
    return _read_gml(text) if _GML.match(text) else _DotReader(text).read()


def _read_gml(text: str) -> Draft:
    try:
        parsed = nx.parse_gml(text)
    except (nx.NetworkXException, ValueError) as error:
        raise GraphError(
            f"Expected GML text with a label for each node; got text that cannot be "
            f"read: {error}. Compare it with what networkx.generate_gml writes."
        ) from error
    if not parsed.is_directed():
        raise _undirected("an undirected GML graph", " Put 'directed 1' into it.")
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


class _Token(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def keyword(self) -> str:
        return self.text.lower() if self.kind == "word" else ""

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


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

    Dagitty's ``<->`` and ``<-`` are understood too, in chains and between groups, and
    a mistake is named by its line.
    """

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._draft = Draft()

    def read(self) -> Draft:
        self._header()
        self._statements({})
        if self._next.kind != "end":
            raise self._error()
        return self._draft

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
        found = self._next.is_mark(mark)
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
            raise _undirected("an undirected DOT graph, 'graph {'")
        if kind not in {"digraph", "dag"}:
            raise self._error()
        if kind == "dag":
            self._draft.bidirected = "latent"
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
        if self._next.kind == "end":
            raise self._error()
        if self._tokens[self._at + 1].is_mark("="):
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
        draft = self._draft
        draft.bidirected = attributes.get("bidirected", draft.bidirected)

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
            for u, v in product(left, right):
                self._connect(u, sign, v, attributes)
        return [v for group in groups for v in group]

    def _connect(self, u: str, sign: str, v: str, attributes: dict[str, str]) -> None:
        if sign == "--":
            raise _undirected(f"the undirected edge {u} -- {v}")
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
        if self._next.is_mark("{"):
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
                if not self._take(","):
                    self._take(";")
        return attributes
