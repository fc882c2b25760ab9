"""Which variables are learned, in which order, and what each follows from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from forestall.arrays import Array
from forestall.encoding import Categorical
from forestall.observations import Schema
from forestall.problem import Problem

Key = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """A variable and what it follows from.

    Args:
        name: The variable.
        columns: Where its encoded values stand in the state.
        inputs: The state columns it follows from.
        mates: Actions of its own tier among them, by their place.
        apart: The same without these.
    """

    name: str
    columns: slice
    inputs: Int[Array, " d"]
    mates: tuple[int, ...] = ()
    apart: Piece | None = None

    @property
    def keys(self) -> list[Key]:
        """Name the equation of each column: itself, then what it follows from."""
        own = range(self.columns.start, self.columns.stop)
        return [(column, *self.inputs.tolist()) for column in own]


class Layout:
    """The state: contexts, covariates, actions, outcomes, and what precedes what.

    Attributes:
        columns: Where the encoded values of each variable but outcomes stand.
        levels: The covariates that are categories.
    """

    def __init__(self, problem: Problem, schema: Schema) -> None:
        """Lay out the state."""
        self.problem = problem
        self.columns: dict[str, slice] = {}
        start = 0
        for block in (schema.context, schema.covariates, schema.actions):
            for name, part in block.slices.items():
                self.columns[name] = slice(start + part.start, start + part.stop)
            start += block.width
        self.width = start + len(problem.outcomes)
        covariates = schema.covariates.columns
        self.levels = {c.name for c in covariates if isinstance(c, Categorical)}
        self._rank = {v: k for k, tier in enumerate(problem.tiers) for v in tier}
        self._parents = known_parents(problem)

    def is_level(self, column: int) -> bool:
        """Whether a column is of a category."""
        parts = (self.columns[v] for v in self.levels)
        return any(part.start <= column < part.stop for part in parts)

    def pieces(self) -> list[Piece]:
        """List covariates and actions, in order."""
        last = max(self._rank[v] for v in self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        moved = [v for v in moved if self._rank[v] < last or v in self.problem.actions]
        moved.sort(key=self._turn)
        return [self._piece(v, moved[:k]) for k, v in enumerate(moved)]

    def _turn(self, name: str) -> tuple[int, int]:
        """Within a tier, covariates come before the actions that go along with them.

        Only an action that covariates of its clique follow from comes first.
        """
        if name not in self.problem.actions:
            return self._rank[name], 1
        return self._rank[name], 0 if len(self._clique(name)) > 1 else 2

    def _clique(self, name: str) -> set[str]:
        """The variables that mutually influence this one, and itself."""
        graph = self.problem.one_graph()
        if graph is None or graph.bidirected != "mutual":
            return {name}
        return set(graph.clique_of(name))

    def _piece(self, name: str, before: list[str]) -> Piece:
        actions, own = tuple(self.problem.actions), self.columns[name]
        mates = [
            v for v in before if self._rank[v] == self._rank[name] and v in actions
        ]
        mates = [v for v in mates if v not in self._clique(name)]
        if name not in actions:
            # No covariate may follow from an action of its own tier.
            before = [v for v in before if v not in mates]
            mates = []
        inputs = self._inputs(name, before)
        if not mates or self._parents is not None:
            return Piece(name, own, inputs)
        rest = self._inputs(name, [v for v in before if v not in mates])
        places = tuple(actions.index(v) for v in mates)
        return Piece(name, own, inputs, places, Piece(name, own, rest))

    def _inputs(self, name: str, before: list[str]) -> Int[Array, " d"]:
        """State columns of the contexts, which are known, and of what precedes."""
        known = [*self.problem.context, *before]
        if self._parents is not None:
            known = [v for v in known if v in self._parents[name]]
        columns = [
            np.arange(self.columns[v].start, self.columns[v].stop) for v in known
        ]
        return np.concatenate([np.empty(0, dtype=int), *columns])

    def outcomes(self) -> list[Piece]:
        """List the outcomes, each given those before it."""
        first = self.width - len(self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        pieces = []
        for k, name in enumerate(self.problem.outcomes):
            earlier = [v for v in moved if self._rank[v] < self._rank[name]]
            inputs = self._inputs(name, earlier)
            before = np.concatenate([inputs, np.arange(first, first + k)])
            pieces.append(Piece(name, slice(first + k, first + k + 1), before))
        return pieces

    def variables(self, inputs: Int[Array, " d"]) -> Int[Array, " d"]:
        """Number the variables behind some columns, which have one width each."""
        owner = np.empty(self.width, dtype=int)
        for k, part in enumerate(self.columns.values()):
            owner[part] = k
        first = self.width - len(self.problem.outcomes)
        owner[first:] = len(self.columns) + np.arange(len(self.problem.outcomes))
        return np.unique(owner[inputs], return_inverse=True)[1]


def known_parents(problem: Problem) -> dict[str, set[str]] | None:
    """The parents of each variable, where they are all that has to be known of it.

    That takes a graph without hidden causes, in which contexts follow from contexts
    only; else a context tells more than the parents do.
    """
    graph = problem.one_graph()
    if graph is None or graph.bidirected_edges:
        return None
    known, contexts = set(problem.variables), set(problem.context)
    if set(graph.nodes) - known or set(graph.parents(contexts)) - contexts:
        return None
    return {v: set(graph.parents([v])) for v in known}
