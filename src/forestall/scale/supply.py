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
from forestall.observations import Observations
from forestall.problem import Problem

# Records that are sampled where there are more.
SAMPLE = 5_000
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


def added(parts: Iterable[Any]) -> Any:
    """Add up what there is of some parts; ``None`` of none."""
    there = (part for part in parts if part is not None)
    first = next(there, None)
    return None if first is None else reduce(add, there, first)


@dataclass(frozen=True, eq=False)
class Sums:
    """Several sums side by side."""

    parts: tuple[Any, ...]

    def __add__(self, other: Sums) -> Sums:
        """Add them one by one."""
        both = zip(self.parts, other.parts, strict=True)
        return Sums(tuple(one + two for one, two in both))


@dataclass(frozen=True, eq=False)
class Several:
    """Counts several things in one pass."""

    counts: tuple[Callable[[Observations], Any], ...]

    def __call__(self, data: Observations) -> Sums:
        """Count a batch for each."""
        return Sums(tuple(count(data) for count in self.counts))


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


def everything(problem: Problem, history: Any) -> Observations:
    """Hold all records in memory, in the order in which they come."""
    found = elsewhere(problem, history, SAMPLE, 0)
    if found is None:
        return Observations.read(problem, history)
    return found.total(Pile.of).joined()


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
        # Arrow takes a while to load, and most histories are tables.
        from forestall.scale.source import Source
        from forestall.scale.streamed import Streamed

        return Streamed.of(problem, Source.read(history), size, seed)
    return None


def is_stream(history: Any) -> bool:
    """Tell what is read batch by batch."""
    if not isinstance(history, str | Path):
        return _is_source(history)
    path = Path(history)
    if not path.is_file():
        return path.is_dir() or any(mark in str(history) for mark in "*?[")
    return path.stat().st_size > STREAMED


def is_frame(history: Any) -> bool:
    """Tell a Dask DataFrame, which nobody has without having loaded the module."""
    module = sys.modules.get("dask.dataframe")
    return module is not None and isinstance(history, module.DataFrame)


def _is_source(history: Any) -> bool:
    # Nobody has one of these without having loaded its module.
    kinds = {"forestall.scale.source": "Source", "pyarrow.dataset": "Dataset"}
    return any(
        module in sys.modules
        and isinstance(history, getattr(sys.modules[module], kind))
        for module, kind in kinds.items()
    )


def in_order(data: Observations) -> Observations:
    """Sort the records, so that what is learned does not depend on their order."""
    return taken(data, np.lexsort(state_of(data).T))


def state_of(data: Observations) -> Float[Array, "n w"]:
    """All variables side by side: contexts, covariates, actions, outcomes."""
    return np.concatenate([data.x, data.u, data.a, data.y], axis=1)
