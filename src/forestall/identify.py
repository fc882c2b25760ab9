"""What is adjusted for, and whether that is enough.

Two formulas turn records into the effect of an alteration. The *nested* one, the
paper's, adjusts once, for what precedes all actions; it is right when the outcomes are
independent of the actions given contexts and adjusted covariates once the edges out of
all actions are removed. The *staged* one adjusts action by action; it is right under
the sequential back-door criterion of Pearl and Robins (1995).
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from forestall.criteria import (
    Criterion,
    Plan,
    Roles,
    Stage,
    Tiers,
    listed,
    nested_criterion,
    sequential_criterion,
)
from forestall.errors import GraphError, SpecError, nearest
from forestall.graph import RehearsalGraph

__all__ = [
    "Criterion",
    "Identification",
    "Roles",
    "Stage",
    "Tiers",
    "check_vertices",
    "identify",
    "resolved",
]


@dataclass(frozen=True)
class Identification:
    """What is adjusted for, when, and whether that is enough; prints as a verdict.

    Args:
        adjusted: Covariates before the first action, adjusted for by both formulas.
        staged: Covariates between actions, which only the staged formula adjusts for.
        integrated_out: All other covariates; none is adjusted for.
        nested: Whether the nested formula is right.
        sequential: Whether the staged formula is right.
        stages: The actions in the order in which the staged formula takes them.
        ignored: Those of ``integrated_out`` that precede the actions and are left
            out because adjusting for them is not needed and can do harm.
        assumes: What has to be believed for the verdicts to hold.
        remark: What else there is to know of the graph; mostly nothing.
    """

    adjusted: tuple[str, ...]
    staged: tuple[str, ...]
    integrated_out: tuple[str, ...]
    nested: Criterion
    sequential: Criterion
    stages: Plan = ()
    ignored: tuple[str, ...] = ()
    assumes: str = ""
    remark: str = ""

    def __str__(self) -> str:
        """Write the verdict in plain lines."""
        after = [v for v in self.integrated_out if v not in self.ignored]
        lines = [
            f"Adjusted for, before the first action: {listed(self.adjusted)}",
            f"Between actions, for the staged formula: {listed(self.staged)}",
            f"Integrated out, never adjusted for: {listed(after)}",
        ]
        if self.ignored:
            lines.append(f"Integrated out, not needed: {listed(self.ignored)}")
        lines += [
            f"Nested formula: {_VERDICT[self.nested.valid]}. {self.nested.explanation}",
            f"Staged formula: {_VERDICT[self.sequential.valid]}. "
            f"{self.sequential.explanation}",
            f"Assumed: {self.assumes}",
        ]
        return "\n".join([*lines, self.remark] if self.remark else lines)


_VERDICT = {True: "valid", False: "biased", None: "cannot be checked"}


def identify(
    roles: Roles, order: Tiers | None, graph: RehearsalGraph | None
) -> Identification:
    """Say which covariates are adjusted for, and whether that is enough.

    With a graph the graph decides, and an order may only agree with it.

    Bi-directed edges enter by their meaning. ``"latent"``: a hidden common cause, as
    it stands. ``"mutual"``: an altered member becomes a parent of the others, by their
    observed regression on it, so an action points to its mates; contexts are observed
    first, so a context points to an action; two actions, or two variables that are no
    actions, are merely dependent, as if by a hidden cause.

    Args:
        roles: The names by role.
        order: Tiers, earliest first; members of one tier do not influence each other.
        graph: Who influences whom. Vertices without a role count as not recorded.

    Example:
        >>> roles = Roles(("x",), ("u",), ("a",), ("y",))
        >>> graph = RehearsalGraph.read("digraph { {x u} -> a -> y; u -> y }")
        >>> identify(roles, None, graph).adjusted
        ('u',)
    """
    if order is not None:
        _check_order(roles, order)
    if graph is not None:
        return _by_graph(roles, order, graph)
    if order is None and roles.covariates:
        raise SpecError(
            f"Expected an order or a graph, because there are covariates "
            f"({listed(roles.covariates)}) and adjusting for one that the actions "
            f"influence is wrong; got neither. Give order=[...], earliest first."
        )
    return _by_order(roles, order or (roles.context, roles.actions, roles.outcomes))


def _tier_of(order: Tiers) -> dict[str, int]:
    return {name: i for i, tier in enumerate(order) for name in tier}


def _check_order(roles: Roles, order: Tiers) -> None:
    tier = _tier_of(order)
    for name in roles:
        if name not in tier:
            raise SpecError(
                f"Expected every variable in the order; {name!r} is not there."
                f"{nearest(name, tier)} Put it into the tier in which it arises."
            )
    first = min(roles.actions, key=lambda a: tier[a], default=None)
    for x in roles.context:
        if first is not None and tier[x] > tier[first]:
            raise SpecError(
                f"Expected contexts that are observed before the decision; got the "
                f"order {first} before {x}, an action before a context. Move {x!r} to "
                f"an earlier tier, or make it a covariate."
            )


def _by_order(roles: Roles, order: Tiers) -> Identification:
    tier = _tier_of(order)
    actions = sorted(roles.actions, key=lambda a: tier[a])
    first, last = (tier[actions[0]], tier[actions[-1]]) if actions else (0, 0)
    staged = tuple(u for u in roles.covariates if first <= tier[u] < last)
    stages, seen = [], set[str]()
    for a in actions:
        new = tuple(u for u in roles.covariates if tier[u] < tier[a] and u not in seen)
        stages.append(Stage(a, new))
        seen.update(new)
    return Identification(
        tuple(u for u in roles.covariates if tier[u] < first),
        staged,
        tuple(u for u in roles.covariates if tier[u] >= last),
        _doubt(roles, staged) if staged else _UNCHECKED,
        _UNCHECKED,
        stages=tuple(stages),
        assumes=_RECORDED,
    )


_UNCHECKED = Criterion(None, None, "The order alone cannot show hidden causes.")
_RECORDED = (
    "no hidden cause influences both an action and an outcome other than through what "
    "is recorded; the order is right."
)


def _doubt(roles: Roles, staged: tuple[str, ...]) -> Criterion:
    return Criterion(
        None,
        None,
        f"Biased if what lies between actions ({listed(staged)}) influences both a "
        f"later action and the outcome ({listed(roles.outcomes)}); the order alone "
        f"cannot tell, a graph can. The default method, staged, allows for it.",
    )


def _by_graph(
    roles: Roles, order: Tiers | None, given: RehearsalGraph
) -> Identification:
    check_vertices(roles, given)
    if order is not None:
        _check_agreement(roles, order, given)
    graph = resolved(given, roles)
    _check_contexts(graph, roles)
    later = graph.descendants(roles.actions)
    relevant = graph.ancestors((*roles.actions, *roles.outcomes, *roles.context))
    early = [u for u in roles.covariates if u not in later]
    adjusted = tuple(u for u in early if u in relevant)
    sequential, stages = sequential_criterion(graph, roles, adjusted)
    used = {u for stage in stages for u in stage.covariates}
    staged = tuple(u for u in roles.covariates if u in later and u in used)
    return Identification(
        adjusted,
        staged,
        tuple(u for u in roles.covariates if u not in {*adjusted, *staged}),
        nested_criterion(graph, roles, adjusted),
        sequential,
        stages=stages,
        ignored=tuple(u for u in early if u not in relevant),
        assumes=f"the graph is right and complete; {_MEANS[given.bidirected]}.",
        remark="" if later & set(roles.outcomes) else _no_effect(roles),
    )


def _no_effect(roles: Roles) -> str:
    if not roles.actions:
        return ""
    return (
        f"By this graph the actions ({listed(roles.actions)}) influence no outcome "
        f"({listed(roles.outcomes)}): no directed path leads to one, so none can help."
    )


_MEANS = {
    "mutual": "a cause that it does not show influences at most one variable, and a "
    "bi-directed edge joins variables that influence each other",
    "latent": "a hidden common cause of two variables is shown as a bi-directed edge",
}


def check_vertices(roles: Roles, graph: RehearsalGraph) -> None:
    """Raise where a variable is no vertex of the graph."""
    for name in roles:
        if name not in graph.nodes:
            raise SpecError(
                f"Expected every variable as a vertex of the graph; {name!r} is none."
                f"{nearest(name, graph.nodes)} Add it, without edges if it has none."
            )


def _check_agreement(roles: Roles, order: Tiers, graph: RehearsalGraph) -> None:
    tier = _tier_of(order)
    for u, v in graph.edges:
        if u in tier and v in tier and tier[u] >= tier[v]:
            where = "one tier" if tier[u] == tier[v] else f"{v} before {u}"
            raise SpecError(
                f"Expected an order that agrees with the graph; got the edge {u} -> "
                f"{v}, and an order with {where}. Put {u!r} into an earlier tier than "
                f"{v!r}, turn the edge round, or leave the order out."
            )
    for u, v in graph.bidirected_edges if graph.bidirected == "mutual" else ():
        # A context counts as observed before an action even where both are mates.
        between = {u, v} & set(roles.context) and {u, v} & set(roles.actions)
        if u in tier and v in tier and tier[u] != tier[v] and not between:
            raise SpecError(
                f"Expected an order that agrees with the graph; got {u} <-> {v}, which "
                f"says that they influence each other, and an order with one before "
                f"the other. Put them into one tier, or set bidirected='latent'."
            )


def _check_contexts(graph: RehearsalGraph, roles: Roles) -> None:
    for a in roles.actions:
        for x in sorted(graph.descendants(a) & set(roles.context)):
            path = " -> ".join(nx.shortest_path(nx.DiGraph(graph.edges), a, x))
            raise GraphError(
                f"Expected contexts that are observed before the decision; got context "
                f"{x!r} as an effect of action {a!r}: {path}. Make {x!r} a covariate, "
                f"or correct the edge."
            )


def resolved(graph: RehearsalGraph, roles: Roles) -> RehearsalGraph:
    """Replace mutual influence by what it amounts to when all actions are altered.

    The rules are those that :func:`identify` states.
    """
    if graph.bidirected == "latent":
        return graph
    arrows, mates = list(graph.edges), []
    for u, v in graph.bidirected_edges:
        if (u in roles.actions) == (v in roles.actions):
            mates.append((u, v))
            continue
        action, mate = (u, v) if u in roles.actions else (v, u)
        arrows.append((mate, action) if mate in roles.context else (action, mate))
    return RehearsalGraph(arrows, mates, graph.nodes, bidirected="latent")
