"""When each formula is right: the criteria by which a graph decides.

The nested formula asks for no open path once the edges out of all actions are removed;
the staged one asks it of each action in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

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


def listed(names: Iterable[str]) -> str:
    """Join names for a sentence."""
    return ", ".join(names) or "none"


def nested_criterion(
    graph: RehearsalGraph, roles: Roles, adjusted: tuple[str, ...]
) -> Criterion:
    """Look for a tie other than the effect, given contexts and what is adjusted for."""
    given = (*roles.context, *adjusted)
    cut = without_edges_from(graph, roles.actions)
    path = open_path(cut, roles.actions, roles.outcomes, given)
    if path is not None:
        return _biased(cut, path, given)
    return Criterion(
        True,
        None,
        f"Given {listed(given)}, nothing ties actions and outcomes but the effect of "
        f"the actions.",
    )


def _biased(
    graph: RehearsalGraph, path: list[str], given: tuple[str, ...], where: str = ""
) -> Criterion:
    """Say in words which path is open, and where conditioning itself opened it."""
    written = " ".join(path)
    said = (
        f"{where}{path[0]} and {path[-1]} are tied other than by the effect of "
        f"{path[0]}, by {written}, given {listed(given)}."
    )
    for c in colliders(path):
        seen = sorted(graph.descendants(c) & set(given))
        said += f" Conditioning on {listed(seen)} is what opens it at {c}."
    return Criterion(False, written, said)


def sequential_criterion(
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
