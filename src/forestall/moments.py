r"""Sums over records that suffice for a fit of low rank: they add up.

Whatever the number of records, a fit of low rank needs of them only sums of products of
a few functions. The sums of two batches add up to those of both together, so that
records can be read block by block, from a disk or on many machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.landmarks import squared
from forestall.lowrank import Plan
from forestall.setting import Records
from forestall.solution import desirabilities

# Function values handled at a time: 32 megabytes.
BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class Batch:
    """Some records, in standard units.

    Args:
        x: Contexts.
        u: The covariates adjusted for; no columns when there are none.
        a: Actions.
        smooth: The smoothed desirability of each record.
        hard: One where the record is good, else zero.
    """

    x: Float[Array, "n d_x"]
    u: Float[Array, "n d_u"]
    a: Float[Array, "n d_a"]
    smooth: Float[Array, " n"]
    hard: Float[Array, " n"]

    @classmethod
    def of(cls, records: Records, sharpness: float) -> Batch:
        """Evaluate how desirable the records are."""
        data = records.data
        smooth = desirabilities((sharpness,), records.region, data)[:, 0]
        return cls(data.x, records.u, data.a, smooth, data.good.astype(float))

    @property
    def h(self) -> Float[Array, "n d_h"]:
        """Contexts, covariates and actions side by side."""
        return np.concatenate([self.x, self.u, self.a], axis=1)

    @property
    def n(self) -> int:
        """The number of records."""
        return len(self.hard)

    def blocks(self, rows: int) -> Iterator[Batch]:
        """Split into batches of so many records."""
        for i in range(0, self.n, rows):
            part = slice(i, i + rows)
            yield Batch(
                self.x[part],
                self.u[part],
                self.a[part],
                self.smooth[part],
                self.hard[part],
            )


@dataclass(frozen=True, eq=False)
class Grams:
    r"""The sums that do not depend on the outcomes; of squares, the lower triangle.

    Squares are of orthonormal functions where the landmarks say so.

    Args:
        n: The number of records.
        inner: :math:`\Phi_h^\top \Phi_h`, of the functions of stage 1.
        outer: :math:`\Phi_x^\top \Phi_x`, of the functions of stage 2.
        natural: The same for the regression without action; ``None`` where its
            functions are those of stage 2.
        embedded: :math:`\Phi_x^\top` times what stage 2 takes the mean of; ``None``
            when there is nothing to adjust for.
    """

    n: int
    inner: Float[Array, "m m"]
    outer: Float[Array, "o o"]
    natural: Float[Array, "k k"] | None
    embedded: Float[Array, "o t"] | None

    def __add__(self, other: Grams) -> Grams:
        """Add the sums of other records."""
        return Grams(
            self.n + other.n,
            self.inner + other.inner,
            self.outer + other.outer,
            _sum(self.natural, other.natural),
            _sum(self.embedded, other.embedded),
        )


@dataclass(frozen=True, eq=False)
class Crosses:
    r"""The sums that depend on the outcomes and the desired region.

    Args:
        inner: :math:`\Phi_h^\top` times the smoothed desirability and the indicator.
        natural: The functions on contexts alone, times the indicator.
        good: The number of good records.
    """

    inner: Float[Array, "m 2"]
    natural: Float[Array, " k"]
    good: float

    def __add__(self, other: Crosses) -> Crosses:
        """Add the sums of other records."""
        return Crosses(
            self.inner + other.inner,
            self.natural + other.natural,
            self.good + other.good,
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """All that a fit of low rank needs to know of the records.

    Args:
        grams: What does not depend on the outcomes.
        crosses: What does.
    """

    grams: Grams
    crosses: Crosses

    @classmethod
    def of(cls, plan: Plan, batch: Batch) -> Moments:
        """Sum over the records of a batch, with two or three passes of BLAS."""
        rows = Rows.of(plan, batch)
        return cls(rows.grams(plan, batch), rows.crosses(batch))

    def __add__(self, other: Moments) -> Moments:
        """Add the sums of other records."""
        return Moments(self.grams + other.grams, self.crosses + other.crosses)


@dataclass(frozen=True, eq=False)
class Rows:
    """The functions of a plan at the records of a batch."""

    inner: Float[Array, "n m"]
    outer: Float[Array, "n o"]
    natural: Float[Array, "n k"]

    @classmethod
    def of(cls, plan: Plan, batch: Batch) -> Rows:
        """Evaluate the functions."""
        outer = plan.outer.rows(batch.x)
        same = plan.natural is plan.outer
        natural = outer if same else plan.natural.rows(batch.x)
        return cls(plan.functions(batch.h), outer, natural)

    def grams(self, plan: Plan, batch: Batch) -> Grams:
        """Sum their products."""
        adjusted, waves = plan.covariates is not None, plan.frequencies is not None
        same = self.natural is self.outer
        return Grams(
            batch.n,
            squared(self.inner) if waves else plan.inner.squares(self.inner),
            plan.outer.squares(self.outer),
            None if same else plan.natural.squares(self.natural),
            self.outer.T @ plan.embedded(batch.u) if adjusted else None,
        )

    def crosses(self, batch: Batch) -> Crosses:
        """Sum their products with the outcomes."""
        return Crosses(
            self.inner.T @ np.column_stack([batch.smooth, batch.hard]),
            self.natural.T @ batch.hard,
            float(batch.hard.sum()),
        )


def moments_of(plan: Plan, batch: Batch) -> Moments:
    """Sum over any number of records, in blocks of bounded memory."""
    first, *rest = blocks_of(plan, batch)
    total = Moments.of(plan, first)
    for block in rest:
        total = total + Moments.of(plan, block)
    return total


def crosses_of(plan: Plan, batch: Batch) -> Crosses:
    """Sum anew only what depends on the outcomes."""
    first, *rest = blocks_of(plan, batch)
    total = Rows.of(plan, first).crosses(first)
    for block in rest:
        total = total + Rows.of(plan, block).crosses(block)
    return total


def blocks_of(plan: Plan, batch: Batch) -> Iterator[Batch]:
    """Split a batch so that its functions fit into a bounded memory."""
    waves = 0 if plan.frequencies is None else 2 * len(plan.frequencies)
    width = plan.inner.rank + plan.outer.rank + plan.natural.rank + 2 * waves
    # Fewer rows than functions would cost less than adding up the sums of them.
    return batch.blocks(max(256, width // 2, BLOCK // width))


def _sum(one: Array | None, other: Array | None) -> Array | None:
    return None if one is None or other is None else one + other
