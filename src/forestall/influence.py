r"""How far a residual moves the mean that it strays from.

A mean that minimises squares listens to what strays farthest, which under heavy tails
says least. What a residual :math:`r` with the density :math:`f` says of the mean is its
score; a step of Newton's from a first look at the mean,

.. math:: \frac{\psi(r)}{E[\psi'(r)]}, \qquad \psi(r) = -\frac{d}{dr} \log f(r),

makes of each record one whose noise has the least variance that there is. For a normal
law that is the residual itself; under heavy tails what strays is hardly heard, and of
two modes each residual is heard about its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array

# How many interquartile ranges a residual may stray before it no longer moves the mean;
# of a normal law one in 150 does.
STRAY = 2.0
# Fewer records than this do not show what their density is like, nor do those of which
# a larger share has the same value: they are counted, rounded, or cut off.
FEW, RECURRING = 200, 0.05
# The score has to make noise quieter by so much: else residuals are as good as normal.
WORTH = 0.85
# The smoothing of the density, as a multiple of Silverman's width, and the number of
# values at which its score is told.
SMOOTHING, GRID = 1.5, 401
# The share of residuals on either side of which the score is not told, and the
# interquartile range of a normal law.
TAIL, NORMAL_RANGE = 0.002, 1.349
# The parts of the records by which a score is judged that the others tell.
PARTS = 5


@dataclass(frozen=True, eq=False)
class Influence:
    """How far each residual moves the mean, by linear interpolation.

    Args:
        knots: Residuals, in rising order; beyond the last ones nothing changes. None
            where all are heard as they are.
        values: How far they move the mean.
    """

    knots: Float[Array, " k"]
    values: Float[Array, " k"]

    @classmethod
    def clipped(cls, residuals: Float[Array, " n"]) -> Influence:
        """Hear everything as it is, but nothing beyond some interquartile ranges."""
        ends = np.array(tamed(residuals, STRAY))
        return cls(ends, ends) if np.isfinite(ends).all() else cls(ends[:0], ends[:0])

    @classmethod
    def of(cls, residuals: Float[Array, " n"], v: Float[Array, " n"]) -> Influence:
        """Hear residuals by their score where that is worth it.

        Args:
            residuals: How far values stray from their mean, in units of their spread.
            v: The values.
        """
        plain = cls.clipped(residuals)
        values, which, counts = np.unique(v, return_inverse=True, return_counts=True)
        recurs = counts.max(initial=0) > RECURRING * len(v)
        if len(values) < FEW or recurs or not len(plain.knots):
            return plain
        # Values that recur are in one part: they must not judge themselves.
        parts = np.random.default_rng(0).permutation(len(values))[which] % PARTS
        judged = []
        for part in range(PARTS):
            others, own = residuals[parts != part], residuals[parts == part]
            judged.append(cls._scored(others)._heard(own))
        noise = _noise(np.concatenate(judged, axis=1))
        scored = cls._scored(residuals)
        worth = noise <= WORTH * _noise(plain._heard(residuals))
        return scored if worth and np.isfinite(scored.values).all() else plain

    @classmethod
    def _scored(cls, residuals: Float[Array, " n"]) -> Influence:
        """Tell the score of the density of some residuals, as a step of Newton's.

        The density is smoothed on a scale on which heavy tails are short.
        """
        low, middle, high = np.quantile(residuals, [0.25, 0.5, 0.75])
        unit = 0.5 * (high - low)
        u = np.arcsinh((residuals - middle) / unit)
        low, high = np.quantile(u, [0.25, 0.75])
        spread = min(float(u.std()), (high - low) / NORMAL_RANGE)
        width = SMOOTHING * 0.9 * spread * len(u) ** -0.2
        first, last = np.quantile(u, [TAIL, 1.0 - TAIL])
        grid = np.linspace(first, last, GRID)
        off = (grid[:, None] - u) / width
        # In a gap all of them would be nothing: the nearest are always heard.
        bumps = np.exp(0.5 * (np.min(off**2, axis=1, keepdims=True) - off**2))
        log_slope = -(off * bumps).sum(axis=1) / bumps.sum(axis=1) / width
        t = np.sinh(grid)
        # By the chain rule for log f(r) = log g(u(r)) + log u'(r).
        rate = 1.0 / np.sqrt(1.0 + t**2)
        score = -(log_slope * rate - t * rate**2)
        told = cls(middle + unit * t, score / unit)
        slope = float(told._heard(residuals)[1].mean())
        return cls(told.knots, told.values / slope if slope > 0.0 else told.values)

    def __call__(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """Tell how far residuals move the mean."""
        return np.interp(t, self.knots, self.values) if len(self.knots) else t

    @property
    def is_plain(self) -> bool:
        """Whether residuals are heard as they are, if at all."""
        return len(self.knots) <= 2

    def _heard(self, t: Float[Array, " n"]) -> Float[Array, "2 n"]:
        """How far residuals move the mean, and how that changes with them."""
        inside = (t > self.knots[0]) & (t < self.knots[-1])
        k = np.clip(np.searchsorted(self.knots, t) - 1, 0, len(self.knots) - 2)
        slopes = np.diff(self.values) / np.diff(self.knots)
        return np.stack([self(t), np.where(inside, slopes[k], 0.0)])


def _noise(heard: Float[Array, "2 n"]) -> float:
    """The variance of the noise that Newton's steps leave."""
    slope = float(heard[1].mean())
    return float(heard[0].var()) / slope**2 if slope > 0.0 else np.inf


def tamed(v: Float[Array, " n"], reach: float) -> tuple[float, float]:
    """Say where what lies too far out begins, in interquartile ranges."""
    low, middle, high = np.quantile(v, [0.25, 0.5, 0.75]).tolist()
    reach *= high - low
    return (middle - reach, middle + reach) if reach > 0 else (-np.inf, np.inf)
