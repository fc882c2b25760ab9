"""Records in whatever way they come: held in memory, or streamed batch by batch."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.encoding import Numeric
from forestall.observations import Observations, Schema
from forestall.problem import Problem
from forestall.scale.census import Census
from forestall.scale.source import BATCH_ROWS, Source
from forestall.scale.stream import SAMPLE, Survey, batches, survey

# A single file of more bytes is streamed.
STREAMED = 1 << 26
# Of records, what has a row for each.
COLUMNS = ("x", "u", "a", "y", "y_raw", "good")


@runtime_checkable
class Sum(Protocol):
    """What adds up over batches."""

    def __add__(self, other: Any, /) -> Any:
        """Add what two batches gave."""


Total = TypeVar("Total", bound=Sum)


class Supply(ABC):
    """All records of a history, and a sample of them.

    Attributes:
        n: The number of records.
        n_good: How many of them have a desired outcome.
        sample: Some of them, drawn at random; all where they are few.
    """

    n: int
    n_good: int
    sample: Observations

    @property
    def sampled(self) -> bool:
        """Whether the sample leaves records out."""
        return self.sample.n < self.n

    @property
    @abstractmethod
    def range(self) -> tuple[Float[Array, " d_x"], Float[Array, " d_x"]]:
        """The smallest and the largest context, column by column, standardised."""

    @abstractmethod
    def total(self, count: Callable[[Observations], Total]) -> Total:
        """Add up what ``count`` makes of each batch of records."""


@dataclass(frozen=True, eq=False)
class Held(Supply):
    """Records in memory."""

    data: Observations
    sample: Observations

    @classmethod
    def of(cls, data: Observations, size: int = SAMPLE, seed: int = 0) -> Held:
        """Sample some of the records, if there are many."""
        if data.n <= size:
            return cls(data, data)
        rows = np.random.default_rng([seed, 4]).choice(data.n, size, replace=False)
        return cls(data, taken(data, np.sort(rows)))

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of records."""
        return self.data.n

    @property
    def n_good(self) -> int:  # type: ignore[override]
        """The number of good ones."""
        return int(self.data.good.sum())

    @property
    def range(self) -> tuple[Float[Array, " d_x"], Float[Array, " d_x"]]:
        """The ends of the contexts."""
        return self.data.x.min(axis=0), self.data.x.max(axis=0)

    def total(self, count: Callable[[Observations], Total]) -> Total:
        """Count them all at once; the count itself works in blocks."""
        return count(self.data)


@dataclass(frozen=True, eq=False)
class Surveyed(Supply):
    """Records that are somewhere else, of which a survey has told.

    Args:
        problem: The question.
        schema: How they are encoded.
        census: What was counted of them.
        sample: Some of them.
    """

    problem: Problem
    schema: Schema
    census: Census
    sample: Observations

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of records."""
        return self.census.n

    @property
    def n_good(self) -> int:  # type: ignore[override]
        """The number of good ones."""
        return self.census.good

    @property
    def range(self) -> tuple[Float[Array, " d_x"], Float[Array, " d_x"]]:
        """The ends of the contexts; those of indicators are in the sample."""
        low, high = self.sample.x.min(axis=0), self.sample.x.max(axis=0)
        block = self.schema.context
        for column in block.columns:
            if isinstance(column, Numeric):
                k = block.slices[column.name].start
                seen = self.census.tallies[column.name].moments
                low[k] = (seen.low - column.mean) / column.scale
                high[k] = (seen.high - column.mean) / column.scale
        return low, high


@dataclass(frozen=True, eq=False)
class Streamed(Surveyed):
    """Records read anew, batch by batch, for every pass."""

    source: Source
    batch_rows: int = BATCH_ROWS

    @classmethod
    def of(
        cls, problem: Problem, source: Source, size: int = SAMPLE, seed: int = 0
    ) -> Streamed:
        """Read the stream once, to know its encoding and to sample it."""
        known = survey(problem, source, size=size, seed=seed)
        return cls(problem, *told(problem, known), source)

    def total(self, count: Callable[[Observations], Total]) -> Total:
        """Read the stream once more."""
        return summed(self.problem, self.schema, self.source, count, self.batch_rows)


def told(problem: Problem, known: Survey) -> tuple[Schema, Census, Observations]:
    """Fix the encoding and encode the sample, its records in order."""
    schema = known.schema(problem)
    return schema, known.census, in_order(known.sample(problem, schema))


def summed(
    problem: Problem,
    schema: Schema,
    source: Source,
    count: Callable[[Observations], Any],
    batch_rows: int = BATCH_ROWS,
) -> Any:
    """Add up over the batches of a stream; one without records gives ``None``."""
    read = batches(problem, schema, source, batch_rows=batch_rows)
    return added(count(records.data) for records in read if records.data.n)


def added(parts: Iterable[Any]) -> Any:
    """Add up what there is of some parts; ``None`` of none."""
    there = (part for part in parts if part is not None)
    first = next(there, None)
    return None if first is None else reduce(add, there, first)


@dataclass(frozen=True, eq=False)
class Pile:
    """Records that are put together, not counted."""

    parts: tuple[Observations, ...]

    @staticmethod
    def of(data: Observations) -> Pile:
        """Begin with one batch."""
        return Pile((data,))

    def __add__(self, other: Pile) -> Pile:
        """Put two piles together."""
        return Pile(self.parts + other.parts)

    def joined(self) -> Observations:
        """Make one set of records of all."""
        parts = self.parts
        columns = {k: np.concatenate([getattr(p, k) for p in parts]) for k in COLUMNS}
        return replace(parts[0], **columns)  # type: ignore[arg-type]


def taken(data: Observations, rows: Any) -> Observations:
    """Some of the records."""
    columns = {name: getattr(data, name)[rows] for name in COLUMNS}
    return replace(data, **columns)


def held(supply: Supply) -> Supply:
    """Hold all records in memory at once, whatever way they come."""
    if not supply.sampled:
        return supply
    data = supply.total(Pile.of).joined()
    return Held(data, data)


class Supplier(ABC):
    """Records of which nothing is known before there is a problem."""

    @abstractmethod
    def supply(self, problem: Problem, size: int, seed: int) -> Supply:
        """Survey them for a problem."""


def supplied(
    problem: Problem, history: Any, *, size: int = SAMPLE, seed: int = 0
) -> Supply:
    """Hold a table in memory; stream a folder, a dataset or a large file.

    Args:
        problem: The question.
        history: Whatever a history may be.
        size: How many records to sample where there are more.
        seed: Of the sample.
    """
    found = elsewhere(problem, history, size, seed)
    if found is not None:
        return found
    return Held.of(in_order(Observations.read(problem, history)), size, seed)


def kept(
    problem: Problem, history: Any, *, size: int = SAMPLE, seed: int = 0
) -> Supply:
    """Do the same, but sample only what is not in memory."""
    found = elsewhere(problem, history, size, seed)
    if found is not None:
        return found
    data = Observations.read(problem, history)
    return Held(data, data)


def elsewhere(problem: Problem, history: Any, size: int, seed: int) -> Supply | None:
    """Survey what is not in memory; ``None`` for what is."""
    if isinstance(history, Supply):
        return history
    if is_frame(history):
        from forestall.scale.cluster import on

        history = on(None, history)
    if isinstance(history, Supplier):
        return history.supply(problem, size, seed)
    if is_stream(history):
        return Streamed.of(problem, Source.read(history), size, seed)
    return None


def is_stream(history: Any) -> bool:
    """Tell what is read batch by batch."""
    if not isinstance(history, str | Path):
        return isinstance(history, Source) or _is_dataset(history)
    path = Path(history)
    if not path.is_file():
        return path.is_dir() or any(mark in str(history) for mark in "*?[")
    return path.stat().st_size > STREAMED


def is_frame(history: Any) -> bool:
    """Tell a Dask DataFrame, which nobody has without having loaded the module."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(history, module.DataFrame)


def _is_dataset(history: Any) -> bool:
    # Nobody has a dataset without having loaded the module.
    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(history, dataset.Dataset)


def in_order(data: Observations) -> Observations:
    """Sort the records, so that what is learned does not depend on their order."""
    state = np.concatenate([data.x, data.u, data.a, data.y], axis=1)
    return taken(data, np.lexsort(state.T))
