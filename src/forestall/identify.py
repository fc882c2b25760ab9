"""What is adjusted for, and whether that is enough.

Two formulas turn records into the effect of an alteration. The *nested* one, the
paper's, adjusts once, for what precedes all actions; it is right when the outcomes are
independent of the actions given contexts and adjusted covariates once the edges out of
all actions are removed. The *staged* one adjusts action by action; it is right under
the sequential back-door criterion of Pearl and Robins (1995).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import networkx as nx

from forestall.errors import GraphError, SpecError, nearest
from forestall.graph import RehearsalGraph
from forestall.separation import colliders, open_path, without_edges_from

Tiers = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Roles:
    """Which variable is what.

    Args:
        context: Seen before the decision, :math:`X`.
        covariates: Seen, not actionable, :math:`U` and :math:`U^{post}` together.
        actions: What can be set, :math:`A`.
        outcomes: What is to come out well, :math:`Y`.
    """

    context: tuple[str, ...]
    covariates: tuple[str, ...]
    actions: tuple[str, ...]
    outcomes: tuple[str, ...]

    def __iter__(self) -> Iterator[str]:
        """Go through all names."""
        yield from (*self.context, *self.covariates, *self.actions, *self.outcomes)


@dataclass(frozen=True)
class Criterion:
    """Whether one formula gives the effect of the actions.

    Args:
        valid: True or False by the graph; None where there is no graph, so that it
            is assumed and cannot be checked.
        open_path: A path by which actions and outcomes are tied without the one
            influencing the other, such as ``"A2 <- U1 -> Y"``; None when there is no
            such path, or no graph.
        explanation: The verdict in a sentence or two.
    """

    valid: bool | None
    open_path: str | None
    explanation: str


@dataclass(frozen=True)
class Stage:
    """One step of the staged formula.

    Args:
        action: The action whose turn it is.
        covariates: What is adjusted for from this action on, and not before it.
    """

    action: str
    covariates: tuple[str, ...]


Plan = tuple[Stage, ...]


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
    """

    adjusted: tuple[str, ...]
    staged: tuple[str, ...]
    integrated_out: tuple[str, ...]
    nested: Criterion
    sequential: Criterion
    stages: Plan = ()
    ignored: tuple[str, ...] = ()
    assumes: str = ""

    def __str__(self) -> str:
        """Write the verdict in plain lines."""
        after = [v for v in self.integrated_out if v not in self.ignored]
        lines = [
            f"Adjusted for, before the first action: {_listed(self.adjusted)}",
            f"Between actions, for the staged formula: {_listed(self.staged)}",
            f"Integrated out, never adjusted for: {_listed(after)}",
        ]
        if self.ignored:
            lines.append(f"Integrated out, not needed: {_listed(self.ignored)}")
        lines += [
            f"Nested formula: {_VERDICT[self.nested.valid]}. {self.nested.explanation}",
            f"Staged formula: {_VERDICT[self.sequential.valid]}. "
            f"{self.sequential.explanation}",
            f"Assumed: {self.assumes}",
        ]
        return "\n".join(lines)


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
            f"({_listed(roles.covariates)}) and adjusting for one that the actions "
            f"influence is wrong; got neither. Give order=[...], earliest first."
        )
    return _by_order(roles, order or (roles.context, roles.actions, roles.outcomes))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


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
        f"Biased if what lies between actions ({_listed(staged)}) influences both a "
        f"later action and the outcome ({_listed(roles.outcomes)}); the order alone "
        f"cannot tell, a graph can. The staged formula allows for it.",
    )


def _by_graph(
    roles: Roles, order: Tiers | None, given: RehearsalGraph
) -> Identification:
    _check_graph(roles, given)
    if order is not None:
        _check_agreement(roles, order, given)
    graph = resolved(given, roles)
    _check_contexts(graph, roles)
    later = graph.descendants(roles.actions)
    relevant = graph.ancestors((*roles.actions, *roles.outcomes, *roles.context))
    early = [u for u in roles.covariates if u not in later]
    adjusted = tuple(u for u in early if u in relevant)
    sequential, stages = _sequential(graph, roles, adjusted)
    used = {u for stage in stages for u in stage.covariates}
    staged = tuple(u for u in roles.covariates if u in later and u in used)
    return Identification(
        adjusted,
        staged,
        tuple(u for u in roles.covariates if u not in {*adjusted, *staged}),
        _nested(graph, roles, adjusted),
        sequential,
        stages=stages,
        ignored=tuple(u for u in early if u not in relevant),
        assumes=f"the graph is right and complete; {_MEANS[given.bidirected]}.",
    )


_MEANS = {
    "mutual": "a cause that it does not show influences at most one variable, and a "
    "bi-directed edge joins variables that influence each other",
    "latent": "a hidden common cause of two variables is shown as a bi-directed edge",
}


def _check_graph(roles: Roles, graph: RehearsalGraph) -> None:
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


def _nested(
    graph: RehearsalGraph, roles: Roles, adjusted: tuple[str, ...]
) -> Criterion:
    given = (*roles.context, *adjusted)
    cut = without_edges_from(graph, roles.actions)
    path = open_path(cut, roles.actions, roles.outcomes, given)
    if path is not None:
        return _biased(cut, path, given)
    return Criterion(
        True,
        None,
        f"Given {_listed(given)}, nothing ties actions and outcomes but the effect of "
        f"the actions.",
    )


def _biased(
    graph: RehearsalGraph, path: list[str], given: tuple[str, ...], where: str = ""
) -> Criterion:
    """Say in words which path is open, and where conditioning itself opened it."""
    written = " ".join(path)
    said = (
        f"{where}{path[0]} and {path[-1]} are tied other than by the effect of "
        f"{path[0]}, by {written}, given {_listed(given)}."
    )
    for c in colliders(path):
        seen = sorted(graph.descendants(c) & set(given))
        said += f" Conditioning on {_listed(seen)} is what opens it at {c}."
    return Criterion(False, written, said)


def _sequential(
    graph: RehearsalGraph, roles: Roles, adjusted: tuple[str, ...]
) -> tuple[Criterion, Plan]:
    """Try what lies before and between the actions; only then all that is recorded."""
    effects = graph.descendants(roles.actions) & set(roles.covariates)
    usual = effects & graph.ancestors(roles.actions) | set(adjusted)
    narrow = _Staging(graph, roles, usual)
    plan = narrow.find()
    if plan is None:
        plan = _wider_plan(narrow, effects - usual)
    if plan is None:
        return narrow.first_break()
    turns = ", then ".join(stage.action for stage in plan)
    enough = (
        f"Action by action ({turns}), what precedes each leaves it no common cause "
        f"with the outcomes."
    )
    return Criterion(True, None, enough), plan


def _wider_plan(narrow: _Staging, spare: frozenset[str]) -> Plan | None:
    """Adjust also for effects that lead to no action, but for no more than needed."""
    plan = replace(narrow, pool=narrow.pool | spare).find()
    if plan is None:
        return None
    for u in sorted(spare):
        fewer = replace(narrow, pool=narrow.pool | spare - {u}).find()
        if fewer is not None:
            plan, spare = fewer, spare - {u}
    return plan


class _Turn(NamedTuple):
    """One action's place in a plan: its stage, and what is open in which graph."""

    stage: Stage
    path: list[str] | None
    cut: RehearsalGraph
    given: tuple[str, ...]


@dataclass(frozen=True)
class _Staging:
    """The search for an order of the actions in which none has an open path.

    The order matters where the graph leaves it free: what one action influences may
    be what another has to be adjusted for.

    Args:
        graph: The graph, without mutual influence.
        roles: The names by role.
        pool: The covariates that may be adjusted for.
    """

    graph: RehearsalGraph
    roles: Roles
    pool: frozenset[str]

    def find(self) -> Plan | None:
        plans: list[Plan] = [()]
        tried: set[frozenset[str]] = set()
        while plans:
            plan = plans.pop()
            ready = self._ready(plan)
            if not ready:
                return plan
            for action in reversed(ready):
                turn = self._turn(plan, action)
                placed = frozenset([*(stage.action for stage in plan), action])
                if turn.path is None and placed not in tried:
                    tried.add(placed)
                    plans.append((*plan, turn.stage))
        return None

    def first_break(self) -> tuple[Criterion, Plan]:
        """Take the actions in the graph's order, and name the first open path."""
        plan: Plan = ()
        broken: Criterion | None = None
        while ready := self._ready(plan):
            turn = self._turn(plan, ready[0])
            if turn.path is not None and broken is None:
                where = f"At {ready[0]}: "
                broken = _biased(turn.cut, turn.path, turn.given, where)
            plan = (*plan, turn.stage)
        assert broken is not None, "asked only where no order works"
        return broken, plan

    def _ready(self, plan: Plan) -> list[str]:
        """List the actions that no other outstanding action influences, in order."""
        left = set(self.roles.actions) - {stage.action for stage in plan}
        order = [a for a in self.graph.topological_order() if a in left]
        return [a for a in order if self.graph.ancestors(a) & left == {a}]

    def _turn(self, plan: Plan, action: str) -> _Turn:
        graph, roles = self.graph, self.roles
        placed = {stage.action for stage in plan}
        later = [a for a in roles.actions if a != action and a not in placed]
        past = {*roles.context, *placed}.union(*(stage.covariates for stage in plan))
        cut = without_edges_from(graph.alter(later), action)
        relevant = cut.ancestors((action, *roles.outcomes, *roles.context))
        allowed = (self.pool & relevant) - graph.descendants([action, *later]) - past
        new = tuple(u for u in roles.covariates if u in allowed)
        given = tuple(v for v in roles if v in past or v in new)
        path = open_path(cut, action, roles.outcomes, given)
        return _Turn(Stage(action, new), path, cut, given)
