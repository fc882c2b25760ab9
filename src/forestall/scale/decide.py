"""Decisions for more contexts than fit in memory."""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from forestall.decisions import Decisions
from forestall.errors import DataError, SpecError
from forestall.observations import Observations, Schema
from forestall.problem import Problem
from forestall.processes import checked_jobs
from forestall.scale.cluster import PIECE, Spread, on
from forestall.scale.sink import Sink
from forestall.scale.source import Batch, Place, Source, check_rows
from forestall.scale.supply import is_frame
from forestall.scale.warned import Warned

# Fewer than are read at a time elsewhere: what a stop costs is one batch.
DECIDED_ROWS = 16_384
# Blocks that each of several processes answers between two times that progress is told:
# calling them together takes as long as a quick policy needs for half a block.
TOGETHER = 4

Progress = Callable[[int, int | None], object]
Tell = Callable[[int], object]


@runtime_checkable
class Decides(Protocol):
    """What a policy must be able to do here."""

    @property
    def schema(self) -> Schema:
        """How the user's columns become numbers."""

    def recommend(self, contexts: Any) -> Decisions:
        """Choose an action for each row of ``contexts``."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Decisions that were written to a folder.

    Args:
        folder: Where they are: a Parquet dataset.
        rows: The number of contexts.
        act: How many of them to act on.
        leave: How many to leave alone.
        abstain: How many nothing can be said of.
        resumed: How many had been decided before, by a run that was stopped.
        seconds: How long this run took.
    """

    folder: Path
    rows: int
    act: int
    leave: int
    abstain: int
    resumed: int
    seconds: float

    def __str__(self) -> str:
        """Say what was written, and where."""
        before = f", {self.resumed} of them before" if self.resumed else ""
        return (
            f"{self.rows} contexts{before}: {self.act} act, {self.leave} leave, "
            f"{self.abstain} abstain; in {str(self.folder)!r} after "
            f"{self.seconds:.1f} s"
        )


def recommend_stream(
    policy: Decides,
    contexts: Any,
    out: str | Path,
    *,
    batch_rows: int = DECIDED_ROWS,
    resume: bool = True,
    identifier: str | None = None,
    fingerprint: str | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Written:
    """Choose an action for each row of a stream, and write them as they are chosen.

    A run that is stopped, in whatever way, goes on when it is called again.

    Args:
        policy: What to decide by.
        contexts: Files, a folder or a dataset of contexts; ``on(client, ...)`` any of
            these, or a Dask DataFrame, has the workers of a cluster decide.
        out: The folder for the decisions, new or that of the stopped run. The workers
            of a cluster must be able to write to it.
        batch_rows: How many contexts to decide at a time, and to write in one file.
        resume: Whether to go on with a run that was stopped.
        identifier: A column of the contexts to copy beside the decisions.
        fingerprint: What tells this policy from another; by default a digest of the
            records and the method that it comes from.
        progress: Called after each block of contexts that the policy answers at a
            time, or each piece on a cluster, with the rows done, and with their total
            where that is cheap to know. Without it a policy shows them by a bar, on a
            terminal and once it has taken a while.
        jobs: How many processes share the work. It changes nothing of what is written.
    """
    check_rows(batch_rows)
    stream = stream_of(contexts)
    _check_shared(policy, stream, jobs)
    columns = _columns(policy, identifier)
    stream.check(columns, "the contexts")
    mark = {
        "contexts": stream.mark(),
        "policy": fingerprint or digest(policy),
        "batch_rows": batch_rows,
        "identifier": identifier,
    }
    start, sink = time.perf_counter(), Sink.open(out, mark, resume=resume)
    deciding = Deciding(policy, sink, columns, batch_rows, identifier, jobs)
    with _showing(policy) as tell:
        done = deciding.all(stream, progress or tell)
    told = {name: done.counts[name] for name in ("rows", "act", "leave", "abstain")}
    sink.finish(told)
    done.warned.tell()
    return Written(
        folder=sink.folder,
        resumed=done.counts["resumed"],
        seconds=time.perf_counter() - start,
        **told,
    )


def stream_of(contexts: Any) -> Source | Spread:
    """Read here, or on the workers of a cluster."""
    if is_frame(contexts):
        return on(None, contexts)
    return contexts if isinstance(contexts, Spread) else Source.read(contexts)


def _check_shared(policy: Decides, stream: Source | Spread, jobs: int) -> None:
    """Refuse several processes where nothing could be shared among them."""
    if checked_jobs(jobs) == 1:
        return
    if isinstance(stream, Spread):
        raise SpecError(
            f"Expected jobs=1 for contexts on a cluster, whose workers share the work; "
            f"got jobs={jobs}. Leave it out, and add workers for more speed."
        )
    if "jobs" not in inspect.signature(policy.recommend).parameters:
        raise SpecError(
            f"Expected jobs=1 for a policy whose recommend takes no jobs; got "
            f"jobs={jobs} for a {type(policy).__name__}. Leave it out."
        )


@contextmanager
def _showing(policy: Decides) -> Iterator[Progress | None]:
    """Have a policy that can show how far the stream is do so, not each batch."""
    with getattr(policy, "showing", nullcontext)() as tell:
        yield tell


def _columns(policy: Decides, identifier: str | None) -> tuple[str, ...]:
    extra = () if identifier is None else (identifier,)
    return tuple(dict.fromkeys([*policy.schema.context.names, *extra]))


@dataclass(frozen=True, eq=False)
class Decided:
    """What came of some contexts.

    Args:
        counts: Rows, verdicts, and rows that had been decided before.
        warned: The warnings that they gave.
    """

    counts: Counter[str]
    warned: Warned

    def __add__(self, other: Decided) -> Decided:
        """Count both."""
        return Decided(self.counts + other.counts, self.warned + other.warned)


@dataclass(frozen=True, eq=False)
class Deciding:
    """Decides what is not decided yet of a stream, and writes it.

    Args:
        policy: What to decide by.
        sink: Where to write it.
        columns: What to read.
        batch_rows: How many contexts to decide at a time.
        identifier: A column to copy.
        jobs: How many processes share the work.
    """

    policy: Decides
    sink: Sink
    columns: tuple[str, ...]
    batch_rows: int
    identifier: str | None
    jobs: int = 1

    def all(self, stream: Source | Spread, progress: Progress | None) -> Decided:
        """Decide for every context; of none at all, write a table without rows."""
        done, total = Decided(Counter(), Warned()), stream.rows()

        def tell(more: int) -> None:
            if progress:
                progress(done.counts["rows"] + more, total)

        for part in self._parts(stream, tell if progress else None):
            done += part
            tell(0)
        if not done.counts["rows"]:
            empty = Batch(stream.empty(self.columns), Place(0, "the contexts", 0))
            done += self._batch(empty)
        return done

    def _parts(
        self, stream: Source | Spread, tell: Tell | None = None
    ) -> Iterator[Decided]:
        if isinstance(stream, Spread):
            rows = self.batch_rows * max(1, PIECE // self.batch_rows)
            sink = replace(self.sink, folder=self.sink.folder.absolute())
            return stream.each(replace(self, sink=sink), self.columns, rows)
        read = stream.batches(self.columns, "the contexts", self.batch_rows)
        return (self._batch(batch, tell) for batch in read)

    def __call__(self, source: Source) -> Decided:
        """Decide for a piece of a stream, on a worker."""
        with _showing(self.policy):
            return sum(self._parts(source), Decided(Counter(), Warned()))

    def _batch(self, batch: Batch, tell: Tell | None = None) -> Decided:
        first, stop = batch.start.number, batch.start.number + batch.n
        rows = Counter(rows=batch.n)
        if self.sink.has(first, stop):
            rows["resumed"] = batch.n
            return Decided(rows + Counter(self.sink.counts(first, stop)), Warned())
        warned, told = Warned(), list[Decisions]()
        # Without anyone to tell, in one go.
        step = self._step(batch.n) if tell else batch.n
        for row in range(0, max(1, batch.n), max(1, step)):
            if tell and row:
                tell(row)
            part = Batch(batch.table.slice(row, step), batch.place(row))
            with warned.gather(part), _placed(part):
                told.append(self._decisions(part.table))
        with _placed(batch):
            counts = self._write(batch, told)
        return Decided(rows + counts, warned)

    def _step(self, n: int) -> int:
        """How many of ``n`` contexts to decide for before progress is told."""
        together = self.jobs * TOGETHER if self.jobs > 1 else 1
        return together * getattr(self.policy, "block", n)

    def _decisions(self, table: pa.Table) -> Decisions:
        # Each process has a whole block at least: blocks, and with them what is rounded
        # how, are those of one process.
        rows = table.num_rows
        jobs = min(self.jobs, rows // getattr(self.policy, "block", max(1, rows)))
        recommend: Any = self.policy.recommend
        return recommend(table, jobs=jobs) if jobs > 1 else recommend(table)

    def _write(self, batch: Batch, told: list[Decisions]) -> Counter[str]:
        table = pa.concat_tables([each.to_frame() for each in told])
        if self.identifier is not None:
            table = _identified(table, batch.table, self.identifier)
        counts = Counter[str](v for each in told for v in each.verdict)
        self.sink.write(batch.start.number, table, counts)
        return counts


@contextmanager
def _placed(batch: Batch) -> Iterator[None]:
    """Tell of errors where in its file they are."""
    try:
        yield
    except DataError as error:
        raise batch.placed(error) from error


def _identified(table: pa.Table, contexts: pa.Table, identifier: str) -> pa.Table:
    if identifier in table.column_names:
        raise DataError(
            f"Expected an identifier called otherwise than the columns of decisions; "
            f"got {identifier!r}. Rename it in the contexts."
        )
    return table.add_column(0, identifier, contexts[identifier])


def digest(policy: Any) -> str:
    """Digest what a policy was learned from, and how; else all that it holds."""
    found = hashlib.sha256()
    data = getattr(policy, "data", None)
    if not isinstance(data, Observations):
        _feed(found, policy)
        return found.hexdigest()[:16]
    # What follows from the records is rounded otherwise by the next process.
    for name in ("problem", "method", "data", "n_records", "subsets"):
        _feed(found, [type(policy).__name__, name, getattr(policy, name, None)])
    return found.hexdigest()[:16]


def _feed(found: Any, value: Any) -> None:
    found.update(type(value).__name__.encode())
    if isinstance(value, np.ndarray) and value.dtype != object:
        found.update(repr((value.shape, value.dtype.str)).encode())
        found.update(np.ascontiguousarray(value).data)
    elif isinstance(value, Problem):
        found.update(json.dumps(value.to_dict(), default=str).encode())
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            _feed(found, getattr(value, each.name))
    elif isinstance(value, Mapping):
        _feed(found, [item for pair in value.items() for item in pair])
    elif isinstance(value, list | tuple | np.ndarray):
        for each in value:
            _feed(found, each)
    elif isinstance(value, str | bytes | int | float | bool | np.generic | None):
        found.update(repr(value).encode())
