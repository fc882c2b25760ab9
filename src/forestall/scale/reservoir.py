"""A uniform sample of a stream that does not depend on how the stream is cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt64

from forestall.arrays import Array
from forestall.errors import DataError


def row_keys(seed: int, rows: Int[Array, " n"]) -> UInt64[Array, " n"]:
    """Give each row number a pseudo-random key; different rows differ.

    The generator SplitMix64, entered at any point of its sequence, so that a worker
    needs only the numbers of its own rows.
    """
    base = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    z = base + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class Reservoir:
    """The records with the smallest keys, at most ``size`` of them.

    Two reservoirs of parts of a stream add up to that of the whole, in any order.

    Args:
        size: How many records to keep.
        seed: What the keys are made from.
        rows: The row numbers of those kept, ascending.
        columns: Their values by column; none before the first record.
    """

    size: int
    seed: int
    rows: Int[Array, " k"]
    columns: Mapping[str, Array]

    @classmethod
    def of(
        cls, size: int, seed: int, rows: Int[Array, " n"], columns: Mapping[str, Array]
    ) -> Reservoir:
        """Sample records, given their numbers in the stream."""
        if size < 1:
            raise DataError(
                f"Expected a sample of at least 1 record; got {size}. Ask for more."
            )
        return cls(size, seed, rows, columns)._smallest()

    @classmethod
    def empty(cls, size: int, seed: int) -> Reservoir:
        """Begin without records."""
        return cls.of(size, seed, np.empty(0, dtype=np.int64), {})

    def __add__(self, other: Reservoir) -> Reservoir:
        """Sample from both."""
        if (self.size, self.seed) != (other.size, other.seed):
            raise DataError(
                f"Expected samples of one size and seed; got {self.size} by seed "
                f"{self.seed} and {other.size} by seed {other.seed}. Draw both alike."
            )
        if not self.columns or not other.columns:
            return self if self.columns else other
        columns = {
            name: np.concatenate([values, other.columns[name]])
            for name, values in self.columns.items()
        }
        rows = np.concatenate([self.rows, other.rows])
        return Reservoir(self.size, self.seed, rows, columns)._smallest()

    def _smallest(self) -> Reservoir:
        keys = row_keys(self.seed, self.rows)
        kept = np.arange(len(keys))
        if len(keys) > self.size:
            kept = np.argpartition(keys, self.size - 1)[: self.size]
        # By row number, so that the order of additions leaves no trace.
        kept = kept[np.argsort(self.rows[kept])]
        columns = {name: values[kept] for name, values in self.columns.items()}
        return Reservoir(self.size, self.seed, self.rows[kept], columns)
