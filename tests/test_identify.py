"""Identification: what is adjusted for, and whether records can then be believed.

The truth is linear-Gaussian algebra: for a random model on a random graph, the law of
the outcomes given a context under an alteration is known exactly, and so is what each
formula makes of the observed covariance.
"""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestall.errors import GraphError, SpecError
from forestall.graph import RehearsalGraph
from forestall.identify import Criterion, Roles, identify, resolved
from forestall.separation import m_separated, open_path

BERMUDA = (
    "digraph { Light -> Temp -> Sal; Sal -> {DIC TA};"
    "{Sal DIC Temp TA} -> {Omega pHsw CO2}; {Nut Light Temp} -> Chla;"
    "{Nut Light pHsw Omega Chla CO2 Temp} -> NEC }"
)
# CarbIntake has no child in the paper's text; it stays an action without effect here.
NHANES = (
    "digraph { {Age Sex Race FamilyHx Education Income} -> {BMI CalIntake CarbIntake"
    " FiberIntake Sedentary SBP DBP TotalCholesterol HDL HbA1c FPG};"
    "BMI -> {CalIntake CarbIntake FiberIntake SBP DBP TotalCholesterol HDL HbA1c FPG};"
    "CalIntake -> {CarbIntake FiberIntake TotalCholesterol HDL HbA1c FPG};"
    "{FiberIntake Sedentary SBP TotalCholesterol HDL} -> {HbA1c FPG} }"
)
LIN_SYN1 = (
    "digraph { X2 -> U2; X1 -> A1; {A1 U2} -> {U1 A2}; {A1 A2} -> {Y1 Y2} }",
    Roles(("X1", "X2"), ("U1", "U2"), ("A1", "A2"), ("Y1", "Y2")),
)
NON_SYN2 = (
    "digraph { {X1 X2} -> A1; {X1 X2 A1} -> U1; {X1 U1} -> U2; {X1 X2 U1} -> A2;"
    "{X1 U1 U2 A2} -> Y1 }",
    Roles(("X1", "X2"), ("U1", "U2"), ("A1", "A2"), ("Y1",)),
)


def roles(context="", covariates="", actions="a", outcomes="y"):
    groups = (context, covariates, actions, outcomes)
    return Roles(*(tuple(group.split()) for group in groups))


def by_graph(text, named, order=None):
    return identify(named, order, RehearsalGraph.read(text))


class TestTheSixTasks:
    def test_bank_adjusts_for_the_sector_and_is_valid(self):
        text = "digraph { {U1 X1 X2} -> A2; {U1 A2 X2} -> Y1; {A2 U1} -> Y2 }"
        found = by_graph(text, roles("X1 X2", "U1", "A2", "Y1 Y2"))
        assert found.adjusted == ("U1",)
        assert found.nested.valid
        assert found.sequential.valid

    def test_non_syn1_is_valid(self):
        text = "digraph { X -> {A1 Y}; U -> {A1 A2 Y}; {A1 A2} -> Y }"
        found = by_graph(text, roles("X", "U", "A1 A2", "Y"))
        assert found.adjusted == ("U",)
        assert found.nested.valid
        assert found.sequential.valid

    def test_lin_syn1_is_valid_by_the_graph_and_doubtful_by_the_order(self):
        order = (("X1", "X2"), ("U2",), ("A1",), ("U1",), ("A2",), ("Y1", "Y2"))
        found = by_graph(*LIN_SYN1, order)
        assert (found.adjusted, found.staged) == (("U2",), ())
        assert found.integrated_out == ("U1",)
        assert found.nested.valid
        alone = identify(LIN_SYN1[1], order, None)
        assert (alone.adjusted, alone.staged) == (("U2",), ("U1",))
        assert alone.nested.valid is None
        assert "U1" in alone.nested.explanation

    def test_non_syn2_needs_the_staged_formula(self):
        found = by_graph(*NON_SYN2)
        assert (found.adjusted, found.staged) == ((), ("U1",))
        assert found.integrated_out == ("U2",)
        assert found.nested.valid is False
        assert found.nested.open_path == "A2 <- U1 -> Y1"
        assert found.sequential.valid
        turns = [(stage.action, stage.covariates) for stage in found.stages]
        assert turns == [("A1", ()), ("A2", ("U1",))]

    def test_bermuda_is_valid_and_adjusts_for_no_effect_of_an_action(self):
        named = roles("Light Temp Sal", "pHsw CO2", "DIC TA Omega Chla Nut", "NEC")
        order = (
            ("Light",), ("Temp",), ("Sal",), ("Nut", "DIC", "TA"),
            ("Omega", "Chla", "pHsw", "CO2"), ("NEC",),
        )  # fmt: skip
        for found in (by_graph(BERMUDA, named, order), identify(named, order, None)):
            assert found.adjusted == found.staged == ()
            assert found.integrated_out == ("pHsw", "CO2")
        found = by_graph(BERMUDA, named)
        assert found.nested.valid
        assert found.sequential.valid

    def test_nhanes_is_valid_given_its_contexts(self):
        named = roles(
            "Age Sex Race FamilyHx Education Income",
            "SBP DBP TotalCholesterol HDL",
            "BMI CalIntake CarbIntake FiberIntake Sedentary",
            "HbA1c FPG",
        )
        found = by_graph(NHANES, named)
        assert found.adjusted == found.staged == ()
        assert found.integrated_out == named.covariates
        assert found.nested.valid
        assert found.sequential.valid


class TestKnownStructures:
    M_BIAS = "digraph { L1 -> {a m}; L2 -> {m y}; a -> y }"

    def test_a_collider_is_not_adjusted_for(self):
        found = by_graph(self.M_BIAS, roles("", "m"))
        assert found.adjusted == ()
        assert found.integrated_out == found.ignored == ("m",)
        assert found.nested.valid
        assert "not needed: m" in str(found)

    def test_a_collider_among_the_contexts_opens_a_path(self):
        found = by_graph(self.M_BIAS, roles("m"))
        for criterion in (found.nested, found.sequential):
            assert criterion.valid is False
            assert criterion.open_path == "a <- L1 -> m <- L2 -> y"
            assert "Conditioning on m is what opens it" in criterion.explanation

    def test_a_recorded_cause_closes_the_path_that_a_context_opens(self):
        found = by_graph(self.M_BIAS, roles("m", "L1"))
        assert found.adjusted == ("L1",)
        assert found.nested.valid

    def test_a_mediator_is_never_adjusted_for(self):
        found = by_graph("digraph { x -> {a m y}; a -> m -> y }", roles("x", "m"))
        assert found.integrated_out == ("m",)
        assert found.ignored == ()
        assert found.nested.valid

    def test_a_vertex_without_a_role_counts_as_hidden(self):
        found = by_graph("digraph { h -> {a y}; a -> y }", roles())
        assert found.nested.open_path == "a <- h -> y"
        assert "At a: a and y are tied" in found.sequential.explanation

    def test_a_double_arrow_to_the_outcome_confounds_only_as_a_hidden_cause(self):
        mutual = RehearsalGraph((), [("a", "y")])
        found = identify(roles(), None, mutual)
        assert (found.nested.valid, found.sequential.valid) == (True, True)
        latent = RehearsalGraph((), [("a", "y")], bidirected="latent")
        found = identify(roles(), None, latent)
        assert (found.nested.valid, found.sequential.valid) == (False, False)
        assert found.nested.open_path == found.sequential.open_path == "a <-> y"

    def test_mates_of_an_altered_action_are_its_effects(self):
        graph = RehearsalGraph([("a", "y"), ("m", "y")], [("a", "m")])
        found = identify(roles("", "m"), None, graph)
        assert found.integrated_out == ("m",)
        assert found.nested.valid
        latent = RehearsalGraph(graph.edges, [("a", "m")], bidirected="latent")
        found = identify(roles("", "m"), None, latent)
        assert found.adjusted == ("m",)
        assert found.nested.valid

    def test_mutual_influence_is_read_as_the_rehearsal_operation_leaves_it(self):
        cause = [("x", v) for v in ("a", "b", "m", "n")]
        clique = [(u, v) for u in "abmn" for v in "abmn" if u < v]
        graph = RehearsalGraph([*cause, ("m", "y"), ("b", "y")], clique)
        left = resolved(graph, roles("x", "m n", "a b")).alter(["a", "b"])
        assert str(left) == str(graph.alter(["a", "b"]))

    def test_a_context_that_is_an_actions_mate_counts_as_seen_first(self):
        graph = RehearsalGraph([("a", "y"), ("x", "y")], [("a", "x")])
        order = (("x",), ("a",), ("y",))
        assert identify(roles("x"), order, graph).nested.valid

    def test_mutual_actions_are_set_together(self):
        graph = RehearsalGraph([("a", "y"), ("b", "y")], [("a", "b")])
        found = identify(roles(actions="a b"), None, graph)
        assert (found.nested.valid, found.sequential.valid) == (True, True)

    def test_the_order_of_free_actions_is_chosen_so_that_it_works(self):
        graph = RehearsalGraph(
            [("a2", "c"), ("c", "y"), ("a1", "y")], [("c", "a1")], bidirected="latent"
        )
        found = identify(roles("", "c", "a1 a2"), None, graph)
        assert found.nested.valid is False
        assert found.sequential.valid
        assert found.staged == ("c",)
        assert [stage.action for stage in found.stages] == ["a2", "a1"]

    def test_a_hidden_cause_of_one_action_is_named_with_the_action(self):
        text = "dag { a -> b -> y; a -> y; b <-> y }"
        found = by_graph(text, roles(actions="a b"))
        assert found.sequential.valid is False
        assert found.sequential.open_path == "b <-> y"
        assert found.sequential.explanation.startswith("At b: b and y are tied")

    def test_without_actions_nothing_is_wrong(self):
        found = by_graph("digraph { x -> y }", roles("x", actions=""))
        assert (found.nested.valid, found.sequential.valid) == (True, True)


class TestOrderAlone:
    def test_tiers_sort_the_covariates(self):
        order = (("x", "u"), ("a", "s"), ("t",), ("b", "v"), ("w",), ("y",))
        found = identify(roles("x", "u s t v w", "a b"), order, None)
        assert found.adjusted == ("u",)
        assert found.staged == ("s", "t")
        assert found.integrated_out == ("v", "w")
        turns = [(stage.action, stage.covariates) for stage in found.stages]
        assert turns == [("a", ("u",)), ("b", ("s", "t"))]

    def test_nothing_is_claimed_without_a_graph(self):
        order = (("x", "u"), ("a",), ("y",))
        found = identify(roles("x", "u"), order, None)
        unknown = Criterion(None, None, "The order alone cannot show hidden causes.")
        assert found.nested == found.sequential == unknown
        assert "no hidden cause influences both an action and an outcome" in str(found)

    def test_a_covariate_between_actions_puts_the_nested_formula_in_doubt(self):
        order = (("a",), ("u",), ("b",), ("y",))
        found = identify(roles("", "u", "a b"), order, None)
        assert found.nested.valid is None
        assert found.nested.explanation.startswith(
            "Biased if what lies between actions (u) influences both a later action "
            "and the outcome (y); the order alone cannot tell"
        )

    def test_without_covariates_no_order_is_needed(self):
        found = identify(roles("x"), None, None)
        assert found.adjusted == found.staged == found.integrated_out == ()


def test_actions_that_influence_no_outcome_are_remarked_on():
    found = by_graph("digraph { x -> {a b y}; a -> m }", roles("x", "m", "a b"))
    assert found.nested.valid is found.sequential.valid is True
    assert found.remark == (
        "By this graph the actions (a, b) influence no outcome (y): no directed path "
        "leads to one, so none can help."
    )
    assert str(found).splitlines()[-1] == found.remark


@pytest.mark.parametrize(
    "text",
    ["digraph { x -> a -> m -> y; b }", "digraph { x; m; b; a <-> y }"],
)
def test_one_action_with_an_effect_needs_no_remark(text):
    found = by_graph(text, roles("x", "m", "a b"))
    assert found.remark == ""
    assert str(found).splitlines()[-1].startswith("Assumed: ")


def test_the_printed_verdict_is_plain_language():
    assert str(by_graph(*NON_SYN2)).splitlines() == [
        "Adjusted for, before the first action: none",
        "Between actions, for the staged formula: U1",
        "Integrated out, never adjusted for: U2",
        "Nested formula: biased. A2 and Y1 are tied other than by the effect of A2, by "
        "A2 <- U1 -> Y1, given X1, X2.",
        "Staged formula: valid. Action by action (A1, then A2), what precedes each "
        "leaves it no common cause with the outcomes.",
        "Assumed: the graph is right and complete; a cause that it does not show "
        "influences at most one variable, and a bi-directed edge joins variables that "
        "influence each other.",
    ]


@pytest.mark.parametrize(
    ("named", "order", "text", "error", "message"),
    [
        (roles("", "u"), None, None, SpecError, r"because there are covariates \(u\)"),
        (roles("x"), (("a",), ("y",)), None, SpecError, "'x' is not there"),
        (
            roles("x"), (("a",), ("x",), ("y",)), None, SpecError,
            "got the order a before x, an action before a context",
        ),
        (
            roles("x"), None, "digraph { a -> m -> x; a -> y }", GraphError,
            "context 'x' as an effect of action 'a': a -> m -> x. Make 'x' a covariate",
        ),
        (roles("debt"), None, "digraph { debts -> a -> y }", SpecError, "mean 'debts'"),
        (
            roles("x"), (("x",), ("y",), ("a",)), "digraph { x -> a -> y }", SpecError,
            "the edge a -> y, and an order with y before a",
        ),
        (
            roles("x"), (("x",), ("a", "y")), "digraph { x -> a -> y }", SpecError,
            "the edge a -> y, and an order with one tier",
        ),
        (
            roles("", "m"), (("a",), ("m",), ("y",)), "digraph { a <-> m; a -> y }",
            SpecError, "got a <-> m, which says that they influence each other",
        ),
    ],
)  # fmt: skip
def test_contradictions_are_refused_by_name(named, order, text, error, message):
    graph = None if text is None else RehearsalGraph.read(text)
    with pytest.raises(error, match=message):
        identify(named, order, graph)


def test_a_vertex_cannot_be_on_both_sides_of_a_separation():
    graph = RehearsalGraph([("a", "b")])
    with pytest.raises(GraphError, match="got a in two of them"):
        m_separated(graph, "a", "b", given=["a"])


# Random graphs: vertices v0, v1, ... in causal order, hidden causes between any two.
@st.composite
def mixed_graphs(draw, largest=6, hidden=True):
    names = [f"v{i}" for i in range(draw(st.integers(3, largest)))]
    pairs = [(u, v) for i, v in enumerate(names) for u in names[:i]]
    kinds = st.sampled_from(["", "->", "->", "<->", "bow"] if hidden else ["", "->"])
    drawn = [(pair, draw(kinds)) for pair in pairs]
    arrows = [pair for pair, kind in drawn if kind in {"->", "bow"}]
    mates = [pair for pair, kind in drawn if kind in {"<->", "bow"}]
    return arrows, mates, names, "latent"


@st.composite
def identified_problems(draw, largest=7, hidden=True):
    """Outcomes last, and at least one action; contexts that nothing sets."""
    parts = draw(mixed_graphs(largest, hidden))
    *others, outcome = parts[2]
    role = {v: draw(st.sampled_from("XUUAA")) for v in others}
    role[draw(st.sampled_from(others))] = "A"
    arrows = nx.DiGraph(parts[0])
    arrows.add_nodes_from(parts[2])
    acted = [v for v in others if role[v] == "A"]
    effects = set().union(*(nx.descendants(arrows, v) for v in acted))
    for v in effects:
        role[v] = "U" if role.get(v) == "X" else role.get(v, "Y")
    groups = [tuple(v for v in others if role[v] == kind) for kind in "XUA"]
    return parts, (*groups, (outcome,))


def expanded(graph):
    """Hidden causes as vertices of their own."""
    full = nx.DiGraph(graph.edges)
    full.add_nodes_from(graph.nodes)
    for u, v in graph.bidirected_edges:
        full.add_edges_from([(("hidden", u, v), u), (("hidden", u, v), v)])
    return full


def is_open(graph, path, given):
    names, signs = path[::2], path[1::2]
    for v, (before, after) in zip(names[1:-1], pairwise(signs), strict=True):
        collides = before.endswith(">") and after.startswith("<")
        if collides and not graph.descendants(v) & set(given):
            return False
        if not collides and v in given:
            return False
    return True


def all_paths(graph, start, goal):
    steps = {v: [] for v in graph.nodes}
    for (u, v), (to, fro) in [
        *((edge, ("->", "<-")) for edge in graph.edges),
        *((edge, ("<->", "<->")) for edge in graph.bidirected_edges),
    ]:
        steps[u].append((to, v))
        steps[v].append((fro, u))

    def walk(path):
        if path[-1] == goal:
            yield path
            return
        for sign, w in steps[path[-1]]:
            if w not in path[::2]:
                yield from walk([*path, sign, w])

    return walk([start])


@settings(max_examples=150, deadline=None)
@given(parts=mixed_graphs(), data=st.data())
def test_separation_agrees_with_all_paths_and_with_networkx(parts, data):
    graph = RehearsalGraph(*parts)
    x, y, *rest = data.draw(st.permutations(parts[2]))
    given = data.draw(st.sets(st.sampled_from(rest)))
    found = open_path(graph, x, y, given)
    paths = list(all_paths(graph, x, y))
    assert (found is None) == (not any(is_open(graph, p, given) for p in paths))
    assert (found is None) == nx.is_d_separator(expanded(graph), {x}, {y}, given)
    assert found is None or (found in paths and is_open(graph, found, given))


class Model:
    """A random linear-Gaussian model on a graph, with its laws by matrix algebra."""

    def __init__(self, graph, seed):
        rng = np.random.default_rng(seed)
        self.names = list(graph.topological_order())
        n = len(self.names)
        self.weights, self.noise = np.zeros((n, n)), np.eye(n)
        for u, v in graph.edges:
            i, j = self.at([v, u])
            self.weights[i, j] = rng.uniform(0.4, 1.2) * rng.choice([-1, 1])
        for pair in graph.bidirected_edges:
            load = np.zeros(n)
            load[self.at(pair)] = rng.uniform(0.5, 1.2, 2) * rng.choice([-1, 1], 2)
            self.noise += np.outer(load, load)

    def at(self, names):
        return [self.names.index(v) for v in names]

    def covariance(self):
        total = np.linalg.inv(np.eye(len(self.names)) - self.weights)
        return total @ self.noise @ total.T

    def altered(self, actions):
        """Actions cut from their causes and given unit variance, each on its own."""
        cut = object.__new__(Model)
        cut.names, index = self.names, self.at(actions)
        cut.weights, cut.noise = self.weights.copy(), self.noise.copy()
        cut.weights[index] = cut.noise[index] = cut.noise[:, index] = 0.0
        cut.noise[index, index] = 1.0
        return cut


def regression(covariance, targets, inputs):
    """Coefficients and residual covariance of targets on inputs."""
    if not inputs:
        return np.zeros((len(targets), 0)), covariance[np.ix_(targets, targets)]
    among = covariance[np.ix_(inputs, inputs)]
    across = covariance[np.ix_(targets, inputs)]
    slope = np.linalg.solve(among, across.T).T
    return slope, covariance[np.ix_(targets, targets)] - slope @ across.T


def truth(model, named):
    law = model.altered(named.actions).covariance()
    inputs = model.at([*named.context, *named.actions])
    return regression(law, model.at(named.outcomes), inputs)


def formula(model, named, stages):
    """The g-formula, as the model that it makes of observed regressions.

    Each block of covariates keeps its regression on all that came before; actions are
    set; the outcomes keep theirs. One stage with everything is the nested formula.
    """
    law = model.covariance()
    made = object.__new__(Model)
    made.names, n = model.names, len(model.names)
    made.weights, made.noise = np.zeros((n, n)), np.eye(n)
    past = []
    blocks = [(named.context, False)]
    for actions, covariates in stages:
        blocks += [(covariates, False), (actions, True)]
    for block, is_set in [*blocks, (named.outcomes, False)]:
        index = model.at(block)
        if index and not is_set:
            slope, rest = regression(law, index, past)
            made.weights[np.ix_(index, past)] = slope
            made.noise[np.ix_(index, index)] = rest
        past = past + index
    total = np.linalg.inv(np.eye(n) - made.weights)
    inputs = model.at([*named.context, *named.actions])
    return regression(total @ made.noise @ total.T, model.at(named.outcomes), inputs)


def same_law(one, other):
    return all(np.allclose(a, b, atol=1e-7) for a, b in zip(one, other, strict=True))


@settings(max_examples=120, deadline=None)
@given(drawn=identified_problems(), seed=st.integers(0, 2**32 - 1))
def test_a_formula_declared_valid_gives_the_law_under_the_alteration(drawn, seed):
    parts, groups = drawn
    graph, named = RehearsalGraph(*parts), Roles(*groups)
    found, model = identify(named, None, graph), Model(graph, seed)
    right = truth(model, named)
    once = [(named.actions, found.adjusted)]
    stages = [((stage.action,), stage.covariates) for stage in found.stages]
    assert found.nested.valid == same_law(formula(model, named, once), right)
    if found.sequential.valid:
        assert same_law(formula(model, named, stages), right)
    if found.nested.valid:
        assert found.sequential.valid


@settings(max_examples=60, deadline=None)
@given(drawn=identified_problems(hidden=False))
def test_with_everything_recorded_the_staged_formula_is_always_valid(drawn):
    parts, groups = drawn
    found = identify(Roles(*groups), None, RehearsalGraph(*parts))
    assert found.sequential.valid


@settings(max_examples=50, deadline=None)
@given(drawn=identified_problems())
def test_every_covariate_has_one_place_and_open_paths_are_open(drawn):
    parts, groups = drawn
    graph, named = RehearsalGraph(*parts), Roles(*groups)
    found = identify(named, None, graph)
    placed = [*found.adjusted, *found.staged, *found.integrated_out]
    assert sorted(placed) == sorted(named.covariates)
    assert not set(found.adjusted) & graph.descendants(named.actions)
    assert set(found.ignored) <= set(found.integrated_out)
    assert (found.nested.open_path is None) == found.nested.valid
    if found.nested.open_path:
        given = (*named.context, *found.adjusted)
        assert is_open(graph, found.nested.open_path.split(), given)
