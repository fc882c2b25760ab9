"""The fields of a problem, each read and checked by itself."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any

import numpy as np

from forestall.cells import LARGEST
from forestall.errors import SpecError, nearest
from forestall.graph import RehearsalGraph, read_graphs
from forestall.identify import Roles, Tiers, check_vertices
from forestall.region import Polytope


class Feasible(Mapping[str, tuple[float, float]]):
    """The feasible interval of each action, read-only."""

    def __init__(self, intervals: Mapping[str, tuple[float, float]]) -> None:
        """Copy the intervals."""
        self._intervals = dict(intervals)

    def __getitem__(self, action: str) -> tuple[float, float]:
        """Give the lowest and highest value of an action."""
        return self._intervals[action]

    def __iter__(self) -> Iterator[str]:
        """Go through the actions."""
        return iter(self._intervals)

    def __len__(self) -> int:
        """Count the actions."""
        return len(self._intervals)

    def __repr__(self) -> str:
        """Write it as the dict that it stands for."""
        return repr(self._intervals)


def read_names(role: str, value: Any) -> tuple[str, ...]:
    """Read a list of column names, or an array or index of them."""
    if not _is_list(value):
        raise SpecError(
            f"Expected a list of column names for {role!r}; got {_unlisted(value)}"
        )
    for name in value:
        if not isinstance(name, str) or not name.strip():
            raise SpecError(
                f"Expected column names as text in {role!r}; got {name!r}. Write each "
                f"as the history spells it."
            )
    return tuple(map(str, value))


def _is_list(value: Any) -> bool:
    if isinstance(value, str | bytes | Mapping | Set):
        return False
    # A data frame has a length too, but is no list of names.
    flat = len(getattr(value, "shape", (0,))) == 1
    return flat and hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _unlisted(value: Any) -> str:
    if isinstance(value, Set):
        return (
            f"a set, {value!r}, whose order differs from run to run. Write a list: "
            f"{sorted(value, key=str)!r}."
        )
    if isinstance(value, str):
        return f"{value!r}. Write [{value!r}] for a single column."
    told = f"shape {value.shape}" if hasattr(value, "shape") else repr(value)
    return f"{type(value).__name__}, {told}. List them, e.g. ['x1', 'x2']."


def read_actions(value: Any) -> Feasible:
    """Read the feasible interval of each action."""
    if not isinstance(value, Mapping):
        raise SpecError(
            f"Expected actions as a mapping from name to feasible interval, e.g. "
            f"{{'rate': (0.0, 1.0)}}; got {value!r}. Give the lowest and highest value "
            f"of each."
        )
    read_names("actions", list(value))
    return Feasible({name: _interval(name, ends) for name, ends in value.items()})


def _interval(name: str, ends: Any) -> tuple[float, float]:
    if not _is_list(ends) or len(ends) != 2 or not all(map(_is_number, ends)):
        raise SpecError(
            f"Expected a feasible interval (lowest, highest) for the action {name!r}; "
            f"got {ends!r}. Give two numbers, e.g. (0.0, 1.0)."
        )
    lower, upper = map(_float, ends)
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise SpecError(
            f"Expected a finite feasible interval for the action {name!r}; got "
            f"({lower:g}, {upper:g}). Give the lowest and highest value that can be "
            f"set, e.g. the range seen in the history."
        )
    if max(abs(lower), abs(upper)) > LARGEST:
        raise SpecError(
            f"Expected a feasible interval within {LARGEST:g} for the action {name!r}; "
            f"got ({lower:g}, {upper:g}). Give what can really be set."
        )
    if not lower < upper:
        raise SpecError(
            f"Expected a feasible interval with lowest < highest for the action "
            f"{name!r}; got ({lower:g}, {upper:g}), which is empty. Leave out "
            f"an action that cannot be varied."
        )
    return lower, upper


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
    if not _is_list(order):
        raise SpecError(
            f"Expected order as a list of names, earliest first; got {order!r}. "
            f"Write, e.g., ['x', 'a', 'y']."
        )
    tiers = tuple(map(_tier, order))
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


def _tier(item: Any) -> tuple[str, ...]:
    tier = read_names("order", [item] if isinstance(item, str) else item)
    if not tier:
        raise SpecError(
            f"Expected a name, or a list of names, in each place of order; got the "
            f"empty {item!r}. Remove it."
        )
    return tier


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
    """Read one graph, or several, one for each time step."""
    if source is None:
        return None
    graphs = read_graphs(source)
    for graph in graphs:
        check_vertices(roles, graph)
    return graphs if len(graphs) > 1 else graphs[0]


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
        return desired.over(outcomes)
    if isinstance(desired, str):
        raise SpecError(
            f"Expected a list of constraints in desired; got {desired!r}. "
            f"Write [{desired!r}]."
        )
    if not isinstance(desired, Sequence):
        raise SpecError(
            f"Expected desired as a list of constraints or a pair of arrays (M, b); "
            f"got {desired!r}. Write, e.g., ['y >= 0.6']."
        )
    if len(desired) == 2 and not any(isinstance(part, str) for part in desired):
        return Polytope.from_arrays(
            np.asarray(desired[0]), np.asarray(desired[1]), outcomes
        )
    return Polytope.parse(desired, outcomes)
