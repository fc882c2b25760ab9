r"""Laws of residuals, counted over all records: they add up over batches.

How the spread changes with the inputs is counted first. Divided by it, residuals are
counted in bins, each shared by the two whose centres it lies between, and the sums of
how often they stay below each level, near which inputs, are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammaincinv, ndtr

from forestall.arrays import Array
from forestall.draft import BLOCK
from forestall.equation import Equation
from forestall.influence import Influence
from forestall.law import (
    GRID,
    Distortion,
    Features,
    Law,
    recentred,
    ridge_by_sums,
    shared_levels,
    smoothing,
)
from forestall.loudness import Din, Hearing, Loudness
from forestall.mechanism import Mechanism
from forestall.observations import Observations
from forestall.scale.supply import added, state_of

# Bins are this wide, in units of the residuals' spread, near zero and a share of the
# residual away from it; the last ones are open.
BIN, FARTHEST = 0.01, 1e3
SIDE = int(np.arcsinh(FARTHEST) / BIN)
# Less than this of a record is rounding.
NOTHING = 1e-9
# The law of many records is told at more values, at most.
FINEST = 2_000


@dataclass(frozen=True, eq=False)
class Tally:
    r"""Counts of residuals, and sums that tell how their law changes with the inputs.

    Args:
        counts: How many residuals there are in each bin.
        gram: :math:`\Psi^\top \Psi`, of the features of the inputs.
        total: :math:`\Psi^\top 1`.
        cross: :math:`\Psi^\top T`, with the indicators of the levels.
        below: How many residuals stay below each level.
    """

    counts: Float[Array, " b"]
    gram: Float[Array, "q q"]
    total: Float[Array, " q"]
    cross: Float[Array, "q k"]
    below: Float[Array, " k"]

    def __add__(self, other: Tally) -> Tally:
        """Count both."""
        return Tally(
            self.counts + other.counts,
            self.gram + other.gram,
            self.total + other.total,
            self.cross + other.cross,
            self.below + other.below,
        )

    @property
    def n(self) -> int:
        """The number of records."""
        return round(float(self.counts.sum()))


@dataclass(frozen=True, eq=False)
class Blank:
    """A law that waits for the residuals to be counted.

    Args:
        features: The features of the inputs; ``None`` where the law must not change
            with them.
        spread: How the spread changes with the inputs; ``None`` where it does not.
        unit: The common spread, by which bins are scaled.
        thresholds: Residuals, divided by their spread, at equally spaced levels.
        influence: How far residuals, divided by their spread, moved the mean.
    """

    features: Features | None
    spread: Loudness | None
    unit: float
    thresholds: Float[Array, " k"]
    influence: Influence

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        residuals: Float[Array, " n"],
        spread: Loudness | None = None,
        *,
        local: bool = True,
        influence: Influence | None = None,
    ) -> Blank:
        """Learn from a sample what has to be known before all are counted."""
        features = Features.of(z) if local else None
        if spread is not None:
            residuals = residuals / spread(z, 0)
        unit = float(residuals.std()) or 1e-12
        if influence is None:
            influence = Influence.clipped(residuals)
        thresholds = np.quantile(residuals, shared_levels())
        return cls(features, spread, unit, thresholds, influence)

    def count(self, z: Float[Array, "n d"], residuals: Float[Array, " n"]) -> Tally:
        """Count some records."""
        if self.spread is not None:
            residuals = residuals / self.spread(z, 0)
        Psi = np.empty((len(z), 0))
        if self.features is not None:
            rows, near = self.features(z)
            # Far from the sample no feature is heard, nor may it be.
            Psi = rows * near[:, None]
        target = (residuals[:, None] <= self.thresholds).astype(float)
        return Tally(
            binned(residuals / self.unit),
            Psi.T @ Psi,
            Psi.sum(axis=0),
            Psi.T @ target,
            target.sum(axis=0),
        )

    def law(self, tally: Tally, n_draws: int, rng: np.random.Generator) -> Law:
        """Make the law of what was counted."""
        distortion = None
        if self.features is not None:
            share = tally.below / tally.n
            cross = tally.cross - np.outer(tally.total, share)
            squares = tally.below * (1.0 - share)
            ridge = ridge_by_sums(tally.gram, cross, squares, tally.n)
            if ridge is not None:
                distortion = Distortion.drawn(self.features, ridge, n_draws, rng)
        weights = weighed(tally.counts, n_draws, rng)
        (seen,) = np.nonzero(tally.counts > NOTHING)
        at, weights = self.unit * centres()[seen], weights[seen]
        mean = weights[:, 0] @ at
        deviation = float(np.sqrt(weights[:, 0] @ (at - mean) ** 2))
        width = smoothing(deviation, tally.n)
        low, high = at[0] - 4 * width, at[-1] + 4 * width
        size = int(np.clip((high - low) / width, GRID, FINEST))
        grid = np.linspace(low, high, size)
        below = ndtr((grid[:, None] - at) / width) @ weights
        return Law(*recentred(grid, below, self.influence), self.spread, distortion)


@dataclass(frozen=True, eq=False)
class Strays:
    """What it takes to count how records stray from a mean that is known.

    Args:
        equation: The equation, without draws.
        mean: The mean alone.
        waiting: What waits for them: a law, or how its spread changes.
        shrunk: How much less than from the truth they stray from the mean.
    """

    equation: Equation
    mean: Mechanism
    waiting: Blank | Hearing
    shrunk: float = 1.0

    def count(self, state: Float[Array, "n w"]) -> Tally | Din:
        """Count some records, block by block."""
        return added(
            self._block(state[i : i + BLOCK]) for i in range(0, len(state), BLOCK)
        )

    def _block(self, state: Float[Array, "n w"]) -> Tally | Din:
        residuals = self.equation.strays(self.mean, state) / self.shrunk
        return self.waiting.count(state[:, self.equation.inputs], residuals)


@dataclass(frozen=True, eq=False)
class Tallies:
    """What was counted for several variables."""

    tallies: dict[tuple[int, ...], Any]

    def __add__(self, other: Tallies) -> Tallies:
        """Count both."""
        both = zip(self.tallies.items(), other.tallies.values(), strict=True)
        return Tallies({key: one + two for (key, one), two in both})


@dataclass(frozen=True, eq=False)
class Straying:
    """Counts how the records of a batch stray, for every variable."""

    strays: Mapping[tuple[int, ...], Strays]

    def __call__(self, data: Observations) -> Tallies:
        """Count some records."""
        state = state_of(data)
        return Tallies({key: each.count(state) for key, each in self.strays.items()})


def centres() -> Float[Array, " b"]:
    """The centres of the bins, finer near zero, of residuals of unit spread."""
    return np.sinh(BIN * np.arange(-SIDE, SIDE + 1))


def binned(t: Float[Array, " n"]) -> Float[Array, " b"]:
    """Count residuals of unit spread, each shared by the two centres about it.

    So a residual that rounding moves to the other side of some edge changes nothing.
    """
    place = np.clip(np.arcsinh(t) / BIN + SIDE, 0.0, 2.0 * SIDE)
    first = np.minimum(place.astype(int), 2 * SIDE - 1)
    part, size = place - first, 2 * SIDE + 1
    counts = np.bincount(first, 1.0 - part, size)
    return counts + np.bincount(first + 1, part, size)


def weighed(
    counts: Float[Array, " b"], n_draws: int, rng: np.random.Generator
) -> Float[Array, "b s"]:
    """Weigh bins by their counts, then by draws of the Bayesian bootstrap.

    A sum of Dirichlet weights of as many records as there are in a bin is a gamma
    weight of that shape. By its quantiles, so that rounding moves no draw but a little.
    """
    levels = rng.random((len(counts), n_draws))
    weights = np.zeros((len(counts), 1 + n_draws))
    (seen,) = np.nonzero(counts > NOTHING)
    weights[seen, 0] = counts[seen]
    weights[seen, 1:] = gammaincinv(counts[seen, None], levels[seen])
    return weights / weights.sum(axis=0)
