"""Historical records as checked arrays in standard units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.cells import Cells, shown
from forestall.encoding import Block, Categorical, Column, Numeric
from forestall.errors import DataError
from forestall.history import (
    Fingerprint,
    check_enough,
    checked_cells,
    complete_rows,
    number,
    usable,
)
from forestall.problem import Problem, require_problem
from forestall.region import Polytope
from forestall.table import Table


@dataclass(frozen=True, eq=False)
class ContextRows:
    """Contexts as rows to decide for.

    Args:
        x: The contexts in standard units; a faulty row holds neutral values.
        faults: What is wrong with each row, or None.
        table: The table they came in, to answer in its kind.
    """

    x: Array
    faults: tuple[str | None, ...]
    table: Table

    @property
    def n(self) -> int:
        """The number of contexts."""
        return len(self.faults)


@dataclass(frozen=True, eq=False)
class Schema:
    """How the variables of a problem are encoded, fixed by the history.

    Args:
        context: The encoding of :math:`X`.
        covariates: The encoding of :math:`U`.
        actions: The encoding of :math:`A`.
        outcomes: The encoding of :math:`Y`.
        bounds: The feasible interval of each action in its own unit, (d_a, 2).
        fingerprint: What tells that history from others.
    """

    context: Block
    covariates: Block
    actions: Block
    outcomes: Block
    bounds: Array
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    @staticmethod
    def fit(problem: Problem, cells: Mapping[str, Cells]) -> Schema:
        """Take levels, means and scales from complete records."""
        declared = problem.categorical
        mixed = lambda k: _column(cells[k], k in declared)  # noqa: E731
        plain = lambda k: Numeric.fit(cells[k])  # noqa: E731
        return Schema(
            context=Block(tuple(map(mixed, problem.context))),
            covariates=Block(tuple(map(mixed, problem.covariates))),
            actions=Block(tuple(map(plain, problem.actions))),
            outcomes=Block(tuple(map(plain, problem.outcomes))),
            bounds=_frozen(np.array(list(problem.actions.values()), dtype=float)),
            fingerprint=Fingerprint.of(cells),
        )

    @property
    def lower(self) -> Float[Array, " d_a"]:
        """The lowest feasible actions in standard units."""
        return (self.bounds[:, 0] - self.actions.means) / self.actions.scales

    @property
    def upper(self) -> Float[Array, " d_a"]:
        """The highest feasible actions in standard units."""
        return (self.bounds[:, 1] - self.actions.means) / self.actions.scales

    def encode_contexts(self, contexts: Any) -> ContextRows:
        """Encode a table of contexts; a row that cannot be encoded says why."""
        table = Table.read(contexts)
        cells = table.select(self.context.names, "the contexts")
        x = _frozen(self.context.encode(cells, table.n))
        return ContextRows(x, self.context.faults(cells, table.n), table)

    def actions_from_table(self, actions: Any, n: int) -> Float[Array, "{n} d_a"]:
        """Encode given actions, one for each of ``n`` contexts.

        Given actions are checked strictly: a gap in one of them is an error for all.

        Args:
            actions: A table with the action columns; an (n, d_a) array in the order of
                ``problem.actions``; or a mapping of single values, meant for every row.
            n: The number of contexts.
        """
        if isinstance(actions, list | tuple | np.ndarray):
            actions = self._columns_of(actions)
        table = Table.read(actions)
        cells = table.select(self.actions.names, "the actions")
        if table.n != n and not table.single:
            raise DataError(
                f"Expected one action for each of {n} contexts; got {table.n} rows of "
                f"actions. Pass {n} rows, or one mapping of single values for all."
            )
        for name, each in cells.items():
            cells[name] = usable(number(each, "action"), "the actions")
        return np.repeat(self.actions.encode(cells, table.n), n // max(table.n, 1), 0)

    def actions_to_units(self, a: Float[Array, "n d_a"]) -> Float[Array, "n d_a"]:
        """Give actions in the user's units; what was inside the box stays inside."""
        lower, upper = self.bounds.T
        units = a * self.actions.scales + self.actions.means
        # Rounding may step over the end of an interval.
        inside = (a >= self.lower) & (a <= self.upper)
        units = np.where(inside, np.clip(units, lower, upper), units)
        return np.where(a == self.lower, lower, np.where(a == self.upper, upper, units))

    def _columns_of(self, actions: Any) -> dict[str, Array]:
        names = self.actions.names
        try:
            array = np.asarray(actions)
        except ValueError:
            array = np.empty(0)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError(
                f"Expected actions as an array with one row for each context and "
                f"{len(names)} columns ({shown(names)}); got shape {array.shape}. "
                f"Reshape it, e.g. actions.reshape(-1, {len(names)})."
            )
        return {name: array[:, k] for k, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class Observations:
    """Complete historical records in standard units, one row each, read-only.

    Args:
        schema: How the variables are encoded.
        x: Contexts :math:`X`.
        u: Covariates :math:`U`; without columns when there are none.
        a: Actions :math:`A`.
        y: Outcomes :math:`Y`.
        y_raw: Outcomes in the user's units.
        good: Whether each record lies in the desired region.
        dropped: The number of incomplete records left out.
    """

    schema: Schema
    x: Array
    u: Array
    a: Array
    y: Array
    y_raw: Array
    good: Array
    dropped: int = 0

    @staticmethod
    def read(problem: Any, history: Any) -> Observations:
        """Check a table of history against its problem and encode it."""
        require_problem(problem, history)
        table = Table.read(history)
        cells = checked_cells(problem, table)
        keep = complete_rows(problem, cells, table.n)
        cells = {name: each.keep(keep) for name, each in cells.items()}
        n = int(keep.sum())
        check_enough(problem, cells, n, table.n - n)
        schema = Schema.fit(problem, cells)
        y_raw = np.column_stack([cells[k].numbers() for k in problem.outcomes])
        return Observations(
            schema,
            x=_frozen(schema.context.encode(cells, n)),
            u=_frozen(schema.covariates.encode(cells, n)),
            a=_frozen(schema.actions.encode(cells, n)),
            y=_frozen(schema.outcomes.encode(cells, n)),
            y_raw=_frozen(np.ascontiguousarray(y_raw)),
            good=_frozen(good_records(problem.region, y_raw)),
            dropped=table.n - n,
        )

    @property
    def n(self) -> int:
        """The number of records, :math:`N`."""
        return len(self.y)

    def covariate_columns(self, names: Iterable[str]) -> Float[Array, "n d"]:
        """Restrict ``u`` to the named covariates, in the order given."""
        slices = self.schema.covariates.slices
        parts = [self.u[:, slices[name]] for name in names]
        return np.concatenate([np.empty((self.n, 0)), *parts], axis=1)


def good_records(region: Polytope, y: Float[Array, "n d_y"]) -> Bool[Array, " n"]:
    """Mark the outcomes that lie in a region; none at all is an error."""
    good = np.asarray(region.contains(y), dtype=bool)
    if good.any():
        return good
    lines = (_met_text(region, text, y) for text in dict.fromkeys(region.texts))
    raise DataError(
        f"Expected at least one record with a desired outcome; got none in {len(y)}: "
        f"{'; '.join(lines)}. Check units and signs, or relax a constraint: what never "
        f"happened cannot be learned."
    )


def _met_text(region: Polytope, text: str, y: Float[Array, "n d_y"]) -> str:
    constraint = region.only(text)
    count = int(constraint.contains(y).sum())
    if count:
        return f"{text!r} is met by {count}"
    row = int(constraint.slack(y).min(axis=1).argmax())
    values = zip(region.names, y[row].tolist(), strict=True)
    nearest_record = ", ".join(f"{name} = {value:g}" for name, value in values)
    return f"{text!r} is never met, most nearly by {nearest_record}"


def _column(cells: Cells, declared: bool) -> Column:
    if cells.kind == "number" and not declared:
        return Numeric.fit(cells)
    return Categorical.fit(cells)


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array
