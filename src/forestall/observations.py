"""Historical records as checked arrays in standard units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.cells import LARGEST, Cells, first_text, reads_as_number, shown
from forestall.encoding import Block, Categorical, Column, Numeric
from forestall.errors import DataError
from forestall.problem import Problem
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
    """

    context: Block
    covariates: Block
    actions: Block
    outcomes: Block
    bounds: Array

    @staticmethod
    def fit(problem: Problem, cells: Mapping[str, Cells]) -> Schema:
        """Take levels, means and scales from complete records."""
        declared = problem.categorical
        mixed = lambda k: _column(cells[k], k in declared)  # noqa: E731
        number = lambda k: Numeric.fit(cells[k])  # noqa: E731
        return Schema(
            context=Block(tuple(map(mixed, problem.context))),
            covariates=Block(tuple(map(mixed, problem.covariates))),
            actions=Block(tuple(map(number, problem.actions))),
            outcomes=Block(tuple(map(number, problem.outcomes))),
            bounds=_frozen(np.array(list(problem.actions.values()), dtype=float)),
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
            cells[name] = _usable(_number(each, "action"), "the actions")
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
    def read(problem: Problem, history: Any) -> Observations:
        """Check a table of history against its problem and encode it."""
        table = Table.read(history)
        cells = _checked(problem, table)
        keep = _complete_rows(problem, cells, table.n)
        cells = {name: each.keep(keep) for name, each in cells.items()}
        n = int(keep.sum())
        _check_enough(problem, cells, n, table.n - n)
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
    rows = [k for k, each in enumerate(region.texts) if each == text]
    slack = region.slack(y)[:, rows]
    count = int(np.where(region.strict[rows], slack > 0, slack >= 0).all(axis=1).sum())
    if count:
        return f"{text!r} is met by {count}"
    row = int(slack.min(axis=1).argmax())
    values = zip(region.names, y[row].tolist(), strict=True)
    nearest_record = ", ".join(f"{name} = {value:g}" for name, value in values)
    return f"{text!r} is never met, most nearly by {nearest_record}"


def _checked(problem: Problem, table: Table) -> dict[str, Cells]:
    cells = table.select(problem.variables, "the history")
    for name, each in cells.items():
        if name in problem.actions:
            each = _number(each, "action")
        elif name in problem.outcomes:
            each = _number(each, "outcome")
        elif each.kind == "text" and name not in problem.categorical:
            _check_no_numbers_in_text(each)
        if each.kind == "number":
            _check_not_huge(each)
        cells[name] = each
    return cells


def _complete_rows(
    problem: Problem, cells: Mapping[str, Cells], n: int
) -> Bool[Array, " {n}"]:
    gaps = {name: each.gaps for name, each in cells.items()}
    anywhere = np.any(list(gaps.values()), axis=0)
    if problem.missing == "drop" or not anywhere.any():
        return ~anywhere
    counts = (_gap_text(cells[name]) for name in gaps if gaps[name].any())
    raise DataError(
        f"Expected a finite value in every column of the problem; got gaps in "
        f"{int(anywhere.sum())} of {n} rows: {'; '.join(counts)}. Fill them in, or "
        f"leave those rows out with Problem(missing='drop')."
    )


def _gap_text(cells: Cells) -> str:
    infinite = 0
    if cells.kind == "number":
        infinite = int(np.isinf(cells.values).sum())
    counts = {"missing": int(cells.gaps.sum()) - infinite, "infinite": infinite}
    text = " and ".join(f"{k} {what}" for what, k in counts.items() if k)
    return f"{cells.name!r} has {text} (first in row {int(cells.gaps.argmax())})"


def _check_enough(
    problem: Problem, cells: Mapping[str, Cells], n: int, dropped: int
) -> None:
    after = f" after dropping {dropped} with gaps" if dropped else ""
    if n == 0:
        raise DataError(
            f"Expected historical records; got an empty table{after}. Pass at least "
            f"as many records as there are variables."
        )
    if n < max(2, len(problem.variables)):
        raise DataError(
            f"Expected at least as many records as variables, "
            f"{max(2, len(problem.variables))}; got {n}{after}. Add records."
        )
    for name in problem.actions:
        values = cells[name].values
        if np.all(values == values[0]):
            raise DataError(
                f"Expected an action that varies in the history; got {values[0]:g} in "
                f"all {n} records of {name!r}. Its effect cannot be learned: leave it "
                f"out, or add records with other values."
            )


def _column(cells: Cells, declared: bool) -> Column:
    if cells.kind == "number" and not declared:
        return Numeric.fit(cells)
    return Categorical.fit(cells)


def _number(cells: Cells, role: str) -> Cells:
    if cells.kind == "boolean" and role == "action":
        raise DataError(
            f"Expected a continuous action in the column {cells.name!r}; got booleans. "
            f"Actions are numbers: use 0 and 1, or the amount that was set."
        )
    return Cells(cells.name, "number", cells.numbers())


def _usable(cells: Cells, where: str) -> Cells:
    _check_not_huge(cells)
    if cells.gaps.any():
        row = int(cells.gaps.argmax())
        raise DataError(
            f"Expected finite numbers for {cells.name!r} in {where}; got "
            f"{float(cells.values[row])!r} in row {row}. Give its value."
        )
    return cells


def _check_not_huge(cells: Cells) -> None:
    huge = np.isfinite(cells.values) & (np.abs(cells.values) > LARGEST)
    if huge.any():
        row = int(huge.argmax())
        raise DataError(
            f"Expected numbers up to {LARGEST:g} in the column {cells.name!r}; got "
            f"{cells.values[row]:g} in row {row}. Correct it, or use a larger unit."
        )


def _check_no_numbers_in_text(cells: Cells) -> None:
    counts = Counter(v for v in cells.values.tolist() if v is not None)
    total = counts.total()
    readable = sum(k for value, k in counts.items() if reads_as_number(value))
    if 2 * readable < total:
        return
    row, value = first_text(cells.values)
    example = "numbers" if readable == total else "the rest"
    raise DataError(
        f"Expected numbers or categories in the column {cells.name!r}; got text, of "
        f"which {readable} of {total} values read as numbers. First "
        f"{'value' if readable == total else 'other value'}: {value!r} in row {row}. "
        f"Convert {example} to numbers or gaps, or say that these are categories with "
        f"Problem(categorical=[{cells.name!r}])."
    )


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array
