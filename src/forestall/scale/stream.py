"""Historical records larger than memory: one pass to know them, more to learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.cells import Cells
from forestall.encoding import Block, Categorical, Column
from forestall.errors import DataError
from forestall.observations import Observations, Schema
from forestall.problem import Problem, require_problem
from forestall.scale.census import (
    Census,
    batch_cells,
    one_by_one,
    outcomes,
    without_gaps,
)
from forestall.scale.reservoir import Reservoir
from forestall.scale.source import BATCH_ROWS, Batch, Source
from forestall.scale.supply import SAMPLE
from forestall.table import Table


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a stream tells: its encoding, and a sample of its records.

    Two surveys of parts of a stream add up to that of the whole.

    Args:
        census: Counts of everything the encoding depends on.
        reservoir: Complete records, in the user's units.
    """

    census: Census
    reservoir: Reservoir

    def __add__(self, other: Survey) -> Survey:
        """Join what two parts of a stream tell."""
        return Survey(self.census + other.census, self.reservoir + other.reservoir)

    def schema(self, problem: Problem) -> Schema:
        """Fix the encoding; a stream that is no history is an error here."""
        return self.census.schema(problem)

    def sample(self, problem: Problem, schema: Schema) -> Observations:
        """Encode the sampled records, in the order of the stream."""
        table = Table.read(dict(self.reservoir.columns))
        cells = table.select(problem.variables, "the sample")
        return encoded(problem, schema, _as_counted(problem, cells))


@dataclass(frozen=True, eq=False)
class Records:
    """The complete records of one batch.

    Args:
        rows: The number of each of them in the stream.
        data: The records in standard units.
    """

    rows: Int[Array, " n"]
    data: Observations


def survey(
    problem: Any,
    source: Any,
    *,
    size: int = SAMPLE,
    seed: int = 0,
    batch_rows: int = BATCH_ROWS,
) -> Survey:
    """Read a stream once, to know how to encode it and what it looks like.

    Args:
        problem: The question.
        source: Files, a folder or a dataset of historical records.
        size: How many records to sample.
        seed: The seed of the sample.
        batch_rows: How many rows to hold in memory at a time.
    """
    require_problem(problem, source)
    lenient = one_by_one(problem)
    found = Survey(Census(), Reservoir.empty(size, seed))
    for batch in _batches(problem, source, batch_rows):
        cells = batch_cells(lenient, batch)
        keep = np.flatnonzero(without_gaps(cells))
        columns = {name: each.values[keep] for name, each in cells.items()}
        rows = batch.start.number + keep
        try:
            found += Survey(
                Census.of(problem, batch, cells),
                Reservoir.of(size, seed, rows, columns),
            )
        except DataError as error:
            raise batch.placed(error) from error
    return found


def batches(
    problem: Problem, schema: Schema, source: Any, *, batch_rows: int = BATCH_ROWS
) -> Iterator[Records]:
    """Read a stream in standard units that are fixed beforehand.

    Args:
        problem: The question.
        schema: How the variables are encoded, as a survey of the stream says.
        source: Files, a folder or a dataset of historical records.
        batch_rows: How many rows to hold in memory at a time.
    """
    lenient = one_by_one(problem)
    for batch in _batches(problem, source, batch_rows):
        cells = batch_cells(lenient, batch)
        keep = without_gaps(cells)
        if problem.missing == "error" and not keep.all():
            raise _gap(batch, int((~keep).argmax()))
        kept = {name: each.keep(keep) for name, each in cells.items()}
        rows = np.flatnonzero(keep)
        try:
            data = encoded(problem, schema, kept, dropped=batch.n - len(rows))
        except _UnreadableError as error:
            place = batch.place(int(rows[error.row]))
            raise DataError(f"{error} That is {place}.") from error
        yield Records(batch.start.number + rows, data)


class _UnreadableError(DataError):
    """A record that the encoding does not know."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def encoded(
    problem: Problem, schema: Schema, cells: Mapping[str, Cells], dropped: int = 0
) -> Observations:
    """Encode complete records; a value that the encoding does not know is an error."""
    y_raw = outcomes(problem, cells)
    n = len(y_raw)
    return Observations(
        schema,
        x=_encode(schema.context, cells, n),
        u=_encode(schema.covariates, cells, n),
        a=_encode(schema.actions, cells, n),
        y=_encode(schema.outcomes, cells, n),
        y_raw=_frozen(y_raw),
        good=_frozen(np.asarray(problem.region.contains(y_raw), dtype=bool)),
        dropped=dropped,
    )


def _encode(
    block: Block, cells: Mapping[str, Cells], n: int
) -> Float[Array, "{n} width"]:
    parts = [_encode_column(column, cells[column.name]) for column in block.columns]
    return _frozen(np.concatenate([np.empty((n, 0)), *parts], axis=1))


def _encode_column(column: Column, cells: Cells) -> Float[Array, "n width"]:
    # Encoding a category takes long for each value, and there are few of them.
    codes = None
    if isinstance(column, Categorical):
        cells, codes = _distinct(cells)
    unreadable = column.unreadable(cells)
    if unreadable.any():
        which = int(unreadable.argmax())
        row = which if codes is None else int((codes == which).argmax())
        raise _UnreadableError(row, column.fault(cells.values[which]))
    z = column.encode(cells)
    return z if codes is None else z[codes]


def _distinct(cells: Cells) -> tuple[Cells, Int[Array, " n"]]:
    if cells.kind == "number":
        values, codes = np.unique(cells.values, return_inverse=True)
        return Cells(cells.name, "number", values), codes
    seen: dict[Any, int] = {}
    codes = np.array([seen.setdefault(v, len(seen)) for v in cells.values], dtype=int)
    values = np.array([*seen, None], dtype=object)[:-1]
    return Cells(cells.name, cells.kind, values), codes


def _as_counted(problem: Problem, cells: dict[str, Cells]) -> dict[str, Cells]:
    numbers = (*problem.actions, *problem.outcomes)
    return {
        k: Cells(k, "number", each.numbers()) if k in numbers else each
        for k, each in cells.items()
    }


def _batches(problem: Problem, source: Any, rows: int) -> Iterator[Batch]:
    stream = Source.read(source)
    return stream.batches(problem.variables, "the history", rows)


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _gap(batch: Batch, row: int) -> DataError:
    return DataError(
        f"Expected a finite value in every column of the problem; got a gap in "
        f"{batch.place(row)}. Fill it in, or leave such rows out with "
        f"Problem(missing='drop')."
    )
