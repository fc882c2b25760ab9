"""More records than one machine reads in time: every pass as tasks of a Dask cluster.

Each worker reads some files, or runs of rows of a large one, or partitions of a Dask
DataFrame. What it counts is added up on the workers, in a tree. Tasks hold nothing that
could not be made anew, so that a worker that is lost costs time and nothing else.
"""

from __future__ import annotations

import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import ModuleType
from typing import Any

import pyarrow as pa

from forestall.errors import FitError, MissingExtraError, SpecError
from forestall.observations import Observations, Schema
from forestall.problem import Problem, require_problem
from forestall.scale.parts import TablePart
from forestall.scale.source import BATCH_ROWS, Source
from forestall.scale.stream import Survey, survey
from forestall.scale.supply import (
    Supplier,
    Surveyed,
    Total,
    added,
    is_frame,
    summed,
    told,
)

# Rows of a large file for one task: some seconds of work, and little to do again.
PIECE = 4 * BATCH_ROWS
# Sums that are added up by one task.
TOGETHER = 8


def on(client: Any, records: Any) -> Spread:
    """Have a cluster read records, in the place of a history or of contexts.

    Args:
        client: A client of ``dask.distributed``; ``None`` is the current one, or
            threads of this process where there is none.
        records: Files, a folder or a dataset that every worker can read, or a Dask
            DataFrame.
    """
    _dask()
    if client is not None and not hasattr(client, "compute"):
        raise SpecError(
            f"Expected a client of dask.distributed, or None for the current one; got "
            f"{type(client).__name__}. Pass the client first, then the records."
        )
    if is_frame(records):
        return Spread(client, Frame(records, client))
    return Spread(client, Files(Source.read(records)))


class Pieces(ABC):
    """Records in pieces that can be read anywhere."""

    @abstractmethod
    def check(self, columns: Sequence[str], where: str) -> None:
        """Check that there are such columns."""

    @abstractmethod
    def rows(self) -> int | None:
        """Count the rows where that is cheap; else ``None``."""

    @abstractmethod
    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table of these columns without rows."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """Give what tells these records from others, as plain JSON."""

    @abstractmethod
    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Make a task for each piece, which gives its columns as a stream."""


@dataclass(frozen=True, eq=False)
class Files(Pieces):
    """Files, the large ones in runs of rows."""

    source: Source

    def check(self, columns: Sequence[str], where: str) -> None:
        """Look into every file."""
        self.source.check(columns, where)

    def rows(self) -> int | None:
        """Count by what the files say."""
        return self.source.rows()

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table like the first file."""
        return self.source.empty(columns)

    def mark(self) -> dict[str, Any]:
        """Give the mark of a stream: a run may go on with or without a cluster."""
        return self.source.mark()

    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Send every worker the names of its files."""
        pieces = self.source.ready(columns).split(rows)
        return [_sent(piece) for piece in pieces]


@dataclass(frozen=True, eq=False)
class Frame(Pieces):
    """A Dask DataFrame, by its partitions."""

    frame: Any
    client: Any

    def check(self, columns: Sequence[str], where: str) -> None:
        """Look at the names."""
        names = [str(name) for name in self.frame.columns]
        table = pa.table({name: pa.array([], pa.float64()) for name in names})
        Source((TablePart("the frame", table),)).check(columns, where)

    def rows(self) -> int:
        """Count the rows of every partition."""
        return sum(self.lengths)

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table like the frame's own prototype."""
        table = pa.Table.from_pandas(self.frame._meta, preserve_index=False)
        return table.select(list(columns))

    def mark(self) -> dict[str, Any]:
        """Give the rows, and what Dask knows the frame by."""
        token = _dask().base.tokenize(self.frame)
        return {"partitions": len(self.lengths), "rows": self.rows(), "digest": token}

    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Take the columns of each partition, with the row numbers of the whole."""
        del rows
        dask, firsts = _dask(), accumulate(self.lengths, initial=0)
        framed = dask.delayed(_framed, pure=False)
        parts = self.frame[list(columns)].to_delayed()
        return [
            framed(part, f"partition {k}", first)
            for k, (part, first) in enumerate(zip(parts, firsts, strict=False))
        ]

    @cached_property
    def lengths(self) -> list[int]:
        """The number of rows of each partition, by one column of them."""
        count = _dask().delayed(len, pure=False)
        parts = self.frame[[self.frame.columns[0]]].to_delayed()
        return [int(n) for n in _computed(self.client, [count(part) for part in parts])]


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
        add = _dask().delayed(added, pure=False)
        while len(sums) > 1:
            sums = [add(sums[i : i + TOGETHER]) for i in range(0, len(sums), TOGETHER)]
        return _computed(self.client, sums)[0]

    def each(
        self, work: Callable[[Source], Any], columns: Sequence[str], rows: int
    ) -> Iterator[Any]:
        """Give what ``work`` makes of every piece, as they are done."""
        yield from _as_done(self.client, self._tasks(work, columns, rows))

    def _tasks(
        self, work: Callable[[Source], Any], columns: Sequence[str], rows: int
    ) -> list[Any]:
        # A task that makes the work, not the work itself: it travels once, from worker
        # to worker, and is made anew where the last worker that had it is lost.
        sent, done = _sent(work), _dask().delayed(_done, pure=False)
        return [done(sent, source) for source in self.pieces.sources(columns, rows)]


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


def _framed(frame: Any, name: str, first: int) -> Source:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return Source((TablePart(name, table),), first)


def _sent(value: Any) -> Any:
    """Make a task that gives a value; Dask does not look into bytes."""
    # What was defined in a notebook has no module that a worker could import.
    from cloudpickle import dumps  # type: ignore[import-untyped]

    return _dask().delayed(pickle.loads, pure=False)(dumps(value))


def _computed(client: Any, tasks: list[Any]) -> list[Any]:
    with _quietly():
        if client is not None:
            return list(client.gather(client.compute(tasks)))
        return list(_dask().compute(*tasks))


def _as_done(client: Any, tasks: list[Any]) -> Iterator[Any]:
    client = client or _current()
    if client is None:
        yield from _computed(None, tasks)
        return
    from distributed import as_completed

    with _quietly():
        futures = client.compute(tasks)
    with _explained():
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            yield future.result()


def _current() -> Any:
    try:
        from distributed import default_client

        return default_client()  # type: ignore[no-untyped-call]
    except (ImportError, ValueError):
        return None


@contextmanager
def _quietly() -> Iterator[None]:
    """Let one thread of BLAS do, and Dask say nothing of the size of our tasks."""
    from threadpoolctl import threadpool_limits

    with _explained(), threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


@contextmanager
def _explained() -> Iterator[None]:
    """Say in our own words that workers die of a task."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "KilledWorker":
            raise
        raise FitError(
            f"Expected workers that outlive their tasks; got several that died of one: "
            f"{error} Give the workers more memory, and see their logs."
        ) from error


def _dask() -> ModuleType:
    try:
        import dask
    except ImportError as error:
        raise MissingExtraError("dask", "scale") from error
    return dask
