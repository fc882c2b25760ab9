"""Decisions for more contexts than fit in memory."""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from forestall.decisions import Decisions
from forestall.errors import DataError, ForestallWarning
from forestall.observations import Schema
from forestall.problem import Problem
from forestall.scale.sink import Sink
from forestall.scale.source import Batch, Place, Source, check_rows

# Fewer than are read at a time elsewhere: what a stop costs is one batch.
DECIDED_ROWS = 16_384
# Warnings that differ in more than their numbers, of which we keep so many.
MOST_WARNINGS = 20

Progress = Callable[[int, int | None], object]


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
) -> Written:
    """Choose an action for each row of a stream, and write them as they are chosen.

    A run that is stopped, in whatever way, goes on when it is called again.

    Args:
        policy: What to decide by.
        contexts: Files, a folder or a dataset of contexts.
        out: The folder for the decisions, new or that of the stopped run.
        batch_rows: How many contexts to decide at a time, and to write in one file.
        resume: Whether to go on with a run that was stopped.
        identifier: A column of the contexts to copy beside the decisions.
        fingerprint: What tells this policy from another; by default a digest of all
            that it has learned.
        progress: Called after each batch with the rows done, and with their total
            where that is cheap to know.
    """
    check_rows(batch_rows)
    source = Source.read(contexts)
    run = _Run(policy, source, batch_rows, identifier, progress)
    source.check(run.columns, "the contexts")
    mark = {
        "contexts": source.mark(),
        "policy": fingerprint or digest(policy),
        "batch_rows": batch_rows,
        "identifier": identifier,
    }
    warned = Warned()
    written = run.write(Sink.open(out, mark, resume=resume), warned)
    warned.tell()
    return written


@dataclass(frozen=True, eq=False)
class _Run:
    policy: Decides
    source: Source
    batch_rows: int
    identifier: str | None
    progress: Progress | None

    @property
    def columns(self) -> tuple[str, ...]:
        names = self.policy.schema.context.names
        extra = () if self.identifier is None else (self.identifier,)
        return tuple(dict.fromkeys([*names, *extra]))

    def write(self, sink: Sink, warned: Warned) -> Written:
        """Decide what is not decided yet."""
        start = time.perf_counter()
        counts = self._counts(sink, warned)
        told = {name: counts[name] for name in ("rows", "act", "leave", "abstain")}
        sink.finish(told)
        return Written(
            folder=sink.folder,
            resumed=counts["resumed"],
            seconds=time.perf_counter() - start,
            **told,
        )

    def _counts(self, sink: Sink, warned: Warned) -> Counter[str]:
        done, total, found = sink.finished(), self.source.rows(), Counter[str]()
        for batch in self._batches():
            first, stop = batch.start.number, batch.start.number + batch.n
            if done.get(first) == stop:
                found.update(sink.counts(first, stop), resumed=batch.n)
            else:
                with warned.gather(batch):
                    found.update(self._decide(batch, sink))
            found["rows"] += batch.n
            if self.progress:
                self.progress(found["rows"], total)
        return found

    def _batches(self) -> Iterator[Batch]:
        """Read the contexts; of none at all, a table with their columns."""
        batch = None
        for batch in self.source.batches(self.columns, "the contexts", self.batch_rows):
            yield batch
        if batch is None:
            place = Place(self.source.first, self.source.parts[0].name, 0)
            yield Batch(self.source.empty(self.columns), place)

    def _decide(self, batch: Batch, sink: Sink) -> dict[str, int]:
        try:
            decisions = self.policy.recommend(batch.table)
            table = decisions.to_frame()
            if self.identifier is not None:
                table = _identified(table, batch.table, self.identifier)
            counts: dict[str, int] = {**Counter(decisions.verdict)}
            sink.write(batch.start.number, table, counts)
        except DataError as error:
            raise batch.placed(error) from error
        return counts


def _identified(table: pa.Table, contexts: pa.Table, identifier: str) -> pa.Table:
    if identifier in table.column_names:
        raise DataError(
            f"Expected an identifier called otherwise than the columns of decisions; "
            f"got {identifier!r}. Rename it in the contexts."
        )
    return table.add_column(0, identifier, contexts[identifier])


class Warned:
    """Warnings of many batches, each kind of them once.

    Two are of one kind when they differ in numbers and examples only.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._found: dict[Any, tuple[str, Place, int]] = {}

    @contextmanager
    def gather(self, batch: Batch) -> Iterator[None]:
        """Gather the warnings of one batch."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ForestallWarning)
            yield
        for each in caught:
            if not issubclass(each.category, ForestallWarning):
                warnings.warn_explicit(
                    each.message, each.category, each.filename, each.lineno
                )
                continue
            self._add(each.category, str(each.message), batch.start)

    def _add(self, category: type[Warning], text: str, place: Place) -> None:
        key = (category, re.sub(r"\d+", "", text.partition(". ")[0]))
        if key in self._found:
            first, since, count = self._found[key]
            self._found[key] = (first, since, count + 1)
        elif len(self._found) < MOST_WARNINGS:
            self._found[key] = (text, place, 1)

    def tell(self) -> None:
        """Warn of each kind once."""
        for (category, _), (text, place, count) in self._found.items():
            batches = f"{count} batches" if count > 1 else "1 batch"
            warnings.warn(
                f"In {batches}, first in that from {place}: {text}",
                category,
                stacklevel=3,
            )


def digest(policy: Any) -> str:
    """Digest all that a policy holds: equal ones, fitted anew, have the same digest."""
    found = hashlib.sha256()
    _feed(found, policy)
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
