"""The fields of a problem, each read and checked by itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forestall.errors import SpecError, nearest
from forestall.graph import RehearsalGraph, read_graphs
from forestall.identify import Roles
from forestall.region import Polytope

Tiers = tuple[tuple[str, ...], ...]


def read_names(role: str, value: Any) -> tuple[str, ...]:
    """Read a list of column names."""
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise SpecError(
            f"Expected a list of column names for {role!r}; got {value!r}. "
            f"Write [{value!r}] for a single column."
        )
    for name in value:
        if not isinstance(name, str) or not name.strip():
            raise SpecError(f"Expected column names as text in {role!r}; got {name!r}.")
    return tuple(value)


def read_actions(value: Any) -> dict[str, tuple[float, float]]:
    """Read the feasible interval of each action."""
    if not isinstance(value, Mapping):
        raise SpecError(
            f"Expected actions as a mapping from name to feasible interval, e.g. "
            f"{{'rate': (0.0, 1.0)}}; got {value!r}."
        )
    read_names("actions", list(value))
    return {name: _interval(name, ends) for name, ends in value.items()}


def _interval(name: str, ends: Any) -> tuple[float, float]:
    try:
        lower, upper = (float(end) for end in ends)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"Expected a feasible interval (lowest, highest) for the action {name!r}; "
            f"got {ends!r}."
        ) from error
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise SpecError(
            f"Expected a finite feasible interval for the action {name!r}; got "
            f"({lower:g}, {upper:g}). Give the lowest and highest value that can be "
            f"set, e.g. the range seen in the history."
        )
    if not lower < upper:
        raise SpecError(
            f"Expected a feasible interval with lowest < highest for the action "
            f"{name!r}; got ({lower:g}, {upper:g}), which is empty."
        )
    return lower, upper


def check_roles(roles: Roles) -> None:
    """Check that each role that must be there is, and that none overlap."""
    for role in ("context", "actions", "outcomes"):
        if not getattr(roles, role):
            raise SpecError(
                f"Expected at least one variable in {role!r}; got none. Name the "
                f"column of the history that plays this role."
            )
    counts = Counter(roles)
    for name, count in counts.items():
        if count > 1:
            found = [role for role, names in vars(roles).items() if name in names]
            where = " and ".join(found) if len(found) > 1 else f"{found[0]} twice"
            raise SpecError(
                f"Expected every variable in one role; got {name!r} in {where}. "
                f"Keep it where it belongs."
            )


def read_order(order: Any, roles: Roles) -> Tiers | None:
    """Read the order of all variables, as tiers."""
    if order is None:
        return None
    known = tuple(roles)
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise SpecError(
            f"Expected order as a list of names, earliest first; got {order!r}."
        )
    tiers = tuple(
        (item,) if isinstance(item, str) else read_names("order", item)
        for item in order
    )
    counts = Counter(name for tier in tiers for name in tier)
    for name, count in counts.items():
        if name not in known:
            raise SpecError(
                f"Expected order to list the problem's variables; got {name!r}, which "
                f"has no role.{nearest(name, known)}"
            )
        if count > 1:
            raise SpecError(f"Expected {name!r} once in order; got it {count} times.")
    absent = [name for name in known if name not in counts]
    if absent:
        raise SpecError(
            f"Expected order to list every variable; missing: {', '.join(absent)}."
        )
    _check_blocks(roles, tiers)
    return tiers


def _check_blocks(roles: Roles, tiers: Tiers) -> None:
    rank = {name: k for k, tier in enumerate(tiers) for name in tier}
    for action in roles.actions:
        for name in roles.context:
            if rank[name] >= rank[action]:
                raise SpecError(
                    f"Expected contexts before every action in order, because they "
                    f"are seen before the decision; got {name!r} not before "
                    f"{action!r}. Make it a covariate, or move it."
                )
        for name in roles.outcomes:
            if rank[name] <= rank[action]:
                raise SpecError(
                    f"Expected outcomes after every action in order; got {name!r} not "
                    f"after {action!r}, which then cannot influence it. Move it."
                )


def read_graph(
    source: Any, roles: Roles
) -> RehearsalGraph | tuple[RehearsalGraph, ...] | None:
    """Read one graph, or a list of them, one for each time step."""
    if source is None:
        return None
    graphs = read_graphs(source)
    for graph in graphs:
        for name in roles:
            if name not in graph.nodes:
                raise SpecError(
                    f"Expected every variable as a node of the graph; {name!r} is "
                    f"none.{nearest(name, graph.nodes)} Add it, without edges if "
                    f"nothing touches it."
                )
    return graphs if isinstance(source, list | tuple) else graphs[0]


def check_categorical(categorical: Sequence[str], roles: Roles) -> None:
    """Check that only contexts and covariates are declared as categories."""
    for name in categorical:
        if name in roles.actions or name in roles.outcomes:
            role = "action" if name in roles.actions else "outcome"
            raise SpecError(
                f"Expected categories among context and covariates; got the {role} "
                f"{name!r}. Actions and outcomes are numbers: leave it out of "
                f"'categorical'."
            )
        if name not in tuple(roles):
            raise SpecError(
                f"Expected 'categorical' to name contexts or covariates; got {name!r}."
                f"{nearest(name, (*roles.context, *roles.covariates))}"
            )


def read_region(desired: Any, outcomes: tuple[str, ...]) -> Polytope:
    """Read the desired region from text or arrays."""
    if isinstance(desired, Polytope):
        return Polytope.from_arrays(
            desired.normals, desired.offsets, outcomes, desired.strict
        )
    if isinstance(desired, str):
        raise SpecError(
            f"Expected a list of constraints in desired; got {desired!r}. "
            f"Write [{desired!r}]."
        )
    if not isinstance(desired, Sequence):
        raise SpecError(
            f"Expected desired as a list of constraints or a pair of arrays (M, b); "
            f"got {desired!r}."
        )
    if len(desired) == 2 and not any(isinstance(part, str) for part in desired):
        return Polytope.from_arrays(
            np.asarray(desired[0]), np.asarray(desired[1]), outcomes
        )
    return Polytope.parse(desired, outcomes)
