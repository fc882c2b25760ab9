"""Rehearsal graphs: their conditions, their surgery, how they are read and drawn."""

from __future__ import annotations

import sys

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestall.errors import GraphError, MissingExtraError, SpecError
from forestall.graph import RehearsalGraph, read_graphs

CLIQUE = [("z1", "z2"), ("z1", "z3"), ("z2", "z3")]
THREE = RehearsalGraph([("x", "z1"), ("x", "z2"), ("x", "z3"), ("z3", "y")], CLIQUE)


# Strategies give arguments and the tests make graphs of them: the type checker of the
# tests draws random items, which hypothesis forbids inside a strategy.
LETTERS = st.sampled_from("abcdefg")


@st.composite
def rehearsal_graphs(draw, names=LETTERS):
    """Arguments of the paper's graphs: cliques in a row, each entered whole."""
    nodes = draw(st.lists(names, unique=True, min_size=1, max_size=7))
    blocks: list[list[str]] = []
    for v in nodes:
        if blocks and draw(st.booleans()):
            blocks[-1].append(v)
        else:
            blocks.append([v])
    mates = [(u, v) for b in blocks for u in b for v in b if u < v]
    arrows = []
    for i, block in enumerate(blocks):
        for u in [u for earlier in blocks[:i] for u in earlier]:
            if draw(st.booleans()):
                arrows += [(u, v) for v in block]
    return arrows, mates, nodes, "mutual"


@st.composite
def latent_graphs(draw, names=LETTERS):
    """Arguments of graphs with hidden causes between any two vertices."""
    nodes = draw(st.lists(names, unique=True, min_size=1, max_size=6))
    pairs = [(u, v) for i, v in enumerate(nodes) for u in nodes[:i]]
    arrows = [pair for pair in pairs if draw(st.booleans())]
    mates = [pair for pair in pairs if draw(st.integers(0, 3)) == 0]
    return arrows, mates, nodes, "latent"


graphs = st.one_of(rehearsal_graphs(), latent_graphs())
AWKWARD = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6
) | st.sampled_from(["node", "Graph", "a b", 'say "hi"', "back\\", "a->b", "# x", "-1"])


def subset(data, graph):
    return data.draw(st.sets(st.sampled_from(graph.nodes)))


def test_equal_content_makes_equal_graphs_with_equal_hashes():
    one = RehearsalGraph([("x", "a"), ("u", "a")], [("z", "w")], ["q"])
    two = RehearsalGraph([["u", "a"], ["x", "a"]], [("w", "z")], ("q", "x"))
    assert one == two
    assert hash(one) == hash(two)
    assert one.nodes == ("a", "q", "u", "w", "x", "z")
    assert one != RehearsalGraph([("x", "a"), ("u", "a")], [("z", "w")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edges": [("a", "a")]}, r"distinct vertices; got a -> a\. Remove"),
        (
            {"edges": [("a", "b"), ("b", "a")]},
            r"at most one edge .* got a -> b and b -> a\. Keep one; if the two",
        ),
        (
            {"edges": [("a", "b")], "bidirected_edges": [("b", "a")]},
            r"got a -> b and a <-> b\. Keep one, or set bidirected='latent'",
        ),
        (
            {"bidirected_edges": [("a", "b"), ("b", "c")]},
            r"\{a, b\} and \{b, c\}, which share 'b'\. Add a <-> c, remove a <-> b or",
        ),
        (
            {"edges": [("x", "a")], "bidirected_edges": [("a", "b")]},
            r"got x -> a without x -> b, in the clique \{a, b\}\. Add x -> b",
        ),
        (
            {"edges": [("a", "b"), ("b", "c"), ("c", "a")]},
            r"got the cycle a -> b, b -> c, c -> a\. Remove or turn round",
        ),
        (
            {
                "edges": [("a", "c"), ("c", "d"), ("d", "a"), ("d", "b")],
                "bidirected_edges": [("a", "b")],
            },
            r"cycle a -> c, c -> d, d -> \w, through the clique \{a, b\}\.",
        ),
        ({"bidirected": "both"}, r"'mutual' or 'latent'; got 'both'"),
        ({"edges": ["ab"]}, r"edges as pairs of names; got 'ab'"),
        ({"edges": [("a", "b", "c")]}, r"edges as pairs of names; got \('a', 'b'"),
        ({"nodes": "abc"}, r"list of names; got 'abc'\. Write \['abc'\]"),
        ({"nodes": [""]}, r"non-empty text; got ''"),
    ],
)
def test_what_is_no_rehearsal_graph_is_refused_by_name(arguments, message):
    with pytest.raises(GraphError, match=message):
        RehearsalGraph(**arguments)


def test_hidden_causes_need_only_acyclic_edges():
    edges, mates = [("x", "a"), ("a", "b")], [("a", "b"), ("b", "c"), ("x", "c")]
    graph = RehearsalGraph(edges, mates, bidirected="latent")
    assert graph.cliques == (("a",), ("b",), ("c",), ("x",))
    with pytest.raises(GraphError, match="cycle a -> b, b -> c, c -> a"):
        RehearsalGraph([("a", "b"), ("b", "c"), ("c", "a")], bidirected="latent")
    with pytest.raises(GraphError, match="got a -> b and b -> a"):
        RehearsalGraph([("a", "b"), ("b", "a")], bidirected="latent")


def test_an_unknown_vertex_is_answered_with_the_nearest():
    with pytest.raises(GraphError, match=r"'z11', .* Did you mean 'z1'\?"):
        THREE.alter("z11")


def test_the_figure_of_three_graphs():
    assert THREE.alter("z1") == RehearsalGraph(
        [("x", "z2"), ("x", "z3"), ("z1", "z2"), ("z1", "z3"), ("z3", "y")],
        [("z2", "z3")],
    )
    assert THREE.alter(["z1", "z3"]) == RehearsalGraph(
        [("x", "z2"), ("z1", "z2"), ("z3", "z2"), ("z3", "y")]
    )


def test_altering_cuts_a_hidden_cause_without_making_a_parent():
    graph = RehearsalGraph([("x", "a")], [("a", "b")], bidirected="latent")
    assert graph.alter("a") == RehearsalGraph(
        nodes=("a", "b", "x"), bidirected="latent"
    )


@given(parts=graphs, data=st.data())
def test_alterations_leave_a_sound_graph_and_add_up_in_any_order(parts, data):
    graph = RehearsalGraph(*parts)
    one, two = subset(data, graph), subset(data, graph)
    both = graph.alter(one | two)
    both.check()
    assert graph.alter(one).alter(two) == graph.alter(two).alter(one) == both
    assert graph.alter(one).alter(one) == graph.do(one) == graph.alter(one)
    assert not both.parents(one | two)
    assert graph.alter(()) == graph


@given(parts=graphs)
def test_every_edge_points_to_a_later_vertex_clique_and_tier(parts):
    graph = RehearsalGraph(*parts)
    order, tiers = graph.topological_order(), graph.tiers()
    tier = {v: i for i, members in enumerate(tiers) for v in members}
    assert sorted(order) == sorted(tier) == list(graph.nodes)
    for u, v in graph.edges:
        assert order.index(u) < order.index(v)
        assert tier[u] < tier[v]
    for clique in graph.clique_order():
        assert len({tier[v] for v in clique}) == 1
        assert all(graph.clique_of(v) == clique for v in clique)


@given(parts=graphs, data=st.data())
def test_ancestors_and_descendants_are_two_sides_of_one_relation(parts, data):
    graph = RehearsalGraph(*parts)
    names = subset(data, graph)
    above, below = graph.ancestors(names), graph.descendants(names)
    assert names <= above & below
    assert graph.parents(above) <= above
    assert graph.children(below) <= below
    for v in graph.nodes:
        assert (v in below) == bool(names & graph.ancestors(v))


def test_relations_of_the_three_graphs():
    assert THREE.parents("y") == {"z3"}
    assert THREE.parents(["z1", "y"]) == {"x", "z3"}
    assert THREE.children("x") == {"z1", "z2", "z3"}
    assert THREE.ancestors("y") == {"y", "z3", "x"}
    assert THREE.descendants("z3") == {"z3", "y"}
    assert THREE.clique_order() == (("x",), ("z1", "z2", "z3"), ("y",))
    assert THREE.tiers() == (("x",), ("z1", "z2", "z3"), ("y",))


@settings(max_examples=200)
@given(parts=rehearsal_graphs(AWKWARD) | latent_graphs(AWKWARD))
def test_dot_and_networkx_give_back_the_same_graph(parts):
    graph = RehearsalGraph(*parts)
    assert RehearsalGraph.read(graph.to_dot()) == graph
    assert RehearsalGraph.read(graph.to_networkx()) == graph
    assert RehearsalGraph.read(graph) is graph


@given(parts=graphs)
def test_gml_gives_back_the_same_graph(parts):
    graph = RehearsalGraph(*parts)
    text = "\n".join(nx.generate_gml(graph.to_networkx()))
    assert RehearsalGraph.read(text) == graph


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("digraph {a -> b; c -> d [dir=both]}", "a -> b, c <-> d"),
        ("digraph G { {a b} -> c; a -> b -> c }", "a -> b, a -> c, b -> c"),
        ("strict digraph { a -> b a -> b; q }", "a -> b, q"),
        ("digraph { a -> b; b -> a }", "a <-> b"),
        ('digraph { "my cause" -> effect:port:n [label=<<b>x</b>>] }', "my cause -> e"),
        ("digraph { rankdir=LR; node [shape=box]; a -> b [dir=back] }", "b -> a"),
        ("digraph { subgraph cluster_0 { a; b } -> {c d} }", "a -> c, a -> d, b -> c"),
        (
            "digraph { edge [dir=both]; a -> b; { edge [dir=forward] c -> d } }",
            "c -> d",
        ),
        ("digraph { // note\n /* a -> z */ a -> b\n# c -> d\n}", "a -> b"),
        ('dag { x [exposure,pos="0,1"]\n x -> y\n u -> {x y} }', "u -> x, u -> y, x"),
        ("dag { a <- b <-> c -> d }", "b -> a, c -> d, b <-> c"),
        ("digraph { 1 -> 2.5 -> -3 }", "1 -> 2.5, 2.5 -> -3"),
        ("DIGRAPH { }", ""),
    ],
)
def test_dot_is_read_as_it_is_written(text, expected):
    assert str(RehearsalGraph.read(text)).startswith(expected)


def test_the_meaning_of_a_double_arrow_is_read_from_the_source():
    assert RehearsalGraph.read("digraph {a <-> b}").bidirected == "mutual"
    for text in (
        "digraph {bidirected=latent; a <-> b}",
        "digraph {graph [bidirected=latent] a <-> b}",
        "dag {a <-> b}",
        nx.DiGraph([("a", "b"), ("b", "a")], bidirected="latent"),
    ):
        graph = RehearsalGraph.read(text)
        assert graph == RehearsalGraph((), [("a", "b")], bidirected="latent")
    assert RehearsalGraph.read("dag {bidirected=mutual a <-> b}").bidirected == "mutual"


def test_networkx_marks_bidirected_edges_in_three_ways():
    expected = RehearsalGraph((), [("a", "b")])
    for marks in ({"dir": "both"}, {"bidirected": True}):
        for kind in (nx.DiGraph, nx.MultiDiGraph):
            source = kind()
            source.add_edge("a", "b", **marks)
            assert RehearsalGraph.read(source) == expected
    assert RehearsalGraph.read(nx.DiGraph([("a", "b"), ("b", "a")])) == expected


def test_a_multigraph_may_carry_an_edge_and_a_hidden_cause():
    source = nx.MultiDiGraph(bidirected="latent")
    source.add_edge("a", "y")
    source.add_edge("a", "y", bidirected=True)
    assert str(RehearsalGraph.read(source)) == "a -> y, a <-> y"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (nx.Graph([("a", "b")]), "undirected Graph of networkx.* write a -> b"),
        (nx.DiGraph([(0, 1)]), r"got 0 \(int\).*relabel_nodes"),
        ("graph { a -- b }", "undirected DOT graph"),
        ("digraph { a -- b }", "undirected edge a -- b"),
        ("digraph { a -> b [dir=none] }", r"an edge a -> b \[dir=none\]"),
        ('graph [ node [ id 0 label "a" ] ]', "undirected GML graph.*'directed 1'"),
        ("graph [ directed 1 node [ id 0 ] ]", "label for each node.*cannot be read"),
        ("graph [ directed 1 node [ ]", "GML text.*cannot be read"),
        ("digraph {\n a -> b;\n c -> }", r"got '}' on line 3"),
        ("digraph { a -> b", "got the end of the text on line 1"),
        ("digraph { a-b }", "got '-b }' on line 1.*double quotes"),
        ("digraph { a } }", "got '}' on line 1"),
        ("digraph { a [color= }", "got '}' on line 1"),
        ("graph.dot", "got 'graph.dot' on line 1.*content and not its name"),
        ("", "got the end of the text"),
        ("digraph { bidirected=hidden }", "'mutual' or 'latent'; got 'hidden'"),
        ([("a", "b")], r"got list\. Edges in a list make a graph by RehearsalGraph"),
        (None, "got NoneType"),
    ],
)
def test_what_cannot_be_read_is_refused_with_advice(source, message):
    with pytest.raises(GraphError, match=f"(?s){message}"):
        RehearsalGraph.read(source)


def test_a_graph_per_time_step_is_read_from_any_mixture():
    steps = read_graphs(["digraph {a -> y; b}", nx.DiGraph([("b", "y"), ("a", "y")])])
    assert [str(graph) for graph in steps] == ["a -> y, b", "a -> y, b -> y"]
    assert read_graphs(THREE) == (THREE,)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["digraph {a -> y}", "digraph {b -> y}"], "step 1, which lacks 'a' and adds"),
        (
            ["digraph {a -> y}", "digraph {a -> y; c}"],
            "step 1, which adds 'c' compared",
        ),
        (["digraph {a -> y}", "digraph"], "In the graph of step 1: Expected DOT"),
        ([], "got an empty list"),
    ],
)
def test_graphs_of_time_steps_must_fit_together(source, message):
    with pytest.raises(GraphError, match=message):
        read_graphs(source)


def test_graph_errors_are_spec_errors():
    with pytest.raises(SpecError):
        RehearsalGraph([("a", "a")])


class TestDrawing:
    @pytest.fixture(autouse=True)
    def _quiet(self):
        pyplot = pytest.importorskip("matplotlib.pyplot")
        pyplot.switch_backend("Agg")
        yield
        pyplot.close("all")

    def test_boxes_hold_their_names_and_arrows_end_at_boxes(self):
        from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, PathPatch

        graph = RehearsalGraph(
            [("x", "a very long name, longer than most"), ("x", "costs $5 or $6")],
            [],
        )
        ax = graph.draw()
        kinds = (FancyBboxPatch, PathPatch, FancyArrowPatch)
        boxes, texts, arrows = ([p for p in ax.patches if type(p) is k] for k in kinds)
        frames = [box.get_path().get_extents() for box in boxes]
        for frame, text in zip(frames, texts, strict=True):
            assert frame.containsx(text.get_path().get_extents().x0)
            assert frame.containsx(text.get_path().get_extents().x1)
        assert len(arrows) == 2
        right = {frame.x1 for frame in frames}
        left = {frame.x0 for frame in frames}
        for arrow in arrows:
            ends = arrow._path_original.vertices[[0, -1], 0]
            assert min(abs(ends[0] - x) for x in right) < 1e-9
            assert min(abs(ends[1] - x) for x in left) < 1e-9

    @settings(max_examples=15, deadline=None)
    @given(parts=graphs)
    def test_no_two_boxes_overlap_and_all_lie_inside_the_axes(self, parts):
        graph = RehearsalGraph(*parts)
        from matplotlib import pyplot
        from matplotlib.patches import FancyBboxPatch

        ax = graph.draw()
        frames = [
            p.get_path().get_extents() for p in ax.patches if type(p) is FancyBboxPatch
        ]
        assert len(frames) == len(graph.nodes)
        for i, frame in enumerate(frames):
            assert ax.get_xlim()[0] < frame.x0 < frame.x1 < ax.get_xlim()[1]
            assert ax.get_ylim()[0] < frame.y0 < frame.y1 < ax.get_ylim()[1]
            assert not any(frame.overlaps(other) for other in frames[:i])
        pyplot.close(ax.figure)

    def test_the_legend_names_the_roles_and_the_meaning_of_double_arrows(self):
        from matplotlib import pyplot

        ax = pyplot.figure().add_subplot()
        roles = {"x": "context", "z1": "action", "z2": "covariate", "y": "outcome"}
        assert THREE.draw(ax, roles) is ax
        ax.figure.canvas.draw()
        texts = [text.get_text() for text in ax.get_legend().get_texts()]
        assert texts == [
            "context", "covariate", "action", "outcome", "influence each other",
        ]  # fmt: skip
        assert RehearsalGraph([("a", "b")]).draw().get_legend() is None

    def test_unknown_roles_and_names_are_refused(self):
        with pytest.raises(GraphError, match="got 'z9'"):
            THREE.draw(roles={"z9": "action"})
        with pytest.raises(GraphError, match=r"got 'actoin' for 'z1'.* mean 'action'"):
            THREE.draw(roles={"z1": "actoin"})

    def test_without_matplotlib_the_extra_is_named(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "forestall.drawing", raising=False)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingExtraError, match=r"forestall\[plots\]"):
            THREE.draw()
