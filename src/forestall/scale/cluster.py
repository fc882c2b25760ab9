"""More records than one machine reads in time: every pass as tasks of a Dask cluster.

Each worker reads some files, or runs of rows of a large one, or partitions of a Dask
DataFrame. What it counts is added up on the workers, in a tree. Tasks hold nothing that
could not be made anew, so that a worker that is lost costs time and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from forestall.errors import SpecError
from forestall.observations import Observations, Schema
from forestall.problem import Problem, require_problem
from forestall.scale.pieces import Files, Frame, Pieces
from forestall.scale.sending import as_done, computed, dask, sent
from forestall.scale.source import BATCH_ROWS, Source
from forestall.scale.stream import Survey, survey
from forestall.scale.streamed import Surveyed, summed, told
from forestall.scale.supply import Supplier, Total, added, is_frame

# Rows of a large file for one task: some seconds of work, and little to do again.
PIECE = 4 * BATCH_ROWS
# Sums that are added up by one task.
TOGETHER = 4


def on(client: Any, records: Any) -> Spread:
    """Have a cluster read records, in the place of a history or of contexts.

    Args:
        client: A client of ``dask.distributed``; ``None`` is the current one, or
            threads of this process where there is none.
        records: Files, a folder or a dataset that every worker can read, or a Dask
            DataFrame.
    """
    dask()
    if client is not None and not hasattr(client, "compute"):
        raise SpecError(
            f"Expected a client of dask.distributed, or None for the current one; got "
            f"{type(client).__name__}. Pass the client first, then the records."
        )
    if is_frame(records):
        return Spread(client, Frame(records, client))
    if isinstance(records, str | Path):
        # Workers may have been started elsewhere.
        records = os.path.abspath(records)
    return Spread(client, Files(Source.read(records)))


@dataclass(frozen=True, eq=False)
class Spread(Supplier):
    """Records that the workers of a cluster read; made by :func:`on`.

    Args:
        client: The client, or ``None``.
        pieces: The records.
    """

    client: Any
    pieces: Pieces

    def supply(self, problem: Problem, size: int, seed: int) -> Clustered:
        """Survey them for a problem, with one pass."""
        require_problem(problem, self)
        self.check(problem.variables, "the history")
        known = self.total(Surveying(problem, size, seed), problem.variables)
        return Clustered(problem, *told(problem, known), self)

    def check(self, columns: Sequence[str], where: str) -> None:
        """Check that there are such columns, before anything is read."""
        self.pieces.check(columns, where)

    def rows(self) -> int | None:
        """Count the rows where that is cheap; else ``None``."""
        return self.pieces.rows()

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table of these columns without rows."""
        return self.pieces.empty(columns)

    def mark(self) -> dict[str, Any]:
        """Give what tells these records from others, as plain JSON."""
        return self.pieces.mark()

    def total(self, work: Callable[[Source], Any], columns: Sequence[str]) -> Any:
        """Add up, on the workers, what ``work`` makes of every piece."""
        sums = self._tasks(work, columns, PIECE)
        add = dask().delayed(added, pure=False)
        while len(sums) > 1:
            sums = [add(sums[i : i + TOGETHER]) for i in range(0, len(sums), TOGETHER)]
        return computed(self.client, sums)[0]

    def each(
        self, work: Callable[[Source], Any], columns: Sequence[str], rows: int
    ) -> Iterator[Any]:
        """Give what ``work`` makes of every piece, as they are done."""
        yield from as_done(self.client, self._tasks(work, columns, rows))

    def _tasks(
        self, work: Callable[[Source], Any], columns: Sequence[str], rows: int
    ) -> list[Any]:
        # A task that makes the work, not the work itself: it travels once, from worker
        # to worker, and is made anew where the last worker that had it is lost.
        given, done = sent(work), dask().delayed(_done, pure=False)
        return [done(given, source) for source in self.pieces.sources(columns, rows)]


@dataclass(frozen=True, eq=False)
class Clustered(Surveyed):
    """Records that the workers of a cluster read anew for every pass."""

    spread: Spread

    def total(self, count: Callable[[Observations], Total]) -> Total:
        """Have every worker count what it reads, and add it all up."""
        work = Summing(self.problem, self.schema, count)
        total: Total = self.spread.total(work, self.problem.variables)
        return total


@dataclass(frozen=True, eq=False)
class Surveying:
    """Surveys a piece of a stream."""

    problem: Problem
    size: int
    seed: int

    def __call__(self, source: Source) -> Survey:
        """Read it once."""
        return survey(self.problem, source, size=self.size, seed=self.seed)


@dataclass(frozen=True, eq=False)
class Summing:
    """Counts the records of a piece of a stream."""

    problem: Problem
    schema: Schema
    count: Callable[[Observations], Any]

    def __call__(self, source: Source) -> Any:
        """Read it once."""
        return summed(self.problem, self.schema, source, self.count)


def _done(work: Callable[[Source], Any], source: Source) -> Any:
    return work(source)
