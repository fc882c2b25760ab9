"""The question: contexts, actions, outcomes, and what is desired of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from forestall.errors import SpecError, nearest
from forestall.files import read_toml, write_text
from forestall.graph import RehearsalGraph
from forestall.identify import Identification, Roles, Tiers, identify
from forestall.region import Polytope
from forestall.spec import (
    check_categorical,
    check_roles,
    read_actions,
    read_graph,
    read_names,
    read_order,
    read_region,
)

if TYPE_CHECKING:
    Names = Sequence[str]
    Intervals = Mapping[str, tuple[float, float]]
    Step = int
else:
    # Whatever a user passes is checked by us, with our own words.
    Names = Intervals = Step = Any

FIELDS = (
    "context",
    "covariates",
    "actions",
    "outcomes",
    "desired",
    "order",
    "graph",
    "categorical",
    "missing",
)
REQUIRED = ("context", "actions", "outcomes", "desired")


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    r"""Which actions may be set, and what outcome is desired.

    Args:
        context: Variables seen before the decision, :math:`X`.
        actions: Feasible interval of each action, :math:`A`, in its own unit.
        outcomes: Variables seen after the decision, :math:`Y`.
        desired: The desired region :math:`S`: linear constraints on the outcomes
            as text (``"0.9 <= y <= 1.5"``), a :class:`Polytope`, or a pair of
            arrays ``(M, b)`` for :math:`M y \le b`.
        covariates: Variables that are neither seen before the decision nor set by
            it, :math:`U`: those before the actions, between and after them.
        order: All variables, earliest first; a nested list is a tier whose members
            do not influence each other. Required when there are covariates and no
            graph.
        graph: Who influences whom: a :class:`RehearsalGraph`, a networkx graph, DOT
            or GML text; or a list of these, one for each time step. A node that has
            no role here stands for a hidden variable.
        categorical: Number-coded categories; text and booleans are seen by
            themselves.
        missing: ``"error"`` refuses records with gaps, ``"drop"`` leaves them out.

    Example:
        >>> print(Problem(
        ...     context=["credit_score"],
        ...     actions={"interest_rate": (0.0, 1.0)},
        ...     outcomes=["roi"],
        ...     desired=["roi >= 0.3"],
        ... ))
        Choose   interest_rate in [0, 1]
        so that  roi >= 0.3
        given    credit_score
    """

    context: Names
    actions: Intervals
    outcomes: Names
    desired: Any
    covariates: Names = ()
    order: Any = None
    graph: Any = None
    categorical: Names = ()
    missing: Any = "error"

    def __post_init__(self) -> None:
        """Check every field once, so that the rest of the library may trust them."""
        fields: dict[str, Any] = {
            name: read_names(name, getattr(self, name))
            for name in ("context", "outcomes", "covariates", "categorical")
        }
        fields["actions"] = read_actions(self.actions)
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        roles = self.roles
        check_roles(roles)
        check_categorical(self.categorical, roles)
        object.__setattr__(self, "order", read_order(self.order, roles))
        object.__setattr__(self, "graph", read_graph(self.graph, roles))
        self._check_missing()
        self._check_ordered()
        self.region.require_interior()
        if not isinstance(self.graph, tuple):
            # Roles that the order or the graph contradicts are an error here.
            self.identification()

    def _check_missing(self) -> None:
        if self.missing not in ("error", "drop"):
            raise SpecError(
                f"Expected missing='error' or missing='drop'; got {self.missing!r}. "
                f"Use 'drop' to leave out records with gaps."
            )

    def _check_ordered(self) -> None:
        if self.covariates and self.order is None and self.graph is None:
            raise SpecError(
                f"Expected an order or a graph, because there are covariates "
                f"({', '.join(self.covariates)}); got neither. Adjusting for a "
                f"covariate that the action influences hides part of the action's "
                f"effect, and leaving out one that influences the action confounds "
                f"it: say which comes first, e.g. order=[context..., "
                f"{self.covariates[0]!r}, action..., outcome...]."
            )

    @cached_property
    def region(self) -> Polytope:
        """The desired region, in the units of the outcomes."""
        return read_region(self.desired, tuple(self.outcomes))

    @property
    def roles(self) -> Roles:
        """The names of the variables by role."""
        return Roles(
            tuple(self.context),
            tuple(self.covariates),
            tuple(self.actions),
            tuple(self.outcomes),
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable with a role, in the order of the roles."""
        return (*self.context, *self.covariates, *self.actions, *self.outcomes)

    @property
    def tiers(self) -> Tiers:
        """The variables earliest first, by the order or else by the graph."""
        if self.order is not None:
            return self.order
        graph = self.one_graph()
        if graph is None:
            return (tuple(self.context), tuple(self.actions), tuple(self.outcomes))
        kept = (tuple(v for v in t if v in self.variables) for t in graph.tiers())
        return tuple(tier for tier in kept if tier)

    def one_graph(self) -> RehearsalGraph | None:
        """The graph, when there is one for all time; else an error."""
        if isinstance(self.graph, tuple):
            raise SpecError(
                f"Expected one graph; got one for each of {len(self.graph)} time "
                f"steps. Choose a step with problem.at(step), step 0 to "
                f"{len(self.graph) - 1}."
            )
        return self.graph

    def at(self, step: Step) -> Problem:
        """Choose the graph of one time step, counted from 0."""
        graphs = self.graph if isinstance(self.graph, tuple) else (self.graph,)
        whole = isinstance(step, int | np.integer) and not isinstance(step, bool)
        if not whole or not 0 <= step < len(graphs):
            raise SpecError(
                f"Expected a time step from 0 to {len(graphs) - 1}; got {step!r}. "
                f"Steps are whole numbers."
            )
        return replace(self, graph=graphs[step])

    def identification(self) -> Identification:
        """Say what is adjusted for, and whether that is enough."""
        return self._identification

    @cached_property
    def _identification(self) -> Identification:
        graph = self.one_graph()
        return identify(self.roles, self.order if graph else self.tiers, graph)

    @classmethod
    def from_file(cls, path: str | Path) -> Problem:
        """Read a problem from a TOML file."""
        return cls.from_dict(read_toml(path, "problem", SpecError))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Problem:
        """Make a problem from plain fields, as a TOML file holds them."""
        for key in fields:
            if key not in FIELDS:
                raise SpecError(
                    f"Expected the fields {', '.join(FIELDS)}; got {key!r}."
                    f"{nearest(str(key), FIELDS)}"
                )
        absent = [key for key in REQUIRED if key not in fields]
        if absent:
            raise SpecError(
                f"Expected the fields {', '.join(REQUIRED)}; missing: "
                f"{', '.join(absent)}."
            )
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Give every field that is set as plain lists, numbers and text."""
        fields: dict[str, Any] = {
            "context": list(self.context),
            "covariates": list(self.covariates),
            "outcomes": list(self.outcomes),
            "desired": list(dict.fromkeys(self.region.texts)),
            "order": self.order and [list(tier) for tier in self.order],
            "graph": _plain_graph(self.graph),
            "categorical": list(self.categorical),
            "missing": self.missing,
            "actions": {k: [float(v) for v in ab] for k, ab in self.actions.items()},
        }
        return {k: v for k, v in fields.items() if v not in (None, [])}

    def to_file(self, path: str | Path) -> Path:
        """Write the problem as a TOML file that :meth:`from_file` reads back."""
        return write_text(path, tomli_w.dumps(self.to_dict(), multiline_strings=True))

    def __eq__(self, other: object) -> bool:
        """Two problems are equal when all their fields are."""
        return isinstance(other, Problem) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash((self.variables, self.region.texts))

    def __str__(self) -> str:
        """The question as a person would put it."""
        lines = self._lines()
        width = max(map(len, lines))
        return "\n".join(f"{k:<{width}}  {v}" for k, v in lines.items())

    def _repr_html_(self) -> str:
        """The same as a small table, for a notebook."""
        from forestall import html

        lines = self._lines()
        return html.pairs("Problem", lines | {"outcomes": ", ".join(self.outcomes)})

    def _lines(self) -> dict[str, str]:
        actions = (f"{k} in [{lo:g}, {hi:g}]" for k, (lo, hi) in self.actions.items())
        lines = {
            "Choose": ", ".join(actions),
            "so that": str(self.region),
            "given": ", ".join(self.context),
            "covariates": ", ".join(self.covariates),
            "order": " < ".join(_tier_text(tier) for tier in self.order or ()),
            "graph": _graph_text(self.graph),
            "categories": ", ".join(self.categorical),
            "gaps": "records with gaps are dropped" * (self.missing == "drop"),
        }
        return {k: v for k, v in lines.items() if v}

    def __repr__(self) -> str:
        """Every field that is set, as it would be written."""
        fields = ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items())
        return f"Problem({fields})"


def require_problem(value: object, history: object = None) -> None:
    """Raise unless ``value`` is a problem; ``history`` is what came along with it."""
    if isinstance(value, Problem):
        return
    remedy = "Make one with Problem(context=..., actions=..., ...)."
    if isinstance(history, Problem):
        remedy = "Swap the two: the problem comes first, then the history."
    elif isinstance(value, Mapping):
        remedy = "Make one of plain fields with Problem.from_dict(...)."
    elif isinstance(value, str | Path):
        remedy = "Read its file with Problem.from_file(...)."
    raise SpecError(
        f"Expected a Problem, then a history; got {type(value).__name__} for the "
        f"problem. {remedy}"
    )


def _plain_graph(graph: Any) -> str | list[str] | None:
    if isinstance(graph, tuple):
        return [each.to_dot() for each in graph]
    return None if graph is None else graph.to_dot()


def _tier_text(tier: tuple[str, ...]) -> str:
    return tier[0] if len(tier) == 1 else "{" + ", ".join(tier) + "}"


def _graph_text(graph: Any) -> str:
    if graph is None:
        return ""
    if isinstance(graph, tuple):
        return f"one for each of {len(graph)} time steps"
    both = len(graph.bidirected_edges)
    extra = f" and {both} bi-directed ({graph.bidirected})" if both else ""
    return f"{len(graph.edges)} directed edges{extra}"
