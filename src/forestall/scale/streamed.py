"""Records that are somewhere else: surveyed once, then read for every pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from forestall.arrays import Array
from forestall.encoding import Numeric
from forestall.observations import Observations, Schema
from forestall.problem import Problem
from forestall.scale.census import Census
from forestall.scale.source import BATCH_ROWS, Source
from forestall.scale.stream import Survey, batches, survey
from forestall.scale.supply import SAMPLE, Supply, Total, added, in_order


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
